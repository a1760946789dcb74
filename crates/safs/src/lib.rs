// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAFS: an append-only file system for shingled disks (docs/design/safs-design.md, docs/reference/safs-format.md).
//!
//! The core knows a `ZonedDevice` and nothing else: no clock, no threads, no kernel.
#![forbid(unsafe_code)]

mod append;
mod attributes;
mod budget;
mod catalog;
mod charge;
mod check;
mod cleaning;
mod commit;
mod compaction;
mod disk;
mod error;
pub mod format;
mod fs;
mod layout;
mod log;
mod lru;
mod mkfs;
mod namespace;
mod node_store;
mod options;
mod read;
mod read_ahead;
mod readers;
pub mod recovery;
mod repair;
mod retain;
mod rings;
mod roots;
mod salvage;
mod space;
mod staging;
#[cfg(test)]
mod testing;
mod tree;
mod truncate;
mod verify;
mod victim;
mod zones;

pub use attributes::{SetAttributes, XattrMode, HEAD_ATTRIBUTE};
pub use check::Report;
pub use disk::{Disk, Geometry};
pub use error::{Error, Result};
pub use fs::{Counters, FileSystem};
pub use layout::{InOrder, Layout};
pub use mkfs::{check_device, make, MakeOptions};
pub use namespace::{Owner, RenameMode};
pub use options::{Options, Placement};
pub use retain::{Retention, Spent, RETAIN_ATTRIBUTE};
pub use space::Space;
pub use zones::Zones;
