#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Overwrites random 4 KiB of a file, each synced, ten a second, until a file appears. Runs inside the machine.

overwrite.py FILE STOP REPORT
"""

import json
import os
import random
import sys
import time
from pathlib import Path

RATE = 10
BLOCK = 4096


def main(file: str, stop: str, report: str) -> None:
    chance = random.Random(1)
    waits_ns: list[int] = []
    fd = os.open(file, os.O_WRONLY | os.O_DSYNC)
    blocks = os.fstat(fd).st_size // BLOCK
    errors = 0
    began = time.monotonic()
    while not waits_ns or not Path(stop).exists():
        before = time.monotonic_ns()
        try:
            os.pwrite(fd, bytes(BLOCK), chance.randrange(blocks) * BLOCK)
        except OSError:
            errors += 1
        waits_ns.append(time.monotonic_ns() - before)
        time.sleep(max(0.0, began + len(waits_ns) / RATE - time.monotonic()))
    waits_ns.sort()
    told = {
        "name": "overwrite",
        "args": {"rate": RATE, "bytes": BLOCK},
        "overwrites": len(waits_ns),
        "failed": errors,
        "p99_ns": waits_ns[len(waits_ns) * 99 // 100],
        "longest_ns": waits_ns[-1],
    }
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
