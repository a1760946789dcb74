// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stress mix: several threads create, write, append, truncate, rename, link
//! and remove files and directories, each in a directory of its own and under its
//! own names in shared ones, and compare what the file system says with a model.
//!
//! In the shared directories the kernel sees threads that change one directory at
//! the same time; because names belong to threads, each name's history is still
//! known exactly. The model follows from the seed alone, so that stage `verify`
//! can hold it against the same image mounted again, by another kernel too.

mod extents;
mod model;
mod parameters;
mod perform;
mod plan;

use std::path::Path;
use std::sync::Barrier;

use rustix::fs::{mkdir, Mode};
use serde_json::json;

use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::team;
use crate::Load;
pub use parameters::{Mix, Stage};
use perform::Performer;
use plan::Planner;

impl Load for Mix {
    fn run(&self, dir: &Path) -> Result<Report> {
        let root = dir.join(&self.path);
        let mut report = Report::default();
        let meter = match self.stage {
            Stage::Run => report.part("mix", || {
                self.make_dirs(&root)?;
                self.mix(&root)
            }),
            Stage::Verify => report.part("verify", || self.verify(&root)),
        };
        let meter = meter.map_err(|error| self.with_replay(error, dir))?;
        let operations = self.operations * u64::from(self.threads);
        Ok(report.metered(&meter).detail("mix_operations", operations))
    }
}

impl Mix {
    fn make_dirs(&self, root: &Path) -> Result<()> {
        let make = |path: &Path| mkdir(path, Mode::from_raw_mode(0o755)).on("mkdir", path);
        make(root)?;
        (0..self.shared_dirs).try_for_each(|n| make(&root.join(model::shared_dir(n))))?;
        (0..self.threads).try_for_each(|n| make(&root.join(model::own_dir(n))))
    }

    /// Rounds of operations with a verification after each. A thread that has met
    /// an error goes on attending the barriers, so that nobody waits for ever.
    fn mix(&self, root: &Path) -> Result<Meter> {
        let barrier = Barrier::new(self.threads.max(1) as usize);
        let every = if self.verify_every == 0 {
            self.operations
        } else {
            self.verify_every
        };
        team::run(self.threads, self.latency, |thread, meter| {
            let mut planner = Planner::new(self, thread);
            let mut performer = Performer::new(root, thread, self.payload, self.latency);
            let mut result = Ok(());
            let mut done = 0;
            while done < self.operations {
                let round = every.min(self.operations - done);
                result = result.and_then(|()| operate(&mut planner, &mut performer, done, round));
                done += round;
                if barrier.wait().is_leader() && self.drop_caches {
                    result = result.and_then(|()| drop_caches(&mut performer.meter));
                }
                barrier.wait();
                let after = |e| at_operation(e, thread, done, "verifying after");
                result = result.and_then(|()| performer.check_all(&planner.model).map_err(after));
                barrier.wait();
            }
            meter.merge(&performer.meter);
            result
        })
    }

    fn verify(&self, root: &Path) -> Result<Meter> {
        team::run(self.threads, self.latency, |thread, meter| {
            let mut planner = Planner::new(self, thread);
            for _ in 0..self.operations {
                planner.next_act();
            }
            let mut performer = Performer::new(root, thread, self.payload, self.latency);
            let result = performer.check_all(&planner.model);
            meter.merge(&performer.meter);
            result.map_err(|e| at_operation(e, thread, self.operations, "verifying after"))
        })
    }

    /// An error with what someone needs who wants to see it again.
    fn with_replay(&self, error: LoadError, dir: &Path) -> LoadError {
        let (args, dir) = (json!(self), dir.display());
        error.during(format!(
            "; SEED={}; replay: load run mix --dir {dir} --args '{args}'",
            self.seed
        ))
    }
}

fn operate(planner: &mut Planner, performer: &mut Performer, first: u64, count: u64) -> Result<()> {
    for number in first..first + count {
        let act = planner.next_act();
        let result = performer.perform(&act, &planner.model);
        result.map_err(|e| at_operation(e, performer.thread, number, "at"))?;
    }
    Ok(())
}

