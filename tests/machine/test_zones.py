# SPDX-License-Identifier: MIT OR Apache-2.0
"""Zones as Linux sees them: the tools of the distribution on a small host-managed drive, inside the machine."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import Bench, Booted
from shingle.catalogue import drive as drives
from shingle.catalogue import fs
from shingle.catalogue.drive import FormattedDrive, Profile
from shingle.failure import Failure
from shingle.machine import job, trace
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

ZONE = 1 << 19  # sectors, 256 MiB
ZONE_BYTES = ZONE * 512
CONVENTIONAL, SEQUENTIAL, OPEN_MAX = 4, 8, 3
CAPACITY_BYTES = (CONVENTIONAL + SEQUENTIAL) * ZONE_BYTES
REFUSED = (Trouble.FILE_SYSTEM_ERROR,)


@dataclass(frozen=True)
class Zone:
    """A line of `blkzone report`; the write pointer counts from the zone's start."""

    start: int
    pointer: int
    condition: str


def small(bench: Bench, **values: int) -> Profile:
    return bench.altered("hc620", **({"conventional_first": CONVENTIONAL, "open_max": OPEN_MAX} | values))


def boot(bench: Bench, *commands: str, profile: Profile | None = None, **changes: object) -> Booted:
    """Runs these commands of a shell on an empty small drive; the output of number i is file `i`."""
    steps = [
        job.run(["/bin/sh", "-c", f"exec 2>&1; {text}"], stdout=str(i), may_fail=True)
        for i, text in enumerate(commands)
    ]
    drive = bench.empty(profile=profile or small(bench), capacity_bytes=CAPACITY_BYTES)
    return bench.boot(steps, drive=drive, **changes)


def zones(report: str) -> list[Zone]:
    rows = re.findall(r"start: (0x\w+), len 0x080000, cap 0x080000, wptr (0x\w+) .*zcond:\s*\d+\((\w\w)\)", report)
    return [Zone(int(start, 16), int(pointer, 16), condition) for start, pointer, condition in rows]


def statuses(booted: Booted) -> list[int]:
    return [step.status for step in booted.outcome.steps]


REPORT = "blkzone report /dev/shd0"


def write(zone: int, *, block: int = 0, blocks: int = 1) -> str:
    place = f"bs=4k seek={zone * ZONE // 8 + block} count={blocks} oflag=direct"
    return f"dd if=/dev/zero of=/dev/shd0 {place}"


def of_zone(command: str, zone: int) -> str:
    return f"blkzone {command} -o {zone * ZONE} -c 1 /dev/shd0"


def test_the_report_agrees_with_what_was_written(bench: Bench) -> None:
    booted = boot(bench, write(5, blocks=3), write(5, block=3), write(7), write(1, block=9), REPORT)
    assert statuses(booted) == [0] * 5
    found = zones(booted.text("4"))
    assert len(found) == CONVENTIONAL + SEQUENTIAL
    assert [zone.start for zone in found] == [i * ZONE for i in range(len(found))]
    assert {zone.condition for zone in found[:CONVENTIONAL]} == {"nw"}
    assert [(zone.pointer, zone.condition) for zone in found[CONVENTIONAL:]] == [
        (0, "em"), (32, "oi"), (0, "em"), (8, "oi"), *[(0, "em")] * 4
    ]  # fmt: skip


def test_linux_knows_the_limits_of_the_drive(bench: Bench) -> None:
    names = ("zoned", "chunk_sectors", "nr_zones", "max_open_zones", "max_active_zones", "logical_block_size")
    booted = boot(bench, "cd /sys/block/shd0/queue; cat " + " ".join(names))
    assert booted.text("0").split() == ["host-managed", str(ZONE), "12", str(OPEN_MAX), "0", "4096"]


def test_a_write_at_the_wrong_place_fails_and_the_console_has_the_sense(bench: Bench) -> None:
    booted = boot(bench, write(6, block=9), REPORT, expected=REFUSED)
    assert "Input/output error" in booted.text("0")
    assert (
        f"WRITE at sector {6 * ZONE + 72}, 8 sectors: sense 5h, 21h/04h: not at the write pointer"
        in booted.outcome.console
    )
    assert {zone.condition for zone in zones(booted.text("1"))} == {"nw", "em"}


