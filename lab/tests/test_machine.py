# SPDX-License-Identifier: MIT OR Apache-2.0
"""How runs end, against a script that ends in each of the ways."""

import json
import os
from pathlib import Path

import pytest

from shingle.failure import Failure
from shingle.machine import console, job, machine
from shingle.machine.machine import Boot, Machine, Tick

STEPS = (job.mount("ext4"), job.sync(phase="P"))


def boot(kind: str, **changes: object) -> Boot:
    return Boot(steps=STEPS, kernel_arguments=(f"fake={kind}",), **changes)  # type: ignore[arg-type]


def failure_of(fake: Machine, tmp_path: Path, the_boot: Boot) -> Failure:
    with pytest.raises(Failure) as caught:
        machine.run(fake, the_boot, tmp_path)
    return caught.value


def test_a_finished_job_is_an_outcome(fake_machine: Machine, tmp_path: Path) -> None:
    outcome = machine.run(fake_machine, boot("ok"), tmp_path)
    assert [step.do for step in outcome.steps] == ["mount", "sync"]
    assert outcome.steps[1].phase == "P"
    assert not outcome.power_cut


def test_a_panic_is_named_with_the_step_and_the_console(fake_machine: Machine, tmp_path: Path) -> None:
    failure = failure_of(fake_machine, tmp_path, boot("panic"))
    assert "panicked" in str(failure)
    assert "step 2 of 2, sync P" in str(failure)
    assert any("transaction 17 has no buffers" in line for line in failure.detail)


def test_lack_of_memory_is_told_from_the_panic_that_follows(fake_machine: Machine, tmp_path: Path) -> None:
    assert "ran out of memory" in str(failure_of(fake_machine, tmp_path, boot("oom")))


def test_a_kernel_warning_fails_the_run(fake_machine: Machine, tmp_path: Path) -> None:
    assert "jbd2_journal_dirty_metadata" in str(failure_of(fake_machine, tmp_path, boot("warning")))


def test_a_hang_ends_at_the_host_limit_and_nothing_is_left_running(fake_machine: Machine, tmp_path: Path) -> None:
    failure = failure_of(fake_machine, tmp_path, boot("hang", host_limit_s=1.0))
    assert "did not finish within 1 s of host time" in str(failure)
    assert "task sync:52 blocked for more than 120 seconds" in str(failure)
    assert not running_with(str(tmp_path))


def test_virtual_time_has_a_limit_too(fake_machine: Machine, tmp_path: Path) -> None:
    failure = failure_of(fake_machine, tmp_path, boot("slow", virtual_limit_s=3.0))
    assert "3 s of virtual time" in str(failure)


def test_results_without_an_end_are_a_failure_whatever_the_status(fake_machine: Machine, tmp_path: Path) -> None:
    failure = failure_of(fake_machine, tmp_path, boot("truncated"))
    assert "ended with status 0 before its job was done" in str(failure)


def test_a_failed_step_is_named_with_its_reason(fake_machine: Machine, tmp_path: Path) -> None:
    assert "mount, failed: mount: wrong fs type" in str(failure_of(fake_machine, tmp_path, boot("failed_step")))


def test_a_power_cut_is_an_outcome_only_where_one_was_asked_for(fake_machine: Machine, tmp_path: Path) -> None:
    assert machine.run(fake_machine, boot("power_cut", cut=7), tmp_path).power_cut
    (tmp_path / "results.jsonl").unlink()
    assert "status 3" in str(failure_of(fake_machine, tmp_path, boot("power_cut")))


