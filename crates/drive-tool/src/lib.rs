// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host side of the simulated drives: profiles as people write them, drive files, traces, and how
//! the model compares with what was measured.

pub mod any_trace;
pub mod blkparse;
pub mod drive_file;
pub mod faults;
pub mod host;
pub mod load;
pub mod meter;
pub mod nearest;
pub mod profile;
pub mod random;
pub mod replay;
pub mod speed;
pub mod trace_file;
pub mod validate;
