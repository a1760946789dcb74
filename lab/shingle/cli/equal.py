# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle equal`: whether experiments at a tenth give what they gave before (results/tenth.jsonl)."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.build import build
from shingle.cli.base import err, examples, out
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.runs import experiment, record, run, tenth

_SHOWN = 10


@click.command("equal", epilog=examples("equal e01 e11", "equal e01 --write", "equal e01 --record e01.jsonl --write"))
@click.argument("names", metavar="EXPERIMENT...", nargs=-1, required=True)
@click.option("--record", "file", type=click.Path(path_type=Path), help="Take these records; run nothing.")
@click.option("--write", is_flag=True, help="Add what was seen to results/tenth.jsonl.")
def command(names: tuple[str, ...], file: Path | None, write: bool) -> None:
    """Run experiments at a tenth, and say whether their records are as before but for the keys.

    What was before is in results/tenth.jsonl: a digest of each phase, and the keys of kernel, drive and guest.
    """
    if file is not None and len(names) != 1:
        raise Failure("--record is of one experiment.", status=2)
    different = 0
    for chosen in map(experiment.find, names):
        now = tenth.seen(chosen, _records(chosen, file))
        known = tenth.read()
        before = tenth.latest(known, chosen.name)
        if before is None:
            out.print(f"{chosen.name}: {len(now.phases)} phases, seen for the first time", soft_wrap=True)
        elif changed := tenth.differing(before, now):
            different += 1
            far, where = tenth.largest(before, now)
            told = f"{len(changed)} of {len(now.phases)} phases differ, by at most {far:.4%} ({where})"
            out.print(f"{chosen.name}: {told}", soft_wrap=True)
            for name in changed[:_SHOWN]:
                out.print(f"  {name}", soft_wrap=True)
        else:
            out.print(f"{chosen.name}: {len(now.phases)} phases, all equal", soft_wrap=True)
        if write:
            tenth.write(tenth.added(known, now))
    if different:
        raise Failure(f"{different} of {len(names)} experiments give other records than before.")


def _records(chosen: experiment.Experiment, file: Path | None) -> list[record.Record]:
    scale = tenth.scale_of(chosen)
    if file is not None:
        records = [each for each in record.read(file) if each["experiment"] == chosen.name]
        if not records:
            raise Failure(f"{file} holds no records of {chosen.name}.", status=2)
        return records
    with Terminal(err) as progress:
        built = build.everything(progress=progress)
        cells = list(chosen.cells(scale, tenth.SEED).values())
        run.check_memory(cells)
        return [each for result in run.side_by_side(built, cells, progress) for each in result.records]
