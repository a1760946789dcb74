# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs of workloads, their records, and the experiments and claims that are made of them."""
