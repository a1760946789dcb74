# SPDX-License-Identifier: MIT OR Apache-2.0
"""What "cleaning afterwards" says of a disk that rests for hours before it cleans.

The model of the ST8000AS0002 begins after one second of rest, which is a guess. Of two drives that are sold now a
paper of 2026 says hours ("Lost in Translation", section 2.2; their profiles have the facts). Two loads of the headline
results at a tenth: on the papers' drive as it is and with three hours, and on these two.
"""

from collections.abc import Sequence
from pathlib import Path

from shingle.lab import (
    Expectation,
    Experiment,
    Record,
    bars,
    busy_s,
    cell,
    drive,
    run,
    seconds,
    workload,
)

PAPERS, MANAGED, AWARE = "st8000as0002", "st8000dm004", "st8000as0022"
HOURS = ("translation.idle", 10_800)
LATE = drive.changed_name(PAPERS, *HOURS)
DRIVES = (PAPERS, LATE, MANAGED, AWARE)
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
DIRECTORIES, SERVER = "MakeDirs", "Postmark"
SCALE = 0.1


def profile(name: str) -> drive.Profile:
    return drive.changed(drive.find(PAPERS), *HOURS) if name == LATE else drive.find(name)


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for load in (DIRECTORIES, SERVER):
        plan = workload.plan((load,), scale=scale, seed=seed)
        for name in DRIVES:
            cells += run.cells(profile(name), (BASELINE, LAZY), plan)
    return run.on_the_papers_host(cells, scale)


def work_s(records: Sequence[Record], file_system: str, load: str, name: str) -> float:
    """The arm's time of cleaning, during the load and after it, without the rest before."""
    return float(cell(records, file_system, load, name)["counters"]["cleaning_ns"]) / 1e9


def rewritten_gib(records: Sequence[Record], file_system: str, load: str, name: str) -> float:
    """During the load and after it."""
    return float(cell(records, file_system, load, name)["counters"]["rewritten_bytes"]) / (1 << 30)


def left(records: Sequence[Record], file_system: str, load: str, name: str) -> int:
    return int(cell(records, file_system, load, name)["bands_dirty"])


def ratio(records: Sequence[Record], load: str, name: str) -> float:
    """Until the disk is quiet: how many times as fast with journal_lazy."""
    return busy_s(cell(records, BASELINE, load, name)) / busy_s(cell(records, LAZY, load, name))


def synced_ratio(records: Sequence[Record], load: str, name: str) -> float:
    """Without any cleaning after it."""
    return seconds(BASELINE, load, name)(records) / seconds(LAZY, load, name)(records)


def hours_change_no_work(records: Sequence[Record]) -> bool:
    return all(
        rewritten_gib(records, system, load, LATE) <= 1.1 * rewritten_gib(records, system, load, PAPERS)
        for system in (BASELINE, LAZY)
        for load in (DIRECTORIES, SERVER)
    )


def lazy_leaves_less(records: Sequence[Record]) -> bool:
    return all(
        2 * left(records, LAZY, load, name) < left(records, BASELINE, load, name)
        for load in (DIRECTORIES, SERVER)
        for name in (PAPERS, LATE, MANAGED)
    )


def the_delay_hides_it(records: Sequence[Record]) -> bool:
    """Of three hours, and of what a second shows."""
    return ratio(records, DIRECTORIES, LATE) < 1.1 and ratio(records, DIRECTORIES, PAPERS) > 2


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for load in (DIRECTORIES, SERVER):
        rows = []
        for name in DRIVES:
            for system in (BASELINE, LAZY):

                def parts(
                    own: Sequence[Record],
                    system: str = system,
                    load: str = load,
                    name: str = name,
                ) -> list[tuple[str, float]]:
                    ran_s = float(cell(own, system, load, name)["virtual_s"])
                    return [
                        ("until all is synced", ran_s),
                        ("cleaning", work_s(own, system, load, name)),
                    ]

                rows.append(bars.of_parts(f"{name}, {system}", records, parts))
        panels.append(bars.Panel(f"{load} at a tenth", "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e36-lazy-cleaning",
    claim="a disk that rests for hours before it cleans has the same work to do; how long it takes does not show that",
    source="FAST'17, section 4.3, on drives that are sold now",
    runs=runs,
    phases=(DIRECTORIES, SERVER, workload.UNMOUNT),
    scale=SCALE,
    scaling="The persistent cache is not scaled: at a tenth it never fills.",
    expectations=(
        Expectation(
            "with three hours of rest no more is rewritten in the end than with a second",
            hours_change_no_work,
        ),
        Expectation(
            "journal_lazy leaves less than half as many bands on each drive-managed disk",
            lazy_leaves_less,
        ),
        Expectation(
            "until the disk is quiet, directories take as long with both after three hours, and not after a second",
            the_delay_hides_it,
        ),
    ),
    draw=draw,
    numbers={
        "work_s": work_s,
        "rewritten_gib": rewritten_gib,
        "left": left,
        "ratio": ratio,
        "synced_ratio": synced_ratio,
    },
)
