# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the help of all commands has in common."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """The end of a command's help: what to type, without the program's name."""
    return "\b\nExamples:\n" + "\n".join(f"  ./shingle {line}" for line in lines)
