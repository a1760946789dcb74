# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the kernel's own checkers say of the series: checkpatch.pl --strict, sparse, and gcc and kernel-doc with W=1.

Each finding that stays has a row in `KNOWN` with its reason. A row that finds nothing any more fails the test, too.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from shingle.build import build
from shingle.paths import BUILD
from shingle.review import series

_LIMIT_S = 300
_FINDING = re.compile(r"^(?:.*/build/linux/|\.\./linux/)?(?P<file>[\w./-]+):\d+(?::\d+)?: (?P<text>.+)$")


@dataclass(frozen=True)
class Known:
    """Findings that stay: in which files, which text, and why."""

    files: str
    text: str
    reason: str


CHECKPATCH = (
    Known("*", "ERROR:MISSING_SIGN_OFF:", "only a person can sign off; it is added by whoever sends the series"),
    Known(
        "*",
        "WARNING:FILE_PATH_CHANGES:",
        "fs/jbd2/ and fs/ext4/ are in MAINTAINERS; of the headers the RFC has to speak",
    ),
    Known(
        "fs/ext4/ext4.h", "CHECK:UNCOMMENTED_DEFINITION: spinlock_t", "it guards all of the struct, which has a comment"
    ),
    Known("fs/ext4/super.c", "CHECK:CAMELCASE: .*<Opt_", "ext4 names all its mount options like this"),
    Known("fs/ext4/super.c", "WARNING:SPACING: .*function name", "a row of ext4's table of options, as its others"),
    Known(
        "include/linux/jbd2.h",
        "CHECK:CAMELCASE: .*<Newest>",
        "BUFFER_FNS() makes buffer_newest() of it, as of its others",
    ),
    Known("fs/ext4/lazy.c", "CHECK:MACRO_ARG_REUSE: .*'_name'", "names a sysfs attribute; a token, no expression"),
    Known("fs/ext4/super.c", "CHECK:BIT_MACRO:", "a row of ext4's table of what was given, as its others"),
    Known("fs/ext4/page-io.c", "WARNING:AVOID_BUG:", "stock's BUG_ON(), with one more condition"),
)
COMPILED = (
    Known(
        "fs/ext4/super.c", r"context imbalance in '(__ext4_grp_locked_error|ext4_check_descriptors)'", "stock has it"
    ),
    Known("fs/ext4/*alloc.c", "context imbalance in ", "stock has it, of ext4_lock_group()"),
    Known("include/linux/spinlock.h", "context imbalance in 'ext4_free_data_in_buddy'", "the same, unchanged by us"),
    Known("include/trace/events/jbd2.h", "restricted blk_opf_t", "stock has it"),
)

# One fault for each checker, so that its silence means something.
_FAULTY = """// SPDX-License-Identifier: GPL-2.0-only
#include <linux/types.h>

int faulty(__be32 big);

/**
 * faulty - has a fault for each checker
 */
int faulty(__be32 big)
{
	int unused;

	unused = 1;
	return big;
}
"""
_FAULTS = {"sparse": "incorrect type in return expression", "gcc": "set but not used", "kernel-doc": "not described"}


def findings(said: str) -> list[tuple[str, str]]:
    """File and text of each, without the line, which changes."""
    found = [match for line in said.splitlines() if (match := _FINDING.match(line))]
    # A place that a warning only refers to is none.
    return [(each["file"], each["text"]) for each in found if not each["text"].startswith("note: ")]


def is_known(finding: tuple[str, str], known: Known) -> bool:
    file, text = finding
    return fnmatch.fnmatchcase(file, known.files) and re.search(known.text, text) is not None


def hold(found: list[tuple[str, str]], table: tuple[Known, ...]) -> None:
    new = sorted({each for each in found if not any(is_known(each, known) for known in table)})
    assert new == [], "mend these, or give each a row with its reason"
    gone = [known for known in table if not any(is_known(each, known) for each in found)]
    assert gone == [], "nothing of this is found any more: remove the rows"


def checkpatch(*patches: Path, folder: Path) -> list[tuple[str, str]]:
    """It keeps what it knows of the tree in the folder that it is run in."""
    series.pristine(set(), folder)
    tree = BUILD / "linux"
    program = tree / "scripts/checkpatch.pl"
    options = ("--strict", "--terse", "--show-types", "--showfile", "--no-summary")
    done = subprocess.run(
        ["perl", program, f"--root={tree}", *options, *patches],
        cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return findings(done.stdout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    faulty = tmp_path_factory.mktemp("faulty") / "faulty.c"
    faulty.write_text(_FAULTY)
    return findings(build.compiled_alone(["C=2", "W=1"], {"fs/jbd2/faulty.c": faulty}))


def test_checkpatch_has_nothing_new_to_say(tmp_path: Path) -> None:
    mails = series.write(tmp_path / "series")
    hold(checkpatch(*mails, folder=tmp_path), CHECKPATCH)


def test_sparse_gcc_and_kernel_doc_have_nothing_new_to_say(compiled: list[tuple[str, str]]) -> None:
    hold([each for each in compiled if each[0] != "fs/jbd2/faulty.c"], COMPILED)


def test_without_the_option_nothing_of_it_is_called() -> None:
    """A kernel without CONFIG_JBD2_LAZY links: what upstream's files call of us is gone with it."""
    ours = {name for name in build.watched() if Path(name).match("fs/jbd2/lazy*.c") or Path(name).match("jmap*.c")}
    texts = [path.read_text() for path in build.fragments("main")]
    off = [re.sub(r"^CONFIG_JBD2_LAZY\w*=y$", "", text, flags=re.MULTILINE) for text in texts]
    assert off != texts
    said = build.compiled_alone(["W=1"], {}, texts=[*off, "# CONFIG_JBD2_LAZY is not set\n"], without=ours)
    assert "CONFIG_JBD2_LAZY=y" not in (build.LINT / ".config").read_text()
    theirs = [build.LINT / Path(name).with_suffix(".o") for name in build.watched() if name not in ours]
    calls = subprocess.run(["nm", "-A", "-u", *theirs], capture_output=True, text=True, check=True).stdout
    assert "jbd2_journal_get_write_access" in calls
    assert [line for line in calls.splitlines() if re.search(r" (__)?jbd2_(lazy|jmap|snap)_", line)] == []
    assert [each for each in findings(said) if "lazy" in each[1]] == []


@pytest.mark.parametrize("checker", _FAULTS)
def test_each_of_them_sees_a_fault(compiled: list[tuple[str, str]], checker: str) -> None:
    assert [text for file, text in compiled if file == "fs/jbd2/faulty.c" and _FAULTS[checker] in text] != []


def test_checkpatch_sees_a_fault(tmp_path: Path) -> None:
    patch = tmp_path / "0001.patch"
    lines = _FAULTY.replace("\tunused = 1;", "\tunused=1;").splitlines()
    patch.write_text(
        "From: A <a@localhost>\nSubject: [PATCH] jbd2: a fault\n\nWhy.\n\nSigned-off-by: A <a@localhost>\n---\n"
        f"diff --git a/fs/jbd2/faulty.c b/fs/jbd2/faulty.c\n--- /dev/null\n+++ b/fs/jbd2/faulty.c\n"
        f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    )
    assert [text for _, text in checkpatch(patch, folder=tmp_path) if text.startswith("ERROR:SPACING: ")] != []
