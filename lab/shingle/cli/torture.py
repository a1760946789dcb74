# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle torture`: journal_lazy over many mounts with power cuts between."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click

from shingle import process
from shingle.build import build
from shingle.cli.base import SEED, comma_separated, err, examples, out
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.verify import races, smp, torture


@click.command(
    "torture",
    epilog=examples(
        "torture --operations 100000",
        "torture --operations 10000000 --seed 7 --record results/torture.jsonl",
        "torture --data-in-order --operations 100000",
        "torture --smp --operations 500000",
        "torture --stock-kernel --operations 100000",
    ),
)
@click.option("--operations", type=click.IntRange(1), default=100_000, show_default=True, help="At least so many.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same series.")
@click.option(
    "--mix", type=click.IntRange(10), default=1000, show_default=True, help="Of a life; a thread's operations."
)
@click.option("--smp", "on_smp", is_flag=True, help="On four processors, emulated by QEMU, which is killed.")
@click.option("--kcsan", is_flag=True, help="With --smp: look for data races instead of wrong orders of locks.")
@click.option("--data-in-order", is_flag=True, help="With data_relocate, too.")
@click.option("--stock-kernel", "on_stock", is_flag=True, help="The same on Debian's kernel with the module ext4lazy.")
@click.option("--volume", "only", type=click.IntRange(0), help="Only the series' volume of this number, all its lives.")
@click.option("--without", default="", help="Leave out these features, separated by commas (docs/results/torture.md).")
@click.option("--write", is_flag=True, help="Sums of results/torture.jsonl go to docs/results/torture.md; run nothing.")
@click.option("--kernel", "variant", default="sanitize", show_default=True, help="As for ./shingle build.")
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path), help="Add one JSON line to this file."
)
def command(
    operations: int,
    seed: int,
    mix: int,
    on_smp: bool,
    kcsan: bool,
    data_in_order: bool,
    on_stock: bool,
    only: int | None,
    without: str,
    write: bool,
    variant: str,
    record_file: Path | None,
) -> None:
    """Work journal_lazy hard over many mounts with power cuts between, under all checkers (docs/results/torture.md)."""
    if write:
        torture.write_page()
        return
    done: list[torture.Life] = []
    others = Counter[str]()
    left_out = comma_separated(without)
    with Terminal(err) as progress:
        if on_stock:
            kernel, system = smp.stock(progress)
        else:
            variant = build.chosen(variant)
            if on_smp:
                variant = build.KCSAN if kcsan else build.SMP
            built = build.everything(variant, progress=progress)
            kernel, system = built.kernel.key, smp.composed(built, smp.KCSAN if kcsan else smp.LOCKDEP)
        emulated = on_smp or on_stock
        options = [
            name for name, is_set in (("--smp", on_smp), ("--kcsan", kcsan), ("--stock-kernel", on_stock)) if is_set
        ]
        if not emulated and variant != "sanitize":
            options += ["--kernel", variant]
        asked = torture.Series(seed, mix, operations, only, left_out, relocates=data_in_order, options=options)
        began, cpu_before_s = time.monotonic(), process.children_cpu_s()
        with progress.task("torture") as tell:
            if emulated:
                series = smp.series(system, asked, others=others, tell=tell)
            else:
                # The kernel that counts lines has no kmemleak.
                series = torture.series(built, asked, leaks=variant == "sanitize", tell=tell)
            for life in series:
                done.append(life)
                out.print(torture.described(life), soft_wrap=True)
                out.print(f"  {asked.again(life.shape.number)}", soft_wrap=True)
                if record_file is not None:
                    processors = smp.PROCESSORS if emulated else 1
                    torture.write_record(record_file, life, kernel, seed, processors=processors, kcsan=kcsan)
    seconds, total = time.monotonic() - began, sum(life.operations for life in done)
    table.put(out, torture.table(done))
    if kcsan:
        out.print(races.left_out(others), soft_wrap=True)
    missing = torture.lacking(done, (*left_out, *(smp.NOT_HERE if emulated else ())), counts_all=not on_stock)
    if missing:
        raise Failure(missing[0], detail=missing[1:])
    out.print(
        f"{total:,} operations in {len(done)} lives, {seconds:.0f} s, {total / seconds:,.0f} a second, "
        f"{total / (process.children_cpu_s() - cpu_before_s):,.0f} a second of processor time; "
        f"nothing differed, no complaint; seed {seed}",
        soft_wrap=True,
    )
