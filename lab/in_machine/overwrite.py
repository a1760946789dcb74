#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Overwrites random 4 KiB of a file, each synced, ten a second, until a file appears. Runs inside the machine.

    overwrite.py FILE STOP SEED REPORT

An overwrite that waits holds up no other, as with the users of a server: each is a thread's.
"""

import json
import os
import random
import sys
import threading
import time
from pathlib import Path

RATE = 10
BLOCK = 4096


def main(file: str, stop: str, seed: str, report: str) -> None:
    chance = random.Random(int(seed))
    waits_ns: list[int] = []
    errors: list[OSError] = []
    fd = os.open(file, os.O_WRONLY | os.O_DSYNC)
    blocks = os.fstat(fd).st_size // BLOCK

    def overwrite(block: int) -> None:
        before = time.monotonic_ns()
        try:
            os.pwrite(fd, bytes(BLOCK), block * BLOCK)
        except OSError as error:
            errors.append(error)
        waits_ns.append(time.monotonic_ns() - before)

    under_way: list[threading.Thread] = []
    began = time.monotonic()
    while not under_way or not Path(stop).exists():
        under_way.append(threading.Thread(target=overwrite, args=(chance.randrange(blocks),)))
        under_way[-1].start()
        time.sleep(max(0.0, began + len(under_way) / RATE - time.monotonic()))
    begun_ns = round((time.monotonic() - began) * 1e9)
    for each in under_way:
        each.join()
    waits_ns.sort()
    told = {
        "name": "overwrite",
        "args": {"rate": RATE, "bytes": BLOCK, "seed": int(seed)},
        "overwrites": len(waits_ns),
        "begun_ns": begun_ns,
        "failed": len(errors),
        "p99_ns": waits_ns[len(waits_ns) * 99 // 100],
        "longest_ns": waits_ns[-1],
    }
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
