# SPDX-License-Identifier: MIT OR Apache-2.0
"""`shingle-drive` behind the command line."""

import pytest
from click.testing import CliRunner

from shingle.cli.drives import command as drives
from shingle.failure import Failure


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--range", "512P", "expected a size such as"), ("--block", "0", "expected a multiple of 512 bytes")],
)
def test_a_wrong_size_is_answered_with_what_was_expected(option: str, value: str, said: str) -> None:
    answered = CliRunner().invoke(drives, ["load", "wd5000ys", "--op", "randwrite", option, value])
    assert isinstance(answered.exception, Failure)
    assert said in str(answered.exception)
