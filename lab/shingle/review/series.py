# SPDX-License-Identifier: MIT OR Apache-2.0
"""journal_lazy as a series of patches for review, and how much of upstream's code it touches.

kernel/ holds whole new files and patches for upstream's; reviewers want mails,
each of which builds and boots without the next. kernel/patches has a patch for
each mail, and `lazy_stages` says what the mail does to the files that are ours.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shingle.build import build, kernel_tree
from shingle.catalogue import drive
from shingle.catalogue import fs as file_systems
from shingle.failure import Failure
from shingle.machine import job, machine
from shingle.machine.machine import Boot
from shingle.machine.progress import SILENT, Progress
from shingle.paths import BUILD, ROOT, locked, run_folder
from shingle.review import stages
from shingle.review.stages import SERIES, git

PATCHES = ROOT / "kernel/patches"
# "about 80 lines of existing code" is what the paper (FAST'17) gives for its own version.
PAPER_CHANGED_LINES = 80


def write(out: Path, cover: str = "") -> list[Path]:
    """Writes the mails to a folder, as git format-patch does, and a cover letter, if any. Returns the patches."""
    if out.exists() and any(out.glob("*.patch")):
        raise Failure(f"{out} holds patches already: expected an empty folder.")
    out.mkdir(parents=True, exist_ok=True)
    options = ("--cover-letter", "--cover-from-description=subject") if cover else ()
    with _repository() as repository:
        git(repository, "config", f"branch.{git(repository, 'branch', '--show-current').strip()}.description", cover)
        git(repository, "format-patch", "-q", *options, "-o", str(out.resolve()), "base..HEAD")
    return [path for path in sorted(out.glob("*.patch")) if not path.name.startswith("0000-")]


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


@contextlib.contextmanager
def _repository() -> Iterator[Path]:
    """What the series touches of Linux: tagged `base`, then a commit for each mail."""
    with tempfile.TemporaryDirectory(prefix="shingle-series-") as scratch:
        repository = Path(scratch) / "linux"
        repository.mkdir()
        pristine(_touched(), repository)
        git(repository, "init", "-q")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", f"Linux {build.pinned_version()}")
        git(repository, "tag", "base")
        for mail, stage in zip(SERIES, stages.stages(), strict=True):
            stages.apply(mail.patch(), repository)
            stages.put(repository, stage)
            git(repository, "add", "-A")
            git(repository, "commit", "-q", "-m", _message(mail.patch().read_text()))
        _check_complete(repository)
        yield repository


def _overlay() -> dict[str, Path]:
    return kernel_tree.overlay_of(ROOT / "kernel")


def _touched() -> set[str]:
    return set[str]().union(*(kernel_tree.touched_by(path.read_text()) for path in PATCHES.glob("*.patch")))


def _message(patch: str) -> str:
    head = patch.split("\ndiff --git ", 1)[0]
    subject = re.search(r"^Subject: (?:\[PATCH\] )?(.*)$", head, flags=re.MULTILINE)
    assert subject is not None
    body = head.split("\n\n", 1)[1].rsplit("\n---", 1)[0]
    return f"{subject[1]}\n\n{body.strip()}\n"


def _check_complete(repository: Path) -> None:
    """The last mail leaves what kernel/ says: nothing is forgotten and nothing is made up."""
    names = set(_overlay()) | _touched()
    with tempfile.TemporaryDirectory(prefix="shingle-series-") as scratch:
        wanted = Path(scratch)
        pristine(names - set(_overlay()), wanted)
        stages.put(wanted, stages.final())
        for path in sorted(PATCHES.glob("*.patch")):
            stages.apply(path, wanted)
        for name in sorted(names):
            made, right = (folder / name for folder in (repository, wanted))
            if not made.exists() or made.read_bytes() != right.read_bytes():
                raise Failure(
                    f"the series does not end with kernel/'s version of {name}: expected a mail that brings it."
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
    """Every file that the series touches or brings, once: from the first mail to the last."""
    with _repository() as repository:
        listed = git(repository, "diff", "--numstat", "base..HEAD")
    fields = [line.split("\t") for line in listed.splitlines()]
    return [Change(name, _kind(name), int(added), int(removed)) for added, removed, name in fields]


def _kind(name: str) -> str:
    if name in _overlay():
        return "new tests" if name.endswith("-test.c") else "new"
    if name.startswith("Documentation/"):
        return "documentation"
    return "build" if Path(name).name in ("Kconfig", "Makefile") else "existing"


# --- Each alone ----------------------------------------------------------------------

_OUR_OPTION = re.compile(r"^CONFIG_(JBD2_(?:LAZY\w*|KUNIT_TESTS))=y\n", flags=re.MULTILINE)


def recipe(mails: list[Path], crates: build.Crates) -> kernel_tree.Recipe:
    """The machine with the first mails of the series on it, and nothing else of kernel/."""
    overlay = kernel_tree.overlay_of(ROOT / "machine")
    overlay["arch/um/drivers/shingle_model.o_shipped"] = crates.drive_object
    return kernel_tree.Recipe(overlay, (*sorted((ROOT / "machine/patches").glob("*.patch")), *mails))


def options(mails: list[Path], variant: str = "main") -> list[str]:
    """The fragments of a variant, without those of our options that no mail has brought yet."""
    brought = set(re.findall(r"^\+config (JBD2_\w+)$", "".join(path.read_text() for path in mails), flags=re.MULTILINE))
    return [
        _OUR_OPTION.sub(lambda line: line[0] if line[1] in brought else "", path.read_text())
        for path in build.fragments(variant)
    ]


def build_and_boot(mails: list[Path], progress: Progress = SILENT) -> float:
    """A kernel with these mails and no others: it builds without a warning, boots, mounts ext4 and keeps files.

    Returns the seconds that this took on the host.
    """
    began = time.monotonic()
    crates = build.build_crates(progress=progress)
    made_of = recipe(mails, crates)
    with progress.task("compiling our files"):
        said = build.compiled_alone(["W=1"], {}, made_of, options(mails, build.COVERAGE))
    if said:
        raise Failure(f"{mails[-1].name} does not compile without a warning.", detail=said.splitlines())
    kernel = build.build_recipe(
        f"the first {len(mails)} of the series", "main", made_of, options(mails), progress=progress
    )
    built = build.Built(kernel, crates)
    variant = file_systems.find("ext4")
    formatted = drive.formatted(
        built, drive.find("st8000as0002"), variant, seed=1, capacity_bytes=8 << 30, progress=progress
    )
    has_option = any("Opt_journal_lazy" in path.read_text() for path in mails)
    mounted = job.mount("ext4", "journal_lazy" if has_option else "")
    work = job.load("mix", {"operations": 200, "threads": 2})
    steps = [
        *(*formatted.classes(), mounted, work, _list_files("before"), job.umount()),
        *(job.drop_caches(), mounted, _list_files("after"), job.umount()),
    ]
    with run_folder() as name:
        machine.run(built.machine, Boot(steps=tuple(steps), drive=formatted.file), name)
        before, after = ((name / each).read_text() for each in ("before", "after"))
    if not before or before != after:
        raise Failure(f"after {mails[-1].name} a second mount shows other files than the first one.")
    return time.monotonic() - began


def _list_files(name: str) -> job.Step:
    program = f"cd {job.MOUNT_POINT} && find . | sort && find . -type f -exec sha256sum {{}} + | sort"
    return job.run(["/bin/sh", "-c", program], stdout=name)
