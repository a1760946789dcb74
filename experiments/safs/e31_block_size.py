# SPDX-License-Identifier: MIT OR Apache-2.0
"""The applications of SAFS on the conventional disk, by the size of the blocks and whether each is made durable:
the slides say neither.

A file system that gathers what waits in memory lays each file's bytes in long pieces. To read the files in turn then
takes a seek for each block, or for each piece that the kernel reads ahead, and its length decides. The slides' ext4,
F2FS and NILFS2 need 1.2 to 1.3 times what the disk takes for the same bytes in order. In application 2, which only
writes, their ext4 is slow as well: 1.5 times what the disk takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, drive, fs, job, run, workload

DRIVE = "safs-cmr-4tb"
PHASES = ("AppendHalf", "ReadHalf", "RemoveHalf")
ONLY_WRITES = ("AppendMost", "ReplaceMost", "RemoveMost")
PAPER_S = {"ext4": 571, "nilfs2": 510, "f2fs": 504}
PAPER_WRITES_S = 988
BLOCKS_KIB = (64, 1024, 4096, 16384)
# What comes near the slides' with each block made durable.
DURABLE_KIB = (8192, 16384)
CAPACITY_BYTES = 64 << 30


@dataclass(frozen=True)
class Blocks(workload.Plan):
    """The same plan with blocks of another size."""

    kib: int = 64

    def steps(self) -> list[job.Step]:
        return [self._resized(step) for step in super().steps()]

    def _resized(self, step: job.Step) -> job.Step:
        arguments = step.get("args")
        if not isinstance(arguments, dict) or "io_bytes" not in arguments:
            return step
        return step | {"args": arguments | {"io_bytes": self.kib << 10}}


def named(file_system: str, kib: int, *, durable: bool = False) -> str:
    return f"{file_system}-{kib}k-sync" if durable else f"{file_system}-{kib}k"


def runs(scale: float, seed: int) -> list[run.Run]:
    def a_run(names: Sequence[str], variant: fs.FileSystem, kib: int) -> run.Run:
        plan = workload.plan(names, scale=scale, seed=seed)
        blocks = Blocks(plan.names, plan.scales, plan.seed, kib=kib)
        return run.Run(drive.find(DRIVE), variant, blocks, capacity_bytes=CAPACITY_BYTES)

    cells = []
    for name in PAPER_S:
        variant = fs.find(name)
        cells += [a_run(PHASES, replace(variant, name=named(name, kib)), kib) for kib in BLOCKS_KIB]
        for kib in DURABLE_KIB:
            durable = replace(fs.mounted_with(variant, "sync"), name=named(name, kib, durable=True))
            cells += [a_run(names, durable, kib) for names in (PHASES, *((ONLY_WRITES,) if name == "ext4" else ()))]
    return cells


def seconds(records: Sequence[Record], file_system: str, phases: Sequence[str] = PHASES) -> float:
    return sum(float(cell(records, file_system, phase, DRIVE)["virtual_s"]) for phase in phases)


def claim(file_system: str, kib: int, *, durable: bool = False) -> Claim:
    what = f"application 1 on {file_system}, blocks of {kib} KiB{', each durable' if durable else ''}"
    name, paper_s = named(file_system, kib, durable=durable), PAPER_S[file_system]
    return Claim("T30", what, "s", paper_s, paper_s, lambda records: seconds(records, name), 0.25, linear=True)


def claim_of_writes(kib: int) -> Claim:
    name = named("ext4", kib, durable=True)
    return Claim(
        "T31", f"application 2 on ext4, blocks of {kib} KiB, each durable", "s", PAPER_WRITES_S, PAPER_WRITES_S,
        lambda records: seconds(records, name, ONLY_WRITES), 0.25, linear=True,
    )  # fmt: skip


CLAIMS = (
    *(claim(name, kib) for name in PAPER_S for kib in BLOCKS_KIB),
    *(claim(name, kib, durable=True) for name in PAPER_S for kib in DURABLE_KIB),
    *(claim_of_writes(kib) for kib in DURABLE_KIB),
)

EXPERIMENT = Experiment(
    name="e31-block-size",
    claim="how long files take that are read in turn depends on the block more than on the file system",
    source="SAFS (SDC 2015), applications 1 and 2, varied",
    varied=True,
    runs=runs,
    phases=(*PHASES, *ONLY_WRITES),
    scale=0.1,
    scaling="The bytes of the files are scaled, memory and the disk are not.",
    expectations=(
        *(
            Expectation(
                f"{name}: blocks of 16 MiB are read in less than half of the time of blocks of 64 KiB",
                lambda records, name=name: (
                    seconds(records, named(name, 16384), ("ReadHalf",))  # type: ignore[misc]
                    < seconds(records, named(name, 64), ("ReadHalf",)) / 2
                ),
            )
            for name in PAPER_S
        ),
        Expectation(
            "ext4: application 2 takes longer with smaller blocks, each durable",
            lambda records: (
                seconds(records, named("ext4", 8192, durable=True), ONLY_WRITES)
                > seconds(records, named("ext4", 16384, durable=True), ONLY_WRITES)
            ),
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("SAFS's applications on a conventional disk, by the block", "s", CLAIMS)),
    numbers={"without_deleting_s": lambda records, name: seconds(records, name, PHASES[:-1])},
)
