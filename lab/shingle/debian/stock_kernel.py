# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's own kernel, unmodified, under QEMU, and the package ext4lazy built for it.

QEMU emulates the processor (TCG), so this needs no hardware acceleration; no
virtual time either: what is checked here is that the module loads, works and
recovers where users run it, never how fast.

The kernel and its headers are downloaded and unpacked into the cache; nothing
is installed on the host.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shingle import process
from shingle.build.build import KERNEL_SOURCE
from shingle.failure import Failure
from shingle.machine.progress import SILENT, Progress
from shingle.paths import ROOT, ContentKey, cache, files_below, locked, prune, used

PACKAGING = ROOT / "packaging"
_DOWNLOAD_LIMIT_S = 600.0
_BUILD_LIMIT_S = 900.0
_POLL_S = 0.05
_KEPT = 4
# What the guest loads or may load, in no order: modprobe knows what needs what.
_MODULES = (
    "virtio_blk", "crc16", "mbcache", "crc32c_generic", "crc32c-intel", "libcrc32c", "jbd2", "ext4",
    "loop", "dm-mod", "dm-bufio", "dm-snapshot",
    # The features quota and encrypt.
    "quota_tree", "quota_v2", "xts", "cts",
)  # fmt: skip
_PROGRAMS = (
    "/bin/dash", "/bin/mount", "/bin/umount", "/sbin/losetup", "/sbin/dmsetup", "/sbin/fsck", "/sbin/blkid",
    "/bin/lsblk", "/sbin/blockdev", "/sbin/modprobe", "/sbin/e2fsck", "/sbin/mke2fs", "/sbin/tune2fs", "/sbin/dumpe2fs",
    "/sbin/debugfs", "/usr/bin/python3",
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """Debian's kernel of one version, unpacked."""

    name: str
    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "boot" / f"vmlinuz-{self.name}"

    @property
    def headers(self) -> Path:
        return self.folder / "usr/src" / f"linux-headers-{self.name}"

    @property
    def modules(self) -> Path:
        # Debian 13 has them below /usr.
        usr = self.folder / "usr/lib/modules" / self.name
        return usr if usr.is_dir() else self.folder / "lib/modules" / self.name


def version() -> str:
    """That of the installed kernel source, of which the package is made."""
    name = KERNEL_SOURCE.name.partition(".tar")[0]
    said = process.run(["dpkg-query", "-W", "-f", "${Version}", name], what=f"dpkg-query -W {name}", limit_s=60)
    return said.partition("-")[0]


def kernel(progress: Progress = SILENT) -> Kernel:
    """Debian's kernel of the version that the package is made from."""
    prefix = f"linux-image-{version()}+deb"
    listed = process.run(["apt-cache", "pkgnames", prefix], what="apt-cache pkgnames", limit_s=60).split()
    names = sorted(name for name in listed if re.fullmatch(r"linux-image-[0-9.]+\+deb[0-9]+-amd64", name))
    if not names:
        raise Failure(
            f"apt knows no {prefix}NN-amd64: expected the kernel of the installed source; try apt-get update."
        )
    name = names[-1].removeprefix("linux-image-")
    folder = cache() / "stock-kernels" / name
    with locked("stock-kernel"):
        if not folder.exists():
            with progress.task(f"downloading Debian's kernel {name}"):
                _download(name, folder)
                prune(folder.parent, keep=_KEPT)
        used(folder)
    return Kernel(name, folder)


def _download(name: str, folder: Path) -> None:
    common = name.removesuffix("-amd64")
    debs = [
        f"linux-image-{name}",
        f"linux-headers-{name}",
        f"linux-headers-{common}-common",
        f"linux-kbuild-{common}",
    ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shingle-", dir=folder.parent) as scratch:
        process.run(
            ["apt-get", "-q", "download", *debs],
            what=f"downloading {', '.join(debs)}",
            limit_s=_DOWNLOAD_LIMIT_S,
            cwd=Path(scratch),
        )
        part = Path(scratch) / "kernel"
        for deb in sorted(Path(scratch).glob("*.deb")):
            process.run(["dpkg-deb", "-x", deb, part], what=f"unpacking {deb.name}", limit_s=300)
        # The one absolute path in the headers: where the common part would be installed.
        makefile = part / "usr/src" / f"linux-headers-{name}" / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder}/usr/src/"))
        part.rename(folder)


# --- The package ----------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """The packages, and the module as DKMS built it from them, below one folder of the cache."""

    folder: Path
    version: str

    @property
    def root(self) -> Path:
        """What the packages would install."""
        return self.folder / "root"

    @property
    def ko(self) -> Path:
        return self.folder / "ext4lazy.ko"

    @property
    def log(self) -> Path:
        return self.folder / "dkms.log"


def packages(out: Path) -> list[Path]:
    """The Debian packages ext4lazy-dkms and ext4lazy-tools, built by dpkg-buildpackage."""
    process.run([PACKAGING / "build", out], what="packaging/build", limit_s=_BUILD_LIMIT_S)
    found = sorted(out.glob("*.deb"))
    if [path.name.partition("_")[0] for path in found] != ["ext4lazy-dkms", "ext4lazy-tools"]:
        raise Failure(f"{out} holds {len(found)} packages: expected ext4lazy-dkms and ext4lazy-tools.")
    return found


def _key(chosen: Kernel) -> str:
    key = ContentKey("ext4lazy 1").file("source", KERNEL_SOURCE).text("kernel", chosen.name)
    sources = [*files_below(PACKAGING), *files_below(ROOT / "kernel")]
    return key.tree(ROOT, [path for path in sources if path.suffix != ".md"]).hexdigest()


def module(chosen: Kernel, progress: Progress = SILENT) -> Module:
    """What `apt install ./ext4lazy-*.deb` would do, in a folder."""
    stored = cache() / "stock-modules" / _key(chosen)
    with locked("stock-module"):
        if not stored.exists():
            with progress.task("building the package and the module ext4lazy"):
                # Always the same place, so that the compiler's cache knows what it sees.
                part = stored.parent / "building"
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                _build(chosen, part)
                part.rename(stored)
                prune(stored.parent, keep=_KEPT)
        used(stored)
    sources = next((stored / "root/usr/src").glob("ext4lazy-*"))
    return Module(stored, sources.name.removeprefix("ext4lazy-"))


def _build(chosen: Kernel, folder: Path) -> None:
    root = folder / "root"
    for deb in packages(folder / "packages"):
        process.run(["dpkg-deb", "-x", deb, root], what=f"unpacking {deb.name}", limit_s=60)
    dkms("add", chosen, folder)
    dkms("build", chosen, folder)
    built = sorted((folder / "dkms").rglob("module/ext4lazy.ko"))
    if len(built) != 1:
        log = (folder / "dkms.log").read_text()
        raise Failure(f"dkms left {len(built)} modules: expected one.", detail=log.splitlines()[-25:])
    shutil.copy(built[0], folder / "ext4lazy.ko")
    shutil.rmtree(folder / "dkms")
    for staged in (folder / "packages").glob("ext4lazy-*/"):
        shutil.rmtree(staged)


def dkms(
    action: str,
    chosen: Kernel,
    folder: Path,
    *options: str,
    kernel_name: str | None = None,
    accept: Sequence[int] = (0,),
) -> str:
    """One dkms command, as if for a kernel of another name if one is given, with everything below `folder`."""
    tree = folder / "dkms"
    tree.mkdir(exist_ok=True)
    sources = folder / "root/usr/src"
    version = next(sources.glob("ext4lazy-*")).name.removeprefix("ext4lazy-")
    environment = os.environ | {
        "PATH": f"/usr/lib/ccache:/usr/sbin:{os.environ['PATH']}",
        "CCACHE_DIR": str(cache() / "ccache"),
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
    }
    return process.run(
        [
            "dkms", action, f"ext4lazy/{version}", "-k", kernel_name or chosen.name, "--kernelsourcedir",
            chosen.headers, "--dkmstree", tree, "--sourcetree", sources, *options,
        ],
        what=f"dkms {action}", limit_s=_BUILD_LIMIT_S, env=environment, log=folder / "dkms.log", accept=accept,
    )  # fmt: skip


# --- The guest --------------------------------------------------------------------

INIT = """#!/bin/sh
# The guest's first program: what it finds out goes to the second serial line.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /etc /var/tmp
/bin/busybox --install -s /usr/bin 2>/dev/null	# what is there already stays
export PATH=/usr/sbin:/usr/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ln -s /proc/self/mounts /etc/mtab
stty raw </dev/ttyS1
say() { echo "$*" >/dev/ttyS1; }
fail() { say "failed: $*"; reboot -f; sleep 60; }
# The result of a command that must succeed: `run NAME COMMAND...` says `NAME: last line of its output`.
run() {
	name=$1; shift
	echo "+ $*"
	"$@" >/tmp/out 2>&1 || { status=$?; cat /tmp/out; fail "$name: status $status: $(tail -n 3 /tmp/out)"; }
	cat /tmp/out
	say "$name: $(tail -n 1 /tmp/out)"
}
lazy() { cat "/sys/fs/ext4lazy/$1/journal_lazy/$2"; }
# What the last lazy mount found in its log, in blocks.
kept() { dmesg | sed -n 's/.*JBD2: .*: kept \\([0-9]*\\) blocks in the log.*/\\1/p' | tail -n 1; }
for module in MODULES; do modprobe $module || fail "no module $module"; done
# Nobody types at the console.
. /script </dev/null
say done
reboot -f
sleep 60
"""


@dataclass(frozen=True)
class Booted:
    """What a guest said: its results, by name, and its console."""

    results: dict[str, list[str]]
    console: str
    finished: bool

    def one(self, name: str) -> str:
        """The result that was said once."""
        said = self.results.get(name, [])
        assert len(said) == 1, f"{name} was said {len(said)} times\n{self.console[-3000:]}"
        return said[0]


@dataclass(frozen=True)
class Guest:
    """A kernel with a file system in memory, ready to boot."""

    image: Path
    base: Path
    memory_mib: int = 768
    cpus: int = 1
    kernel_arguments: tuple[str, ...] = ()
    extra: dict[str, bytes] = field(default_factory=dict)

    def boot(
        self,
        script: str,
        disks: Sequence[Path],
        *,
        folder: Path,
        limit_s: float = 480,
        kill_after: tuple[str, float] | None = None,
    ) -> Booted:
        """Boots, runs `script` and waits for the end.

        The disks are vda, vdb, … With `kill_after` (result, seconds) the machine is killed so many seconds after the
        result was said, as by a power cut. What it wrote by then stays, in the order of the host's page cache.
        """
        with tempfile.TemporaryDirectory(prefix="shingle-guest-", dir=folder) as scratch:
            own = Path(scratch)
            initrd = own / "initrd"
            with initrd.open("wb") as file:
                file.write(self.base.read_bytes())
                file.write(_archive({"script": script.encode(), **self.extra}))
            argv: list[str | Path] = [
                "qemu-system-x86_64", "-accel", "tcg", "-machine", "pc", "-cpu", "max",
                # The firmware's table for kernels without ACPI lists one processor of each socket.
                "-smp", f"{self.cpus},sockets={self.cpus}",
                "-m", str(self.memory_mib), "-nodefaults", "-no-reboot", "-display", "none",
                "-serial", f"file:{own / 'console'}", "-serial", f"file:{own / 'results'}",
                "-kernel", self.image, "-initrd", initrd,
                # Under load an emulated timer is late, which the kernel would take for a broken one.
                "-append", " ".join((
                    "console=ttyS0 panic=-1 oops=panic mitigations=off no_timer_check", *self.kernel_arguments
                )),
            ]  # fmt: skip
            for disk in disks:
                argv += ["-drive", f"file={disk},if=virtio,format=raw,cache=writeback"]
            finished = _watched(argv, own, limit_s=limit_s, kill_after=kill_after)
            console = _read(own / "console")
            return Booted(_results(_read(own / "results")), console, finished)


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="replace").replace("\r", "") if path.exists() else ""


