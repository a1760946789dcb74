# SPDX-License-Identifier: MIT OR Apache-2.0
"""journal_lazy as a series of patches for review, and how much of upstream's code it touches.

kernel/ holds whole new files and patches for upstream's; reviewers want mails,
each of which builds and boots without the next. The plan below says which new
file comes with which mail; what a Makefile names before its file is there, is
left out until then.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from shingle import build, drive, job, kernel_tree, machine, process
from shingle import fs as file_systems
from shingle.failure import Failure
from shingle.machine import Boot
from shingle.paths import BUILD, ROOT, locked, run_directory
from shingle.progress import SILENT, Progress

PATCHES = ROOT / "kernel/patches"
# "about 80 lines of existing code" is what the paper (FAST'17) gives for its own version.
PAPER_CHANGED_LINES = 80
_GIT_LIMIT_S = 120.0
_AUTHOR = ("Shingle", "shingle@localhost")
_OBJECT = re.compile(r"\b([\w-]+)\.o\b")


@dataclass(frozen=True)
class Mail:
    """One patch of the series: the hunks of a patch file, whole new files, and a message."""

    patch: str
    new_files: tuple[str, ...] = ()
    message: str | None = None
    # Of the patch, only these files; the rest is for the next mail that names it.
    only: tuple[str, ...] = ()


_MAP = """jbd2: a map from home blocks to their newest copies in the log

Lazy writeback journaling leaves committed metadata in the journal, and
somebody has to know where.  This is a map with a slot for each block of
the log, chained by home block.  It allocates nothing while transactions
commit, finds both where the newest copy of a block is and what a block
of the log is a copy of, and counts what is live in each stretch of the
log.

Nothing uses it yet but its unit tests.
"""

SERIES = (
    # Fixes of stock ext4, of which the rest needs none.
    *(Mail(f"0000-{number}-*.patch") for number in (1, 2, 3, 4)),
    Mail("0001-*.patch"),
    Mail("0002-*.patch", ("fs/jbd2/jmap*",), _MAP, only=("fs/jbd2/Kconfig", "fs/jbd2/Makefile")),
    Mail("0002-*.patch", ("fs/jbd2/*", "include/*")),
    Mail("0003-*.patch", ("fs/ext4/*",)),
    Mail("0004-*.patch"),
)


def write(out: Path) -> list[Path]:
    """Writes the mails to a folder, as git format-patch does; returns them in order."""
    if out.exists() and any(out.glob("*.patch")):
        raise Failure(f"{out} holds patches already: expected an empty folder.")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shingle-series-") as scratch:
        repository = Path(scratch) / "linux"
        _base(repository)
        for number, mail in enumerate(SERIES, 1):
            message = _take(repository, number, mail)
            _git(repository, "add", "-A")
            _git(repository, "commit", "-q", "-m", message)
        _check_complete(repository)
        _git(repository, "format-patch", "-q", "-o", str(out.resolve()), "base..HEAD")
    return sorted(out.glob("*.patch"))


def pristine(names: set[str], target: Path) -> None:
    """Upstream's version of some files; of our own there is none."""
    key = build.source_key()
    tree = BUILD / "linux"
    if not kernel_tree.holds(tree, key):
        with locked("kernel"):
            kernel_tree.unpack(build.kernel_source(), tree, key)
    for name in sorted(names - set(_overlay())):
        kept = tree / ".shingle/pristine" / name
        source = kept if kept.exists() else tree / name
        if source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)


def _patch_file(pattern: str) -> Path:
    found = sorted(PATCHES.glob(pattern))
    if len(found) != 1:
        raise Failure(f"kernel/patches holds {len(found)} files {pattern}: expected one.")
    return found[0]


def _overlay() -> dict[str, Path]:
    return kernel_tree.overlay_of(ROOT / "kernel")


def _base(repository: Path) -> None:
    touched: set[str] = set()
    for path in PATCHES.glob("*.patch"):
        touched |= kernel_tree.touched_by(path.read_text())
    repository.mkdir()
    pristine(touched - set(_overlay()), repository)
    _git(repository, "init", "-q")
    _git(repository, "add", "-A")
    _git(repository, "commit", "-q", "-m", f"Linux {build.pinned_version()}")
    _git(repository, "tag", "base")


def _take(repository: Path, number: int, mail: Mail) -> str:
    """Puts what a mail brings into the tree; returns its message."""
    patch = _patch_file(mail.patch)
    head, *parts = re.split(r"(?=^diff --git )", patch.read_text(), flags=re.MULTILINE)
    done = {name for earlier in SERIES[: number - 1] if earlier.patch == mail.patch for name in earlier.only}
    names = [next(iter(kernel_tree.touched_by(part))) for part in parts]
    chosen = [
        part for name, part in zip(names, parts, strict=True) if (name in mail.only if mail.only else name not in done)
    ]
    part_file = repository.parent / "part.patch"
    part_file.write_text("".join(chosen))
    process.run(
        ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", "-d", repository, "-i", part_file],
        what=f"applying {patch.name}",
        limit_s=_GIT_LIMIT_S,
    )
    for name, path in _overlay().items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in mail.new_files) and not (repository / name).exists():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, repository / name)
    _only_present_objects(repository, patch)
    return mail.message or _message(head)


def _message(head: str) -> str:
    subject = re.search(r"^Subject: (?:\[PATCH\] )?(.*)$", head, flags=re.MULTILINE)
    assert subject is not None
    body = head.split("\n\n", 1)[1].rsplit("\n---", 1)[0]
    return f"{subject[1]}\n\n{body.strip()}\n"


