# SPDX-License-Identifier: MIT OR Apache-2.0
"""A machine with several disks: each is its own, and what Linux makes of them together works on them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from exec_command import Done, execute

from harness import Bench
from shingle.catalogue import faults
from shingle.failure import Failure
from shingle.machine import job, machine, trace

pytestmark = pytest.mark.machine

MIB = 1 << 20
PROFILES = ("st8000as0002", "wd30ezr")


def dd(disk: int, bytes_mib: int, *, at_mib: int = 0) -> job.Step:
    """Random bytes onto a disk itself."""
    return job.run(
        ("/bin/dd", "if=/dev/urandom", f"of=/dev/shd{disk}", "bs=1M", f"count={bytes_mib}", f"seek={at_mib}",
         "conv=fsync", "status=none"),
    )  # fmt: skip


def two(bench: Bench) -> tuple[Path, Path]:
    first, second = (bench.empty(profile=name) for name in PROFILES)
    return first, second


def counters(disk: int) -> job.Step:
    return job.read(f"/sys/block/shd{disk}/shingle/counters")


def allocated(image: Path, at_mib: int, size_mib: int) -> bytes:
    with image.open("rb") as file:
        file.seek(at_mib * MIB)
        return file.read(size_mib * MIB)


def test_each_disk_has_its_own_data_counters_trace_and_saved_state(
    bench: Bench,
) -> None:
    first, second = two(bench)
    other = machine.Disk(second, save=bench.folder / "second.drive", trace=bench.folder / "second.trace")
    steps = [
        dd(0, 3),
        dd(1, 5, at_mib=64),
        counters(0),
        counters(1),
        job.save(),
        job.save(disk=1),
    ]
    booted = bench.boot(steps, drive=first, save=True, trace=True, others=(other,))

    told = [json.loads(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read"]
    assert [each["written_bytes"] for each in told] == [3 * MIB, 5 * MIB]
    step = booted.outcome.steps[1]
    assert step.after["written_bytes"] == step.before["written_bytes"] == 3 * MIB
    assert step.as_counted_by("shd1").after["written_bytes"] == 5 * MIB

    sectors = []
    for file in (booted.trace_file, bench.folder / "second.trace"):
        written = trace.read(file).select("write")
        sectors.append((int(written["sector"].min()), int(np.sum(written["sectors"]))))
    assert sectors == [(0, 3 * 2048), (64 * 2048, 5 * 2048)]

    images = [
        bench.exported(booted.saved_drive),
        bench.exported(bench.folder / "second.drive"),
    ]
    assert images[0].stat().st_size == images[1].stat().st_size == 64 << 30
    assert allocated(images[0], 0, 3) != bytes(3 * MIB) == allocated(images[1], 0, 3)
    assert allocated(images[0], 64, 5) == bytes(5 * MIB) != allocated(images[1], 64, 5)


def test_disks_of_two_profiles_take_their_own_times(bench: Bench) -> None:
    """The same writes take the same time whichever number a disk has, and another on another kind of disk."""
    times = []
    for profiles in (PROFILES, PROFILES[::-1]):
        first, second = (bench.empty(profile=name) for name in profiles)
        steps = [job.sleep(10), dd(0, 200), job.sleep(10), dd(1, 200)]
        booted = bench.boot(steps, drive=first, others=(machine.Disk(second),))
        took = [step.end_ns - step.start_ns for step in booted.outcome.steps if step.do == "exec"]
        times.append(dict(zip(profiles, took, strict=True)))
    shingled, conventional = (times[0][name] for name in PROFILES)
    assert abs(shingled - conventional) > 0.05 * conventional
    for name in PROFILES:
        # A turn of the platter apart at most, for each of the requests that wait for one.
        assert times[0][name] == pytest.approx(times[1][name], rel=0.05)


def test_a_power_cut_counts_the_requests_of_all_disks_and_saves_each(
    bench: Bench,
) -> None:
    first, second = two(bench)
    script = (
        "for i in 1 2 3 4 5 6 7 8; do echo $i >/run/x;"
        " dd if=/run/x of=/dev/shd$((i % 2)) bs=4k count=1 conv=fsync status=none; done"
    )
    steps = [job.run(("/bin/sh", "-c", script))]
    traces = [bench.folder / "whole.trace", bench.folder / "cut.trace"]
    whole = bench.boot(steps, drive=first, trace=True, others=(machine.Disk(second, trace=traces[0]),))
    requests = [len(trace.read(file).requests) for file in (whole.trace_file, traces[0])]
    assert min(requests) > 4

    saved = bench.folder / "second.drive"
    # One that neither disk alone gets.
    cut = max(requests) + 2
    assert cut < sum(requests)
    left = bench.boot(
        steps,
        drive=first,
        save=True,
        cut=cut,
        others=(machine.Disk(second, saved, traces[1]),),
    )
    assert left.outcome.power_cut
    assert left.saved_drive.exists()
    assert saved.exists()
    assert f"power cut after request {cut}" in left.outcome.console


def test_a_plan_of_faults_is_of_one_disk_alone(bench: Bench) -> None:
    first, second = two(bench)
    source = bench.folder / "plan.toml"
    source.write_text("[[unreadable]]\nfirst_sector = 0\nsectors = 8\n")
    plan = faults.compiled(bench.built.crates, source, bench.folder / "plan")
    read = [
        job.run(
            ("/bin/dd", f"if=/dev/shd{disk}", "of=/dev/null", "bs=4k", "count=1"),
            may_fail=True,
        )
        for disk in (0, 1)
    ]
    booted = bench.boot(read, drive=first, others=(machine.Disk(second, faults=plan),))
    assert [step.status for step in booted.outcome.steps] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("shingle.drive2=x",),
            "shingle.drive is given for shd2, and no shingle.drive for shd1",
        ),
        (
            ("shingle.save1=x",),
            "shingle.save is given for shd1, and no shingle.drive for shd1",
        ),
        (
            ("shingle.trace1=x",),
            "shingle.trace is given for shd1, and no shingle.drive for shd1",
        ),
        (
            ("shingle.faults1=x",),
            "shingle.faults is given for shd1, and no shingle.drive for shd1",
        ),
        (
            ("shingle.drive16=x",),
            "shingle.drive16= is no drive's: expected shingle.drive= for /dev/shd0, or a number",
        ),
        (("shingle.drive01=x",), "shingle.drive01= is no drive's"),
        (
            ("shingle.drive1=/nosuch",),
            "the drive file /nosuch cannot be used: there is no such file",
        ),
    ],
)
def test_a_wrong_use_is_one_sentence(bench: Bench, arguments: tuple[str, ...], sentence: str) -> None:
    first, _ = two(bench)
    with pytest.raises(Failure) as caught:
        bench.boot([job.sync()], drive=first, kernel_arguments=arguments)
    (told,) = (line for line in caught.value.detail if line.startswith("shingle: "))
    assert sentence in told


def test_a_second_disk_without_a_first_is_refused(bench: Bench) -> None:
    first, _ = two(bench)
    with pytest.raises(Failure) as caught:
        bench.boot([job.sync()], others=(machine.Disk(first),))
    assert any("no shingle.drive for shd0" in line for line in caught.value.detail)


def on_disks(bench: Bench, count: int, script: str, *options: str) -> Done:
    """A script on so many bare disks, of two kinds in turn."""
    names = [word for number in range(count) for word in ("--drive", PROFILES[number % 2])]
    done = execute(bench, *names, "--fs", "none", *options, "--", "sh", "-ec", script)
    assert done.status == 0, done.err
    return done


MIRROR = """
mdadm --create /dev/md0 --run --quiet --level=1 --raid-devices=2 --size=131072 --bitmap=internal /dev/shd0 /dev/shd1
mdadm --wait /dev/md0 || true
mkfs.ext4 -q /dev/md0
mkdir /tmp/m
mount /dev/md0 /tmp/m
head -c 20000000 /dev/urandom >/tmp/m/before
shingle-phase rebuild
mdadm --quiet /dev/md0 --fail /dev/shd1
head -c 10000000 /dev/urandom >/tmp/m/degraded
sync
mdadm --quiet /dev/md0 --remove /dev/shd1
mdadm --quiet /dev/md0 --add /dev/shd2
mdadm --wait /dev/md0
sha256sum /tmp/m/before /tmp/m/degraded >/tmp/sums
umount /tmp/m
grep -q '[[]UU]' /proc/mdstat
mdadm --quiet --stop /dev/md0
# The new member alone has it all.
mdadm --assemble --quiet --run /dev/md1 /dev/shd2
mount /dev/md1 /tmp/m
sed s:/md0:/md1: /tmp/sums | sha256sum -c
umount /tmp/m
mdadm --quiet --stop /dev/md1
"""


def test_a_mirror_is_rebuilt_onto_another_disk_and_two_runs_are_equal(
    bench: Bench,
) -> None:
    one, two = (on_disks(bench, 3, MIRROR) for _ in range(2))
    assert one.out == b"/tmp/m/before: OK\n/tmp/m/degraded: OK\n"
    rebuilt = one.phase("rebuild")
    assert [each["disk"] for each in rebuilt["disks"]] == ["shd1", "shd2"]
    # The new member was written whole.
    assert rebuilt["disks"][1]["total_written_bytes"] >= 128 * MIB
    assert rebuilt["total_read_bytes"] >= 128 * MIB
    assert rebuilt["disks"][1]["load"]["latency_ns"]["data_written"]["count"] > 0
    assert one.deterministic() == two.deterministic()
    assert one.out == two.out


PARITY = """
mdadm --create /dev/md0 --run --quiet --level=LEVEL --raid-devices=DATA+P --size=32768 MEMBERS
mdadm --wait /dev/md0 || true
head -c 60000000 /dev/urandom >/tmp/data
dd if=/tmp/data of=/dev/md0 bs=1M conv=fsync status=none
mdadm --quiet /dev/md0 --fail /dev/shd1
mdadm --quiet /dev/md0 --remove /dev/shd1
cmp -n 60000000 /tmp/data /dev/md0
mdadm --quiet /dev/md0 --add /dev/shd4
mdadm --wait /dev/md0
# Without another old member, what was rebuilt is read.
mdadm --quiet /dev/md0 --fail /dev/shd0
echo 3 >/proc/sys/vm/drop_caches
cmp -n 60000000 /tmp/data /dev/md0
mdadm --detail /dev/md0 | grep 'State :'
mdadm --quiet --stop /dev/md0
"""


@pytest.mark.parametrize(("level", "data"), [("5", "3"), ("6", "4")])
def test_parity_gives_back_what_a_failed_disk_had(bench: Bench, level: str, data: str) -> None:
    members = " ".join(f"/dev/shd{number}" for number in range(int(data)))
    script = PARITY.replace("LEVEL", level).replace("DATA+P", data).replace("MEMBERS", members)
    done = on_disks(bench, 5, script)
    assert re.search(rb"State : clean, degraded", done.out), done.out
    written = [each["total_written_bytes"] for each in done.records[-2]["disks"]]
    assert written[3] >= 32 * MIB, "the disk that was added"


LINEAR = """
half=$((64 * 2048))
printf '0 %s linear /dev/shd0 0\\n%s %s linear /dev/shd1 4096\\n' $half $half $half | dmsetup create both
cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --key-file /dev/zero /dev/mapper/both secret
mkfs.xfs -q -K /dev/mapper/secret -f -d size=120m || mkfs.ext4 -q /dev/mapper/secret
mkdir /tmp/m
mount /dev/mapper/secret /tmp/m
yes shingled | head -c 90000000 >/tmp/m/text
sync
sha256sum /tmp/m/text
umount /tmp/m
cryptsetup close secret
! grep -qam1 shingledshingled /dev/mapper/both
! head -c 67108864 /dev/shd0 | grep -qam1 shingled
cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --key-file /dev/zero /dev/mapper/both secret
mount /dev/mapper/secret /tmp/m
sha256sum /tmp/m/text
umount /tmp/m
cryptsetup close secret
dmsetup remove both
"""


MEDIUM = """
mdadm --create /dev/md0 --run --quiet --level=1 --raid-devices=2 --size=16384 --data-offset=1024 /dev/shd0 /dev/shd1
mdadm --wait /dev/md0 || true
head -c 8000000 /dev/urandom >/tmp/data
dd if=/tmp/data of=/dev/md0 bs=1M conv=fsync status=none
echo 3 >/proc/sys/vm/drop_caches
for i in 1 2 3 4; do
    blockdev --flushbufs /dev/md0
    cmp -n 8000000 /tmp/data /dev/md0
