# SPDX-License-Identifier: MIT OR Apache-2.0
"""The generators' own account of their parameters, and what the lab holds files of users to."""

import json
import subprocess

from shingle.build import build
from shingle.catalogue import personality


def test_the_lab_knows_each_key_of_a_personality() -> None:
    said = subprocess.run(
        [build.build_crates().load, "show", "personality", "--json"], capture_output=True, text=True, check=True
    )
    schema = json.loads(said.stdout)["schema"]
    for each in schema["properties"].values():
        # Long, and no matter here.
        each.pop("default", None)
    assert schema == personality.schema()