def _results(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        found.setdefault(name, []).append(value)
    return found


def _watched(argv: Sequence[str | Path], own: Path, *, limit_s: float, kill_after: tuple[str, float] | None) -> bool:
    """Runs the machine to its end, or to the moment when it is to be killed; whether it said that it is done."""
    deadline = time.monotonic() + limit_s
    kill_at: float | None = None
    with (own / "qemu.log").open("wb") as log, process.started(argv, stdout=log, stderr=log) as machine:
        while machine.poll() is None:
            now = time.monotonic()
            if process.stopping():
                raise Failure("stopped before it was done.", status=130)
            if kill_after is not None and kill_at is None and kill_after[0] in _results(_read(own / "results")):
                kill_at = now + kill_after[1]
            if kill_at is not None and now >= kill_at:
                return False
            if now >= deadline:
                raise Failure(f"the machine under QEMU did not end within {limit_s:.0f} s.", detail=_tail(own))
            time.sleep(_POLL_S)
        status = machine.returncode
    results = _results(_read(own / "results"))
    if status != 0:
        raise Failure(f"QEMU ended with status {status}.", detail=_tail(own))
    if "failed" in results:
        raise Failure(f"in the machine under QEMU: {results['failed'][0]}", detail=_tail(own))
    if "done" not in results:
        raise Failure("the machine under QEMU ended before its script did.", detail=_tail(own))
    return True


def _tail(own: Path) -> list[str]:
    return [*_read(own / "qemu.log").splitlines()[-5:], *_read(own / "console").splitlines()[-30:]]


def empty_root(folder: Path) -> Path:
    """A root with folders as in Debian."""
    root = folder / "initramfs"
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    return root


def guest(
    chosen: Kernel, built: Module, load: Path, folder: Path, more: Sequence[Path] = (), python: Sequence[Path] = ()
) -> Guest:
    """The guest's file system: busybox, the modules, stock tools, ours, the load generators, and more programs.

    `python`: programs of Python for which its library is taken.
    """
    root = empty_root(folder)
    modules = root / "lib/modules" / chosen.name
    modules.mkdir(parents=True)
    for name in _MODULES:
        take_module(chosen, name, modules)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(chosen.modules / name, modules / name)
    for part in ("usr/sbin", "usr/libexec/ext4lazy"):
        shutil.copytree(built.root / part, root / part, dirs_exist_ok=True)
    (modules / "updates").mkdir()
    shutil.copy(built.ko, modules / "updates" / built.ko.name)
    process.run(["/sbin/depmod", "-b", root, chosen.name], what="depmod", limit_s=60)
    programs = [*map(Path, _PROGRAMS), load, *more]
    for program in programs:
        take_program(program, root)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    # Not busybox, whose shell takes its own mount for the system's.
    (root / "bin/sh").symlink_to("dash")
    for tool in (built.root / "usr/sbin/ext4lazy", built.root / "usr/libexec/ext4lazy/tidy.py", *python):
        take_python(tool, root)
    (root / "init").write_text(INIT.replace("MODULES", "virtio_blk loop dm-snapshot"))
    (root / "init").chmod(0o755)
    return Guest(chosen.image, packed(root, folder / "initrd"))


def packed(root: Path, base: Path) -> Path:
    """A folder as the kernel's first file system; the folder is gone then."""
    listing = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with base.open("wb") as file:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=listing.encode(), stdout=file, check=True
        )
    shutil.rmtree(root)
    return base


