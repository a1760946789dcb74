# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every file system completes a workload, and its own checker is content with what it left."""

import json
from dataclasses import replace

import pytest

from harness import Bench
from shingle.catalogue import workload
from shingle.catalogue.drive import changed
from shingle.catalogue.drive import find as find_drive
from shingle.catalogue.fs import FILE_SYSTEMS
from shingle.machine import job
from shingle.runs import run
from shingle.runs.run import Keep, Run

pytestmark = pytest.mark.machine

CAPACITY_BYTES = 64 << 30


@pytest.mark.parametrize("name", [name for name, each in FILE_SYSTEMS.items() if not each.one_file_per_zone])
def test_a_workload_completes_and_the_image_is_clean(bench: Bench, name: str) -> None:
    variant = FILE_SYSTEMS[name]
    plan = workload.plan(["CreateFiles", "FindFiles", "RemoveFiles", "Postmark"], scale=0.001, seed=3)
    wanted = Run(find_drive("st8000as0002"), variant, plan, memory_mib=512, capacity_bytes=CAPACITY_BYTES)
    result = run.perform(bench.built, wanted, keep=Keep(bench.folder, trace=False, drive=True))
    assert [record["phase"] for record in result.records] == ["mount", *plan.phases]
    (found,) = (record for record in result.records if record["phase"] == "FindFiles")
    # The caches were cold: it reads what it made.
    assert found["total_read_bytes"] >= 512 << 10
    postmark = result.records[-2]
    assert postmark["total_written_bytes"] > 0
    for request_class in ("metadata", "journal", "superblock"):
        value = postmark[f"{request_class}_written_bytes"]
        assert (value is not None) == variant.reports(request_class)
    if variant.check is not None:
        assert result.saved is not None
        image = bench.recovered(result.saved) if variant.keeps_log else bench.exported(result.saved)
        bench.assert_image_clean(image, variant.check)


@pytest.mark.parametrize(
    ("drive", "conventional", "reserved", "capacity_bytes"),
    [("hc620", 524, 524, 160 << 30), ("hc620", 0, 16, 32 << 30), ("safs5000ha", 64, 64, 32 << 30)],
)
def test_safs_uses_the_zones_that_a_drive_has(
    bench: Bench, drive: str, conventional: int, reserved: int, capacity_bytes: int
) -> None:
    """By the kernel's calls on a host-managed drive, by the drive's own commands on a host-aware one."""
    variant = FILE_SYSTEMS["safs"]
    profile = changed(find_drive(drive), "translation.conventional_first", conventional)
    formatted = bench.formatted(variant, profile=profile, capacity_bytes=capacity_bytes)
    fill = "head -c 20000000 /dev/urandom >/run/file && cp /run/file /mnt/a && sync /mnt && rm /mnt/a"
    fill = f"{fill} && cp /run/file /mnt/b"
    steps = [
        *variant.mount_steps(),
        job.run(["/bin/sh", "-c", fill]),
        *variant.served(job.umount()),
        *variant.mount_steps(),
        job.run(["/usr/bin/cmp", "/run/file", "/mnt/b"]),
        *variant.served(job.umount()),
        job.run([f"{job.OUT}/safs", "fsck", job.DEVICE, "--data"]),
        job.run([f"{job.OUT}/safs", "dump", job.DEVICE, "superblock"], stdout="superblock.json"),
    ]
    booted = bench.boot(steps, drive=formatted.file, files=variant.files(bench.built.crates), memory_mib=512)
    superblock = json.loads(booted.text("superblock.json"))
    assert (superblock["random_zones"], superblock["zone_blocks"]) == (reserved, 65536)


def test_safs_loses_nothing_when_its_server_is_told_to_end(bench: Bench) -> None:
    """As a shutdown tells it: unmounted, or with a file open, when it cannot be unmounted."""
    variant = FILE_SYSTEMS["safs"]
    formatted = bench.formatted(variant, profile="safs5000ha", capacity_bytes=32 << 30)
    end = "kill -TERM $(pidof safs)"
    in_use = f"exec 9<. && {end} && sleep 5 && kill -KILL $(pidof safs)"
    ended = variant.served(job.umount())[1:]
    steps = [
        job.run(["/bin/sh", "-ec", "head -c 5000000 /dev/urandom >/run/file"]),
        *variant.mount_steps(),
        job.run(["/bin/sh", "-ec", f"cp /run/file /mnt/a && {end}"]),
        *ended,
        *variant.mount_steps(),
        job.run(["/bin/sh", "-ec", f"cp /run/file /mnt/b && cd /mnt && {in_use}"]),
        *variant.served(job.umount()),
        *variant.mount_steps(),
        job.run(["/usr/bin/cmp", "/run/file", "/mnt/a"]),
        job.run(["/usr/bin/cmp", "/run/file", "/mnt/b"]),
        *variant.served(job.umount()),
    ]
    bench.boot(steps, drive=formatted.file, files=variant.files(bench.built.crates), memory_mib=512)


def test_nilfs2_s_cleaner_frees_what_was_deleted(bench: Bench) -> None:
    """It runs beside the file system, and the unmount waits for its end."""
    nilfs2 = FILE_SYSTEMS["nilfs2"]
    conf = "/run/nilfs_cleanerd.conf"
    now = "protection_period 0\nmin_clean_segments 0\ncleaning_interval 0.1\nselection_policy timestamp\n"
    variant = replace(nilfs2, settings=((conf, now),), daemon=(*nilfs2.daemon, "-c", conf))
    clean = "lssu /dev/shd0 | grep -c -e -d-"
    fill = "head -c 400000000 /dev/zero >/mnt/file && sync && rm /mnt/file && sync"
    steps = [
        *variant.mount_steps(),
        job.run(["/bin/sh", "-ec", f"{fill} && {clean}"], stdout="before.txt"),
        job.sleep(60),
        job.run(["/bin/sh", "-ec", clean], stdout="after.txt"),
        *variant.served(job.umount()),
    ]
    booted = bench.boot(steps, drive=bench.formatted(nilfs2).file, memory_mib=512)
    before, after = (int(booted.text(name)) for name in ("before.txt", "after.txt"))
    assert before >= 400_000_000 // (8 << 20)
    assert after < before // 2, f"{before} segments in use before, {after} after"
