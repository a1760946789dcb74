# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds the machine: the kernel, the drive that is linked into it, and the guest's programs.

What was built is kept outside the clone under a key made of everything it is
made of, by content. A fresh clone with the same sources therefore builds nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shingle import process
from shingle.build import kernel_tree
from shingle.failure import Failure, unknown_name
from shingle.machine.machine import Machine
from shingle.machine.progress import SILENT, Progress
from shingle.paths import BUILD, ROOT, ContentKey, cache, files_below, locked, prune, room, used

KERNEL_SOURCE = Path("/usr/src/linux-source-6.12.tar.xz")
# Raised when the way of building changes in a manner that the inputs do not show.
_RECIPE_VERSION = "1"
# Entries of each kind that stay in the cache; a few tens of MiB each, on average.
_KEPT = 40
# Crates with a program that a machine or the lab runs.
_PACKAGES = ("drive-tool", "guest", "load", "probe", "crash-tool", "safs-tool")
# What a first build writes into the cache and into build/ (the kernel's source alone is 1.7 GiB), and what a later one.
_FIRST_CACHE_BYTES, _FIRST_BUILD_BYTES, _LATER_BYTES = 3 << 29, 3 << 30, 1 << 28
_KERNEL_LIMIT_S = 2700.0
_CARGO_LIMIT_S = 1800.0

_COMMON_FRAGMENTS = ("10-machine", "20-ext4")
CONTROL = "control"
FLAVOURS = {"main": ("30-other-file-systems", "40-several-disks"), "sanitize": ("90-sanitize",)}
# More for a flavour, of which no drive's key depends.
_MORE = {
    "main": ROOT / "machine/checkers/92-statistics.config",
    "sanitize": ROOT / "machine/checkers/91-faults.config",
}
# A profile in a Rust source: `include_str!("../../../drives/NAME.toml")`.
_HELD_PROFILE = re.compile(r'include_str!\("[./]+/drives/([^"]+)"\)')
# What gcc begins an error's line with, and how many lines after it show the place.
_ERROR = re.compile(r"^[^\s:]+:\d+(:\d+)?: (fatal )?error: ")
_SHOWN_LINES = 12
# The same tree for a PC with several processors: no machine of the lab, it runs under QEMU (verify/smp.py).
SMP, KCSAN = "smp", "kcsan"
# Kernels with a patch that is not shipped, from machine/ablations.
CHANGED = "ablation"
# Deliberately broken kernels (tests/mutants).
_MUTANT = "mutant"
# Where files are compiled that no kernel is made of.
LINT = BUILD / "lint"
_ON_A_PC = {SMP, KCSAN}
# A machine that counts which lines ran (verify/coverage.py).
COVERAGE = "coverage"
_SMP_FRAGMENTS = ("machine/checkers/smp.config", "machine/config/20-ext4.config")
_OWN_FRAGMENTS = {
    SMP: _SMP_FRAGMENTS,
    KCSAN: (*_SMP_FRAGMENTS, "machine/checkers/kcsan.config"),
    COVERAGE: (
        *(f"machine/config/{name}.config" for name in _COMMON_FRAGMENTS),
        "machine/checkers/coverage.config",
    ),
}


@dataclass(frozen=True)
class Crates:
    """The Rust programs, and the drive as an object file for the kernel."""

    tool: Path
    guest: Path
    load: Path
    drive_object: Path
    probe: Path
    crash: Path
    safs: Path


@dataclass(frozen=True)
class Kernel:
    linux: Path
    config: Path
    version: str
    key: str


@dataclass(frozen=True)
class Built:
    kernel: Kernel
    crates: Crates
    # What the kernel is told, whatever it runs.
    arguments: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        return Machine(self.kernel.linux, self.crates.guest, self.arguments)


def chosen(flavour: str) -> str:
    """The flavour that is booted where this one is meant: another, when the lines of a suite are counted."""
    return os.environ.get("SHINGLE_KERNEL", flavour)


def everything(flavour: str = "main", *, progress: Progress = SILENT) -> Built:
    """What a run needs, built if it is not in the cache."""
    _check_release(KERNEL_SOURCE.name.removeprefix("linux-source-").removesuffix(".tar.xz"))
    return _with(flavour, build_crates(progress=progress), progress)


