# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the kernel complained of since it booted: each kind of message, and how often. Runs inside the machine.

complaints.py REPORT
"""

import collections
import json
import re
import subprocess
import sys

_LEVELS = "--level=emerg,alert,crit,err,warn"


def main(report: str) -> None:
    said = subprocess.run(["dmesg", "--notime", _LEVELS], stdout=subprocess.PIPE, check=True).stdout.decode()
    kinds = collections.Counter(re.sub(r"\b(0x)?[0-9]+\b", "#", line) for line in said.splitlines())
    with open(report, "w") as file:  # noqa: PTH123 - starts faster
        json.dump({"name": "complaints", "args": {}, "complaints": kinds}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
