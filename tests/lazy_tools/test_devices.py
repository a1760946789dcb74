# SPDX-License-Identifier: MIT OR Apache-2.0
"""ext4lazy on block devices: loop devices over small images, which need root, and the host's own ext4."""

from __future__ import annotations

from pathlib import Path

from lazy_tools.volumes import ext4lazy, fakes, loop, make, needs_loop, stock

pytestmark = needs_loop


def test_nobody_can_mount_what_is_being_converted(folder: Path) -> None:
    said, point = folder / "said", folder / "point"
    point.mkdir()
    with loop(make(folder / "old.img", kind="ext3", mib=128)) as device:
        path = fakes(
            folder, tune2fs=f'real mount {device} {point} 2>>{said} && umount {point} && echo mounted >>{said}\n'
            'real tune2fs "$@"',
        )  # fmt: skip
        done = ext4lazy("convert", device, path=path)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = said.read_text().splitlines()
        assert "mounted" not in lines
        assert sum("already mounted or mount point busy" in line for line in lines) == 3
        stock("e2fsck", "-fn", device)
        stock("mount", device, point)
        stock("umount", point)


def test_a_command_that_outlives_the_program_still_keeps_the_device(folder: Path) -> None:
    point, said = folder / "point", folder / "said"
    point.mkdir()
    with loop(make(folder / "old.img", kind="ext3", mib=128)) as device:
        path = fakes(
            folder, tune2fs=f"kill -9 $PPID; sleep 0.2; real mount {device} {point} && umount {point}; echo $? >{said}"
        )
        assert ext4lazy("convert", device, path=path).returncode == -9
        assert said.read_text() == "32\n"
