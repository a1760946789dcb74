# SPDX-License-Identifier: MIT OR Apache-2.0
"""The owners' guide: each command in its blocks is run as it stands there, under Debian's own kernel.

A section begins with a volume in the state that the section is about, which is
made here. What is put in for the reader's own names: the device, and the UUID.
Installing and removing packages is done in a bare Debian system instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from lazy_tools.volumes import stock

from shingle import process
from shingle.debian import bare_root
from shingle.debian.stock_kernel import Guest, Module
from shingle.paths import ROOT

pytestmark = pytest.mark.stock_kernel

GUIDE = ROOT / "docs/guide/owners-guide.md"
# What the reader replaces, too; and what udev does, which is not in the guest.
NAMES = {
    "/dev/sdX1": "/dev/vda",
    "UUID=…": "UUID=$(blkid -o value -s UUID /dev/vda)",
    "dmsetup create ext4lazy-copy": "dmsetup create ext4lazy-copy && dmsetup mknodes ext4lazy-copy",
}
PREPARE = "apt install build-essential debhelper dh-dkms git linux-source-6.12 python3"
BUILD = "packaging/build build/packages"
INSTALL = "apt install ./build/packages/ext4lazy-*.deb"
REMOVE = "apt remove ext4lazy-dkms ext4lazy-tools"
# In a bare system, not in the guest.
ELSEWHERE = (PREPARE, BUILD, INSTALL, REMOVE)

OLD = "mke2fs -q -F -t ext4 -O ^metadata_csum -J size=16 /dev/vda; mount -t ext4 /dev/vda /data; echo kept >/data/file"
MOUNT = "mkdir -p /data && mount /data"
READY = (
    "mke2fs -q -F -t ext4 -J size=64 /dev/vda; mount -t ext4lazy /dev/vda /data; mkdir /data/d; echo kept >/data/d/file"
)
UNMOUNTED = f"{READY}; umount /data"
UNSUMMED = (
    "printf 'feature metadata_csum\\nssv checksum_type 1\\n' | debugfs -w -f - /dev/vda;"
    " if e2fsck -fn /dev/vda; then false; fi"
)
FSTAB = "echo '/dev/vda /data ext4lazy noatime 0 2' >/etc/fstab"
FILE = "[ $(cat /data/d/file) = kept ]"
READ = f"mount -t ext4lazy /dev/vda /data; {FILE}"


@dataclass(frozen=True)
class Section:
    """How the volume is before a section's commands, what must be true behind them."""

    before: str
    after: str = "true"


SECTIONS = {
    "Install": Section("true", "grep -q ext4lazy /proc/filesystems"),
    "If you have used version 0.1": Section(READY, READ),
    # The guide says the last step in a sentence.
    "Convert": Section(
        OLD, f"{MOUNT}; grep ' /data ext4lazy .*journal_lazy' /proc/mounts; [ $(cat /data/file) = kept ]"
    ),
    "Verify": Section(f"{FSTAB}; {READY}", FILE),
    "Know before it matters": Section(UNMOUNTED, '[ "$(ext4lazy status --short /dev/vda)" = empty ]'),
    "The mount is refused": Section(UNMOUNTED, f"grep ' /data ext4 ' /proc/mounts; {FILE}"),
    "The log or the file system is damaged": Section(READY, READ),
    "`convert` or `drain` was interrupted": Section(
        f"{OLD}; umount /data; e2fsck -fp /dev/vda; tune2fs -C 15000 -O ^has_journal /dev/vda",
        "mount -t ext4lazy /dev/vda /data; [ $(cat /data/file) = kept ]",
    ),
    "The disk is full": Section(
        f"{OLD}; umount /data", "mount -t ext4lazy /dev/vda /data; [ $(cat /data/file) = kept ]"
    ),
    # The feature without the checksums of inodes.
    "The disk ignores flushes": Section(
        f"{OLD}; umount /data; {UNSUMMED}",
        "mount -t ext4lazy /dev/vda /data; [ $(cat /data/file) = kept ]",
    ),
    "A disk that must not be written": Section(
        f"{UNMOUNTED}; blockdev --setro /dev/vda",
        f"{FILE}; umount /data; dmsetup remove ext4lazy-copy; losetup --detach $loop;"
        f" mount -t ext4lazy -o ro /dev/vda /data; {FILE}; umount /data; blockdev --setrw /dev/vda",
    ),
    "Go back": Section(READY, "e2fsck -fn /dev/vda"),
}


def sections() -> dict[str, list[tuple[str, str]]]:
    """By heading: the kind of each block, and its lines."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading, kind = "", None
    for line in GUIDE.read_text().splitlines():
        if line.startswith("```"):
            kind = line[3:] if kind is None else None
        elif kind is not None:
            found.setdefault(heading, []).append((kind, re.sub(r"\s+# .*", "", line)))
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def commands() -> list[str]:
    return [line for lines in sections().values() for kind, line in lines if kind == ""]


def in_guest(section: str) -> str:
    """A section's commands for the guest; its shell keeps what they set."""
    state = SECTIONS[section]
    lines = ["umount /data 2>/dev/null", f"set -e; {state.before}; set +e"]
    for kind, line in sections()[section]:
        text = line
        for name, real in NAMES.items():
            text = text.replace(name, real)
        if kind == "fstab":
            lines.append(f'echo "{text}" >/etc/fstab')
        elif line not in ELSEWHERE:
            lines += [
                f"{{ {text}\n}} >/tmp/out 2>&1 || {{ cat /tmp/out; fail '{section}:' $(tail -n 3 /tmp/out); }}",
                f"cat /tmp/out; cat >/dev/ttyS1 <<'END'\nran: {line}\nEND",
            ]
    checks = " && ".join(f"{{ {check}; }}" for check in state.after.split("; "))
    return "\n".join([*lines, f"{checks} || fail '{section}: not as expected behind it'"])


def test_every_command_does_what_the_guide_says(guest: Guest, workshop: Path) -> None:
    disk = workshop / "guide.img"
    with disk.open("wb") as file:
        file.truncate(4 << 30)
    script = "\n".join(["mkdir -p /data /run/lock", *(in_guest(section) for section in SECTIONS)])
    booted = guest.boot(script, [disk], folder=workshop, limit_s=1500)
    assert booted.results["ran"] == [line for line in commands() if line not in ELSEWHERE]
    assert f"`{MOUNT}`" in GUIDE.read_text()
    stock("e2fsck", "-fn", disk)


def test_the_packages_are_built_installed_and_removed_as_the_guide_says(module: Module) -> None:
    """The first command builds what the module of these tests was made of; apt is told to ask nothing."""
    assert set(ELSEWHERE) <= set(commands())
    with bare_root.unpacked("bookworm") as root:
        out = root.folder / "build/packages"
        out.mkdir(parents=True)
        process.run([ROOT / "packaging/build", out], what=BUILD, limit_s=900)
        (root.folder / "etc/apt/apt.conf.d/91yes").write_text('APT::Get::Assume-Yes "true";\n')
        root.run("sh", "-c", f"cd / && {INSTALL}")
        assert root.run("ext4lazy", "--version").startswith("ext4lazy 0.2+")
        root.run("sh", "-c", REMOVE)
        root.run("ext4lazy", "--version", accept=(127,))
