# SPDX-License-Identifier: MIT OR Apache-2.0
"""e40's table and expectations, on records that are made up."""

import importlib.util
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from shingle.catalogue import workload
from shingle.runs import experiment, run
from shingle.runs.record import Record


@pytest.fixture(scope="module")
def field() -> ModuleType:
    spec = importlib.util.spec_from_file_location("field", experiment.names()["e40-field"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(drive: str, file_system: str, phase: str, seconds: float, cleaning: float = 0, **more: Any) -> Record:
    return {
        "drive": drive, "file_system": file_system, "workload": "Postmark", "phase": phase, "virtual_s": seconds,
        "cleaning_s": cleaning, "total_written_bytes": 3 << 20, "total_read_bytes": 1 << 20,
        "scale": 0.1, "seed": 1, **more,
    }  # fmt: skip


def postmark(field: ModuleType, times: dict[str, tuple[float, float]], drive: str = "wd40efax") -> list[Record]:
    made = []
    for name in field.ANYWHERE:
        made.append(record(drive, name, run.MOUNT, 1))
        made.append(record(drive, name, "Postmark", *times.get(name, (100.0, 50.0))))
        made.append(record(drive, name, workload.UNMOUNT, 0.5))
    return made


def shown(field: ModuleType, records: list[Record]) -> list[list[str]]:
    """The rows as words."""
    console = Console(width=200)
    rows = []
    for table in field.tables(records):
        with console.capture() as capture:
            console.print(table)
        rows += [line.split() for line in capture.get().splitlines() if line.strip()]
    return rows


def test_the_first_is_the_fastest_and_the_others_are_measured_by_it(field: ModuleType) -> None:
    records = postmark(field, {"xfs": (50.0, 700.0), "btrfs": (75.0, 0.0)})
    failed = record("wd40efax", "nilfs2", "Postmark", 1.0, failed="no room")
    records = [failed if (one["file_system"], one["phase"]) == ("nilfs2", "Postmark") else one for one in records]
    rows = shown(field, records)
    first = next(number for number, row in enumerate(rows) if row[0] == "Postmark")
    assert rows[first] == ["Postmark", "xfs", "50.0", "s", "1.00", "3", "1", "700", "s"]
    assert rows[first + 1] == ["btrfs", "75.0", "s", "1.50", "3", "1", "0.0", "s"]
    assert rows[first + len(field.ANYWHERE) - 1][:2] == ["nilfs2", "failed"]
    assert [row for row in rows if row[:3] == ["unmount", "after", "Postmark"]]
    assert not [row for row in rows if row[0] == run.MOUNT]


def test_who_is_ahead_of_ext4_counts_until_the_disk_is_quiet(field: ModuleType) -> None:
    slow_but_clean = {"ext4-lazy": (60.0, 0.0), "ext4": (50.0, 700.0)}
    assert field.ahead(postmark(field, slow_but_clean), "wd40efax", field.SERVER)
    assert not field.ahead(postmark(field, slow_but_clean | {"ext4-10g": (59.0, 0.0)}), "wd40efax", field.SERVER)


def test_one_per_cent_is_the_line(field: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "DRIVE_MANAGED", ("wd40efax",))
    assert field.never_slower(postmark(field, {"ext4-lazy": (100.9, 0.0)}), field.SERVER)
    assert not field.never_slower(postmark(field, {"ext4-lazy": (101.1, 0.0)}), field.SERVER)


def test_the_page_marks_the_first_and_names_what_did_not_finish(field: ModuleType) -> None:
    records = postmark(field, {"xfs": (50.0, 700.0), "btrfs": (75.0, 0.0)})
    failed = record("wd40efax", "nilfs2", "Postmark", 1.0, failed="no room")
    records = [failed if (one["file_system"], one["phase"]) == ("nilfs2", "Postmark") else one for one in records]
    page = field.page(records)
    assert "| btrfs | **75.5 + 0 s** |" in page
    assert "| xfs | 50.5 + 700 s, 9.94 |" in page
    assert "| nilfs2 | did not finish |" in page
    assert "* Postmark on nilfs2, wd40efax: no room" in page


def test_the_page_is_of_the_first_seed(field: ModuleType) -> None:
    records = postmark(field, {"xfs": (50.0, 0.0)})
    others = [one | {"seed": 2, "virtual_s": 1.0} for one in records]
    assert field.page(others + records) == field.page(records)
