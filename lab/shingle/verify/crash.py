# SPDX-License-Identifier: MIT OR Apache-2.0
"""The crash explorer: cuts the power everywhere, and looks at what is left (docs/design/crash-explorer.md).

A round is one workload with one seed. The workload is recorded once, and so are recoveries of some of the states that
it can leave, and recoveries of some of the states that those can leave. From the records come distinct states; each is
checked by stock e2fsck, a stock mount and a lazy one, and all must show one tree, with what had been synced in it.
Of a sample the free space is filled with files of a pattern and the log is sent home; then all files are compared.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich import box
from rich.table import Table

from shingle import process
from shingle.build import build
from shingle.failure import Failure
from shingle.page import replaced
from shingle.paths import ROOT
from shingle.verify import crash_workload
from shingle.verify.crash_round import Machines, Round, Tally, round_folder
from shingle.verify.crash_workload import Workload

# Enough for every boundary and every write of a record.
_PER_ROUND = 10_000
# How many failures are printed.
SHOWN = 10
# Blocks that move in a round of a workload with data_relocate.
_MOVED_LEAST = 100
_CUT = r"\d+(?:[lk]|[so]\d+)"
_NAME = re.compile(rf"(?:{_CUT}/[LS]/)*{_CUT}")


@dataclass(frozen=True)
class Explored:
    """What a run of the explorer found, and what it took."""

    tallies: Mapping[str, Tally]
    seconds: float
    cpu_s: float

    @property
    def total(self) -> Tally:
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total


def explore(
    workloads: Sequence[Workload],
    states: int,
    seed: int,
    machines: Machines,
    *,
    tell: Callable[[str], None] = lambda text: None,
    flush_ignored: bool = False,
    width: int = 2,
) -> Explored:
    """So many distinct states, the same share for each workload, `width` rounds side by side.

    A round has no more than what the cuts of its record leave; what is lacking then, the next seed gives.
    """
    share = -(-states // len(workloads))
    tallies = {workload.name: Tally() for workload in workloads}
    lock = threading.Lock()
    began, cpu_before_s = time.monotonic(), process.children_cpu_s()

    def one(workload: Workload, own_seed: int, count: int) -> None:
        start = time.monotonic()
        with round_folder() as folder:
            part = Round(workload, own_seed, machines, folder, flush_ignored=flush_ignored)
            tally = part.explore(count)
        tally.host_s = time.monotonic() - start
        with lock:
            tallies[workload.name].add(tally)
            done = sum(each.states for each in tallies.values())
            wrong = sum(len(each.failures) for each in tallies.values())
            tell(f"{done} states, {done / (time.monotonic() - began):.1f}/s, {wrong} not as they should be")

    for own_seed in itertools.count(seed):
        lacking = [(each, share - tallies[each.name].states) for each in workloads]
        tasks = [partial(one, each, own_seed, min(count, _PER_ROUND)) for each, count in lacking if count > 0]
        process.in_parallel(tasks, width=width)
        # A workload that brings nothing new with another seed has no more.
        if not any(0 < share - tallies[each.name].states < count for each, count in lacking):
            break
    return Explored(tallies, time.monotonic() - began, process.children_cpu_s() - cpu_before_s)


def replay(
    workload: Workload,
    seed: int,
    name: str,
    machines: Machines,
    *,
    keep: Path | None = None,
    flush_ignored: bool = False,
) -> Explored:
    """Checks the state of that name again; `keep` gets it as a raw image."""
    if not _NAME.fullmatch(name):
        raise Failure(f"{name!r} is no state; expected cuts and recoveries as in 412s77/L/33k.", status=2)
    began, cpu_before_s = time.monotonic(), process.children_cpu_s()
    with round_folder() as folder:
        part = Round(workload, seed, machines, folder, flush_ignored=flush_ignored)
        tally = part.replay(name)
        if keep is not None:
            part.image(name, keep)
    tally.host_s = time.monotonic() - began
    return Explored({workload.name: tally}, tally.host_s, process.children_cpu_s() - cpu_before_s)


def lacking(explored: Explored, workloads: Sequence[Workload]) -> str | None:
    """What a run of most workloads promises, and did not have: snapshots in its states; and data that was compared."""
    total = explored.total
    if len(workloads) * 2 > len(crash_workload.WORKLOADS) and total.snapshots * 2 < total.states:
        return f"Only {total.snapshots} of {total.states} states had a snapshot in the log: half of them should."
    for each in workloads:
        tally = explored.tallies[each.name]
        if tally.states and each.options and tally.moved < _MOVED_LEAST * tally.rounds:
            return f"Only {tally.moved} blocks of {each.name} moved in {tally.rounds} rounds."
        if tally.states and each.has_blocks and not tally.blocks:
            return f"No block of {each.name} was compared."
    if total.states and not total.compared:
        return f"None of {total.states} states was filled, drained and compared."
    return None


def table(explored: Explored) -> Table:
    """A row per workload, and the sum."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    shown.add_column("workload", no_wrap=True)
    headings = (
        "states", "cut\nonce", "twice", "three\ntimes", "all\nlost", "all\nkept", "some", "other\norder",
        "boundaries\ncut", "writes\ncut", "log\ntaken over", "snapshots\nin the log", "filled,\ncompared",
        "blocks\nmoved", "blocks\ncompared", "refused", "wrong",
    )  # fmt: skip
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, tally in {**explored.tallies, "all": explored.total}.items():
        shown.add_row(
            name, f"{tally.states:,}",
            *(f"{tally.by_depth[depth]:,}" for depth in (1, 2, 3)),
            *(f"{tally.by_fate[fate]:,}" for fate in "lkso"),
            f"{tally.boundaries_cut:,} of {tally.boundaries:,}", f"{tally.writes_cut:,} of {tally.writes:,}",
            f"{tally.kept:,}", f"{tally.snapshots:,}", f"{tally.compared:,}", f"{tally.moved:,}",
            f"{tally.blocks:,}", f"{tally.refused:,}",
            f"{len(tally.failures):,}",
        )  # fmt: skip
    return shown


