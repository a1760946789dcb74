# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the crash explorer records: small volumes, and what is done to them under journal_lazy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shingle.failure import unknown_name
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import IN_MACHINE, TIDY

LAZY = "noatime,journal_lazy"
STOCK = "noatime"
STATISTICS = "/sys/fs/ext4/shd0/journal_lazy"
MARKS = "/sys/block/shd0/shingle/mark"
# Written into the record when the first mount is over: what comes before is recovery.
MOUNTED = "mounted"
WORK = "work"
# How many blocks data_relocate has moved.
MOVED = "/sys/fs/ext4/shd0/data_relocated_blocks"
BLOCKS_PROGRAM = IN_MACHINE / "data_work.py"

# EXT4_IOC_RESIZE_FS; resize2fs wants a mount table that the guest does not have.
_RESIZE = "import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', 0), 0x40086610, struct.pack('Q', {blocks}))"


def marked(kind: str, seed: int, operations: int, **more: object) -> job.Step:
    arguments = {"kind": kind, "seed": seed, "operations": operations, "path": WORK, "marks": MARKS}
    return job.load("marked", arguments | more)


def _deeper(workload: Workload, seed: int, depth: int) -> job.Step:
    return marked(
        workload.kind, seed, 25, clear=WORK, path=f"deeper{depth}", fsync_one_in=2, sync_one_in=12, wide=30
    )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    name: str
    summary: str
    # What of `marked` (crates/load) is done most, where it is done.
    kind: str
    steps: Callable[[Workload, int], list[job.Step]]
    mkfs: tuple[str, ...] = ()
    # Small enough for several snapshots, one each eighth; what users have is larger, and costs the explorer time.
    journal_mib: int = 5
    block_bytes: int = 4096
    disk_mib: int = 48
    # The file system at first, where it is smaller than the disk.
    made_mib: int | None = None
    # The kernel that the workload and the nested recoveries run on; states are checked on `main`.
    kernel: str = "main"
    # Of so many states one is filled, drained and compared.
    filled_one_in: int = 10
    # What is done after a recovery, before the power is cut again.
    deeper: Callable[[Workload, int, int], job.Step] = _deeper
    # More options of lazy mounts.
    options: str = ""
    # Programs of the host that run in the machine.
    programs: tuple[Path, ...] = ()
    # Each block of its files says which it is (crash_blocks.py).
    has_blocks: bool = False
    # Runs beside a nested recovery.
    beside: tuple[job.Step, ...] = ()
    # The kernel's sentence with which a lazy mount may refuse a state; docs/design/journal-lazy.md names the case.
    may_refuse: str | None = None
    # What the kernel that is recorded may complain of: a mutant's own checks are not what is tested here.
    complains: tuple[Trouble, ...] = ()

    @property
    def lazy(self) -> str:
        return f"{LAZY},{self.options}" if self.options else LAZY

    @property
    def extended(self) -> tuple[str, ...]:
        return ("-b", str(self.block_bytes), "-J", f"size={self.journal_mib}", *self.mkfs)


def mounted(*steps: job.Step, options: str = LAZY, policy: str | None = None) -> list[job.Step]:
    """A mount and what is done; no unmount."""
    chosen = [] if policy is None else [job.write(f"{STATISTICS}/policy", policy)]
    return [job.mount("ext4", options), job.mark(MOUNTED), *chosen, *steps]


def _short(workload: Workload, seed: int) -> list[job.Step]:
    """A mount that does little; its unmount leaves a snapshot, so that all states behind it have one."""
    return [*mounted(marked(workload.kind, seed + 5, 12, fsync_one_in=1, path="short")), job.umount()]


def _twice(workload: Workload, seed: int) -> list[job.Step]:
    """Two mounts, so that the second goes on with the log of the first."""
    first = marked(workload.kind, seed, 150, fsync_one_in=3)
    second = marked(workload.kind, seed + 1, 150, clear=WORK, path="more", fsync_one_in=3)
    before = _short(workload, seed)
    return [*before, *mounted(first), job.umount(), *mounted(second)]


def _turns(workload: Workload, seed: int) -> list[job.Step]:
    """Lazy, stock and lazy again: whose log it is changes hands."""
    loads = [marked(workload.kind, seed + turn, 70, clear=WORK, path=f"turn{turn}") for turn in range(3)]
    return [
        *mounted(marked(workload.kind, seed + 9, 60)),
        job.umount(),
        *mounted(loads[0], options=STOCK),
        job.umount(),
        *mounted(loads[1]),
        job.umount(),
        *mounted(loads[2], options=f"{LAZY},journal_lazy_drain"),
        job.umount(),
    ]


def _resize(workload: Workload, seed: int) -> list[job.Step]:
    blocks = workload.disk_mib * (1 << 20) // workload.block_bytes
    grow = job.run(["/usr/bin/python3", "-I", "-c", _RESIZE.format(blocks=blocks)])
    before = marked(workload.kind, seed, 80)
    after = marked(workload.kind, seed + 1, 80, clear=WORK, path="more")
    return [
        *mounted(before),
        job.umount(),
        *mounted(
            before
            | {
                "args": _with(before, "second"),
            },
            grow,
            after,
        ),
    ]


