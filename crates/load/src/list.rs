// SPDX-License-Identifier: MIT OR Apache-2.0
//! ListDirs (`ls -lR`) and FindFiles (`find`): read every directory, stat what is in it.

use std::path::Path;

use rustix::fs::lstat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::walk::{walk, Descent, Entry, Order, Visitor};
use crate::Load;

/// `ls -lR` of FAST'17 §4.2.1: each directory is read, then all its entries are
/// looked at with lstat(2), then its sub-directories follow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListDirs {
    /// Tree to list, below the load's directory.
    pub path: String,
    /// Order of the entries of a directory; `ls` looks at them as they come.
    pub order: Order,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for ListDirs {
    fn default() -> Self {
        Self {
            path: "dirs".into(),
            order: Order::Readdir,
            latency: false,
        }
    }
}

impl Load for ListDirs {
    fn run(&self, dir: &Path) -> Result<Report> {
        let mut lister = Lister {
            stat_files: true,
            seen: 0,
        };
        survey(
            &mut lister,
            &dir.join(&self.path),
            self.order,
            Descent::AfterSiblings,
            self.latency,
        )
    }
}

/// `find` of FAST'17 §4.2.1: each directory is read, and its sub-directories
/// followed at once. `find` with no test needs lstat(2) for directories only.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FindFiles {
    /// Tree to search, below the load's directory.
    pub path: String,
    /// lstat(2) of files too, as with `-size` or `-newer`.
    pub stat_files: bool,
    /// Order of the entries of a directory.
    pub order: Order,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for FindFiles {
    fn default() -> Self {
        Self {
            path: "files".into(),
            stat_files: true,
            order: Order::Readdir,
            latency: false,
        }
    }
}

impl Load for FindFiles {
    fn run(&self, dir: &Path) -> Result<Report> {
        let mut lister = Lister {
            stat_files: self.stat_files,
            seen: 0,
        };
        survey(
            &mut lister,
            &dir.join(&self.path),
            self.order,
            Descent::AtOnce,
            self.latency,
        )
    }
}

fn survey(
    lister: &mut Lister,
    root: &Path,
    order: Order,
    descent: Descent,
    latency: bool,
) -> Result<Report> {
    let mut meter = Meter::new(latency);
    let mut report = Report::default();
    report.part("walk", || walk(root, order, descent, lister, &mut meter))?;
    Ok(report.metered(&meter).detail("entries", lister.seen))
}

struct Lister {
    stat_files: bool,
    seen: u64,
}

impl Visitor for Lister {
    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()> {
        self.seen += 1;
        if entry.is_dir || self.stat_files {
            meter
                .time(Op::Stat, || lstat(&entry.path))
                .on("lstat", &entry.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::createfiles::CreateFiles;
    use crate::testing::scratch;

    #[test]
    fn lists_every_entry_once_in_either_way() {
        let dir = scratch();
        let files = CreateFiles {
            count: 200,
            ..CreateFiles::default()
        };
        let made = files.run(dir.path()).unwrap();
        let entries = made.details["tree"]["inner"].as_u64().unwrap() - 1 + 200;
        let listed = ListDirs {
            path: "files".into(),
            ..ListDirs::default()
        };
        let listed = listed.run(dir.path()).unwrap();
        assert_eq!(listed.details["entries"], entries);
        assert_eq!(listed.operations["stat"], entries);
        let found = FindFiles {
            stat_files: false,
            ..FindFiles::default()
        };
        let found = found.run(dir.path()).unwrap();
        assert_eq!(found.details["entries"], entries);
        assert_eq!(found.operations["stat"], entries - 200);
    }
}
