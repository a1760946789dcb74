# SPDX-License-Identifier: MIT OR Apache-2.0
"""Traces: markers are skipped, damage is refused, and a figure is the same bytes each time."""

from pathlib import Path

import numpy as np
import pytest

from shingle.evidence import figure
from shingle.failure import Failure
from shingle.machine import progress, trace
from shingle.machine.machine import Tick

SECOND = 10**9
LIMITS = progress.CacheLimits(size_bytes=100, entries=4)


def request(completion_s: float, op: int, request_class: int, sector: int = 8, sectors: int = 8) -> bytes:
    one = np.zeros(1, dtype=trace.RECORD)
    one["completion_ns"] = int(completion_s * SECOND)
    one["arrival_ns"] = max(0, int(completion_s * SECOND) - 1000)
    one["sector"], one["sectors"], one["op"], one["class"] = sector, sectors, op, request_class
    return one.tobytes()


def marker(text: bytes) -> bytes:
    one = np.zeros(1, dtype=trace.RECORD)
    one["where"], one["sectors"] = 0xFF, len(text)
    padded = -(-len(text) // trace.RECORD.itemsize) * trace.RECORD.itemsize
    return one.tobytes() + text.ljust(padded, b"\0")


def event(at_s: float, kind: str, began_s: float) -> bytes:
    one = np.zeros(1, dtype=trace.RECORD)
    one["arrival_ns"], one["completion_ns"] = int(at_s * SECOND), int(began_s * SECOND)
    one["where"], one["op"] = 0xFF, trace.EVENTS.index(kind)
    return one.tobytes()


def written(path: Path, *records: bytes) -> Path:
    path.write_bytes(trace.MAGIC + b"".join(records))
    return path


def test_markers_and_their_text_are_no_requests(tmp_path: Path) -> None:
    path = written(tmp_path / "x.trace", request(1, 1, 2), marker(b"x" * 50), request(2, 0, 1), marker(b"end"))
    read = trace.read(path)
    assert len(read.requests) == 2
    assert len(read.select("write", request_class="journal")) == 1
    assert len(read.select("read")) == 1


def test_events_of_the_drive_are_neither_requests_nor_markers(tmp_path: Path) -> None:
    ended = event(2, "cleaning_ended", 1)
    path = written(tmp_path / "x.trace", request(1, 1, 2), event(1, "cleaning_began", 1), ended, marker(b"end"))
    read = trace.read(path)
    assert len(read.requests) == 1
    assert len(read.events) == 2
    assert read.happened("cleaning_ended")["completion_ns"] == SECOND


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.trace").write_bytes(b"nonsense")
    with pytest.raises(Failure, match="is not a request trace"):
        trace.read(tmp_path / "x.trace")
    (tmp_path / "y.trace").write_bytes(trace.MAGIC + b"1" * 47)
    with pytest.raises(Failure, match="cut off"):
        trace.read(tmp_path / "y.trace")


def test_the_same_run_draws_the_same_bytes(tmp_path: Path) -> None:
    path = written(tmp_path / "x.trace", *(request(n / 10, n % 2, n % 4, sector=n * 1000) for n in range(200)))
    ticks = tuple(Tick(n * SECOND, "P", {"cache_bytes": n}) for n in range(20))
    phases = (("P", 0.0, 20.0),)
    series = [figure.Series(name, trace.read(path), ticks, phases, LIMITS) for name in ("ext4", "ext4-lazy")]
    drawn = []
    for name in ("one", "two"):
        svg, png = figure.draw(series, title="P", capacity_bytes=8 << 30, stem=tmp_path / name / "f")
        drawn.append((svg.read_bytes(), png.read_bytes()))
    assert drawn[0] == drawn[1]
    assert b"throughput" in drawn[0][0] or len(drawn[0][0]) > 10_000


def test_a_figure_of_a_run_without_requests_is_drawn_too(tmp_path: Path) -> None:
    empty = figure.Series("nothing", trace.read(written(tmp_path / "x.trace")), (), ())
    assert all(path.exists() for path in figure.draw([empty], title="", capacity_bytes=1 << 30, stem=tmp_path / "f"))


def test_progress_says_time_throughput_and_fill() -> None:
    before = Tick(SECOND, "MakeDirs", {"journal_written_bytes": 0})
    now = Tick(3 * SECOND, "MakeDirs", {"journal_written_bytes": 200 << 20, "cache_entries": 1, "cache_bytes": 8})
    assert progress.describe(now, before, 7.0, LIMITS) == "MakeDirs · virtual 3 s · host 7 s · 100 MiB/s · cache 25.0%"
    assert "cache" not in progress.describe(now, before, 7.0)
