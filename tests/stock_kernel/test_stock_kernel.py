# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package ext4lazy on Debian's own, unmodified kernel under QEMU: `./shingle test --stock-kernel`."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from shingle.build import build
from shingle.debian import stock_kernel
from shingle.debian.stock_kernel import Booted, Guest, Kernel, Module
from shingle.paths import ROOT
from shingle.verify import e2fsck

pytestmark = pytest.mark.stock_kernel

TOOL = ROOT / "packaging/tools/ext4lazy.py"
SEED = 1
# Where the crash comes: so many seconds after what must survive was synced.
CRASH_S = random.Random(SEED).uniform(0.5, 3.0)
MIX = "load run mix --dir /mnt --set operations=400 --set threads=2"
CHURN = "load run churndirs --dir /mnt --set count=400 --set width=50 --set fsync_every=100"
MANIFEST = "load run manifest --set directory_sizes=false"


def image(path: Path, *, mib: int = 1024, journal_mib: int = 64) -> Path:
    with path.open("wb") as file:
        file.truncate(mib << 20)
    subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", "-J", f"size={journal_mib}", path], check=True)
    return path


def tree(booted: Booted, name: str) -> str:
    """The hash of a manifest that the guest printed."""
    return str(json.loads(booted.one(name))["details"]["sha256"])


def entry(line: str) -> tuple[str, ...]:
    """Of a manifest's line what debugfs carries over: no modes and no links."""
    path, kind, _, _, size, contents = line.split("\t")
    return (path, kind) if kind == "d" else (path, kind, size, contents)


def dumped(disk: Path, workshop: Path) -> list[tuple[str, ...]]:
    """What debugfs finds below /mix of an image, without a kernel."""
    out = workshop / f"dumped-{disk.stem}"
    out.mkdir()
    subprocess.run(["/sbin/debugfs", "-R", f"rdump /mix {out}", disk], capture_output=True, check=True)
    listing = workshop / f"{disk.stem}.list"
    load = build.build_crates().load
    subprocess.run(
        [*(load, "run", "manifest", "--dir"), out / "mix", "--set", f'output="{listing}"'],
        capture_output=True, check=True,
    )  # fmt: skip
    return sorted(map(entry, listing.read_text().splitlines()))


def no_trouble(booted: Booted) -> None:
    trouble = re.findall(r".*(?:EXT4-fs error|JBD2: .*error|WARNING: CPU|BUG:|Oops|I/O error).*", booted.console)
    assert trouble == []


def test_the_kernel_is_debian_s_own(kernel: Kernel, module: Module) -> None:
    """Nothing of ours is in it, and its own ext4 is another module."""
    assert kernel.name.startswith(f"{stock_kernel.version()}+deb")
    vermagic = subprocess.run(
        ["/sbin/modinfo", "-F", "vermagic", module.ko], capture_output=True, text=True, check=True
    )
    assert vermagic.stdout.split()[0] == kernel.name
    aliases = subprocess.run(["/sbin/modinfo", "-F", "alias", module.ko], capture_output=True, text=True, check=True)
    assert aliases.stdout.split() == ["fs-ext4lazy"]
    assert list((kernel.modules / "kernel/fs/ext4").glob("ext4.ko*"))


def test_the_module_exports_nothing(module: Module) -> None:
    symbols = subprocess.run(["nm", module.ko], capture_output=True, text=True, check=True).stdout
    assert [line for line in symbols.splitlines() if "__ksymtab" in line or "__kstrtab" in line] == []


def test_another_line_of_kernels_is_left_alone_and_said(kernel: Kernel, module: Module, workshop: Path) -> None:
    folder = workshop / "other-line"
    folder.mkdir()
    (folder / "root").symlink_to(module.root)
    stock_kernel.dkms("add", kernel, folder)
    said = stock_kernel.dkms("build", kernel, folder, kernel_name="6.1.0-50-amd64", accept=(77,))
    assert f"made of ext4 from Linux {stock_kernel.version()}" in said
    assert "6.1.0-50-amd64" in said