def _with(step: job.Step, path: str) -> dict[str, object]:
    arguments = step["args"]
    assert isinstance(arguments, dict)
    return arguments | {"path": path, "operations": 30}


def _wraps(workload: Workload, seed: int) -> list[job.Step]:
    """As above, with so many commits that the log is filled several times over."""
    first = marked(workload.kind, seed, 180, fsync_one_in=1)
    second = marked(workload.kind, seed + 1, 180, clear=WORK, path="more", fsync_one_in=1)
    return [*mounted(first), job.umount(), *mounted(second)]


def _cleaner(workload: Workload, seed: int) -> list[job.Step]:
    """Much that is live in a log that is filled by each of three mounts, with another policy each."""
    many = {"fsync_one_in": 2, "dirs": 80, "files": 120}
    first = marked(workload.kind, seed, 330, **many)
    later = [marked(workload.kind, seed + turn, 200, path=f"turn{turn}", **many) for turn in (1, 2)]
    return [
        *mounted(first, policy="fixed"),
        job.umount(),
        # Idle for longer than the cleaner waits.
        *mounted(later[0], job.sleep(12), policy="watermarks"),
        job.umount(),
        *mounted(later[1], policy="off"),
    ]


# With JBD2_LAZY_DEBUG: what is in the oldest log blocks goes home, or into the log again, while handles run.
_DISTURB = (
    job.write(f"{STATISTICS}/demote", "200"),
    job.sleep(0.02),
    job.write(f"{STATISTICS}/relog", "100"),
    job.sleep(0.02),
)


def _races(workload: Workload, seed: int) -> list[job.Step]:
    load = marked(workload.kind, seed, 150, fsync_one_in=2)
    before = _short(workload, seed)
    return [*before, *mounted(job.background(list(_DISTURB)), load, job.stop_background())]


def _periods(workload: Workload, seed: int) -> list[job.Step]:
    """Wide directories are logged, logged again and freed, a period of the log and more in each of four mounts."""
    steps = _short(workload, seed)
    for turn in range(4):
        load = marked(
            workload.kind, seed + turn, 90, fsync_one_in=2, path=f"turn{turn}", wide=250, dirs=40,
            **({"clear": WORK} if turn == 2 else {}),
        )  # fmt: skip
        steps += [*mounted(load), *([job.umount()] if turn < 3 else [])]
    return steps


# A directory of many blocks is logged, logged again when half of its names go, and freed; each is committed.
_WIDE_MADE = """
import os
wide = '/mnt/wide{number}'
os.mkdir(wide)
open(f'{{wide}}/0', 'w').close()
for name in range(1, 300):
    os.link(f'{{wide}}/0', f'{{wide}}/{{name}}-' + 'n' * 240)
os.fsync(os.open(wide, 0))
"""
_WIDE_FREED = """
import os
wide = '/mnt/wide{number}'
for name in sorted(os.listdir(wide))[::2]:
    os.unlink(f'{{wide}}/{{name}}')
os.fsync(os.open(wide, 0))
for name in os.listdir(wide):
    os.unlink(f'{{wide}}/{{name}}')
os.rmdir(wide)
os.fsync(os.open('/mnt', 0))
"""


def _python(text: str, number: int) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text.format(number=number)])


def _freed(workload: Workload, seed: int) -> list[job.Step]:
    """A snapshot before and behind each of the two, from the unmounts."""
    steps = [*mounted(_python(_WIDE_MADE, 0), marked(workload.kind, seed, 20)), job.umount()]
    for turn in (1, 2):
        load = marked(workload.kind, seed + turn, 20, clear=WORK, path=f"turn{turn}")
        steps += [*mounted(_python(_WIDE_FREED, turn - 1), load, _python(_WIDE_MADE, turn)), job.umount()]
    return [*steps, *mounted(marked(workload.kind, seed + 3, 60, clear=WORK, path="more"))]


def _blocks(verb: str, *arguments: object) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{BLOCKS_PROGRAM.name}", verb, *map(str, arguments)])


def _in_two_mounts(
    workload: Workload, seed: int, *, verb: str, made: tuple[int, int], turns: tuple[int, int]
) -> list[job.Step]:
    """`made`: files and blocks of each. `turns`: of each mount."""
    first, second = (_blocks(verb, 1000 * mount + seed % 1000, many, MARKS) for mount, many in enumerate(turns))
    return [
        job.mount("ext4", workload.lazy), _blocks("make", *made), job.mark(MOUNTED), first, job.umount(),
        *mounted(second, options=workload.lazy),
    ]  # fmt: skip


def _blocks_deeper(workload: Workload, seed: int, depth: int, *, verb: str, turns: int) -> job.Step:
    return _blocks(verb, 2000 * depth + seed % 1000, turns, MARKS)


# Of the second mount most: its blocks move, and on a disk so small what they leave soon has another owner.
_overwritten = partial(_in_two_mounts, verb="overwrite", made=(5, 192), turns=(30, 90))
_overwritten_deeper = partial(_blocks_deeper, verb="overwrite", turns=15)
_grown = partial(_in_two_mounts, verb="small", made=(2, 4), turns=(60, 160))
_grown_deeper = partial(_blocks_deeper, verb="small", turns=40)


