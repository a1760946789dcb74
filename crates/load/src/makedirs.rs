// SPDX-License-Identifier: MIT OR Apache-2.0
//! MakeDirs: a tree of empty directories, the leaves made by several threads.

use std::path::Path;

use rustix::fs::{mkdir, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::team;
use crate::tree::{Shape, Tree};
use crate::Load;

/// Filebench's MakeDirs, as FAST'17 §4.2.1 runs it. First one thread makes the
/// inner directories, as Filebench does when it sets up the file set; then all
/// threads make the leaves, in the order of the tree. The sync is a step of its own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MakeDirs {
    /// Directories: leaves for shape `filebench`, all for `regular`. FAST'17: 800,000.
    pub count: u32,
    /// Mean children of a directory. 4 gives 800,000 directories a mean depth of 10.
    pub width: u32,
    /// Mean depth in levels; null: ln(count) / ln(width). Shape `filebench` only.
    pub depth: Option<u32>,
    /// `filebench`: drawn from gamma distributions; `regular`: the same width everywhere.
    pub shape: Shape,
    /// Threads that make leaves. FAST'17: 8.
    pub threads: u32,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of the tree's shape.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for MakeDirs {
    fn default() -> Self {
        Self {
            count: 800_000,
            width: 4,
            depth: None,
            shape: Shape::Filebench,
            threads: 8,
            path: "dirs".into(),
            seed: 1,
            latency: false,
        }
    }
}

impl MakeDirs {
    fn tree(&self) -> Result<Tree> {
        let depth = self.depth.map(f64::from);
        match self.shape {
            Shape::Filebench => {
                Tree::filebench(self.count, f64::from(self.width), depth, self.seed)
            }
            Shape::Regular => Tree::regular_directories(self.count, self.width),
        }
    }
}

impl Load for MakeDirs {
    fn run(&self, dir: &Path) -> Result<Report> {
        let tree = self.tree()?;
        let root = dir.join(&self.path).display().to_string();
        let mut report = Report::default();
        let mut meter = report.part("inner", || make_inner(&tree, &root, self.latency))?;
        let leaves = report.part("leaves", || {
            team::for_each(
                self.threads,
                self.latency,
                tree.leaves.len() as u64,
                |n, meter| {
                    let mut path = root.clone();
                    tree.push_leaf_path(tree.leaves[n as usize], &mut path);
                    make(&path, meter)
                },
            )
        })?;
        meter.merge(&leaves);
        Ok(report.metered(&meter).detail("tree", tree.summary()))
    }
}

/// Makes the inner directories of a tree, parents first, by one thread.
pub fn make_inner(tree: &Tree, root: &str, latency: bool) -> Result<Meter> {
    let mut meter = Meter::new(latency);
    let mut path = String::new();
    for number in 0..tree.inner.len() {
        path.clear();
        path.push_str(root);
        tree.push_path(number as u32, &mut path);
        make(&path, &mut meter)?;
    }
    Ok(meter)
}

fn make(path: &str, meter: &mut Meter) -> Result<()> {
    meter
        .time(Op::Mkdir, || mkdir(path, Mode::from_raw_mode(0o755)))
        .on("mkdir", Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};

    #[test]
    fn makes_leaves_and_inner_directories_and_counts_them() {
        let dir = scratch();
        let load = MakeDirs {
            count: 500,
            latency: true,
            ..MakeDirs::default()
        };
        let report = load.run(dir.path()).unwrap();
        let tree = load.tree().unwrap();
        let all = tree.inner.len() + tree.leaves.len();
        assert_eq!(report.operations["mkdir"], all);
        assert_eq!(count_entries(dir.path()).directories, all as u64);
        assert_eq!(report.latency_ns.unwrap()["mkdir"]["count"], all);
    }

    #[test]
    fn regular_count_is_exact() {
        let dir = scratch();
        let load = MakeDirs {
            count: 341,
            shape: Shape::Regular,
            ..MakeDirs::default()
        };
        load.run(dir.path()).unwrap();
        // the directory that holds the tree comes on top
        assert_eq!(count_entries(dir.path()).directories, 342);
    }

    #[test]
    fn existing_directory_is_an_error_that_names_it() {
        let dir = scratch();
        let load = MakeDirs {
            count: 10,
            ..MakeDirs::default()
        };
        load.run(dir.path()).unwrap();
        let error = load.run(dir.path()).unwrap_err();
        assert_eq!(error.status(), 17);
        assert!(error.to_string().contains("dirs"), "{error}");
    }
}
