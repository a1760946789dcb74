# SPDX-License-Identifier: MIT OR Apache-2.0
"""ext4lazy advise, convert, status, drain and check, on small images; neither root nor a kernel of ours."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import BLOCK, digest, ext4lazy, kept, make, stock, tool

TOOL = volumes.TOOLS / "ext4lazy.py"
NEW_NAMES = [f"d{n}" for n in range(1, volumes.FILES + 1)]


def facts(path: Path) -> dict[str, object]:
    said = ext4lazy("status", "--scan", "--json", path)
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout))


def header(path: Path) -> str:
    return stock("dumpe2fs", "-h", path)


# --- status ---------------------------------------------------------------------


def test_status_counts_what_is_live_in_a_kept_log(folder: Path) -> None:
    volume = kept(folder)
    found = facts(volume.path)
    assert found["log"] == "kept"
    assert found["copies"] == found["live_blocks"] == len(volume.homes)
    # A descriptor before the copies, a commit block behind them.
    assert found["log_used"] == len(volume.homes) + 2


def test_a_newer_copy_and_a_revoke_end_an_older_copy(folder: Path) -> None:
    volume = kept(folder)
    first, second, third = volume.homes[-3:]
    volumes.log(volume.path, volume.replayed, [first], revoked=[second, third])
    found = facts(volume.path)
    assert found["copies"] == len(volume.homes) + 1
    assert found["live_blocks"] == len(volume.homes) - 2


def test_a_log_that_somebody_else_used_is_not_called_kept(folder: Path) -> None:
    volume = kept(folder)
    volumes.sign(volume.path, at_c4=99)
    assert facts(volume.path)["log"] == "stock"


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_of_the_marker_is_not_ours(folder: Path, version: int) -> None:
    """The first one could bring freed blocks back; its logs are for stock recovery."""
    volume = kept(folder)
    volumes.sign(volume.path, at_c0=version)
    assert facts(volume.path)["log"] == "stock"


def test_an_empty_log_is_called_empty(folder: Path) -> None:
    assert facts(make(folder / "a.img"))["log"] == "empty"


def test_status_warns_of_programs_that_see_old_metadata(folder: Path) -> None:
    said = ext4lazy("status", kept(folder).path)
    assert "mount -o noload" in said.stdout
    assert "ext4lazy drain" in said.stdout
    assert "noload" not in ext4lazy("status", make(folder / "a.img")).stdout


def test_status_in_one_word(folder: Path) -> None:
    volume = kept(folder).path
    assert ext4lazy("status", "--short", volume).stdout == "kept\n"
    volumes.sign(volume, at_c4=99)
    assert ext4lazy("status", "--short", volume).stdout == "stock\n"
    assert ext4lazy("status", "--short", make(folder / "a.img")).stdout == "empty\n"


def test_status_says_that_the_journal_was_aborted(folder: Path) -> None:
    volume = kept(folder)
    volumes.sign(volume.path, at_20=5)
    assert "aborted with error 5" in ext4lazy("status", volume.path).stdout


def test_a_damaged_journal_superblock_is_one_sentence(folder: Path) -> None:
    volume = kept(folder)
    with volume.path.open("r+b") as file:
        file.seek(volumes.journal_at(volume.path) + 0x18)
        file.write(b"\x12\x34")
    said = ext4lazy("status", volume.path)
    assert said.returncode == tool.FAILED
    assert said.stderr == "ext4lazy: the journal superblock does not fit its checksum.\n"


@pytest.mark.parametrize("what", ["label", "last mount point", "first error", "last error", "mount options"])
@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_text_in_the_superblock_is_not_taken_for_a_fact(folder: Path, what: str, end: bytes) -> None:
    """A forged disk: drain would say that the log is empty, status that nothing is wrong."""
    volume = kept(folder).path
    at = {"label": 0x78, "last mount point": 0x88, "first error": 0x1A8, "last error": 0x1E0, "mount options": 0x200}
    with volume.open("r+b") as file:
        file.seek(1024)
        data = bytearray(file.read(1024))
        text = (b"/" + end + b"Filesystem features: none" + end)[: 16 if what == "label" else 32]
        data[at[what] : at[what] + len(text)] = text
        struct.pack_into("<I", data, 0x194, 1)  # errors
        struct.pack_into("<I", data, 1020, tool.crc32c(bytes(data[:1020])))
        file.seek(1024)
        file.write(data)
    stock("dumpe2fs", "-h", volume)
    for command in ("status", "drain", "check", "convert", "advise", "due"):
        said = ext4lazy(command, volume)
        assert said.returncode == tool.FAILED, said.stdout
        assert said.stderr.startswith(f"ext4lazy: {volume}: the superblock has a line break in its {what}:")


def test_what_is_no_ext4_is_one_sentence(folder: Path) -> None:
    path = folder / "zeros"
    path.write_bytes(bytes(1 << 20))
    for command in ("advise", "convert", "status", "drain", "check"):
        said = ext4lazy(command, path)
        assert said.returncode == tool.FAILED
        assert len(said.stderr.splitlines()) == 1, said.stderr
        assert "finds no ext4" in said.stderr
        assert ext4lazy(command, folder / "nowhere").stderr.endswith("nowhere does not exist.\n")


# --- mounted volumes, by what the kernel would say ------------------------------------


@pytest.fixture
def mounted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image that a kernel says is mounted, over a loop device."""
    volume = make(folder / "mounted.img")
    volumes.say_mounted(volume, "/ /a\\040b rw,noatime shared:1 - ext4lazy /dev/loop7 rw,journal_lazy", monkeypatch)
    return volume