@pytest.mark.parametrize(
    ("version", "status", "sentence"),
    [
        (["SUBLEVEL=3"], 0, "this kernel is 6.12.3"),
        (["PATCHLEVEL=13"], 2, "cannot be built for Linux 6.13"),
    ],
)
def test_another_version_is_named(
    kernel: Kernel, module: Module, workshop: Path, version: list[str], status: int, sentence: str
) -> None:
    """A point release warns, another line is an error; both name the two versions. Nothing is compiled here."""
    sources = workshop / f"named-{version[0]}"
    shutil.copytree(next((module.root / "usr/src").glob("ext4lazy-*")), sources)
    done = subprocess.run(
        ["make", "-C", kernel.headers, f"M={sources}", *version, "KERNELVERSION=6." + {
            "SUBLEVEL=3": "12.3", "PATCHLEVEL=13": "13"}[version[0]], "clean"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert stock_kernel.version() in said
    assert sentence in said


def test_it_works_beside_the_kernel_s_own_ext4(guest: Guest, workshop: Path) -> None:
    """Mounted by the helper, worked, read past the caches, unmounted, unloaded, mounted again: the same tree."""
    lazy, stock = image(workshop / "lazy.img"), image(workshop / "stock.img", mib=128, journal_mib=4)
    booted = guest.boot(
        f"""
        echo '/dev/vda /mnt ext4lazy defaults 0 2' >/etc/fstab
        mkdir /other
        run other mount -t ext4 /dev/vdb /other
        run mount mount /mnt
        say options: "$(grep ' /mnt ' /proc/mounts)"
        run mix {MIX}
        run written {MANIFEST} --dir /mnt
        echo 3 >/proc/sys/vm/drop_caches
        run read {MANIFEST} --dir /mnt
        run busy ext4lazy status --json /dev/vda
        run unmounted umount /mnt
        run fsck fsck -a /dev/vda
        run idle ext4lazy status --scan --json /dev/vda
        run check ext4lazy check /dev/vda
        run unloaded rmmod ext4lazy
        say left: "$(grep -c ext4lazy /proc/modules)"
        run again mount /mnt
        say rebuilt: $(kept)
        run verified {MIX} --set stage=\\"verify\\"
        run reread {MANIFEST} --dir /mnt
        cp -r /mnt/mix /other/
        run copied load run manifest --dir /other --set directory_sizes=false
        run drained ext4lazy drain /dev/vda
        umount /mnt
        umount /other
        run empty ext4lazy status --json /dev/vda
        """,
        [lazy, stock],
        folder=workshop,
    )
    no_trouble(booted)
    assert " ext4lazy " in booted.one("options")
    assert "journal_lazy" in booted.one("options")
    assert tree(booted, "written") == tree(booted, "read") == tree(booted, "reread")
    busy, idle, empty = (json.loads(booted.one(name)) for name in ("busy", "idle", "empty"))
    assert int(busy["live_blocks"]) > 0
    assert "kept by journal_lazy" in booted.one("fsck")
    assert idle["log"] == "kept"
    assert idle["live_blocks"] == int(booted.one("rebuilt"))
    assert "no errors" in booted.one("check")
    assert booted.one("left") == "0"
    assert "leaves the log empty" in booted.one("drained")
    assert empty["log"] == "empty"
    # Plain ext4 for everybody, without a replay.
    checked = subprocess.run(["/sbin/e2fsck", "-fn", lazy], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_overwritten_data_move_and_are_tidied_up(guest: Guest, workshop: Path) -> None:
    """data_relocate and `ext4lazy tidy` in the module; the files are the same to plain ext4."""
    lazy = image(workshop / "in-order.img")
    booted = guest.boot(
        """
        run mount mount -t ext4lazy -o data_relocate,data_stretch_kb=1024 /dev/vda /mnt
        say options: "$(grep ' /mnt ' /proc/mounts)"
        for file in 1 2 3 4; do dd if=/dev/urandom of=/mnt/$file bs=4k count=1000; done 2>/dev/null
        sync
        for block in $(seq 0 7 999); do
            for file in 1 2 3 4; do
                dd if=/dev/urandom of=/mnt/$file bs=4k count=1 seek=$block conv=notrunc
            done
        done 2>/dev/null
        sync
        say moved: $(cat /sys/fs/ext4lazy/vda/data_relocated_blocks)
        say written: $(cat /mnt/[1-4] | sha256sum)
        run planned ext4lazy tidy --dry-run /mnt
        run tidied ext4lazy tidy --rate 1000 /mnt
        echo 3 >/proc/sys/vm/drop_caches
        say tidy: $(cat /mnt/[1-4] | sha256sum)
        run planned-again ext4lazy tidy --dry-run /mnt
        umount /mnt
        mount -t ext4 /dev/vda /mnt
        say stock: $(cat /mnt/[1-4] | sha256sum)
        say refused: "$(ext4lazy tidy /mnt 2>&1)"
        umount /mnt
        """,
        [lazy],
        folder=workshop,
    )
    no_trouble(booted)
    assert "data_relocate" in booted.one("options")
    assert int(booted.one("moved")) >= 4 * 140
    assert booted.one("written") == booted.one("tidy") == booted.one("stock")
    torn = re.search(r"and (\d+) parts of files", booted.one("planned"))
    assert torn is not None
    assert int(torn[1]) >= 4
    assert re.search(r"and 0 parts of files", booted.one("planned-again"))
    assert "not mounted read-write with data_relocate" in booted.one("refused")


def test_after_a_crash_stock_ext4_and_e2fsck_recover_what_was_synced(guest: Guest, workshop: Path) -> None:
    """The machine is killed in the middle of work. The same tree comes back three ways, with its data."""
    disk = image(workshop / "crash.img", journal_mib=16)
    crashed = guest.boot(
        f"""
        run mount mount -t ext4lazy /dev/vda /mnt
        run mix {MIX}
        sync
        {MANIFEST} --dir /mnt/mix --set output=\\"/tmp/list\\"
        while read -r line; do say "entry: $line"; done </tmp/list
        run synced {MANIFEST} --dir /mnt/mix
        while :; do {CHURN} --set operations=2000; rm -r /mnt/churn; done
        """,
        [disk],
        folder=workshop,
        kill_after=("synced", CRASH_S),
    )
    assert not crashed.finished
    no_trouble(crashed)
    wanted = tree(crashed, "synced")

    by_e2fsck, by_stock, by_lazy = (workshop / f"crash-{name}.img" for name in ("e2fsck", "stock", "lazy"))
    for copy in (by_e2fsck, by_stock, by_lazy):
        subprocess.run(["cp", "--sparse=always", disk, copy], check=True)
    disk.unlink()

    # The host: the tool on a copy, then e2fsck for good, then the data.
    checked = subprocess.run(
        [TOOL, "check", "--scratch", workshop, by_e2fsck], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for argv, is_well in ((e2fsck.REPLAY, e2fsck.is_replayed), (e2fsck.CHECK, e2fsck.is_content)):
        done = subprocess.run([*argv, by_e2fsck], capture_output=True, text=True, check=False)
        assert is_well(done.returncode, done.stdout), done.stdout
    assert dumped(by_e2fsck, workshop) == sorted(map(entry, crashed.results["entry"]))

    booted = guest.boot(
        f"""
        mkdir /other
        # Without the module: plain ext4, and the line that says so.
        mv /lib/modules/*/updates/ext4lazy.ko /tmp/
        run fallback mount -t ext4lazy -o journal_lazy_keep /dev/vda /mnt
        say line: "$(grep 'no file system ext4lazy' /tmp/out)"
        say stock: "$(grep ' /mnt ' /proc/mounts)"
        run by_stock {MANIFEST} --dir /mnt/mix
        umount /mnt
        mv /tmp/ext4lazy.ko /lib/modules/*/updates/
        run lazily mount -t ext4lazy /dev/vdb /other
        say rebuilt: $(kept)
        run by_lazy {MANIFEST} --dir /other/mix
        umount /other
        """,
        [by_stock, by_lazy],
        folder=workshop,
    )
    no_trouble(booted)
    assert tree(booted, "by_stock") == wanted
    assert tree(booted, "by_lazy") == wanted
    assert " ext4 " in booted.one("stock")
    assert "mounting /dev/vda as plain ext4" in booted.one("line")
    assert int(booted.one("rebuilt")) > 0
    for one in (by_stock, by_lazy):
        done = subprocess.run([TOOL, "check", "--scratch", workshop, one], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"SEED={SEED}, killed after {CRASH_S:.2f} s: {done.stdout}{done.stderr}"


def test_a_check_that_is_killed_leaves_nothing_that_holds_the_volume(guest: Guest, workshop: Path) -> None:
    """By SIGKILL, in the middle of e2fsck: no snapshot, no loop device, and the volume can be mounted at once."""
    disk = image(workshop / "killed-check.img", journal_mib=16)
    booted = guest.boot(
        """
        mkdir -p /tmp/bin /tmp/scratch
        run mount mount -t ext4lazy /dev/vda /mnt
        echo kept >/mnt/file
        umount /mnt
        run check ext4lazy check --scratch /tmp/scratch /dev/vda
        say behind a check: "$(dmsetup ls) $(losetup --list --noheadings)"
        cat >/tmp/bin/e2fsck <<'END'
#!/bin/sh
dmsetup ls >/tmp/during
losetup --list --noheadings >>/tmp/during
kill -KILL $PPID
END
        chmod 755 /tmp/bin/e2fsck
        PATH=/tmp/bin:$PATH ext4lazy check --scratch /tmp/scratch /dev/vda
        say status: $?
        say during: $(wc -l </tmp/during)
        sleep 1
        say behind a kill: "$(dmsetup ls) $(losetup --list --noheadings)" $(find /tmp/scratch -type f)
        run again mount -t ext4lazy /dev/vda /mnt
        say file: $(cat /mnt/file)
        umount /mnt
        """,
        [disk],
        folder=workshop,
    )
    assert booted.one("status") == "137"
    assert booted.one("during") == "2"
    assert booted.one("behind a check").split() == booted.one("behind a kill").split() == ["No", "devices", "found"]
    assert booted.one("file") == "kept"
    no_trouble(booted)


def test_the_snapshot_that_is_checked_cannot_be_mounted(guest: Guest, workshop: Path) -> None:
    """It has the UUID of the volume, and what is written to it is lost."""
    disk = image(workshop / "twin.img", journal_mib=16)
    booted = guest.boot(
        """
        mkdir -p /tmp/bin /tmp/scratch /twin
        run mount mount -t ext4lazy /dev/vda /mnt
        umount /mnt
        real=$(command -v e2fsck)
        cat >/tmp/bin/e2fsck <<END
#!/bin/sh
case "\\$*" in *-n*) mount -t ext4 "\\$3" /twin 2>/tmp/said; echo "\\$?" >/tmp/mounted; umount /twin;; esac
exec $real "\\$@"
END
        chmod 755 /tmp/bin/e2fsck
        PATH=/tmp/bin:$PATH ext4lazy check --scratch /tmp/scratch /dev/vda
        say status: $?
        say mounted: $(cat /tmp/mounted) $(cat /tmp/said)
        """,
        [disk],
        folder=workshop,
    )
    assert booted.one("status") == "0"
    status, said = booted.one("mounted").split(maxsplit=1)
    assert status == "32" and "busy" in said, booted.one("mounted")


def test_a_suspend_finds_no_thread_that_waits_for_a_frozen_one(guest: Guest, workshop: Path) -> None:
    """pm_test=freezer, forty times under a load that keeps the cleaner at work, on four processors."""
    disk = image(workshop / "suspend.img", journal_mib=16)
    booted = replace(guest, cpus=4).boot(
        f"""
        run mount mount -t ext4lazy /dev/vda /mnt
        mkdir /mnt/a /mnt/b
        for place in a b; do
            while [ ! -e /tmp/over ]; do
                {CHURN.replace("/mnt", "/mnt/$place")} --set operations=4000 || touch /tmp/broken
                rm -r /mnt/$place/churn
            done >/dev/null 2>&1 &
        done
        sleep 10
        echo 0 >/sys/module/suspend/parameters/pm_test_delay
        echo freezer >/sys/power/pm_test
        say cleaned before: "$(($(lazy vda relogged) + $(lazy vda swept)))"
        for round in $(seq 40); do
            sleep 0.5
            echo freeze >/sys/power/state || say refused: "$round"
        done
        say cleaned behind: "$(($(lazy vda relogged) + $(lazy vda swept)))"
        touch /tmp/over
        wait
        [ ! -e /tmp/broken ] || fail the load broke
        run unmounted umount /mnt
        """,
        [disk],
        folder=workshop,
        limit_s=1200,
    )
    no_trouble(booted)
    assert booted.console.count("Freezing remaining freezable tasks completed") == 40
    assert "refused" not in booted.results
    assert int(booted.one("cleaned behind")) > int(booted.one("cleaned before"))


def test_readers_of_the_device_and_of_its_files_do_not_wait_for_each_other(guest: Guest, workshop: Path) -> None:
    """Blocks of 1 KiB, so four buffers share a folio; four processors; nobody waits for twenty seconds."""
    disk = workshop / "readers.img"
    with disk.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", "-b", "1024", "-J", "size=16", disk], check=True)
    booted = replace(guest, cpus=4).boot(
        f"""
        echo 20 >/proc/sys/kernel/hung_task_timeout_secs
        echo 5 >/proc/sys/kernel/hung_task_check_interval_secs
        run mount mount -t ext4lazy /dev/vda /mnt
        run made {CHURN} --set operations=20000
        sync
        say logged: "$(lazy vda live_blocks)"
        (while [ ! -e /tmp/over ]; do cat /dev/vda >/dev/null; done) &
        (while [ ! -e /tmp/over ]; do echo 3 >/proc/sys/vm/drop_caches; sleep 0.3; done) &
        (while [ ! -e /tmp/over ]; do find /mnt -type f -size +1000 >/dev/null; done) &
        (while [ ! -e /tmp/over ]; do find /mnt -type f -size +1000 >/dev/null; done) &
        sleep 90
        touch /tmp/over
        wait
        run unmounted umount /mnt
        """,
        [disk],
        folder=workshop,
        limit_s=1200,
    )
    no_trouble(booted)
    assert int(booted.one("logged")) > 300
    assert "blocked for more than" not in booted.console
