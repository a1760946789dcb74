# SPDX-License-Identifier: MIT OR Apache-2.0
"""The torture of journal_lazy on four processors under QEMU: the composed kernel for a PC, with lockdep and delays, or
Debian's unmodified kernel with the module ext4lazy (docs/results/torture.md).

User-Mode Linux has one processor. Here the same stress (stress.sh) runs on several, on a virtio disk whose image stays:
each life ends with the death of QEMU while the next stress runs, and the next one begins with what the image holds. The
processors are emulated, so nothing of this takes the same course twice; the seeds of the loads are printed.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.build import build
from shingle.build.tools import FSX
from shingle.debian import stock_kernel
from shingle.failure import Failure
from shingle.machine.console import diagnose
from shingle.machine.progress import SILENT, Progress
from shingle.paths import run_folder
from shingle.verify import races, torture
from shingle.verify.crash_workload import BLOCKS_PROGRAM
from shingle.verify.torture import COUNTED, FIRST, FSX_SHARE, ORACLE, POLICIES, Life, Series, Shape

PROCESSORS = 4
_LIFE_LIMIT_S = 1800.0
_KILL_S = (0.5, 10.0)
# What looks for faults, besides the oracles.
LOCKDEP, KCSAN = "lockdep", "KCSAN"
# By default it watches one access in 4,000 for 80 µs, in which emulated processors hardly meet.
_KCSAN_ARGUMENTS = ("kcsan.skip_watch=500", "kcsan.udelay_task=500")
_PYTHON = (ORACLE, BLOCKS_PROGRAM)
# The disk is made on the host, where a journal on another device needs devices.
NOT_HERE = ("external-journal",)

_SCRIPT = """
oracle() {{ python3 -I /oracle.py "$@"; }}
blocks() {{ DATA_ROOT={base}/$1.blocks DATA_NOTES={base}/$1.notes python3 -I /data_work.py check; }}
same() {{
	run $1 load run mix --dir {base} --set path='"'$2'"' --set seed=$3 --set threads=4 --set operations={mix} \
		--set verify_every={mix} --set files_max=150 --set stage='"verify"'
	run $1-names oracle check {base}/$2.names $3 {turns}
	run $1-blocks blocks $2
}}
say processors: $(grep -c ^processor /proc/cpuinfo)
mounted() {{
	run mount mount -t {kind} -o {options} /dev/vda /mnt
	[ {secret} = no ] || run unlocked oracle unlock /mnt
}}
lazy=/sys/fs/{kind}/vda/journal_lazy
said() {{
	say counts: $(cd $lazy && grep -s . {counted} /dev/null; cd $lazy/.. && grep -s . {moved} /dev/null)
	[ ! -e /proc/lockdep_stats ] || say locks: $(grep debug_locks: /proc/lockdep_stats)
}}
unmounted() {{
	said
	run unmounted umount /mnt
}}
mounted
[ ! -e $lazy/policy ] || echo {policy} >$lazy/policy
if [ {number} = 0 ]; then
	[ {secret} = no ] || run secret oracle unlock /mnt {base}
	run reserved oracle reserve /mnt/reserved {room}
