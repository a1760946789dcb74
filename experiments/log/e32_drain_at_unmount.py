# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it would cost to send a small log home at each unmount.

An unmount that keeps the log leaves old metadata at home, which surprises programs that read the device
(docs/reference/lazy-features.md). With `journal_lazy_drain` it writes the metadata home, and leaves a drive-managed
disk bands to clean. FAST'17, section 3.1, never resets the journal. Here some directories are made (they lie
together), or a small Postmark runs (its directories lie at the top, so all over the disk), and the volume is
unmounted: with the log kept, with the log sent home, and as stock ext4.
docs/decisions/0007-an-unmount-keeps-the-log.md stands on this.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Expectation, Experiment, Record, cell, drive, fs, run, workload

DRIVE, TOGETHER, APART = "st8000as0002", "MakeDirs", "Postmark"
KEPT, DRAINED, STOCK = "ext4-lazy-1g", "ext4-lazy-1g-drain", "ext4"
SCALE = 0.02
# Of the experiment's scale. Each makes some 4 and 70 MiB of journal.
SHARES = {TOGETHER: (0.05, 0.8), APART: (0.25, 4.0)}
# An unmount that "takes little".
LITTLE_S = 10.0


def named(file_system: str, load: str, share: float) -> str:
    return f"{file_system}-{load}-{share:g}"


def runs(scale: float, seed: int) -> list[run.Run]:
    kept = fs.find(KEPT)
    drained = replace(kept, name=DRAINED, options=f"{kept.options},journal_lazy_drain")
    return [
        run.Run(
            drive.find(DRIVE),
            replace(each, name=named(each.name, load, share)),
            workload.plan((load,), scale=scale * share, seed=seed),
        )
        for load, shares in SHARES.items()
        for share in shares
        for each in (kept, drained, fs.find(STOCK))
    ]


def unmounts(records: Sequence[Record], file_system: str, load: str) -> list[Record]:
    return [cell(records, named(file_system, load, share), workload.UNMOUNT) for share in SHARES[load]]


def seconds_left(records: Sequence[Record], load: str) -> list[float]:
    """Of cleaning, for each second of an unmount that sends the log home."""
    return [float(each["cleaning_s"]) / float(each["virtual_s"]) for each in unmounts(records, DRAINED, load)]


EXPERIMENT = Experiment(
    name="e32-drain-at-unmount",
    claim="to send a log home at unmount takes seconds, and can leave the drive many minutes of cleaning",
    source="FAST'17, section 3.1, varied",
    varied=True,
    runs=runs,
    phases=(TOGETHER, APART, workload.UNMOUNT),
    scale=SCALE,
    expectations=(
        Expectation(
            "an unmount that keeps the log writes no metadata home and leaves at most 4 bands to clean",
            lambda records: all(
                each["metadata_written_bytes"] == 0 and each["bands_dirty"] <= 4
                for load in SHARES
                for each in unmounts(records, KEPT, load)
            ),
        ),
        Expectation(
            f"each of these logs is sent home in less than {LITTLE_S:g} s",
            lambda records: all(
                each["virtual_s"] < LITTLE_S for load in SHARES for each in unmounts(records, DRAINED, load)
            ),
        ),
        Expectation(
            "of directories that lie together, that leaves less than 10 s of cleaning",
            lambda records: all(each["cleaning_s"] < 10 for each in unmounts(records, DRAINED, TOGETHER)),
        ),
        Expectation(
            "of directories all over the disk, each second of it leaves more than 300 s of cleaning",
            lambda records: min(seconds_left(records, APART)) > 300,
        ),
    ),
)
