# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: one file for each verb."""
