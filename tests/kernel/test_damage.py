# SPDX-License-Identifier: MIT OR Apache-2.0
"""A bad block in the log costs what it describes: the mount gets past it and says what is lost."""

import re
import struct
from dataclasses import dataclass

import pytest

from harness import Bench
from kernel import stress
from kernel.test_snapshots import (
    Log,
    crashed,
    damaged_first_block,
    formatted_64m,
    found,
    looked_at,
    put,
    some_snapshots,
)

pytestmark = pytest.mark.machine

MAGIC, DESCRIPTOR, COMMIT, REVOKE = 0xC03B3998, 1, 2, 5
SAME_UUID, LAST_TAG = 2, 8
LOST = re.compile(r"descriptor in log block (\d+) of transaction (\d+) is damaged, (\d+) blocks of metadata are lost")


@dataclass(frozen=True)
class Block:
    """One of the log that is no copy."""

    number: int
    kind: int
    transaction: int
    copies: int = 0


def tags(block: bytes) -> int:
    count, at, flags = 0, 12, 0
    while not flags & LAST_TAG:
        (flags,) = struct.unpack_from(">I", block, at + 4)
        at += 16 if flags & SAME_UUID else 32
        count += 1
    return count


def blocks_of(log: Log) -> list[Block]:
    """From the tail to the end, in a log that has not gone round."""
    transaction, number = struct.unpack_from(">2I", log.block(0), 24)
    blocks = []
    while True:
        block = log.block(number)
        magic, kind, sequence = struct.unpack_from(">3I", block)
        if magic != MAGIC or sequence != transaction:
            return blocks
        copies = tags(block) if kind == DESCRIPTOR else 0
        blocks.append(Block(number, kind, sequence, copies))
        number += 1 + copies
        transaction += kind == COMMIT


def test_a_bad_block_of_the_log_costs_what_it_describes(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    blocks = blocks_of(log)
    newest = log.snapshot().log_blk
    descriptor = next(block for block in blocks if block.kind == DESCRIPTOR and block.copies > 100)
    commit = next(block for block in blocks if block.kind == COMMIT)
    revoke = next(
        block
        for block in blocks
        if block.kind == REVOKE and struct.unpack_from(">I", log.block(block.number), 12)[0] > 16
    )
    assert max(descriptor.number, commit.number, revoke.number) < newest
    undo = {block: put(log.places[block.number], log.block(block.number)) for block in (descriptor, commit, revoke)}

    def damaged(block: Block) -> list[dict[str, object]]:
        return [put(log.places[block.number], bytes(4096)), *looked_at(), undo[block]]

    steps = [
        *looked_at(),
        # A snapshot covers them: nobody looks.
        *(step for block in undo for step in damaged(block)),
        damaged_first_block(log),
        *damaged(commit),
        *damaged(descriptor),
    ]
    booted = bench.boot(steps, drive=ran.saved_drive, host_limit_s=400)
    (digest, used), *covered, bare_commit, bare_descriptor = found(booted)
    assert used > 0 and covered == [(digest, used)] * 3, (digest, covered)
    assert bare_commit == (digest, 0)
    assert bare_descriptor[0] != digest
    assert LOST.findall(booted.outcome.console) == [
        (str(descriptor.number), str(descriptor.transaction), str(descriptor.copies))
    ]
    assert (
        f"log block {commit.number} of transaction {commit.transaction} is damaged, nothing" in booted.outcome.console
    )


def test_a_log_that_lost_revokes_is_refused(bench: Bench) -> None:
    """Nobody could know which blocks were freed, and are file data by now."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    revoke = next(
        block
        for block in blocks_of(log)
        if block.kind == REVOKE and struct.unpack_from(">I", log.block(block.number), 12)[0] > 16
    )
    mount = looked_at()[0] | {"may_fail": True}
    steps = [put(log.places[revoke.number], bytes(4096)), damaged_first_block(log), mount]
    booted = bench.boot(steps, drive=ran.saved_drive)
    assert booted.outcome.steps[-1].status != 0
    assert "which blocks were freed is lost" in booted.outcome.console
    stress.assert_no_complaint(booted)
