# SPDX-License-Identifier: MIT OR Apache-2.0
"""`exec`: what cannot work is refused in one sentence, before anything is built; what is told of a command."""

import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shingle import paths
from shingle.build import build
from shingle.catalogue import command
from shingle.cli import main
from shingle.failure import Failure
from shingle.machine import spin
from shingle.paths import run_directory
from shingle.runs import execute

SCRIPT = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with what wrong uses need; nothing may be built, and runs of others are elsewhere."""

    def built(*_: object, **__: object) -> None:
        raise AssertionError("something was built")

    monkeypatch.setattr(build, "everything", built)
    monkeypatch.setattr(paths, "MEMORY", tmp_path_factory.mktemp("memory"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNSET", raising=False)
    (tmp_path / "mine.sh").write_text(SCRIPT)
    (tmp_path / "mine.sh").chmod(0o755)
    (tmp_path / "plain.txt").write_text("no program\n")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    return tmp_path


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The status with which the command line ends."""
    monkeypatch.setattr(sys, "argv", ["shingle", "exec", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


WRONG_USES: list[tuple[tuple[str, ...], int, str]] = [
    ((), 125, "no command was given"),
    (("--",), 125, "no command was given"),
    (("--", ""), 125, "no command was given"),
    (("--", "nosuchprogram"), 127, "no program nosuchprogram in /usr/local/sbin:"),
    (("--", "mine.sh"), 127, "the file here is ./mine.sh"),
    (("--", "/usr/bin/nosuchprogram"), 127, "this host has no /usr/bin/nosuchprogram"),
    (("--", "./nosuch.sh"), 127, "named by its place, /mnt/"),
    (("--", "./plain.txt"), 126, "may be executed"),
    (("--", "./folder"), 126, "is no program"),
    (("--", "/etc"), 126, "/etc is no program"),
    (("--drive", "nosuch", "--", "ls"), 125, "no drive called 'nosuch'"),
    (("--drive", "wd40efax", "--drive", "nosuch", "--", "ls"), 125, "no drive called 'nosuch'"),
    (("--drive", "wd40efax") * 17 + ("--", "ls"), 125, "17 drives are too many; a machine has at most 16"),
    (("--drive", "st8000as0002", "--drive", "hc620", "--capacity-gib", "4", "--", "ls"), 125, "hc620 needs more than"),
    (("--fs", "none", "--capacity-gib", "99999999", "--", "ls"), 125, "st8000as0002 has 7,452 GiB"),
    (("--trace", "plain.txt", "--", "ls"), 125, "plain.txt"),
    (("--faults", "nosuch.toml", "--", "ls"), 125, "--faults nosuch.toml: nosuch.toml is no file"),
    (("--faults", "1:plain.txt", "--", "ls"), 125, "there is no disk 1; the last of --drive is 0"),
    (("--faults", "plain.txt", "--faults", "0:mine.sh", "--", "ls"), 125, "disk 0 has a plan already, plain.txt"),
    (("--fs", "nosuch", "--", "ls"), 125, "no file system called 'nosuch'"),
    (("--fs", "zonefs", "--", "ls"), 125, "zonefs holds one file for each zone"),
    (("--drive", "hc620", "--fs", "ext4", "--", "ls"), 125, "does not write zones in order"),
    (("--capacity-gib", "99999999", "--", "ls"), 125, "st8000as0002 has 7,452 GiB"),
    (("--capacity-gib", "5", "--fs", "ext4-10g", "--", "ls"), 125, "needs a drive of at least"),
    (("--memory-mib", "1000000", "--", "ls"), 125, "does not fit this host"),
    (("--limit", "0", "--", "ls"), 125, "not in the range"),
    (("--spin-limit", "0", "--", "ls"), 125, "not in the range"),
    (("--nosuch", "--", "ls"), 125, "No such option"),
    (("--in", "nosuch", "--", "ls"), 125, "this host has no nosuch"),
    (("--in", "socket", "--", "ls"), 125, "no file, folder or link"),
    (("--in", "plain.txt:/etc/x", "--", "ls"), 125, "/etc/x is not of the machine's own"),
    (("--in", "plain.txt:../etc/x", "--", "ls"), 125, "/etc/x is not of the machine's own"),
    (("--in", "plain.txt:/mnt", "--", "ls"), 125, "/mnt is a folder"),
    (("--in", "plain.txt:a:b", "--", "ls"), 125, "expected HOST or HOST:PLACE"),
    (("--in", "plain.txt:", "--", "ls"), 125, "expected HOST or HOST:PLACE"),
    (("--in", "plain.txt", "--in", "mine.sh:plain.txt", "--", "ls"), 125, "brought in twice"),
    (("--out", "/etc/passwd", "--", "ls"), 125, "/etc/passwd is not of the machine's own"),
    (("--out", "x:plain.txt", "--", "ls"), 125, "plain.txt is there already"),
    (("--out", "x:nosuch/x", "--", "ls"), 125, "nosuch is no folder"),
    (("--out", "x", "--out", "y:x", "--", "ls"), 125, "name of another --out"),
    (("--env", "1X=2", "--", "ls"), 125, "no name of a variable"),
    (("--env", "UNSET", "--", "ls"), 125, "UNSET is not set here"),
    (("--setup", " ", "--", "ls"), 125, "--setup is empty"),
    (("--name", "unmount", "--", "ls"), 125, "no name for a command"),
    (("--name", "a b", "--", "ls"), 125, "no name for a command"),
    (("--record", "plain.txt", "--", "ls"), 125, "plain.txt, line 1: no JSON"),
    (("--record", "nosuch/x.jsonl", "--", "ls"), 125, "nosuch/x.jsonl: No such file"),
    (("--", "ls", os.fsdecode(b"\xff")), 125, "no UTF-8"),
]


@pytest.mark.parametrize(
    ("arguments", "status", "said"), WRONG_USES, ids=[" ".join(use[0]) or "-" for use in WRONG_USES]
)
def test_a_wrong_use_is_one_sentence_and_leaves_nothing(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    before = sorted(here.rglob("*")), sorted(run_directory().glob("shingle-run-*"))
    assert ended(monkeypatch, *arguments) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    sentences = [line for line in printed.err.splitlines() if not line.startswith("  ")]
    assert len(sentences) == 1
    assert sentences[0].startswith("shingle: ")
    assert said in sentences[0]
    assert (sorted(here.rglob("*")), sorted(run_directory().glob("shingle-run-*"))) == before


def test_a_script_of_the_machine_s_own_folder_has_to_be_brought(here: Path) -> None:
    (script := Path("/tmp/shingle-test-exec.sh")).write_text(SCRIPT)
    try:
        with pytest.raises(Failure, match="/tmp is the machine's own and empty there"):
            command.plan([str(script)], seed=1, limit_s=1)
    finally:
        script.unlink()


def test_the_words_of_the_command_are_its_own(here: Path) -> None:
    told = command.plan(["./mine.sh", "--help", "-q"], seed=1, limit_s=1, environment=["A=b=c", "HOME=/mnt"])
    assert told.argv == ("/run/exec/mine.sh", "--help", "-q")
    assert told.names == ("mine",)
    (step,) = (each for each in told.steps() if each["do"] == "command")
    environment = step["env"]
    assert isinstance(environment, dict)
    assert environment["A"] == "b=c"
    assert environment["HOME"] == "/mnt"
    assert environment["LANG"] == "C.UTF-8"
    assert environment["PATH"].startswith("/run/bin:")
    assert command.plan(["mount"], seed=1, limit_s=1).names == ("mount-command",)


def archived(plan: command.Command, folder: Path) -> dict[str, tarfile.TarInfo]:
    folder.mkdir()
    plan.put(folder, Path("/bin/true"))
    with tarfile.open(folder / "brought.tar") as archive:
        return {entry.name: entry for entry in archive.getmembers()}


def test_what_is_brought_in_has_nothing_of_the_host_s_but_its_contents(here: Path) -> None:
    def told(folder: str, mtime: int) -> command.Command:
        (here / folder / "sub").mkdir(parents=True, exist_ok=True)
        (here / folder / "sub/file").write_text("text")
        (here / folder / "link").symlink_to("sub/file")
        os.utime(here / folder / "sub/file", (mtime, mtime))
        return command.plan(["./mine.sh"], seed=1, limit_s=1, brought=[f"{folder}:deep/tree"])

    one, two = told("one", 1), told("two", 2)
    assert one.told == two.told
    entries = archived(one, here / "packed")
    assert [name for name in entries if not name.startswith("dev/")] == [
        "run/bin/shingle-phase",
        "mnt/deep/tree",
        "mnt/deep/tree/link",
        "mnt/deep/tree/sub",
        "mnt/deep/tree/sub/file",
        "run/exec/mine.sh",
    ]
    assert entries["mnt/deep/tree/link"].linkname == "sub/file"
    assert entries["run/bin/shingle-phase"].mode & 0o111
    archived(two, here / "again")
    assert (here / "packed/brought.tar").read_bytes() == (here / "again/brought.tar").read_bytes()
    (here / "two/sub/file").write_text("texT")
    assert one.told != two.told


def test_a_command_without_files_or_setup_has_no_phase_before_it(here: Path) -> None:
    def phases(**more: object) -> list[object]:
        plan = command.plan(["ls"], seed=1, limit_s=1, **more)  # type: ignore[arg-type]
        return list(dict.fromkeys(step["phase"] for step in plan.steps() if "phase" in step))

    assert phases() == ["ls", "unmount"]
    assert phases(setup="true") == ["setup", "ls", "unmount"]
    assert phases(brought=["plain.txt"]) == ["setup", "ls", "unmount"]


def test_latencies_of_a_phase_are_what_the_histograms_grew_by() -> None:
    before = {"data_read": {1000: 5}}
    after = {"data_read": {1000: 104, 2000: 1}, "flushes": {7: 1}}
    load = execute._load(before, after, 2_000_000_000)
    assert load["latency_ns"]["data_read"] == {
        "count": 100, "min": 1000, "mean": 1010, "p50": 1000, "p90": 1000, "p99": 1000, "p999": 2000, "max": 2000,
    }  # fmt: skip
    assert load["longest_stall_ns"] == 2000
    assert load["per_s"] == {"data_read": 50.0, "flushes": 0.5}
    assert execute._load(after, after, 1)["latency_ns"] == {}


def raised(look: Callable[[], None], limit_s: float) -> str | None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            look()
        except spin.Spins as failure:
            return str(failure)
        time.sleep(0.1)
    return None


@pytest.mark.parametrize(
    ("program", "spins"),
    [("while True: pass", True), ("import time\nwhile True: time.sleep(0.01)", False)],
)
def test_a_process_that_is_never_stopped_spins(program: str, spins: bool) -> None:
    """The group's leader is the machine itself, and may compute."""
    lead = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen([sys.executable, "-c", lead], process_group=0) as leader:
        try:
            said = raised(spin.Detector(leader.pid, 1.0).look, 60 if spins else 4)
        finally:
            os.killpg(leader.pid, 9)
    assert (said is not None) == spins
    if said is not None:
        assert "without a system call" in said
