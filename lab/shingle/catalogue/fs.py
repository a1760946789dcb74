# SPDX-License-Identifier: MIT OR Apache-2.0
"""The file-system variants under test: fixed names, how each is made and mounted, what its classes mean.

Formatting is as in the FAST'17 paper (`lazy_itable_init=0,lazy_journal_init=0`), with fixed
UUIDs and hash seeds, so that two formatted drives are the same bytes. A variant's `classes`
say which of the drive's request classes exist for it; a record holds null for the others.

On a host-managed drive the few that can live there are formatted with options of their own; the
others are refused by their tools. Which drive takes which is held in drive_file_systems.toml.

| file systems | data | metadata | journal | superblock |
|---|---|---|---|---|
| ext4 | the rest | `REQ_META` | extents of the journal's inode, its superblock included | block 0 |
| xfs | the rest | `REQ_META` | extent of the internal log | null |
| btrfs | the rest | `REQ_META`: tree blocks, log trees, superblocks | null | null |
| f2fs, nilfs2, ntfs3, exfat, safs | everything | null: not marked on requests | null | null |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.build import build
from shingle.failure import Failure, unknown_name
from shingle.machine import job
from shingle.paths import IN_MACHINE

# Of every file system that the lab makes, so that two formatted drives are the same bytes.
UUID = "5b1e6e00-0000-4000-8000-000000000001"
_LOG_UUID = "5b1e6e00-0000-4000-8000-000000000003"
HASH_SEED = "5b1e6e00-0000-4000-8000-000000000002"
_GIB = 1 << 30
_SECTOR = 512
_PATIENCE_S = 3600
_LOG_AT_GIB = 16

Extent = tuple[int, int]  # first sector, sectors


@dataclass(frozen=True)
class Layout:
    """Where on the drive the classified regions are, read from the formatted file system itself."""

    journal: tuple[Extent, ...] = ()
    superblock: tuple[Extent, ...] = ()
    journal_bytes: int | None = None


@dataclass(frozen=True)
class Probe:
    """A program that prints the layout, and the reader of what it prints."""

    argv: tuple[str, ...]
    parse: Callable[[str], Layout]


@dataclass(frozen=True)
class FileSystem:
    name: str
    kernel_name: str
    summary: str
    mkfs: tuple[str, ...]
    version: tuple[str, ...]
    options: str = ""
    classes: frozenset[str] = frozenset()
    min_capacity_bytes: int = _GIB
    # Can reserve space without writing it, which ageing needs; and on a host-managed drive.
    reserves_space: bool = True
    zoned_reserves_space: bool = True
    probe: Probe | None = None
    # Checks an exported image without changing it; status 0 means clean.
    check: tuple[str, ...] | None = None
    # How it is made on a host-managed drive; None: it cannot live there.
    zoned_mkfs: tuple[str, ...] | None = None
    # Lives on host-managed drives only, and holds one file for each zone: no workload runs on it.
    one_file_per_zone: bool = False
    # Programs of the lab that `mkfs` runs, found in /run/out.
    programs: tuple[Path, ...] = ()
    # A program of ours that makes the file system and serves it through FUSE, found in /run/out too.
    server: str | None = None
    # Programs of the host that run inside the machine before the mount.
    before_mount: tuple[tuple[str, ...], ...] = ()
    # Files and what is written into them after the mount: of sysfs, or of /run.
    settings: tuple[tuple[str, str], ...] = ()
    # A program of the host that works on the mounted file system by itself: the guest starts it after the settings, and
    # ends it before the unmount. It goes to the background.
    daemon: tuple[str, ...] = ()
    # Of the drive, from its start; the paper's partitions. None: all of it.
    size_bytes: int | None = None
    # Files of sysfs with one number each, read at the end of each workload.
    statistics: tuple[str, ...] = ()
    # The flavour of the kernel that mounts it, if it is not the one of all (build/build.py).
    kernel: str = "main"
    # An unmount leaves the newest metadata in the journal; a check comes after a replay, on a copy.
    keeps_log: bool = False
    # The kernel keeps its metadata in memory when the caches are dropped; they are cold after another mount.
    stays_warm: bool = False

    def mkfs_argv(self, *, host_managed: bool = False) -> tuple[str, ...]:
        mkfs = (self.zoned_mkfs or self.mkfs) if host_managed else self.mkfs
        size = () if self.size_bytes is None else (f"{self.size_bytes >> 10}k",)
        return (*mkfs, job.DEVICE, *size)

    def files(self, crates: build.Crates) -> tuple[Path, ...]:
        """What the machine finds in /run/out."""
        return self.programs if self.server is None else (*self.programs, getattr(crates, self.server))

    def mount_steps(self) -> list[job.Step]:
        if self.server is None:
            settings = [job.write(path, text) for path, text in self.settings]
            daemon = [job.run((*self.daemon, job.DEVICE, job.MOUNT_POINT))] if self.daemon else []
            before = [job.run(argv) for argv in self.before_mount]
            return [*before, job.mount(self.kernel_name, self.options), *settings, *daemon]
        options = ("-o", self.options) if self.options else ()
        return [job.run((f"{job.OUT}/{self.server}", "mount", *options, job.DEVICE, job.MOUNT_POINT))]

    def served(self, step: job.Step) -> list[job.Step]:
        """What a step of a workload is for a file system to which a program belongs."""
        phase = step.get("phase")
        of = phase if isinstance(phase, str) else None
        if self.daemon and step["do"] == "umount":
            # As umount.nilfs2 does: it holds the mount point open.
            name = Path(self.daemon[0]).name
            stop = f"kill $(pidof {name}) && while pidof {name} >/dev/null; do sleep 0.01; done"
            return [job.run(("/bin/sh", "-c", stop), phase=of), step]
        if self.stays_warm and step["do"] == "drop_caches":
            return [job.umount(), step, *self.mount_steps()]
        return [step] if self.server is None else self._by_server(step, of)

    def _by_server(self, step: job.Step, phase: str | None) -> list[job.Step]:
        """What a step is for a file system that a program serves.

        The kernel does not tell such a program of sync(2), only of fsync of a file or a directory; it does not wait for
        it at unmount; and its caches are not the kernel's: they are cold after another mount.
        """
        ended = job.run(("/usr/bin/flock", "-w", "3600", job.DEVICE, "/bin/true"), phase=phase)
        if step["do"] == "sync":
            return [step, job.run(("/bin/sync", job.MOUNT_POINT), phase=phase)]
        if step["do"] == "umount":
            return [step, ended]
        if step["do"] == "drop_caches":
            return [job.umount(), ended, step, *self.mount_steps()]
        return [step]

    def reports(self, request_class: str) -> bool:
        return request_class == "data" or request_class in self.classes


def parse_ext4_journal(text: str, block_bytes: int = 4096) -> Layout:
    """Reads `debugfs -R 'dump_extents -l <8>'`."""
    sectors = block_bytes // _SECTOR
    rows = re.findall(
        r"^\s*\d+/\s*\d+\s+\d+/\s*\d+\s+\d+\s*-\s*\d+\s+(\d+)\s*-\s*\d+\s+(\d+)", text, flags=re.MULTILINE
    )
    extents = _merged([(int(first) * sectors, int(count) * sectors) for first, count in rows])
    if not extents:
        raise Failure("debugfs printed no extents of the journal.", detail=text.splitlines()[-10:])
    size = sum(sectors for _, sectors in extents) * _SECTOR
    return Layout(journal=extents, superblock=((0, 8),), journal_bytes=size)


def parse_xfs_log(text: str) -> Layout:
    """Reads `xfs_db -c 'sb 0' -c 'p blocksize agblocks agblklog logstart logblocks'`."""
    fields = {name: int(value) for name, value in re.findall(r"^(\w+) = (\d+)$", text, flags=re.MULTILINE)}
    try:
        group, block = divmod(fields["logstart"], 1 << fields["agblklog"])
        sectors_per_block = fields["blocksize"] // _SECTOR
        first = (group * fields["agblocks"] + block) * sectors_per_block
        count = fields["logblocks"] * sectors_per_block
    except KeyError as missing:
        raise Failure(f"xfs_db did not print {missing}.", detail=text.splitlines()[-10:]) from None
    return Layout(journal=((first, count),), journal_bytes=count * _SECTOR)


def _merged(extents: list[Extent]) -> tuple[Extent, ...]:
    """Neighbouring extents joined, in order of place."""
    joined: list[Extent] = []
    for first, sectors in sorted(extents):
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + sectors)
        else:
            joined.append((first, sectors))
    return tuple(joined)


_MKZONEFS = IN_MACHINE / "mkzonefs.py"
_MKZONEFS_ARGV = ("/usr/bin/python3", "-I", f"{job.OUT}/{_MKZONEFS.name}")
_EXT4_CLASSES = frozenset({"metadata", "journal", "superblock"})
_EXT4_PROBE = Probe(("/sbin/debugfs", "-R", "dump_extents -l <8>", job.DEVICE), parse_ext4_journal)
_XFS_PROBE = Probe(
    (
        "/usr/sbin/xfs_db",
        "-r",
        "-c",
        "sb 0",
        "-c",
        "p blocksize agblocks agblklog logstart logblocks",
        job.DEVICE,
    ),
    parse_xfs_log,
)


def ext4(name: str, summary: str, journal_mib: int | None, options: str = "") -> FileSystem:
    """An ext4 variant; tests make their own, with other journals and options."""
    extended = f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={HASH_SEED}"
    journal = () if journal_mib is None else ("-J", f"size={journal_mib}")
    return FileSystem(
        name=name,
        kernel_name="ext4",
        summary=summary,
        mkfs=("/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-U", UUID, "-E", extended, *journal),
        version=("/sbin/mke2fs", "-V"),
        options=options,
        classes=_EXT4_CLASSES,
        # mke2fs wants room for the journal; below twice its size the drive is mostly journal.
        min_capacity_bytes=max(_GIB, 2 * (journal_mib or 0) << 20),
        probe=_EXT4_PROBE,
        check=("/sbin/e2fsck", "-fn"),
        keeps_log="journal_lazy" in options.split(","),
    )


def with_log_near_the_edge(variant: FileSystem) -> FileSystem:
    """The same with its log 16 GiB behind the disk's beginning, which is its outer edge; mke2fs puts it in the middle.

    `ext4lazy convert` puts it behind a 512th of the volume: that is here on a disk of 8 TB.
    """
    mkfs = tuple(f"{word},location={_LOG_AT_GIB}G" if word.startswith("size=") else word for word in variant.mkfs)
    least = variant.min_capacity_bytes + _LOG_AT_GIB * _GIB
    return replace(variant, name=f"{variant.name}-edge", mkfs=mkfs, min_capacity_bytes=least)


_SMR = ext4("ext4-smr", "ext4-lazy with all data in one stream", 10240, "journal_lazy,data_relocate")
_ALL = (
    ext4("ext4-128m", "ext4 with the 128 MiB journal that the paper calls stock", 128),
    ext4("ext4", "ext4 as today's mke2fs makes it", None),
    ext4("ext4-10g", "ext4 with a 10 GiB journal, the paper's baseline", 10240),
    ext4("ext4-lazy", "ext4 with a 10 GiB journal and journal_lazy", 10240, "journal_lazy"),
    ext4(
        "ext4-lazy-1g",
        "ext4 with journal_lazy on the 1 GiB journal that users already have",
        1024,
        "journal_lazy",
    ),
    ext4("ext4-stream", "ext4-lazy with new data in one stream", 10240, "journal_lazy,data_stream"),
    _SMR,
    replace(with_log_near_the_edge(_SMR), summary="ext4-smr with its log near the disk's outer edge"),
    replace(
        ext4("ext4-10g-readahead", "ext4-10g with the read-ahead of journal_lazy, at home (machine/ablations)", 10240),
        kernel=f"{build.CHANGED}:home-readahead",
    ),
    replace(
        ext4("ext4-lazy-plain", "ext4-lazy without its read-ahead (machine/ablations)", 10240, "journal_lazy"),
        kernel=f"{build.CHANGED}:no-log-readahead",
    ),
    replace(
        ext4("ext4-lazy-counted", "ext4-lazy, its computing counted (machine/ablations)", 10240, "journal_lazy"),
        kernel=f"{build.CHANGED}:processor-time",
    ),
    FileSystem(
        name="nilfs2",
        kernel_name="nilfs2",
        summary="NILFS2, log-structured; with its cleaner as it is shipped, which keeps an hour of checkpoints",
        mkfs=("/sbin/mkfs.nilfs2", "-q", "-f", "-K"),
        version=("/sbin/mkfs.nilfs2", "-V"),
        daemon=("/sbin/nilfs_cleanerd",),
        reserves_space=False,
    ),
    FileSystem(
        name="f2fs",
        kernel_name="f2fs",
        summary="F2FS, log-structured",
        mkfs=("/sbin/mkfs.f2fs", "-q", "-f", "-r", "-t", "0", "-U", UUID),
        # Its fixed areas go to conventional zones, and the tool insists on resetting the others itself.
        zoned_mkfs=("/sbin/mkfs.f2fs", "-q", "-f", "-r", "-m", "-U", UUID),
        version=("/sbin/mkfs.f2fs", "-V"),
        check=("/sbin/fsck.f2fs", "--dry-run"),
    ),
    FileSystem(
        name="btrfs",
        kernel_name="btrfs",
        summary="Btrfs, copy-on-write; single data, duplicated metadata",
        mkfs=("/sbin/mkfs.btrfs", "-q", "-f", "-K", "-U", UUID),
        # Its default, duplicated metadata, makes mkfs.btrfs 6.2 abort when they come to lie in conventional zones.
        zoned_mkfs=("/sbin/mkfs.btrfs", "-q", "-f", "-K", "-U", UUID, "-O", "zoned", "-d", "single", "-m", "single"),
        version=("/sbin/mkfs.btrfs", "-V"),
        classes=frozenset({"metadata"}),
        zoned_reserves_space=False,
        check=("/bin/btrfs", "check", "--readonly"),
        stays_warm=True,
    ),
    FileSystem(
        name="xfs",
        kernel_name="xfs",
        summary="XFS with its internal log",
        mkfs=("/sbin/mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={UUID}"),
        version=("/sbin/mkfs.xfs", "-V"),
        options="nouuid",
        classes=frozenset({"metadata", "journal"}),
        probe=_XFS_PROBE,
        check=("/sbin/xfs_repair", "-n", "-f"),
        stays_warm=True,
    ),
    FileSystem(
        name="ntfs3",
        kernel_name="ntfs3",
        summary="NTFS as the kernel writes it (ntfs3)",
        mkfs=("/sbin/mkntfs", "-q", "-Q", "-F", "-T"),
        version=("/sbin/mkntfs", "--version"),
        check=("/bin/ntfsfix", "-n"),
    ),
    FileSystem(
        name="exfat",
        kernel_name="exfat",
        summary="exFAT, without a journal and without links",
        mkfs=("/sbin/mkfs.exfat",),
        version=("/sbin/mkfs.exfat", "-V"),
        reserves_space=False,
        check=("/sbin/fsck.exfat", "-n"),
    ),
    FileSystem(
        name="safs",
        kernel_name="fuse",
        summary="SAFS, append-only, served by a program through FUSE; existing bytes cannot be overwritten",
        mkfs=(f"{job.OUT}/safs", "mkfs", "--uuid", UUID),
        zoned_mkfs=(f"{job.OUT}/safs", "mkfs", "--uuid", UUID),
        version=(f"{job.OUT}/safs", "--version"),
        min_capacity_bytes=8 * _GIB,
        reserves_space=False,
        zoned_reserves_space=False,
        server="safs",
    ),
    FileSystem(
        name="zonefs",
        kernel_name="zonefs",
        summary="zonefs: each zone of a host-managed drive is a file; for programs that write in order",
        mkfs=_MKZONEFS_ARGV,
        zoned_mkfs=_MKZONEFS_ARGV,
        version=("/usr/bin/python3", "--version"),
        one_file_per_zone=True,
        programs=(_MKZONEFS,),
    ),
)

FILE_SYSTEMS: dict[str, FileSystem] = {variant.name: variant for variant in _ALL}


# As `exec` calls the disk itself.
NONE = "none"


def find(name: str) -> FileSystem:
    if name not in FILE_SYSTEMS:
        raise unknown_name("file system", name, FILE_SYSTEMS)
    return FILE_SYSTEMS[name]


def on_the_first(variant: FileSystem, size_bytes: int) -> FileSystem:
    """The same on the first `size_bytes` of the drive only, as on a partition there; ext4 only."""
    if variant.kernel_name != "ext4":
        raise Failure(f"{variant.name} is made on whole drives only; ext4 can be smaller.", status=2)
    return replace(variant, size_bytes=size_bytes)


def mounted_with(variant: FileSystem, option: str) -> FileSystem:
    """The same with one more option of the mount."""
    return replace(variant, options=",".join(filter(None, (variant.options, option))))


def without(name: str) -> FileSystem:
    """The disk itself: nothing is made on it, and a file system in memory is mounted, for there to be one."""
    nothing = ("/bin/true",)
    return FileSystem(
        name, "tmpfs", "no file system", nothing, (*nothing, "--version"), min_capacity_bytes=0, zoned_mkfs=nothing
    )


def with_scheduler(variant: FileSystem, scheduler: str) -> FileSystem:
    """The same, its disk under this I/O scheduler."""
    return _with_queue(variant, "scheduler", scheduler)


def without_merging(variant: FileSystem) -> FileSystem:
    """The same, no request to its disk joined with a neighbour's (Documentation/ABI/stable/sysfs-block, nomerges)."""
    return _with_queue(variant, "nomerges", "2")


