# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures from records."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shingle.cli import main
from shingle.evidence import bars, claims_page, figures, plot
from shingle.failure import Failure
from shingle.runs import experiment
from shingle.runs.claims import Claim
from shingle.runs.record import NotRecorded, Record

# What those see who lack one kind of cone: Machado et al., IEEE TVCG 15(6), 2009, severity 1; for linear RGB.
LACKING = {
    "nothing": np.eye(3),
    "red": np.array([[0.1522, 1.0525, -0.2048], [0.1145, 0.7862, 0.0992], [-0.0038, -0.0481, 1.0519]]),
    "green": np.array([[0.3673, 0.8606, -0.2279], [0.2800, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9688]]),
    "blue": np.array([[1.2555, -0.0767, -0.1787], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6913, 0.3039]]),
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
# A difference of 2.3 is just seen; side by side in a legend it takes more.
LEAST_DIFFERENCE = 10


def lab(colour: str, seen: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """CIELAB of a colour, as it is seen."""
    srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    relative = XYZ @ np.clip(seen @ linear, 0, 1) / (XYZ @ np.ones(3))
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("lacking", LACKING)
def test_the_colour_blind_can_tell_the_colours_apart(lacking: str) -> None:
    seen = {colour: lab(colour, LACKING[lacking]) for colour in plot.COLOURS}
    for one, other in combinations(plot.COLOURS, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > LEAST_DIFFERENCE, (one, other)


def records(*values: float, scale: float = 1.0) -> list[Record]:
    return [{"scale": scale, "seed": seed, "virtual_s": value} for seed, value in enumerate(values)]


def seconds(found: list[Record]) -> float:
    return float(found[0]["virtual_s"])


def claim(low: float | None, high: float | None, what: str = "x") -> Claim:
    return Claim("T0", what, "s", low, high, seconds, 0.1, linear=True)  # type: ignore[arg-type]


def drawn(folder: Path, *claims: Claim, of: list[Record]) -> tuple[bytes, bytes]:
    bars.of_claims(bars.Group("A title", "s", claims))(of, folder / "figure")
    return (folder / "figure.svg").read_bytes(), (folder / "figure.png").read_bytes()


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    claims = (claim(90, 110), claim(100, 100), claim(200, None), claim(None, 0))
    assert drawn(tmp_path, *claims, of=records(99, 101)) == drawn(tmp_path, *claims, of=records(99, 101))


def test_a_figure_of_many_panels_is_the_same_again(tmp_path: Path) -> None:
    """A layout that is solved in the order of addresses is not."""
    chosen = experiment.find("e14")
    stems = [figures.draw(chosen, tmp_path / name, experiment.records_of(chosen)) for name in ("one", "two")]
    one, two = (stem.with_suffix(".svg").read_text() for stem in stems)
    assert one == two


@pytest.mark.parametrize(("low", "high"), [(90.0, 110.0), (100.0, 100.0), (100.0, None), (None, 100.0), (None, None)])
def test_what_the_paper_says_is_written_beside_the_bar(low: float | None, high: float | None) -> None:
    said = bars._paper(bars.Bar("x", (1.0,), low, high))
    expected = {(90.0, 110.0): "90 to 110", (100.0, 100.0): "paper: 100", (100.0, None): "at least 100",
                (None, 100.0): "at most 100", (None, None): ""}  # fmt: skip
    assert expected[low, high] in said
    assert bool(said) == (low is not None or high is not None)


def test_whiskers_and_another_mark_change_the_picture(tmp_path: Path) -> None:
    one = drawn(tmp_path, claim(100, 100), of=records(100))
    assert one != drawn(tmp_path, claim(100, 100), of=records(95, 105))
    assert one != drawn(tmp_path, claim(90, 110), of=records(100))


def test_labels_lose_what_they_all_say() -> None:
    labels = ["disk a: times faster", "disk b: times faster"]
    assert bars._without_what_all_say(labels) == ["a", "b"]
    assert bars._without_what_all_say(["same", "same"]) == ["same", "same"]
    assert bars._without_what_all_say(["only one"]) == ["only one"]


def test_a_part_that_failed_is_said_to_have(tmp_path: Path) -> None:
    def part(_: object) -> list[tuple[str, float]]:
        raise NotRecorded("AppendMost failed on f2fs: no space left.")

    def missing(_: object) -> list[tuple[str, float]]:
        raise NotRecorded("there is no record of AppendMost on f2fs.")

    assert bars.of_parts("f2fs", records(1), part).note == "did not finish"
    assert bars.of_parts("f2fs", records(1), missing).note == bars.NO_RECORD
    stacked = bars.of_parts("safs", records(10, 20), lambda own: [("a", seconds(list(own))), ("b", 1.0)], 30)
    assert stacked.values == (11, 21)
    assert stacked.parts == (("a", 15.0), ("b", 1.0))
    assert (stacked.low, stacked.high) == (30, 30)
    with pytest.raises(NotRecorded):
        bars.draw([bars.Panel("t", "s", [bars.of_parts("f2fs", records(1), part)])], tmp_path / "none")
    bars.draw([bars.Panel("t", "s", [stacked, bars.of_parts("f2fs", records(1), part)])], tmp_path / "some")


def test_every_experiment_with_claims_has_a_figure() -> None:
    assert [each.name for each in claims_page.experiments() if each.draw is None] == []


def test_lacking_records_are_one_sentence_and_the_next_is_drawn(tmp_path: Path) -> None:
    answered = CliRunner().invoke(main.cli, ["figures", "e01", "e16", "--folder", str(tmp_path)])
    assert answered.exit_code == 0, answered.output
    assert "e01-first-light has no figure of its own" in answered.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e16-seek-overhead.png", "e16-seek-overhead.svg"]
    nothing = CliRunner().invoke(main.cli, ["figures", "e01", "--folder", str(tmp_path)])
    assert isinstance(nothing.exception, Failure)
    with pytest.raises(NotRecorded, match="e16-seek-overhead has no records"):
        figures.draw(experiment.find("e16"), tmp_path, [])


def test_what_a_figure_of_the_append_only_applications_lacks_is_noted(tmp_path: Path) -> None:
    """The applications on one file system of one disk, and nothing else."""
    chosen = experiment.find("e30")
    phases = ("AppendHalf", "ReadHalf", "RemoveHalf", "AppendMost", "ReplaceMost", "RemoveMost")
    found = [
        {"scale": 0.1, "seed": 1, "drive": "safs5000ha", "file_system": "safs", "phase": phase, "virtual_s": 10.0}
        for phase in phases
    ]
    stem = figures.draw(chosen, tmp_path, found)
    assert stem.with_suffix(".png").exists()
