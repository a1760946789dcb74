# SPDX-License-Identifier: MIT OR Apache-2.0
"""First light: what lazy writeback journaling saves on a drive-managed SMR disk.

FAST'17, section 4.3: on a ST8000AS0002, MakeDirs on ext4 with a 10 GiB journal leaves
846 s of cleaning, on ext4-lazy none, because a journal that is written in order is
streamed to its bands. Here the same workloads run at a stated part of the paper's size.
"""

from collections.abc import Sequence

from shingle.lab import Expectation, Experiment, Record, cell, run, workload

DRIVE = "st8000as0002"
FILE_SYSTEMS = ("ext4", "ext4-10g", "ext4-lazy")
WORKLOADS = ("MakeDirs", "RemoveDirs", "Postmark")
SCALE = 0.2
# Of the others' scale.
POSTMARK_SHARE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan(WORKLOADS, scale=scale, seed=seed, scales={"Postmark": scale * POSTMARK_SHARE})
    return run.cells(DRIVE, FILE_SYSTEMS, plan)


def lazy_writes_no_metadata_home(records: Sequence[Record]) -> bool:
    return cell(records, "ext4-lazy", "MakeDirs")["metadata_written_bytes"] == 0


def lazy_leaves_at_most_four_bands(records: Sequence[Record]) -> bool:
    made = cell(records, "ext4-lazy", "MakeDirs")
    return made["bands_cleaned"] <= 4 and made["bands_dirty"] <= 4 and made["cleaning_s"] <= 5


def lazy_unmounts_without_writing_home(records: Sequence[Record]) -> bool:
    """The log is kept for the next mount."""
    left = cell(records, "ext4-lazy", workload.UNMOUNT)
    return left["metadata_written_bytes"] == 0 and left["virtual_s"] <= 5


def baseline_is_far_above(records: Sequence[Record]) -> bool:
    made = cell(records, "ext4-10g", "MakeDirs")
    return made["bands_cleaned"] > 40 and made["cleaning_s"] > 50 and made["metadata_written_bytes"] > 0


def journals_are_written_alike(records: Sequence[Record]) -> bool:
    """Lazy mode saves the second writing, not the journal's."""
    lazy = cell(records, "ext4-lazy", "MakeDirs")["journal_written_bytes"]
    baseline = cell(records, "ext4-10g", "MakeDirs")["journal_written_bytes"]
    return 0.5 * baseline <= lazy <= 1.2 * baseline


EXPERIMENT = Experiment(
    name="e01-first-light",
    claim="with journal_lazy, metadata is written once, in order, and leaves the drive nothing to clean",
    runs=runs,
    scale=SCALE,
    phases=(*WORKLOADS, workload.UNMOUNT),
    expectations=(
        Expectation("MakeDirs on ext4-lazy writes no metadata block home", lazy_writes_no_metadata_home),
        Expectation(
            "MakeDirs on ext4-lazy leaves at most 4 bands to clean, within 5 s", lazy_leaves_at_most_four_bands
        ),
        Expectation(
            "unmounting ext4-lazy writes no metadata block home, within 5 s", lazy_unmounts_without_writing_home
        ),
        Expectation("MakeDirs on ext4-10g leaves more than 40 bands and 50 s of cleaning", baseline_is_far_above),
        Expectation("the journal is written about as much with and without journal_lazy", journals_are_written_alike),
    ),
)
