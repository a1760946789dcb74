// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Dynamic mapping: s-blocks, which move to another slot of their section whenever they are cleaned.

mod cleaning;
mod job;
mod layer;
mod map;

pub use layer::SBlocks;
