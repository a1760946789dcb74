# SPDX-License-Identifier: MIT OR Apache-2.0
"""What cannot be is refused in one sentence, with status 2, before anything is built or booted."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.build import build
from shingle.catalogue import personality
from shingle.cli import main
from shingle.failure import Failure
from shingle.paths import ROOT

COMPARE = ("compare", "--drive", "st8000as0002", "--workload", "MakeDirs")
FIO = "[global]\nioengine=psync\nsize=5m\ndirectory=/mnt\n[a]\nrw=randwrite\n"
PERSONALITY = (ROOT / "workloads/fileserver.toml").read_text()


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: object, **__: object) -> None:
        raise AssertionError("something was built")

    monkeypatch.setattr(build, "everything", built)


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main.cli, arguments)
    if isinstance(done.exception, Failure):
        assert done.exception.status == 2, done.exception
        return str(done.exception)
    assert done.exit_code == 2, f"{done.output}{done.exception!r}"
    return done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*COMPARE, "--fs", ""), "no file system was named"),
        ((*COMPARE, "--fs", "ext4", "--scale", "1e-9"), "expected 1e-05 to 100"),
        ((*COMPARE, "--fs", "ext4", "--scale", "0"), "a scale of 0 makes no sense"),
        (("run", "e01", "--scale", "0"), "a scale of 0 makes no sense"),
        ((*COMPARE, "--fs", "ext4", "--memory-mib", "1000000"), "1,000,000 MiB of memory does not fit this host"),
        ((*COMPARE, "--fs", "ext4", "--seed", "12345678901234567890123"), "is not in the range"),
        ((*COMPARE, "--fs", "ext4", "--name-ns", "10000000000000"), "is not in the range"),
        ((*COMPARE, "--fs", "ext4", "--capacity-gib", "99999999"), "st8000as0002 has 7,452 GiB"),
        ((*COMPARE, "--fs", "ext4", "--record", "/proc/x"), "/proc/x: "),
        ((*COMPARE, "--fs", "ext4", "--record", "/nonexistent/x"), "/nonexistent/x: No such file"),
        ((*COMPARE, "--fs", "ext4", "--figure", "/proc/x"), "/proc/x: "),
        (("draw", "e10", str(ROOT / "README.md"), "stem"), "README.md, line 1: no JSON"),
        (("probe", "--drive", "st8000as0002", "/dev/sdb"), "no two of them"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_an_impossible_command_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.fio", FIO.replace("psync", "nosuch"), "mine.fio, line 2: fio knows no ioengine 'nosuch'"),
        ("mine.fio", FIO.replace("size=5m", "foo=3"), "mine.fio, line 3: fio does not take it: Bad option"),
        ("mine.fio", FIO.replace("directory=/mnt\n", ""), "mine.fio, line 4: the job [a] has no directory"),
        ("mine.fio", FIO.replace("=/mnt", "=/home"), "mine.fio, line 4: directory=/home is not below /mnt"),
        ("mine.toml", PERSONALITY.replace("entries = 64_000", "entries = -1"), "line 11: entries = -1"),
        ("mine.toml", PERSONALITY.replace("entries = 64_000", "entries = 0"), "line 11: entries = 0"),
        (
            "mine.toml",
            PERSONALITY.replace("count = 50", "count = 100_000"),
            "line 18: count = 100000: expected at most 1,000",
        ),
        (
            "mine.toml",
            PERSONALITY.replace('fileset = "bigfileset"', 'fileset = "other"'),
            "line 20: there is no fileset called 'other'",
        ),
        ("mine.toml", "durations = 1\n" + PERSONALITY, "line 1: there is no key called 'durations'"),
        ("mine.toml", PERSONALITY.replace("mean_bytes", "mean"), "there is no key called 'mean'"),
        ("mine.toml", PERSONALITY.replace("{ do", "{ to = 1, do", 1), "there is no key called 'to'"),
        ("mine.toml", PERSONALITY.replace('do = "c', 'do = "k', 1), "no flow operation called 'kreatefile'"),
        ("mine.toml", PERSONALITY.replace("3600", '"an hour"'), "duration_s = an hour: expected type number"),
        ("mine.toml", None, "No such file or directory; expected"),
        ("mine.sh", None, "No such file or directory; expected"),
        ("mine.sh", "if true\n", "mine.sh: 2: Syntax error"),
    ],
    ids=lambda each: each if each is not None and len(each) < 40 else None,
)
def test_a_workload_of_one_s_own_is_checked_first(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    assert said in refused("compare", "--drive", "st8000as0002", "--fs", "ext4", "--workload", str(file))


FLOWS = """\
duration_s = 1 # count = 3
[[threads]]
flow = [{ do = "fsync", fd = 1 },
  { do = "statfile", fileset = "count = 9" },
  { do = "fsync", fd = 2 } ]
count = 1
[[threads]] # count = 4
count = 2
flow = []
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("threads", 0, "count"), 6),
        (("threads", 1, "count"), 8),
        (("threads", 0, "flow", 0, "fd"), 3),
        (("threads", 0, "flow", 2, "fd"), 5),
        (("threads", 1, "flow"), 9),
        (("threads", 0, "flow", 1), 3),
    ],
    ids=str,
)
def test_the_line_is_that_of_the_place_and_not_of_the_word(place: tuple[str | int, ...], line: int) -> None:
    assert personality._line(FLOWS, tomllib.loads(FLOWS), place) == line


def test_another_release_of_the_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "pinned_version", lambda: "6.13.117")
    with pytest.raises(Failure, match=r"Linux 6\.12\.1; kernel/UPSTREAM names 6\.13\.117"):
        build._check_release("6.12.1")
    monkeypatch.setattr(build, "pinned_version", lambda: "6.12.117")
    build._check_release("6.12.1")
