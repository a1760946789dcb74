# SPDX-License-Identifier: MIT OR Apache-2.0
"""A plan of several experiments: small overwrites with an fsync now and then, or the same blocks appended."""

from __future__ import annotations

from dataclasses import dataclass

from shingle.catalogue import fio, workload
from shingle.machine import job

PREPARE, OVERWRITE = "Prepare", "OverwriteSynced"
# At scale 1.
SPAN_BYTES, COUNT, FSYNC_EVERY, BLOCK_BYTES = 16 << 30, 200_000, 16, 4096
MEMORY_MIB = 6 << 10


@dataclass(frozen=True)
class Synced(workload.Plan):
    """A file written from front to back; then 4 KiB blocks, 16 to an fsync, at random places of it or appended."""

    # Of the file: `chattr +j`.
    journalled: bool = False
    append: bool = False

    @property
    def phases(self) -> tuple[str, ...]:
        return (PREPARE, OVERWRITE, workload.UNMOUNT)

    def steps(self) -> list[job.Step]:
        scale = self.scales[OVERWRITE]
        span, count = round(SPAN_BYTES * scale) >> 20 << 20, round(COUNT * scale)
        file = f"{job.MOUNT_POINT}/random"
        flag = [job.run(["/usr/bin/chattr", "+j", file])] if self.journalled else []
        where = ["--rw=write", f"--filename={file}.log"] if self.append else ["--rw=randwrite", f"--filename={file}"]
        size = count * BLOCK_BYTES if self.append else span
        argv = [
            "/usr/bin/fio", "--name=synced", *where, f"--bs={BLOCK_BYTES}", f"--size={size}",
            f"--io_size={count * BLOCK_BYTES}", f"--fsync={FSYNC_EVERY}", *fio.seeded(self.seed),
            "--fallocate=none", "--overwrite=0", "--ioengine=sync", "--thread",
        ]  # fmt: skip
        clean = job.wait_clean(limit_s=workload.CLEAN_LIMIT_S)
        return [
            job.load("sequential_write", {"path": "random", "length_bytes": span}, phase=PREPARE),
            job.sync(),
            job.drop_caches(),
            clean,
            *flag,
            job.run(argv, stdout="fio.txt", phase=OVERWRITE),
            clean,
            job.umount(phase=workload.UNMOUNT),
            clean,
        ]