def test_zones_are_opened_closed_finished_and_reset(bench: Bench) -> None:
    changes = [write(6), of_zone("open", 4), of_zone("close", 6), of_zone("finish", 5)]
    resets = [of_zone("reset", 5), of_zone("open", 9), "blkzone reset /dev/shd0"]
    booted = boot(bench, *changes, REPORT, *resets, REPORT)
    assert statuses(booted) == [0] * 9
    before, after = zones(booted.text("4")), zones(booted.text("8"))
    assert [zone.condition for zone in before[4:8]] == ["oe", "fu", "cl", "em"]
    assert {zone.condition for zone in after[CONVENTIONAL:]} == {"em"}


def test_the_drive_opens_so_many_zones_and_no_more(bench: Bench) -> None:
    opened = [of_zone("open", zone) for zone in range(4, 4 + OPEN_MAX + 1)]
    booted = boot(bench, *opened, REPORT, expected=REFUSED)
    assert statuses(booted) == [0, 0, 0, 1, 0]
    assert "Too many references" in booted.text("3")
    assert (
        f"ZONE_OPEN at sector {7 * ZONE}, 0 sectors: sense 7h, 55h/0eh: too many open zones" in booted.outcome.console
    )
    assert [zone.condition for zone in zones(booted.text("4"))].count("oe") == OPEN_MAX


def test_implicitly_open_zones_make_room_for_others(bench: Bench) -> None:
    booted = boot(bench, *[write(zone) for zone in range(4, 12)], REPORT)
    conditions = [zone.condition for zone in zones(booted.text("8"))]
    assert conditions[4:] == ["cl"] * 5 + ["oi"] * OPEN_MAX


def test_libzbd_and_fio_work_on_it(bench: Bench) -> None:
    span = f"-ofst {5 * ZONE_BYTES} -len {ZONE_BYTES}"
    # fio's own clock is the processor's, which does not know virtual time.
    fio = (
        "fio --name=zbd --filename=/dev/shd0 --zonemode=zbd --direct=1 --rw=randwrite --bs=64k --io_size=32m"
        f" --offset={CONVENTIONAL * ZONE_BYTES} --size={4 * ZONE_BYTES} --max_open_zones={OPEN_MAX} --verify=crc32c"
        " --ioengine=libaio --iodepth=4 --randrepeat=0 --randseed=1 --clocksource=clock_gettime --output-format=terse"
    )
    zbd = [f"zbd finish {span} /dev/shd0", "zbd report -n -ro fu /dev/shd0", f"zbd reset {span} /dev/shd0"]
    booted = boot(bench, *zbd, fio, REPORT)
    assert statuses(booted) == [0] * 5
    assert booted.text("1").strip() == "1 zones"
    written = zones(booted.text("4"))[CONVENTIONAL : CONVENTIONAL + 4]
    assert sum(zone.pointer for zone in written) * 512 == 32 << 20


def described(report: str) -> list[tuple[int, int]]:
    """Start and write pointer of each zone of `sg_rep_zones`, in logical blocks."""
    rows = re.findall(r"Zone start LBA: (0x\w+)\s+Write pointer LBA: (\S+)", report)
    return [(int(start, 16), int(pointer, 0)) for start, pointer in rows]


def test_the_commands_of_zbc_pass_through(bench: Bench) -> None:
    lba = ZONE // 8
    booted = boot(
        bench,
        "sg_inq /dev/shd0 && sg_vpd --page=zbdch /dev/shd0 && sg_readcap --long /dev/shd0 && sg_turs /dev/shd0",
        f"{write(5, blocks=3)} && {write(6)} && sg_zone --finish --zone={7 * lba} /dev/shd0",
        "sg_rep_zones /dev/shd0",
        f"sg_zone --open --zone={4 * lba} /dev/shd0 && sg_rep_zones --report=3 /dev/shd0",
        f"sg_reset_wp --zone={5 * lba} /dev/shd0 && sg_zone --close --all /dev/shd0",
        REPORT,
        f"sg_reset_wp --all /dev/shd0 && {REPORT}",
    )
    assert statuses(booted) == [0] * 7
    for words in ("host managed zoned block", "Maximum number of open sequential write required zones: 3",
                  "Number of logical blocks=786432"):  # fmt: skip
        assert words in booted.text("0")
    reported = described(booted.text("2"))
    assert reported[:4] == [(i * lba, -1) for i in range(4)]
    assert reported[4:8] == [(4 * lba, 4 * lba), (5 * lba, 5 * lba + 3), (6 * lba, 6 * lba + 1), (7 * lba, -1)]
    assert described(booted.text("3")) == [(4 * lba, 4 * lba)]
    assert [zone.condition for zone in zones(booted.text("5"))[4:8]] == ["em", "em", "cl", "fu"]
    assert {zone.condition for zone in zones(booted.text("6"))[CONVENTIONAL:]} == {"em"}


