# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same command and seed give the same bytes, whatever the host is doing (docs/design/determinism.md)."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from harness import Bench, Booted
from shingle.catalogue import workload
from shingle.catalogue.drive import find as find_drive
from shingle.catalogue.fs import find as find_fs
from shingle.machine import job
from shingle.machine import trace as traces
from shingle.runs import record, run
from shingle.runs.run import Keep, Run

pytestmark = pytest.mark.machine

CAPACITY_BYTES = 64 << 30


@contextlib.contextmanager
def host_load() -> Iterator[None]:
    """Keeps every processor of the host busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(spin) for _ in range(3)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def assert_same_trace(one: traces.Trace, two: traces.Trace) -> None:
    """Event by event, so that a failure names the first one that differs."""
    shared = min(len(one.requests), len(two.requests))
    differ = np.flatnonzero(one.requests[:shared] != two.requests[:shared])
    if len(differ):
        first = int(differ[0])
        pytest.fail(f"request {first} differs:\n{one.requests[first]}\n{two.requests[first]}")
    assert len(one.requests) == len(two.requests)


@pytest.mark.parametrize("fs_name", ["ext4", "ext4-lazy", "btrfs"])
def test_an_experiment_repeats_under_host_load(bench: Bench, fs_name: str) -> None:
    plan = workload.plan(["MakeDirs", "CreateFiles", "RemoveDirs"], scale=0.002, seed=7)
    wanted = Run(find_drive("st8000as0002"), find_fs(fs_name), plan, memory_mib=512, capacity_bytes=CAPACITY_BYTES)
    quiet = run.perform(bench.built, wanted, keep=Keep(bench.folder / "quiet"))
    with host_load():
        loaded = run.perform(bench.built, wanted, keep=Keep(bench.folder / "loaded"))
    assert quiet.trace is not None
    assert loaded.trace is not None
    assert_same_trace(traces.read(quiet.trace), traces.read(loaded.trace))
    lines = [[record.line(record.deterministic(each)) for each in result.records] for result in (quiet, loaded)]
    assert lines[0] == lines[1]


def test_another_seed_is_another_run(bench: Bench) -> None:
    def bytes_of(seed: int) -> list[str]:
        plan = workload.plan(["CreateFiles"], scale=0.001, seed=seed)
        wanted = Run(find_drive("st8000as0002"), find_fs("ext4"), plan, memory_mib=512, capacity_bytes=CAPACITY_BYTES)
        return [json.dumps(each["counters"]) for each in run.perform(bench.built, wanted).records]

    assert bytes_of(1) != bytes_of(2)


def same_twice(bench: Bench, *steps: job.Step) -> tuple[Booted, Booted]:
    quiet = bench.boot(steps, seed=5)
    with host_load():
        return quiet, bench.boot(steps, seed=5)


def test_random_numbers_come_from_the_seed(bench: Bench) -> None:
    dump = ["/usr/bin/od", "-An", "-tx1", "-N64", "/dev/urandom"]
    steps = [job.run(dump, stdout="random.txt"), job.run(["/bin/cat", "/proc/sys/kernel/random/uuid"], stdout="id.txt")]
    one, two = same_twice(bench, *steps)
    assert one.text("random.txt") == two.text("random.txt")
    assert one.text("id.txt") == two.text("id.txt")
    assert bench.boot(steps, seed=6).text("random.txt") != one.text("random.txt")


def test_addresses_do_not_move(bench: Bench) -> None:
    show = ["/bin/sh", "-c", "cat /proc/self/maps | grep -v vvar"]
    one, two = same_twice(bench, job.run(show, stdout="maps.txt"))
    assert one.text("maps.txt") == two.text("maps.txt")


def test_the_clock_starts_at_the_same_moment_and_runs_alike(bench: Bench) -> None:
    one, two = same_twice(bench, job.run(["/bin/date", "+%s.%N"], stdout="date.txt"), job.sleep(10))
    assert one.text("date.txt") == two.text("date.txt")
    assert one.results() == two.results()


# rdtsc or rdtscp; shl rdx, 32; or rax, rdx; ret. Of the last one only the first byte is in the second page.
TSC = """
import ctypes, mmap, time
memory = mmap.mmap(-1, 3 * mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def reader(place, code):
    code += bytes.fromhex("48c1e2204809d0c3")
    memory[place : place + len(code)] = code
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(start + place)
rdtsc, rdtscp = b"\\x0f\\x31", b"\\x0f\\x01\\xf9"
readers = [reader(0, rdtsc), reader(101, rdtscp), reader(4094, rdtsc), reader(8191, rdtscp)]
for read in readers:
    before, begun_ns = read(), time.monotonic_ns()
    time.sleep(1)
    print(before, read() - before, time.monotonic_ns() - begun_ns)
end = readers[0]() + 100000
while readers[0]() < end:
    pass
print(readers[1]())
"""


def test_the_processor_s_clock_is_virtual(bench: Bench) -> None:
    one, two = same_twice(bench, job.run(["/usr/bin/python3", "-I", "-c", TSC], stdout="tsc.txt"))
    assert one.text("tsc.txt") == two.text("tsc.txt")
    *slept, _ = (list(map(int, line.split())) for line in one.text("tsc.txt").splitlines())
    assert len(slept) == 4
    for _, grown, ns in slept:
        assert abs(grown - ns) < 100_000
        assert ns > 1_000_000_000


def test_the_order_of_files_on_the_host_does_not_reach_the_results(bench: Bench) -> None:
    """Programs that list folders of the host see the host's order; what a run reads from there is sorted."""
    one, two = same_twice(bench, job.run(["/bin/ls", "-U", "/usr/share/doc"], stdout="ls.txt"))
    assert sorted(one.text("ls.txt").split()) == sorted(two.text("ls.txt").split())
    assert one.results() == two.results()
