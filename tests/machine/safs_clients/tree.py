# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH108, PTH114, PTH115, PTH118, PTH123, PTH211
"""tree.py make DIRECTORY SEED FILES | change DIRECTORY SEED | list DIRECTORY.

A tree of all kinds of files, and what is in it.
"""

import hashlib
import os
import random
import stat
import sys

START_NS = 1_600_000_000_123_456_789


def make(base: str, choose: random.Random, files: int) -> None:
    os.makedirs(base)
    directories = [base]
    for number in range(files):
        directory = choose.choice(directories)
        name = choose.choice(["", " with space ", "ä", "\n", "x" * 200]) + f"{number}"
        path = os.path.join(directory, name)
        kind = choose.choice(["directory", "symlink", "link", "fifo", "sparse", *["file"] * 7])
        if kind == "directory":
            os.mkdir(path)
            directories.append(path)
        elif kind == "symlink":
            os.symlink(choose.choice(["0", "../nowhere", "/etc/passwd", "t" * 1000]), path)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "link" and number > 0:
            plain = [entry.path for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
            if plain:
                os.link(choose.choice(sorted(plain)), path)
        else:
            with open(path, "wb") as file:
                if kind == "sparse":
                    file.seek(choose.randrange(10_000_000))
                size = choose.choice([0, 1, 4095, 4096, 4097, choose.randrange(300_000), 2_000_000])
                file.write(choose.randbytes(size))
    dress(base, choose)


def dress(base: str, choose: random.Random) -> None:
    """Owners, modes, attributes, times; what is inside a directory comes before it."""
    for directory, subdirectories, files in os.walk(base, topdown=False):
        subdirectories.sort()
        for name in [*sorted(files), "."]:
            path = os.path.join(directory, name)
            os.lchown(path, choose.randrange(70_000), choose.randrange(70_000))
            if not os.path.islink(path):
                os.chmod(path, choose.randrange(0o10000))
                if not stat.S_ISFIFO(os.lstat(path).st_mode):
                    os.setxattr(path, "user.colour", choose.randbytes(choose.randrange(300)))
            time_ns = START_NS + choose.randrange(10**17)
            os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


def change(base: str, choose: random.Random) -> None:
    """What an hour of work does: files grow, are replaced, moved and removed."""
    plain = []
    for directory, subdirectories, files in os.walk(base):
        subdirectories.sort()
        plain += [os.path.join(directory, name) for name in sorted(files)]
    for path in plain:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
        act = choose.choice(["append", "replace", "move", "remove", *["leave"] * 4])
        if act == "append" and is_file:
            with open(path, "ab") as file:
                file.write(choose.randbytes(5000))
        elif act == "replace" and is_file:
            with open(path, "wb") as file:
                file.write(choose.randbytes(50_000))
        elif act == "move":
            os.rename(path, path[: path.rindex("/")] + "/moved" + str(choose.randrange(10**9)))
        elif act == "remove":
            os.unlink(path)


def listed(base: str) -> None:
    """A line for each: path, type and mode, owner, links, size, modification, attributes, contents."""
    first: dict[int, str] = {}
    for directory, subdirectories, files in os.walk(base):
        subdirectories.sort()
        for name in sorted([*files, *subdirectories, "."]):
            path = os.path.normpath(os.path.join(directory, name))
            of = os.lstat(path)
            is_file, is_directory = stat.S_ISREG(of.st_mode), stat.S_ISDIR(of.st_mode)
            place = os.path.relpath(path, base)
            same = first.setdefault(of.st_ino, place)
            attributes = {key: os.getxattr(path, key, follow_symlinks=False).hex() for key in sorted(names(path))}
            held = ""
            if is_file:
                with open(path, "rb") as file:
                    held = hashlib.file_digest(file, "sha256").hexdigest()
            elif stat.S_ISLNK(of.st_mode):
                held = os.readlink(path)
            links, size = (0, 0) if is_directory else (of.st_nlink, of.st_size)
            print([place, oct(of.st_mode), of.st_uid, of.st_gid, links, same, size, of.st_mtime_ns, attributes, held])


def names(path: str) -> list[str]:
    return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]


act, base = sys.argv[1], sys.argv[2]
if act == "list":
    listed(base)
elif act == "make":
    make(base, random.Random(sys.argv[3]), int(sys.argv[4]))
else:
    change(base, random.Random(sys.argv[3]))