def _only_present_objects(repository: Path, patch: Path) -> None:
    """A Makefile names an object of ours once its file is there, and not before."""
    ours = {name for name in _overlay() if name.endswith(".c")}
    for makefile in sorted(repository.glob("fs/*/Makefile")):
        folder = makefile.parent.relative_to(repository)
        lines = []
        for line in re.findall(r"(?:.*\\\n)*.*\n", _final(makefile.relative_to(repository), repository, patch)):
            missing = [
                f"{stem}.o"
                for stem in _OBJECT.findall(line)
                if f"{folder}/{stem}.c" in ours and not (repository / folder / f"{stem}.c").exists()
            ]
            words = [word for word in line.replace("\\\n", " ").split() if word not in missing]
            if not missing:
                lines.append(line)
            elif words[-1] != "+=":
                lines.append(" ".join(words) + "\n")
        makefile.write_text("".join(lines))


def _final(makefile: Path, repository: Path, patch: Path) -> str:
    """The Makefile with its own patch, if that has been reached; otherwise as it is."""
    stored = repository.parent / "makefiles" / makefile
    if str(makefile) in kernel_tree.touched_by(patch.read_text()) and not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / makefile, stored)
    return (stored if stored.exists() else repository / makefile).read_text()


def _check_complete(repository: Path) -> None:
    """The last mail leaves what kernel/ says: nothing is forgotten and nothing is made up."""
    names = set(_overlay())
    for path in PATCHES.glob("*.patch"):
        names |= kernel_tree.touched_by(path.read_text())
    with tempfile.TemporaryDirectory(prefix="shingle-series-") as scratch:
        wanted = Path(scratch)
        pristine(names - set(_overlay()), wanted)
        for name, path in _overlay().items():
            (wanted / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, wanted / name)
        for path in sorted(PATCHES.glob("*.patch")):
            process.run(
                ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", "-d", wanted, "-i", path],
                what=f"applying {path.name}",
                limit_s=_GIT_LIMIT_S,
            )
        for name in sorted(names):
            made, right = (folder / name for folder in (repository, wanted))
            if not made.exists() or made.read_bytes() != right.read_bytes():
                raise Failure(
                    f"the series does not end with kernel/'s version of {name}: expected a mail that brings it."
                )


def _git(repository: Path, *arguments: str) -> str:
    name, address = _AUTHOR
    date = "2026-01-01T00:00:00Z"
    return process.run(
        ["git", "-C", repository, *arguments],
        what=f"git {arguments[0]}",
        limit_s=_GIT_LIMIT_S,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(repository),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": name for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": address for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": date for who in ("AUTHOR", "COMMITTER")},
        },
    )


# --- How much it is ----------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Of one file: what kind it is, lines added, lines removed."""

    name: str
    kind: str
    added: int
    removed: int


def changes() -> list[Change]:
    """Every file that the series touches or brings, once."""
    counted: dict[str, tuple[int, int]] = {}
    for path in sorted(PATCHES.glob("*.patch")):
        for part in re.split(r"(?=^diff --git )", path.read_text(), flags=re.MULTILINE)[1:]:
            name = next(iter(kernel_tree.touched_by(part)))
            lines = part.splitlines()
            added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
            removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
            before = counted.get(name, (0, 0))
            counted[name] = (before[0] + added, before[1] + removed)
    found = [Change(name, _kind(name), added, removed) for name, (added, removed) in sorted(counted.items())]
    for name, path in sorted(_overlay().items()):
        kind = "new tests" if name.endswith("-test.c") else "new"
        found.append(Change(name, kind, len(path.read_text().splitlines()), 0))
    return found


def _kind(name: str) -> str:
    if name.startswith("Documentation/"):
        return "documentation"
    return "build" if Path(name).name in ("Kconfig", "Makefile") else "existing"


# --- Each alone ----------------------------------------------------------------------


def recipe(mails: list[Path], crates: build.Crates) -> kernel_tree.Recipe:
    """The machine with the first mails of the series on it, and nothing else of kernel/."""
    overlay = kernel_tree.overlay_of(ROOT / "machine")
    overlay["arch/um/drivers/shingle_model.o_shipped"] = crates.drive_object
    return kernel_tree.Recipe(overlay, (*sorted((ROOT / "machine/patches").glob("*.patch")), *mails))


def build_and_boot(mails: list[Path], progress: Progress = SILENT) -> float:
    """A kernel with these mails and no others: it builds without a warning, boots, mounts ext4 and keeps files.

    Returns the seconds that this took on the host.
    """
    began = time.monotonic()
    crates = build.build_crates(progress=progress)
    made_of = recipe(mails, crates)
    texts = [path.read_text() for path in build.fragments("main")]
    if not any("+config JBD2_LAZY\n" in path.read_text() for path in mails):
        texts = [re.sub(r"^CONFIG_JBD2_LAZY=y\n", "", text, flags=re.MULTILINE) for text in texts]
    kernel = build.build_recipe(f"the first {len(mails)} of the series", "main", made_of, texts, progress=progress)
    built = build.Built(kernel, crates)
    variant = file_systems.find("ext4")
    formatted = drive.formatted(
        built, drive.find("st8000as0002"), variant, seed=1, capacity_bytes=8 << 30, progress=progress
    )
    has_option = any("Opt_journal_lazy" in path.read_text() for path in mails)
    steps = [
        *formatted.classes(),
        job.mount("ext4", "journal_lazy" if has_option else ""),
        job.load("mix", {"operations": 200, "threads": 2}),
        job.umount(),
    ]
    with tempfile.TemporaryDirectory(prefix="shingle-series-", dir=run_directory()) as name:
        machine.run(built.machine, Boot(steps=tuple(steps), drive=formatted.file), Path(name))
    return time.monotonic() - began
