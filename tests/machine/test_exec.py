# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle exec`: programs of the host on the simulated drive, as a user calls them."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from exec_command import LIMIT_S, argv, environment, execute, shell

from harness import Bench, wait_for
from shingle.paths import ROOT, run_directory

pytestmark = pytest.mark.machine

GIT = """
set -e
git init -q tree
cd tree
git config user.name x
git config user.email x@y
for number in 1 2 3 4 5; do
    head -c 300000 /dev/urandom >file-$number
    git add .
    git commit -qm $number
done
git -c gc.autoDetach=false gc -q
git fsck --strict
git rev-parse HEAD
"""
SQLITE = """
sqlite3 x.db 'create table t(a integer primary key, b text)'
for number in 1 2 3 4 5 6 7 8; do
    sqlite3 x.db "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
        insert into t(b) select hex(randomblob(50)) from n"
done
sqlite3 x.db 'pragma integrity_check; select count(*), sum(length(b)), max(b) from t'
"""
PYTHON = r"""
import hashlib, os, random, threading, time

def write(name):
    with open(name, "wb") as file:
        for _ in range(20):
            file.write(os.urandom(random.randrange(100000)))
            file.flush()
            os.fsync(file.fileno())

threads = [threading.Thread(target=write, args=(f"file-{number}",)) for number in range(4)]
for each in threads: each.start()
for each in threads: each.join()
digest = hashlib.sha256()
for name in sorted(os.listdir(".")):
    if name.startswith("file-"):
        digest.update(open(name, "rb").read())
print(digest.hexdigest(), hash("text"), time.time_ns(), time.monotonic_ns(), os.uname().nodename, os.getpid())
"""
# `restic init` measures how fast the processor derives a key, so the repository is made outside.
RESTIC = """
set -e
export RESTIC_REPOSITORY=/mnt/repository
restic backup --no-cache src
head -c 1000000 /dev/urandom >src/more
restic backup --no-cache --json src
restic --no-cache check --read-data
restic --no-cache restore -q latest --target /mnt/restored
diff -r --no-dereference src /mnt/restored/src && ls /mnt/repository/data/*
"""
BORG = """
set -e
export BORG_BASE_DIR=/run/home
borg init -e none repository
borg create --stats repository::one src
head -c 1000000 /dev/urandom >src/more
borg create --stats repository::two src
borg check --verify-data repository
mkdir restored && cd restored && borg extract ../repository::two && diff -r --no-dereference ../src src
borg list ../repository
"""
# It refuses to be root.
POSTGRES = """
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
mkdir database
chown postgres database
cd database
export PGHOST=/tmp
as "$bin/initdb" -A trust -N data >/dev/null
as "$bin/pg_ctl" -w -D data -l log -o "-k /tmp -c listen_addresses=" start >/dev/null
as "$bin/psql" -Atc 'create table t as select i, md5(i::text) from generate_series(1, 20000) i' postgres
shingle-phase transactions
for number in 1 2 3 4 5 6 7 8; do
    as "$bin/psql" -Atc "update t set md5 = md5(md5) where i % 8 = $number" postgres
done
as "$bin/psql" -Atc 'select count(*), min(md5), max(md5) from t' postgres
as "$bin/pg_ctl" -w -D data -m fast stop >/dev/null
"""
MAKE_SRC = (
    "mkdir src; for n in 1 2 3 4; do head -c 2000000 /dev/urandom >src/$n; done; cp -r /usr/share/doc/git src/doc"
)


@dataclass(frozen=True)
class Program:
    """What is run, of which package, and what of it comes out."""

    package: str
    file: str
    script: tuple[str, ...]
    said: str
    setup: str = "true"
    out: str = ""
    # What the host makes before, in the test's folder, and what of it is brought in.
    prepared: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()


