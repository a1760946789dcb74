# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a machine is made of: the kernel, the Rust programs, other people's tools; all kept by content."""
