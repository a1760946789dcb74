// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host side of the simulated drives: profiles as people write them, drive files, traces.

pub mod drive_file;
pub mod faults;
pub mod host;
pub mod nearest;
pub mod profile;
pub mod replay;
pub mod trace_file;