def take_module(chosen: Kernel, name: str, target: Path) -> None:
    """A module of Debian's kernel, unpacked, into a folder like the kernel's own."""
    found = sorted((chosen.modules / "kernel").rglob(f"{name}.ko*"))
    if len(found) != 1:
        raise Failure(f"Debian's kernel {chosen.name} has {len(found)} modules called {name}: expected one.")
    place = target / found[0].relative_to(chosen.modules).with_suffix("" if found[0].suffix == ".xz" else ".ko")
    place.parent.mkdir(parents=True, exist_ok=True)
    data = found[0].read_bytes()
    place.write_bytes(lzma.decompress(data) if found[0].suffix == ".xz" else data)


def take_program(program: Path, root: Path) -> None:
    """A program of the host, with the libraries that it needs, all in their own places."""
    real = program.resolve()
    _take_libraries(real, root)
    folder = "usr/sbin" if program.parent.name == "sbin" else "usr/bin"
    shutil.copy(real, root / folder / program.name)


def _take_libraries(binary: Path, root: Path) -> None:
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", listed):
        _copy(Path(library), root)


def _copy(path: Path, root: Path) -> None:
    target = root / str(path)[1:]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def take_python(tool: Path, root: Path) -> None:
    """Of Python's library, what a program imports."""
    code = (
        "import runpy, sys, json, encodings.ascii, encodings.latin_1\n"
        f"runpy.run_path({str(tool)!r}, run_name='asked')\n"
        "print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)]))"
    )
    asked = process.run(["/usr/bin/python3", "-I", "-c", code], what="asking Python for its modules", limit_s=60)
    for name in json.loads(asked.splitlines()[-1]):
        path = Path(name)
        _copy(path, root)
        if path.suffix == ".so":
            _take_libraries(path, root)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.cpython-*.pyc"):
            _copy(compiled, root)


def _archive(files: dict[str, bytes]) -> bytes:
    """A second archive, which the kernel unpacks after the first."""
    with tempfile.TemporaryDirectory(prefix="shingle-cpio-") as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        done = subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"],
            cwd=scratch, input="\n".join(sorted(files)).encode(), stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        return done.stdout
