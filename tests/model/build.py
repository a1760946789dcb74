# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compiles the kernel's own files, unchanged but for three constants, with the model around them, for user space.

Standard library only, so that a failure can be replayed with any Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "model"
JBD2 = "kernel/fs/jbd2"
INCLUDE = "kernel/include"
# Guards that are taken out: of the model alone, and of those that whole machines are tested with.
MUTANTS = HERE / "mutants"
SHARED_MUTANTS = ROOT / "tests/mutants"
SHARED = (
    "head-does-not-wrap", "home-has-32-bits", "no-escape", "no-freed-block-rule", "no-tombstone", "revokes-not-applied",
    "snapshot-forgets-demoted", "snapshot-knows-the-freed", "snapshot-unchecked", "tids-do-not-wrap",
)  # fmt: skip

# What is compiled as it is, if it is there.
WHOLE = ("jmap.c", "lazy_snapshot.c", "lazy_scan.c", "lazy_mount.c")
# Of files that need the page cache or a thread, the functions that these call, or that call them.
PARTS = (
    "jbd2_lazy_next_log_blk", "jbd2_lazy_prev_log_blk", "jbd2_lazy_log_distance", "jbd2_lazy_phys",
    "jbd2_lazy_tag_get", "jbd2_lazy_csum", "jbd2_lazy_csum_of_tag", "__jbd2_lazy_note_tag",
    "__jbd2_lazy_keep_revoke", "__jbd2_lazy_count", "__jbd2_lazy_revoking", "lazy_running_revokes",
    "lazy_check_applied", "__jbd2_lazy_apply", "__jbd2_lazy_oldest", "jbd2_lazy_checkpoint", "scrub_used",
    "scrub_distance", "jbd2_lazy_damaged",
)  # fmt: skip
# So that even small logs have many snapshots, and reach what large ones do.
VARIABLE = {
    "PERIOD_PART": "model_period_part",
    "CLOSING_BLOCKS": "model_closing_blocks",
    "SNAP_GAP_BITS": "model_gap_bits",
    "READER_BYTES": "model_reader_bytes",
    "READER_FIRST": "model_reader_first",
    "JMAP_ADVANCE": "model_advance",
    "JMAP_STRETCH": "model_stretch",
}
PROGRAM = ("disk.c", "stock.c", "history.c")
HEADERS = ("kernel.h", "model.h")
FLAGS = ("-std=gnu11", "-Wall", "-Wno-unused-function", "-fno-strict-aliasing", "-fwrapv", "-g")
CHECKED = ("-O2", "-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=all")
FAST = ("-O2",)
COVERED = ("-O0", "--coverage")


def function(text: str, name: str) -> str | None:
    """A function of a kernel file with its type, from the line before the first brace in column 0 to the last."""
    found = re.search(rf"^(?:[a-z][^\n;]*\n?[^\n;]*\b|){name}\([^;{{]*\)\n\{{\n.*?^\}}\n", text, flags=re.M | re.S)
    return found and found.group(0)


def parts(sources: Path) -> str:
    texts = [path.read_text() for path in sorted((sources / JBD2).glob("lazy*.c")) if path.name not in WHOLE]
    taken = ['#include "part.h"\n']
    for name in PARTS:
        bodies = [body for text in texts if (body := function(text, name))]
        assert len(bodies) == 1, f"{name}() is in {len(bodies)} files"
        taken += bodies
    return "\n".join(taken)


def included(text: str) -> set[str]:
    return set(re.findall(r"^#include <([^>]+)>", text, flags=re.M))


def prepare(sources: Path, into: Path) -> list[Path]:
    """The C files to compile. Every header of the kernel but ours becomes kernel.h."""
    shutil.copytree(sources / INCLUDE / "linux", into / "include/linux")
    wanted: set[str] = {"linux/jbd2.h"}
    compiled: list[Path] = []
    varied = 0
    for name in (*WHOLE, *sorted(path.name for path in (sources / JBD2).glob("*.h"))):
        source = sources / JBD2 / name
        if not source.exists():
            continue
        text = source.read_text()
        wanted |= included(text)
        for constant, variable in VARIABLE.items():
            text, count = re.subn(rf"^(#define {constant})\s.*$", rf"\1 {variable}", text, flags=re.M)
            varied += count
        if name.endswith(".c"):
            compiled.append(into / name)
        (into / name).write_text(text)
    assert varied == len(VARIABLE), "a constant that the model varies is gone"
    (into / "lazy_part.c").write_text(parts(sources))
    for name in sorted(wanted):
        stub = into / "include" / name
        if not stub.exists():
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text('#include "kernel.h"\n')
    for name in (*PROGRAM, *HEADERS, "part.h"):
        shutil.copyfile(HERE / name, into / name)
    return [*compiled, into / "lazy_part.c", *(into / name for name in PROGRAM)]


def mutants() -> list[str]:
    return sorted([*SHARED, *(path.stem for path in MUTANTS.glob("*.patch"))])


def patch_of(mutant: str) -> Path:
    return (SHARED_MUTANTS if mutant in SHARED else MUTANTS) / f"{mutant}.patch"


def key(flags: Sequence[str], mutated: bool, sources: Path) -> str:
    digest = hashlib.sha256(repr((flags, mutated)).encode())
    files = [path for path in sources.joinpath("kernel").rglob("*.[ch]") if "ext4" not in path.parts]
    files += [path for path in HERE.iterdir() if path.suffix in (".c", ".h", ".py")]
    if mutated:
        files += map(patch_of, mutants())
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def mutate(tree: Path, sources: Path) -> None:
    """All mutants are one program; which one it is, is said when it starts."""
    for part in (JBD2, INCLUDE):
        shutil.copytree(sources / part, tree / part)
    for name in mutants():
        command = ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", "-d", str(tree / "kernel")]
        subprocess.run([*command, "-i", str(patch_of(name))], check=True)


def binary(flags: Sequence[str] = CHECKED, *, mutated: bool = False, sources: Path = ROOT) -> Path:
    """The program, built if need be; with `mutated` it has every mutant."""
    folder = BUILD / key(flags, mutated, sources)
    program = folder / "histories"
    if program.exists():
        return program
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        work = Path(name)
        tree = sources
        if mutated:
            tree = work / "sources"
            mutate(tree, sources)
        made = work / "made"
        made.mkdir()
        files = prepare(tree, made)
        command = ["gcc", *FLAGS, *flags, "-I", ".", "-I", "include", "-include", "part.h"]
        if os.uname().machine == "x86_64":
            command.append("-msse4.2")
        command += ["-o", "histories", *(file.name for file in files)]
        subprocess.run(command, check=True, cwd=made)
        if not folder.exists():
            made.rename(folder)
    return program


if __name__ == "__main__":
    print(binary())