def without_idling(variant: FileSystem) -> FileSystem:
    """The same, its BFQ not waiting for a task's next read (Documentation/block/bfq-iosched.rst)."""
    return _with_queue(variant, "iosched/slice_idle", "0")


def with_patience(variant: FileSystem) -> FileSystem:
    """The same on a host that waits an hour for a request before it resets the link; Linux waits 30 s.

    It gives a request up after six such waits, and the program sees an I/O error.
    """
    return _with_queue(variant, "io_timeout", str(_PATIENCE_S * 1000))


def _with_queue(variant: FileSystem, name: str, value: str) -> FileSystem:
    setting = (f"/sys/block/{Path(job.DEVICE).name}/queue/{name}", value)
    return replace(variant, settings=(*variant.settings, setting))


def with_spread_directories(variant: FileSystem) -> FileSystem:
    """ext4 that puts directories where the papers' kernels did.

    A new directory goes to its parent's flex_bg as long as that has few enough. Until September 2022 that was the mean
    and a sixteenth of a block group's inodes more, 512 of 8,192; since then it is a sixteenth of a flex_bg's, 8,192
    ("ext4: make directory inode spreading reflect flexbg size"). With 512 inodes for each block group today's rule is
    the old one. What differs beside: inode tables of 2 MiB for each flex_bg, not of 32.
    """
    return replace(variant, mkfs=(*variant.mkfs, "-i", "262144"))