def test_a_refused_command_returns_its_sense(bench: Bench) -> None:
    opened = "".join(f"{of_zone('open', zone)};" for zone in (4, 5, 6))
    refused = {
        "sg_reset_wp -v --zone=0": "Invalid field in cdb",
        f"sg_reset_wp -v --zone={5 * ZONE // 8 + 1}": "Invalid field in cdb",
        f"sg_zone -v --open --zone={12 * ZONE // 8}": "Logical block address out of range",
        f"sg_rep_zones -v --start={12 * ZONE // 8}": "Logical block address out of range",
        "sg_rep_zones -v --report=0x2a": "Invalid field in cdb",
        f"{opened} sg_zone -v --open --zone={7 * ZONE // 8}": "Insufficient zone resources",
        "sg_unmap -v --lba=0 --num=1 --force": "Invalid command operation code",
    }
    booted = boot(bench, *[f"{command} /dev/shd0" for command in refused])
    assert 0 not in statuses(booted)
    for number, (command, said) in enumerate(refused.items()):
        assert said in booted.text(str(number)), command


def test_the_block_layer_learns_of_a_reset_that_passed_it_by_from_a_report_after_an_error(bench: Bench) -> None:
    reset = f"sg_reset_wp --zone={5 * ZONE // 8} /dev/shd0"
    booted = boot(bench, write(5, blocks=3), reset, write(5), REPORT, write(5), expected=REFUSED)
    assert statuses(booted) == [0, 0, 1, 0, 0]


def test_a_disk_without_zones_has_no_such_commands(bench: Bench) -> None:
    steps = [
        job.run(["/usr/bin/sg_inq", job.DEVICE], stdout="inquiry"),
        job.run(["/usr/bin/sg_vpd", "--page=bdc", job.DEVICE], stdout="characteristics"),
        job.run(["/usr/bin/sg_rep_zones", "-v", job.DEVICE], may_fail=True),
    ]
    booted = bench.boot(steps, drive=bench.empty())
    assert "PDT=0" in booted.text("inquiry")
    assert "ZONED=0" in booted.text("characteristics")
    report = booted.outcome.steps[2]
    assert report.status == 9
    assert "Invalid command operation code" in str(report.extra["stderr_tail"])


def host_aware() -> list[str]:
    return [name for name, each in drives.profiles().items() if each.values["translation"]["kind"] == "host_aware"]


@pytest.mark.parametrize("name", host_aware())
def test_zones_of_a_host_aware_disk_are_reached_by_its_own_commands(bench: Bench, name: str) -> None:
    translation = drives.find(name).values["translation"]
    zone = int(translation["zone"]["value"]) << 11
    start = (int(translation["conventional_first"]["value"]) + 2) * zone
    report = f"sg_rep_zones --start={start} --num=1 /dev/shd0"
    commands = {
        "model": "cat /sys/block/shd0/queue/zoned && sg_inq /dev/shd0 && sg_vpd --page=bdc /dev/shd0",
        "written": f"dd if=/dev/zero of=/dev/shd0 bs=64k seek={start // 128} count=3 oflag=direct && {report}",
        "rewritten": f"dd if=/dev/zero of=/dev/shd0 bs=4k seek={start // 8 + 1} count=1 oflag=direct && {report}",
        "reset": f"sg_reset_wp --zone={start} /dev/shd0 && {report}",
        "again": f"dd if=/dev/zero of=/dev/shd0 bs=4k seek={start // 8 + 5} count=1 oflag=direct && {report}",
        "finished": f"sg_zone --finish --zone={start} /dev/shd0 && {report}",
    }
    steps = [job.run(["/bin/sh", "-c", f"exec 2>&1; {text}"], stdout=key) for key, text in commands.items()]
    capacity = (start + 8 * zone) * 512
    booted = bench.boot(steps, drive=bench.empty(profile=name, capacity_bytes=capacity))
    model = booted.text("model")
    assert model.startswith("none\n")
    assert "PDT=0 " in model
    assert "ZONED=1" in model
    assert "Sequential write preferred" in booted.text("written")
    pointers = {key: described(booted.text(key)) for key in list(commands)[1:]}
    assert pointers == {
        "written": [(start, start + 384)],
        "rewritten": [(start, start + 384)],
        "reset": [(start, start)],
        "again": [(start, start + 48)],
        "finished": [(start, -1)],
    }