def rate(explored: Explored) -> str:
    """One line on what it took."""
    states = explored.total.states
    return (
        f"{states / explored.seconds:.1f} states a second on {os.cpu_count()} processors with a load of "
        f"{os.getloadavg()[0]:.0f}; {explored.cpu_s / max(1, states) * 1000:.0f} ms of processor time a state"
    )


def write_records(path: Path, explored: Explored, built: build.Built, seed: int) -> None:
    """Adds a JSON line per workload, and one for all that says what it took."""
    host = {
        "seconds": round(explored.seconds, 1),
        "cpu_s": round(explored.cpu_s, 1),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    with path.open("a") as file:
        for name, tally in {**explored.tallies, "all": explored.total}.items():
            line = {
                "schema": 3, "workload": name, "seed": seed, "rounds": tally.rounds, "states": tally.states,
                "failures": len(tally.failures), "refused": tally.refused, "kept": tally.kept,
                "snapshots": tally.snapshots, "compared": tally.compared, "moved": tally.moved, "blocks": tally.blocks,
                "by_cuts": {str(depth): count for depth, count in sorted(tally.by_depth.items())},
                "by_fate": dict(sorted(tally.by_fate.items())),
                "boundaries": tally.boundaries, "boundaries_cut": tally.boundaries_cut,
                "writes": tally.writes, "writes_cut": tally.writes_cut, "boots": tally.boots,
                "host": host if name == "all" else {"seconds": round(tally.host_s, 1)},
                "versions": {"linux": built.kernel.version, "kernel": built.kernel.key},
            }  # fmt: skip
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


PAGE, RECORDS = ROOT / "docs/design/crash-explorer.md", ROOT / "results/crash.jsonl"
_BEGIN, _END = "<!-- crash: made by `./shingle crash --write` -->\n", "<!-- end -->\n"
_COUNTS = {
    "states": "states", "snapshots": "snapshots in the log", "kept": "log taken over", "compared": "filled, compared",
    "moved": "blocks moved", "blocks": "blocks compared", "boundaries_cut": "boundaries cut",
    "writes_cut": "writes cut", "refused": "refused", "failures": "wrong",
}  # fmt: skip


_TIMES = {1: "once", 2: "twice", 3: "three times"}
# A kernel with fewer states has one row: a new one each week would make the page longer than anybody reads.
_FEW_STATES = 10_000


def markdown(records: Path) -> str:
    """The sums of the records since schema 2 over their seeds: a table for each kernel, a row for each workload."""
    sums: dict[tuple[str, int], dict[str, Counter[str]]] = {}
    seeds: dict[tuple[str, int], dict[int, None]] = {}
    cpu_s = Counter[tuple[str, int]]()
    for line in map(json.loads, records.read_text().splitlines()):
        if line["schema"] >= 2 and line["states"]:
            made_by = line["versions"]["kernel"], line["schema"]
            own = sums.setdefault(made_by, {}).setdefault(line["workload"], Counter())
            own.update({each: line.get(each, 0) for each in _COUNTS})
            own.update({f"cut {depth}": count for depth, count in line["by_cuts"].items()})
            seeds.setdefault(made_by, {})[line["seed"]] = None
            cpu_s[made_by] += line["host"].get("cpu_s", 0.0)
    heads, few = f"{' | '.join(_COUNTS.values())} |", []
    rule = "|---|" + "--:|" * len(_COUNTS)
    parts = []
    for (kernel, schema), rows in sums.items():
        total, many = rows["all"], len(rows) - 1
        repaired = " Counts were not checked: e2fsck could repair them in its replay." if schema == 2 else ""
        what = (
            f"Kernel `{kernel}`, {many} workload{'s' * (many != 1)}, seeds {', '.join(map(str, seeds[kernel, schema]))}"
        )
        if total["states"] < _FEW_STATES:
            few.append(f"| {what}.{repaired} {_counted(total)}")
            continue
        cuts = ", ".join(f"{total[f'cut {depth}']:,} {times}" for depth, times in _TIMES.items())
        took_ms = cpu_s[kernel, schema] / total["states"] * 1000
        parts.append(f"{what}; cut {cuts}; a state took {took_ms:.0f} ms of processor time.{repaired}")
        by_name = sorted(rows.items(), key=lambda row: row[0] == "all")
        parts.append(
            "\n".join([f"| workload | {heads}", rule, *(f"| {name} {_counted(own)}" for name, own in by_name)])
        )
    if few:
        parts.append("\n".join([f"| fewer states | {heads}", rule, *few]))
    return "\n\n".join(parts)


def _counted(counts: Mapping[str, int]) -> str:
    return f"| {' | '.join(f'{counts[each]:,}' for each in _COUNTS)} |"


def page_with(page: str, records: Path) -> str:
    """The page with those tables between its two marks."""
    return replaced(page, _BEGIN, _END, f"{markdown(records)}\n", PAGE)


def write_page() -> None:
    PAGE.write_text(page_with(PAGE.read_text(), RECORDS))
