// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of files, and which of them threads take.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::fd::OwnedFd;
use rustix::fs::{open, Mode, OFlags};

use super::parameters::FileSet;
use crate::error::{IoContext, Result};
use crate::meter::{Meter, Op};
use crate::rng::Rng;
use crate::tree::Tree;

pub type Sets = BTreeMap<String, Set>;

const NO_PANIC: &str = "no thread panics with the files in its hands";

/// A file set and what has become of it.
pub struct Set {
    pub number: u64,
    pub root: String,
    pub tree: Tree,
    /// Sizes of the files when they are made.
    pub planned: Vec<u64>,
    /// Those that are there at the beginning, in the order in which they are made.
    pub made_in: Vec<u32>,
    pub files: Mutex<Files>,
    pub idle: Condvar,
}

impl Set {
    /// Draws everything: the tree, the sizes, and in which order files are made.
    pub fn new(of: &FileSet, number: u64, root: &Path, seed: u64) -> Result<Self> {
        let seed = seed ^ number << 48;
        let tree = Tree::filebench(of.entries, f64::from(of.width), None, seed)?;
        let mut rng = Rng::new(seed, 1 << 16);
        let planned: Vec<u64> = (0..of.entries)
            .map(|_| rng.gamma_1_5(of.mean_bytes as f64) as u64)
            .collect();
        let mut files = Files {
            absent: (0..of.entries).collect(),
            ..Files::default()
        };
        let mut made_in = Vec::new();
        // "pick at random from free list in order to distribute initially allocated files more randomly"
        let mut free = files.absent.clone();
        while !free.is_empty() {
            let from = rng.below(u64::from(of.entries)) as u32;
            let number = next(&free, from).unwrap_or_default();
            free.remove(&number);
            if rng.below(100) < u64::from(of.prealloc_percent) {
                files.absent.remove(&number);
                files.present.insert(number);
                made_in.push(number);
            }
        }
        files.now_bytes = planned.clone();
        files.opened = vec![0; planned.len()];
        Ok(Self {
            number,
            root: root.join(&of.name).display().to_string(),
            tree,
            planned,
            made_in,
            files: Mutex::new(files),
            idle: Condvar::new(),
        })
    }

    pub fn path(&self, number: u32) -> String {
        let mut path = self.root.clone();
        self.tree
            .push_leaf_path(self.tree.leaves[number as usize], &mut path);
        path
    }

    /// Never held across a system call, and so never waited for in the machine.
    pub fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect(NO_PANIC)
    }

    /// A file that exists, or one that does not; it is busy from now on. If only busy ones would do, it waits for them.
    pub fn take(&self, exists: bool) -> Option<u32> {
        let mut files = self.files();
        loop {
            let found = files.take(exists);
            if found.is_some() || files.busy.is_empty() {
                return found;
            }
            files.waiting += 1;
            files = self.idle.wait(files).expect(NO_PANIC);
            files.waiting -= 1;
        }
    }

    /// Notes what has become of a file that was taken.
    pub fn give_back(&self, number: u32, note: impl FnOnce(&mut Files)) {
        let mut files = self.files();
        files.busy.remove(&number);
        note(&mut files);
        // It is a system call, and seldom needed.
        if files.waiting > 0 {
            self.idle.notify_all();
        }
    }
}

#[derive(Default)]
pub struct Files {
    pub present: BTreeSet<u32>,
    pub absent: BTreeSet<u32>,
    /// About to be opened, made, deleted or looked at by some thread.
    pub busy: BTreeSet<u32>,
    /// How often each is open.
    pub opened: Vec<u32>,
    pub now_bytes: Vec<u64>,
    pub present_rotor: u32,
    pub absent_rotor: u32,
    /// Threads that wait for one that is not busy.
    pub waiting: u32,
}

impl Files {
    pub fn take(&mut self, exists: bool) -> Option<u32> {
        let (among, rotor) = if exists {
            (&self.present, &mut self.present_rotor)
        } else {
            (&self.absent, &mut self.absent_rotor)
        };
        let found = pick(among, &self.busy, *rotor)?;
        *rotor = found + 1;
        self.busy.insert(found);
        Some(found)
    }
}

/// The first from `from` on that is not busy, around the end.
pub fn pick(among: &BTreeSet<u32>, busy: &BTreeSet<u32>, from: u32) -> Option<u32> {
    let mut around = among.range(from..).chain(among.range(..from));
    around.find(|number| !busy.contains(number)).copied()
}

/// The first from `from` on, around the end.
pub fn next(among: &BTreeSet<u32>, from: u32) -> Option<u32> {
    pick(among, &BTreeSet::new(), from)
}

pub fn create(path: &str, meter: &mut Meter) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    meter
        .time(Op::Create, || open(path, flags, Mode::from_raw_mode(0o644)))
        .on("create", Path::new(path))
}
