# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs inside the machine: one JSON line for everything below a folder, in the order of names."""

import hashlib
import json
import os
import sys


def main(top: str) -> None:
    for folder, folders, files in os.walk(top):
        folders.sort()
        if "lost+found" in folders:
            folders.remove("lost+found")
        for name in sorted(folders + files):
            path = os.path.join(folder, name)  # noqa: PTH118 - starts faster than pathlib
            status = os.lstat(path)
            line = {"name": os.path.relpath(path, top), "mode": status.st_mode, "links": status.st_nlink}
            if name in files:
                with open(path, "rb") as file:  # noqa: PTH123
                    content = hashlib.sha256(file.read()).hexdigest()
                line |= {"size": status.st_size, "sha256": content, "mtime_ns": status.st_mtime_ns}
            print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1])
