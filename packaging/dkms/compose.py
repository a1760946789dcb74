#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Composes the sources of the module ext4lazy, as DKMS builds them.

The distribution's kernel source gives fs/ext4, fs/jbd2 and their headers;
kernel/ gives our files and patches; what would clash with the kernel's own ext4
and jbd2 gets another name. The standard library and patch(1) are all it needs:
debian/rules runs it where the rest of the lab is not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What the module is made of, below the top folder of the kernel source.
_FOLDERS = ("fs/ext4/", "fs/jbd2/")
_FILES = (
    "include/linux/jbd2.h",
    "include/linux/journal-head.h",
    "include/trace/events/ext4.h",
    "include/trace/events/jbd2.h",
    "include/uapi/linux/ext4.h",
)
_BESIDE = ("Kbuild", "one-module.h", "main.c")


class Failure(Exception):
    """Something outside this program is not as expected; the text is the sentence for the user."""


@dataclass(frozen=True)
class Rename:
    """A text that a file holds so many times, and what takes its place."""

    file: str
    old: str
    new: str
    times: int = 1


def _event_header(name: str) -> tuple[Rename, ...]:
    """Events of a system of their own: two modules' events of one name collide in tracefs."""
    file = f"include/trace/events/{name}.h"
    tail = "#include <trace/define_trace.h>"
    return (
        Rename(file, f"#define TRACE_SYSTEM {name}\n", f"#define TRACE_SYSTEM {name.replace('ext4', '')}ext4lazy\n"),
        Rename(file, tail, f"#undef TRACE_INCLUDE_FILE\n#define TRACE_INCLUDE_FILE {name}\n{tail}"),
    )


RENAMES = (
    # The type's name, under which modprobe and mount find it. ext2 and ext3 stay with the kernel's ext4.
    Rename("fs/ext4/super.c", '\t.name\t\t\t= "ext4",', '\t.name\t\t\t= "ext4lazy",'),
    Rename("fs/ext4/super.c", 'MODULE_ALIAS_FS("ext4");', 'MODULE_ALIAS_FS("ext4lazy");'),
    Rename("fs/ext4/super.c", 'MODULE_ALIAS_FS("ext3");\n', ""),
    Rename("fs/ext4/super.c", 'MODULE_ALIAS("ext3");\n', ""),
    Rename("fs/ext4/super.c", "\tregister_as_ext3();\n", ""),
    Rename("fs/ext4/super.c", "\tunregister_as_ext3();\n", "", times=2),
    Rename("fs/ext4/super.c", '"Fourth Extended Filesystem"', '"Fourth Extended Filesystem with journal_lazy"'),
    # One module, one beginning: main.c.
    Rename("fs/ext4/super.c", "static int __init ext4_init_fs(void)", "int __init ext4lazy_init_fs(void)"),
    Rename("fs/ext4/super.c", "static void __exit ext4_exit_fs(void)", "void ext4lazy_exit_fs(void)"),
    Rename("fs/ext4/super.c", "module_init(ext4_init_fs)\nmodule_exit(ext4_exit_fs)\n", ""),
    Rename("fs/jbd2/journal.c", "static int __init journal_init(void)", "int __init ext4lazy_init_journal(void)"),
    Rename("fs/jbd2/journal.c", "static void __exit journal_exit(void)", "void ext4lazy_exit_journal(void)"),
    Rename("fs/jbd2/journal.c", "module_init(journal_init);\nmodule_exit(journal_exit);\n", ""),
    Rename("fs/jbd2/journal.c", 'MODULE_DESCRIPTION("Generic filesystem journal-writing module");\n', ""),
    Rename("fs/jbd2/journal.c", 'MODULE_SOFTDEP("pre: crypto-crc32c");\n', ""),
    # Places in sysfs and procfs.
    Rename("fs/ext4/sysfs.c", 'kobject_create_and_add("ext4", fs_kobj)', 'kobject_create_and_add("ext4lazy", fs_kobj)'),
    Rename("fs/ext4/sysfs.c", '"fs/ext4"', '"fs/ext4lazy"'),
    Rename("fs/jbd2/journal.c", '"fs/jbd2"', '"fs/ext4lazy-jbd2"'),
    # Caches; those called after a structure are for one-module.h.
    Rename("fs/ext4/super.c", '"ext4_inode_cache"', '"ext4lazy_inode_cache"'),
    Rename("fs/ext4/mballoc.c", '"ext4_groupinfo_', '"ext4lazy_groupinfo_', times=8),
    Rename("fs/jbd2/transaction.c", '"jbd2_transaction_s"', '"ext4lazy_transaction_s"'),
    Rename("fs/jbd2/journal.c", '"jbd2_journal_head"', '"ext4lazy_journal_head"'),
    *(Rename("fs/jbd2/journal.c", f'"jbd2_{1 << n}k"', f'"ext4lazy_{1 << n}k"') for n in range(8)),
    *_event_header("ext4"),
    *_event_header("jbd2"),
)