def with_allocation(variant: FileSystem, *, goal: bool, stream: bool, packed: bool = False) -> FileSystem:
    """ext4 told where data go by what each ext4 has (Documentation/ABI/testing/sysfs-fs-ext4), as `ext4lazy tune` does.

    With `goal` the search for a free inode begins at the first, so files and directories are not spread; with `stream`
    data of all files below 4 GiB go to one preallocation of 128 MiB for each processor; `packed` puts all bitmaps and
    inode tables at the beginning when the file system is made.
    """
    folder = f"/sys/fs/ext4/{Path(job.DEVICE).name}"
    told = {"inode_goal": 12} if goal else {}
    told |= {"mb_stream_req": 1048576, "mb_group_prealloc": 32768} if stream else {}
    settings = tuple((f"{folder}/{name}", str(value)) for name, value in told.items())
    # mke2fs heeds its last -E only.
    mkfs = tuple(
        f"{word},packed_meta_blocks=1" if packed and "lazy_itable_init" in word else word for word in variant.mkfs
    )
    return replace(variant, mkfs=mkfs, settings=(*variant.settings, *settings))


def with_log_elsewhere(variant: FileSystem, size_mib: int) -> FileSystem:
    """ext4 with its journal on another device, which costs no time: a file in the guest's memory, behind a loop device.
    What of it is written stays there, and is no other memory then."""
    log, device = "/run/journal", "/dev/loop0"
    made = ("-O", "journal_dev", "-E", "lazy_journal_init", "-b", "4096", "-U", _LOG_UUID)
    before = (
        ("/usr/bin/truncate", "-s", f"{size_mib}M", log),
        ("/sbin/losetup", device, log),
        ("/sbin/mke2fs", "-q", "-F", *made, device),
        ("/sbin/tune2fs", "-J", f"device={device}", job.DEVICE),
    )
    return replace(
        variant,
        mkfs=(*variant.mkfs, "-O", "^has_journal"),
        before_mount=before,
        classes=frozenset({"metadata"}),
        probe=None,
    )