fn at_operation(error: LoadError, thread: u32, number: u64, when: &str) -> LoadError {
    error.during(format!(" (thread {thread}, {when} operation {number})"))
}

fn drop_caches(meter: &mut Meter) -> Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    let synced = || {
        rustix::fs::sync();
        Ok::<_, std::convert::Infallible>(())
    };
    meter
        .time(Op::Sync, synced)
        .unwrap_or_else(|never| match never {});
    // Twice: the first time only makes the journal let go of its blocks.
    (0..2).try_for_each(|_| std::fs::write(path, "3").on("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;
    use crate::testing::scratch;
    use std::fs;
    use std::path::PathBuf;

    fn small(seed: u64) -> Mix {
        Mix {
            threads: 4,
            operations: 600,
            verify_every: 250,
            drop_caches: false,
            files_max: 60,
            file_bytes_max: 40_000,
            write_bytes_max: 20_000,
            seed,
            ..Mix::default()
        }
    }

    fn verify(mix: &Mix, dir: &Path) -> Result<Report> {
        Mix {
            stage: Stage::Verify,
            ..mix.clone()
        }
        .run(dir)
    }

    #[test]
    fn a_sound_file_system_passes_and_all_kinds_of_operation_occur() {
        let dir = scratch();
        let report = small(1).run(dir.path()).unwrap();
        for op in [
            "create", "write", "truncate", "unlink", "rename", "link", "symlink", "mkdir",
        ] {
            assert!(
                report.operations.contains_key(op),
                "{op}: {:?}",
                report.operations
            );
        }
        for op in ["rmdir", "fsync", "read", "readdir", "readlink", "stat"] {
            assert!(
                report.operations.contains_key(op),
                "{op}: {:?}",
                report.operations
            );
        }
    }

    #[test]
    fn the_model_is_made_again_from_the_seed() {
        for seed in 2..5 {
            let dir = scratch();
            let mix = Mix {
                payload: Payload::Random,
                ..small(seed)
            };
            mix.run(dir.path()).unwrap();
            verify(&mix, dir.path()).unwrap();
        }
    }

    /// The largest file of some thread.
    fn some_file(dir: &Path) -> PathBuf {
        let files = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        let files = (0..4).flat_map(|t| files(dir.join(format!("mix/own-{t}"))));
        let files = files.filter(|p| p.symlink_metadata().unwrap().is_file());
        files.max_by_key(|p| p.metadata().unwrap().len()).unwrap()
    }

    fn after_damage(damage: impl FnOnce(&Path)) -> String {
        let dir = scratch();
        let mix = small(6);
        mix.run(dir.path()).unwrap();
        damage(&some_file(dir.path()));
        verify(&mix, dir.path()).unwrap_err().to_string()
    }

    #[test]
    fn one_flipped_bit_is_found_and_can_be_replayed() {
        let message = after_damage(|path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            fs::write(path, bytes).unwrap();
        });
        assert!(message.contains("byte "), "{message}");
        assert!(
            message.contains("SEED=6; replay: load run mix --dir "),
            "{message}"
        );
    }

    #[test]
    fn lost_and_additional_names_and_bytes_are_found() {
        let lost = after_damage(|path| fs::remove_file(path).unwrap());
        assert!(lost.contains("does not give"), "{lost}");
        let added = after_damage(|path| fs::write(path.with_file_name("new"), "").unwrap());
        assert!(added.contains("should not be there"), "{added}");
        let longer = after_damage(|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes.push(0);
            fs::write(path, bytes).unwrap();
        });
        assert!(longer.contains(" bytes, not "), "{longer}");
        let linked = after_damage(|path| fs::hard_link(path, path.with_extension("2")).unwrap());
        assert!(
            linked.contains("links") || linked.contains("should not"),
            "{linked}"
        );
    }

    #[test]
    fn another_seed_is_another_tree() {
        let dir = scratch();
        small(7).run(dir.path()).unwrap();
        assert!(verify(&small(8), dir.path()).is_err());
    }
}
