# SPDX-License-Identifier: MIT OR Apache-2.0
"""Test suites for a file system, each test with its end: passed, failed or skipped. Runs inside the machine.

They are what Debian and the registry of crates have of the parts of LTP that concern files: fsx, pjdfstest, the
stressors of stress-ng's class "filesystem" and a few more that work on files, fio, which verifies what it wrote, and
filefrag. All are bounded by operations: virtual time stands still while a thread spins. Left out are stressors that
spin (inode-flags), that try until it works (fpunch, fallocate), whose single operation takes half of the time of all
suites (iomix, link, symlink), and that need what no disk has (bind-mount, binderfs, eventfd, ioprio, procfs). FIEMAP
is a suite of its own, without stress-ng's fiemap and revio: where it fails, the file system is read-only from then
on.

    suites.py SUITE DIRECTORY SEED REPORT
"""

import json
import os
import re
import subprocess
import sys

_PASSED, _FAILED, _SKIPPED = "passed", "failed", "skipped"
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - starts faster
_SCRATCH = "/run"
# Virtual, for what never comes to its end.
_LIMIT_S = 20

_FSX_OPERATIONS = 300
# What fsx does beside reads, writes and truncations, all of which it always does.
_FSX = (
    "nothing", "mapread", "mapwrite", "posix_fallocate", "punch_hole", "copy_file_range", "sendfile", "posix_fadvise",
    "close_open", "invalidate", "fsync", "fdatasync",
)  # fmt: skip
_FSX_SETTINGS = """\
flen = 262144
[opsize]
min = 1
max = 65536
[weights]
"""

# Nothing is mounted anew: mount.nilfs2 starts one more cleaner each time. So the tests of EROFS are skipped.
_PJDFSTEST_SETTINGS = """\
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
_PJDFSTEST_LINE = re.compile(r"^(\S+) +(ok|FAILED|skipped)$")
_PJDFSTEST_ENDS = {"ok": _PASSED, "FAILED": _FAILED, "skipped": _SKIPPED}

_STRESS_OPERATIONS = 1
_STRESSORS = (
    "access", "aiol", "chattr", "chdir", "chmod", "chown", "copy-file", "dentry", "dir", "dirdeep", "dirmany",
    "dnotify", "dup", "fanotify", "fcntl", "file-ioctl", "filename", "flock", "fsize", "fstat",
    "getdent", "handle", "hdd", "inotify", "io", "lease", "locka", "lockf", "lockofd", "mknod", "mmap",
    "msync", "open", "readahead", "rename", "seek", "sendfile", "splice", "sync-file", "touch", "utime",
    "verity", "xattr",
)  # fmt: skip
# Many of them take hundreds of megabytes if they are not told.
_MEGABYTE = ("dirmany", "hdd", "mmap", "msync", "readahead", "splice", "sync-file")
_STRESS_SIZES = {
    "chdir": ("dirs", "64"),
    "copy-file": ("bytes", "128m"),
    "seek": ("size", "1m"),
    "sendfile": ("size", "1m"),
    **dict.fromkeys(_MEGABYTE, ("bytes", "1m")),
}
# stress-ng's own: failed, no resources, not implemented.
_STRESS_ENDS = {0: _PASSED, 3: _SKIPPED, 4: _SKIPPED}

_FIO_BYTES = "512k"
_FIO = tuple(
    (pattern, engine, direct)
    for pattern in ("write", "randwrite", "rw", "randrw")
    for engine, direct in (("psync", 0), ("psync", 1), ("libaio", 1), ("mmap", 0))
)

Ends = dict[str, str]


def _run(argv: list[str], cwd: str) -> tuple[int, str]:
    """Status and what was said."""
    done = subprocess.run(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def _put(name: str, text: str) -> str:
    path = f"{_SCRATCH}/{name}"
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)
    return path


def fsx(directory: str, seed: int) -> Ends:
    ends = {}
    for name in _FSX:
        own = "" if name == "nothing" else f"{name} = 10.0\n"
        # The crate's own weights are those of no operation that a file system may lack.
        settings = _put("fsx.toml", _FSX_SETTINGS + own)
        argv = [f"{_HERE}/fsx", "-f", settings, "-N", str(_FSX_OPERATIONS), "-S", str(seed), "-P", _SCRATCH]
        status, _ = _run([*argv, f"{directory}/fsx"], directory)
        ends[name] = _FAILED if status else _PASSED
    return ends


def pjdfstest(directory: str, _seed: int) -> Ends:
    settings = _put("pjdfstest.toml", _PJDFSTEST_SETTINGS)
    _, said = _run([f"{_HERE}/pjdfstest", "-p", directory, "-s", _SCRATCH, "-c", settings], directory)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    return {found[1]: _PJDFSTEST_ENDS[found[2]] for line in plain if (found := _PJDFSTEST_LINE.match(line))}


def stress(directory: str, seed: int) -> Ends:
    ends = {}
    for name in _STRESSORS:
        size = _STRESS_SIZES.get(name)
        argv = ["stress-ng", f"--{name}", "1", f"--{name}-ops", str(_STRESS_OPERATIONS), "--seed", str(seed)]
        argv += [] if size is None else [f"--{name}-{size[0]}", size[1]]
        status, _ = _run([*argv, "--verify", "--temp-path", directory, "-t", str(_LIMIT_S)], directory)
        ends[name] = _STRESS_ENDS.get(status, _FAILED)
    return ends


def fiemap(directory: str, _seed: int) -> Ends:
    """Where the one block of a file lies that has a hole in front of it or not, and is on the disk or not."""
    ends = {}
    for name, blocks, flush in (("whole", 0, False), ("hole, synced", 10, True), ("hole", 10, False)):
        with open(f"{directory}/{name}", "wb") as file:  # noqa: PTH123
            os.pwrite(file.fileno(), b"x" * 4096, blocks * 4096)
            if flush:
                os.fsync(file.fileno())
        _, said = _run(["filefrag", name], directory)
        ends[name] = _PASSED if ": 1 extent found" in said else _FAILED
    return ends


def fio(directory: str, seed: int) -> Ends:
    """All jobs in one fio, one after the other: its start reads the clock so often that it takes longer than a job."""
    ends = {}
    # fio's own clock is the processor's, which does not know virtual time.
    argv = ["fio", f"--directory={directory}", "--output-format=json", "--clocksource=clock_gettime", "--thread"]
    argv += ["--bs=4k", f"--size={_FIO_BYTES}", "--verify=crc32c", "--verify_fatal=1"]
    argv += ["--randrepeat=0", f"--randseed={seed}"]
    for pattern, engine, direct in _FIO:
        name = f"{pattern} {engine}{' direct' if direct else ''}"
        ends[name] = _FAILED
        argv += [f"--name={name}", "--stonewall", f"--rw={pattern}", f"--ioengine={engine}", f"--direct={direct}"]
    _, said = _run(argv, directory)
    for each in json.loads(said[said.index("{\n") :])["jobs"]:
        ends[each["jobname"]] = _FAILED if each["error"] else _PASSED
    return ends


_SUITES = {"fsx": fsx, "pjdfstest": pjdfstest, "stress-ng": stress, "fio": fio, "fiemap": fiemap}


def main(suite: str, directory: str, seed: str, report: str) -> None:
    ends = _SUITES[suite](directory, int(seed))
    with open(report, "w") as file:  # noqa: PTH123
        json.dump({"name": suite, "args": {"seed": int(seed)}, "ends": ends}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
