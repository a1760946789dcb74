// SPDX-License-Identifier: MIT OR Apache-2.0
//! RemoveDirs and RemoveFiles: `rm -r`.

use std::path::Path;

use rustix::fs::{rmdir, unlink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::walk::{walk, Descent, Entry, Order, Visitor};
use crate::Load;

/// `rm -r` of FAST'17 §4.2.1: each directory is read, its files are unlinked
/// and its sub-directories emptied as they come, then it is removed itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Remove {
    /// Tree to remove, below the load's directory.
    pub path: String,
    /// Order of the entries of a directory; `rm` takes them as they come.
    pub order: Order,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Remove {
    fn default() -> Self {
        Self {
            path: "dirs".into(),
            order: Order::Readdir,
            latency: false,
        }
    }
}

impl Load for Remove {
    fn run(&self, dir: &Path) -> Result<Report> {
        let mut meter = Meter::new(self.latency);
        let mut report = Report::default();
        let root = dir.join(&self.path);
        report.part("remove", || {
            walk(&root, self.order, Descent::AtOnce, &mut Remover, &mut meter)
        })?;
        Ok(report.metered(&meter))
    }
}

pub struct Remover;

impl Visitor for Remover {
    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()> {
        if entry.is_dir {
            return Ok(());
        }
        meter
            .time(Op::Unlink, || unlink(&entry.path))
            .on("unlink", &entry.path)
    }

    fn leave(&mut self, dir: &Path, meter: &mut Meter) -> Result<()> {
        meter.time(Op::Rmdir, || rmdir(dir)).on("rmdir", dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::createfiles::CreateFiles;
    use crate::testing::{count_entries, scratch};

    #[test]
    fn removes_everything_in_any_order() {
        for order in [Order::Readdir, Order::Inode, Order::Name] {
            let dir = scratch();
            let files = CreateFiles {
                count: 100,
                ..CreateFiles::default()
            };
            let made = files.run(dir.path()).unwrap();
            let remove = Remove {
                path: "files".into(),
                order,
                latency: false,
            };
            let report = remove.run(dir.path()).unwrap();
            assert_eq!(report.operations["unlink"], 100);
            assert_eq!(report.operations["rmdir"], made.details["tree"]["inner"]);
            assert_eq!(count_entries(dir.path()).directories, 0);
        }
    }
}