def _tidy(goal: int, reached: str = "") -> job.Step:
    """It fails where tidy does, or does not say `reached`."""
    argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{TIDY.name}", "/mnt", "--rate", "1000", "--goal", str(goal)]
    # The status of a pipe would be grep's alone.
    checked = f'said=$({" ".join(argv)}) && echo "$said" | grep -E "{reached}"'
    return job.run(["/bin/sh", "-c", checked] if reached else argv)


# Over and over; it is killed at some instant. With a low goal files are joined, with a high one regions are emptied.
_TIDIED = (_tidy(1), _tidy(99), job.sleep(0.02))


def _tidied(workload: Workload, seed: int) -> list[job.Step]:
    """Files that were overwritten are joined and moved; and then, while others are written and truncated."""
    beside = marked(
        workload.kind, seed + 1, 110, path="beside", files=14, dirs=3, write_bytes_max=96 << 10, fsync_one_in=2
    )
    alone = [_tidy(1, "^[1-9][0-9]* parts joined"), _tidy(99, "write again: [1-9]")]
    return [
        job.mount("ext4", workload.lazy), _blocks("make", 5, 192), job.mark(MOUNTED),
        _blocks("overwrite", seed % 1000, 60, MARKS), job.umount(),
        *mounted(*alone, job.background(list(_TIDIED)), beside, job.stop_background(), options=workload.lazy),
    ]  # fmt: skip


# Short, so that a small disk has many, and no region is hot for long.
_RELOCATE = "data_relocate,data_stretch_kb=128"
_QUOTA = ("-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota")

_ALL = (
    Workload("storm", "files come and go, in mounts of one log", "storm", _twice),
    Workload("rename", "names move over each other and across directories", "rename", _twice),
    Workload("truncate", "files shrink, grow and get holes", "truncate", _twice),
    Workload("xattr", "attributes in the inode and in blocks of their own", "xattr", _twice),
    Workload("quota", "files change hands under the quota feature", "owner", _twice, _QUOTA),
    Workload(
        "resize", "the volume grows online to twice its size", "mixed", _resize, made_mib=48,
        disk_mib=96, may_refuse="the log holds another superblock, run e2fsck first",
    ),
    Workload("tiny", "a 4 MiB journal, wrapped several times", "mixed", _wraps, journal_mib=4, disk_mib=32),
    Workload(
        "cleaner", "much is live in a full log, with each of the cleaner's policies", "xattr", _cleaner, journal_mib=4,
        disk_mib=32,
    ),
    Workload(
        "races", "freed blocks become data while others are demoted and re-logged, with delays", "reuse", _races,
        kernel="mutant:control", beside=_DISTURB,
    ),
    Workload("turns", "lazy and stock mounts take turns", "mixed", _turns),
    Workload(
        "small-blocks", "blocks of 1 KiB, the smallest journal of all, and an orphan file", "mixed", _wraps,
        ("-O", "orphan_file"), block_bytes=1024, journal_mib=1, disk_mib=32,
    ),
    Workload(
        "periods", "wide directories freed, and several snapshots in a log of 1 KiB blocks", "mixed", _periods,
        block_bytes=1024, journal_mib=5, disk_mib=48,
    ),
    Workload(
        "freed", "wide directories that one snapshot knows are freed before the next", "mixed", _freed, filled_one_in=1
    ),
    Workload(
        "wrapped", "a log of 1 KiB blocks with snapshots, filled several times over", "reuse", _periods,
        block_bytes=1024, journal_mib=5, disk_mib=32,
    ),
    Workload(
        "relocated", "overwritten blocks get another place, and each says which it is", "", _overwritten,
        disk_mib=13, deeper=_overwritten_deeper, options=_RELOCATE, programs=(BLOCKS_PROGRAM,), has_blocks=True,
    ),
    Workload(
        "relocated-1k", "the same with blocks of 1 KiB: a page is overwritten, and moves, in part", "", _overwritten,
        block_bytes=1024, disk_mib=12, deeper=_overwritten_deeper, options=_RELOCATE, programs=(BLOCKS_PROGRAM,),
        has_blocks=True,
    ),
    Workload(
        "grown", "small synced files grow out of their inodes", "", _grown, ("-O", "inline_data", "-I", "512"),
        deeper=_grown_deeper, programs=(BLOCKS_PROGRAM,), has_blocks=True,
    ),
    Workload(
        "tidied", "ext4lazy tidy joins and moves files that are synced", "truncate", _tidied, disk_mib=24,
        options=_RELOCATE, programs=(TIDY, BLOCKS_PROGRAM), has_blocks=True, beside=_TIDIED,
    ),
)  # fmt: skip
WORKLOADS = {each.name: each for each in _ALL}


def find(name: str) -> Workload:
    if name not in WORKLOADS:
        raise unknown_name("workload of the crash explorer", name, WORKLOADS)
    return WORKLOADS[name]
