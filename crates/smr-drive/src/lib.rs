// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A disk drive in virtual time: shingled or conventional.
//!
//! The drive is sans-I/O. It never sleeps, reads no clock and does no I/O: the caller says what time it is
//! ([`Drive::submit`], [`Drive::advance`]) and asks when something will happen next ([`Drive::next_event`]). Everything
//! random comes from one seed. The same calls give the same answers, on any machine.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod activity;
pub mod contents;
pub mod counters;
mod drive;
mod durability;
pub mod faults;
pub mod file;
pub mod latency;
pub mod mechanics;
pub mod profile;
pub mod request;
pub mod state;
pub mod trace;
pub mod translation;
pub mod volatile_buffer;
mod zoned_disk;

pub use drive::Drive;
pub use zoned_disk::ZonedDisk;
