# SPDX-License-Identifier: MIT OR Apache-2.0
"""The torture's volumes, what its series promise, and its oracles, without a machine."""

from __future__ import annotations

import itertools
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.verify import torture
from shingle.verify.torture import Life, Shape


def drawn(seed: int, count: int, without: tuple[str, ...] = ()) -> list[Shape]:
    return list(itertools.islice(torture.shapes(seed, without), count))


@pytest.mark.parametrize("seed", range(5))
def test_a_series_has_each_feature_and_logs_as_users_have_them(seed: int) -> None:
    shapes = drawn(seed, len(torture.FEATURES))
    assert {shape.feature for shape in shapes} == set(torture.FEATURES)
    assert [shape.number for shape in shapes] == list(range(len(shapes)))
    assert shapes == drawn(seed, len(shapes))
    # Six of eight volumes, and the first of all.
    assert shapes[0].log_blocks >= torture.LARGE_FROM
    many = drawn(seed, 56)
    assert sum(64 <= shape.log_mib <= 1024 for shape in many) == 42
    assert {shape.log_mib for shape in many} == {4, 16, 64, 256, 1024}


# Two transactions in a log, of a block each.
LOGGED = """journal_open -c
journal_write -b 30000 /dev/zero
journal_write -b 30001 /dev/zero
journal_close
"""


def with_a_log(folder: Path, *more: str) -> Path:
    image, commands = folder / "disk", folder / "commands"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", *more, image], check=True)
    commands.write_text(LOGGED)
    subprocess.run(["/sbin/debugfs", "-w", "-f", commands, image], check=True, capture_output=True)
    return image


@pytest.mark.parametrize("more", [(), ("-O", "orphan_file")], ids=["", "orphan_file"])
def test_what_e2fsck_would_repair_is_a_complaint(tmp_path: Path, more: tuple[str, ...]) -> None:
    """What only the check sees, and what makes the replay check and repair everything."""
    image, torn = with_a_log(tmp_path, *more), tmp_path / "torn"
    counts = ("set_inode_field <2> links_count 9", "set_bg 1 free_blocks_count 5")
    for wrong in (*counts, "set_bg 1 checksum 5", "clri <8>", "clri <11>"):
        torn.write_bytes(image.read_bytes())
        subprocess.run(["/sbin/debugfs", "-w", "-R", wrong, torn], check=True, capture_output=True)
        with pytest.raises(Failure, match="e2fsck is not content"):
            torture.assert_clean(torn, wrong)
    torture.assert_clean(image, "a new volume")


