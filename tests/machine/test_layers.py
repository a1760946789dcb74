# SPDX-License-Identifier: MIT OR Apache-2.0
"""What owners put between a file system and two disks: volumes, caches, an array with a journal. Data are compared."""

from __future__ import annotations

import pytest
from test_several_disks import on_disks

from harness import Bench
from shingle.paths import IN_MACHINE

pytestmark = pytest.mark.machine

MIB = 1 << 20
LVM = """
cd /
export DM_DISABLE_UDEV=1
ours='devices { types = [ "shd", 1 ] } activation { monitoring = 0 } backup { archive = 0 backup = 0 }'
lvm() { command lvm "$@" -q -y --config "$ours" 2>/dev/null; }
lvm vgcreate v /dev/shd0 /dev/shd1
lvm lvcreate -n a -L 1G --type striped -i 2 v
mkfs.ext4 -q /dev/v/a
mkdir /tmp/a /tmp/s
mount /dev/v/a /tmp/a
head -c 20000000 /dev/urandom >/tmp/a/x
cp /tmp/a/x /tmp/x
sync
lvm lvcreate -s -n snap -L 256M v/a
head -c 20000000 /dev/urandom | dd of=/tmp/a/x conv=notrunc,fsync status=none
mount -o ro,noload /dev/v/snap /tmp/s
cmp /tmp/s/x /tmp/x && ! cmp -s /tmp/a/x /tmp/x
umount /tmp/s /tmp/a
lvm lvremove v/snap
lvm lvcreate --type thin-pool -L 1G -n pool v
lvm lvcreate --type thin -V 4G -n t --thinpool pool v
mkfs.ext4 -q /dev/v/t
mount /dev/v/t /tmp/a
cp /tmp/x /tmp/a/
umount /tmp/a
lvm vgchange -a n v
lvm vgchange -a y v
mount /dev/v/t /tmp/a
cmp /tmp/x /tmp/a/x
umount /tmp/a
lvm vgchange -a n v
"""


def test_lvm_makes_striped_thin_and_snapshot_volumes(bench: Bench) -> None:
    done = on_disks(bench, 2, LVM)
    first, (second,) = done.phase("sh"), done.phase("sh")["disks"]
    # The stripes went to both.
    assert min(first["total_written_bytes"], second["total_written_bytes"]) > 20 * MIB


FRONT = """
cd /
mkfs.ext4 -q /dev/shd0
mount /dev/shd0 /mnt
sh /tmp/front.sh make KIND
head -c 50000000 /dev/urandom >/tmp/x
cp /tmp/x /mnt/x
sync
shingle-phase overwrites
python3 -I - <<'P'
import os, random
chance = random.Random(1)
with open("/mnt/x", "r+b", 0) as there, open("/tmp/x", "r+b", 0) as beside:
    for number in range(1000):
        at, data = chance.randrange(12000) * 4096, chance.randbytes(4096)
        os.pwrite(there.fileno(), data, at)
        os.pwrite(beside.fileno(), data, at)
        if number % 10 == 0:
            os.fsync(there.fileno())
P
sync
shingle-phase home
sh /tmp/front.sh drain KIND
umount /mnt
sh /tmp/front.sh stop KIND
# The disk has all of it; bcache's own data come before the file system.
mount -o OPTIONS /dev/shd0 /mnt
echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/x /mnt/x
umount /mnt
mount -t tmpfs none /mnt
"""


@pytest.mark.parametrize("kind", ["writecache", "cache", "bcache"])
def test_what_a_cache_in_front_took_comes_home(bench: Bench, kind: str) -> None:
    options = "ro,noload,loop,offset=8192" if kind == "bcache" else "ro,noload"
    script = FRONT.replace("KIND", kind).replace("OPTIONS", options)
    done = on_disks(bench, 2, script, "--in", f"{IN_MACHINE / 'front.sh'}:/tmp/front.sh", "--capacity-gib", "16")
    (fast,) = done.phase("overwrites")["disks"]
    assert fast["total_written_bytes"] > 0


def test_a_journal_on_another_disk_takes_the_metadata(bench: Bench) -> None:
    script = FRONT.replace("KIND", "journal").replace("OPTIONS", "ro")
    done = on_disks(bench, 2, script, "--in", f"{IN_MACHINE / 'front.sh'}:/tmp/front.sh", "--capacity-gib", "16")
    (fast,) = done.phase("overwrites")["disks"]
    assert fast["total_written_bytes"] > MIB


JOURNAL = """
mdadm --create /dev/md0 --run --quiet --level=5 --raid-devices=3 --size=65536 \
  --write-journal /dev/shd3 /dev/shd0 /dev/shd1 /dev/shd2
mdadm --wait /dev/md0 || true
head -c 60000000 /dev/urandom >/tmp/data
shingle-phase write
dd if=/tmp/data of=/dev/md0 bs=1M conv=fsync status=none
shingle-phase read
mdadm --quiet /dev/md0 --fail /dev/shd1
echo 3 >/proc/sys/vm/drop_caches
cmp -n 60000000 /tmp/data /dev/md0
mdadm --quiet --stop /dev/md0
"""


def test_an_array_with_a_journal_writes_it_first(bench: Bench) -> None:
    done = on_disks(bench, 4, JOURNAL)
    journal = done.phase("write")["disks"][2]
    assert journal["disk"] == "shd3"
    # All data and their parity.
    assert journal["total_written_bytes"] > 60_000_000
