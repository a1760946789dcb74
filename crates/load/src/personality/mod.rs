// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filebench's personalities: sets of files, and threads that go through a list of
//! flow operations until the time is over. What the operations do, and which file
//! they take, is as in Filebench 1.4.9 (flowop_library.c, fileset.c): files of a set
//! are taken in the order of their numbers, one rotor for those that exist and one
//! for those that do not, past those that a thread is about to open or delete.

mod parameters;
mod set;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::AsFd;
use rustix::fs::Mode;

use crate::clock::now_ns;
use crate::error::{IoContext, LoadError, Result};
use crate::makedirs::make_inner;
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::rng::Rng;
use crate::team;
use crate::Load;
pub use parameters::{FileSet, Flow, Personality, Stage, Threads};
use set::{create, Set, Sets};
use worker::Worker;

/// Bytes of each write with which Filebench makes a file (FILE_ALLOC_BLOCK).
const FILE_ALLOC_BYTES: u64 = 1 << 20;

impl Load for Personality {
    fn run(&self, dir: &Path) -> Result<Report> {
        let mut report = Report::default();
        let mut meter = Meter::new(self.latency);
        let root = dir.join(&self.path);
        let sets = report.part("plan", || self.sets(&root))?;
        if self.stage != Stage::Run {
            let created = report.part("create", || self.create(&root, &sets))?;
            meter.merge(&created);
        }
        if self.stage != Stage::Create {
            let done = report.part("run", || self.work(&sets))?;
            meter.merge(&done);
        }
        let trees = sets
            .iter()
            .map(|(name, set)| (name.clone(), set.tree.summary()));
        let trees: serde_json::Map<_, _> = trees.collect();
        Ok(report.metered(&meter).detail("trees", trees))
    }
}

impl Personality {
    /// The sets as they are when the files have been made.
    fn sets(&self, root: &Path) -> Result<Sets> {
        let mut sets = Sets::new();
        for (number, of) in self.filesets.iter().enumerate() {
            let set = Set::new(of, number as u64, root, self.seed)?;
            if sets.insert(of.name.clone(), set).is_some() {
                let text = format!("there are two file sets named {}", of.name);
                return Err(LoadError::Arguments(text));
            }
        }
        Ok(sets)
    }

    /// Makes directories and files, by one thread, as Filebench does.
    fn create(&self, root: &Path, sets: &Sets) -> Result<Meter> {
        let mut meter = Meter::new(self.latency);
        let mode = Mode::from_raw_mode(0o755);
        meter
            .time(Op::Mkdir, || rustix::fs::mkdir(root, mode))
            .on("mkdir", root)?;
        for set in sets.values() {
            meter.merge(&make_inner(&set.tree, &set.root, self.latency)?);
            for &number in &set.made_in {
                let path = set.path(number);
                let fd = create(&path, &mut meter)?;
                let bytes = set.planned[number as usize];
                self.io(set, number, FILE_ALLOC_BYTES)
                    .append(fd.as_fd(), 0..bytes, &mut meter)
                    .on("write", Path::new(&path))?;
            }
        }
        Ok(meter)
    }

    fn work(&self, sets: &Sets) -> Result<Meter> {
        let end_ns = now_ns().saturating_add((self.duration_s * 1e9) as u64);
        let stopped = AtomicBool::new(false);
        let of: Vec<&Threads> = self
            .threads
            .iter()
            .flat_map(|threads| std::iter::repeat_n(threads, threads.count as usize))
            .collect();
        team::run(of.len() as u32, self.latency, |number, meter| {
            let mut worker = Worker {
                load: self,
                sets,
                // Stream 0 and those that follow it belong to the file sets.
                rng: Rng::new(self.seed, u64::from(number) << 32 | 1),
                open: BTreeMap::new(),
                meter,
            };
            let all = &of[number as usize].flow;
            for (done, flow) in all.iter().cycle().enumerate() {
                let late = done >= all.len() && now_ns() >= end_ns;
                if late || stopped.load(Ordering::Relaxed) {
                    break;
                }
                worker
                    .act(flow)
                    .inspect_err(|_| stopped.store(true, Ordering::Relaxed))?;
            }
            Ok(())
        })
    }
}
