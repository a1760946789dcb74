# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ages a file system: fills it, then deletes and makes files in turn. Runs inside the machine, on its own.

Files that a user would fill with data are only allocated (fallocate), so that terabytes take seconds; small
files and directories are written. Sizes are spread evenly on a logarithmic scale. Every choice comes from the seed.

    age.py DIRECTORY FILL ROUNDS SHARE SEED
"""

import os
import random
import sys

_SMALL_MAX = 64 << 10
_LARGE_MIN, _LARGE_MAX = 1 << 20, 4 << 30
# Of a hundred files this many are small: most files are, most bytes are not in them.
_SMALL_IN_100 = 60
_FILES_IN_DIRECTORY = 64


class Tree:
    """The files so far, and how much of the file system they take."""

    def __init__(self, top: str, fill: float, seed: int) -> None:
        self.top = top
        self.fill = fill
        self.random = random.Random(seed)
        self.files: list[str] = []
        self.made = 0

    def used(self) -> float:
        status = os.statvfs(self.top)
        return 1 - status.f_bavail / status.f_blocks

    def make_until_full(self) -> None:
        while self.used() < self.fill:
            self._make()

    def _make(self) -> None:
        folder = os.path.join(self.top, f"{self.made // _FILES_IN_DIRECTORY:05}")  # noqa: PTH118 - starts faster
        if self.made % _FILES_IN_DIRECTORY == 0:
            os.mkdir(folder)  # noqa: PTH102
        path = f"{folder}/{self.made:07}"
        self.made += 1
        file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            if self.random.randrange(100) < _SMALL_IN_100:
                os.write(file, b"shingle " * self.random.randrange(1, _SMALL_MAX // 8))
            else:
                ratio = _LARGE_MAX / _LARGE_MIN
                os.posix_fallocate(file, 0, int(_LARGE_MIN * ratio ** self.random.random()))
        finally:
            os.close(file)
        self.files.append(path)

    def remove(self, share: float) -> None:
        self.random.shuffle(self.files)
        count = round(len(self.files) * share)
        for path in self.files[:count]:
            os.unlink(path)  # noqa: PTH108
        del self.files[:count]


def main(directory: str, fill: str, rounds: str, share: str, seed: str) -> None:
    os.mkdir(directory)  # noqa: PTH102
    tree = Tree(directory, float(fill), int(seed))
    tree.make_until_full()
    for _ in range(int(rounds)):
        tree.remove(float(share))
        os.sync()
        tree.make_until_full()
    os.sync()


if __name__ == "__main__":
    main(*sys.argv[1:])
