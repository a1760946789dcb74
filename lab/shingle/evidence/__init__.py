# SPDX-License-Identifier: MIT OR Apache-2.0
"""What people read: tables, figures, pages of docs/, the report. All of it comes from records."""
