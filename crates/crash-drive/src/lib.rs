// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A small disk for the crash explorer (docs/design/crash-explorer.md): it can be set to any of the states that its file lists,
//! and it records every request with its data.
//!
//! It has no mechanics. A request ends after a delay drawn from the seed, so that requests overtake each other; with a
//! longest delay of 0 it ends at once. Like the other drives it is sans-I/O: it reads no clock and never sleeps.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod drive;
pub mod record;
pub mod states;

pub use drive::{CrashDrive, MAX_REQUEST_SECTORS, QUEUE_DEPTH};

/// Bytes of a block, the unit in which states are described and in which a write can be torn: what a disk with 4 KiB
/// sectors writes as a whole.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