def with_inline_data(variant: FileSystem) -> FileSystem:
    """ext4 that keeps small directories and files in their inodes (ext4(5), inline_data)."""
    return replace(variant, name=f"{variant.name}-inline", mkfs=(*variant.mkfs, "-O", "inline_data"))


def with_tables_together(variant: FileSystem) -> FileSystem:
    """ext4 with the bitmaps and inode tables of 64 groups, which are 8 GiB, in one place: 16 groups if not told.

    So data are cut into fewer pieces. An inode for each 32 KiB, as mke2fs takes from 4 TiB on, leaves half of a group
    beside them for directories; with more they would lie anywhere (mke2fs(8), `-G` and `-i`).
    """
    return replace(variant, name=f"{variant.name}-g64", mkfs=(*variant.mkfs, "-G", "64", "-i", "32768"))


def with_writeback(variant: FileSystem, percent: int, *, strict: bool) -> FileSystem:
    """The same, its disk having this share of the dirty pages that the kernel lets stay
    (Documentation/ABI/testing/sysfs-class-bdi). Unless strict, nobody waits while all disks together have few."""
    device = f"/sys/block/{Path(job.DEVICE).name}/bdi"
    if variant.kernel_name == "btrfs":
        # It has one of its own for all its disks.
        device = f"/sys/fs/btrfs/{UUID}/bdi"
    # The minimum cannot be above the maximum.
    fixed = {"max_ratio": percent, "min_ratio": percent, "strict_limit": int(strict)}
    settings = tuple((f"{device}/{name}", str(value)) for name, value in fixed.items())
    return replace(variant, settings=(*variant.settings, *settings))


