# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records: what goes in, what is null, what does not depend on the host; and the table made of them."""

import io
import json
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shingle.catalogue import drive, fs, workload
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine.machine import StepResult
from shingle.runs import record, run

COMMON: dict[str, Any] = {
    "experiment": None,
    "drive": "st8000as0002",
    "file_system": "ext4-lazy",
    "workload": "MakeDirs",
    "scale": 0.01,
    "seed": 1,
    "configuration": {
        "capacity_bytes": 8 << 40,
        "memory_mib": 1024,
        "call_ns": 2000,
        "name_ns": 60000,
        "mkfs": ["/sbin/mke2fs", "/dev/shd0"],
        "mount_options": "journal_lazy",
        "journal_bytes": 10 << 30,
        "kernel_arguments": [],
        "aged": None,
        "scales": {"MakeDirs": 0.01},
    },
    "versions": dict.fromkeys(("linux", "kernel", "drive_model", "guest", "profile", "mkfs", "formatted"), "1"),
}
HOST = {"run_s": 1.5, "load_1min": 0.2, "cpus": 2}


def step(do: str, phase: str | None, start: int, end: int, before: dict[str, Any], after: dict[str, Any]) -> StepResult:
    return StepResult(do, phase, 0, start, end, 0, before, after, {})


def counters(journal: int = 0, metadata: int = 0, dirty: int = 0, cleaned: int = 0, **others: Any) -> dict[str, Any]:
    return {
        "journal_written_bytes": journal,
        "metadata_written_bytes": metadata,
        "superblock_written_bytes": 4096,
        "data_written_bytes": 0,
        "bands_dirty": dirty,
        "bands_cleaned": cleaned,
        **others,
    }


def run_of_two_phases() -> list[StepResult]:
    second = 10**9
    zero = counters()
    one = counters(journal=8 << 20, dirty=3, clean_at_ns=0)
    two = counters(journal=8 << 20, metadata=4096, dirty=0, cleaned=3, clean_at_ns=9 * second)
    return [
        step("load", "MakeDirs", 0, 2 * second, zero, one),
        step("sync", "MakeDirs", 2 * second, 5 * second, one, one),
        step("drop_caches", None, 5 * second, 5 * second, one, one),
        step("wait_clean", None, 5 * second, 9 * second, one, two),
        step("umount", "unmount", 9 * second, 10 * second, two, two),
    ]


def records(variant: str = "ext4-lazy") -> list[record.Record]:
    common = COMMON | {"file_system": variant}
    phases = ("MakeDirs", "unmount")
    return record.of_run(run_of_two_phases(), phases, variant=fs.find(variant), common=common, host=HOST)


def test_a_phase_lasts_until_its_sync_and_owns_what_comes_of_it() -> None:
    made, unmounted = records()
    assert made["virtual_s"] == 5
    assert made["journal_written_bytes"] == 8 << 20
    # Written while the drive cleaned up: no cost is lost between two phases.
    assert made["metadata_written_bytes"] == 4096
    assert made["bands_dirty"] == 3
    assert made["bands_cleaned"] == 3
    assert made["cleaning_s"] == 4
    assert unmounted["virtual_s"] == 1
    assert unmounted["metadata_written_bytes"] == 0


def test_records_follow_the_schema() -> None:
    for each in records():
        record.check(each)


@pytest.mark.parametrize("name", list(fs.FILE_SYSTEMS))
def test_what_each_file_system_adds_to_a_record_follows_the_schema(name: str) -> None:
    cell = run.Run(drive.find("st8000as0002"), fs.find(name), workload.plan(("MakeDirs",), scale=0.01, seed=1))
    identity = cell.identity()
    configuration = records()[0]["configuration"] | identity["configuration"]
    record.check(records()[0] | identity | {"configuration": configuration})


def test_what_cleaning_rewrote_is_told_for_each_byte_of_the_host() -> None:
    column = next(each for each in table.COLUMNS if each.heading.startswith("rewritten"))
    made = records()[0]
    # A record of before it was counted.
    assert column.text(made) == table.NOT_AVAILABLE
    written = made["total_written_bytes"]
    for factor, text in ((0, "0.00"), (2.5, "2.50"), (1234, "1,234")):
        counted = made["counters"] | {"rewritten_bytes": int(factor * written)}
        assert column.text(made | {"counters": counted}) == text


def test_a_class_that_a_file_system_does_not_have_is_null() -> None:
    made = records("f2fs")[0]
    assert made["metadata_written_bytes"] is None
    assert made["data_written_bytes"] == 0
    assert made["total_written_bytes"] == (8 << 20) + 4096
    record.check(made)


def test_a_record_with_a_field_missing_or_unknown_is_refused() -> None:
    made = records()[0]
    with pytest.raises(Failure, match="virtual_s"):
        record.check({name: value for name, value in made.items() if name != "virtual_s"})
    with pytest.raises(Failure, match="surprise"):
        record.check(made | {"surprise": 1})


