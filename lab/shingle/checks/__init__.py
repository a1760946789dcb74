# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `./shingle test` and `./shingle check` run."""
