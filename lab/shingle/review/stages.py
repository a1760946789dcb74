# SPDX-License-Identifier: MIT OR Apache-2.0
"""What each mail of the series leaves of the files that are ours.

kernel/ holds them whole, as the last mail leaves them; that is what is built
and tested. A mail brings files, and may change those that earlier mails
brought: the latter is kernel/series/NNNN-*.patch, by the name of the mail's own
patch for upstream's files. The earlier stages of a file come from its last one
by taking these changes back.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shingle import process
from shingle.build import kernel_tree
from shingle.failure import Failure
from shingle.paths import ROOT

KERNEL = ROOT / "kernel"
_LIMIT_S = 120.0
_AUTHOR = ("Shingle", "shingle@localhost")
# Every file of ours that exists at some stage, by its place in the kernel tree.
Stage = dict[str, bytes]


@dataclass(frozen=True)
class Mail:
    """One patch of the series: kernel/patches/NUMBER-*, whole new files, and what it changes in older ones of ours."""

    number: str
    brings: tuple[str, ...] = ()

    def patch(self, kernel: Path = KERNEL) -> Path:
        found = sorted((kernel / "patches").glob(f"{self.number}-*.patch"))
        if len(found) != 1:
            raise Failure(f"kernel/patches holds {len(found)} files {self.number}-*.patch: expected one.")
        return found[0]

    def changes(self, kernel: Path = KERNEL) -> Path:
        """There is none, if the mail changes nothing of that kind."""
        return kernel / "series" / self.patch(kernel).name


SERIES = (
    # Fixes of stock ext4 and jbd2, of which the rest needs none.
    *(Mail(f"0000-{number}") for number in range(1, 12)),
    # Reads.
    Mail("0001"),
    # The map.
    Mail("0002", ("fs/jbd2/jmap.c", "fs/jbd2/jmap.h", "fs/jbd2/jmap-test.c")),
    # Commit, revoke, a full log, the option. The log is empty between two mounts.
    Mail("0003"),
    Mail(
        "0004",
        (
            "fs/jbd2/lazy.c",
            "fs/jbd2/lazy.h",
            "fs/jbd2/lazy_demote.c",
            "fs/jbd2/lazy_read.c",
            "include/linux/jbd2_lazy.h",
        ),
    ),
    Mail("0005", ("fs/ext4/lazy.c",)),
    # The cleaner.
    Mail("0006", ("fs/jbd2/lazy_clean.c",)),
    # The log is kept, and read whole at the next mount.
    Mail("0007", ("fs/jbd2/lazy_mount.c", "fs/jbd2/lazy_scan.c", "fs/jbd2/lazy-test.c")),
    # Snapshots.
    Mail("0008", ("fs/jbd2/lazy_snapshot.c",)),
    # The scrub.
    Mail("0009", ("fs/jbd2/lazy_scrub.c",)),
    Mail("0010"),
    # Data in order: new data in one stream, overwritten data, too, and tidying up.
    Mail("0011"),
    Mail("0012"),
    Mail("0013"),
    Mail("0014"),
)


def apply(patch: Path, folder: Path, *more: str) -> None:
    """Offsets are fine, fuzz is not."""
    process.run(
        ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", *more, "-d", folder, "-i", patch],
        what=f"applying {patch.parent.name}/{patch.name}",
        limit_s=_LIMIT_S,
    )


def put(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def final(kernel: Path = KERNEL) -> Stage:
    return {name: path.read_bytes() for name, path in kernel_tree.overlay_of(kernel).items()}


def stages(kernel: Path = KERNEL) -> list[Stage]:
    """What each mail leaves, in their order."""
    found: list[Stage] = []
    with tempfile.TemporaryDirectory(prefix="shingle-stages-") as scratch:
        folder = Path(scratch)
        names = set(final(kernel))
        put(folder, final(kernel))
        for mail in reversed(SERIES):
            found.append({name: (folder / name).read_bytes() for name in sorted(names)})
            if mail.changes(kernel).exists():
                _take_back(mail.changes(kernel), folder)
            names -= set(mail.brings)
    if names:
        raise Failure(f"no mail of the series brings {sorted(names)[0]}: name it in {Path(__file__).name}.")
    return found[::-1]


def _take_back(changes: Path, folder: Path) -> None:
    try:
        apply(changes, folder, "-R")
    except Failure as failure:
        name = changes.relative_to(changes.parents[2])
        raise Failure(
            f"{name} does not fit kernel/ any more: ./shingle lazy restage renews it.", detail=failure.detail
        ) from None


def restage(since: str, kernel: Path = KERNEL) -> list[Path]:
    """Renews kernel/series after a change of kernel/; `since` is a commit at which the two fit.

    Each stage gets what was changed since then, except where the stage itself differs: there it stays as it was.
    Returns the files that are different now.
    """
    with tempfile.TemporaryDirectory(prefix="shingle-stages-") as name:
        old_kernel = _kernel_at(since, kernel.parent, Path(name) / "since")
        new = final(kernel)
        merged = [_merged(stage, final(old_kernel), new, Path(name)) for stage in stages(old_kernel)]
        for mail, stage in zip(SERIES, merged, strict=True):
            stage.update({each: new[each] for each in mail.brings if each in new and each not in stage})
        if merged[-1] != new:
            raise Failure("the last stage is not what kernel/ holds: expected every new file in SERIES.")
        return store(merged, Path(name), kernel)


def store(found: Iterable[Stage], scratch: Path, kernel: Path = KERNEL) -> list[Path]:
    """Writes the changes between stages to kernel/series; returns the files that are different now."""
    repository = scratch / "stages"
    repository.mkdir()
    git(repository, "init", "-q")
    renewed = []
    for number, (mail, stage) in enumerate(zip(SERIES, found, strict=True)):
        put(repository, stage)
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "--allow-empty", "-m", mail.number)
        text = git(repository, "diff", "--diff-filter=M", "HEAD~..HEAD") if number else ""
        if _write(mail.changes(kernel), re.sub(r"^index .*\n", "", text, flags=re.MULTILINE)):
            renewed.append(mail.changes(kernel))
    return renewed


def _write(path: Path, text: str) -> bool:
    before = path.read_text() if path.exists() else ""
    path.parent.mkdir(exist_ok=True)
    if text:
        path.write_text(text)
    else:
        path.unlink(missing_ok=True)
    return text != before


def _kernel_at(commit: str, root: Path, folder: Path) -> Path:
    folder.mkdir()
    archive = folder.parent / "kernel.tar"
    process.run(["git", "-C", root, "archive", "-o", archive, commit, "kernel"], what="git archive", limit_s=_LIMIT_S)
    shutil.unpack_archive(archive, folder)
    return folder / "kernel"


def _merged(stage: Stage, old: Stage, new: Stage, scratch: Path) -> Stage:
    result: Stage = {}
    for name, content in stage.items():
        if name not in new:
            continue
        for label, each in (("stage", content), ("old", old[name]), ("new", new[name])):
            (scratch / label).write_bytes(each)
        files = (scratch / label for label in ("stage", "old", "new"))
        process.run(["git", "merge-file", "-q", "--ours", *files], what="git merge-file", limit_s=_LIMIT_S)
        result[name] = (scratch / "stage").read_bytes()
    return result


def git(repository: Path, *arguments: str) -> str:
    name, address = _AUTHOR
    date = "2026-01-01T00:00:00Z"
    return process.run(
        ["git", "-C", repository, *arguments],
        what=f"git {arguments[0]}",
        limit_s=_LIMIT_S,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(repository),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": name for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": address for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": date for who in ("AUTHOR", "COMMITTER")},
        },
    )
