// SPDX-License-Identifier: MIT OR Apache-2.0
//! ChurnDirs: a working set of metadata of a known size, changed again and again
//! at random places. It shows what a journal that is too small costs.

use std::path::Path;

use rustix::fs::{fsync, mkdir, open, unlink, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::rng::Rng;
use crate::Load;

/// First makes `count` directories, `width` in each parent. Then each operation
/// takes one of them at random and makes an empty file in it, or removes the one
/// that is there. So every directory block, and the inodes of directories and
/// files, are changed about equally often, and a journal that is smaller than all
/// of them together has no part that stays untouched for long. With `hot_percent`
/// below 100, so many directories, spread evenly, take `hot_operations_percent` of
/// the operations, and all together the rest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChurnDirs {
    /// Directories that are changed: one block each, and a sixteenth for the inode.
    pub count: u64,
    /// Directories in each parent.
    pub width: u64,
    /// Files made or removed; 0: make the directories only.
    pub operations: u64,
    /// fsync(2) of the directory after every so many operations: a commit, without
    /// the rest of what sync(2) does. 0: never.
    pub fsync_every: u64,
    /// Directories that are hot, in percent; 100: no difference is made.
    pub hot_percent: u64,
    /// Operations that go to hot directories only, in percent.
    pub hot_operations_percent: u64,
    /// Make the directories; without, they are there.
    pub prepare: bool,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of the choice of directories.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for ChurnDirs {
    fn default() -> Self {
        Self {
            count: 50_000,
            width: 500,
            operations: 500_000,
            fsync_every: 2000,
            hot_percent: 100,
            hot_operations_percent: 90,
            prepare: true,
            path: "churn".into(),
            seed: 1,
            latency: false,
        }
    }
}

impl Load for ChurnDirs {
    fn run(&self, dir: &Path) -> Result<Report> {
        if self.count == 0 || self.width == 0 {
            return Err(LoadError::Arguments("count and width must not be 0".into()));
        }
        if self.hot_percent == 0 || self.hot_percent > 100 || self.hot_operations_percent > 100 {
            return Err(LoadError::Arguments(
                "percentages are from 1, of operations from 0, to 100".into(),
            ));
        }
        let root = dir.join(&self.path).display().to_string();
        let mut report = Report::default();
        let mut meter = Meter::new(self.latency);
        if self.prepare {
            report.part("prepare", || self.prepare(&root, &mut meter))?;
        }
        report.part("churn", || self.churn(&root, &mut meter))?;
        Ok(report.metered(&meter))
    }
}

impl ChurnDirs {
    fn directory(&self, root: &str, number: u64) -> String {
        format!("{root}/{}/{}", number / self.width, number % self.width)
    }

    fn prepare(&self, root: &str, meter: &mut Meter) -> Result<()> {
        make(root, meter)?;
        for number in 0..self.count {
            if number % self.width == 0 {
                make(&format!("{root}/{}", number / self.width), meter)?;
            }
            make(&self.directory(root, number), meter)?;
        }
        Ok(())
    }

    /// The directory of the next operation.
    fn choose(&self, rng: &mut Rng) -> usize {
        let all = self.count as usize;
        if self.hot_percent == 100 || rng.index(100) as u64 >= self.hot_operations_percent {
            return rng.index(all);
        }
        let hot = (all * self.hot_percent as usize).div_ceil(100);
        rng.index(hot) * all / hot
    }

    fn churn(&self, root: &str, meter: &mut Meter) -> Result<()> {
        let mut rng = Rng::new(self.seed, 0);
        let mut holds_file = vec![false; self.count as usize];
        for operation in 1..=self.operations {
            let number = self.choose(&mut rng);
            let directory = self.directory(root, number as u64);
            let file = format!("{directory}/file");
            if holds_file[number] {
                meter
                    .time(Op::Unlink, || unlink(&file))
                    .on("unlink", Path::new(&file))?;
            } else {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                meter
                    .time(Op::Create, || {
                        open(&file, flags, Mode::from_raw_mode(0o644))
                    })
                    .on("create", Path::new(&file))?;
            }
            holds_file[number] = !holds_file[number];
            if self.fsync_every != 0 && operation % self.fsync_every == 0 {
                let opened = open(&directory, OFlags::RDONLY, Mode::empty())
                    .on("open", Path::new(&directory))?;
                meter
                    .time(Op::Fsync, || fsync(&opened))
                    .on("fsync", Path::new(&directory))?;
            }
        }
        Ok(())
    }
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

    fn small() -> ChurnDirs {
        ChurnDirs {
            count: 30,
            width: 7,
            operations: 1000,
            fsync_every: 100,
            ..ChurnDirs::default()
        }
    }

    #[test]
    fn hot_directories_take_their_part_of_the_operations() {
        let load = ChurnDirs {
            count: 1000,
            hot_percent: 10,
            ..ChurnDirs::default()
        };
        let mut rng = Rng::new(1, 0);
        let chosen: Vec<usize> = (0..10_000).map(|_| load.choose(&mut rng)).collect();
        let hot = chosen.iter().filter(|number| *number % 10 == 0).count();
        // nine in ten, and a tenth of the rest
        assert!((9000..9200).contains(&hot), "{hot}");
        assert!(chosen.iter().all(|number| *number < 1000));
    }

    #[test]
    fn files_come_and_go_and_directories_stay() {
        let dir = scratch();
        let report = small().run(dir.path()).unwrap();
        // the tree's own directory and five parents come on top
        let found = count_entries(dir.path());
        assert_eq!(found.directories, 30 + 5 + 1);
        let counted = |name: &str| report.operations[name].as_u64().unwrap();
        assert_eq!(counted("create") + counted("unlink"), 1000);
        assert_eq!(found.files, counted("create") - counted("unlink"));
        assert!(counted("unlink") > 300, "{:?}", report.operations);
        assert_eq!(counted("fsync"), 10);
    }

    #[test]
    fn the_directories_can_be_made_first() {
        let dir = scratch();
        let prepare = ChurnDirs {
            operations: 0,
            ..small()
        };
        let report = prepare.run(dir.path()).unwrap();
        assert_eq!(report.operations["mkdir"], 36);
        let churn = ChurnDirs {
            prepare: false,
            ..small()
        };
        assert!(churn
            .run(dir.path())
            .unwrap()
            .operations
            .get("mkdir")
            .is_none());
    }
}