def test_a_discard_resets_a_zone_only_where_the_profile_says_so(bench: Bench) -> None:
    discard = f"blkdiscard -o {5 * ZONE_BYTES} -l {ZONE_BYTES} /dev/shd0"
    as_sold = boot(bench, write(5), discard, REPORT)
    assert statuses(as_sold) == [0, 1, 0]
    assert zones(as_sold.text("2"))[5] == Zone(5 * ZONE, 8, "oi")
    thought_up = boot(bench, write(5), discard, REPORT, profile=small(bench, discard_resets=1))
    assert statuses(thought_up) == [0, 0, 0]
    assert zones(thought_up.text("2"))[5] == Zone(5 * ZONE, 0, "em")


def test_zones_that_linux_cannot_take_are_refused_with_a_sentence(bench: Bench) -> None:
    odd = small(bench, zone=240)
    drive = bench.empty(profile=odd, capacity_bytes=12 * 240 << 20)
    with pytest.raises(Failure) as caught:
        bench.boot([job.sync()], drive=drive)
    said = "zones of 491520 sectors; Linux takes only zones whose size is a power of two"
    assert any(said in line for line in caught.value.detail)


def test_a_drive_of_conventional_zones_only_is_refused_with_a_sentence(bench: Bench) -> None:
    drive = bench.empty(profile=small(bench), capacity_bytes=CONVENTIONAL * ZONE_BYTES)
    with pytest.raises(Failure) as caught:
        bench.boot([job.sync()], drive=drive)
    assert any("at least one must be sequential" in line for line in caught.value.detail)


