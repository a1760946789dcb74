# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH118, PTH120, PTH123
"""log_writer.py FILE LINES NOTED ROTATION: numbered lines, each synced, then noted where a power cut leaves it.

ROTATION is `handler` (Python's own, which renames and creates), or logrotate's `create` or `copytruncate`.
"""

import logging.handlers
import os
import subprocess
import sys

file, lines, noted, rotation = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
LINE_BYTES = 200
EVERY = 25  # lines
KEPT = 5

note = os.open(noted, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
handler: logging.FileHandler
if rotation == "handler":
    handler = logging.handlers.RotatingFileHandler(file, maxBytes=EVERY * LINE_BYTES, backupCount=KEPT)
else:
    handler = logging.handlers.WatchedFileHandler(file)
    with open("/run/rotate.conf", "w") as conf:
        conf.write(f"{file} {{\n rotate {KEPT}\n nocompress\n {rotation}\n}}\n")
for number in range(lines):
    text = f"{number:08} " + "x" * (LINE_BYTES - 10)
    handler.emit(logging.makeLogRecord({"msg": text}))
    os.fsync(handler.stream.fileno())
    os.pwrite(note, f"{number:>12}\n".encode(), 0)
    os.fsync(note)
    if rotation != "handler" and number % EVERY == EVERY - 1:
        state = os.path.join(os.path.dirname(file), "state")
        subprocess.run(["/usr/sbin/logrotate", "--force", "--state", state, "/run/rotate.conf"], check=True)