PROGRAMS = {
    "git": Program("git", "usr/bin/git", ("sh", "-c", GIT), "", out="tree"),
    "sqlite3": Program(
        "sqlite3",
        "usr/bin/sqlite3",
        ("sh", "-c", SQLITE),
        "ok\n16000|1600000|",
        out="x.db",
    ),
    "python3": Program(
        "python3",
        "usr/bin/python3",
        ("python3", "-c", PYTHON),
        " shingle ",
        out="file-3",
    ),
    "restic": Program(
        "restic",
        "usr/bin/restic",
        ("sh", "-c", RESTIC),
        "no errors were found",
        MAKE_SRC,
        "repository",
        prepared=("restic", "--no-cache", "-q", "init", "-r", "repository"),
        brought=("--in", "repository", "--env", "RESTIC_PASSWORD"),
    ),
    "borg": Program(
        "borgbackup",
        "usr/bin/borg",
        ("sh", "-c", BORG),
        "two  ",
        MAKE_SRC,
        "repository",
    ),
    "postgres": Program(
        "postgresql",
        "usr/lib/postgresql",
        ("sh", "-c", POSTGRES),
        "20000|",
        out="database/data/base",
    ),
}


def contents(path: Path) -> dict[str, bytes | str]:
    """Everything below a path, with its mode and its time."""
    found: dict[str, bytes | str] = {}
    for each in sorted([path, *path.rglob("*")]):
        status = each.lstat()
        found[f"{each.relative_to(path)} {status.st_mode:o} {status.st_mtime_ns // 10**9}"] = (
            str(each.readlink()) if each.is_symlink() else b"" if each.is_dir() else each.read_bytes()
        )
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_host_runs_and_gives_the_same_bytes_twice(bench: Bench, name: str) -> None:
    program = PROGRAMS[name]
    if not (Path("/") / program.file).exists():
        pytest.skip(f"this host has no {name}: apt-get install {program.package}")
    if program.prepared:
        subprocess.run(program.prepared, cwd=bench.folder, env=environment(), timeout=LIMIT_S, check=True)
    runs, taken = [], []
    for number in (1, 2):
        target = bench.folder / f"out-{number}"
        options = (*program.brought, "--name", name, "--setup", program.setup, "--out", f"{program.out}:{target}")
        runs.append(execute(bench, *options, "--", *program.script))
        assert runs[-1].status == 0, runs[-1].err
        taken.append(contents(target))
    one, two = runs
    assert program.said in one.out.decode()
    assert one.phase(name)["total_written_bytes"] > 1 << 20
    assert one.phase(name)["load"]["longest_stall_ns"] > 0
    assert taken[0]
    assert taken[0] == taken[1]
    assert one.out == two.out
    assert one.err == two.err
    assert one.deterministic() == two.deterministic()
    print(name, json.dumps({each["phase"]: each["virtual_s"] for each in one.records}))


def test_another_seed_gives_other_bytes(bench: Bench) -> None:
    one, two = (shell(bench, "head -c 8 /dev/urandom | od -An -tx1", "--seed", seed) for seed in "12")
    assert one.status == two.status == 0
    assert one.out != two.out


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 3", 3),
        ("exit 125", 125),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ],
)
def test_the_status_is_the_command_s(bench: Bench, script: str, status: int) -> None:
    done = shell(bench, script)
    assert done.status == status
    assert done.err == ""
    assert [each["phase"] for each in done.records] == ["mount", "sh", "unmount"]


def test_what_is_printed_comes_through_unmixed_and_whole(bench: Bench) -> None:
    script = "head -c 3000000 /dev/zero; echo one >&2; echo two >/dev/stderr; printf '\\377\\n' >/dev/stdout"
    done = shell(bench, script)
    assert done.status == 0
    assert done.out == bytes(3_000_000) + b"\xff\n"
    assert done.err == "one\ntwo\n"


def test_the_machine_is_alike_everywhere(bench: Bench) -> None:
    script = "pwd; id -u; hostname; echo $HOME $LANG $LC_ALL $GIVEN; env | grep -c FROM_HOST; nproc; date +%Y; tty"
    done = shell(bench, script, "--env", "GIVEN=x y")
    assert done.out.decode().splitlines()[:7] == [
        "/mnt", "0", "shingle", "/run/home C.UTF-8 C.UTF-8 x y", "0", "1", "2026",
    ]  # fmt: skip
    assert shell(bench, "echo $FROM_HOST", "--env", "FROM_HOST").out == b"seen\n"


