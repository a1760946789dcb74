# SPDX-License-Identifier: MIT OR Apache-2.0
"""From which live part of the log its cleaning is noticed when files are made, and not the same metadata changed again.

FAST'17, section 4.4: "We kept reducing the journal size and the first noticeable slowdown occurred with a journal size
of 1.4 GiB, that is, when the live metadata was about 70 % of the journal." It does not say of which benchmark; 1 GiB is
near what CreateFiles has. e10 has the worst load for a cleaner. Here, too, the log shrinks and the load stays.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, drive, fs, run, workload

DRIVE, LARGE, NAME = "wd5000ys", "ext4-lazy", "CreateFiles"
# Live blocks in a log that is never cleaned, after CreateFiles at scale 1, as counted on ext4-lazy.
LIVE_BLOCKS = 460_231
SHARES = (0.3, 0.5, 0.6, 0.7, 0.8)
POLICIES = ("watermarks", "fixed")
SYSFS = "/sys/fs/ext4/shd0/journal_lazy"
STATISTICS = tuple(f"{SYSFS}/{name}" for name in ("relogged", "demoted", "swept", "emergency", "live_blocks"))
# What is taken for noticeable, as in e10.
NOTICEABLE = 1.05


def named(share: float, policy: str) -> str:
    return f"{LARGE}-{share:g}-{policy}"


def of_share(share: float, policy: str, scale: float) -> fs.FileSystem:
    size_mib = round(scale * LIVE_BLOCKS / share / 256)
    variant = fs.ext4(named(share, policy), f"journal_lazy, {policy}, {size_mib} MiB", size_mib, "journal_lazy")
    return replace(variant, settings=((f"{SYSFS}/policy", policy),))


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    variants = [fs.find(LARGE), *(of_share(share, policy, scale) for policy in POLICIES for share in SHARES)]
    cells = [run.Run(drive.find(DRIVE), replace(each, statistics=STATISTICS), plan) for each in variants]
    return run.on_the_papers_host(cells, scale)


def slowdown(records: Sequence[Record], share: float, policy: str) -> float:
    """Against a log that is not cleaned."""
    return float(cell(records, named(share, policy), NAME)["virtual_s"]) / float(
        cell(records, LARGE, NAME)["virtual_s"]
    )


def first_noticed(records: Sequence[Record], policy: str) -> float:
    return min((share for share in SHARES if slowdown(records, share, policy) > NOTICEABLE), default=1.0)


def claim(policy: str) -> Claim:
    what = f"live part of the log when its cleaning is first noticed, files made, {policy}"
    return Claim("T18", what, "", 0.7, 0.7, lambda records: first_noticed(records, policy), 0.10, better="high")


CLAIMS = tuple(map(claim, POLICIES))

EXPERIMENT = Experiment(
    name="e29-log-space-of-files",
    claim="when files are made, the paper's cleaner is noticed from a log that is 0.7 live on",
    source="FAST'17, section 4.4, cleaning overhead, varied",
    varied=True,
    runs=runs,
    phases=(NAME,),
    scalable=False,
    expectations=(
        Expectation(
            "with the paper's policy a log that is 0.6 live costs less than 5 %, and one of 0.7 more",
            lambda records: slowdown(records, 0.6, "fixed") < NOTICEABLE < slowdown(records, 0.7, "fixed"),
        ),
        Expectation(
            "of a log that is 0.3 live neither policy has anything to do that is noticed",
            lambda records: all(slowdown(records, 0.3, policy) < NOTICEABLE for policy in POLICIES),
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("Section 4.4: cleaning first noticed", "live part of the log", CLAIMS)),
    numbers={"slowdown": slowdown},
)
