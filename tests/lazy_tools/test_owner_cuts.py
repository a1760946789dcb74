# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts and kills of convert and drain: a sample, and what it is for (docs/results/owner-cuts.md)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import harness
from lazy_tools import volumes
from lazy_tools.volumes import stock
from shingle.verify import crash_round, owner_advice, owner_cuts, owner_round, owner_volumes, state_pool

pytestmark = pytest.mark.machine
SEED = 1


def described(states: list[owner_round.State]) -> str:
    return "\n".join(
        "\n  ".join((owner_cuts.replay_command(each), *(said for _, said in each.problems), *each.did))
        for each in states[: owner_cuts.SHOWN]
    )


@pytest.mark.parametrize("title", ["convert/old", "convert/groups", "drain/kept", "drain/mounted"])
def test_after_a_cut_or_a_kill_no_file_is_lost(title: str, folder: Path) -> None:
    kind = owner_volumes.find(title)
    explored = owner_cuts.explore([kind], 20, SEED, harness.built(), kills=4)
    assert not owner_cuts.failures(explored), described(owner_cuts.failures(explored))
    assert [len(explored.of(title, disk)) for disk in owner_cuts.DISKS] == [10, 10]
    # Cut while the log is made at the place that convert chose, which only a volume of several groups has.
    assert any("location=" in state.command for state in explored.states) == (title == "convert/groups")
    assert len(explored.of(title, "kill")) == (0 if kind.mounted else 4)
    for disk in owner_cuts.DISKS:
        assert len({state.hash for state in explored.of(title, disk)}) == 10
    # By its name a state comes back.
    state = explored.of(title, "lying")[-1]
    again = owner_cuts.replay(kind, SEED, f"lying:{state.name}", harness.built(), folder / "image").states[0]
    assert (again.hash, [what for what, _ in again.problems]) == (state.hash, [what for what, _ in state.problems])
    assert state_pool.digest(folder / "image") == state.hash


def broken(folder: Path, text: str, instead: str) -> Path:
    program = folder / "broken.py"
    whole = volumes.TOOLS.joinpath("ext4lazy.py").read_text()
    assert whole.count(text) == 1
    program.write_text(whole.replace(text, instead))
    return program


def test_a_convert_that_writes_directories_in_place_is_found_out(folder: Path) -> None:
    """What version 0.2 did at first: names were lost, on an honest disk."""
    program = broken(folder, "if _to_be_packed(volume):", "if False:")
    wrong = []
    with crash_round.round_folder() as place:
        part = owner_round.Round(owner_volumes.find("convert/old"), SEED, harness.built(), place, program)
        words, places = part.record.commands[-1]
        assert words.startswith("e2fsck -f -p")
        chance = random.Random(SEED)
        for _ in range(60):
            pool, image = part.pool(), place / "state.img"
            state = part.state("honest", f"{chance.choice(places)}s{chance.randrange(1 << 20)}", image)
            if subprocess.run(["/sbin/e2fsck", "-fn", image], capture_output=True, check=False).returncode == 0:
                continue
            part.treat(state, image, pool)
            part.judge([state], pool)
            wrong += [what for what, _ in state.problems]
            if owner_round.Problem.LOST in wrong:
                break
    assert owner_round.Problem.LOST in wrong, f"SEED={SEED}: {wrong}"


def test_a_pool_of_images_is_what_the_disk_reads(folder: Path) -> None:
    images, pool, disk, record = [], state_pool.Pool(8 << 8), folder / "pool.disk", folder / "none.record"
    for number in range(2):
        image = folder / f"{number}.img"
        image.write_bytes(bytes(8 << 20))
        with image.open("r+b") as file:
            for at in (0, 5 << 12, (8 << 20) - 4096):
                file.seek(at)
                file.write(random.Random(at + number).randbytes(4096))
        images.append(image)
        pool.add(image)
    pool.write(disk)
    record.write_bytes(b"SHGLREC1")
    stock(harness.built().crates.crash, "cut", disk, record, "0l", "--raw", "-o", folder / "out.img")
    assert (folder / "out.img").read_bytes() == images[0].read_bytes()
    assert state_pool.digest(images[0]) != state_pool.digest(images[1])


@pytest.mark.parametrize(
    ("said", "done"),
    [
        ("x ended; run e2fsck -f by hand, then convert again.", ["e2fsck -f -y"]),
        (
            "do not run e2fsck -y, which clears, but debugfs -w -c -R 'feature ^x' IMAGE, then convert again.",
            ["debugfs -w -c -R 'feature ^x' IMAGE: "],
        ),
        ("nothing that an owner could do", []),
    ],
)
def test_an_owner_does_what_is_said_and_nothing_else(folder: Path, said: str, done: list[str]) -> None:
    image, program = folder / "image", folder / "program.py"
    image.write_bytes(bytes(4096))
    program.write_text(f"import sys; print({said!r}.replace('IMAGE', sys.argv[2])); sys.exit(8)\n")
    did, ended = owner_advice.owner(program, "convert", image)
    assert not ended
    other = [each.replace(str(image), "IMAGE") for each in did if not each.startswith("convert: 8")]
    assert [each[: len(begin)] for each, begin in zip(other, done, strict=False)] == done
    assert bool(other) == bool(done)
