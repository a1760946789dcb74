// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAFS: an append-only file system for shingled disks (docs/safs-design.md, docs/safs-format.md).
#![deny(unsafe_code)]

pub mod catalog;
pub mod disk;
pub mod error;
pub mod format;
pub mod lru;
pub mod node_store;
pub mod tree;