def with_kernel(built: Built, flavour: str, *, progress: Progress = SILENT) -> Built:
    """The same programs with the kernel of a flavour; `main` is the one that was built for all."""
    return built if flavour == "main" else _with(flavour, built.crates, progress)


def _with(flavour: str, crates: Crates, progress: Progress) -> Built:
    chosen_mutant = _split(flavour).mutant
    arguments = () if chosen_mutant in (None, CONTROL) else (f"jbd2.mutant={chosen_mutant}",)
    return Built(build_kernel(flavour, crates, progress=progress), crates, arguments)


# --- Rust ---------------------------------------------------------------------


@functools.cache
def rust_version() -> str:
    return process.run(["rustc", "-vV"], what="rustc -vV", limit_s=60, cwd=ROOT)


_PROGRAMS = ("shingle-drive", "guest", "load")
_OTHERS = ("shingle-probe", "shingle-crash", "safs")


def crates_key() -> str:
    key = ContentKey(f"crates {_RECIPE_VERSION}").text("rustc", rust_version())
    key.text("programs", " ".join((*_PROGRAMS, *_OTHERS)))
    return key.tree(ROOT, _crate_sources()).hexdigest()


def _crate_sources() -> list[Path]:
    names = ("Cargo.toml", "Cargo.lock", "machine/arch/um/drivers/shingle_drive_abi.h")
    sources = [ROOT / name for name in names if (ROOT / name).exists()]
    crates = files_below(ROOT / "crates")
    # Of the profiles only those that a program holds: with another drive nothing is built again.
    held = {name for path in crates if path.suffix == ".rs" for name in _HELD_PROFILE.findall(path.read_text())}
    return [*sources, *crates, *(ROOT / "drives" / name for name in sorted(held))]


def cargo_environment() -> dict[str, str]:
    """Cargo's own files go to the cache too: clones share what comes from the registry."""
    # A third of a fresh clone's test build is what nobody there needs: debuggers' tables, incremental state.
    plain = {"CARGO_INCREMENTAL": "0", "CARGO_PROFILE_TEST_DEBUG": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}
    # Programs name no folder of this host, or each clone would have keys of its own (build-object.sh does the same).
    cargo_home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    remapped = {ROOT: "/shingle", cargo_home: "/cargo"}
    flags = [f"--remap-path-prefix={place}={name}" for place, name in remapped.items()]
    flags += os.environ.get("RUSTFLAGS", "").split()
    return (
        os.environ
        | plain
        | {
            "CARGO_TARGET_DIR": str(cache() / "cargo"),
            "CARGO_TERM_COLOR": "never",
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        }
    )


@contextlib.contextmanager
def cargo() -> Iterator[dict[str, str]]:
    """The environment for cargo on our workspace, and the lock that keeps other clones' cargo away meanwhile.

    To cargo the packages of all clones are the same and the newer time stamp wins: what another clone has built, or an
    older commit of this one, must not look newer than our sources.
    """
    with locked("crates"):
        environment = cargo_environment()
        built = Path(environment["CARGO_TARGET_DIR"]) / "built-from"
        ours = f"{ROOT} {crates_key()}"
        if not built.exists() or built.read_text() != ours:
            for path in _crate_sources():
                os.utime(path)
            built.parent.mkdir(parents=True, exist_ok=True)
            built.write_text(ours)
        yield environment


def _check_place() -> None:
    """Refuses, before anything is built, a clone and a cache in which the build would end half way."""
    if any(each.isspace() or each == ":" for each in str(ROOT)):
        told = f"{ROOT}: the kernel's make takes no folder with spaces or colons in its path; move the clone."
        raise Failure(told, status=2)
    for folder, made, first in ((cache(), "cargo", _FIRST_CACHE_BYTES), (BUILD, "linux", _FIRST_BUILD_BYTES)):
        folder.mkdir(parents=True, exist_ok=True)
        needed = _LATER_BYTES if (folder / made).exists() else first
        if room(folder) < needed:
            told = f"{folder} has room for {room(folder) >> 20:,} MiB; what is built there takes {needed >> 20:,}."
            raise Failure(told, status=2)


