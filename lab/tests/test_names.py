# SPDX-License-Identifier: MIT OR Apache-2.0
"""Names: the right ones are found, wrong ones get the nearest match, the impossible says why."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from shingle.catalogue import drive, fs, suitability, workload
from shingle.checks import suite
from shingle.cli import main
from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import experiment


@pytest.mark.parametrize(
    ("find", "wrong", "right"),
    [
        (fs.find, "ext4-laz", "ext4-lazy"),
        (fs.find, "EXT4-LAZY", "ext4-lazy"),
        (workload.find, "MakeDir", "MakeDirs"),
        (drive.find, "st5000", "st5000as0011"),
        (experiment.find, "e01-first-ligth", "e01-first-light"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(find, wrong: str, right: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Failure) as caught:
        find(wrong)
    assert f"Did you mean {right}?" in str(caught.value)
    assert caught.value.status == 2


# What ends like this is a file of the user's own.
@given(st.text(max_size=30).filter(lambda name: not name.endswith((".toml", ".fio", ".sh"))))
def test_no_name_breaks_the_suggestion(name: str) -> None:
    try:
        workload.find(name)
    except Failure as failure:
        assert "RemoveDirs" in " ".join(failure.detail)


def test_workloads_are_found_in_any_case_and_experiments_by_number() -> None:
    assert workload.find("makedirs").name == "MakeDirs"
    assert experiment.find("e01").name == "e01-first-light"


def test_a_workload_brings_what_it_needs() -> None:
    assert workload.plan(["RemoveDirs"], scale=1, seed=1).names == ("MakeDirs", "RemoveDirs")
    assert workload.plan(["MakeDirs", "RemoveDirs"], scale=1, seed=1).names == ("MakeDirs", "RemoveDirs")
    assert workload.plan(["RemoveDirs", "ListDirs"], scale=1, seed=1).names == (
        "MakeDirs", "RemoveDirs", "MakeDirs", "ListDirs",
    )  # fmt: skip


def test_a_workload_cannot_run_twice_on_its_own_tree() -> None:
    with pytest.raises(Failure, match="cannot run twice"):
        workload.plan(["MakeDirs", "MakeDirs"], scale=1, seed=1)


@pytest.mark.parametrize("scale", [0, -1, 1000])
def test_senseless_scales_are_refused(scale: float) -> None:
    with pytest.raises(Failure, match="makes no sense"):
        workload.plan(["MakeDirs"], scale=scale, seed=1)


def test_a_file_system_larger_than_the_drive_says_why() -> None:
    with pytest.raises(Failure, match="ext4-10g needs a drive of at least 20 GiB"):
        fs.check_fits(fs.find("ext4-10g"), "tiny", 8 << 30)


def test_a_workload_larger_than_the_drive_says_why() -> None:
    plan = workload.plan(["Postmark"], scale=10, seed=1)
    with pytest.raises(Failure, match="too much for tiny"):
        workload.check_fits(plan, "tiny", 100 << 30)


def test_every_phase_ends_with_its_sync_and_the_unmount_is_one() -> None:
    plan = workload.plan(["MakeDirs"], scale=0.001, seed=3)
    steps = plan.steps()
    assert [step["do"] for step in steps] == ["load", "sync", "drop_caches", "wait_clean", "umount", "wait_clean"]
    assert steps[1]["phase"] == "MakeDirs"
    assert steps[4]["phase"] == "unmount"
    assert steps[0]["args"]["seed"] == 3  # type: ignore[index]


def test_commands_suggest_and_help_has_examples() -> None:
    runner = CliRunner()
    result = runner.invoke(main.cli, ["dmeo"])
    assert isinstance(result.exception, Failure)
    assert "Did you mean demo?" in str(result.exception)
    for command in main.cli.commands:
        assert "./shingle" in runner.invoke(main.cli, [command, "--help"]).output


def test_variants_have_fixed_names_and_identifiers() -> None:
    assert list(fs.FILE_SYSTEMS) == [
        "ext4-128m", "ext4", "ext4-10g", "ext4-lazy", "ext4-lazy-1g", "ext4-stream", "ext4-smr", "ext4-smr-edge",
        "ext4-10g-readahead", "ext4-lazy-plain", "ext4-lazy-counted", "nilfs2", "f2fs", "btrfs", "xfs", "ntfs3",
        "exfat", "safs", "zonefs",
    ]  # fmt: skip
    lazy, baseline = fs.find("ext4-lazy"), fs.find("ext4-10g")
    assert lazy.mkfs == baseline.mkfs
    assert replace(lazy, options="") != lazy


def test_layouts_are_read_from_the_tools_own_words() -> None:
    text = (
        "Level Entries         Logical              Physical Length Flags\n"
        " 1/ 1   1/  2      0 -  32767 268468224 - 268500991  32768 \n"
        " 1/ 1   2/  2  32768 -  65535 268500992 - 268533759  32768 \n"
    )
    layout = fs.parse_ext4_journal(text)
    assert layout.journal == ((268468224 * 8, 65536 * 8),)
    assert layout.journal_bytes == 256 << 20
    xfs = fs.parse_xfs_log(
        "blocksize = 4096\nagblocks = 6553600\nagblklog = 23\nlogstart = 16777222\nlogblocks = 16384\n"
    )
    assert xfs.journal == ((2 * 6553600 * 8 + 6 * 8, 16384 * 8),)
    with pytest.raises(Failure, match="no extents"):
        fs.parse_ext4_journal("debugfs: Bad magic number\n")


def test_a_host_managed_drive_takes_only_what_writes_in_order() -> None:
    fs.check_suits(fs.find("btrfs"), "hc620", host_managed=True)
    fs.check_suits(fs.find("ext4"), "st8000as0002", host_managed=False)
    with pytest.raises(Failure, match="these do: f2fs, btrfs"):
        fs.check_suits(fs.find("ext4"), "hc620", host_managed=True)
    with pytest.raises(Failure, match="no workload can run"):
        fs.check_suits(fs.find("zonefs"), "hc620", host_managed=True)
    with pytest.raises(Failure, match="cannot be aged"):
        fs.check_can_age(fs.find("btrfs"), host_managed=True)
    fs.check_can_age(fs.find("btrfs"), host_managed=False)
    drive.check_zones(drive.find("hc620"), 132 << 30)
    with pytest.raises(Failure, match="needs more than 131 GiB"):
        drive.check_zones(drive.find("hc620"), 131 << 30)
    assert "-m" in fs.find("f2fs").mkfs_argv(host_managed=True)
    assert "-m" not in fs.find("f2fs").mkfs_argv()


def test_the_table_of_drives_and_file_systems_goes_between_its_marks() -> None:
    page = suitability.PAGE.read_text()
    other = suitability.page_with("table\n", page)
    assert "\ntable\n<!-- end" in other
    assert suitability.page_with(suitability.markdown(), other) == page
    with pytest.raises(Failure, match="has lost the marks"):
        suitability.page_with("table\n", "a page without marks")
    for profile in drive.profiles().values():
        for column in suitability.columns():
            assert suitability.expected(profile, column).outcome in ("works", "refused", "fails")


def test_a_drive_may_be_a_file_of_the_users_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    with pytest.raises(Failure, match=r"mine\.toml: No such file.*expected a drive profile"):
        drive.find(str(mine))
    mine.write_text("name =\n")
    with pytest.raises(Failure, match=r"mine\.toml is not TOML: .*line 1"):
        drive.find(str(mine))
    mine.write_text(drive.find("wd5000ys").path.read_text())
    assert drive.find(str(mine)).name == "mine"
    assert drive.capacity_of(drive.find(str(mine))) == drive.capacity_of(drive.find("wd5000ys"))


def test_a_changed_drive_differs_in_that_number_alone() -> None:
    profile = drive.find("st8000as0002")
    made = drive.changed(profile, "translation.idle", 0.3)
    assert made.name == "st8000as0002-idle-0.3"
    assert made.values["translation"]["idle"]["value"] == 0.3
    made.values["translation"]["idle"]["value"] = profile.values["translation"]["idle"]["value"]
    assert made.values == profile.values
    assert made.path != profile.path
    with pytest.raises(Failure, match=r"no translation\.idel to change"):
        drive.changed(profile, "translation.idel", 1)


def test_a_log_elsewhere_is_made_before_the_mount_and_is_no_journal_of_the_drive() -> None:
    variant = fs.with_log_elsewhere(fs.ext4("elsewhere", "", None), 64)
    programs = [step["argv"][0].rpartition("/")[2] for step in variant.mount_steps()[:-1]]  # type: ignore[index]
    assert programs == ["truncate", "losetup", "mke2fs", "tune2fs"]
    assert variant.mount_steps()[-1]["do"] == "mount"
    assert "^has_journal" in variant.mkfs and not variant.reports("journal")


def test_the_quick_check_needs_no_kernel_and_reaches_most_units() -> None:
    chosen = suite.select(suite.quick(), suite.test_files())
    assert suite.flavours_for(chosen) == []
    assert len(chosen) > 10


def test_the_page_of_commands_has_each_command() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert [name for name in main.cli.commands if f"`./shingle {name}" not in page] == []


@pytest.mark.parametrize(
    ("arguments", "names", "options"),
    [
        (["determinism", "-x"], ["determinism"], ["-x"]),
        (["-k", "fsck", "tests/kernel/test_scrub.py"], ["tests/kernel/test_scrub.py"], ["-k", "fsck"]),
        (["-k", "tests/kernel"], [], ["-k", "tests/kernel"]),
        (["--ignore", "tests/kernel/test_scrub.py"], [], ["--ignore", "tests/kernel/test_scrub.py"]),
    ],
)
def test_a_test_file_counts_on_either_side_of_the_dash(
    arguments: list[str], names: list[str], options: list[str]
) -> None:
    assert suite.split(arguments, suite.test_files()) == (names, options)
