# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the papers say, beside what was recorded here.

A claim is one number of a paper and the way to get it from an experiment's records. It
belongs to the experiment that runs the paper's workload; `docs/results/claims.md` and
`./shingle claims` are made from the records in results/ and nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shingle.catalogue import workload
from shingle.runs.record import NotFinished, NotRecorded, Record, cell

Verdict = Literal["reproduced", "above", "below", "not at this scale", "did not finish", "not run"]
# Whether a number could have come out otherwise: nothing was chosen for it; something was chosen because it, or a
# number on the same host, is met with it; it follows from how the file system or the lab is made, and can hardly fail.
Basis = Literal["predicted", "fitted", "constructed"]


@dataclass(frozen=True)
class Claim:
    """One number of a paper.

    `low` and `high` are the paper's value or range; None leaves a side open. `tolerance` widens both, as a part of
    them: 0.10 for bytes and counts, 0.25 for times, 0 for ranges, which are wide enough.
    """

    target: str
    what: str
    unit: str
    low: float | None
    high: float | None
    value: Callable[[Sequence[Record]], float]
    tolerance: float = 0.0
    # Goes with the size of the workload, so that a tenth of it is a tenth of the paper's.
    linear: bool = False
    # Means something at the paper's size only.
    full_size: bool = False
    # Beyond the paper in this direction is better than the paper, and off all the same.
    better: Literal["high", "low"] | None = None
    basis: Basis = "predicted"

    def expected(self, scale: float) -> tuple[float | None, float | None]:
        factor = scale if self.linear else 1.0
        return (
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )

    def judge(self, measured: float, scale: float) -> tuple[Verdict, float]:
        """The verdict, and by what part of the paper's value ours is off (0 inside its range)."""
        low, high = self.expected(scale)
        below = low is not None and measured < low
        above = high is not None and measured > high
        nearest = (low if below else high) or 0.0
        error = (measured - nearest) / nearest if (below or above) and nearest else 0.0
        if (below or above) and not nearest:
            error = float("inf")
        if self.full_size and scale < 1:
            return "not at this scale", error
        if abs(error) <= self.tolerance:
            return "reproduced", error
        return ("above" if above else "below"), error


@dataclass(frozen=True)
class Judged:
    """A claim with what the records of one experiment at one scale say."""

    claim: Claim
    scale: float
    values: tuple[float, ...]
    verdict: Verdict
    error: float

    @property
    def said(self) -> str:
        """The verdict; one that is off on the better side says so."""
        is_better = (self.verdict, self.claim.better) in (("above", "high"), ("below", "low"))
        return f"{self.verdict} (better)" if is_better else self.verdict

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def by_seed(records: Sequence[Record]) -> tuple[float, list[list[Record]]]:
    """The largest scale that was recorded, and its records for each seed."""
    scale = max(float(record["scale"]) for record in records)
    seeds: dict[int, list[Record]] = {}
    for record in records:
        if record["scale"] == scale:
            seeds.setdefault(record["seed"], []).append(record)
    return scale, [seeds[seed] for seed in sorted(seeds)]


def judged(claims: Sequence[Claim], records: Sequence[Record]) -> list[Judged]:
    """Every claim with the mean over the seeds that have a record of it; the largest scale counts."""
    if not records:
        return [Judged(claim, 0.0, (), "not run", 0.0) for claim in claims]
    scale, seeds = by_seed(records)
    found = []
    for claim in claims:
        values, missing = _recorded(claim, seeds)
        if not values:
            found.append(Judged(claim, scale, (), missing, 0.0))
            continue
        verdict, error = claim.judge(statistics.fmean(values), scale)
        found.append(Judged(claim, scale, values, verdict, error))
    return found


def _recorded(claim: Claim, seeds: Sequence[Sequence[Record]]) -> tuple[tuple[float, ...], Verdict]:
    """The values of those seeds that have one, and what is said if none has."""
    values: list[float] = []
    missing: Verdict = "not run"
    for records in seeds:
        try:
            values.append(claim.value(records))
        except NotFinished:
            missing = "did not finish"
        except NotRecorded:
            continue
    return tuple(values), missing