def build_crates(*, progress: Progress = SILENT) -> Crates:
    stored = cache() / "crates" / crates_key()
    crates = Crates(*(stored / name for name in (*_PROGRAMS, "shingle_drive.o", *_OTHERS)))
    if stored.exists():
        used(stored)
        return crates
    _check_place()
    with cargo() as environment, progress.task("building the drive and the guest's programs"):
        if stored.exists():
            return crates
        target = Path(environment["CARGO_TARGET_DIR"])
        build = ["cargo", "build", "--release", "--locked"]
        process.run(
            [*build, *(word for name in _PACKAGES for word in ("-p", name))],
            what="cargo build",
            limit_s=_CARGO_LIMIT_S,
            cwd=ROOT,
            env=environment,
        )
        with stored_at(stored) as part:
            for name in (*_PROGRAMS, *_OTHERS):
                shutil.copy2(target / "release" / name, part / name)
            process.run(
                [ROOT / "crates/drive-abi/build-object.sh", part / "shingle_drive.o"],
                what="building the drive for the kernel",
                limit_s=_CARGO_LIMIT_S,
                cwd=ROOT,
                env=environment,
            )
    return crates


# --- The kernel ---------------------------------------------------------------


def pinned_version() -> str:
    """The version that kernel/UPSTREAM names."""
    for line in (ROOT / "kernel/UPSTREAM").read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            return words[-1]
    raise Failure("kernel/UPSTREAM names no version.")


def _check_release(found: str) -> None:
    """Refuses another release, to which patches do not fit; a later stable version of the same is only said."""
    if found.split(".")[:2] != pinned_version().split(".")[:2]:
        raise Failure(f"the kernel source is Linux {found}; kernel/UPSTREAM names {pinned_version()}.", status=2)


def mutants() -> dict[str, Path]:
    """Deliberately broken kernels, for tests that must fail on them.

    All are one kernel, which is told which one it is: the control, first, has the means for it and breaks nothing.
    """
    below = ROOT / "tests/mutants"
    found = sorted(below.glob("*.patch"))
    return {CONTROL: below / f"{CONTROL}.patch", **{path.stem: path for path in found}}


def changes() -> dict[str, Path]:
    """The patch on top of the kernel that is shipped, by flavour: the ablations of experiments."""
    return {f"{CHANGED}:{path.stem}": path for path in sorted((ROOT / "machine/ablations").glob("*.patch"))}


def fragments(flavour: str) -> list[Path]:
    """The kconfig fragments of a flavour: `main`, `sanitize`, `mutant:NAME`, one of `changes`."""
    base = _split(flavour).base
    if base in _OWN_FRAGMENTS:
        return [ROOT / name for name in _OWN_FRAGMENTS[base]]
    names = sorted((*_COMMON_FRAGMENTS, *FLAVOURS[base]))
    more = [_MORE[base]] if base in _MORE else []
    return [*(ROOT / "machine/config" / f"{name}.config" for name in names), *more]


def recipe(flavour: str, crates: Crates) -> kernel_tree.Recipe:
    more = _split(flavour).patches
    overlay = kernel_tree.overlay_of(ROOT / "machine", ROOT / "kernel")
    overlay["arch/um/drivers/shingle_model.o_shipped"] = crates.drive_object
    patches = [
        *sorted((ROOT / "machine/patches").glob("*.patch")),
        *(path for path in sorted((ROOT / "kernel/patches").glob("*.patch")) if _is_code(path)),
        *more,
    ]
    return kernel_tree.Recipe(overlay, tuple(patches))


def watched() -> list[str]:
    """The C files that we write or change in ext4 and jbd2, by their place in the kernel tree."""
    names = set(kernel_tree.overlay_of(ROOT / "kernel"))
    for patch in (ROOT / "kernel/patches").glob("*.patch"):
        names |= kernel_tree.touched_by(patch.read_text())
    # mballoc.c includes its tests.
    names.discard("fs/ext4/mballoc-test.c")
    return sorted(name for name in names if name.startswith("fs/") and name.endswith(".c"))


