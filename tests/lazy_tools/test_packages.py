# SPDX-License-Identifier: MIT OR Apache-2.0
"""The packages as Debian wants them, and what their scripts say; installing them is for tests/stock_kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from lazy_tools.volumes import TOOLS, fakes, kept, loop, make, needs_loop, stock, tool
from shingle.build.build import KERNEL_SOURCE
from shingle.paths import ROOT

DEBIAN = ROOT / "packaging/debian"
# Of packages that build the packages: what they bring, and what brings it.
NEEDED = {"lintian": "lintian", "dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "dh_dkms": "dh-dkms"}
FSTAB = "/dev/sdb1 /data ext4lazy noatime 0 2\n"


def assert_lintian_is_silent(changes: Iterable[Path]) -> None:
    done = subprocess.run(
        ["lintian", "--allow-root", "-EI", "--pedantic", "--fail-on", "error,warning,info,pedantic,experimental",
         *changes],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_lintian_has_nothing_to_say(folder: Path) -> None:
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    missing += [] if KERNEL_SOURCE.exists() else ["linux-source-6.12"]
    if missing:
        pytest.skip(f"{' '.join(missing)} not installed; `./shingle test --stock-kernel` installs them")
    stock(ROOT / "packaging/build", folder / "out")
    assert_lintian_is_silent((folder / "out").glob("*.changes"))


def test_the_changelog_has_the_version_of_the_program() -> None:
    assert stock("dpkg-parsechangelog", "-l", DEBIAN / "changelog", "-S", "Version").strip() == tool.VERSION


def test_every_command_and_option_is_in_the_manual_page_and_in_the_completion() -> None:
    page = (TOOLS / "ext4lazy.8").read_text().replace("\\-", "-")
    completion = (TOOLS / "completion").read_text()
    commands = re.findall(r"\{([a-z,]+)\}|^    ([a-z]+) ", stock(TOOLS / "ext4lazy.py", "--help"), re.MULTILINE)
    names = {name for pair in commands for name in ",".join(pair).split(",") if name}
    assert {"advise", "convert", "status", "drain", "check", "due"} <= names
    for name in names:
        assert f".B ext4lazy {name}" in page
        assert re.search(rf"'[a-z -]*\b{name}\b[a-z -]*'", completion)
        said = stock(TOOLS / "ext4lazy.py", name, "--help")
        for option in set(re.findall(r"--[a-z-]+", said)) - {"--help"}:
            assert option in page, f"{name} {option}"
            assert re.search(rf"{name}\) options='[^']*{option}\b", completion), f"{name} {option}"


def completed(*words: str) -> list[str]:
    call = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ext4lazy; printf "%s\\n" "${COMPREPLY[@]}"'
    script = f". {TOOLS}/completion; {call}"
    return stock("bash", "-c", script, "bash", "ext4lazy", *words).split()


def test_the_completion_completes(folder: Path) -> None:
    assert completed("c") == ["convert", "check"] or completed("c") == ["check", "convert"]
    assert completed("convert", "--d") == ["--dry-run"]
    assert completed("status", "--s") == ["--scan", "--short"]
    (folder / "disk.img").touch()
    assert completed("status", f"{folder}/d") == [f"{folder}/disk.img"]


# --- scripts of the packages --------------------------------------------------------


def script(folder: Path, path: Path, *arguments: str, fstab: str = FSTAB, modinfo: str = "exit 1") -> str:
    """What a script of a package says on a system with this fstab; no system of this host is touched."""
    (folder / "fstab").write_text(fstab)
    (folder / "mounts").write_text("")
    text = path.read_text().replace("#DEBHELPER#", "")
    for there, here in (
        ("/etc/fstab", "fstab"), ("/proc/mounts", "mounts"), ("/run/ext4lazy-kernels", "kernels"),
        ("/etc/systemd/system", "units"), ("/run/systemd/system", "fakes"),
    ):  # fmt: skip
        text = re.sub(rf"(?<=[ =\t>]){re.escape(there)}", str(folder / here), text)
    text = text.replace("/etc/kernel/postinst.d/zz-ext4lazy", str(folder / "hook")).replace(
        "/usr/sbin/ext4lazy", "/bin/sh"
    )
    place = folder / ("hook" if path.name == "kernel-hook" else path.name)
    place.write_text(text)
    place.chmod(0o755)
    done = subprocess.run(
        ["sh", place, *arguments],
        env=os.environ | {"PATH": fakes(folder, modinfo=modinfo, **{"dpkg-trigger": "exit 0"},
                                        systemctl=f'echo "$*" >>{folder}/asked')},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


HOOK = TOOLS / "kernel-hook"


def test_a_kernel_without_the_module_is_named(folder: Path) -> None:
    said = script(folder, HOOK, "6.12.99-amd64")
    assert "Linux 6.12.99-amd64 has no module ext4lazy" in said
    assert "names that for /data." in said
    assert script(folder, HOOK, "6.12.99-amd64", modinfo='[ "$*" = "-k 6.12.99-amd64 ext4lazy" ]') == ""


@pytest.mark.parametrize("fstab", ["", "/dev/sdb1 /data ext4 noatime 0 2\n", f"#{FSTAB}", f"# {FSTAB}"])
def test_nobody_wants_the_module_and_nothing_is_said(folder: Path, fstab: str) -> None:
    assert script(folder, HOOK, "6.12.99-amd64", fstab=fstab) == ""
    for name in ("ext4lazy-tools.prerm", "ext4lazy-dkms.prerm"):
        assert script(folder, DEBIAN / name, "remove", fstab=fstab) == ""


def test_within_dpkg_the_hook_waits_for_the_headers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPKG_MAINTSCRIPT_PACKAGE", "linux-image-6.12.99-amd64")
    assert script(folder, HOOK, "6.12.99-amd64") == ""
    monkeypatch.setenv("DPKG_MAINTSCRIPT_PACKAGE", "ext4lazy-tools")
    said = script(folder, DEBIAN / "ext4lazy-tools.postinst", "triggered", "ext4lazy-kernel")
    assert "Linux 6.12.99-amd64 has no module ext4lazy" in said
    assert list(folder.glob("kernels*")) == []
    assert script(folder, DEBIAN / "ext4lazy-tools.postinst", "triggered", "ext4lazy-kernel") == ""


@pytest.mark.parametrize("name", ["ext4lazy-tools.prerm", "ext4lazy-dkms.prerm"])
def test_a_package_that_goes_names_what_needs_it(folder: Path, name: str) -> None:
    assert " /data" in script(folder, DEBIAN / name, "remove")
    assert script(folder, DEBIAN / name, "upgrade", "0.3") == ""


def test_a_package_that_goes_takes_what_systemd_would_miss_it_for(folder: Path) -> None:
    units = folder / "units"
    gone = [units / "timers.target.wants/ext4lazy-tidy@data.timer", units / "data.mount.d/ext4lazy-tune.conf"]
    stay = [units / "timers.target.wants/fstrim.timer", units / "data.mount.d/own.conf"]
    for path in (*gone, *stay):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/usr/lib/systemd/system/some.unit")
    name = DEBIAN / "ext4lazy-tools.prerm"
    script(folder, name, "upgrade", "0.3")
    assert all(path.is_symlink() for path in (*gone, *stay))
    script(folder, name, "remove")
    assert not any(path.is_symlink() for path in gone) and all(path.is_symlink() for path in stay)
    stopped = "stop ext4lazy-tidy@*.timer ext4lazy-tidy@*.service"
    assert (folder / "asked").read_text().splitlines() == [stopped, "daemon-reload"]


def test_only_owners_of_the_first_version_are_warned_of_it(folder: Path) -> None:
    script_ = DEBIAN / "ext4lazy-dkms.postinst"
    assert "could overwrite synced data" in script(folder, script_, "configure", "0.1+6.12.117")
    for old in ("", "0.2+git20261123184619.70e2ba495dae+6.12.117", "0.2~rc1"):
        assert script(folder, script_, "configure", old) == ""


def test_the_links_in_dev_disk_stay_with_the_volume_while_a_snapshot_is_checked() -> None:
    rule = (DEBIAN / "ext4lazy-tools.udev").read_text().replace("\\\n", "")
    assert re.search(
        r'ENV\{DM_NAME\}=="ext4lazy-\*",\s+OPTIONS\+="link_priority=-100", ENV\{UDISKS_IGNORE\}="1"\n', rule
    )
    # As `ext4lazy check` calls it: the name of its folder.
    assert 'TemporaryDirectory(prefix="ext4lazy-"' in (TOOLS / "ext4lazy.py").read_text()


def test_the_rule_keeps_desktops_off_kept_logs_alone(folder: Path) -> None:
    """udev runs the program and compares what it says; so does this."""
    rule = (DEBIAN / "ext4lazy-tools.udev").read_text().replace("\\\n", "")
    found = re.search(r'ENV\{ID_FS_TYPE\}=="ext4",\s+PROGRAM=="(.*?)", RESULT=="(.*?)", ENV\{UDISKS_AUTO\}="0"\n', rule)
    assert found is not None, rule

    def stopped(device: Path) -> bool:
        argv = found[1].replace("/usr/sbin/ext4lazy", str(TOOLS / "ext4lazy.py")).replace("$devnode", str(device))
        return stock(*argv.split()).strip() == found[2]

    assert stopped(kept(folder).path)
    assert not stopped(make(folder / "empty.img"))


UDEV = """set -e
rules=$1 volume=$2 copy=$3
mount -t tmpfs none /run
mkdir -p /run/udev/rules.d
cp "$rules"/*.rules /run/udev/rules.d
numbers() { tr : ' ' </sys/class/block/${1#/dev/}/dev; }
numbers=$(numbers $volume) other=$(numbers $copy)
mount -t tmpfs none /dev
mknod $volume b $numbers
mknod $copy b $other
for device in $copy $volume $copy; do
	udevadm test --action=change /sys/class/block/${device#/dev/} 2>/dev/null | grep UDISKS || true
	readlink -f /dev/disk/by-uuid/*
done
"""


@needs_loop
@pytest.mark.skipif(shutil.which("udevadm") is None, reason="no udev")
@pytest.mark.parametrize("name", ["ext4lazy-x1_y2", "data"])
def test_the_links_of_a_volume_are_not_its_copy_s(folder: Path, name: str) -> None:
    """udev runs the rule on loop devices; one of them is said to have the name of a copy, as 55-dm.rules does."""
    rules = folder / "rules"
    rules.mkdir()
    (rules / "70-ext4lazy-tools.rules").write_text((DEBIAN / "ext4lazy-tools.udev").read_text())
    image, twin = make(folder / "a.img"), folder / "b.img"
    shutil.copy(image, twin)
    with loop(image) as volume, loop(twin) as copy:
        (rules / "55-dm.rules").write_text(f'KERNEL=="{copy.name}", ENV{{DM_NAME}}="{name}"\n')
        found = stock("unshare", "--mount", "sh", "-c", UDEV, "sh", rules, volume, copy).splitlines()
    ignored = "UDISKS_IGNORE=1"
    # Alone it has the link; beside the volume it has none, and no desktop shows it.
    if name == "data":
        assert ignored not in found and found[-1] == str(copy)
    else:
        assert found == [ignored, str(copy), str(volume), ignored, str(volume)]


def test_the_owners_guide_gives_its_copy_such_a_name() -> None:
    names = re.findall(r"dmsetup create (\S+)", (ROOT / "docs/guide/owners-guide.md").read_text())
    assert names == ["ext4lazy-copy"]
