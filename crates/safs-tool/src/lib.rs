// SPDX-License-Identifier: MIT OR Apache-2.0
//! What SAFS can be on in this computer: image files, ordinary disks, and disks with zones of their own.
#![deny(unsafe_code)]

mod block_zones;
pub mod host;
mod host_file;
pub mod image;
mod zone_calls;