def _flags(base: str) -> list[str]:
    """What make is told for a flavour that instruments the files of `watched` and nothing else.

    No Makefile says it, since ours are upstream's. Of a name that other folders have, too, all files are instrumented.
    """
    stems = sorted({Path(name).stem for name in watched()})
    if base == COVERAGE:
        counted = [f"CFLAGS_{stem}.o=--coverage -fprofile-update=prefer-atomic" for stem in stems]
        wraps = "-Wl,--wrap,malloc -Wl,--wrap,free -Wl,--wrap,calloc"
        # User-Mode Linux's linker script knows no .fini_array.00100, where gcc says what happens at the end.
        return [*counted, f"LINK_WRAPS={wraps} -L. --coverage -Wl,-u,__gcov_dump -Wl,-fini=__gcov_dump"]
    if base == KCSAN:
        return ["KCSAN_SANITIZE=n", *(f"KCSAN_SANITIZE_{stem}.o=y" for stem in stems)]
    return []


def _is_code(patch: Path) -> bool:
    """A word in the documentation builds no kernel anew."""
    return any(not name.startswith("Documentation/") for name in kernel_tree.touched_by(patch.read_text()))


class _Parts(NamedTuple):
    """A flavour's configuration, its patches on top of those of all, and its mutant."""

    base: str
    patches: tuple[Path, ...] = ()
    mutant: str | None = None


def _split(flavour: str) -> _Parts:
    if flavour in FLAVOURS or flavour in _OWN_FRAGMENTS:
        return _Parts(flavour)
    if flavour in changes():
        return _Parts("main", (changes()[flavour],))
    kind, _, rest = flavour.partition(":")
    if kind != _MUTANT:
        known = [*FLAVOURS, *changes(), *(f"{_MUTANT}:{name}" for name in mutants())]
        raise unknown_name("kernel flavour", flavour, known)
    name, _, base = rest.partition(":")
    if name not in mutants():
        raise unknown_name("mutant", name, mutants())
    return _Parts(base or "main", tuple(mutants().values()), name)


def kernel_source() -> Path:
    if not KERNEL_SOURCE.exists():
        raise Failure(f"{KERNEL_SOURCE} is missing; the package {KERNEL_SOURCE.name.split('.tar')[0]} has it.")
    return KERNEL_SOURCE


@functools.cache
def source_key() -> str:
    return ContentKey("source").file("tarball", kernel_source()).hexdigest()


@functools.cache
def compiler_version() -> str:
    return process.run(["gcc", "--version"], what="gcc --version", limit_s=30).splitlines()[0]


def kernel_key(flavour: str, crates: Crates) -> str:
    options = [path.read_text() for path in fragments(flavour)]
    return _kernel_key(recipe(flavour, crates), options, _flags(_split(flavour).base))


def _kernel_key(made_of: kernel_tree.Recipe, options: Sequence[str], flags: Sequence[str] = ()) -> str:
    """The key of a kernel: source, our files, patches in order (not their mails' text), configuration, compiler."""
    key = ContentKey(f"kernel {_RECIPE_VERSION}").text("source", source_key()).text("gcc", compiler_version())
    for name, path in sorted(made_of.overlay.items()):
        key.file(name, path)
    for number, path in enumerate(made_of.patches):
        mail, _, diff = f"\n{path.read_text()}".partition("\ndiff --git ")
        key.text(str(number), diff or mail)
    for number, text in enumerate(options, len(made_of.patches)):
        key.text(str(number), hashlib.sha256(text.encode()).hexdigest())
    for flag in flags:
        key.text("flag", flag)
    return key.hexdigest()


def machine_key(crates: Crates) -> str:
    """What a drive formatted in the machine depends on: all of the kernel except journal_lazy.

    mkfs writes to the block device and mounts nothing, so kernel/ has no part in it.
    """
    key = ContentKey("machine").text("source", source_key()).text("gcc", compiler_version())
    key.file("drive", crates.drive_object)
    for folder in ("arch", "drivers", "include", "patches", "config"):
        key.tree(ROOT, files_below(ROOT / "machine" / folder))
    return key.hexdigest()


def build_kernel(flavour: str, crates: Crates, *, progress: Progress = SILENT) -> Kernel:
    options = [path.read_text() for path in fragments(flavour)]
    return build_recipe(flavour, _split(flavour).base, recipe(flavour, crates), options, progress=progress)


