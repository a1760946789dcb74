// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAFS without a kernel and without a disk: on simulated drives, in virtual time, and on a device in memory whose power fails.
#![forbid(unsafe_code)]

pub mod simulate;
// What tests share needs no page for each of its items.
#[allow(missing_docs)]
pub mod suites;
