# SPDX-License-Identifier: MIT OR Apache-2.0
"""A build's trace is read from strace's lines."""

from pathlib import Path

import pytest

from shingle.catalogue import build_trace
from shingle.failure import Failure

TREE = Path("/tree")
BEFORE = {"Makefile": 40, "a.c": 900, "sub": None, "sub/b.c": 100}
EXITED = "+++ exited with 0 +++"


def told(us: int) -> str:
    return f"getrusage(RUSAGE_SELF, {{ru_utime={{tv_sec=0, tv_usec={us}}}, ru_stime={{tv_sec=0, tv_usec=7}}, ...}}) = 0"


def log(*lines: tuple[int, int, str]) -> list[str]:
    """Lines of process, microsecond and text; what is a call takes one microsecond."""
    return [
        f"{pid} 100.{us:06} {text}{'' if text.startswith('+++') or text.endswith('>') else ' <0.000001>'}\n"
        for pid, us, text in lines
    ]


# make (1) has a shell write a header (2), then a compiler with a child (3, 4), which reads it.
LOG = log(
    (1, 0, 'execve("/usr/bin/make", ["make"], 0x7 /* 9 vars */) = 0'),
    (1, 10, 'openat(AT_FDCWD</tree>, "Makefile", O_RDONLY) = 3</tree/Makefile>'),
    (1, 11, 'read(3</tree/Makefile>, ""..., 4096) = 40'),
    (1, 20, "vfork() = 2"),
    (1, 21, "wait4(-1,  <unfinished ...>"),
    (2, 30, 'execve("/bin/sh", ["sh"], 0x7 /* 9 vars */) = 0'),
    (2, 40, 'openat(AT_FDCWD</tree>, "gen.h", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</tree/gen.h>'),
    (2, 41, "dup2(3</tree/gen.h>, 1) = 1</tree/gen.h>"),
    (2, 42, "close(3</tree/gen.h>) = 0"),
    (2, 43, 'write(1</tree/gen.h>, ""..., 12) = 12'),
    (2, 50, EXITED),
    (1, 60, "<... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 2 <0.000039>"),
    (1, 70, "vfork() = 3"),
    (3, 80, 'execve("/usr/bin/gcc", ["gcc"], 0x7 /* 9 vars */) = 0'),
    (3, 85, 'openat(AT_FDCWD</tree>, "a.h", O_RDONLY) = -1 ENOENT (No such file or directory)'),
    (3, 90, "vfork() = 4"),
    (4, 91, 'openat(AT_FDCWD</tree>, "a.c", O_RDONLY) = 3</tree/a.c>'),
    (4, 92, 'read(3</tree/a.c>, ""..., 8192) = 900'),
    (4, 93, 'openat(AT_FDCWD</tree>, "sub/../gen.h", O_RDONLY) = 4</tree/gen.h>'),
    (4, 94, "mmap(NULL, 12, PROT_READ, MAP_PRIVATE, 4</tree/gen.h>, 0) = 0x7f00"),
    (4, 50_000, 'openat(AT_FDCWD</tree>, "a.o", O_RDWR|O_CREAT|O_TRUNC, 0666) = 5</tree/a.o>'),
    (4, 50_001, 'write(5</tree/a.o>, ""..., 64) = 64'),
    (4, 50_002, "lseek(5</tree/a.o>, 4096, SEEK_SET) = 4096"),
    (4, 50_003, 'write(5</tree/a.o>, ""..., 100) = 100'),
    (4, 50_004, "lseek(5</tree/a.o>, 0, SEEK_SET) = 0"),
    (4, 50_005, 'write(5</tree/a.o>, ""..., 128) = 128'),
    (4, 50_006, "close(5</tree/a.o>) = 0"),
    (4, 50_007, 'rename("a.o", "sub/a.o") = 0'),
    (4, 50_100, told(25_000)),
    (4, 50_101, EXITED),
    (3, 50_200, EXITED),
    (1, 60_000, EXITED),
)


def jobs() -> list[build_trace.Job]:
    return build_trace.jobs_of(TREE, BEFORE, LOG)


def test_jobs_are_what_make_starts_and_wait_for_what_they_read() -> None:
    assert [job.after for job in jobs()] == [set(), {0}]


def test_what_make_does_goes_to_the_job_that_it_starts_next() -> None:
    assert jobs()[0].operations[0] == ("r", "Makefile", 40)


def test_a_shell_opens_what_its_command_writes() -> None:
    assert jobs()[0].operations[1:] == [("w", "gen.h", "ct", 0, 12)]


def test_a_file_is_written_in_pieces_that_do_not_touch() -> None:
    written = [operation for operation in jobs()[1].operations if operation[0] in "wn"]
    assert written == [("w", "a.o", "ct", 0, 128, 4096, 100), ("n", "a.o", "sub/a.o")]


def test_what_failed_is_left_out() -> None:
    read = [operation for operation in jobs()[1].operations if operation[0] == "r"]
    assert read == [("r", "a.c", 900), ("r", "gen.h", 12)]


def test_computing_is_the_user_time_that_a_process_tells() -> None:
    """Half of the time between the compiler's calls, where these lie; others tell none."""
    computed = [int(operation[1]) for operation in jobs()[1].operations if operation[0] == "t"]
    assert sum(computed) == pytest.approx(25_000, abs=2)
    assert computed[0] == pytest.approx(25_000, rel=0.01)


def test_a_trace_can_be_read_back(tmp_path: Path) -> None:
    target = tmp_path / "build.xz"
    build_trace.write(target, build_trace.Trace(dict(BEFORE), jobs()))
    lines = build_trace.text(target).decode().splitlines()
    assert lines[:6] == [build_trace.MAGIC, "40 Makefile", "900 a.c", "- sub", "100 sub/b.c", "+ gen.h"]
    assert lines[lines.index("job 0") + 1] == "r 1 900"


def test_a_build_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    target = tmp_path / "build.xz"
    with pytest.raises(Failure):
        build_trace.record(tmp_path, ["false"], target)
    assert not target.exists()