def test_only_host_depends_on_the_host(tmp_path: Path) -> None:
    first = records()[0]
    second = first | {"host": {"run_s": 99.0, "load_1min": 4.0, "cpus": 64}}
    assert record.deterministic(first) == record.deterministic(second)
    file = tmp_path / "r.jsonl"
    record.write(file, [first, second])
    assert record.read(file) == [first, second]
    assert len(file.read_text().splitlines()) == 2
    json.loads(file.read_text().splitlines()[0])


def test_a_phase_that_did_not_happen_is_a_failure() -> None:
    with pytest.raises(Failure, match="reported no phase 'RemoveDirs'"):
        record.of_run(run_of_two_phases(), ["RemoveDirs"], variant=fs.find("ext4"), common=COMMON, host=HOST)


def test_what_a_program_of_the_plan_found_is_the_load() -> None:
    steps = run_of_two_phases()
    report = {"name": "fsx", "args": {}, "ends": {"mapread": "passed"}}
    read = replace(step("read", "MakeDirs", 2, 2, counters(), counters()), extra={"text": json.dumps(report)})
    made = record.of_run([read, *steps[1:]], ("MakeDirs",), variant=fs.find("nilfs2"), common=COMMON, host=HOST)[0]
    assert made["load"] == report
    record.check(made)


def test_a_load_that_may_fail_says_why_and_the_run_goes_on() -> None:
    steps = run_of_two_phases()
    failed = replace(steps[0], status=1, extra={"error": "No space left on device"})
    phases = ("MakeDirs", "unmount")
    made, unmounted = record.of_run([failed, *steps[1:]], phases, variant=fs.find("nilfs2"), common=COMMON, host=HOST)
    assert made["failed"] == "No space left on device"
    assert "failed" not in unmounted


def test_a_disk_beside_the_first_has_its_own_counters_in_a_record() -> None:
    steps = []
    for number, each in enumerate(run_of_two_phases()):
        told = {
            "before": {"shd1": {"written_bytes": 10 * number}},
            "after": {"shd1": {"written_bytes": 10 * number + 7}},
        }
        steps.append(replace(each, extra={**each.extra, "others": told}))
    common = COMMON | {"file_system": "ext4-lazy"}
    phases = ("MakeDirs", "unmount")
    more = record.of_run(
        steps, phases, variant=fs.find("ext4-lazy"), common=common, host=HOST, others=["wd30ezr"]
    )  # fmt: skip
    for each, alone in zip(more, records(), strict=True):
        record.check(each)
        (disk,) = each.pop("disks")
        assert each == alone
        assert (disk["disk"], disk["drive"]) == ("shd1", "wd30ezr")
        assert disk["counters"]["written_bytes"] == disk["total_written_bytes"] > 0
        assert disk["counters"] != each["counters"]


def test_the_table_says_not_available_and_groups_phases() -> None:
    text = io.StringIO()
    table.show(Console(file=text), [*records(), *records("f2fs")], phases=("MakeDirs", "unmount"))
    lines = text.getvalue().splitlines()
    assert any(line.startswith("MakeDirs") and "ext4-lazy" in line and "8" in line for line in lines)
    assert any("f2fs" in line and "n/a" in line for line in lines)


def test_dirty_bands_are_named_by_what_they_hold() -> None:
    made = records()[0] | {"bands_dirty": 3, "bands_dirty_by_class": [[0, 0, 8], [7, 99, 4], [8, 99, 4]]}
    assert table.dirty_bands(made) == "3 bands (journal 2, superblock 1)"


def test_states_have_no_differences() -> None:
    before, after = counters(cleaned=1, cache_bytes=5), counters(cleaned=4, cache_bytes=3)
    assert record.counter_changes(before, after)["bands_cleaned"] == 3
    assert "cache_bytes" not in record.counter_changes(before, after)
    assert replace(step("sync", None, 0, 1, before, after), status=1).status == 1


def test_a_file_that_holds_no_records_is_named_with_its_line(tmp_path: Path) -> None:
    file, whole = tmp_path / "r.jsonl", record.line(records()[0])
    for data, said in (
        (b"\x00\xff\x80", "line 1: no JSON"),
        (f"{whole}\n{whole[:100]}".encode(), "line 2: cut off"),
        (
            f"{whole}\n{whole[:-1]}".encode() + b',"surprise":1}\n',
            "line 2: a record does not follow its schema: .*surprise",
        ),
    ):
        file.write_bytes(data)
        with pytest.raises(Failure, match=f"r.jsonl, {said}"):
            record.read(file)
    with pytest.raises(Failure, match="No such file"):
        record.read(tmp_path / "none")


def test_a_target_for_records_is_refused_before_the_run(tmp_path: Path) -> None:
    new, other = tmp_path / "new.jsonl", tmp_path / "other"
    record.check_target(new)
    assert not new.exists()
    other.write_bytes(b"\x7fELF")
    for path in (other, tmp_path, tmp_path / "none/x.jsonl"):
        with pytest.raises(Failure):
            record.check_target(path)
    assert not (tmp_path / "none").exists()


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="/dev/full: No space left on device; these records are not in it"):
        record.write(Path("/dev/full"), records())
    file = tmp_path / "r.jsonl"
    record.write(file, records())
    before = file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(Failure, match="File too large"):
            record.write(file, records())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == before
