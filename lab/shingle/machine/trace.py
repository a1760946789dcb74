# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a request trace (seam 5 of docs/reference/interfaces.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shingle.failure import Failure

MAGIC = b"SHGLTRC1"
OPERATIONS = (
    "read",
    "write",
    "flush",
    "discard",
    "write_zeroes",
    "zone_open",
    "zone_close",
    "zone_finish",
    "zone_reset",
    "zone_reset_all",
)
# What the drive did by itself, by number.
EVENTS = (
    "",
    "cleaning_began",
    "cleaning_ended",
    "stream_began",
    "stream_ended",
    "forced_began",
    "forced_ended",
    "fault",
)
# Bit of a request's flags: it ended with an error.
FAILED = 0x80
CLASSES = ("data", "metadata", "journal", "superblock")
_MARKER = 0xFF

RECORD = np.dtype(
    [
        ("arrival_ns", "<u8"),
        ("completion_ns", "<u8"),
        ("sector", "<u8"),
        ("sectors", "<u4"),
        ("op", "u1"),
        ("class", "u1"),
        ("flags", "u1"),
        ("where", "u1"),
        ("service_ns", "<u8"),
        ("sequence", "<u8"),
    ]
)

Requests = npt.NDArray[np.void]


@dataclass(frozen=True)
class Trace:
    """The requests of a run, in order of completion, without the markers, and the drive's own events."""

    requests: Requests
    events: Requests

    def select(self, operation: str, *, request_class: str | None = None) -> Requests:
        chosen = self.requests["op"] == OPERATIONS.index(operation)
        if request_class is not None:
            chosen &= self.requests["class"] == CLASSES.index(request_class)
        selected: Requests = self.requests[chosen]
        return selected

    def happened(self, event: str) -> Requests:
        """The drive's events of one kind: `arrival_ns` is when, `completion_ns` when what ended had begun."""
        selected: Requests = self.events[self.events["op"] == EVENTS.index(event)]
        return selected


def read(path: Path) -> Trace:
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC:
        raise Failure(f"{path.name} is not a request trace.")
    body = len(data) - len(MAGIC)
    if body % RECORD.itemsize:
        raise Failure(f"{path.name} is cut off in the middle of a record.")
    records = np.frombuffer(data, dtype=RECORD, offset=len(MAGIC))
    requests, events = _kinds(records)
    return Trace(records[requests], records[events])


def _kinds(records: Requests) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which records are requests, and which are events: neither are markers nor the text that follows one."""
    chosen, events = np.ones(len(records), dtype=bool), np.zeros(len(records), dtype=bool)
    for index in np.flatnonzero(records["where"] == _MARKER):
        if chosen[index]:
            # An event is a marker without a text.
            events[index] = records["sectors"][index] == 0 and records["op"][index] != 0
            text_records = -(-int(records["sectors"][index]) // RECORD.itemsize)
            chosen[index : index + 1 + text_records] = False
    return chosen, events
