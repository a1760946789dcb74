# SPDX-License-Identifier: MIT OR Apache-2.0
"""What journal_lazy computes, charged: the machine's processor takes no time but for system calls.

machine/ablations/processor-time.patch counts each piece of work that stock ext4 does not have, and lets it cost virtual
time. The costs were measured on a busy host, with checksums in software; they are free, charged, and charged four
times. FAST'17's directories and Postmark, and a load that re-logs all the time on a log of 128 MiB.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, workload

DRIVE = "st8000as0002"
STOCK, COUNTED = "ext4-10g", "ext4-lazy-counted"
# ns of the host for each piece of work, rounded up, in the order of the patch: of MakeDirs and ListDirs on 18,000
# directories, and of ChurnDirs at a fifth, as /sys/module/jbd2/parameters/lazy_work said. lab/in_machine/work.sh tells
# those of another host.
COSTS_NS = {
    "lookup": 1000, "ahead": 600, "read": 500, "check": 4000, "note": 1500, "apply": 600, "relog": 800, "home": 500,
}  # fmt: skip
FREE, CHARGED, FOURFOLD = "", "-charged", "-charged-4"
TIMES = {FREE: 0, CHARGED: 1, FOURFOLD: 4}
DIRECTORIES, SERVER, CHURN = workload.DIRECTORIES, ("Postmark",), ("WideDirs", "ChurnDirs")
PHASES = (*DIRECTORIES, *SERVER, "ChurnDirs")
SMALL_LOG_MIB = 128
SCALE = 0.1
# More than this of a phase is no small thing.
PART = 0.1


def variant(name: str, names: Sequence[str]) -> fs.FileSystem:
    found = fs.find(name)
    if names != CHURN:
        return found
    small = fs.ext4(name, found.summary, SMALL_LOG_MIB, found.options)
    return replace(small, kernel=found.kernel)


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for names in (DIRECTORIES, SERVER, CHURN):
        plan = workload.plan(names, scale=scale, seed=seed)
        cells.append(run.Run(drive.find(DRIVE), variant(STOCK, names), plan))
        for suffix, times in TIMES.items():
            costs = ",".join(str(each * times) for each in COSTS_NS.values())
            named = replace(variant(COUNTED, names), name=COUNTED + suffix)
            arguments = (f"jbd2.lazy_ns={costs}",) if times else ()
            cells.append(run.Run(drive.find(DRIVE), named, plan, kernel_arguments=arguments))
    return cells


def phase_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return float(cell(records, file_system, name)["virtual_s"])


def more(records: Sequence[Record], name: str, setting: str = CHARGED) -> float:
    """The part by which a phase is longer when our computing is charged."""
    return phase_s(records, COUNTED + setting, name) / phase_s(records, COUNTED, name) - 1


def gain(records: Sequence[Record], name: str, setting: str) -> float:
    """How many times as fast as stock ext4, with the cleaning."""
    return busy_s(cell(records, STOCK, name)) / busy_s(cell(records, COUNTED + setting, name))


def cost_ns(_: Sequence[Record], kind: str) -> float:
    return float(COSTS_NS[kind])


def draw(records: Sequence[Record], stem: Path) -> None:
    shown = {STOCK: STOCK, "free": COUNTED, "charged": COUNTED + CHARGED, "charged 4 times": COUNTED + FOURFOLD}
    panels = [
        bars.Panel(name, "s", [bars.Bar(label, (phase_s(records, each, name),)) for label, each in shown.items()])
        for name in PHASES
    ]
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e37-processor-time",
    claim="what journal_lazy computes takes little of its times, and none of its lead",
    runs=runs,
    phases=PHASES,
    scale=SCALE,
    scaling="The costs are not scaled.",
    expectations=(
        Expectation(
            f"charged, no phase takes more than {PART:.0%} longer",
            lambda records: all(more(records, name) <= PART for name in PHASES),
        ),
        Expectation(
            "and wherever it is ahead of stock ext4, it still is when it is charged four times",
            lambda records: all(gain(records, name, FOURFOLD) > 1 for name in PHASES if gain(records, name, FREE) > 1),
        ),
    ),
    numbers={"phase_s": phase_s, "more": more, "gain": gain, "cost_ns": cost_ns},
    draw=draw,
)
