# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/results/drive-validation.md and its figures, from what `shingle-drive validate` and `curves` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shingle.evidence import plot

Row = Mapping[str, Any]

_HEAD = """<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# The drives against measurements

*Made by `./shingle drives validate --full --page docs/results/drive-validation.md --figure docs/figures --record
results/drives/validation.jsonl`; do not edit. `./shingle test` repeats the rows that take a moment and compares them
with the committed record, digit by digit.*

**{headline}**

A row compares one number that somebody measured or published with what the simulated drive does when the same is done
to it. The targets, with their sources, are `drives/targets/*.toml`; what is done is `experiments.rs` and `filling.rs`
in `crates/drive-tool/src/validate/`. Tolerances are the same for all rows of a sort: 10 % for counts, bytes and
sequential rates, 25 % for times, which is what published models of such drives reach (Shafaei et al., TOS 13(4), 2017).

| kind | what a match is worth |
|---|---|
| input | a parameter, or a rule of the model, read back through the whole model: that it is wired up right |
| fitted | parameters were chosen so that this number is met, by us or by the law that we took over |
| predicted | no parameter was chosen by it |

Letters at the end of a source say how far to trust it: S stated in the papers, P primary public material, 2 secondary,
D derived from S and P by arithmetic, R recalled and not verified, G a guess.
"""
_KNOWN = """
## What the page does not show
* One drive, one set of logs: everything about forced cleaning is from ST8000AS0002, at 4 KiB and one request at a time.
  Ranges beyond 512 GiB have no published number; the rows say what the model expects there. Nothing was fitted to them.
* Skylight's smallest band is 15 MiB, the model's 18 MiB: a band has the same number of tracks everywhere, and the
  inner rate that 15 MiB would need (about 70 MB/s) contradicts the data sheet's average.
* ST5000AS0011 and ST4000LM016: no logs. Their map limits are guesses, and so are the times of their knees; FAST'17's
  Figure 1 shows that the times differ, its text gives none.
* Drive-managed WD drives (T1c): two statements of order in a paper, no number. Under-determined by any model.
* T1a is fitted: buffer and elevator of WD5000YS were chosen to get there.
* ST8000AS0022 and ST8000DM004: a paper of 2026 (LiT, named in their profiles) gives sizes, rates and times of rest.
  How fast they are when the cache is full, or under skew, we have not seen: these rows were written down before they
  can be compared. Guessed from ST8000AS0002 are the time of an entry, the merge law, credits by slices, and runs of
  8 MiB.
* Two readings of that paper matter under skew: that a block is overwritten in place on the platters too, so that it
  costs a seek and a turn, and that these are made in the order of their places.
* HC650: nothing was measured.
"""


def page(records: Sequence[Row]) -> str:
    """The page."""
    rows = [record for record in records if record["event"] == "row"]
    parts = [_HEAD.format(headline=headline(rows)), _misses(rows)]
    parts.append(
        "\n![Throughput under random 4 KiB writes](../figures/drive-random-writes.png)\n\n"
        "*Random 4 KiB writes over the whole drive, one at a time, clean cache (FAST'17, Figure 1): means of 10 s.*\n"
        "\n![Cleaning time against pieces](../figures/drive-cleaning.png)\n\n"
        "*Time to clean one band in idle time, against the number of 4 KiB blocks cached one by one in random order.*\n"
        "\n![Sequential rate over the address](../figures/drive-rates.png)\n\n"
        "*Sequential reads of 256 MiB at 33 places.*\n"
    )
    for name in dict.fromkeys(row["drive"] for row in rows):
        own = [row for row in rows if row["drive"] == name]
        parts.append(f"\n## {name}\nProfile {own[0]['profile_crc32']}, seed {own[0]['seed']}.\n\n{table(own)}")
    bands = [record for record in records if record["event"] == "sensitivity"]
    parts += [_sensitivity(bands), _KNOWN]
    return "".join(parts)


def headline(rows: Sequence[Row]) -> str:
    def of(kind: str) -> str:
        judged = [row for row in rows if row["kind"] == kind and row["verdict"] != "no target"]
        return f"{sum(row['verdict'] == 'pass' for row in judged)} of {len(judged)}"

    without = sum(row["verdict"] == "no target" for row in rows)
    return (
        f"{of('predicted')} predicted rows within tolerance. (Fitted: {of('fitted')}; input: {of('input')}; "
        f"{without} predictions have no published number.)"
    )


