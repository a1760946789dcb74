# SPDX-License-Identifier: MIT OR Apache-2.0
"""Deliberately broken copies of SAFS: each suite has to see what is missing, and must find nothing in the control.

All mutants are one program, built once in a scratch copy; the variable SAFS_MUTANT says which guard is gone.

    python3 crates/safs-sim/tests/mutants.py                     # all; a line for each with what the suite said
    python3 crates/safs-sim/tests/mutants.py no-flush            # one
"""

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
        "torn-end-believed", "cuts", "recovery.rs",
        "        if !self.unverified.remove(&ino) {\n            return Ok(());\n        }\n",
        '        if crate::mutant("torn-end-believed") || !self.unverified.remove(&ino) {\n            return Ok(());\n        }\n',
    ),
    Mutant(
        "hole-has-bytes", "model", "read.rs",
        "        if extent.is_hole {\n            into.fill(0);\n",
        '        if extent.is_hole {\n            into.fill(u8::from(crate::mutant("hole-has-bytes")));\n',
    ),
    Mutant(
        "link-not-counted", "model", "namespace.rs",
        "        inode.nlink = inode.nlink.checked_add(1).ok_or(Error::TooBig)?;\n",
        "        " + _unless("link-not-counted", "inode.nlink = inode.nlink.checked_add(1).ok_or(Error::TooBig)?;") + "\n",
    ),
    Mutant(
        "parent-not-moved", "model", "namespace.rs",
        "            inode.parent = to;\n        }\n        batch.push(Change::Put(Key::inode(entry.ino)",
        "            " + _unless("parent-not-moved", "inode.parent = to;")
        + "\n        }\n        batch.push(Change::Put(Key::inode(entry.ino)",
    ),
    Mutant(
        "deletion-needs-room", "model", "space.rs",
        "        if !is_deletion && !self.make_room_until(",
        '        if !(is_deletion && !crate::mutant("deletion-needs-room")) && !self.make_room_until(',
    ),
    Mutant(
        "random-zone-free", "fuzz", "zones.rs",
        "        } else if entry.kind == ZoneKind::Random && entry.stage != ZoneStage::Open {\n",
        '        } else if !crate::mutant("random-zone-free") && entry.kind == ZoneKind::Random && entry.stage != ZoneStage::Open {\n',
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
    "cuts": ["cuts", "--count", "6000"],
    "model": ["model", "--count", "160"],
    "fuzz": ["fuzz", "--count", "24000"],
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


def _run(program: Path, suite: str, mutant: str, extra: list[str]) -> tuple[int, str]:
    environment = {**os.environ, "SAFS_MUTANT": mutant, "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [program, *_RUNS[suite], *extra],
        env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def main() -> int:
    """Builds, runs, and says what was seen."""
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    extra = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    unknown = set(wanted) - {mutant.name for mutant in _MUTANTS}
    if unknown:
        sys.exit(f"mutants: no mutant is called {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in _MUTANTS if not wanted or mutant.name in wanted]
    unseen = 0
    with tempfile.TemporaryDirectory(prefix="safs-mutants-") as scratch:
        root = Path(scratch)
        _copy(root)
        target = Path(os.environ.get("CARGO_TARGET_DIR", _CRATES.parent / "build/cargo")) / "mutants"
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        build = ["cargo", "build", "--locked", "--release", "-p", "safs-sim", "--example", "suites"]
        subprocess.run(build, cwd=root, env=environment, check=True)
        program = target / "release/examples/suites"
        for suite in sorted({mutant.suite for mutant in chosen}):
            status, said = _run(program, suite, "none", extra)
            if status != 0:
                sys.exit(f"mutants: the control fails in {suite}: {said.strip()[:600]}")
            print(f"control, {suite}: nothing found", flush=True)
        for mutant in chosen:
            status, said = _run(program, mutant.suite, mutant.name, extra)
            first = next(iter(said.strip().splitlines()), "")
            unseen += status == 0 or not first
            print(f"{mutant.name}, {mutant.suite}: {first[:160] if status else 'NOT SEEN'}", flush=True)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