def test_the_host_s_files_are_there_to_be_read_alone(bench: Bench) -> None:
    done = shell(
        bench,
        f"cat {ROOT}/GLOSSARY.md && echo x >{ROOT}/GLOSSARY.md.new; touch /etc/new; echo x >/tmp/x",
    )
    assert done.out == (ROOT / "GLOSSARY.md").read_bytes()
    assert done.status == 0
    assert done.err.count("Read-only file system") == 2


def test_files_go_in_and_come_out(bench: Bench) -> None:
    tree = bench.folder / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_text("text")
    (tree / "run.sh").write_text("#!/bin/sh\ncat tree/sub/file; cp -r tree copy; echo more >copy/more; pwd\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("sub")
    done = execute(
        bench,
        "--in",
        "tree",
        "--out",
        "copy",
        "--out",
        "copy/more:m",
        "--",
        "./tree/run.sh",
    )
    assert (done.status, done.out, done.err) == (0, b"text/mnt\n", "")
    assert (bench.folder / "m").read_text() == "more\n"
    copy = bench.folder / "copy"
    assert (copy / "link").readlink() == Path("sub")
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o755
    assert {path.name for path in copy.iterdir()} == {"link", "more", "run.sh", "sub"}
    assert [each["phase"] for each in done.records] == [
        "mount",
        "setup",
        "run",
        "unmount",
    ]
    # Nothing of the copying is left beside what was asked for.
    assert {path.name for path in bench.folder.iterdir()} == {
        "tree",
        "copy",
        "m",
        "x.jsonl",
    }


def test_files_come_out_of_memory_where_no_file_system_is(bench: Bench) -> None:
    done = execute(
        bench, "--fs", "none", "--out", "one", "--out", "/tmp/two", "--", "sh", "-c", "echo 1 >one; echo 2 >/tmp/two"
    )
    assert (done.status, done.err) == (0, "")
    assert [(bench.folder / name).read_text() for name in ("one", "two")] == ["1\n", "2\n"]


def test_an_output_that_is_not_there_is_said(bench: Bench) -> None:
    done = shell(bench, "true", "--out", "nothing")
    assert done.status == 125
    assert done.err == "shingle: --out /mnt/nothing: the machine has no such file in the end.\n"
    assert shell(bench, "exit 4", "--out", "nothing").status == 4
    assert not (bench.folder / "nothing").exists()


def test_phases_have_records_that_add_up(bench: Bench) -> None:
    script = """
    head -c 4000000 /dev/zero >a; sync; sleep 10
    shingle-phase second; head -c 8000000 /dev/zero >b; sync
    shingle-phase third; sleep 100
    """
    done = shell(bench, script, "--setup", "head -c 1000000 /dev/zero >s")
    assert done.status == 0, done.err
    assert [each["phase"] for each in done.records] == [
        "mount",
        "setup",
        "sh",
        "second",
        "third",
        "unmount",
    ]
    assert 10 < done.phase("sh")["virtual_s"] < 11
    assert done.phase("second")["virtual_s"] < 2
    assert 100 < done.phase("third")["virtual_s"] < 101
    written = {name: done.phase(name)["data_written_bytes"] for name in ("setup", "sh", "second", "third")}
    assert written == {
        "setup": 1_003_520,
        "sh": 4_001_792,
        "second": 8_003_584,
        "third": 0,
    }
    latency = done.phase("second")["load"]["latency_ns"]["data_written"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
    assert done.phase("second")["configuration"]["command"]["setup"].startswith("head")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("/mnt/nosuch",), 127, "No such file or directory"),
        (("/mnt/plain",), 126, "Permission denied"),
    ],
)
def test_a_program_that_the_machine_cannot_start_is_said(
    bench: Bench, words: tuple[str, ...], status: int, said: str
) -> None:
    done = execute(bench, "--setup", "echo x >plain", "--", *words)
    assert done.status == status
    assert done.err.startswith(f"shingle: {words[0]}: {said}")
    assert done.err.count("\n") == 1
    assert done.records == []


def test_a_setup_that_fails_is_told_from_the_command(bench: Bench) -> None:
    done = shell(bench, "echo begun", "--setup", "echo all is lost >&2; exit 3")
    assert done.status == 125
    assert done.out == b""
    assert "what comes before the command failed: /bin/sh ended with status 3: all is lost." in done.err