def unpack(tarball: Path, tree: Path) -> str:
    """Takes what the module needs out of the kernel source; returns the version of that kernel."""
    version = None
    left = set(_FILES)
    with tarfile.open(tarball) as archive:
        for member in archive:
            name = member.name.removeprefix("./").partition("/")[2]
            if not member.isfile() or not (name == "Makefile" or name in left or name.startswith(_FOLDERS)):
                continue
            source = archive.extractfile(member)
            assert source is not None
            content = source.read()
            if name == "Makefile":
                version = _version(content.decode(), tarball)
                continue
            left.discard(name)
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(content)
    if version is None or left or not (tree / "fs/jbd2/journal.c").exists():
        raise Failure(f"{tarball} is no kernel source: expected Makefile, fs/ext4, fs/jbd2 and their headers.")
    return version


def _version(makefile: str, tarball: Path) -> str:
    fields = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", makefile, flags=re.MULTILINE))
    if len(fields) != 3:
        raise Failure(f"the Makefile in {tarball} declares no version of Linux.")
    return f"{fields['VERSION']}.{fields['PATCHLEVEL']}.{fields['SUBLEVEL']}"


def add_ours(kernel: Path, tree: Path, *, found: str, pinned: str) -> None:
    """Our whole files, then our patches."""
    for folder in ("fs", "include"):
        shutil.copytree(kernel / folder, tree / folder, dirs_exist_ok=True)
    for patch in sorted((kernel / "patches").glob("*.patch")):
        text = _only_module(patch.read_text())
        if not text:
            continue
        done = subprocess.run(
            ["patch", "-p1", "-s", "--fuzz=0", "--no-backup-if-mismatch", "-d", str(tree)],
            input=text,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stdout)
            which = f"Linux {found}" if found == pinned else f"Linux {found}; it is made for Linux {pinned}"
            raise Failure(f"{patch.name} does not apply to {which}.")


def _only_module(patch: str) -> str:
    """The part of a patch that touches the module's files: it holds no Documentation."""
    parts = re.split(r"(?=^diff --git )", patch, flags=re.MULTILINE)[1:]
    ours = re.compile(r"diff --git a/(\S+)")
    kept = []
    for part in parts:
        match = ours.match(part)
        assert match is not None
        if match[1].startswith(_FOLDERS) or match[1] in _FILES:
            kept.append(part)
    return "".join(kept)


def rename(tree: Path, renames: Iterable[Rename]) -> None:
    """Each must be found as often as it says: a kernel that changed there is noticed here, not when it is loaded."""
    for each in renames:
        path = tree / each.file
        text = path.read_text()
        if text.count(each.old) != each.times:
            raise Failure(
                f"{each.file} holds {each.old.strip()!r} {text.count(each.old)} times: expected {each.times},"
                " so that it can be renamed for the module."
            )
        path.write_text(text.replace(each.old, each.new))


def check_caches(tree: Path) -> None:
    """No cache keeps the name of one of the kernel's."""
    for path in sorted(tree.glob("fs/*/*.c")):
        for name in re.findall(r'kmem_cache_create\w*\(\s*"([^"]+)"', path.read_text()):
            if not name.startswith("ext4lazy_"):
                raise Failure(f"{path.relative_to(tree)} names a cache {name}: expected ext4lazy_..., by a rename.")


def compose(tarball: Path, kernel: Path, out: Path, version: str) -> str:
    """Writes the module's sources to `out`, which must not exist; returns the kernel version that they come from."""
    out.mkdir(parents=True)
    try:
        found = unpack(tarball, out)
        pinned = (kernel / "UPSTREAM").read_text().strip()
        if found != pinned:
            sys.stderr.write(f"compose: the kernel source is Linux {found}, ext4lazy is made for Linux {pinned}.\n")
        add_ours(kernel, out, found=found, pinned=pinned)
        rename(out, RENAMES)
        check_caches(out)
        for test in out.glob("fs/*/*-test.c"):
            test.unlink()
        for name in _BESIDE:
            shutil.copy(HERE / name, out / name)
        (out / "UPSTREAM").write_text(f"{found}\n")
        full = f"{version}+{found}"
        with (out / "one-module.h").open("a") as header:
            header.write(f'\n#define EXT4LAZY_VERSION "{full}"\n#define EXT4LAZY_FROM "{found}"\n')
        conf = (HERE / "dkms.conf").read_text()
        (out / "dkms.conf").write_text(conf.replace("@VERSION@", full).replace("@FROM@", found))
    except BaseException:
        shutil.rmtree(out)
        raise
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Composes the sources of the module ext4lazy.")
    parser.add_argument("--source", type=Path, required=True, help="the kernel source, a tar file")
    parser.add_argument("--kernel", type=Path, required=True, help="our folder kernel/")
    parser.add_argument("--version", required=True, help="the version of ext4lazy, without the kernel's")
    parser.add_argument("out", type=Path, help="a folder to be made")
    arguments = parser.parse_args()
    try:
        found = compose(arguments.source, arguments.kernel, arguments.out, arguments.version)
    except (Failure, OSError, tarfile.TarError) as failure:
        sys.stderr.write(f"compose: {failure}\n")
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
