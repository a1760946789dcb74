// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load generators for file systems. Every one is a struct of parameters with a
//! default, run on a directory; every choice comes from its `seed`. The same
//! seed makes the same system calls with the same arguments; on a machine with
//! one deterministic processor also in the same order.
//!
//! No generator waits without a system call, reads the clock where it was not
//! asked to, or depends on the order of a hash table.
#![deny(unsafe_code)]

use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::Serialize;

pub mod appends;
pub mod archive;
mod build_trace;
pub mod churndirs;
mod clock;
pub mod compilebench;
pub mod createfiles;
mod direct;
pub mod dirty_reuse;
mod error;
mod file;
pub mod list;
pub mod listing;
pub mod makedirs;
pub mod manifest;
pub mod marked;
mod meter;
pub mod mix;
mod payload;
pub mod personality;
pub mod postmark;
pub mod random_overwrite;
mod registry;
pub mod remove;
pub mod replay;
mod report;
mod rng;
pub mod sequential;
mod team;
#[cfg(test)]
mod testing;
mod tree;
mod walk;

pub use error::{LoadError, Result};
pub use registry::{find, run, Generator, GENERATORS};
pub use report::{Part, Report};

/// A load generator: its parameters, and what it does with a directory.
pub trait Load: Default + Serialize + DeserializeOwned + JsonSchema {
    fn run(&self, dir: &Path) -> Result<Report>;
}