def test_a_log_that_is_not_replayed_is_a_complaint(tmp_path: Path) -> None:
    """e2fsck leaves it out, and ends with status 0."""
    image = with_a_log(tmp_path)
    said = subprocess.run(
        ["/sbin/debugfs", "-R", "blocks <8>", image], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    with image.open("r+b") as file:
        # The block behind the journal's superblock: the first descriptor.
        file.seek(int(said.split()[1]) * 1024 + 20)
        file.write(b"torn")
    with pytest.raises(Failure, match="e2fsck is not content"):
        torture.assert_clean(image, "a torn log")


def test_mke2fs_makes_each_of_the_first_fifty_six_volumes(tmp_path: Path) -> None:
    """All logs with all features, where each log has each feature once at least."""
    disk, journal = tmp_path / "disk", tmp_path / "journal"
    made = set()
    for shape in itertools.islice(torture.shapes(1), 56):
        if (shape.log_mib, shape.feature) in made:
            continue
        made.add((shape.log_mib, shape.feature))
        for path, size in ((disk, shape.file_system_bytes), (journal, shape.log_mib << 20)):
            path.unlink(missing_ok=True)
            path.touch()
            os.truncate(path, size)
        if shape.made.external:
            subprocess.run(shape.made_journal(str(journal)), check=True)
            continue  # it wants a block device
        subprocess.run(shape.mke2fs(str(disk), None), check=True)
    assert {log for log, _ in made} == {4, 16, 64, 256, 1024}


def test_a_feature_can_be_left_out_by_its_name() -> None:
    assert "quota" not in {shape.feature for shape in drawn(1, 20, ("quota",))}
    with pytest.raises(Failure, match="quotas"):
        drawn(1, 1, ("quotas",))


COUNTS = dict.fromkeys(torture.COUNTED, 5) | {"log_blocks": 16383, "logged_blocks": 40000}


def life(number: int = 0, volume: int = 0, **counts: int) -> Life:
    """A life in which everything happened, but for what `counts` says."""
    shape = Shape(volume, 64, "plain")
    return Life(number, 1, shape, 100, 1.0, "off", COUNTS | counts, compared_bytes=1 << 20)


def test_a_series_that_did_everything_lacks_nothing() -> None:
    assert torture.lacking([life(), life(1)]) == []
    assert life().wraps == 2


@pytest.mark.parametrize("name", ["mount_snapshots", "demoted", "relogged", "scrubbed_blocks"])
def test_a_zero_in_what_is_promised_is_named(name: str) -> None:
    # Of the series, not of each life.
    assert torture.lacking([life(**{name: 0}), life(1)]) == []
    assert torture.lacking([life(**{name: 0}), life(1, **{name: 0})]) == [
        f"In 2 lives with logs of 4,096 blocks and more {torture._SHIPPED[name]}."
    ]


def test_wraps_and_compared_data_are_promised_too() -> None:
    assert "once round" in torture.lacking([life(logged_blocks=16000)])[0]
    assert "compared nothing" in torture.lacking([replace(life(), compared_bytes=0)])[0]


def test_every_life_with_a_large_log_writes_snapshots() -> None:
    assert torture.lacking([life(), life(1, snapshots=0)]) == ["Life 1 of volume 0 wrote no snapshot."]


def test_small_logs_promise_all_but_a_scrub() -> None:
    small = {"log_blocks": 4095, "scrubbed_blocks": 0}
    assert torture.lacking([life(**small)]) == []
    assert torture.lacking([life(**small, relogged=0)]) == ["In 1 lives with small logs no block was logged again."]


def test_what_a_kernel_does_not_count_is_not_asked_for() -> None:
    counts = {name: value for name, value in COUNTS.items() if name != "relogged"}
    assert torture.lacking([replace(life(), counts=counts)], counts_all=False) == []
    assert torture.lacking([replace(life(), counts={"log_blocks": 16383})], counts_all=False) == []
    assert torture.lacking([replace(life(), counts=counts)]) == [
        "In 1 lives with logs of 4,096 blocks and more no block was logged again."
    ]
    assert "Life 0 of volume 0 wrote no snapshot." in torture.lacking([replace(life(), counts={"log_blocks": 16383})])


def test_many_volumes_have_every_feature() -> None:
    lives = [life(volume=volume) for volume in range(7)]
    assert "external-journal" in torture.lacking(lives)[0]
    assert "external-journal" not in torture.lacking(lives, ("external-journal",))[0]


def test_with_data_in_order_each_life_moves_data_unless_it_has_clusters() -> None:
    wanted = life().operations // torture.MOVED_ONE_IN
    ordered, stayed = (
        replace(life(number, **{torture.MOVED: moved}), relocates=True)
        for number, moved in enumerate((wanted, wanted - 1))
    )
    assert torture.lacking([ordered]) == []
    (said,) = torture.lacking([ordered, stayed])
    assert said == f"Life 1 of volume 0 moved {wanted - 1:,} blocks of data; expected {wanted:,} at least."
    assert torture.lacking([ordered, replace(stayed, shape=Shape(0, 64, "bigalloc"))]) == []


def test_what_the_mounts_of_a_life_counted_is_summed() -> None:
    first = "snapshots:3\nlog_blocks:99\nrebuilt:7\ndata_relocated_blocks:4\n"
    second = "snapshots:2\nlog_blocks:99\nrebuilt:8\ndata_relocated_blocks:5\n"
    assert torture.counts_of([first, second]) == {
        "snapshots": 5, "log_blocks": 99, "rebuilt": 7, torture.MOVED: 9
    }  # fmt: skip


def test_the_table_has_a_row_for_each_log_and_the_sum() -> None:
    lives = [life(), life(1), replace(life(2), shape=Shape(1, 16, "quota"))]
    rows = torture.rows(lives)
    assert [row[0] for row in rows] == ["16 MiB", "64 MiB", "all"]
    assert rows[1] == ("64 MiB", "4,096", "2", "200", "10", "10", "10", "10", "4", "10", "", "2")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "records"
    torture.write_record(path, life(3), "key", 1, processors=4, kcsan=True)
    assert torture.read_records(path) == [("key", "4 processors with KCSAN", 1, life(3))]
    ordered = replace(life(4), relocates=True)
    torture.write_record(path, ordered, "key", 1, processors=1)
    assert torture.read_records(path)[1:] == [("key", "one processor, data in order", 1, ordered)]


def test_the_page_shows_the_records() -> None:
    """./shingle torture --write does."""
    page = torture.PAGE.read_text()
    assert page == torture.page_with(page, torture.RECORDS)


# --- The oracles --------------------------------------------------------------


def oracle(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ORACLE_NOTES": str(tmp_path)}
    argv = [sys.executable, "-I", ROOT / "lab/in_machine/oracle.py", *map(str, arguments)]
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, env=environment, check=False)


def test_a_byte_that_differs_is_found(tmp_path: Path) -> None:
    target = tmp_path / "filled"
    assert "filled 5242880 bytes in 2 files" in oracle(tmp_path, "fill", target, 1, 5).stdout
    assert "compared 5242880 bytes" in oracle(tmp_path, "compare", target, 1).stdout
    with (target / "0").open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    found = oracle(tmp_path, "compare", target, 1)
    assert found.returncode == 1 and "offset 4096" in found.stderr and "SEED=1" in found.stderr


@pytest.mark.parametrize("what", ["another seed", "a file that is gone", "a shorter file"])
def test_other_files_are_found(tmp_path: Path, what: str) -> None:
    target = tmp_path / "filled"
    oracle(tmp_path, "fill", target, 1, 5)
    if what == "a file that is gone":
        (target / "1").unlink()
    elif what == "a shorter file":
        os.truncate(target / "1", 1000)
    found = oracle(tmp_path, "compare", target, 2 if what == "another seed" else 1)
    assert found.returncode == 1, found


@pytest.fixture
def churned(tmp_path: Path) -> Path:
    target = tmp_path / "churned"
    done = oracle(tmp_path, "churn", target, 3, 3)
    if "Operation not " in done.stderr:
        pytest.skip("needs root, and a file system with attributes")
    assert done.stdout.startswith("operations "), done.stderr
    assert oracle(tmp_path, "check", target, 3, 3).stdout.startswith("checked ")
    return target


@pytest.mark.parametrize("what", ["gone", "there", "owner", "attribute", "data"])
def test_a_name_that_differs_is_found(tmp_path: Path, churned: Path, what: str) -> None:
    first = churned / "dirs2/0"
    if what == "gone":
        (churned / "dirs2/1").rmdir()
    elif what == "there":
        (churned / "other").mkdir()
    elif what == "owner":
        os.chown(first, 1, 1)
    elif what == "attribute":
        os.setxattr(first, "user.a", b"x")
    else:
        with (churned / "data2/0").open("r+b") as file:
            file.write(b"?")
    found = oracle(tmp_path, "check", churned, 3, 3)
    assert found.returncode == 1 and "SEED=3" in found.stderr, found


@pytest.mark.parametrize("size", [1, 6, 7])
def test_a_file_that_begins_inside_its_inode_has_the_size_that_the_model_says(tmp_path: Path, size: int) -> None:
    """It begins with a few bytes, which were once more than the file was to have."""
    world = runpy.run_path(str(ROOT / "lab/in_machine/oracle.py"))["World"](str(tmp_path), 1, real=True)
    for number in range(4):
        world.write(str(number), size)
        world.compare(str(number))


def test_the_command_that_runs_a_volume_again_has_all_that_chose_its_lives() -> None:
    asked = torture.Series(7, 300, 1, without=("quota", "bigalloc"), relocates=True, options=("--kernel", "mutant:x"))
    assert asked.again(3) == (
        "./shingle torture --kernel mutant:x --data-in-order --without quota,bigalloc --seed 7 --mix 300 --volume 3"
    )
    assert torture.Series(1, 1000, 1).again(0) == "./shingle torture --seed 1 --mix 1000 --volume 0"