done
cat /sys/block/md0/md/dev-shd0/errors /sys/block/md0/md/dev-shd1/errors
cat /sys/block/md0/md/degraded
mdadm --quiet --stop /dev/md0
"""


def test_a_mirror_mends_what_one_disk_cannot_read(bench: Bench) -> None:
    """md reads the other copy and writes it over the block; the disk stays in the array."""
    plan = bench.folder / "first.toml"
    # The resync reads the first disk, and meets them, too.
    plan.write_text("[[transient_read]]\nfirst_sector = 2048\nsectors = 16384\ntimes = 3\n")
    faulty, whole = (on_disks(bench, 2, MEDIUM, *more) for more in (("--faults", f"0:{plan}"), ()))
    errors, others, degraded = (int(line) for line in faulty.out.split())
    assert errors > 0 == others == degraded
    assert whole.out.split() == [b"0", b"0", b"0"]
    assert "times = 3" in faulty.records[0]["configuration"]["faults"]


LATE = """
for disk in /sys/block/shd?; do echo ${PATIENCE_S}000 >$disk/queue/io_timeout; done
mdadm --create /dev/md0 --run --quiet --level=5 --raid-devices=4 --size=16384 --assume-clean /dev/shd[0-3]
head -c 12000000 /dev/urandom >/tmp/data
dd if=/tmp/data of=/dev/md0 bs=1M conv=fsync status=none
# What could not be written goes into the list of bad blocks, and that has to be written, too.
sleep 600
echo 3 >/proc/sys/vm/drop_caches
blockdev --flushbufs /dev/md0
cmp -n 12000000 /tmp/data /dev/md0
cat /sys/block/md0/md/degraded
cat /sys/block/md0/md/dev-shd2/state
mdadm --quiet --stop /dev/md0
"""


@pytest.mark.parametrize(("patience_s", "is_kicked"), [(30, True), (180, False)])
def test_a_disk_that_answers_too_late_is_kicked_out_unless_the_host_waits(
    bench: Bench, patience_s: int, is_kicked: bool
) -> None:
    """A disk that cleans for 40 s before each write, under the timeout that Linux has, and under a longer one."""
    plan = bench.folder / "late.toml"
    # The first ten make the array.
    plan.write_text('[[slow]]\nrequests = "write"\nafter = 10\nlatency_ms = 40000\ntimes = 400\n')
    done = on_disks(bench, 4, LATE, "--faults", f"2:{plan}", "--env", f"PATIENCE_S={patience_s}")
    degraded, state = done.out.split()
    counted = {each["disk"]: each["counters"].get("resets", 0) for each in done.phase("sh")["disks"]}
    assert counted["shd1"] == counted["shd3"] == 0
    if is_kicked:
        assert (degraded, b"faulty" in state) == (b"1", True)
        # Each of five retries.
        assert counted["shd2"] >= 12
    else:
        assert (degraded, state) == (b"0", b"in_sync")
        assert counted["shd2"] == 0
    assert done.phase("sh")["configuration"]["other_faults"] == {"2": plan.read_text()}


def test_device_mapper_joins_two_disks_and_encrypts_them(bench: Bench) -> None:
    done = on_disks(bench, 2, LINEAR)
    one, two = done.out.splitlines()
    assert one == two
    assert done.phase("sh")["total_written_bytes"] > 20 * MIB
    assert done.phase("sh")["disks"][0]["total_written_bytes"] > 20 * MIB


JOURNAL = """
mke2fs -q -O journal_dev -b 4096 /dev/shd1 16384
mke2fs -q -t ext4 -b 4096 -J device=/dev/shd1 /dev/shd0 262144
mkdir /tmp/m
mount -t ext4 /dev/shd0 /tmp/m
shingle-phase names
for n in $(seq 500); do mkdir /tmp/m/$n; done
sync
shingle-phase after
umount /tmp/m
e2fsck -fn /dev/shd0 >/tmp/said 2>&1
"""


def test_ext4_has_its_journal_on_the_second_disk(bench: Bench) -> None:
    done = on_disks(bench, 2, JOURNAL)
    names = done.phase("names")
    # Five hundred directories are five hundred blocks, all of them in the journal and few at home so far.
    assert names["disks"][0]["total_written_bytes"] >= 500 * 4096
    assert names["total_written_bytes"] < names["disks"][0]["total_written_bytes"]


NETWORK = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def answer():
    client, _ = server.accept()
    with client:
        while data := client.recv(65536):
            client.sendall(data.upper())
threading.Thread(target=answer, daemon=True).start()
with socket.create_connection(server.getsockname()) as client:
    total = 0
    for number in range(100):
        client.sendall(b"x" * 1000)
        got = b""
        while len(got) < 1000:
            got += client.recv(65536)
        total += got.count(b"X")
print(total, server.getsockname()[0])
try:
    socket.create_connection(("192.0.2.1", 80))
except OSError as error:
    print(error.strerror)
"""


def test_programs_talk_on_the_loopback_interface_and_reach_nothing_else(
    bench: Bench,
) -> None:
    runs = [execute(bench, "--", "python3", "-c", NETWORK) for _ in range(2)]
    assert runs[0].out == b"100000 127.0.0.1\nNetwork is unreachable\n", runs[0].err
    assert runs[0].deterministic() == runs[1].deterministic()


def test_each_disk_of_a_command_leaves_its_trace(bench: Bench) -> None:
    on_disks(
        bench,
        2,
        "dd if=/dev/zero of=/dev/shd1 bs=1M count=2 conv=fsync status=none",
        "--trace",
        "traces",
    )
    written = [len(trace.read(bench.folder / "traces" / f"shd{disk}.trace").select("write")) for disk in (0, 1)]
    assert written[0] == 0 < written[1]


def test_one_disk_says_nothing_of_others(bench: Bench) -> None:
    done = execute(bench, "--", "true")
    assert not any("disks" in each or "other_drives" in each["configuration"] for each in done.records)