def build_recipe(
    name: str, base: str, made_of: kernel_tree.Recipe, options: Sequence[str], *, progress: Progress = SILENT
) -> Kernel:
    """The kernel of a recipe, configured with these fragments; its objects lie with those of the flavour `base`."""
    key = _kernel_key(made_of, options, _flags(base))
    stored = cache() / "kernels" / key
    if not stored.exists():
        _check_place()
        with locked("kernel"):
            if not stored.exists():
                _build_kernel(name, base, made_of, options, stored, progress)
    used(stored)
    version = (stored / "version").read_text().strip()
    _check_release(version)
    if version != pinned_version():
        progress.say(f"warning: the kernel source is Linux {version}, Shingle is made for {pinned_version()}")
    return Kernel(stored / "linux", stored / "config", version, key)


@dataclass(frozen=True)
class _Make:
    """A configured kernel: make's arguments, where the objects and what make says go, and the source's version."""

    command: tuple[str, ...]
    environment: dict[str, str]
    out: Path
    log: Path
    version: str


def _configured(
    name: str, base: str, made_of: kernel_tree.Recipe, texts: Sequence[str], progress: Progress = SILENT
) -> _Make:
    """The source tree holds the recipe and the object folder `name` a configuration. The lock is held."""
    _check_place()
    tree = BUILD / "linux"
    if not kernel_tree.holds(tree, source_key()):
        with progress.task("unpacking the kernel source"):
            kernel_tree.unpack(kernel_source(), tree, source_key())
    found = kernel_tree.version_of((tree / "Makefile").read_text())
    _check_release(found)
    kernel_tree.apply(tree, made_of, found=found, pinned=pinned_version(), vanishing=_forget_objects)
    out = BUILD / name
    unfinished = out / ".unfinished"
    if unfinished.exists():
        # What a killed make was writing is cut off, and looks done to the next one. ccache has the rest.
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    allconfig = out / "requested.config"
    allconfig.write_text("\n".join(texts))
    log = BUILD / f"{name}.log"
    log.write_bytes(b"")
    command = (
        "make",
        "-C",
        str(tree),
        f"O={out}",
        f"ARCH={'x86_64' if base in _ON_A_PC else 'um'}",
        "CC=ccache gcc",
        "HOSTCC=ccache gcc",
        "LOCALVERSION=",
        *_flags(base),
    )
    environment = _kernel_environment() | {"KCONFIG_ALLCONFIG": str(allconfig)}
    process.run([*command, "allnoconfig"], what="configuring the kernel", limit_s=300, env=environment, log=log)
    kernel_tree.check_options(texts, (out / ".config").read_text())
    return _Make(command, environment, out, log, found)


def _forget_objects() -> None:
    """A header is about to vanish, which kbuild does not notice, since it asks for what is newer: no object counts."""
    for config in BUILD.glob("*/requested.config"):
        config.with_name(".unfinished").touch()


def _build_kernel(
    flavour: str, base: str, made_of: kernel_tree.Recipe, texts: Sequence[str], stored: Path, progress: Progress
) -> None:
    make = _configured(base, base, made_of, texts, progress)
    if base == COVERAGE:
        _put_libgcov(make.out)
    image = "bzImage" if base in _ON_A_PC else "linux"
    with progress.task(f"building the kernel ({flavour})") as tell, _reporting(make.log, tell):
        try:
            process.run(
                [*make.command, f"-j{os.cpu_count() or 1}", image],
                what=f"building the kernel ({flavour})",
                limit_s=_KERNEL_LIMIT_S,
                env=make.environment,
                log=make.log,
            )
        except process.Ended as failure:
            # make came to its end: what it had begun to write it has removed, and all else is whole.
            (make.out / ".unfinished").unlink()
            raise _compilers(failure) from None
    (make.out / ".unfinished").unlink()
    with stored_at(stored) as part:
        shutil.copy2(make.out / (f"arch/x86/boot/{image}" if base in _ON_A_PC else image), part / "linux")
        shutil.copy2(make.out / ".config", part / "config")
        (part / "version").write_text(make.version + "\n")
        for name in watched() if base == COVERAGE else ():
            notes = (part / "notes" / name).with_suffix(".gcno")
            notes.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2((make.out / name).with_suffix(".gcno"), notes)
            shutil.copy2(BUILD / "linux" / name, notes.with_suffix(".c"))