def test_the_last_zone_may_be_smaller(bench: Bench) -> None:
    drive = bench.empty(profile=small(bench), capacity_bytes=CAPACITY_BYTES - ZONE_BYTES // 2)
    last = f"blkzone report -o {11 * ZONE} /dev/shd0 && {write(11, blocks=ZONE // 16)} && {of_zone('reset', 11)}"
    booted = bench.boot([job.run(["/bin/sh", "-c", last], stdout="0")], drive=drive)
    assert "len 0x040000, cap 0x040000" in booted.text("0")


def formatted(bench: Bench, name: str) -> FormattedDrive:
    """F2FS wants two conventional zones for its fixed areas; the others do with none, or one."""
    conventional, total = (2, 64) if name == "f2fs" else (1, 24)
    profile = bench.altered("hc620", conventional_first=conventional, open_max=16)
    return bench.formatted(name, profile=profile, capacity_bytes=total * ZONE_BYTES)


@pytest.mark.parametrize("name", ["btrfs", "f2fs"])
def test_data_of_a_file_system_goes_to_its_zones_in_order(bench: Bench, name: str) -> None:
    variant, drive = fs.find(name), formatted(bench, name)
    fill = "head -c 33554432 /dev/urandom >/run/data && cp /run/data /mnt/data"
    steps = [
        job.mount(variant.kernel_name),
        job.run(["/bin/sh", "-c", fill]),
        job.drop_caches(),
        job.run(["/usr/bin/cmp", "/run/data", "/mnt/data"]),
        job.umount(),
        job.run(["/usr/sbin/blkzone", "report", job.DEVICE], stdout="report"),
    ]
    booted = bench.boot(steps, drive=drive.file)
    assert sum(zone.pointer for zone in zones(booted.text("report"))) * 512 > 32 << 20


def test_zonefs_appends_and_a_truncated_file_is_an_empty_zone(bench: Bench) -> None:
    append = "dd if=/dev/urandom of=/mnt/seq/2 bs=64k count=16 oflag=direct,append conv=notrunc"
    check = "test $(stat -c %s /mnt/seq/2) = 1048576 && test $(ls /mnt/seq | wc -l) = 23"
    misplaced = "dd if=/dev/zero of=/mnt/seq/3 bs=64k seek=1 count=1 oflag=direct conv=notrunc"
    report = f"blkzone report -o {3 * ZONE} -c 1 {job.DEVICE}"  # seq/0 is zone 1
    steps = [
        job.mount("zonefs", "explicit-open"),
        job.run(["/bin/sh", "-c", f"{append} && {check}"]),
        job.run(["/bin/sh", "-c", misplaced], may_fail=True),
        job.run(["/bin/sh", "-c", report], stdout="before"),
        job.run(["/bin/sh", "-c", "truncate -s 0 /mnt/seq/2"]),
        job.run(["/bin/sh", "-c", report], stdout="after"),
        job.umount(),
    ]
    booted = bench.boot(steps, drive=formatted(bench, "zonefs").file)
    assert booted.outcome.steps[2].status != 0
    assert zones(booted.text("before"))[0] == Zone(3 * ZONE, 2048, "cl")
    assert zones(booted.text("after"))[0] == Zone(3 * ZONE, 0, "em")


# Each round makes 64 KiB durable, so what follows from a file's size can be said after any cut.
ROUNDS = 24
CUTS = 3
ZONEFS_ROUND = "dd if=/run/data of=/mnt/seq/2 bs=64k count=1 skip=$i oflag=direct,append conv=notrunc,fsync 2>/dev/null"
OTHER_ROUND = "dd if=/run/data bs=64k count=1 skip=$i 2>/dev/null >>/mnt/file && sync /mnt/file"
# Not random: the second machine knows the same bytes.
DATA = "seq 1 400000 | head -c 2097152 >/run/data"


def rounds(name: str) -> list[job.Step]:
    one = ZONEFS_ROUND if name == "zonefs" else OTHER_ROUND
    loop = f"{DATA}; i=0; while [ $i -lt {ROUNDS} ]; do {one} || exit 1; i=$((i+1)); done"
    return [job.mount(fs.find(name).kernel_name), job.run(["/bin/sh", "-c", loop]), job.umount()]


def recovered(bench: Bench, name: str, left: Path) -> tuple[int, list[Zone]]:
    """Mounts what a cut left, checks it, uses it; the size of the file, and the zones after the mount."""
    there = "/mnt/seq/2" if name == "zonefs" else "/mnt/file"
    more = ZONEFS_ROUND.replace("$i", "0") if name == "zonefs" else "cp /run/data /mnt/more && sync"
    steps = [
        job.mount(fs.find(name).kernel_name),
        job.run(["/bin/sh", "-c", f"stat -c %s {there} || echo 0"], stdout="size"),
        job.run(["/usr/sbin/blkzone", "report", job.DEVICE], stdout="report"),
        job.run(["/bin/sh", "-c", f"{DATA}; test ! -e {there} || cmp -n $(stat -c %s {there}) /run/data {there}"]),
        job.run(["/bin/sh", "-c", more]),
    ]
    if name == "btrfs":
        steps.append(job.run(["/bin/btrfs", "scrub", "start", "-B", "-r", "/mnt"]))
    booted = bench.boot([*steps, job.umount()], drive=left)
    return int(booted.text("size")), zones(booted.text("report"))


@pytest.mark.parametrize("name", ["zonefs", "btrfs", "f2fs"])
def test_after_a_power_cut_write_pointers_and_file_system_agree(bench: Bench, name: str) -> None:
    drive = formatted(bench, name)
    whole = bench.boot(rounds(name), drive=drive.file, trace=True)
    count = len(trace.read(whole.trace_file).requests)
    assert count > ROUNDS
    sizes = []
    for part in range(1, CUTS + 1):
        left = bench.boot(rounds(name), drive=drive.file, save=True, cut=count * part // (CUTS + 1))
        assert left.outcome.power_cut
        size, found = recovered(bench, name, left.saved_drive)
        if name == "zonefs":
            # Nothing is open after power-on, and the file ends where the zone's write pointer is.
            assert {zone.condition for zone in found} <= {"nw", "em", "cl", "fu"}
            assert found[3].pointer * 512 == size
        sizes.append(size)
    assert sizes == sorted(sizes)
    assert 0 < sizes[-1] < ROUNDS << 16
