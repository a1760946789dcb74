# SPDX-License-Identifier: MIT OR Apache-2.0
"""Log space: what it costs when the working set of metadata comes near the size of the log, or exceeds it.

FAST'17, section 4.3 (figure 9), varies the part of the log that is live and sees a slowdown
from 0.7 on. Here the workload stays the same and the log shrinks: the share is the working
set's unique metadata blocks over the log's blocks. The blocks are changed at random, all
equally often, which is the worst case for a cleaner: nothing is cold. All that is logged is
about ten working sets, so that from a share of 0.5 on the log is wrapped five times or more.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle import drive, fs, run, workload
from shingle.experiment import Expectation, Experiment, cell
from shingle.record import Record

DRIVE = "st8000as0002"
SCALE = 0.5
# Live blocks in the log after ChurnDirs at scale 1, as counted on ext4-lazy: the working set.
WORKING_SET_BLOCKS = 55_000
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.2, 2.0, 3.0)
POLICIES = ("watermarks", "fixed")
POLICY = "/sys/fs/ext4/shd0/journal_lazy/policy"
LARGE = "ext4-lazy"


def journal_mib(share: float, scale: float) -> int:
    return round(scale * WORKING_SET_BLOCKS / share / 256)


def lazy_name(share: float, policy: str) -> str:
    return f"ext4-lazy-{share:g}-{policy}"


def stock_name(share: float) -> str:
    return f"ext4-{share:g}"


def variants(scale: float) -> list[fs.FileSystem]:
    chosen = [fs.find(LARGE)]
    for share in SHARES:
        size = journal_mib(share, scale)
        for policy in POLICIES:
            lazy = fs.ext4(lazy_name(share, policy), f"journal_lazy, {policy}, {size} MiB", size, "journal_lazy")
            chosen.append(replace(lazy, settings=((POLICY, policy),)))
        chosen.append(fs.ext4(stock_name(share), f"ext4 with a journal of {size} MiB", size))
    return chosen


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan(["ChurnDirs"], scale=scale, seed=seed)
    return [run.Run(drive.find(DRIVE), variant, plan, experiment="e10-log-space") for variant in variants(scale)]


def total_s(records: Sequence[Record], name: str) -> float:
    """Run time plus the time that the drive then takes to clean up."""
    churned = cell(records, name, "ChurnDirs")
    return float(churned["virtual_s"]) + float(churned["cleaning_s"])


def slowdown(records: Sequence[Record], share: float, policy: str = "watermarks") -> float:
    return total_s(records, lazy_name(share, policy)) / total_s(records, LARGE)


def writes_nothing_home(records: Sequence[Record], share: float) -> bool:
    return cell(records, lazy_name(share, "watermarks"), "ChurnDirs")["metadata_written_bytes"] == 0


EXPERIMENT = Experiment(
    name="e10-log-space",
    claim="a log of three times the working set of metadata is enough; down to the working set it is faster than stock",
    runs=runs,
    scale=SCALE,
    phases=("ChurnDirs",),
    expectations=(
        # The aim is 3 % up to 0.9, which these changes at random places miss: docs/journal-lazy.md.
        Expectation(
            "up to a share of 0.3 nothing goes home, and run and cleaning take at most 15 % longer than with 10 GiB",
            lambda records: all(
                slowdown(records, share) <= 1.15 and writes_nothing_home(records, share)
                for share in SHARES
                if share <= 0.3
            ),
        ),
        Expectation(
            "up to a share of 0.5 the watermarks are faster than the paper's fixed policy",
            lambda records: all(
                slowdown(records, share) < slowdown(records, share, "fixed") for share in SHARES if share <= 0.5
            ),
        ),
        Expectation(
            "up to a share of 0.9 journal_lazy is faster than stock ext4 with the same journal",
            lambda records: all(
                total_s(records, lazy_name(share, "watermarks")) < total_s(records, stock_name(share))
                for share in SHARES
                if share <= 0.9
            ),
        ),
    ),
)