def statistics(sys: Path, **values: object) -> None:
    folder = sys / "fs/ext4lazy/loop7/journal_lazy"
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize("command", ["convert", "check", "drain"])
def test_a_mounted_volume_is_refused(mounted: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest(mounted)
    assert tool.main([command, str(mounted)]) == tool.FAILED
    assert "is mounted on /a b" in capsys.readouterr().err
    assert digest(mounted) == before


def test_a_mount_point_is_any_bytes(mounted: Path) -> None:
    statistics(mounted.parent / "sys", live_blocks=1, log_used=2, log_blocks=3)
    point = b"/a\xff\xc2\x85\xc2\xa0b"
    printed = point.replace(b"\xc2\x85", b"\\x85")  # would move the cursor
    tool.MOUNTINFO.write_bytes(b"36 25 7:7 / " + point + b" rw - ext4lazy /dev/loop7 rw,journal_lazy\n")
    program = (
        f"import sys; sys.path.insert(0, {str(volumes.TOOLS)!r}); import ext4lazy; from pathlib import Path;"
        f"ext4lazy.SYSFS, ext4lazy.MOUNTINFO = Path({str(tool.SYSFS)!r}), Path({str(tool.MOUNTINFO)!r});"
        "sys.exit(ext4lazy.main(sys.argv[1:]))"
    )
    for more in ((), ("--json",)):
        said = subprocess.run(
            [sys.executable, "-B", "-c", program, "status", *more, mounted],
            env={"PATH": volumes.PATH, "PYTHONIOENCODING": "utf-8:strict"}, capture_output=True, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert printed in said.stdout or json.loads(said.stdout)["mounted_on"] == os.fsdecode(point)
    assert tool.mounted(mounted).directory == Path(os.fsdecode(point))


def test_status_of_a_mounted_volume_is_the_kernel_s(mounted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statistics(
        mounted.parent / "sys",
        live_blocks=250, log_used=500, log_blocks=1000, policy="watermarks", relogged=3, swept=4, emergency=5,
        memory_bytes=20480,
    )  # fmt: skip
    assert tool.main(["status", str(mounted)]) == tool.OK
    said = capsys.readouterr().out
    assert "mounted on /a b as ext4lazy" in said
    assert "50% of 3.91 MiB" in said
    assert "250 blocks, 50% of what is used" in said
    assert "3 blocks logged again, 4 sent home, 5 because the log was full" in said


def test_a_kernel_that_can_scrub_is_asked_to(mounted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statistics(mounted.parent / "sys", scrub="")
    assert tool.main(["check", str(mounted)]) == tool.OK
    assert (mounted.parent / "sys/fs/ext4lazy/loop7/journal_lazy/scrub").read_text() == "1\n"
    assert "no damage in the log" in capsys.readouterr().out


def test_what_the_kernel_s_scrub_found_is_said(mounted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statistics(mounted.parent / "sys", scrub="", damaged_blocks=3)
    assert tool.main(["check", str(mounted)]) == tool.DAMAGED
    said = capsys.readouterr().out
    assert "3 damaged blocks of the log" in said


def test_drain_says_that_an_error_was_recorded(folder: Path) -> None:
    """The superblock in the log is older and knows of none; replayed, it is all that e2fsck goes by."""
    volume = kept(folder).path
    volumes.change(volume, ["ssv state 2"])
    said = ext4lazy("drain", volume)
    assert "Filesystem state:         clean\n" in header(volume)
    assert said.returncode == tool.DAMAGED
    assert said.stdout.endswith(f"{volume} is plain ext4.\nAn error was recorded in it: run e2fsck -f {volume}\n")


def test_drain_of_a_mount_without_the_option_has_nothing_to_do(
    mounted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As mount.ext4lazy mounts it where the module is missing; stock ext4 has replayed the log."""
    tool.MOUNTINFO.write_text("36 25 7:7 / /a rw - ext4 /dev/loop7 rw\n")
    assert tool.main(["drain", str(mounted)]) == tool.OK
    assert "mounted on /a without journal_lazy: there is nothing to drain" in capsys.readouterr().out
    tool.MOUNTINFO.write_text("36 25 7:7 / /a ro - ext4 /dev/loop7 ro,norecovery\n")
    assert tool.main(["drain", str(mounted)]) == tool.FAILED
    assert "is mounted on /a by a kernel that cannot drain it" in capsys.readouterr().err


# --- check ----------------------------------------------------------------------


def test_check_sees_the_volume_as_the_log_has_it_and_writes_nothing(folder: Path) -> None:
    volume = kept(folder)
    before = digest(volume.path)
    said = ext4lazy("check", "--scratch", folder / "scratch", volume.path)
    assert said.returncode == tool.OK, said.stdout + said.stderr
    assert "no errors, with its log replayed" in said.stdout
    assert digest(volume.path) == before
    assert list((folder / "scratch").iterdir()) == []


def test_check_finds_an_error_that_is_only_in_the_log(folder: Path) -> None:
    volume = kept(folder)
    # A directory whose inode is gone: what the log says, not what is at home.
    volumes.change(volume.replayed, ["clri d3"])
    volumes.log(volume.path, volume.replayed, volume.homes)
    before = digest(volume.path)
    said = ext4lazy("check", "--scratch", folder, volume.path)
    assert said.returncode == tool.DAMAGED
    assert "d3" in said.stdout
    assert "e2fsck -f replays it for good" in said.stdout
    assert digest(volume.path) == before


def test_check_finds_an_error_that_e2fsck_repairs_behind_the_replay(folder: Path) -> None:
    """A count that is wrong has it check and repair everything by itself."""
    volume = kept(folder)
    for image in (volume.path, volume.replayed):
        volumes.change(image, ["set_bg 0 free_blocks_count 5"])
    volumes.log(volume.path, volume.replayed, volume.homes)
    said = ext4lazy("check", "--scratch", folder, volume.path)
    assert said.returncode == tool.DAMAGED, said.stdout + said.stderr
    assert "FIXED" in said.stdout and "errors, with its log replayed" in said.stdout


def test_check_says_when_there_is_no_room_for_the_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = kept(folder)
    monkeypatch.setattr(tool.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1})())
    real = tool.run
    monkeypatch.setattr(
        tool, "run", lambda argv, **rest: real(["false"] if "--reflink=always" in argv else argv, **rest)
    )
    with pytest.raises(tool.Failure, match="--scratch names another folder"):
        tool.check(volume.path, folder)


# --- signals ---------------------------------------------------------------------


def stopped(number: int, *argv: str | Path, path: str, ready: Path) -> tuple[int, str]:
    """Runs it until a program in it is ready; then the signal comes, from a terminal if it is SIGINT."""
    with subprocess.Popen(
        [sys.executable, volumes.TOOLS / "ext4lazy.py", *map(str, argv)],
        env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    ) as process:  # fmt: skip
        until = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.02)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=30)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["check", "convert", "drain"])
def test_a_signal_ends_e2fsck_in_order_and_leaves_nothing(folder: Path, number: int, command: str) -> None:
    """Takes its time to end, as e2fsck does between two passes."""
    volume = kept(folder).path
    ready, ended, scratch = folder / "ready", folder / "ended", folder / "scratch"
    in_order = f"trap 'sleep 0.6; echo ended >>{ended}; exit 32' INT TERM"
    path = volumes.fakes(folder, e2fsck=f"{in_order}; touch {ready}; for _ in $(seq 99); do sleep 0.1; done")
    more = ("--scratch", scratch) if command == "check" else ("--journal-mib", "8") if command == "convert" else ()
    status, said = stopped(number, command, *more, volume, path=path, ready=ready)
    assert ended.read_text() == "ended\n"
    assert status == 128 + number
    again = {"check": "", "convert": "; run again with --journal-mib 8, it goes on", "drain": "; run again, it goes on"}
    assert said == f"ext4lazy: stopped by {signal.Signals(number).name}{again[command]}.\n"
    assert not scratch.exists() or list(scratch.iterdir()) == []


@volumes.needs_loop
@pytest.mark.parametrize("program", ["e2fsck", "dmsetup", "losetup"])
def test_a_signal_leaves_no_snapshot_and_no_loop_device(folder: Path, program: str) -> None:
    """Wherever in the making of a snapshot it comes; device-mapper is a stand-in."""
    scratch, ready, table = folder / "scratch", folder / "ready", folder / "table"
    wait = f"touch {ready}; sleep 0.5"
    path = volumes.fakes(
        folder,
        losetup=f'real losetup "$@"; {wait if program == "losetup" else ""}',
        dmsetup=f"""case $1 in
            create)
                echo $2 >{table}
                mkdir -p /dev/mapper
                touch /dev/mapper/$2
                {wait if program == "dmsetup" else ""} ;;
            remove) [ "$2" = --deferred ] || rm {table} /dev/mapper/$3 ;;
            esac""",
        e2fsck=f"exec >/dev/null; {wait}; exit 32",
    )
    volume = kept(folder).path
    with volumes.loop(volume) as device:
        status, said = stopped(signal.SIGINT, "check", "--scratch", scratch, device, path=path, ready=ready)
        assert status == 128 + signal.SIGINT, said
        assert not table.exists()
        assert list(scratch.iterdir()) == []
        assert str(scratch) not in stock("losetup", "--list", "--noheadings", "--output", "BACK-FILE")


def test_a_program_that_is_told_to_ignore_a_signal_does(folder: Path) -> None:
    """As nohup does."""
    volume = kept(folder).path
    path = volumes.fakes(folder, e2fsck='kill -HUP $PPID; real e2fsck "$@"')
    said = subprocess.run(
        ["nohup", sys.executable, volumes.TOOLS / "ext4lazy.py", "check", "--scratch", folder / "scratch", volume],
        env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


# --- drain ----------------------------------------------------------------------


def test_drain_leaves_plain_ext4_with_everything_that_was_in_the_log(folder: Path) -> None:
    volume = kept(folder)
    assert not set(NEW_NAMES) & set(volumes.names(volume.path))
    said = ext4lazy("drain", volume.path)
    assert said.returncode == 0, said.stderr
    assert "is plain ext4" in said.stdout
    assert set(NEW_NAMES) <= set(volumes.names(volume.path))
    assert "needs_recovery" not in header(volume.path)
    stock("e2fsck", "-fn", volume.path)
    again = ext4lazy("drain", volume.path)
    assert again.returncode == 0
    assert "nothing to drain" in again.stdout


# --- advise and convert -----------------------------------------------------------


def test_advise_only_reads_and_names_what_is_missing(folder: Path) -> None:
    volume = make(folder / "old.img", kind="ext3", mib=128)
    before = digest(volume)
    said = ext4lazy("advise", volume)
    assert said.returncode == 0, said.stderr
    assert "metadata checksums:    no; journal_lazy needs them" in said.stdout
    assert "; 16 MiB would be right" in said.stdout
    assert "Converting takes about" in said.stdout
    assert "MB/s in sequence" in said.stdout
    assert digest(volume) == before


def test_advise_has_nothing_to_say_of_a_volume_that_is_ready(folder: Path) -> None:
    volume = make(folder / "new.img", mib=64, journal_mib=8)
    said = ext4lazy("advise", volume)
    leaves = [line for line in stock("debugfs", "-R", "ex <8>", volume).splitlines() if line.startswith(" 0/ 0")]
    begins = int(stock("debugfs", "-R", "bmap <8> 0", volume)) * 4096
    assert f"8 MiB, in {len(leaves)} pieces, at {tool.size_text(begins)} of 64 MiB\n" in said.stdout
    assert "Nothing is to be converted" in said.stdout


def test_the_estimate_grows_with_the_disk_s_slowness_and_the_volume_s_directories(folder: Path) -> None:
    volume = tool.read_volume(make(folder / "old.img", kind="ext3", mib=128))
    slow, fast = tool.Speed(100e6, 0.010), tool.Speed(100e6, 0.005)
    hours = [
        sum(step.seconds for step in tool.conversion(volume, 16 << 20, directories=count, speed=speed))
        for count, speed in ((1000, fast), (1000, slow), (100_000, slow))
    ]
    assert hours == sorted(hours)
    # An e2fsck is an arm's movement for each directory; checksums take three, and two more come before and after.
    assert hours[2] == pytest.approx(5 * 100_000 * 0.010, rel=0.01)


def convertible(folder: Path) -> Path:
    volume = make(folder / "old.img", kind="ext3", mib=128)
    volumes.add_files(volume)
    return volume


def assert_converted(volume: Path) -> None:
    said = header(volume)
    assert "metadata_csum" in said
    assert "has_journal" in said
    assert tool.journal_bytes(tool.read_volume(volume)) == 16 << 20
    assert set(NEW_NAMES) <= set(volumes.names(volume))
    stock("e2fsck", "-fn", volume)
    assert "nothing to convert" in ext4lazy("convert", volume).stdout


def test_convert_makes_an_old_volume_ready(folder: Path) -> None:
    volume = convertible(folder)
    dry = ext4lazy("convert", "-n", volume)
    assert [line.split(":")[1].split()[0] for line in dry.stdout.splitlines()] == [
        "e2fsck", "tune2fs", "tune2fs", "tune2fs", "e2fsck",
    ]  # fmt: skip
    assert "metadata_csum" not in header(volume)
    said = ext4lazy("convert", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    assert_converted(volume)


@pytest.mark.parametrize("typed", ["n\n", "\n", "\x04", "\x03"], ids=["no", "nothing", "end", "interrupt"])
def test_at_a_terminal_convert_says_what_is_there_and_asks(folder: Path, typed: str) -> None:
    volume = convertible(folder)
    volumes.change(volume, ["ssv volume_name archive", "ssv last_mounted /old/place"])
    before = digest(volume)
    status, said = volumes.at_terminal(sys.executable, TOOL, "convert", volume, answer=typed)
    assert status == (130 if typed == "\x03" else tool.FAILED)
    assert re.search(r"^  label: +archive$", said, re.MULTILINE), said
    assert re.search(r"^  last mounted on: +/old/place$", said, re.MULTILINE)
    assert re.search(r"^  metadata checksums: +tune2fs", said, re.MULTILINE)
    assert "Convert it? [y/N]" in said
    assert ("stopped by SIGINT" if typed == "\x03" else "is left as it is") in said
    assert digest(volume) == before


def test_a_signal_just_before_the_question_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came while signals are held, and the question would wait for an answer for ever."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(tool, "signals", signals := tool.Signals())
    monkeypatch.setattr(tool.sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(tool.sys, "stdout", Terminal())
    monkeypatch.setattr(tool, "say", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signals._handle)
    try:
        with signals.between_programs(), pytest.raises(tool.Stopped):
            tool.agreed(tool.read_volume(convertible(folder)), [])
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("typed", "options"), [("y\n", ()), ("", ("--yes",))])
def test_at_a_terminal_convert_shows_how_far_e2fsck_is(folder: Path, typed: str, options: tuple[str, ...]) -> None:
    volume = convertible(folder)
    status, said = volumes.at_terminal(sys.executable, TOOL, "convert", *options, volume, answer=typed)
    assert status == 0, said
    assert ("Convert it?" in said) == (not options)
    assert "|==" in said.rpartition("check: e2fsck")[2]
    assert_converted(volume)


def test_convert_keeps_the_computer_awake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it runs and no longer; systemd-inhibit holds its lock for as long as its program runs."""
    path = volumes.fakes(
        folder,
        **{"systemd-inhibit": f'echo "$*" >{folder}/asked; for last; do :; done; "$last"; echo over >>{folder}/asked'},
    )
    monkeypatch.setenv("PATH", path)
    running = folder / "running"
    running.mkdir()
    monkeypatch.setattr(tool, "SYSTEMD", running)
    with tool.awake("why"):
        until = time.monotonic() + 10
        while not (folder / "asked").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert (
            folder / "asked"
        ).read_text() == "--what=sleep:idle:shutdown:handle-lid-switch --who=ext4lazy --why=why --mode=block cat\n"
    assert (folder / "asked").read_text().endswith("over\n")


def test_drain_keeps_the_computer_awake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = kept(folder).path
    why = []

    @contextlib.contextmanager
    def awake(text: str) -> Iterator[None]:
        why.append(text)
        before = facts(volume)["log"]
        yield
        why.append(f"{before}, {facts(volume)['log']}")

    monkeypatch.setattr(tool, "awake", awake)
    assert tool.drain(volume) == tool.OK
    assert why == [f"{volume} is being drained", "kept, empty"]


def test_a_person_is_asked_although_the_output_goes_to_a_file(folder: Path) -> None:
    volume = convertible(folder)
    before = digest(volume)
    shell = f"{sys.executable} {TOOL} convert --journal-mib 8 {volume} >{folder}/out"
    status, said = volumes.at_terminal("sh", "-c", shell, answer="n\n")
    assert status == tool.FAILED
    assert "Convert it? [y/N]" in said
    assert f"How long that takes: ext4lazy advise --journal-mib 8 {volume}\n" in said
    assert digest(volume) == before


def test_what_says_again_names_the_size_of_the_journal(folder: Path) -> None:
    volume = convertible(folder)
    said = ext4lazy("advise", "--journal-mib", "8", volume).stdout
    assert f"run again: ext4lazy convert --journal-mib 8 {volume}\n" in said
    path = volumes.fakes(folder, e2fsck="exit 4")
    said = ext4lazy("convert", "--journal-mib", "8", volume, path=path).stderr
    assert said.endswith(", then convert again with --journal-mib 8.\n")
    path = volumes.fakes(folder, e2fsck=f"touch {folder}/ready; sleep 30")
    argv = ("convert", "--journal-mib", "8", volume)
    _, said = stopped(signal.SIGINT, *argv, path=path, ready=folder / "ready")
    assert said.endswith("stopped by SIGINT; run again with --journal-mib 8, it goes on.\n")


def test_a_conversion_that_ends_without_a_journal_says_so(folder: Path) -> None:
    volume = convertible(folder)
    path = volumes.fakes(folder, tune2fs='case "$*" in *-J*) exit 1;; esac; real tune2fs "$@"')
    gone = "; it has no journal now: convert again before you mount it.\n"
    said = ext4lazy("convert", volume, path=path).stderr
    assert said.endswith(f" ended with status 1{gone}")
    path = volumes.fakes(folder, tune2fs=f'case "$*" in *-J*) touch {folder}/ready; sleep 30;; esac; real tune2fs "$@"')
    _, said = stopped(signal.SIGINT, "convert", volume, path=path, ready=folder / "ready")
    assert said.endswith(f"stopped by SIGINT; run again, it goes on{gone}")
    assert ext4lazy("convert", volume).returncode == 0
    assert_converted(volume)
    plain = folder / "ext2.img"
    with plain.open("wb") as file:
        file.truncate(128 << 20)
    stock("mke2fs", "-q", "-t", "ext2", plain)
    said = ext4lazy("convert", plain, path=volumes.fakes(folder, tune2fs="exit 1")).stderr
    assert said.endswith(" ended with status 1.\n")


def test_advise_says_where_a_new_journal_would_begin(folder: Path) -> None:
    volume = make(folder / "large.img", mib=128 << 10)
    said = ext4lazy("advise", "--journal-mib", "512", volume).stdout
    assert re.search(r"^  a new journal: +would begin at 384 MiB$", said, re.MULTILINE), said
    said = ext4lazy("advise", convertible(folder)).stdout
    assert re.search(r"^  a new journal: +there is no place for it before the middle$", said, re.MULTILINE), said


def test_convert_says_that_a_kept_log_is_replayed_first(folder: Path) -> None:
    volume = kept(folder).path
    said = ext4lazy("convert", "--journal-mib", "6", volume)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"{volume}: its log is replayed first")


def test_a_last_check_that_was_cut_off_is_made_up_for(folder: Path) -> None:
    """Nothing else is left to do: the journal is large already."""
    volume = make(folder / "old.img", kind="ext3", mib=128, journal_mib=16)
    path = volumes.fakes(
        folder, e2fsck='case $(real dumpe2fs -h "$3") in *metadata_csum*) exit 8;; esac; real e2fsck "$@"'
    )
    assert ext4lazy("convert", volume, path=path).returncode == tool.FAILED
    assert "metadata_csum" in header(volume)
    # A mount in between does not hide it.
    volumes.change(volume, ["ssv mtime 20300101"])
    dry = ext4lazy("convert", "--dry-run", volume)
    assert dry.stdout == f"check: e2fsck -f -p {volume}\n"
    again = ext4lazy("convert", volume)
    assert again.returncode == 0, again.stderr
    assert "is ready" in again.stdout
    assert "nothing to convert" in ext4lazy("convert", volume).stdout


def test_a_volume_with_errors_is_not_called_converted(folder: Path) -> None:
    volume = make(folder / "new.img", mib=64, journal_mib=8)
    assert "nothing to convert" in ext4lazy("convert", volume).stdout
    volumes.change(volume, ["ssv state 2"])
    said = ext4lazy("convert", volume)
    assert said.returncode == 0, said.stderr
    assert "e2fsck -f -p" in said.stdout
    assert "Filesystem state:         clean\n" in header(volume)


def test_a_file_system_of_another_system_is_refused(folder: Path) -> None:
    volume = make(folder / "hurd.img", kind="ext2", mib=128)
    volumes.change(volume, ["ssv creator_os 1"])
    before = digest(volume)
    for command in ("advise", "convert"):
        said = ext4lazy(command, volume)
        assert said.returncode == tool.FAILED
        assert said.stderr == f"ext4lazy: {volume} is a file system of Hurd: expected one of Linux.\n"
    assert digest(volume) == before


@pytest.mark.parametrize("command", ["convert", "drain"])
def test_half_of_a_mirror_is_refused(folder: Path, command: str) -> None:
    volume = kept(folder).path
    with volume.open("r+b") as file:
        file.truncate(volume.stat().st_size + (1 << 20))
    volumes.mirror_half(volume)
    before = digest(volume)
    said = ext4lazy(command, volume)
    assert said.returncode == tool.FAILED, said.stdout
    assert said.stderr.startswith(f"ext4lazy: {volume} is of type linux_raid_member: expected ext4")
    said = ext4lazy(command, volume, path=volumes.fakes(folder, blkid="exit 8"))
    assert said.stderr.startswith(f"ext4lazy: {volume} is of type several at once: expected ext4")
    assert digest(volume) == before


@pytest.mark.parametrize("log", [False, True])
def test_the_advice_after_a_power_cut_on_a_lying_disk_loses_no_file(folder: Path, log: bool) -> None:
    """The superblock got there before the checksums that it promises, perhaps before the log that it promises, too."""
    volume = convertible(folder)
    if log:
        stock("tune2fs", "-O", "^has_journal", volume)
    done = folder / "done.img"
    done.write_bytes(volume.read_bytes())
    stock("tune2fs", "-O", "metadata_csum", done)
    if log:
        volumes.change(done, ["feature needs_recovery"])
    with volume.open("r+b") as file:
        file.write(done.read_bytes()[:BLOCK])
    said = ext4lazy("convert", volume)
    assert said.returncode == tool.FAILED
    _, do, advice = said.stderr.partition("debugfs -w")
    assert do, said.stderr
    advice = do + advice.partition(", then convert again")[0]
    subprocess.run(["sh", "-c", advice], env={"PATH": volumes.PATH}, capture_output=True, check=True)
    again = ext4lazy("convert", volume)
    assert again.returncode == 0, again.stdout + again.stderr
    assert_converted(volume)
    assert all(stock("debugfs", "-R", f"cat /{name}/f", volume) == "contents\n" for name in NEW_NAMES)


def test_two_conversions_of_one_image_do_not_mix(folder: Path) -> None:
    volume = convertible(folder)
    second = folder / "second"
    program = f"{sys.executable} {volumes.TOOLS}/ext4lazy.py"
    path = volumes.fakes(
        folder, tune2fs=f'[ -e {second} ] || {program} convert {volume} >{second} 2>&1\nreal tune2fs "$@"'
    )
    said = ext4lazy("convert", volume, path=path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert second.read_text() == f"ext4lazy: {volume} is in use by another ext4lazy: converting needs it alone.\n"
    assert_converted(volume)


def test_a_command_that_outlives_the_program_still_keeps_the_image(folder: Path) -> None:
    volume = convertible(folder)
    second = folder / "second"
    program = f"{sys.executable} {volumes.TOOLS}/ext4lazy.py"
    path = volumes.fakes(folder, tune2fs=f"kill -9 $PPID; sleep 0.2; {program} convert {volume} >{second} 2>&1")
    assert ext4lazy("convert", volume, path=path).returncode == -9
    assert "is in use by another ext4lazy" in second.read_text()


@pytest.mark.parametrize("command", range(1, 6))
@pytest.mark.parametrize("when", ["before", "after"])
def test_convert_goes_on_where_it_was_cut_off(folder: Path, command: int, when: str) -> None:
    """The power goes before or after the n-th command."""
    volume = convertible(folder)
    count = folder / "count"
    fakes = folder / "fakes"
    fakes.mkdir()
    for name in ("e2fsck", "tune2fs"):
        fake = fakes / name
        fake.write_text(
            f"#!/bin/sh\necho x >>{count}\nlast=$(($(wc -l <{count}) >= {command}))\n"
            f'[ $last = 1 ] && [ {when} = before ] && kill -9 $PPID\n/sbin/{name} "$@"; status=$?\n'
            "[ $last = 1 ] && kill -9 $PPID\nexit $status\n"
        )
        fake.chmod(0o755)
    cut = ext4lazy("convert", volume, path=f"{fakes}:{volumes.PATH}")
    assert cut.returncode == -9, cut.stdout + cut.stderr
    said = ext4lazy("convert", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    assert_converted(volume)


def test_convert_goes_on_where_tune2fs_was_cut_off_inside_a_command(folder: Path) -> None:
    """The journal's inode is gone and the flag still there: dumpe2fs is at a loss, e2fsck is not."""
    volume = convertible(folder)
    volumes.change(volume, ["sif <8> blocks 0", "sif <8> size 0", *(f"sif <8> block[{n}] 0" for n in range(15))])
    assert "journal" in ext4lazy("status", volume).stderr
    said = ext4lazy("convert", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    assert_converted(volume)


def test_convert_takes_a_kept_log_home_first(folder: Path) -> None:
    volume = kept(folder)
    said = ext4lazy("convert", "--journal-mib", "6", volume.path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert set(NEW_NAMES) <= set(volumes.names(volume.path))
    stock("e2fsck", "-fn", volume.path)


def test_convert_puts_the_journal_near_the_outer_edge(folder: Path) -> None:
    """Behind the first 512th of the volume, in the first groups that are as good as free."""
    volume = make(folder / "large.img", mib=128 << 10)
    said = ext4lazy("convert", "--journal-mib", "512", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    group = 32768
    begins = [start // group for _, _, start in tool.read_volume(volume).journal_runs()]
    assert begins == sorted(begins)
    assert (begins[0], begins[-1]) == (3, 7)
    stock("e2fsck", "-fn", volume)


@pytest.mark.parametrize(
    ("free", "group"),
    [
        ([100] * 16, 1),
        ([100, 40, *[100] * 14], 2),
        ([100, 100, 100, 85, *[100] * 12], 1),
        ([100, 100, 0, 100, 100, 0, 100, 100, *[100] * 8], None),
        ([100, *[85] * 15], None),
        ([100, 100, 0, 0, 0, 100, 100, 100, *[0] * 8], 5),
        # Not behind the middle.
        ([*[0] * 6, *[100] * 10], None),
        ([0] * 16, None),
        # debugfs says nothing of blocks.
        ([], None),
    ],
)
def test_where_the_journal_goes(monkeypatch: pytest.MonkeyPatch, free: list[int], group: int | None) -> None:
    """Percent of each group that are free; the journal takes two groups and three quarters."""
    per_group, block = 32768, 4096
    header = {
        "Blocks per group": str(per_group), "Block count": str(16 * per_group), "Block size": str(block),
        "First block": "1",
    }  # fmt: skip
    monkeypatch.setattr(tool.Volume, "free_blocks", lambda _: [each * per_group // 100 for each in free])
    found = tool.journal_location(tool.Volume(Path("volume"), header), 11 * per_group * block // 4)
    assert found == (None if group is None else group * per_group + 1)


def test_convert_says_when_the_journal_does_not_fit(folder: Path) -> None:
    volume = make(folder / "full.img", mib=64)
    said = ext4lazy("convert", "--journal-mib", "4096", volume)
    assert said.returncode == tool.FAILED
    assert "expected 4 GiB for the journal" in said.stderr
    assert "has_journal" in header(volume)


def test_a_journal_that_tune2fs_would_refuse_is_refused_before_the_old_one_goes(folder: Path) -> None:
    volume = make(folder / "small.img", mib=64, journal_mib=1, block_size=1024)
    with volume.open("r+b") as file:
        file.truncate(16 << 30)
    stock("resize2fs", volume, "16G")
    before = header(volume)
    said = ext4lazy("convert", "--journal-mib", "10240", volume)
    assert said.returncode == tool.FAILED
    assert said.stderr == (
        f"ext4lazy: {volume} has blocks of 1 KiB and cannot have a journal of 10240 MiB: expected 1 to 10000 MiB.\n"
    )
    assert header(volume) == before


@pytest.mark.parametrize("size", ["-1", "0", "x", "1.5"])
def test_a_size_is_above_nothing(folder: Path, size: str) -> None:
    for command in ("convert", "advise"):
        said = ext4lazy(command, f"--journal-mib={size}", make(folder / "a.img"))
        assert said.returncode == 2
        assert "expected a number above 0" in said.stderr


def test_the_journal_of_a_huge_volume_with_small_blocks_is_one_that_tune2fs_takes() -> None:
    volume = tool.Volume(Path("x"), {"Block size": "1024", "Block count": str(16 << 30)})
    assert tool.wanted_journal(volume) == 10_000 << 20


def test_convert_stops_when_e2fsck_cannot_repair(folder: Path) -> None:
    volume = convertible(folder)
    volumes.change(volume, ["clri <2>"])
    said = ext4lazy("convert", volume)
    assert said.returncode == tool.FAILED
    assert f"; run e2fsck -f {volume}, then convert again" in said.stderr
    assert "metadata_csum" not in header(volume)


def test_the_program_needs_nothing_of_the_lab(folder: Path) -> None:
    """As the package installs it: one file, the system's Python, an empty environment."""
    program = folder / "ext4lazy"
    program.write_bytes((volumes.TOOLS / "ext4lazy.py").read_bytes())
    program.chmod(0o755)
    assert stat.S_IMODE((volumes.TOOLS / "ext4lazy.py").stat().st_mode) == 0o755
    volume = make(folder / "a.img")
    assert os.spawnve(os.P_WAIT, "/usr/bin/python3", ["python3", "-I", str(program), "status", str(volume)], {}) == 0


# --- convert and drain after a power cut ------------------------------------------


def crowded(folder: Path) -> Path:
    """A directory of two blocks, the second full to its end: there is no room for a checksum."""
    volume = make(folder / "old.img", kind="ext3", mib=128)
    contents = folder / "contents"
    contents.write_text("contents\n")
    files = [f"write {contents} {n:02}{'n' * 246}" for n in range(31)]
    volumes.change(volume, ["mkdir full", "cd full", *files])
    return volume


def crowd(volume: Path) -> list[str]:
    return stock("debugfs", "-n", "-R", "ls -p /full", volume).splitlines()


def cut_after(folder: Path, command: str, volume: Path) -> None:
    """convert is killed behind the command that matches."""
    path = volumes.fakes(
        folder,
        **{name: f'real {name} "$@"; s=$?; case "{name} $*" in {command}) kill -9 $PPID;; esac; exit $s'
           for name in ("e2fsck", "tune2fs")},
    )  # fmt: skip
    assert ext4lazy("convert", volume, path=path).returncode == -9


def test_directories_are_written_anew_through_the_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place a power cut would lose names. Here it comes when the log is there, and nothing of it is home."""
    volume = crowded(folder)
    cut_after(folder, "*metadata_csum*", volume)
    before, names = folder / "before.img", crowd(volume)
    before.write_bytes(volume.read_bytes())
    assert len(names) == 34
    assert "not clean" in header(volume)
    monkeypatch.setattr(tool, "SCRATCH", folder)
    tool._pack(tool.read_volume(volume))
    assert "in place" not in capsys.readouterr().out
    assert "needs_recovery" in header(volume)
    assert tool.read_volume(volume).journal_super().start != 0
    changed = set(volumes.differing(before, volume))
    journal = {
        start + n for first, last, start in tool.read_volume(volume).journal_runs() for n in range(last - first + 1)
    }
    superblocks = {0, *range(0, 1 << 20, 32768)}
    assert changed <= journal | superblocks, "all that is at home is as it was"
    booted = folder / "booted.img"
    booted.write_bytes(volume.read_bytes())
    stock("e2fsck", "-p", "-E", "journal_only", booted, accept=(0, 1))
    assert "no checksum" not in stock("e2fsck", "-fn", booted, accept=(0, 4))
    # As a machine does at boot.
    booted.write_bytes(volume.read_bytes())
    stock("e2fsck", "-p", booted, accept=(0, 1))
    said = ext4lazy("convert", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    for each in (booted, volume):
        stock("e2fsck", "-fn", each)
        assert sorted(crowd(each)) == sorted(names)
    assert not list(folder.glob("ext4lazy-*"))


def test_without_room_for_a_copy_directories_are_written_in_place(folder: Path) -> None:
    volume = crowded(folder)
    said = ext4lazy("convert", volume, path=volumes.fakes(folder, e2image="echo no room; exit 1"))
    assert said.returncode == 0, said.stderr
    assert "written in place (e2image -r" in said.stdout
    assert "no room" in said.stdout
    stock("e2fsck", "-fn", volume)


def test_without_a_folder_for_copies_directories_are_written_in_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """/var/tmp of a rescue system cannot be written to."""
    volume = crowded(folder)
    cut_after(folder, "*metadata_csum*", volume)
    monkeypatch.setattr(tool, "SCRATCH", folder / "none")
    tool._pack(tool.read_volume(volume))
    assert "directories: written in place (" in capsys.readouterr().out


def test_until_the_last_check_e2fsck_looks_at_everything_at_boot(folder: Path) -> None:
    volume = convertible(folder)
    cut_after(folder, "*metadata_csum*", volume)
    assert "with errors" in header(volume)
    assert "check forced" in stock("e2fsck", "-p", volume, accept=(0, 1))
    assert "Filesystem state:         clean\n" in header(volume)


def test_a_volume_that_seems_to_be_ready_is_checked(folder: Path) -> None:
    """A disk that ignores flushes has the end of the last check, and a directory without a checksum."""
    volume = convertible(folder)
    old = volume.read_bytes()
    assert ext4lazy("convert", volume).returncode == 0
    block = int(stock("debugfs", "-R", "bmap d3 0", volume))
    with volume.open("r+b") as file:
        file.seek(block * BLOCK)
        file.write(old[block * BLOCK :][:BLOCK])
    assert "Filesystem state:         clean\n" in header(volume)
    said = ext4lazy("convert", volume)
    assert "e2fsck -f -p" in said.stdout
    assert_converted(volume)


def test_what_the_last_check_cannot_repair_is_no_conversion_that_was_cut_off(folder: Path) -> None:
    """The checksums are there; to convert again would end here again."""
    volume = convertible(folder)
    path = volumes.fakes(
        folder, e2fsck='case $(real dumpe2fs -h "$3") in *metadata_csum*) exit 4;; esac; real e2fsck "$@"'
    )
    said = ext4lazy("convert", volume, path=path).stderr
    assert said.endswith(f"ended with status 4; run e2fsck -f {volume}, then convert again.\n")
    # The first check of a run may have met half of a conversion.
    assert "debugfs -w -c -R 'feature ^metadata_csum'" in ext4lazy("convert", volume, path=path).stderr


@pytest.mark.parametrize(
    ("status", "unchecked", "says"),
    [
        ("exit 4", True, "4; its conversion was cut off: do not run e2fsck -y, .* debugfs .*, then convert again"),
        ("exit 4", False, "4; run e2fsck -f .*, then convert again; if a power cut ended a conversion of it, do not run"
                          " e2fsck -y, .* debugfs .*, then convert again"),
        ("exit 8", True, "8; run e2fsck -f [^;,]*, then convert again"),
        ("exit 12", True, "12; run e2fsck -f [^;,]*, then convert again"),
        ("exit 32", True, "32; convert again"),
        ("kill -9 $$", True, "-9; convert again"),
    ],
)  # fmt: skip
def test_checksums_are_removed_only_where_a_conversion_was_cut_off(
    folder: Path, status: str, unchecked: bool, says: str
) -> None:
    """debugfs does not ask for the device alone, and e2fsck that was killed found nothing."""
    volume = make(folder / "a.img", mib=128, journal_mib=16)
    volumes.change(volume, [f"ssv mnt_count {tool.UNCHECKED if unchecked else 1}"])
    said = ext4lazy("convert", volume, path=volumes.fakes(folder, e2fsck=status))
    assert said.returncode == tool.FAILED
    assert re.search(rf" ended with status {says}\.\n$", said.stderr), said.stderr


def test_a_log_that_is_kept_says_that_the_volume_is_ready(folder: Path) -> None:
    volume = kept(folder).path
    before = digest(volume)
    said = ext4lazy("convert", "--journal-mib", "4", volume)
    assert said.stdout == f"{volume}: nothing to convert.\n"
    assert digest(volume) == before


@pytest.mark.parametrize("command", ["convert", "drain"])
def test_a_log_that_cannot_be_read_is_not_thrown_away(folder: Path, command: str) -> None:
    """e2fsck -p does that, and calls the volume clean. Its owner is told first, and can do it."""
    volume = kept(folder).path
    with volume.open("r+b") as file:
        file.seek(volumes.journal_at(volume) + 0x50)
        file.write(b"\x12\x34")
    before = digest(volume)
    said = ext4lazy(command, volume)
    assert said.returncode == tool.FAILED, said.stdout
    assert "to go on loses all that is in the log alone" in said.stderr
    assert digest(volume) == before
    advice = said.stderr.partition("copy the whole device, then ")[2].partition(", then convert again")[0]
    advice = advice.removeprefix("run ").removesuffix(".\n").replace("e2fsck -f", "e2fsck -fy")
    done = subprocess.run(["sh", "-c", advice], env={"PATH": volumes.PATH}, capture_output=True, check=False)
    assert done.returncode in (0, 1), (advice, done)
    again = ext4lazy(command, volume)
    assert again.returncode == 0, again.stdout + again.stderr
    stock("e2fsck", "-fn", volume)


def damaged(folder: Path, what: str, known: int = 2) -> Path:
    """A kept log of two transactions, in the second of which something is damaged."""
    volume = kept(folder)
    volumes.log(volume.path, volume.replayed, volume.homes)
    dump = stock("debugfs", "-R", "logdump -a", volume.path)
    places = [int(place) for place in re.findall(r"block\) at block (\d+)", dump)]
    number = {"descriptor": places[2], "copy": places[2] + 3, "commit": places[3]}.get(what)
    runs = tool.read_volume(volume.path).journal_runs()
    with volume.path.open("r+b") as file:
        if number is not None:
            file.seek(next(start + number - one for one, last, start in runs if one <= number <= last) * BLOCK)
            file.write(bytes(64))
    volumes.sign(volume.path, at_cc=known)
    return volume.path


@pytest.mark.parametrize("command", ["check", "convert", "drain"])
def test_a_log_that_ends_too_early_is_not_replayed(folder: Path, command: str) -> None:
    """Stock recovery takes the damage for the end of the log, and e2fsck then forgets the rest and says nothing."""
    for number, what in enumerate(("descriptor", "commit")):
        place = folder / str(number)
        place.mkdir()
        volume = damaged(place, what)
        before = digest(volume)
        said = ext4lazy(command, volume)
        assert said.returncode == tool.FAILED, said.stdout
        assert said.stderr.endswith(
            "would replay its log up to transaction 1: expected 2, which was committed; copy the whole device, then"
            " mount it as ext4lazy, run ext4lazy check DIRECTORY, and drain it mounted.\n"
        )
        assert digest(volume) == before


@pytest.mark.parametrize("command", ["check", "convert", "drain"])
def test_what_a_replay_left_out_is_said(folder: Path, command: str) -> None:
    """A damaged copy is found by its checksum alone, which e2fsck reads, and it goes on."""
    volume = damaged(folder, "copy")
    before = digest(volume)
    said = ext4lazy(command, *(("--journal-mib", "6") if command == "convert" else ()), volume)
    assert said.returncode == tool.FAILED, said.stdout
    assert f"ext4lazy: {volume}: e2fsck replayed its log up to transaction 0: expected 2, which" in said.stderr
    assert "is ready" not in said.stdout and "is plain ext4" not in said.stdout
    assert (digest(volume) == before) == (command == "check")


@pytest.mark.parametrize(("version", "drained"), [("0.1+git1", False), ("0.2+git1", True)])
def test_what_version_0_1_mounted_is_not_drained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, drained: bool
) -> None:
    volume = make(folder / "a.img")
    volumes.say_mounted(volume, "/ /data ro shared:1 - ext4lazy /dev/loop7 ro", monkeypatch)
    (folder / "sys/fs/ext4lazy/loop7/journal_lazy").mkdir(parents=True)
    (folder / "sys/module/ext4lazy").mkdir(parents=True)
    (folder / "sys/module/ext4lazy/version").write_text(f"{version}\n")
    with pytest.raises(tool.Failure, match="read-only" if drained else "by version 0.1 of the module.*: do not drain"):
        tool.drain(volume)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_log_that_is_longer_than_its_marker_says_is_whole(folder: Path, known: int) -> None:
    volume = damaged(folder, "nothing", known)
    for command in ("check", "drain"):
        said = ext4lazy(command, volume)
        assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(("known", "reached", "whole"), [
    (0xFFFFFFFF, 0xFFFFFFFF, True), (0, 0xFFFFFFFF, False), (0xFFFFFFFF, 0, True), (2, 0xFFFFFFFE, False),
])  # fmt: skip
def test_transactions_are_counted_around(folder: Path, known: int, reached: int, whole: bool) -> None:
    volume = kept(folder).path
    volumes.sign(volume, at_cc=known)
    with contextlib.nullcontext() if whole else pytest.raises(tool.Failure, match=f"to transaction {reached}:"):
        tool.need_transactions(volume, tool.read_volume(volume).journal_super(), reached, "would replay", "")


def test_a_journal_superblock_that_is_damaged_is_made_anew(folder: Path) -> None:
    """A disk that ignores flushes lost it, and all else says that the volume is ready; no log is to be replayed."""
    volume = make(folder / "a.img")
    with volume.open("r+b") as file:
        file.seek(volumes.journal_at(volume))
        file.write(bytes(BLOCK))
    said = ext4lazy("convert", "--journal-mib", "4", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    assert facts(volume)["log"] == "empty"
    stock("e2fsck", "-fn", volume)


def test_drain_says_that_freeing_was_cut_off(folder: Path) -> None:
    """What e2fsck does after the replay, it does without a journal."""
    volume = make(folder / "a.img")
    assert ext4lazy("drain", volume).returncode == 0
    volumes.change(volume, ["ssv last_orphan 12"])
    said = ext4lazy("drain", volume)
    assert said.returncode == tool.DAMAGED
    assert said.stdout.endswith(f"are perhaps half freed: run e2fsck -f {volume}\n")


@pytest.mark.parametrize("features", ["none", "quota"])
def test_drain_says_that_the_bitmaps_do_not_fit(folder: Path, features: str) -> None:
    volume = make(folder / "a.img")
    if features == "quota":
        stock("tune2fs", "-O", "quota", volume)
    found = stock("dumpe2fs", volume)
    block = int(found.partition("Block bitmap at ")[2].split()[0])
    with volume.open("r+b") as file:
        file.seek(block * BLOCK + 900)
        file.write(b"\xff")
    said = ext4lazy("drain", volume)
    assert said.returncode == tool.FAILED
    assert f"the bitmaps do not fit their checksums; run e2fsck -f {volume}" in said.stderr
    by_hand = stock("e2fsck", "-fy", volume, accept=(1, 8))
    if features == "quota":
        # e2fsck 1.47.0 repairs nothing here.
        advice = said.stderr.partition("quota: ")[2].partition("; quota limits")[0].replace("e2fsck -f", "e2fsck -fy")
        subprocess.run(["sh", "-c", advice], env={"PATH": volumes.PATH}, capture_output=True, check=True)
    else:
        assert "MODIFIED" in by_hand
    stock("e2fsck", "-fn", volume)
    assert ext4lazy("drain", volume).returncode == 0