def test_ticks_reach_the_watcher_while_the_machine_runs(fake_machine: Machine, tmp_path: Path) -> None:
    seen: list[Tick] = []
    with pytest.raises(Failure):
        machine.run(fake_machine, boot("slow", virtual_limit_s=5.0), tmp_path, watch=seen.append)
    assert [tick.now_ns // 10**9 for tick in seen][:3] == [1, 2, 3]


def test_equal_boots_have_equal_command_lines(fake_machine: Machine, tmp_path: Path) -> None:
    line = machine.command_line(fake_machine, boot("ok", seed=7, cut=3), tmp_path)
    assert "shingle.seed=7" in line
    assert "shingle.cut=3" in line
    assert "time-travel=inf-cpu" in line
    assert not any(text.startswith("shingle.drive") for text in line)


def test_each_disk_has_its_files_on_the_command_line(fake_machine: Machine, tmp_path: Path) -> None:
    others = (machine.Disk(Path("b"), trace=Path("b.trace")), machine.Disk(Path("c"), Path("c.saved"), None, Path("f")))
    line = machine.command_line(
        fake_machine, boot("ok", drive=Path("a"), save=Path("a.saved"), others=others), tmp_path
    )
    assert [text for text in line if text.startswith(("shingle.drive", "shingle.save", "shingle.trace"))] == [
        "shingle.drive=a", "shingle.save=a.saved",
        "shingle.drive1=b", "shingle.trace1=b.trace",
        "shingle.drive2=c", "shingle.save2=c.saved",
    ]  # fmt: skip
    assert "shingle.faults2=f" in line


def test_the_job_tells_of_disks_only_if_there_are_several(tmp_path: Path) -> None:
    job.put(tmp_path, STEPS)
    alone = (tmp_path / "job.json").read_text()
    job.put(tmp_path, STEPS, disks=3)
    assert json.loads((tmp_path / "job.json").read_text()) == {**json.loads(alone), "disks": 3}
    assert "disks" not in alone


def running_with(argument: str) -> list[int]:
    """Processes of the host whose command line mentions `argument`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_drives_that_hold_too_much_are_the_cause_and_not_the_errors_that_follow() -> None:
    cause = "[    1.000000] shingle: the drives' contents no longer fit into 4096 MiB of host memory (8 bytes refused)"
    found = console.diagnose(f"{cause}\n[    2.000000] JBD2: I/O error when updating journal superblock for shd0-8.")
    assert found is not None
    assert (found.trouble, found.line) == (console.Trouble.CONTENTS, cause)


def test_an_error_of_the_file_system_is_an_answer_where_faults_were_planned() -> None:
    error = "[    1.000000] EXT4-fs error (device shd0): unable to read itable block"
    expected = (console.Trouble.FILE_SYSTEM_ERROR,)
    assert console.diagnose(error) is not None
    assert console.diagnose(error, expected=expected) is None
    warning = f"{error}\n[    2.000000] WARNING: CPU: 0 PID: 38 at fs/jbd2/transaction.c:1552"
    found = console.diagnose(warning, expected=expected)
    assert found is not None
    assert found.trouble is console.Trouble.WARNING


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected", console.Trouble.WARNING),
        ("WARNING: Nested lock was not taken", console.Trouble.WARNING),
        ("WARNING: python3/40 still has locks held!", console.Trouble.WARNING),
        ("BUG kmalloc-64 (Not tainted): Poison overwritten", console.Trouble.BUG),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", console.Trouble.BUG),
        ("EXT4-fs (shd0): Delayed block allocation failed for inode 12", console.Trouble.FILE_SYSTEM_ERROR),
        ("EXT4-fs (shd0): This should not happen!! Data will be lost", console.Trouble.FILE_SYSTEM_ERROR),
        ("EXT4-fs (shd0): Inode 12 (0): i_reserved_data_blocks (3) not cleared!", console.Trouble.FILE_SYSTEM_ERROR),
        ("JBD2 unexpected failure: jbd2_journal_revoke", console.Trouble.FILE_SYSTEM_ERROR),
        ("Aborting journal on device shd0-8.", console.Trouble.FILE_SYSTEM_ERROR),
    ],
)
def test_what_the_kernel_complains_of_without_a_stack_is_trouble(line: str, trouble: console.Trouble) -> None:
    found = console.diagnose(f"[    1.000000] fine\n[    2.000000] {line}\n")
    assert found is not None
    assert found.trouble is trouble