def test_a_command_that_waits_for_ever_ends_at_its_limit(bench: Bench) -> None:
    done = shell(bench, "echo begun; sleep 100000", "--limit", "50")
    assert (done.status, done.out) == (124, b"begun\n")
    assert done.err == "shingle: sh ran longer than 50 virtual seconds and was killed.\n"
    assert "killed" in done.phase("sh")["failed"]


def test_what_still_runs_at_the_end_is_ended_and_said(bench: Bench) -> None:
    done = shell(bench, "setsid sleep 100000 >busy 2>&1 & sleep 1; exit 0")
    assert done.status == 0
    assert done.err == "shingle: still running when the command had ended, and ended now: sleep.\n"


def test_a_program_that_spins_is_found_out(bench: Bench) -> None:
    spinner = "import threading, time\nflag = []\nthreading.Timer(1, flag.append, [1]).start()\nwhile not flag: pass"
    done = execute(
        bench,
        "--spin-limit",
        "5",
        "--out",
        "x",
        "--",
        "sh",
        "-c",
        'python3 -c "$0"; true',
        spinner,
    )
    assert done.status == 125
    assert done.err.startswith("shingle: /usr/bin/python3 spins: it took ")
    assert "no virtual time passes while a program computes" in done.err
    assert done.err.count("\n") == 1
    assert not left_behind(bench)


def test_computing_takes_no_time(bench: Bench) -> None:
    done = execute(bench, "--", "python3", "-c", "sum(range(20_000_000))")
    assert done.status == 0
    assert done.phase("python3")["virtual_s"] < 1


def left_behind(bench: Bench) -> list[str]:
    """Processes, folders of runs and parts of files that an ended exec has left."""
    found = [str(path) for path in run_directory().glob("shingle-run-*") if bench.folder.name in str(path)]
    found += [path.name for path in bench.folder.iterdir() if path.name != "x.jsonl"]
    said = subprocess.run(["pgrep", "-af", str(bench.folder)], capture_output=True, text=True, check=False).stdout
    return [*found, *said.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped(bench: Bench, number: signal.Signals) -> None:
    assert bench.built
    began = bench.folder / "began"
    words = argv(["--record", str(bench.folder / "x.jsonl"), "--out", "x", "--", "sh", "-c"])
    with (
        began.open("wb") as out,
        subprocess.Popen(
            [*words, "echo began; while true; do sleep 1; done"],
            cwd=bench.folder, env=environment(), stdout=out, stderr=subprocess.PIPE,
        ) as child,
    ):  # fmt: skip
        # What was printed is there while the command still runs.
        wait_for(lambda: began.read_bytes() == b"began\n", "the command to begin", LIMIT_S)
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    began.unlink()
    assert child.returncode == 128 + number
    assert said.decode().strip() in ("", "shingle: stopped.")
    assert not left_behind(bench)
    assert not (bench.folder / "x.jsonl").exists()


@pytest.mark.parametrize(
    ("file_system", "disk"),
    [
        ("ext4-lazy", "st8000as0002"),
        ("xfs", "wd40efax"),
        ("btrfs", "hc620"),
        ("nilfs2", "wd5000ys"),
        ("f2fs", "wd30ezr"),
    ],
)
def test_it_runs_on_other_file_systems_and_drives(bench: Bench, file_system: str, disk: str) -> None:
    script = "mkdir d; for n in 1 2 3; do head -c 1000000 /dev/zero >d/$n; done; sync; ls d; rm d/2; stat -fc %T ."
    # So much of the host-managed one is conventional zones that 64 GiB are too few.
    done = shell(bench, script, "--drive", disk, "--fs", file_system, "--out", "d", "--capacity-gib", "256")
    assert done.status == 0, done.err
    assert done.out.decode().split()[:3] == ["1", "2", "3"]
    assert {path.name for path in (bench.folder / "d").iterdir()} == {"1", "3"}
    assert done.phase("sh")["data_written_bytes"] >= 3_000_000
    assert done.phase("sh")["file_system"] == file_system
