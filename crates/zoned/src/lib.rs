// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The words every part of the project uses for disks: addresses with their units, zones with their states, write
//! pointers, and the trait of a zoned device.
//!
//! One word, one meaning. A *sector* has 512 bytes, a *block* 4096. A *zone* belongs to the interface (the host sees
//! it), a *band* to the platter (the host does not).
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod address;
mod device;
mod zone;

pub use address::{BandId, Block, BlockRange, Lba, Pba, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};
pub use device::{DeviceError, RamDevice, ZonedDevice};
pub use zone::{Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType};