def _compilers(failure: process.Ended) -> Failure:
    """The failure of make, with the compiler's first error as its sentence, at our own file if it is one of ours."""
    lines = failure.text.splitlines()
    at = next((number for number, line in enumerate(lines) if _ERROR.match(line)), None)
    if at is None:
        return failure
    name, rest = lines[at].split(":", 1)
    name = name.rpartition("/linux/")[2].removeprefix("./")
    own = next((f"{folder}/{name}" for folder in ("kernel", "machine") if (ROOT / folder / name).exists()), name)
    return Failure(f"{own}:{rest}", detail=lines[at + 1 : at + 1 + _SHOWN_LINES])


def compiled_alone(
    more: Sequence[str],
    added: Mapping[str, Path],
    made_of: kernel_tree.Recipe | None = None,
    texts: Sequence[str] | None = None,
    without: Collection[str] = (),
) -> str:
    """What make says when it compiles the files of `watched` anew, and the `added` ones, told `more`.

    All of our code is on, with its unit tests and what is for tests only. Nothing is linked. With a recipe and
    fragments of another tree, it is what that tree has of these files, but for those `without` which it is to do.
    The objects are in `LINT` then.
    """
    made_of = made_of or recipe("main", build_crates())
    made_of = kernel_tree.Recipe({**made_of.overlay, **added}, made_of.patches)
    texts = texts or [path.read_text() for path in fragments(COVERAGE)]
    with locked("kernel"):
        # A folder of its own, and the flags of `main`: nothing is counted.
        make = _configured(LINT.name, "main", made_of, texts)
        wanted = [name for name in (*watched(), *added) if name not in without]
        present = [name for name in wanted if (BUILD / "linux" / name).exists()]
        objects = [str(Path(name).with_suffix(".o")) for name in present]
        for each in objects:
            (make.out / each).unlink(missing_ok=True)
        said = process.run(
            [*make.command, "-s", f"-j{os.cpu_count() or 1}", *more, *objects],
            what="compiling our files",
            limit_s=_KERNEL_LIMIT_S,
            env=make.environment,
        )
        (make.out / ".unfinished").unlink()
    return said


def _put_libgcov(out: Path) -> None:
    """gcc's library for counters, without the name that it has in common with the kernel (fs/seq_file.c)."""
    library = process.run(["gcc", "-print-file-name=libgcov.a"], what="gcc", limit_s=30).strip()
    renamed = ("--redefine-sym", "mangle_path=gcov_mangle_path")
    process.run(["objcopy", *renamed, library, out / "libgcov.a"], what="objcopy", limit_s=60)
    # make does not see that a link would be another one.
    (out / "vmlinux").unlink(missing_ok=True)


def _kernel_environment() -> dict[str, str]:
    """Nothing that varies from host to host, or from clone to clone, reaches the compiler."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return keep | {
        "LC_ALL": "C",
        "CCACHE_DIR": str(cache() / "ccache"),
        "CCACHE_BASEDIR": str(ROOT),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "content",
        "CCACHE_MAXSIZE": "5G",
        "KBUILD_BUILD_TIMESTAMP": "2026-01-01 00:00:00 UTC",
        "KBUILD_BUILD_USER": "shingle",
        "KBUILD_BUILD_HOST": "lab",
        "KBUILD_BUILD_VERSION": "1",
    }


@contextlib.contextmanager
def _reporting(log: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Tells how many files make has built so far."""
    done = threading.Event()
    began = time.monotonic()

    def report() -> None:
        while not done.wait(2):
            count = log.read_bytes().count(b"\n")
            tell(f"{count} files in {(time.monotonic() - began) / 60:.1f} min")

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def stored_at(target: Path) -> Iterator[Path]:
    """A folder that appears at `target` complete or not at all."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        part.rename(target)
        prune(target.parent, keep=_KEPT)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def tool_output(crates: Crates, *arguments: str | Path) -> str:
    """Runs `shingle-drive` and returns what it prints."""
    result = subprocess.run(
        [crates.tool, *map(str, arguments)], capture_output=True, text=True, timeout=900, check=False
    )
    if result.returncode != 0:
        last = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise Failure(f"shingle-drive {arguments[0]} failed: {' '.join(last)}")
    return result.stdout
