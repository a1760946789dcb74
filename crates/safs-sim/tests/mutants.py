# SPDX-License-Identifier: MIT OR Apache-2.0
"""Deliberately broken copies of SAFS: each suite has to see what is missing, and must find nothing in the control.

All mutants are one program, built once in a scratch copy; the variable SAFS_MUTANT says which guard is gone.

    python3 crates/safs-sim/tests/mutants.py                     # all; a line for each with what the suite said
    python3 crates/safs-sim/tests/mutants.py no-flush            # one
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_CRATES = Path(__file__).resolve().parents[2]
_LIMIT_S = 900


class Mutant(NamedTuple):
    """A guard that is taken out: `old` of `file` becomes `new` while the mutant runs."""

    name: str
    suite: str
    file: str
    old: str
    new: str


def _unless(name: str, statement: str) -> str:
    return f'if !crate::mutant("{name}") {{ {statement} }}'


_MUTANTS = (
    Mutant(
        "no-flush", "cuts", "append.rs",
        "        self.push(&parts)?;\n        self.flush()\n",
        '        self.push(&parts)?;\n        if crate::mutant("no-flush") { return Ok(()); }\n        self.flush()\n',
    ),
    Mutant(
        "record-before-its-image", "cuts", "commit.rs",
        "        self.disk.flush()?;\n        let slot",
        "        " + _unless("record-before-its-image", "self.disk.flush()?;") + "\n        let slot",
    ),
    Mutant(
        "fragment-forgotten", "cuts", "recovery.rs",
        "        let Some(old) = put.old else {\n",
        '        if crate::mutant("fragment-forgotten") { return Ok(()); }\n        let Some(old) = put.old else {\n',
    ),
    Mutant(
        "torn-end-believed", "cuts", "verify.rs",
        "        if !self.unverified.remove(&ino) {\n            return Ok(());\n        }\n",
        '        if crate::mutant("torn-end-believed") || !self.unverified.remove(&ino) {\n'
        "            return Ok(());\n        }\n",
    ),
    Mutant(
        "hole-has-bytes", "model", "read.rs",
        "        if extent.is_hole {\n            into.fill(0);\n",
        '        if extent.is_hole {\n            into.fill(u8::from(crate::mutant("hole-has-bytes")));\n',
    ),
    Mutant(
        "link-not-counted", "model", "namespace.rs",
        "        inode.nlink = inode.nlink.checked_add(1).ok_or(Error::TooBig)?;\n",
        "        "
        + _unless("link-not-counted", "inode.nlink = inode.nlink.checked_add(1).ok_or(Error::TooBig)?;")
        + "\n",
    ),
    Mutant(
        "parent-not-moved", "model", "namespace.rs",
        "            inode.parent = to;\n        }\n        batch.push(Change::Put(Key::inode(entry.ino)",
        "            " + _unless("parent-not-moved", "inode.parent = to;")
        + "\n        }\n        batch.push(Change::Put(Key::inode(entry.ino)",
    ),
    Mutant(
        "extents-left", "cuts", "truncate.rs",
        "        while self.remove_last_extents(ino)? {\n",
        '        while self.remove_last_extents(ino)? && !crate::mutant("extents-left") {\n',
    ),
    Mutant(
        "deletion-reserve", "budget", "budget.rs",
        "            && (is_deletion || is_left)\n",
        '            && (is_deletion || is_left || crate::mutant("deletion-reserve"))\n',
    ),
    Mutant(
        "headers-not-charged", "budget", "charge.rs",
        "        let blocks = payload + segments * u64::from(headers) + self.pieces * BLOCKS_OF_A_PIECE;\n",
        "        let beside = segments * u64::from(headers) + self.pieces * BLOCKS_OF_A_PIECE;\n"
        '        let blocks = payload + if crate::mutant("headers-not-charged") { 0 } else { beside };\n',
    ),
    Mutant(
        "gaps-not-charged", "budget", "charge.rs",
        "            let is_hole = gap > SHORT_GAP_BYTES;\n",
        '            if crate::mutant("gaps-not-charged") { continue; }\n'
        "            let is_hole = gap > SHORT_GAP_BYTES;\n",
    ),
    Mutant(
        "waiting-blocks-not-charged", "budget", "budget.rs",
        "        room.saturating_sub(self.staged.waiting.blocks(&self.options, capacity))\n",
        '        if crate::mutant("waiting-blocks-not-charged") { return room; }\n'
        "        room.saturating_sub(self.staged.waiting.blocks(&self.options, capacity))\n",
    ),
    Mutant(
        "waiting-keys-not-charged", "budget", "budget.rs",
        "        let keys = keys + self.staged.waiting.keys(&self.options);\n",
        '        let waits = usize::from(!crate::mutant("waiting-keys-not-charged"));\n'
        "        let keys = keys + waits * self.staged.waiting.keys(&self.options);\n",
    ),
    Mutant(
        "batches-need-the-log", "budget", "log.rs",
        "            unless_full(self.root_commit(false))?;\n",
        "            " + _unless("batches-need-the-log", "unless_full(self.root_commit(false))?;") + "\n",
    ),
    Mutant(
        "nothing-in-advance", "room", "space.rs",
        "        if !self.is_low() {\n",
        '        if !self.is_low() || crate::mutant("nothing-in-advance") {\n',
    ),
    Mutant(
        "one-zone-ahead", "room-rounds", "space.rs",
        "        self.log_blocks_left() < zone + LOW_BLOCKS.min(zone)\n",
        '        let ahead = if crate::mutant("one-zone-ahead") { 0 } else { LOW_BLOCKS.min(zone) };\n'
        "        self.log_blocks_left() < zone + ahead\n",
    ),
    Mutant(
        "deletions-pay-nothing", "deletions", "space.rs",
        "        if self.log_blocks_left() < NEXT_WRITE_BLOCKS {\n",
        '        if self.log_blocks_left() < NEXT_WRITE_BLOCKS && !crate::mutant("deletions-pay-nothing") {\n',
    ),
    Mutant(
        "padded-over-a-copy", "log", "log.rs",
        "            let is_there = self.disk.keeps_write_pointers()\n",
        '            let is_there = (self.disk.keeps_write_pointers() || crate::mutant("padded-over-a-copy"))\n',
    ),
    Mutant(
        "moved-though-it-died", "cleaning", "cleaning.rs",
        "            if self.extent_at(live.ino, live.logical)? == Some(live.extent) {\n",
        '            let is_believed = crate::mutant("moved-though-it-died");\n'
        "            if is_believed || self.extent_at(live.ino, live.logical)? == Some(live.extent) {\n",
    ),
    Mutant(
        "never-in-parts", "cleaning", "cleaning.rs",
        "        let before = self.writable_blocks();\n",
        '        let is_whole = is_whole || crate::mutant("never-in-parts");\n'
        "        let before = self.writable_blocks();\n",
    ),
    Mutant(
        "account-believed", "repair", "check.rs",
        "                if let (Ok(()), Ok(end)) = (read, u32::try_from(end)) {\n",
        '                let gone = crate::mutant("account-believed");\n'
        '                let read = read.and(if gone { Err(wrong("")) } else { Ok(()) });\n'
        "                if let (Ok(()), Ok(end)) = (read, u32::try_from(end)) {\n",
    ),
    Mutant(
        "parent-believed", "repair", "check.rs",
        "    if let Some(parent) = named_in.filter(|parent| *parent != inode.parent) {\n",
        '    let is_seen = |parent: &Ino| *parent != inode.parent && !crate::mutant("parent-believed");\n'
        "    if let Some(parent) = named_in.filter(is_seen) {\n",
    ),
    Mutant(
        "log-s-end-believed", "repair", "check.rs",
        "if zone == self.log.at.zone && entry.write_blocks != self.log.at.block {",
        "if zone == self.log.at.zone && entry.write_blocks != self.log.at.block\n"
        '                && !crate::mutant("log-s-end-believed") {',
    ),
    Mutant(
        "lost-records-behind", "recovery", "repair.rs",
        "                self.outgrow_lost_records()?;\n",
        "                " + _unless("lost-records-behind", "self.outgrow_lost_records()?;") + "\n",
    ),
    Mutant(
        "random-zone-free", "fuzz", "zones.rs",
        "        } else if entry.kind == ZoneKind::Random && entry.stage != ZoneStage::Open {\n",
        '        } else if crate::mutant("random-zone-free") {\n            return Ok(());\n'
        "        } else if entry.kind == ZoneKind::Random && entry.stage != ZoneStage::Open {\n",
    ),
    Mutant(
        "log-behind-its-zone", "fuzz", "recovery.rs",
        "|| root.log.block > capacity_blocks;",
        '|| root.log.block > capacity_blocks && !crate::mutant("log-behind-its-zone");',
    ),
    Mutant(
        "zone-beyond-its-end", "fuzz", "zones.rs",
        "if entry.write_blocks > self.capacity_blocks {",
        'if entry.write_blocks > self.capacity_blocks && !crate::mutant("zone-beyond-its-end") {',
    ),
)  # fmt: skip

# What is run against a mutant, and against the control: enough for the mutants, quick enough for a build machine.
_RUNS = {
    "budget": ["cargo", "test", "--release", "--locked", "-p", "safs", "--lib", "--",
               "budget::", "--skip", "20_tb", "--skip", "very_many_extents"],
    "cuts": ["suites", "cuts", "--count", "12000", "--config", "small"],
    "model": ["suites", "model", "--count", "160", "--config", "mixed"],
    "fuzz": ["suites", "fuzz", "--count", "24000"],
    "repair": ["cargo", "test", "--release", "--locked", "-p", "safs", "--lib", "--", "repair::", "check::"],
    "log": ["cargo", "test", "--release", "--locked", "-p", "safs", "--lib", "log::tests"],
    "deletions": ["cargo", "test", "--release", "--locked", "-p", "safs-sim", "--test", "room", "first_write"],
    "cleaning": ["cargo", "test", "--release", "--locked", "-p", "safs", "--lib", "cleaning::tests"],
    "recovery": ["cargo", "test", "--release", "--locked", "-p", "safs", "--test", "recovery"],
    "room": ["suites", "room", "--count", "4", "--config", "4096/4/auto"],
    # Seven rounds see nothing.
    "room-rounds": ["suites", "room", "--rounds", "8", "--config", "4096/4/auto"],
}


def _copy(to: Path) -> None:
    """Copies the workspace and takes the guards out."""
    shutil.copytree(_CRATES, to / "crates")
    for name in ("Cargo.toml", "Cargo.lock", "clippy.toml"):
        shutil.copy(_CRATES.parent / name, to)
    for name in ("drives",):
        shutil.copytree(_CRATES.parent / name, to / name)
    source = to / "crates/safs/src"
    for mutant in _MUTANTS:
        path = source / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            sys.exit(f"mutants: {mutant.name}: {mutant.file} has its place {text.count(mutant.old)} times, expected 1")
        path.write_text(text.replace(mutant.old, mutant.new))
    with (source / "lib.rs").open("a") as library:
        library.write(
            "\n/// Whether this guard is gone.\npub(crate) fn mutant(name: &str) -> bool {\n"
            '    std::env::var_os("SAFS_MUTANT").is_some_and(|set| set == *name)\n}\n'
        )


class Scratch(NamedTuple):
    """A copy of the workspace, and what is built from it."""

    root: Path
    environment: dict[str, str]
    suites: Path


def _built(root: Path) -> Scratch:
    _copy(root)
    target = Path(os.environ.get("CARGO_TARGET_DIR", _CRATES.parent / "build/cargo")) / "mutants"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUST_BACKTRACE": "0"}
    suites = ["build", "-p", "safs-sim", "--example", "suites"]
    tests = ["test", "-p", "safs", "--lib", "--test", "recovery", "--no-run"]
    for what in (suites, tests):
        subprocess.run(["cargo", *what, "--locked", "--release"], cwd=root, env=environment, check=True)
    return Scratch(root, environment, target / "release/examples/suites")


def _run(scratch: Scratch, suite: str, mutant: str) -> str | None:
    """What the suite says against a mutant; nothing if it is content."""
    program, *arguments = _RUNS[suite]
    command = [str(scratch.suites) if program == "suites" else program, *arguments]
    done = subprocess.run(
        command, cwd=scratch.root, env={**scratch.environment, "SAFS_MUTANT": mutant},
        capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    # A suite says its failures first, and what was never reached at the end; a test says them behind "panicked".
    at = next((i for i, line in enumerate(lines) if "panicked at" in line), None)
    said = lines[at + 1 : at + 2] if at is not None else lines[:1]
    missing = [line for line in lines if line.startswith("never reached")]
    return next(iter([*missing, *said]), f"status {done.returncode}")


def _commit() -> str:
    git = ["git", "-C", str(_CRATES), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    """Builds, runs, and says what was seen."""
    parser = argparse.ArgumentParser(description="Takes guards out of a copy of SAFS; each suite has to see it.")
    parser.add_argument("mutants", nargs="*", help="only these")
    parser.add_argument("--record", type=Path, help="adds a line of JSON for each to this file")
    arguments = parser.parse_args()
    unknown = set(arguments.mutants) - {mutant.name for mutant in _MUTANTS}
    if unknown:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in _MUTANTS if not arguments.mutants or mutant.name in arguments.mutants]
    unseen = 0
    with tempfile.TemporaryDirectory(prefix="safs-mutants-") as folder:
        scratch = _built(Path(folder))
        controls = [("control", suite) for suite in sorted({mutant.suite for mutant in chosen})]
        for name, suite in [*controls, *((mutant.name, mutant.suite) for mutant in chosen)]:
            said = _run(scratch, suite, name)
            unseen += (said is None) != (name == "control")
            print(f"{name}, {suite}: {said[:160] if said else 'nothing found'}", flush=True)
            if arguments.record:
                line = {"schema": 1, "commit": _commit(), "suite": suite, "mutant": name, "said": said}
                with arguments.record.open("a") as record:
                    record.write(json.dumps(line) + "\n")
    if unseen:
        print(f"mutants: {unseen} of these are not as they should be", file=sys.stderr)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
