# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ext4lazy tune` with a running systemd and Debian's kernel: what sets the settings again, and when that ends."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from shingle.debian import bare_root, stock_kernel
from shingle.machine.progress import Terminal

pytestmark = pytest.mark.stock_kernel

# What loads the root's file system, in an order in which each finds what it needs.
MODULES = ("virtio_blk", "crc16", "mbcache", "crc32c_generic", "libcrc32c", "jbd2", "ext4")
INIT = """#!/bin/busybox sh
for fs in proc sysfs devtmpfs; do
	/bin/busybox mkdir -p /$fs /new
	/bin/busybox mount -t $fs $fs /$fs
done
for module in MODULES; do
	file=$(/bin/busybox find /lib/modules -name $module.ko)
	[ -z "$file" ] || /bin/busybox insmod $file
done
until [ -b /devtmpfs/vda ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /devtmpfs/vda /new
/bin/busybox umount /proc /sysfs
/bin/busybox mount --move /devtmpfs /new/dev
exec /bin/busybox switch_root /new /lib/systemd/systemd
"""
UNIT = """[Service]
ExecStart=/bin/sh /tried
StandardOutput=file:/dev/ttyS1
StandardError=inherit
"""
TRIED = r"""
say() {
	sleep 5  # systemd notices a mount by itself
	echo "$1: $(cd /sys/fs/ext4/vdb && cat inode_goal mb_stream_req mb_group_prealloc | tr '\n' ' ')"
	echo "unit $1: $(systemctl is-active ext4lazy-tune@data.service)"
}
mke2fs -q -t ext4 /dev/vdb
mkdir /data
echo '/dev/vdb /data ext4 noauto 0 0' >>/etc/fstab
systemctl daemon-reload
mount /data && say before
ext4lazy tune /data && say tuned
umount /data && mount /data && say mounted
systemctl stop data.mount && systemctl start data.mount && say started
ext4lazy tune --undo /data && say undone
umount /data && mount /data && say after
ext4lazy tune /data && dpkg --remove ext4lazy-tools
echo "left: $(find /etc/systemd /usr/lib/systemd -name '*ext4lazy*')"
echo done: yes
systemctl poweroff --force --force
"""
PLAIN, TUNED = "0 16 512 ", "12 1048576 32768 "


def booting(kernel: stock_kernel.Kernel, folder: Path) -> stock_kernel.Guest:
    """A kernel that gives its first disk to systemd."""
    root = stock_kernel.empty_root(folder)
    modules = root / "lib/modules" / kernel.name
    modules.mkdir(parents=True)
    for name in MODULES:
        stock_kernel.take_module(kernel, name, modules)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    (root / "init").write_text(INIT.replace("MODULES", " ".join(MODULES)))
    (root / "init").chmod(0o755)
    return stock_kernel.Guest(kernel.image, stock_kernel.packed(root, folder / "initrd"), memory_mib=1024)


@pytest.fixture
def place(workshop: Path) -> Iterator[Path]:
    """A folder for the disks, gone after the test."""
    with tempfile.TemporaryDirectory(dir=workshop) as name:
        yield Path(name)


@pytest.mark.parametrize("suite", bare_root.SUITES)
def test_systemd_sets_the_settings_after_each_mount(
    suite: str, kernel: stock_kernel.Kernel, module: stock_kernel.Module, place: Path
) -> None:
    disk, data = place / "root.img", place / "data.img"
    with Terminal(Console(stderr=True)) as progress, bare_root.unpacked(suite, progress) as root:
        (package,) = (module.folder / "packages").glob("ext4lazy-tools_*.deb")
        shutil.copy(package, root.folder / "tools.deb")
        root.install("systemd", "systemd-sysv", "udev", "/tools.deb")
        (root.folder / "tried").write_text(TRIED)
        units = root.folder / "etc/systemd/system"
        (units / "tried.service").write_text(UNIT)
        (units / "default.target").unlink(missing_ok=True)
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        (units / "multi-user.target.wants").mkdir(exist_ok=True)
        (units / "multi-user.target.wants/tried.service").symlink_to("../tried.service")
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root.folder, disk, "4G"], check=True)
    with data.open("wb") as file:
        file.truncate(512 << 20)
    said = booting(kernel, place).boot("", [disk, data], folder=place)
    assert [said.one(name) for name in ("before", "tuned", "mounted", "started", "undone", "after")] == [
        PLAIN, TUNED, TUNED, TUNED, PLAIN, PLAIN,
    ]  # fmt: skip
    assert [said.one(f"unit {name}") for name in ("mounted", "started", "after")] == ["active", "active", "inactive"]
    assert said.one("left") == ""
