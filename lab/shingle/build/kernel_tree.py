# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernel source that is built: the distribution's, plus our files, plus our patches.

The tree under build/ is unpacked once and then only ever changed by content: a
file that comes out the same is not touched, so that make rebuilds what changed
and nothing else. What the tree held before we touched it is kept beside it, so
that any set of patches can be exchanged for any other (the mutants do that).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle import process
from shingle.failure import Failure

# Folders of machine/ and kernel/ that mirror the kernel tree.
MIRRORED = ("Documentation", "arch", "block", "drivers", "fs", "include", "kernel", "lib", "mm", "tools")

_UNPACK_LIMIT_S = 900.0


@dataclass(frozen=True)
class Recipe:
    """What goes on top of the distribution's source."""

    overlay: Mapping[str, Path]
    patches: tuple[Path, ...]


def overlay_of(*folders: Path) -> dict[str, Path]:
    """Our whole files, by their place in the kernel tree."""
    found: dict[str, Path] = {}
    for folder in folders:
        for name in MIRRORED:
            for path in sorted((folder / name).rglob("*")):
                if path.is_file():
                    found[str(path.relative_to(folder))] = path
    return found


def version_of(makefile: str) -> str:
    """The version that a kernel's top Makefile declares."""
    fields = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", makefile, flags=re.MULTILINE))
    try:
        return f"{fields['VERSION']}.{fields['PATCHLEVEL']}.{fields['SUBLEVEL']}"
    except KeyError:
        raise Failure("the kernel source's Makefile declares no version.") from None


def touched_by(patch: str) -> set[str]:
    """The files that a patch changes, adds or removes."""
    names = re.findall(r"^(?:---|\+\+\+) (?:[ab]/)?(\S+)", patch, flags=re.MULTILINE)
    return {name for name in names if name != "/dev/null"}


def holds(tree: Path, key: str) -> bool:
    """Whether `tree` is the unpacked source of this key."""
    stamp = tree / ".shingle" / "source"
    return stamp.exists() and stamp.read_text() == key


def unpack(tarball: Path, tree: Path, key: str) -> None:
    """Unpacks the source, in place of whatever was there."""
    if tree.exists():
        shutil.rmtree(tree)
    tree.mkdir(parents=True)
    process.run(
        ["tar", "-xf", tarball, "-C", tree, "--strip-components=1"],
        what=f"unpacking {tarball.name}",
        limit_s=_UNPACK_LIMIT_S,
    )
    (tree / ".shingle" / "pristine").mkdir(parents=True)
    (tree / ".shingle" / "source").write_text(key)


def apply(tree: Path, recipe: Recipe, *, found: str, pinned: str, vanishing: Callable[[], None] = lambda: None) -> None:
    """Makes the tree hold the source with exactly this recipe on top.

    `vanishing` is called before a header goes that was there.
    """
    touched = set(recipe.overlay)
    for patch in recipe.patches:
        touched |= touched_by(patch.read_text())
    state = tree / ".shingle" / "touched.json"
    before: set[str] = set(json.loads(state.read_text())) if state.exists() else set()
    for name in sorted(touched - before):
        _keep_pristine(tree, name)
    # Written first: were we stopped half way, the next run would still know what to put back.
    state.write_text(json.dumps(sorted(touched | before)))
    with tempfile.TemporaryDirectory(prefix="shingle-patch-") as scratch:
        wanted = _compose(tree, Path(scratch), recipe, touched, found=found, pinned=pinned)
    for name in sorted(before - touched):
        wanted[name] = _pristine(tree, name)
    if any(content is None and name.endswith(".h") and (tree / name).exists() for name, content in wanted.items()):
        vanishing()
    for name, content in wanted.items():
        _put(tree / name, content)
    state.write_text(json.dumps(sorted(touched)))


def _compose(
    tree: Path, scratch: Path, recipe: Recipe, touched: set[str], *, found: str, pinned: str
) -> dict[str, bytes | None]:
    """The contents of every touched file, made in a scratch folder."""
    for name in sorted(touched):
        content = _pristine(tree, name)
        if content is not None:
            _put(scratch / name, content)
    for name, path in recipe.overlay.items():
        _put(scratch / name, path.read_bytes())
    for patch in recipe.patches:
        _patch(scratch, patch, found=found, pinned=pinned)
    return {name: (scratch / name).read_bytes() if (scratch / name).exists() else None for name in touched}


def _patch(directory: Path, patch: Path, *, found: str, pinned: str) -> None:
    try:
        process.run(
            ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", "-d", directory, "-i", patch],
            what=f"applying {patch.name}",
            limit_s=60,
        )
    except Failure as failure:
        if found == pinned:
            raise Failure(f"{patch.name} does not apply to Linux {pinned}.", detail=failure.detail) from None
        raise Failure(
            f"the installed kernel source is Linux {found}, Shingle is made for Linux {pinned},"
            f" and {patch.name} does not apply to it.",
            detail=failure.detail,
        ) from None


def _keep_pristine(tree: Path, name: str) -> None:
    source = tree / name
    kept = tree / ".shingle" / "pristine" / name
    if source.exists() and not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, kept)


def _pristine(tree: Path, name: str) -> bytes | None:
    kept = tree / ".shingle" / "pristine" / name
    return kept.read_bytes() if kept.exists() else None


def _put(path: Path, content: bytes | None) -> None:
    """Writes a file unless it already has this content; None removes it."""
    if content is None:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def requested_options(fragments: Sequence[str]) -> dict[str, str]:
    """The options that fragments ask for, `n` for those that shall be off; the last word counts."""
    wanted: dict[str, str] = {}
    for text in fragments:
        for line in text.splitlines():
            if match := re.fullmatch(r"(CONFIG_\w+)=(.*)", line.strip()):
                wanted[match[1]] = match[2]
            elif match := re.fullmatch(r"# (CONFIG_\w+) is not set", line.strip()):
                wanted[match[1]] = "n"
    return wanted


def check_options(fragments: Sequence[str], config: str) -> None:
    """Fails, naming each option, when the final .config does not hold what was asked for."""
    final = requested_options([config])
    wrong = [
        f"{name}: asked for {value}, got {final.get(name, 'n')}"
        for name, value in sorted(requested_options(fragments).items())
        if final.get(name, "n") != value
    ]
    if wrong:
        names = ", ".join(line.split(":")[0] for line in wrong)
        raise Failure(f"the kernel's configuration did not take over {names}.", detail=wrong)
