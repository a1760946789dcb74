# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs in the machine: lets allocations fail below journal_lazy's functions, or below one that is named.

    failing.py mounts OPTIONS    mount, with the first allocation failing, then the second, … until none is left to fail
    failing.py start PERCENT [FUNCTION]
                                 from now on, of each hundred so many fail, in whatever task
    failing.py stop              prints how many did

Failures come from the kernel's own fault injection (failslab, fail_page_alloc) with its filter on the stack.
"""

import ctypes
import errno
import os
import re
import shutil
import sys
from pathlib import Path

DEBUG = "/sys/kernel/debug"
KINDS = ("failslab", "fail_page_alloc")
TIMES = 1_000_000
OURS = re.compile(r"(?:__)?(?:jbd2_)?(?:lazy|jmap|snap|scan|reader|scrub)_\w+")
# As many allocations as a mount may make before something is wrong with this test.
ALLOCATIONS = 5000
LIBC = ctypes.CDLL(None, use_errno=True)


def put(path: str, text: object) -> None:
    Path(path).write_text(str(text))


def get(path: str) -> str:
    return Path(path).read_text()


def code(function: str | None) -> tuple[int, int]:
    """The kernel's text of a function, or from the first of our functions in jbd2 to the end of the last."""
    lines = map(str.split, get("/proc/kallsyms").splitlines())
    symbols = sorted((int(address, 16), name) for address, kind, name in lines if kind in "tT")
    names = [name for _, name in symbols]
    if function is not None:
        at = names.index(function)
        return symbols[at][0], symbols[at + 1][0]
    # Linked one behind the other: jmap.o first, lazy_scrub.o last.
    first = next(at for at, name in enumerate(names) if name.startswith("jbd2_jmap_"))
    last = max(at for at, name in enumerate(names) if re.fullmatch(r"jbd2_lazy_scrub_\w+|scrub_\w+", name))
    ours = names[first : last + 1]
    strange = [name for name in ours if not OURS.fullmatch(name)]
    print(f"{len(ours)} functions, of which {len(strange)} have other names: {' '.join(strange[:40])}")
    return symbols[first][0], symbols[last + 1][0]


def prepare(percent: int, function: str | None = None) -> None:
    first, end = code(function)
    for kind in KINDS:
        for name, value in {
            "probability": 0,
            "interval": 1,
            "space": 0,
            "verbose": 0,
            "task-filter": "N",
            "ignore-gfp-wait": "N",
            "stacktrace-depth": 32,
            "require-start": hex(first),
            "require-end": hex(end),
            "times": TIMES,
        }.items():
            put(f"{DEBUG}/{kind}/{name}", value)
    put(f"{DEBUG}/fail_page_alloc/min-order", 0)
    for kind in KINDS:
        put(f"{DEBUG}/{kind}/probability", percent)


def failed() -> int:
    count = 0
    for kind in KINDS:
        put(f"{DEBUG}/{kind}/probability", 0)
        count += TIMES - int(get(f"{DEBUG}/{kind}/times"))
    return count


def fill_log(options: str) -> None:
    """A mount that went on without the option has emptied the log; this one leaves a log that takes work to read."""
    if LIBC.mount(b"/dev/shd0", b"/mnt", b"ext4", 0, options.encode()):
        sys.exit("cannot mount with memory")
    for number in range(200):
        Path(f"/mnt/log/{number % 20}").mkdir(parents=True, exist_ok=True)
        Path(f"/mnt/log/{number % 20}/{number}").touch()
        if number % 10 == 0:
            os.sync()
    shutil.rmtree("/mnt/log")
    if LIBC.umount2(b"/mnt", 0):
        sys.exit("cannot unmount with memory")


def mounts(options: str) -> None:
    """Every allocation of a mount fails once; the mount either works or says that there is no memory."""
    prepare(0)
    refused = worked = 0
    before = None
    for nth in range(1, ALLOCATIONS):
        fill_log(options)
        put("/proc/self/fail-nth", nth)
        result = LIBC.mount(b"/dev/shd0", b"/mnt", b"ext4", 0, options.encode())
        number = ctypes.get_errno()
        left = int(get("/proc/self/fail-nth"))
        put("/proc/self/fail-nth", 0)
        if result == 0:
            names = sorted(path.name for path in Path("/mnt").iterdir())
            before = before or names
            if names != before:
                sys.exit(f"allocation {nth}: other files than before")
            if LIBC.umount2(b"/mnt", 0) != 0:
                sys.exit(f"allocation {nth}: cannot unmount ({os.strerror(ctypes.get_errno())})")
            worked += left == 0
        elif left or number not in (errno.ENOMEM,):
            sys.exit(f"allocation {nth}: the mount failed with {os.strerror(number)}; {left} left")
        else:
            refused += 1
        if left:
            print(f"refused {refused}\nworked {worked}")
            return
    sys.exit(f"a mount made {ALLOCATIONS} allocations")


if __name__ == "__main__":
    if sys.argv[1] == "mounts":
        mounts(sys.argv[2])
    elif sys.argv[1] == "start":
        prepare(int(sys.argv[2]), *sys.argv[3:])
    else:
        print(f"failed {failed()}")
