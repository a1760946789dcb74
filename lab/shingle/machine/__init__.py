# SPDX-License-Identifier: MIT OR Apache-2.0
"""The simulated machine: its job, its boot, its console, its trace, and what a person sees while it runs."""