else
	same verified life$(({number} - 1)) {before}
	rm -rf /mnt/*.fsx? /mnt/c* {base}/c* {base}/life$(({number} - 2))*
fi
if [ {compare} = yes ]; then
	run filled oracle fill /mnt/filled {seed}
	run drained oracle drain /mnt
	echo 3 >/proc/sys/vm/drop_caches
	run compared oracle compare /mnt/filled {seed}
	same behind life$(({number} - 1)) {before}
	rm -rf /mnt/filled
fi
run stress sh /stress.sh /usr/bin {base} life{number} {seed} {mix} {fsx} {turns}
say names: $(grep '^operations ' /tmp/out)
run sync sync
unmounted
mounted
[ ! -e $lazy/policy ] || echo {policy} >$lazy/policy
same checked life{number} {seed}
if [ {last} = yes ]; then
	unmounted
else
	said
	say synced: yes
	sh /stress.sh /usr/bin {base} c{number} $(({seed} + 7)) 1000000 1000000 1000000
	fail the stress ended
fi
"""


@dataclass(frozen=True)
class System:
    """What is booted, and how it calls the file system."""

    guest: stock_kernel.Guest
    kind: str
    # What the kernel is to say of itself, or nothing.
    checker: str = ""


def stock(progress: Progress = SILENT) -> tuple[str, Callable[[Path], System]]:
    """Debian's kernel with our module: its name, and how to make a system in a folder."""
    kernel = stock_kernel.kernel(progress)
    module = stock_kernel.module(kernel, progress)
    load = build.build_crates(progress=progress).load

    def make(folder: Path) -> System:
        guest = stock_kernel.guest(kernel, module, load, folder, more=(FSX.program(),), python=_PYTHON)
        return System(_armed(guest), "ext4lazy")

    return kernel.name, make


def composed(built: build.Built, checker: str) -> Callable[[Path], System]:
    """Busybox, a shell, the load generators and fsx; the kernel has no modules, but one of CHECKERS."""

    def make(folder: Path) -> System:
        root = stock_kernel.empty_root(folder)
        for program in (Path("/bin/dash"), Path("/usr/bin/python3"), built.crates.load, FSX.program()):
            stock_kernel.take_program(program, root)
        for program in _PYTHON:
            stock_kernel.take_python(program, root)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        (root / "bin/sh").symlink_to("dash")
        (root / "init").write_text(stock_kernel.INIT.replace("MODULES", ""))
        (root / "init").chmod(0o755)
        packed = stock_kernel.packed(root, folder / "initrd")
        arguments = _KCSAN_ARGUMENTS if checker == KCSAN else ()
        return System(
            _armed(stock_kernel.Guest(built.kernel.linux, packed, kernel_arguments=arguments)), "ext4", checker
        )

    return make


def _watched(booted: stock_kernel.Booted, checker: str) -> None:
    """Who is alone meets nobody; a checker that is off, or that gave up, finds nothing."""
    if booted.one("processors") != str(PROCESSORS):
        raise Failure(f"the kernel runs {booted.one('processors')} processors instead of {PROCESSORS}.")
    if checker == LOCKDEP:
        said = booted.results.get("locks", ["nothing"])
        if {each.split()[-1] for each in said} != {"1"}:
            raise Failure(f"lockdep is off: it says {said}.")
    elif checker == KCSAN and "kcsan: enabled" not in booted.console:
        raise Failure("KCSAN is off.")


def _armed(guest: stock_kernel.Guest) -> stock_kernel.Guest:
    return replace(guest, cpus=PROCESSORS, extra={path.name: path.read_bytes() for path in torture.PROGRAMS})


def series(
    system: Callable[[Path], System], asked: Series, *, others: Counter[str],
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Life]:  # fmt: skip
    """Whole volumes until so many operations are done, or `only` one; each life but a volume's last ends with a kill.

    `others`: where data races of stock code are counted.
    """
    done = 0
    with run_folder() as folder:
        machine = system(folder)
        for shape in torture.shapes(asked.seed, (*asked.without, *NOT_HERE)):
            if asked.only not in (None, shape.number):
                continue
            for life in _lives(machine, shape, asked, others, folder, tell):
                done += life.operations
                yield life
            if done >= asked.operations or asked.only is not None:
                return


def _lives(
    machine: System, shape: Shape, asked: Series, others: Counter[str], folder: Path, tell: Callable[[str], None]
) -> Iterator[Life]:
    mix, relocates = asked.mix, asked.relocates
    disk, image = folder / "disk", folder / "copy"
    with disk.open("wb") as file:
        file.truncate(0)
        file.truncate(shape.file_system_bytes)
    subprocess.run(shape.mke2fs(str(disk), None), check=True)
    before = 0
    for number in range(torture.LIVES):
        tell(f"life {number} of volume {shape.number} ({shape.feature}, a log of {shape.log_mib} MiB)")
        choose = random.Random(f"{asked.seed} smp {shape} {number}")
        own, policy, last = choose.randrange(1 << 30), choose.choice(POLICIES), number + 1 == torture.LIVES
        script = _SCRIPT.format(
            mix=mix, fsx=FSX_SHARE * mix, turns=torture.turns_of(mix), number=number, seed=own, before=before,
            policy=policy, last="yes" if last else "no", kind=machine.kind, base=shape.made.base,
            options=shape.made.mount_options(relocates=relocates), secret="yes" if shape.made.secret else "no",
            room=shape.made.room, compare="yes" if number % 2 else "no", counted=" ".join((*COUNTED, *FIRST)),
            moved=torture.MOVED,
        )  # fmt: skip
        began = time.monotonic()
        place = (
            f"life {number} of volume {shape.number} ({shape.feature}, a log of {shape.log_mib} MiB) on {PROCESSORS} "
            "processors"
        )
        try:
            booted = machine.guest.boot(
                script, [disk], folder=folder, limit_s=_LIFE_LIMIT_S,
                kill_after=None if last else ("synced", choose.uniform(*_KILL_S)),
            )  # fmt: skip
            trouble = diagnose(races.without_others(booted.console, others))
            if trouble is not None:
                said = booted.console[booted.console.index(trouble.line) :].splitlines()[:60]
                raise Failure(f"the kernel {trouble.trouble.value}: {trouble.line}", detail=said)
            _watched(booted, machine.checker)
            # Most of it is a hole.
            subprocess.run(["cp", "--sparse=always", disk, image], check=True)
            torture.assert_clean(image, f"what the end of life {number} left")
        except Failure as failure:
            again = f"Again: {asked.again(shape.number)}"
            raise Failure(f"{place}: {failure} {again}", detail=failure.detail) from None
        before = own
        names = int(booted.one("names").split()[1])
        compared = int(booted.one("compared").split()[1]) if number % 2 else 0
        counts = torture.counts_of([each.replace(" ", "\n") for each in booted.results["counts"]])
        operations = torture.operations_of(mix, names)
        seconds = time.monotonic() - began
        yield Life(number, own, shape, operations, seconds, policy, counts, compared, relocates)
