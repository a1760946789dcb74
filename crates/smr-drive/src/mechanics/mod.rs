// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Platters and arm: where things are, and how long it takes to get there. Integers only, so that every machine
//! computes the same times.

pub mod arm;
pub mod layout;
pub mod read_ahead;
