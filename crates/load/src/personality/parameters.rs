// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be said of a personality.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::Payload;

/// Which part of a personality runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    #[default]
    All,
    /// The files only.
    Create,
    /// The threads only, on files that stage `create` made with the same parameters.
    Run,
}

/// A set of files, in a directory of its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSet {
    pub name: String,
    /// Files, whether they are there at the beginning or not.
    pub entries: u32,
    /// Mean entries of a directory, from 2; the tree is Filebench's.
    pub width: u32,
    /// Mean size in bytes; sizes are drawn from a gamma distribution of shape 1.5.
    pub mean_bytes: u64,
    /// Of a hundred files, how many are there at the beginning.
    pub prealloc_percent: u8,
}

/// Threads that do the same.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    pub count: u32,
    /// Done from front to back, again and again.
    pub flow: Vec<Flow>,
}

/// Filebench's flow operations, under their names. `fd` is a thread's own number of an open file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Flow {
    CreateFile {
        fileset: String,
        #[serde(default = "first")]
        fd: u32,
    },
    OpenFile {
        fileset: String,
        #[serde(default = "first")]
        fd: u32,
    },
    CloseFile {
        #[serde(default = "first")]
        fd: u32,
    },
    ReadWholeFile {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
    },
    /// As many bytes as the file set has for this file.
    WriteWholeFile {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
    },
    /// Below `io_bytes`, evenly. With a set, a file of it is opened if none is, and stays open.
    AppendFileRand {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
        fileset: Option<String>,
    },
    Fsync {
        #[serde(default = "first")]
        fd: u32,
    },
    /// Nothing, if another thread has the file open.
    DeleteFile {
        fileset: String,
    },
    StatFile {
        fileset: String,
    },
}

fn first() -> u32 {
    1
}

/// Makes sets of files, then lets threads work on them for some time. The defaults
/// are the web server that Filebench is shipped with, for ten seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Personality {
    /// The sets of files.
    pub filesets: Vec<FileSet>,
    /// The threads.
    pub threads: Vec<Threads>,
    /// Seconds after which no thread begins another operation, but for its first of each.
    pub duration_s: f64,
    /// `all`, or only `create` the files, or only `run` the threads.
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

impl Default for Personality {
    fn default() -> Self {
        let set = |name: &str, entries| FileSet {
            name: name.into(),
            entries,
            width: 20,
            mean_bytes: 16 << 10,
            prealloc_percent: 100,
        };
        let one = [
            Flow::OpenFile {
                fileset: "bigfileset".into(),
                fd: 1,
            },
            Flow::ReadWholeFile {
                fd: 1,
                io_bytes: 1 << 20,
            },
            Flow::CloseFile { fd: 1 },
        ];
        let log = Flow::AppendFileRand {
            fd: 2,
            io_bytes: 16 << 10,
            fileset: Some("logfiles".into()),
        };
        let flow = std::iter::repeat_n(one, 10).flatten().chain([log]);
        Self {
            filesets: vec![set("bigfileset", 1000), set("logfiles", 1)],
            threads: vec![Threads {
                count: 100,
                flow: flow.collect(),
            }],
            duration_s: 10.0,
            stage: Stage::All,
            payload: Payload::Word,
            path: "personality".into(),
            seed: 1,
            latency: false,
        }
    }
}
