# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that people use, on SAFS in the machine: databases, backups, logs, recorders, and a POSIX suite.

`./shingle test --clients` installs the programs and runs them. docs/results/safs-results.md has the table of what
they showed.
"""

import ast
import hashlib
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Bench, Booted
from shingle.build.tools import PJDFSTEST
from shingle.catalogue import fs
from shingle.catalogue.fs import FileSystem
from shingle.machine import job

pytestmark = [pytest.mark.machine, pytest.mark.clients]

PROGRAMS = Path(__file__).with_name("safs_clients")
PYTHON = f"/usr/bin/python3 -I {job.OUT}"
# The same line in both, for a shell: what was noted outlives the power cut.
NOTED = f"{job.OUT}/noted"


def safs(zone: str = "4M", options: str = "") -> FileSystem:
    """Zones small enough that small tests fill many."""
    usual = fs.find("safs")
    mkfs = (*usual.mkfs, "--zone-size", zone)
    return replace(usual, mkfs=mkfs, options=options, min_capacity_bytes=1 << 26)


def shell(command: str, **more: object) -> job.Step:
    return job.run(["/bin/sh", "-ec", command], **more)  # type: ignore[arg-type]


def unmounted(variant: FileSystem) -> list[job.Step]:
    """Unmounts, and reads every block that is there."""
    check = job.run([f"{job.OUT}/safs", "fsck", job.DEVICE, "--read-only", "--data"])
    return [*variant.served(job.umount()), check]


def boot(bench: Bench, variant: FileSystem, drive: Path, steps: list[job.Step], **more: object) -> Booted:
    files = (*variant.files(bench.built.crates), *sorted(PROGRAMS.iterdir()), *more.pop("files", ()))  # type: ignore[misc]
    return bench.boot(steps, drive=drive, files=files, **({"memory_mib": 512} | more))


def noted(booted: Booted) -> int:
    """The last count that a program was told of as done, before the power was cut."""
    text = booted.text("noted")
    return int(text) if text.strip() else 0


# A mount of the small disk takes 1037 requests, a synced key or line a little more than two.

# --- RocksDB ------------------------------------------------------------------

DATABASE = "--db=/mnt/db --value_size=400 --write_buffer_size=65536 --target_file_size_base=65536"
CHECKED = "ldb --db=/mnt/db checkconsistency >&2 && ldb --db=/mnt/db scan --hex"


def filling(keys: int) -> str:
    """Writes synced keys in order, and keeps count of them."""
    fill = f"db_bench {DATABASE} --benchmarks=fillseq --num={keys} --sync=1 --stats_interval=1"
    return f"mkdir -p /mnt/db; {fill} 2>&1 | {PYTHON}/note.py {NOTED}"


def assert_keys(text: str, at_least: int, replay: str) -> int:
    """The keys are 0, 1, 2, … without a gap, as many as were synced or more; returns how many."""
    keys = [int(key[:16], 16) for key in re.findall(r"^0x([0-9A-F]{32}) ", text, flags=re.MULTILINE)]
    assert keys == list(range(len(keys))), replay
    assert len(keys) >= at_least, f"{replay}: {at_least} keys were synced, {len(keys)} are there"
    return len(keys)


def rocksdb_after_a_cut(bench: Bench, seed: int, keys: int, requests: tuple[int, int]) -> None:
    variant = safs()
    cut = random.Random(seed).randrange(*requests)
    replay = f"seed {seed}, cut at request {cut}"
    empty = bench.formatted(variant, capacity_bytes=1 << 30).file
    left = boot(bench, variant, empty, [*variant.mount_steps(), shell(filling(keys))], cut=cut, save=True)
    assert left.outcome.power_cut, f"no power cut; {replay}"
    synced = noted(left)
    assert synced > 0, f"nothing was synced before the cut; {replay}"
    again = f"db_bench {DATABASE} --use_existing_db=1 --num={synced}"
    steps = [
        *variant.mount_steps(),
        shell(CHECKED, stdout="after-cut.txt"),
        # Reads all, then goes on, and is killed in the middle of it.
        shell(f"{again} --benchmarks=verifychecksum,readseq", stdout="read.txt"),
        shell(f"timeout -s KILL 1.5 {again} --benchmarks=overwrite --sync=1 --duration=60", may_fail=True),
        shell(CHECKED, stdout="after-kill.txt"),
        *unmounted(variant),
        *variant.mount_steps(),
        shell(CHECKED, stdout="mounted.txt"),
        *unmounted(variant),
    ]
    after = boot(bench, variant, left.saved_drive, steps)
    killed = next(step for step in after.outcome.steps if step.status not in (0,))
    assert killed.status == 137, "the benchmark ended by itself"
    there = assert_keys(after.text("after-cut.txt"), synced, replay)
    for name in ("after-kill.txt", "mounted.txt"):
        assert assert_keys(after.text(name), synced, replay) == there
    assert "readseq" in after.text("read.txt")


@pytest.mark.parametrize("seed", [1, 2])
def test_rocksdb_loses_nothing_synced_by_a_power_cut_or_a_kill(bench: Bench, seed: int) -> None:
    rocksdb_after_a_cut(bench, seed, keys=2000, requests=(1200, 5000))


@pytest.mark.parametrize("seed", range(10, 30))
def test_rocksdb_loses_nothing_synced_by_many_power_cuts(bench: Bench, seed: int) -> None:
    rocksdb_after_a_cut(bench, seed, keys=20_000, requests=(1200, 40_000))


def test_rocksdb_loses_nothing_synced_when_the_server_is_killed(bench: Bench) -> None:
    variant = safs()
    empty = bench.formatted(variant, capacity_bytes=1 << 30).file
    kill = "(sleep 3; kill -KILL $(pidof safs)) &"
    steps = [
        *variant.mount_steps(),
        shell(f"{kill} {filling(5000)}"),
        *variant.served(job.umount()),
        *variant.mount_steps(),
        shell(CHECKED, stdout="after-kill.txt"),
        *unmounted(variant),
    ]
    after = boot(bench, variant, empty, steps)
    synced = noted(after)
    assert 0 < synced < 5000
    assert_keys(after.text("after-kill.txt"), synced, "server killed after 3 s")


# --- tar and rsync --------------------------------------------------------------


def trees(bench: Bench, seed: int, files: int, **more: object) -> None:
    variant = safs()
    empty = bench.formatted(variant, capacity_bytes=1 << 30).file
    tree = f"{PYTHON}/tree.py"
    tar = "tar --xattrs --xattrs-include=* --numeric-owner"
    # Nanoseconds count: everything here happens within a second.
    rsync = "rsync -aHX --numeric-ids --delete --modify-window=-1"
    steps = [
        shell(f"{tree} make /run/tree {seed} {files} && {tree} list /run/tree", stdout="tree.txt"),
        *variant.mount_steps(),
        shell(f"{tar} -C /run/tree --format=posix --sparse -cf /mnt/tree.tar ."),
        shell(f"mkdir /mnt/tar && {tar} -C /mnt/tar -xpf /mnt/tree.tar"),
        shell(f"{rsync} /run/tree/ /mnt/rsync/"),
        *unmounted(variant),
        *variant.mount_steps(),
        *(shell(f"{tree} list /mnt/{name}", stdout=f"{name}.txt") for name in ("tar", "rsync")),
        shell(f"{tree} change /run/tree {seed} && {tree} list /run/tree", stdout="changed.txt"),
        shell(f"{rsync} /run/tree/ /mnt/rsync/ && {tree} list /mnt/rsync", stdout="rsync-changed.txt"),
        # And back: the tree on SAFS is the backup that is restored.
        shell(f"{rsync} --sparse /mnt/rsync/ /run/back/ && {tree} list /run/back", stdout="back.txt"),
        *unmounted(variant),
    ]
    done = boot(bench, variant, empty, steps, **more)
    for one, other in [("tree", "tar"), ("tree", "rsync"), ("changed", "rsync-changed"), ("changed", "back")]:
        expected, found = (
            [ast.literal_eval(line) for line in done.text(f"{name}.txt").splitlines()] for name in (one, other)
        )
        assert len(expected) > files // 3
        assert found == expected, f"{other} is not {one}; seed {seed}"
    assert done.text("tree.txt") != done.text("changed.txt")


def test_tar_and_rsync_restore_a_tree_identical(bench: Bench) -> None:
    trees(bench, seed=1, files=60)


@pytest.mark.parametrize("seed", range(10, 15))
def test_tar_and_rsync_restore_large_trees_identical(bench: Bench, seed: int) -> None:
    # Half of the memory is for /run, where two trees of 120 MiB lie.
    trees(bench, seed=seed, files=600, memory_mib=1024)


# --- a log with rotation ----------------------------------------------------------


def log_after_a_cut(bench: Bench, rotation: str, seed: int, lines: int, requests: tuple[int, int]) -> None:
    variant = safs()
    cut = random.Random(seed).randrange(*requests)
    replay = f"seed {seed}, cut at request {cut}"
    empty = bench.formatted(variant, capacity_bytes=1 << 30).file
    write = f"mkdir -p /mnt/log && {PYTHON}/log_writer.py /mnt/log/log {lines} {NOTED} {rotation}"
    left = boot(bench, variant, empty, [*variant.mount_steps(), shell(write)], cut=cut, save=True)
    assert left.outcome.power_cut, f"no power cut; {replay}"
    last = noted(left)
    # The oldest first, as `log.5`, …, `log.1`, `log`.
    read = "cd /mnt/log && for name in log.5 log.4 log.3 log.2 log.1 log; do [ ! -e $name ] || cat $name; done"
    steps = [*variant.mount_steps(), shell(read, stdout="log.txt"), *unmounted(variant)]
    text = boot(bench, variant, left.saved_drive, steps).text("log.txt")
    # copytruncate copies before it truncates: a cut between the two leaves lines twice, and none missing.
    numbers = [int(line[:8]) for line in text.splitlines() if len(line) == 199]
    if rotation == "copytruncate":
        numbers = sorted(set(numbers))
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), replay
    assert numbers[-1] >= last, f"line {last} was synced, {numbers[-1]} is the last one; {replay}"
    # While it rotates, the oldest is gone and the newest not there yet. Python begins a file before its limit.
    per_file = 24 if rotation == "handler" else 25
    assert numbers[0] <= max(0, last + 1 - 5 * per_file), f"an older file is gone; {replay}"


@pytest.mark.parametrize(("rotation", "seed"), [("handler", 1), ("create", 2), ("copytruncate", 3)])
def test_a_log_that_rotates_keeps_every_synced_line(bench: Bench, rotation: str, seed: int) -> None:
    log_after_a_cut(bench, rotation, seed, lines=400, requests=(1150, 1850))


@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("rotation", ["handler", "create", "copytruncate"])
def test_logs_that_rotate_keep_every_synced_line_whenever_the_power_goes(
    bench: Bench, rotation: str, seed: int
) -> None:
    log_after_a_cut(bench, rotation, seed, lines=4000, requests=(1150, 9000))


# --- a ring of video segments ------------------------------------------------------

DISK_BYTES = 64 << 20
KEPT_BYTES = 24 << 20


def recorded(
    bench: Bench, record: str, disk_bytes: int, kept_bytes: int, **more: object
) -> tuple[list[list[str]], Booted]:
    """Records into a ring directory; what is there after another mount: names and hashes."""
    variant = safs("1M")
    empty = bench.formatted(variant, capacity_bytes=disk_bytes).file
    steps = [
        *variant.mount_steps(),
        shell(f"mkdir /mnt/ring && {job.OUT}/safs retain /mnt/ring --bytes {kept_bytes}"),
        shell(record),
        # What is kept is looked at once a second.
        job.sleep(2),
        *unmounted(variant),
        *variant.mount_steps(),
        shell(f"{PYTHON}/segments.py list /mnt/ring", stdout="ring.txt"),
        shell("for name in /mnt/ring/*; do stat -c %s $name; done", stdout="sizes.txt"),
        *(more.pop("then", ())),  # type: ignore[misc]
        *unmounted(variant),
    ]
    done = boot(bench, variant, empty, steps, **more)
    return [line.split() for line in done.text("ring.txt").splitlines()], done


def assert_newest(ring: list[list[str]], expected: list[list[str]], sizes: list[int], kept_bytes: int) -> None:
    """The ring holds the newest segments, each as it was written, and as many as fit."""
    assert ring == expected[-len(ring) :]
    assert len(ring) < len(expected)
    assert kept_bytes - 2 * max(sizes) <= sum(sizes) <= kept_bytes + 2 * max(sizes)


def sizes_of(done: Booted) -> list[int]:
    return [int(line) for line in done.text("sizes.txt").splitlines()]


def test_a_ring_of_segments_takes_three_times_the_disk(bench: Bench) -> None:
    packets = 4000
    count = 3 * DISK_BYTES // (packets * 188) + 1
    record = f"{PYTHON}/segments.py /mnt/ring 0 {count} {packets}"
    ring, done = recorded(bench, record, DISK_BYTES, KEPT_BYTES)
    payload = [number.to_bytes(8, "big") * 23 for number in range(count)]
    sixteen = [b"".join(bytes([0x47, 0x1F, 0xFF, 0x10 | index]) + each for index in range(16)) for each in payload]
    written = [
        [f"{number:06}.ts", hashlib.sha256(each * (packets // 16)).hexdigest()] for number, each in enumerate(sixteen)
    ]
    assert_newest(ring, written, sizes_of(done), KEPT_BYTES)


def test_ffmpeg_records_into_a_ring_three_times_the_disk(bench: Bench) -> None:
    """Real segments, a live playlist that is replaced, and a decoder that reads what is kept."""
    clip = bench.folder / "clip.ts"
    noise = "testsrc2=size=640x360:rate=25,noise=alls=60:allf=t"
    make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", noise, "-t", "8", "-c:v", "mpeg2video", "-qscale:v", "2"]
    subprocess.run([*make, "-g", "25", "-bitexact", str(clip)], check=True, timeout=300)
    rounds = 3 * DISK_BYTES // clip.stat().st_size
    command = (
        f"ffmpeg -v error -stream_loop {rounds} -i CLIP -c copy -bitexact -f hls -hls_time 2 -hls_list_size 5"
        " -hls_segment_filename RING/%06d.ts RING/../live.m3u8"
    )
    reference = bench.folder / "ring"
    reference.mkdir()
    subprocess.run(command.replace("CLIP", str(clip)).replace("RING", str(reference)).split(), check=True, timeout=300)
    written = [[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in sorted(reference.iterdir())]
    assert sum(path.stat().st_size for path in reference.iterdir()) > 3 * DISK_BYTES
    shutil.rmtree(reference)
    record = command.replace("CLIP", f"{job.OUT}/clip.ts").replace("RING", "/mnt/ring")
    play = shell("for name in /mnt/ring/*.ts; do ffmpeg -v error -xerror -i $name -f null -; done; cat /mnt/live.m3u8")
    ring, done = recorded(bench, record, DISK_BYTES, KEPT_BYTES, files=(clip,), then=(play,))
    assert_newest(ring, written, sizes_of(done), KEPT_BYTES)


# --- POSIX --------------------------------------------------------------------------


def test_posix_conformance_but_for_what_append_only_implies(bench: Bench) -> None:
    variant = safs(options="allow_other")
    empty = bench.formatted(variant, capacity_bytes=1 << 30).file
    run = f"{job.OUT}/pjdfstest -p /mnt -s /run -c"
    steps = [
        *variant.mount_steps(),
        shell(f"chmod 755 /mnt; {run} {job.OUT}/pjdfstest.toml", stdout="all.txt", may_fail=True),
        *unmounted(variant),
        *variant.mount_steps(),
        shell(f"sed 's/^allow_remount.*/allow_remount = true/' {job.OUT}/pjdfstest.toml >/run/erofs.toml"),
        shell(f"{run} /run/erofs.toml erofs", stdout="erofs.txt", may_fail=True),
        *unmounted(variant),
    ]
    done = boot(bench, variant, empty, steps, files=(PJDFSTEST.program(),))
    for name, least in (("all.txt", 380), ("erofs.txt", 10)):
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.text(name))
        summary = re.search(r"Summary: (\d+) failed, (\d+) skipped, (\d+) passed, .*", said)
        assert summary is not None, said
        wrong = re.findall(r"^(\S+) +(?:FAILED|PASSED UNEXPECTEDLY)$", said, flags=re.MULTILINE)
        assert wrong == [], said
        assert int(summary[1]) == 0 and int(summary[3]) >= least, summary[0]