def nilfs2_of_segments(name: str, segment_mib: int) -> FileSystem:
    """NILFS2 under another name, its segments so large; mkfs.nilfs2 takes that in blocks of 4 KiB."""
    nilfs2 = find("nilfs2")
    return replace(nilfs2, name=name, mkfs=(*nilfs2.mkfs, "-B", str((segment_mib << 20) // 4096)))


def nilfs2_without_pause(segments: int) -> str:
    """What nilfs_cleanerd is told (nilfs_cleanerd.conf(5)) to keep nothing for later and never to rest, with so many
    segments at a time."""
    return f"""\
protection_period 0
min_clean_segments 0
nsegments_per_clean {segments}
cleaning_interval 0.01
selection_policy timestamp
min_reclaimable_blocks 1%
use_set_suinfo
use_mmap
"""


def check_can_age(variant: FileSystem, *, host_managed: bool) -> None:
    if not (variant.zoned_reserves_space if host_managed else variant.reserves_space):
        raise Failure(
            f"{variant.name} cannot be aged: it cannot reserve space, and writing terabytes takes days.", status=2
        )


def check_suits(variant: FileSystem, drive: str, *, host_managed: bool) -> None:
    """Refuses a file system on which no workload can run on a drive of this kind."""
    if variant.one_file_per_zone:
        raise Failure(f"{variant.name} holds one file for each zone, and no workload can run on it.", status=2)
    if host_managed and variant.zoned_mkfs is None:
        able = ", ".join(each.name for each in _ALL if each.zoned_mkfs is not None and not each.one_file_per_zone)
        raise Failure(
            f"{variant.name} does not write zones in order, as {drive} requires; these do: {able}"
            " (docs/design/zones.md).",
            status=2,
        )


def check_fits(variant: FileSystem, drive: str, capacity_bytes: int) -> None:
    """Refuses a file system that cannot be made on a drive of this size, and says why."""
    if capacity_bytes < variant.min_capacity_bytes:
        raise Failure(
            f"{variant.name} needs a drive of at least {variant.min_capacity_bytes / _GIB:.0f} GiB,"
            f" and {drive} has {capacity_bytes / _GIB:.1f} GiB.",
            status=2,
        )
