# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lab: builds the simulated machine, runs experiments in it, records and draws what happened."""
