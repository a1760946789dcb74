# SPDX-License-Identifier: MIT OR Apache-2.0
"""What can be named on the command line: drives, file systems, workloads, plans of faults."""
