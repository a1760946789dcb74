# SPDX-License-Identifier: MIT OR Apache-2.0
"""The unit tests that live beside the kernel code, run by the sanitizing kernel as it boots."""

import pytest

from harness import Bench
from kernel import ktap
from shingle.machine import job

pytestmark = [pytest.mark.machine, pytest.mark.sanitize]


def test_kernel_unit_tests_pass(sanitizing_bench: Bench) -> None:
    booted = sanitizing_bench.boot([job.sync()], kernel_arguments=("kunit.enable=1",), host_limit_s=300)
    report = ktap.parse(booted.outcome.console)
    assert report.cases, "the kernel ran no unit test"
    assert report.failed == []
    assert len([case for case in report.cases if not case.is_parameter]) == report.planned
