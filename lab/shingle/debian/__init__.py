# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian as its users have it: its own kernel under QEMU, and bare systems in which packages are installed."""
