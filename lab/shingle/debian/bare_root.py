# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bare Debian systems in a folder, in which packages are installed as an owner does it.

A root is made once by mmdebstrap and kept in the cache as an archive. It holds
the smallest Debian there is, and beside it, downloaded and not installed, what
the tests install. They run without a network, and without a kernel of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle import process
from shingle.failure import Failure
from shingle.machine.progress import SILENT, Progress
from shingle.paths import ContentKey, cache, locked, prune, used

SUITES = ("bookworm", "trixie")
_MAKE_LIMIT_S = 1800.0
_RUN_LIMIT_S = 1800.0
_KEPT = 4
_WANTED = (
    "dkms", "gcc", "make", "libc6-dev", "kmod", "initramfs-tools", "ccache", "dmsetup", "e2fsprogs", "mount",
    "bash-completion", "patch", "python3", "systemd", "systemd-sysv", "udev",
)  # fmt: skip
# The ordinary kernel's headers, and another kernel of the same line that is small: the one of virtual machines.
_KERNELS = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
newest() {
	apt-cache pkgnames linux-headers-6.12 | sed -n "s/^linux-headers-\(6\.12\.[0-9]*+deb[0-9]*$1\)\$/\1/p" |
		sort -V | tail -n 1
}
ordinary=$(newest -amd64) other=$(newest -cloud-amd64)
echo "$ordinary $other" >/kernels
apt-get -qy --download-only -o APT::Install-Recommends=false install WANTED \
	linux-headers-$ordinary linux-image-$other linux-headers-$other
echo 'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/90bare
"""


def _sources(suite: str) -> list[str]:
    """This computer's own mirrors, for another suite."""
    codename = process.run(
        ["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"], what="os-release", limit_s=10
    ).strip()
    said = process.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(LABEL)", "Created-By: Packages"],
        what="apt-get indextargets", limit_s=60,
    )  # fmt: skip
    found: list[str] = []
    for line in said.splitlines():
        uri, name, label = line.split(" ", 2)
        if label.startswith("Debian") and name in (codename, f"{codename}-security"):
            source = f"deb {uri} {name.replace(codename, suite)} main"
            found += [source] if source not in found else []
    if not found:
        raise Failure(f"apt knows no mirror of Debian {codename}: expected one; try apt-get update.")
    return found


def archive(suite: str, progress: Progress = SILENT) -> Path:
    """The bare root of a suite, packed."""
    script = _KERNELS.replace("WANTED", " ".join(_WANTED))
    key = ContentKey("bare root 1").text("suite", suite).text("script", script).hexdigest()
    stored = cache() / "bare-roots" / key
    with locked("bare-root"):
        if not stored.exists():
            stored.parent.mkdir(parents=True, exist_ok=True)
            with (
                progress.task(f"making a bare Debian {suite}"),
                tempfile.TemporaryDirectory(prefix="shingle-", dir=stored.parent) as scratch,
            ):
                part = Path(scratch) / "root"
                part.mkdir()
                (Path(scratch) / "tmp").mkdir()
                (Path(scratch) / "script").write_text(script)
                process.run(
                    [
                        # If this is stopped, its processes and mounts are gone, too.
                        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                        "mmdebstrap", "--variant=minbase", "--mode=root", "--skip=cleanup/apt",
                        f"--customize-hook=upload {scratch}/script /script",
                        '--customize-hook=chroot "$1" sh /script', suite, part / "root.tar", *_sources(suite),
                    ],
                    what=f"mmdebstrap {suite}", limit_s=_MAKE_LIMIT_S, log=Path(scratch) / "log",
                    env=os.environ | {"TMPDIR": f"{scratch}/tmp"},
                )  # fmt: skip
                part.rename(stored)
            prune(stored.parent, keep=_KEPT)
        used(stored)
    return stored / "root.tar"


@dataclass(frozen=True)
class Root:
    """A system in a folder."""

    folder: Path

    @property
    def kernels(self) -> tuple[str, str]:
        ordinary, other = (self.folder / "kernels").read_text().split()
        return ordinary, other

    def run(self, *argv: str, accept: Sequence[int] = (0,)) -> str:
        """A command in the root, alone with itself: other mounts, other processes, no network."""
        inside = (
            'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs run "$0/run" && '
            f'mkdir -p "$0/ccache" && mount --bind {cache() / "ccache"} "$0/ccache" && exec chroot "$0" "$@"'
        )
        done = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside, self.folder, *argv],
            env={
                "PATH": "/usr/lib/ccache:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "HOME": "/root", "CCACHE_DIR": "/ccache",
                "CCACHE_NOHASHDIR": "1",
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=_RUN_LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode not in accept:
            raise Failure(f"in the bare root: {' '.join(argv)} ended with status {done.returncode}.",
                          detail=done.stdout.splitlines()[-25:])  # fmt: skip
        return re.sub(r"\r", "\n", done.stdout)

    def install(self, *what: str, accept: Sequence[int] = (0,)) -> str:
        return self.run("apt-get", "-qy", "install", *what, accept=accept)


@contextlib.contextmanager
def unpacked(suite: str, progress: Progress = SILENT) -> Iterator[Root]:
    """A fresh root, gone afterwards."""
    if os.geteuid() != 0:
        raise Failure("a bare Debian root needs root on this computer.")
    with tempfile.TemporaryDirectory(prefix="shingle-root-", dir="/var/tmp") as name:
        process.run(["tar", "-xf", archive(suite, progress), "-C", name], what="unpacking the root", limit_s=600)
        (cache() / "ccache").mkdir(exist_ok=True)
        # Nothing is booted here: what initramfs-tools makes for each kernel may be small.
        small = Path(name) / "etc/initramfs-tools/conf.d/small"
        small.parent.mkdir(parents=True, exist_ok=True)
        small.write_text("MODULES=list\n")
        yield Root(Path(name))