def number(value: float) -> str:
    """As tables and figures show it."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# --- What claims are made of ---------------------------------------------------


def mib(file_system: str, name: str, field: str) -> Callable[[Sequence[Record]], float]:
    """MiB of `field` (metadata_written, ...) in a phase."""
    return lambda records: float(cell(records, file_system, name)[f"{field}_bytes"]) / (1 << 20)


def seconds(file_system: str, name: str, drive: str | None = None) -> Callable[[Sequence[Record]], float]:
    return lambda records: float(cell(records, file_system, name, drive)["virtual_s"])


def busy_s(record: Record) -> float:
    """A phase and the cleaning after it: until the disk is quiet."""
    return float(record["virtual_s"]) + float(record["cleaning_s"])


def cleaning(file_system: str, name: str) -> Callable[[Sequence[Record]], float]:
    return lambda records: float(cell(records, file_system, name)["cleaning_s"])


def written_mib_s(record: Record) -> float:
    """All that the disk wrote, by the time; FAST'17's Table 3 and its MiB/s agree with that."""
    return float(record["total_written_bytes"]) / (1 << 20) / float(record["virtual_s"])


def load_bytes_s(record: Record) -> float:
    """What the load's threads read and wrote while they ran; the sync afterwards is not theirs."""
    load = record["load"]
    return float(load["user_read_bytes"] + load["user_written_bytes"]) / parts_s(record, "run")


def speedup(slow: str, fast: str, name: str, drive: str | None = None) -> Callable[[Sequence[Record]], float]:
    """How many times faster `fast` is."""
    return lambda records: seconds(slow, name, drive)(records) / seconds(fast, name, drive)(records)


def gain_spread(slow: str, fast: str, names: Sequence[str]) -> Callable[[Sequence[Sequence[Record]]], float]:
    """The largest standard deviation of a phase's speedup over the seeds, as a part of the speedup."""

    def largest(seeds: Sequence[Sequence[Record]]) -> float:
        found = [[speedup(slow, fast, name)(records) for records in seeds] for name in names]
        return max(statistics.stdev(each) / statistics.fmean(each) for each in found)

    return largest


def unmount_ms(seeds: Sequence[Sequence[Record]], file_system: str, which: str) -> float:
    """The shortest (`min`) or the longest (`max`) unmount of all seeds and of all loads."""
    found = [
        1e3 * float(each["virtual_s"])
        for records in seeds
        for each in records
        if each["phase"] == workload.UNMOUNT and each["file_system"] == file_system
    ]
    return min(found) if which == "min" else max(found)


def parts_s(record: Record, *names: str) -> float:
    """What the load itself took, without the sync after it; or the parts of it that are named."""
    return sum(float(part["ns"]) for part in record["load"]["parts"] if not names or part["name"] in names) / 1e9


def calls_s(record: Record) -> float:
    """What the calls that make a name cost the processor."""
    made = record["load"]["operations"]
    names = sum(int(made.get(name, 0)) for name in ("mkdir", "create"))
    return names * float(record["configuration"]["name_ns"]) / 1e9


def metadata_read(file_system: str, name: str) -> Callable[[Sequence[Record]], float]:
    """MiB of metadata read in a phase; what journal_lazy reads from its journal is metadata too."""
    home, logged = mib(file_system, name, "metadata_read"), mib(file_system, name, "journal_read")
    return lambda records: home(records) + logged(records)


def bytes_claim(
    target: str, file_system: str, name: str, written: str, paper_mib: float, basis: Basis = "predicted"
) -> Claim:
    """MiB of a class written in a phase, which go with the size of the workload.

    That journal_lazy writes no metadata home, for which the paper has 0, is how it is made.
    """
    return Claim(
        target, f"{name} on {file_system}: {written} written", "MiB", paper_mib, paper_mib,
        mib(file_system, name, f"{written}_written"), 0.10, linear=True,
        basis=basis if paper_mib else "constructed",
    )  # fmt: skip


def reads_claim(target: str, file_system: str, name: str, paper_mib: float) -> Claim:
    """MiB of metadata read in a phase, likewise."""
    return Claim(
        target, f"{name} on {file_system}: metadata read", "MiB", paper_mib, paper_mib,
        metadata_read(file_system, name), 0.10, linear=True,
    )  # fmt: skip


def cleaning_claim(target: str, file_system: str, name: str, paper_s: float) -> Claim:
    """Seconds of cleaning; they go with the number of flex_bgs that are touched, and not with the workload."""
    return Claim(
        target, f"{name} on {file_system}: cleaning", "s", paper_s, paper_s, cleaning(file_system, name), 0.25,
        full_size=True,
    )  # fmt: skip


def lazy_cleaning_claim(target: str, file_system: str, name: str, paper_s: float) -> Claim:
    """A few bands of the journal, whatever the size of the workload."""
    value = cleaning(file_system, name)
    return Claim(target, f"{name} on {file_system}: cleaning", "s", None, paper_s, value, 0.25, better="low")


def speedup_claim(target: str, slow: str, fast: str, name: str, low: float, high: float | None) -> Claim:
    """A range is wide enough; a single number is judged as the times are that it is made of."""
    return Claim(
        target, f"{name}: times faster on {fast} than on {slow}", "", low, high, speedup(slow, fast, name),
        0.25 if low == high else 0.0, better="high",
    )  # fmt: skip
