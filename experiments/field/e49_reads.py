# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cold reads on a disk that has been used: what data in the order of time cost, and what tidying gives back.

A large file is overwritten at random, a block at a time, while a file server's files come, go and grow around it
(lab/in_machine/churn.py). Half-way a source tree, directories and small files are made on what is left of the free
space. Each is read as a user reads it, from an empty page cache and with a drive that has cleaned up. With journal_lazy
the log still has a part of their metadata.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle.lab import IN_MACHINE, TIDY, Expectation, Experiment, Record, bars, cell, drive, fs, job, run, workload

DRIVE = "st8000as0002"
# At scale 1.
CAPACITY_BYTES, LARGE_BYTES = 400 << 30, 50 << 30
SCALE = 0.02
LOG_MIB = 256
# Of the disk, by the file server; with the rest some 80 % are in use.
SERVER_PERCENT = 40
# In each round as much is written as the server has, in so many parts, with a pause after each.
ROUNDS, PARTS = 2, 10
# Of the large file's blocks, in all parts together.
OVERWRITTEN = 0.25
BLOCK_BYTES = 4096
STOCK, OFF, ON, TIDIED = "ext4-256m", "ext4-lazy-256m", "ext4-smr-256m", "ext4-smr-256m-tidied"
OWN = {STOCK: "", OFF: "journal_lazy", ON: "journal_lazy,data_relocate", TIDIED: "journal_lazy,data_relocate"}
OTHERS = ("f2fs", "btrfs", "xfs")
AGE, TIDYING = "Age", "Tidy"
MADE = ("KernelTree", "MakeDirs", "CreateFiles")
READ_LARGE, READ_TREE, READ_SERVER = "ReadLarge", "ReadTree", "ReadServer"
OF_TREES = ("ListDirs", "TarDirs", "TarFiles")
READS = (*OF_TREES, READ_TREE, READ_SERVER, READ_LARGE)
CHURN = IN_MACHINE / "churn.py"
REPORT = "/run/report.json"
# A read that takes no more than this counts as equal.
EQUAL = 1.1


@dataclass(frozen=True)
class Reads(workload.Plan):
    """One disk is aged, filled with what is to be read, and read."""

    tidied: bool = False

    def files(self) -> tuple[Path, ...]:
        return (CHURN, TIDY)

    def steps(self) -> list[job.Step]:
        scale = self.scales[AGE]
        folder, full = f"{job.MOUNT_POINT}/server", str(SERVER_PERCENT)
        written = round(CAPACITY_BYTES * scale * SERVER_PERCENT / 100 / PARTS)
        large = round(LARGE_BYTES * scale) >> 20 << 20
        blocks = round(large / BLOCK_BYTES * OVERWRITTEN / (ROUNDS * PARTS))
        clean = job.wait_clean(limit_s=workload.CLEAN_LIMIT_S)

        def python(program: Path, *more: str, phase: str) -> job.Step:
            argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}", *more]
            return job.run(argv, limit_s=workload.CLEAN_LIMIT_S, phase=phase)

        def made(name: str) -> list[job.Step]:
            return workload.WORKLOADS[name].steps(scale=scale, time_scale=scale, seed=self.seed)

        steps = [
            job.load("sequential_write", {"path": "large", "length_bytes": large}, phase=AGE),
            python(CHURN, "fill", folder, full, str(self.seed), phase=AGE), clean,
        ]  # fmt: skip
        for part in range(1, ROUNDS * PARTS + 1):
            if part == ROUNDS * PARTS // 2 + 1:
                for name in MADE:
                    steps += [*made(name), job.sync(phase=name), clean]
            seed = self.seed * ROUNDS * PARTS + part
            overwrite = {"path": "large", "span_bytes": large, "count": blocks, "block_bytes": BLOCK_BYTES,
                         "direct": False, "prepare": False, "seed": seed}  # fmt: skip
            steps += [
                python(CHURN, "round", folder, full, str(written), str(seed), REPORT, phase=AGE),
                job.load("random_overwrite", overwrite, phase=AGE), clean,
            ]  # fmt: skip
        if self.tidied:
            steps += [
                python(TIDY, job.MOUNT_POINT, "--rate", "1000", phase=TIDYING), job.sync(phase=TIDYING), clean
            ]  # fmt: skip
        read = {
            READ_TREE: [job.load("tarfiles", {"path": "kernel"}, phase=READ_TREE)],
            READ_SERVER: [job.load("tarfiles", {"path": "server"}, phase=READ_SERVER)],
            READ_LARGE: [job.load("sequential_read", {"path": "large", "length_bytes": large}, phase=READ_LARGE)],
        }
        for name in READS:
            steps += [job.drop_caches(), clean, *(read.get(name) or made(name))]
        return [*steps, job.umount(phase=workload.UNMOUNT), clean]


def runs(scale: float, seed: int) -> list[run.Run]:
    variants = [*(fs.ext4(name, name, LOG_MIB, options) for name, options in OWN.items()), *map(fs.find, OTHERS)]
    found = []
    for variant in variants:
        tidied = variant.name == TIDIED
        names = (AGE, *MADE, *((TIDYING,) if tidied else ()), *READS)
        plan = Reads(names, dict.fromkeys(names, scale), seed, tidied=tidied)
        found.append(run.Run(
            drive.find(DRIVE), variant, plan, memory_mib=1024,
            capacity_bytes=max(1, round(CAPACITY_BYTES * scale) >> 30) << 30, may_fail=True,
        ))  # fmt: skip
    return found


def ran_s(records: Sequence[Record], file_system: str, name: str) -> float:
    """A phase's virtual seconds."""
    return float(cell(records, file_system, name)["virtual_s"])


def times(records: Sequence[Record], file_system: str, name: str) -> float:
    """How much longer a read takes than with stock ext4."""
    return ran_s(records, file_system, name) / ran_s(records, STOCK, name)


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for name in READS:
        rows = []
        for file_system in (*OWN, *OTHERS):

            def parts(own: Sequence[Record], each: str = file_system, name: str = name) -> list[tuple[str, float]]:
                return [("read", ran_s(own, each, name))]

            rows.append(bars.of_parts(file_system, records, parts))
        panels.append(bars.Panel(name, "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e49-reads",
    claim="what cold reads pay for data in order on an aged disk, and that tidying gives most of it back",
    runs=runs,
    phases=(AGE, *MADE, TIDYING, *READS),
    scale=SCALE,
    scaling="The disk, the file server, the large file and the trees are scaled; the source tree and the log are not.",
    expectations=(
        Expectation(
            "directories and small files that were made on the aged disk are listed and archived sooner",
            lambda records: all(times(records, ON, name) < 1 for name in OF_TREES),
        ),
        Expectation(
            "once tidied, the file server's files take no longer, within a tenth",
            lambda records: times(records, TIDIED, READ_SERVER) <= EQUAL,
        ),
        Expectation(
            "and the large file that was overwritten at random a tenth of what it took before",
            lambda records: 10 * ran_s(records, TIDIED, READ_LARGE) <= ran_s(records, ON, READ_LARGE),
        ),
    ),
    numbers={"ran_s": ran_s, "times": times},
    draw=draw,
)
