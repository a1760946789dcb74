# SPDX-License-Identifier: MIT OR Apache-2.0
"""journal_lazy as a series of patches for review."""
