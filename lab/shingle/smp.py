# SPDX-License-Identifier: MIT OR Apache-2.0
"""The torture of journal_lazy on four processors under QEMU: the composed kernel for a PC, with lockdep and delays, or
Debian's unmodified kernel with the module ext4lazy.

User-Mode Linux has one processor. Here the same stress (stress.sh) runs on several, on a virtio disk whose image stays:
each life ends with the death of QEMU while the next stress runs, and the next one begins with what the image holds. The
processors are emulated, so nothing of this takes the same course twice; the seeds of the loads are printed.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shingle import build, fsx, races, stock_kernel
from shingle.console import diagnose
from shingle.failure import Failure
from shingle.paths import run_directory
from shingle.progress import SILENT, Progress
from shingle.torture import FSX_SETTINGS, FSX_SHARE, POLICIES, STRESS, Life, assert_clean, operations_of

PROCESSORS = 4
_DISK_BYTES = 1 << 30
_LIFE_LIMIT_S = 1800.0
_KILL_S = (0.5, 10.0)

_SCRIPT = """
same() {{ run $1 load run mix --dir /mnt --set path='"'$2'"' --set seed=$3 --set threads=4 --set operations={mix} \\
	--set verify_every={mix} --set files_max=150 --set stage='"verify"'; }}
run mount mount -t {kind} -o journal_lazy /dev/vda /mnt
lazy=/sys/fs/{kind}/vda/journal_lazy
say kept: $(cat $lazy/rebuilt)
echo {policy} >$lazy/policy
if [ {number} -gt 0 ]; then
	same verified life$(({number} - 1)) {before}
	rm -rf /mnt/*.fsx? /mnt/c* /mnt/life$(({number} - 2))
fi
run stress sh /stress.sh /usr/bin life{number} {seed} {mix} {fsx}
run sync sync
same checked life{number} {seed}
if [ {last} = yes ]; then
	run unmounted umount /mnt
else
	say synced: $(cat $lazy/relogged) relogged, $(cat $lazy/demoted) demoted
	sh /stress.sh /usr/bin c{number} $(({seed} + 7)) 1000000 1000000
	fail the stress ended
fi
"""


@dataclass(frozen=True)
class System:
    """What is booted, and how it calls the file system."""

    guest: stock_kernel.Guest
    kind: str


def stock(progress: Progress = SILENT) -> tuple[str, Callable[[Path], System]]:
    """Debian's kernel with our module: its name, and how to make a system in a folder."""
    kernel = stock_kernel.kernel(progress)
    module = stock_kernel.module(kernel, progress)
    load = build.build_crates(progress=progress).load

    def make(folder: Path) -> System:
        guest = stock_kernel.guest(kernel, module, load, folder, more=(fsx.program(),))
        return System(_armed(guest), "ext4lazy")

    return kernel.name, make


def composed(built: build.Built) -> Callable[[Path], System]:
    """Busybox, a shell, the load generators and fsx; the kernel has no modules."""

    def make(folder: Path) -> System:
        root = stock_kernel.empty_root(folder)
        for program in (Path("/bin/dash"), built.crates.load, fsx.program()):
            stock_kernel.take_program(program, root)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        (root / "bin/sh").symlink_to("dash")
        (root / "init").write_text(stock_kernel.INIT.replace("MODULES", ""))
        (root / "init").chmod(0o755)
        packed = stock_kernel.packed(root, folder / "initrd")
        return System(_armed(stock_kernel.Guest(built.kernel.linux, packed)), "ext4")

    return make


def _armed(guest: stock_kernel.Guest) -> stock_kernel.Guest:
    return replace(guest, cpus=PROCESSORS, extra={path.name: path.read_bytes() for path in (STRESS, FSX_SETTINGS)})


def series(
    system: Callable[[Path], System], lives: int, seed: int, *, mix: int, block_bytes: int = 4096,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Life]:  # fmt: skip
    """So many mounts of one volume, each but the last ended by a kill."""
    with tempfile.TemporaryDirectory(prefix="shingle-smp-", dir=run_directory()) as name:
        folder = Path(name)
        machine, disk, image = system(folder), folder / "disk", folder / "copy"
        with disk.open("wb") as file:
            file.truncate(_DISK_BYTES)
        made = ["-b", str(block_bytes), "-J", f"size={4 if block_bytes == 1024 else 16}"]
        subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", *made, disk], check=True)
        before = 0
        for number in range(lives):
            tell(f"life {number} of {lives}")
            choose = random.Random(f"{seed} smp {block_bytes} {number}")
            own, policy, last = choose.randrange(1 << 30), choose.choice(POLICIES), number + 1 == lives
            script = _SCRIPT.format(
                mix=mix, fsx=FSX_SHARE * mix, number=number, seed=own, before=before, policy=policy,
                last="yes" if last else "no", kind=machine.kind,
            )  # fmt: skip
            began = time.monotonic()
            place = f"life {number} on {PROCESSORS} processors, seed {seed}, --mix {mix}"
            try:
                booted = machine.guest.boot(
                    script, [disk], folder=folder, limit_s=_LIFE_LIMIT_S,
                    kill_after=None if last else ("synced", choose.uniform(*_KILL_S)),
                )  # fmt: skip
                trouble = diagnose(races.without_others(booted.console))
                if trouble is not None:
                    said = booted.console[booted.console.index(trouble.line) :].splitlines()[:60]
                    raise Failure(f"the kernel {trouble.trouble.value}: {trouble.line}", detail=said)
                shutil.copyfile(disk, image)
                assert_clean(image, f"what the end of life {number} left")
            except Failure as failure:
                raise Failure(f"{place}: {failure}", detail=failure.detail) from None
            before = own
            kept = int(booted.one("kept"))
            yield Life(number, own, block_bytes, operations_of(mix), time.monotonic() - began, kept, policy)
