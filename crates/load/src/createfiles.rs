// SPDX-License-Identifier: MIT OR Apache-2.0
//! CreateFiles: a tree of small files, made by several threads.

use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{open, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::file;
use crate::makedirs::make_inner;
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::team;
use crate::tree::{Shape, Tree};
use crate::Load;

/// Filebench's CreateFiles, as FAST'17 §4.2.1 runs it: first one thread makes
/// the directories, then all threads make the files, in the order of the tree.
/// The sync is a step of its own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreateFiles {
    /// Files. FAST'17: 600,000.
    pub count: u32,
    /// Bytes of each file. FAST'17: 4 KiB.
    pub file_bytes: u64,
    /// Bytes of each write.
    pub io_bytes: u64,
    /// Mean entries of a directory. 2 gives 600,000 files a mean depth of 20
    /// (the paper's article version), and 100,000 files the "more than 60,000 directories" of FAST'17 §4.1.
    pub width: u32,
    /// Mean depth in levels; null: ln(count) / ln(width). Shape `filebench` only.
    pub depth: Option<u32>,
    /// `filebench`: drawn from gamma distributions; `regular`: the same width everywhere.
    pub shape: Shape,
    /// Threads that make files. FAST'17: 8.
    pub threads: u32,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of the tree's shape and of the files' contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for CreateFiles {
    fn default() -> Self {
        Self {
            count: 600_000,
            file_bytes: 4096,
            io_bytes: 1 << 20,
            width: 2,
            depth: None,
            shape: Shape::Filebench,
            threads: 8,
            payload: Payload::Word,
            path: "files".into(),
            seed: 1,
            latency: false,
        }
    }
}

impl CreateFiles {
    fn tree(&self) -> Result<Tree> {
        let depth = self.depth.map(f64::from);
        match self.shape {
            Shape::Filebench => {
                Tree::filebench(self.count, f64::from(self.width), depth, self.seed)
            }
            Shape::Regular => Tree::regular_files(self.count, self.width),
        }
    }

    fn create(&self, path: &str, number: u64, meter: &mut Meter) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = Path::new(path);
        let fd = meter
            .time(Op::Create, || open(path, flags, Mode::from_raw_mode(0o644)))
            .on("create", name)?;
        let contents = Contents {
            payload: self.payload,
            file: number,
            generation: self.seed,
        };
        let io = file::Io {
            contents,
            io_bytes: self.io_bytes,
        };
        io.append(fd.as_fd(), 0..self.file_bytes, meter)
            .on("write", name)
    }
}

impl Load for CreateFiles {
    fn run(&self, dir: &Path) -> Result<Report> {
        let tree = self.tree()?;
        let root = dir.join(&self.path).display().to_string();
        let mut report = Report::default();
        let mut meter = report.part("inner", || make_inner(&tree, &root, self.latency))?;
        let files = report.part("leaves", || {
            team::for_each(
                self.threads,
                self.latency,
                tree.leaves.len() as u64,
                |n, meter| {
                    let mut path = root.clone();
                    tree.push_leaf_path(tree.leaves[n as usize], &mut path);
                    self.create(&path, n, meter)
                },
            )
        })?;
        meter.merge(&files);
        Ok(report.metered(&meter).detail("tree", tree.summary()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};

    #[test]
    fn makes_files_of_the_size_and_contents_asked_for() {
        let dir = scratch();
        let load = CreateFiles {
            count: 300,
            file_bytes: 5000,
            ..CreateFiles::default()
        };
        let report = load.run(dir.path()).unwrap();
        let tree = load.tree().unwrap();
        let found = count_entries(dir.path());
        assert_eq!((found.files, found.bytes), (300, 300 * 5000));
        assert_eq!(found.directories, tree.inner.len() as u64);
        assert_eq!(report.user_written_bytes, 300 * 5000);
        let mut path = dir.path().join("files").display().to_string();
        tree.push_leaf_path(tree.leaves[7], &mut path);
        let contents = Contents {
            payload: Payload::Word,
            file: 7,
            generation: 1,
        };
        assert_eq!(
            contents.first_difference(0, &std::fs::read(path).unwrap()),
            None
        );
    }
}
