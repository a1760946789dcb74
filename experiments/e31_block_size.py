# SPDX-License-Identifier: MIT OR Apache-2.0
"""Application 1 of SAFS on the conventional disk, by the size of the blocks: the slides name none.

A file system that gathers what waits in memory lays each file's bytes in long pieces. To read the files in turn then
takes a seek for each block, or for each piece that the kernel reads ahead, and its length decides. The slides' ext4,
F2FS and NILFS2 need 1.2 to 1.3 times what the disk takes for the same bytes in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shingle import bars, drive, fs, job, run, workload
from shingle.claims import Claim
from shingle.experiment import Expectation, Experiment, Reason
from shingle.record import Record, cell

DRIVE = "safs-cmr-4tb"
PHASES = ("AppendHalf", "ReadHalf", "RemoveHalf")
PAPER_S = {"ext4": 571, "nilfs2": 510, "f2fs": 504}
BLOCKS_KIB = (64, 1024, 4096, 16384)
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


def named(file_system: str, kib: int) -> str:
    return f"{file_system}-{kib}k"


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan(PHASES, scale=scale, seed=seed)
    cells = []
    for name in PAPER_S:
        for kib in BLOCKS_KIB:
            variant = replace(fs.find(name), name=named(name, kib))
            blocks = Blocks(plan.names, plan.scales, plan.seed, kib=kib)
            cells.append(run.Run(drive.find(DRIVE), variant, blocks, capacity_bytes=CAPACITY_BYTES))
    return cells


def seconds(records: Sequence[Record], file_system: str, kib: int, phases: Sequence[str] = PHASES) -> float:
    return sum(float(cell(records, named(file_system, kib), phase, DRIVE)["virtual_s"]) for phase in phases)


def claim(file_system: str, kib: int) -> Claim:
    paper_s = PAPER_S[file_system]
    return Claim(
        "T30", f"application 1 on {file_system}, blocks of {kib} KiB", "s", paper_s, paper_s,
        lambda records: seconds(records, file_system, kib), 0.25, linear=True,
    )  # fmt: skip


CLAIMS = tuple(claim(name, kib) for name in PAPER_S for kib in BLOCKS_KIB)

EXPERIMENT = Experiment(
    name="e31-block-size",
    claim="how long files take that are read in turn depends on the block more than on the file system",
    source="SAFS (SDC 2015), application 1, varied",
    varied=True,
    runs=runs,
    phases=PHASES,
    scale=0.1,
    scaling="The bytes of the files are scaled, memory and the disk are not.",
    expectations=tuple(
        Expectation(
            f"{name}: blocks of 16 MiB are read in less than half of the time of blocks of 64 KiB",
            lambda records, name=name: (
                seconds(records, name, 16384, ("ReadHalf",))  # type: ignore[misc]
                < seconds(records, name, 64, ("ReadHalf",)) / 2
            ),
        )
        for name in PAPER_S
    ),
    claims=CLAIMS,
    reasons=(Reason("a variation", "blocks of 64 KiB are too small, and NILFS2 deletes slowly (e30)"),),
    finding=(
        "With blocks of 1 MiB and more, ext4 and F2FS take what the slides say; with 64 KiB each block that is read "
        "costs a seek. NILFS2 takes 37 to 41 s of its time to delete; e30 says why."
    ),
    draw=bars.of_claims(bars.Group("SAFS's application 1 on a conventional disk, by the block", "s", CLAIMS)),
)
