# SPDX-License-Identifier: MIT OR Apache-2.0
"""What tries to break journal_lazy: power cuts, damage, torture, four processors; and which lines that ran."""
