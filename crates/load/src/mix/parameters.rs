// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be said of the stress mix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::Payload;

/// What is done with the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Do it, verifying on the way and at the end.
    #[default]
    Run,
    /// Only compare what is there with what stage `run` must have left, given
    /// the same parameters.
    Verify,
}

/// Parallel changes, verified byte for byte against a model. Any difference is
/// an error that gives the seed and the command that replays it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// Threads that work at the same time.
    pub threads: u32,
    /// Operations of each thread.
    pub operations: u64,
    /// Everything is verified after every so many operations of each thread, and
    /// at the end; 0: at the end only.
    pub verify_every: u64,
    /// Drop the kernel's caches before verifying (needs root).
    pub drop_caches: bool,
    /// Directories in which all threads have names.
    pub shared_dirs: u32,
    /// Files of a thread at one time.
    pub files_max: u32,
    /// Directories of a thread at one time, shared ones included.
    pub dirs_max: u32,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Longest write in bytes.
    pub write_bytes_max: u64,
    /// `run`; or `verify` what a run with the same parameters has left.
    pub stage: Stage,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            threads: 8,
            operations: 5000,
            verify_every: 1000,
            drop_caches: true,
            shared_dirs: 3,
            files_max: 300,
            dirs_max: 20,
            file_bytes_max: 256 << 10,
            write_bytes_max: 64 << 10,
            stage: Stage::Run,
            payload: Payload::Word,
            path: "mix".into(),
            seed: 1,
            latency: false,
        }
    }
}
