#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Overwrites random 4 KiB of a file, each synced, ten a second, until a file appears; then says how that went.

overwrite.py FILE STOP
"""

import os
import random
import sys
import time
from pathlib import Path

RATE = 10
BLOCK = 4096


def main() -> int:
    name, stop = sys.argv[1:]
    chance, times = random.Random(1), []
    fd = os.open(name, os.O_WRONLY | os.O_DSYNC)
    blocks = os.fstat(fd).st_size // BLOCK
    errors = 0
    began = time.monotonic()
    while not Path(stop).exists():
        before = time.monotonic()
        try:
            os.pwrite(fd, bytes(BLOCK), chance.randrange(blocks) * BLOCK)
        except OSError:
            errors += 1
        times.append(time.monotonic() - before)
        time.sleep(max(0.0, began + len(times) / RATE - time.monotonic()))
    times.sort()
    p99 = times[len(times) * 99 // 100] if times else 0.0
    print(f"{len(times)} overwrites, p99 {p99:.3f} s, longest {max(times, default=0.0):.3f} s, {errors} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