def _misses(rows: Sequence[Row]) -> str:
    missed = [row for row in rows if row["verdict"] == "FAIL"]
    if not missed:
        return "\nNo row is off.\n"
    named = [f"* {row['drive']}: {row['what']}, {_number(row['simulated'])} {_unit(row)}" for row in missed]
    return "\nOff by more than the tolerance:\n" + "\n".join(named) + "\n"


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| | what | expected | ± | simulated | error | verdict | kind | source |",
        "|---|---|--:|--:|--:|--:|---|---|---|",
    ]
    for row in rows:
        error = "" if row["error"] is None else f"{row['error'] * 100:+.0f} %"
        cells = (
            row["id"], row["what"], _expected(row), f"{row['tolerance'] * 100:.0f} %",
            f"{_number(row['simulated'])} {_unit(row)}".strip(), error, _verdict(row), row["kind"], row["source"],
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _verdict(row: Row) -> str:
    return "**FAIL**" if row["verdict"] == "FAIL" else str(row["verdict"])


def _unit(row: Row) -> str:
    return "" if row["unit"] == "1" else str(row["unit"])


def _expected(row: Row) -> str:
    expected = row["expected"]
    match expected:
        case None:
            return "none"
        case [least, most]:
            return f"{_number(least)} to {_number(most)}"
        case {"at_most": bound}:
            return f"at most {_number(bound)}"
        case {"at_least": bound}:
            return f"at least {_number(bound)}"
        case _:
            return _number(expected)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _sensitivity(bands: Sequence[Row]) -> str:
    """What the headline figures become when the unknown is varied."""
    lines = [
        "\n## How far the unknown matters",
        "The map's limit is 180,000 entries by the public logs and 250,000 by Skylight; the idle time before",
        "cleaning is not public.\n",
        "| drive | what | with | simulated |",
        "|---|---|---|--:|",
    ]
    for band in bands:
        lines.append(
            f"| {band['drive']} | {band['what']} | {band['parameter']} | {_number(band['simulated'])} {band['unit']} |"
        )
    return "\n".join(lines) + "\n"


def _look(index: int) -> dict[str, Any]:
    """Of a drive's curve: no two have the same."""
    style = ("-", "--", ":")[index // len(plot.COLOURS)]
    return {"color": plot.COLOURS[index % len(plot.COLOURS)], "linestyle": style}


def draw(curves: Sequence[Row], folder: Path) -> list[Path]:
    """The page's figures; the same curves give the same bytes."""
    # Only here: matplotlib takes half a second to start.
    plt = plot.pyplot()

    folder.mkdir(parents=True, exist_ok=True)
    looks = {row["drive"]: _look(index) for index, row in enumerate(curves)}
    paths: list[Path] = []
    with plt.rc_context(plot.STYLE):

        def save(name: str, x: str, y: str) -> None:
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            figure.tight_layout()
            plot.name_at_end(axes)
            figure.tight_layout()
            path = folder / f"{name}.png"
            figure.savefig(path, metadata={"Software": None}, dpi=150)
            plt.close(figure)
            paths.append(path)

        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        for row in curves:
            rates = row["random_write_mib_s"]
            if not rates:
                continue
            means = [sum(rates[i : i + 10]) / 10 for i in range(0, len(rates) - 9, 10)]
            axes.step(range(0, 10 * len(means), 10), means, where="post", label=row["drive"], **looks[row["drive"]])
        axes.set_yscale("log")
        save("drive-random-writes", "virtual time (s)", "random 4 KiB writes (MiB/s)")

        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        for row in curves:
            points = [(pieces, seconds) for pieces, seconds in row["band_clean_s"] if seconds > 0]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    marker="o",
                    markersize=3,
                    label=row["drive"],
                    **looks[row["drive"]],
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        save("drive-cleaning", "cached blocks of the band", "cleaning of a band (s)")

        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        for row in curves:
            places = [share * row["capacity_bytes"] / 1e12 for share, _ in row["rate_mb_s"]]
            axes.plot(places, [rate for _, rate in row["rate_mb_s"]], label=row["drive"], **looks[row["drive"]])
        axes.set_ylim(bottom=0)
        save("drive-rates", "address (TB)", "sequential read (MB/s)")
    return paths
