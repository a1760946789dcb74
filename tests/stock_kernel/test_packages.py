# SPDX-License-Identifier: MIT OR Apache-2.0
"""The packages on bare Debian systems: installed, upgraded, removed, purged, and with new kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lazy_tools.test_packages import assert_lintian_is_silent
from rich.console import Console

from shingle.debian import bare_root
from shingle.debian.bare_root import Root
from shingle.debian.stock_kernel import Guest, Module
from shingle.machine.progress import Terminal
from shingle.paths import ROOT

pytestmark = pytest.mark.stock_kernel

NAMES = ("ext4lazy-dkms", "ext4lazy-tools")
FSTAB = "/dev/sdb1 /data ext4lazy noatime,nofail 0 2\n"
# What a package of version 0.1 did not have.
LATER = (
    "lib/udev", "usr/lib/udev", "etc", "usr/sbin/umount.ext4lazy", "usr/share/bash-completion", "DEBIAN/triggers",
    "DEBIAN/conffiles", "DEBIAN/md5sums",
)  # fmt: skip
# DKMS builds this in no time.
SMALL = """#include <linux/module.h>
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1");
"""


def packages(module: Module) -> dict[str, Path]:
    return {path.name.partition("_")[0]: path for path in (module.folder / "packages").glob("*.deb")}


def first_version(package: Path, target: Path) -> None:
    """A package like that of version 0.1: its names and scripts, and a module that is small."""
    folder = target.with_suffix("")
    subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
    control = folder / "DEBIAN/control"
    version = re.findall(r"^Version: (.*)$", control.read_text(), re.MULTILINE)[0]
    old = "0.1+" + version.rpartition("+")[2]
    control.write_text(control.read_text().replace(version, old))
    for name in LATER:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for script in ("postinst", "prerm"):
        path = folder / "DEBIAN" / script
        if "dkms" not in package.name:
            path.unlink(missing_ok=True)
        else:
            own = re.sub(r'(?s)\nif \[ "\$1" = (configure|remove) \].*?\nfi\n\n', "\n", path.read_text(), count=1)
            path.write_text(own.replace(version, old))
    for sources in (folder / "usr/src").glob("ext4lazy-*"):
        place = sources.with_name(f"ext4lazy-{old}")
        configuration = (sources / "dkms.conf").read_text().replace(version, old)
        shutil.rmtree(sources)
        place.mkdir()
        (place / "dkms.conf").write_text(configuration)
        (place / "Kbuild").write_text("obj-m := ext4lazy.o\n")
        (place / "ext4lazy.c").write_text(SMALL)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", folder, target], check=True, capture_output=True)


def built(root: Root, kernel: str) -> str:
    """The version of the module that is installed for a kernel; empty if there is none."""
    return (
        root.run("modinfo", "-k", kernel, "-F", "version", "ext4lazy", accept=(0, 1)).partition("modinfo:")[0].strip()
    )


def left(root: Root) -> list[str]:
    """What has our name and is not what the test itself put there."""
    said = root.run("find", "/boot", "/etc", "/lib/modules", "/usr", "/var", "-name", "*ext4lazy*")
    return [line for line in said.split() if not line.startswith("/var/cache/apt/")]


def test_lintian_has_nothing_to_say(module: Module) -> None:
    assert_lintian_is_silent((module.folder / "packages").glob("*.changes"))


@pytest.mark.parametrize("suite", bare_root.SUITES)
def test_the_packages_on_a_bare_system(suite: str, module: Module) -> None:
    with Terminal(Console(stderr=True)) as progress, bare_root.unpacked(suite, progress) as root:
        ordinary, other = root.kernels
        new = packages(module)
        for name in ("new", "old"):
            (root.folder / name).mkdir()
        for name, path in new.items():
            shutil.copy(path, root.folder / "new" / f"{name}.deb")
            first_version(path, root.folder / "old" / f"{name}.deb")
        install_new, install_old = ([f"/{age}/{name}.deb" for name in NAMES] for age in ("new", "old"))
        (root.folder / "etc/fstab").write_text(FSTAB)

        # Version 0.1, then this one.
        root.install(*install_old, f"linux-headers-{ordinary}", "ccache")
        assert built(root, ordinary) == "0.1"
        said = root.install(*install_new)
        assert "could overwrite synced data" in said
        version = built(root, ordinary)
        assert version.startswith("0.2+git"), said[-3000:]
        assert root.run("dkms", "status", "ext4lazy").count("ext4lazy/") == 1
        # The module's also names the Linux that it was made of.
        assert root.run("ext4lazy", "--version") == f"ext4lazy {version.rpartition('+')[0]}\n"
        assert "already the newest version" in root.install(*install_new)
        shutil.copy(ROOT / "packaging/debian/tests/tools", root.folder / "tools-test")
        root.run("sh", "/tools-test")

        # A kernel without headers, then its headers, then both at once.
        said = root.install(f"linux-image-{other}")
        assert f"Linux {other} has no module ext4lazy" in said
        assert "names that for /data" in said
        said = root.install(f"linux-headers-{other}")
        assert "has no module" not in said
        assert built(root, other) == version
        root.run("apt-get", "-qy", "purge", f"linux-image-{other}", f"linux-headers-{other}")
        said = root.install(f"linux-image-{other}", f"linux-headers-{other}")
        assert built(root, other) == version, said[-3000:]
        assert "has no module" not in said

        # Reinstalled, removed, purged, installed again.
        root.install("--reinstall", *install_new)
        assert built(root, ordinary) == built(root, other) == version
        said = root.run("apt-get", "-qy", "remove", *NAMES)
        assert "names the file system type ext4lazy for /data: without this package" in said
        assert "it is mounted as plain ext4" in said
        assert built(root, ordinary) == ""
        assert left(root) != []
        root.run("/etc/kernel/postinst.d/zz-ext4lazy", ordinary)
        root.run("apt-get", "-qy", "purge", *NAMES)
        assert left(root) == []
        (root.folder / "etc/fstab").write_text("")
        root.install(*install_new)
        assert built(root, ordinary) == version

        # A kernel for which it does not build: dkms of Debian 12 makes apt fail before our hook has its turn.
        (root.folder / "etc/fstab").write_text(FSTAB)
        root.run("apt-get", "-qy", "purge", f"linux-image-{other}", f"linux-headers-{other}")
        (main,) = (root.folder / "usr/src").glob("ext4lazy-*/main.c")
        main.write_text(main.read_text() + "#error broken\n")
        said = root.install(f"linux-image-{other}", f"linux-headers-{other}", accept=(0, 100))
        assert built(root, other) == ""
        assert f"Linux {other} has no module ext4lazy" in said or "Bad return status for module build" in said
        root.run("apt-get", "-qy", "purge", *NAMES)
        assert left(root) == []


def test_the_package_s_own_test_of_the_module(guest: Guest, workshop: Path) -> None:
    """debian/tests/module wants a machine of its own: here is one."""
    script = (ROOT / "packaging/debian/tests/module").read_bytes()
    booted = replace(guest, extra={"module-test": script}).boot("run module sh /module-test", [], folder=workshop)
    assert booted.finished
