// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes with an fsync now and then, and notes of what a power cut must leave.
//!
//! A note is one write(2) to the file `marks`, in the machine a marker in the
//! record of requests, so that its place says what had been promised when:
//!
//! * `touch PATH`: about to be changed; nothing is promised of it any more.
//! * `keep PATH<tab>ENTRY`: a sync has returned; the path is there, as `listing` says.
//! * `gone PATH`: a sync has returned; the path is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, XattrFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::file::with_buffer;
use crate::listing;
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::rng::Rng;
use crate::walk::{Order, Walker};
use crate::Load;

/// What is done most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Files come and go.
    #[default]
    Storm,
    /// Names move, over each other and across directories; hard links.
    Rename,
    /// Files shrink, grow and get holes.
    Truncate,
    /// Extended attributes, in the inode, in a block, and larger.
    Xattr,
    /// Files change hands.
    Owner,
    /// Wide directories are emptied and their blocks become file data at once.
    Reuse,
    /// All of it.
    Mixed,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create,
    Write,
    Truncate,
    Punch,
    Unlink,
    Rename,
    Link,
    Xattr,
    Owner,
    Reuse,
}

const ACTS: [(Act, &str); 10] = [
    (Act::Create, "create"),
    (Act::Write, "write"),
    (Act::Truncate, "truncate"),
    (Act::Punch, "punch"),
    (Act::Unlink, "unlink"),
    (Act::Rename, "rename"),
    (Act::Link, "link"),
    (Act::Xattr, "xattr"),
    (Act::Owner, "owner"),
    (Act::Reuse, "reuse"),
];

impl Kind {
    /// How often each of `ACTS` comes.
    fn weights(self) -> [u64; ACTS.len()] {
        match self {
            Kind::Storm => [8, 1, 0, 0, 7, 1, 1, 0, 0, 1],
            Kind::Rename => [3, 1, 0, 0, 1, 9, 3, 0, 0, 0],
            Kind::Truncate => [2, 4, 7, 3, 1, 0, 0, 0, 0, 0],
            Kind::Xattr => [2, 1, 0, 0, 2, 1, 0, 9, 0, 0],
            Kind::Owner => [3, 3, 2, 0, 2, 0, 0, 0, 6, 0],
            Kind::Reuse => [2, 2, 1, 0, 2, 0, 0, 1, 0, 6],
            Kind::Mixed => [4, 3, 2, 1, 3, 3, 1, 2, 1, 1],
        }
    }
}

/// Changes with fsyncs, noted for the crash explorer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Marked {
    /// What is done most.
    pub kind: Kind,
    /// Where, below the load's directory; made if it is not there.
    pub path: String,
    /// First, every second file below this directory is removed; empty: none.
    pub clear: String,
    /// How many changes.
    pub operations: u64,
    /// About so many files at most.
    pub files: u64,
    /// In so many directories.
    pub dirs: u64,
    /// Largest write, in bytes.
    pub write_bytes_max: u64,
    /// One change in so many is followed by an fsync.
    pub fsync_one_in: u64,
    /// One in so many by a sync of everything; 0: none.
    pub sync_one_in: u64,
    /// Longest name of an entry of a wide directory, and entries of it.
    pub wide: u64,
    /// File that takes the notes; null: none are taken.
    pub marks: Option<PathBuf>,
    /// Seed of all choices.
    pub seed: u64,
}

impl Default for Marked {
    fn default() -> Self {
        Self {
            kind: Kind::Storm,
            path: "work".into(),
            clear: String::new(),
            operations: 200,
            files: 40,
            dirs: 8,
            write_bytes_max: 24 << 10,
            fsync_one_in: 4,
            sync_one_in: 40,
            wide: 60,
            marks: None,
            seed: 1,
        }
    }
}

const XATTRS: u64 = 3;

impl Load for Marked {
    fn run(&self, dir: &Path) -> Result<Report> {
        let mut worker = Worker {
            load: self,
            root: dir.to_owned(),
            rng: Rng::new(self.seed, 0),
            files: BTreeMap::new(),
            gone: BTreeSet::new(),
            marks: None,
            names: 0,
            generation: 0,
        };
        if let Some(path) = &self.marks {
            let file = OpenOptions::new().write(true).open(path);
            worker.marks = Some(file.on("open", path)?);
        }
        let mut counts = [0u64; ACTS.len()];
        let mut report = Report::default();
        report.part("change", || worker.run(&mut counts))?;
        for ((_, name), count) in ACTS.iter().zip(counts) {
            report.operations.insert((*name).into(), count.into());
        }
        Ok(report.detail("files", worker.files.len() as u64))
    }
}

struct Worker<'a> {
    load: &'a Marked,
    root: PathBuf,
    rng: Rng,
    /// Names, and which of them are one file.
    files: BTreeMap<String, u64>,
    /// Names that were removed and not used again.
    gone: BTreeSet<String>,
    marks: Option<File>,
    names: u64,
    generation: u64,
}

impl Worker<'_> {
    fn run(&mut self, counts: &mut [u64; ACTS.len()]) -> Result<()> {
        self.clear()?;
        for number in 0..self.load.dirs {
            let dir = self.root.join(&self.load.path).join(format!("d{number}"));
            fs::create_dir_all(&dir).on("mkdir", &dir)?;
        }
        let weights = self.load.kind.weights();
        for _ in 0..self.load.operations {
            let mut draw = self.rng.below(weights.iter().sum());
            let which = weights.iter().position(|weight| {
                let here = draw < *weight;
                draw = draw.wrapping_sub(*weight);
                here
            });
            let which = which.unwrap_or_default();
            let changed = self.act(ACTS[which].0)?;
            counts[which] += 1;
            self.settle(changed)?;
        }
        Ok(())
    }

    /// Removes half of what another load left, so that blocks in the log are freed.
    fn clear(&mut self) -> Result<()> {
        let base = self.root.join(&self.load.clear);
        if self.load.clear.is_empty() || !base.is_dir() {
            return Ok(());
        }
        let mut walker = Walker::new(Order::Name);
        let mut meter = crate::meter::Meter::new(false);
        for dir in walker.read_dir(&base, &mut meter)? {
            if !dir.is_dir {
                continue;
            }
            for file in walker.read_dir(&dir.path, &mut meter)?.iter().step_by(2) {
                if file.is_dir {
                    continue;
                }
                // Its other names have one link less.
                let inode = fs::symlink_metadata(&file.path).on("lstat", &file.path)?;
                if std::os::unix::fs::MetadataExt::nlink(&inode) > 1 {
                    continue;
                }
                let path = file.path.strip_prefix(&self.root).unwrap_or(&file.path);
                let path = path.to_string_lossy().into_owned();
                self.touch(&path)?;
                fs::remove_file(&file.path).on("unlink", &file.path)?;
                self.gone.insert(path);
            }
        }
        Ok(())
    }

    fn mark(&mut self, text: &str) -> Result<()> {
        if let (Some(file), Some(path)) = (&mut self.marks, &self.load.marks) {
            // From its beginning: of a sysfs file every write is whole.
            file.write_all_at(text.as_bytes(), 0).on("write", path)?;
        }
        Ok(())
    }

    fn touch(&mut self, path: &str) -> Result<()> {
        self.mark(&format!("touch {}", listing::name(Path::new(path))))
    }

    /// Every name of a file is about to change.
    fn touch_all(&mut self, id: u64) -> Result<()> {
        self.names_of(id)
            .iter()
            .try_for_each(|path| self.touch(path))
    }

    fn names_of(&self, id: u64) -> Vec<String> {
        let names = self.files.iter().filter(|(_, other)| **other == id);
        names.map(|(path, _)| path.clone()).collect()
    }

    /// An fsync or a sync now and then, and what it promises.
    fn settle(&mut self, changed: Option<String>) -> Result<()> {
        if self.load.sync_one_in > 0 && self.rng.below(self.load.sync_one_in) == 0 {
            rustix::fs::sync();
            for path in self.files.keys().cloned().collect::<Vec<_>>() {
                self.keep(&path)?;
            }
            for path in self.gone.clone() {
                self.mark(&format!("gone {}", listing::name(Path::new(&path))))?;
            }
            return Ok(());
        }
        if self.rng.below(self.load.fsync_one_in.max(1)) != 0 {
            return Ok(());
        }
        let Some(path) = changed else {
            return Ok(());
        };
        let Some(id) = self.files.get(&path).copied() else {
            return self.settle_removal(&path);
        };
        let full = self.root.join(&path);
        let file = File::open(&full).on("open", &full)?;
        file.sync_all().on("fsync", &full)?;
        self.names_of(id)
            .iter()
            .try_for_each(|name| self.keep(name))
    }

    fn settle_removal(&mut self, path: &str) -> Result<()> {
        let full = self.root.join(path);
        let dir = full.parent().unwrap_or(&self.root).to_owned();
        let opened = File::open(&dir).on("open", &dir)?;
        opened.sync_all().on("fsync", &dir)?;
        if self.gone.contains(path) {
            self.mark(&format!("gone {}", listing::name(Path::new(path))))?;
        }
        Ok(())
    }

    fn keep(&mut self, path: &str) -> Result<()> {
        let entry = listing::entry(&self.root.join(path))?;
        self.mark(&format!("keep {}\t{entry}", listing::name(Path::new(path))))
    }

    fn some_file(&mut self) -> Option<String> {
        let index = self.rng.index(self.files.len());
        self.files.keys().nth(index).cloned()
    }

    /// A name that may be in use, now and then.
    fn some_name(&mut self) -> String {
        if self.rng.below(4) == 0 {
            if let Some(path) = self.some_file() {
                return path;
            }
        }
        self.names += 1;
        // Some names as long as they may be: the directory gets more blocks.
        let pad = if self.rng.below(3) == 0 { 180 } else { 0 };
        let dir = self.rng.below(self.load.dirs);
        format!("{}/d{dir}/f{:05}{:x<pad$}", self.load.path, self.names, "")
    }

    /// Does it; returns the path that it changed, if there is one.
    fn act(&mut self, act: Act) -> Result<Option<String>> {
        let crowded = self.files.len() as u64 >= self.load.files;
        match act {
            Act::Create if crowded => self.unlink(),
            Act::Create => self.create(),
            Act::Reuse => self.reuse(),
            _ => match self.some_file() {
                None => self.create(),
                Some(path) => self.change(act, path),
            },
        }
    }

    fn change(&mut self, act: Act, path: String) -> Result<Option<String>> {
        match act {
            Act::Unlink => self.unlink(),
            Act::Rename => self.rename(path),
            Act::Link => self.link(path),
            _ => {
                self.touch_all(self.files[&path])?;
                let full = self.root.join(&path);
                let file = OpenOptions::new()
                    .write(true)
                    .open(&full)
                    .on("open", &full)?;
                match act {
                    Act::Write => self.write(&file, &full)?,
                    Act::Truncate => {
                        let bytes = self.rng.below(2 * self.load.write_bytes_max);
                        file.set_len(bytes).on("truncate", &full)?;
                    }
                    Act::Punch => {
                        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                        let start = self.rng.below(self.load.write_bytes_max);
                        let bytes = 1 + self.rng.below(self.load.write_bytes_max);
                        rustix::fs::fallocate(&file, flags, start, bytes).on("fallocate", &full)?;
                    }
                    Act::Xattr => self.xattr(&full)?,
                    _ => {
                        let owner = 1000 + self.rng.below(4) as u32;
                        std::os::unix::fs::chown(&full, Some(owner), Some(owner))
                            .on("chown", &full)?;
                    }
                }
                Ok(Some(path))
            }
        }
    }

    fn create(&mut self) -> Result<Option<String>> {
        let path = self.some_name();
        let id = match self.files.get(&path) {
            // Truncated, and the same file as before.
            Some(id) => *id,
            None => self.names,
        };
        self.files.insert(path.clone(), id);
        self.gone.remove(&path);
        self.touch_all(id)?;
        let full = self.root.join(&path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let file = options.open(&full).on("create", &full)?;
        self.write(&file, &full)?;
        Ok(Some(path))
    }

    fn write(&mut self, file: &File, full: &Path) -> Result<()> {
        let max = if self.rng.below(4) == 0 {
            self.load.write_bytes_max
        } else {
            6000
        };
        let length = self.rng.below(max.min(self.load.write_bytes_max)) as usize;
        let start = if self.rng.below(2) == 0 {
            0
        } else {
            self.rng.below(self.load.write_bytes_max)
        };
        self.generation += 1;
        let contents = Contents {
            payload: Payload::Word,
            file: self.load.seed,
            generation: self.generation,
        };
        with_buffer(length, |buffer| {
            contents.fill(start, buffer);
            file.write_all_at(buffer, start)
        })
        .on("write", full)
    }

    fn unlink(&mut self) -> Result<Option<String>> {
        let Some(path) = self.some_file() else {
            return Ok(None);
        };
        self.touch_all(self.files[&path])?;
        let full = self.root.join(&path);
        fs::remove_file(&full).on("unlink", &full)?;
        self.files.remove(&path);
        self.gone.insert(path.clone());
        Ok(Some(path))
    }

    fn rename(&mut self, from: String) -> Result<Option<String>> {
        let to = self.some_name();
        let id = self.files[&from];
        self.touch_all(id)?;
        match self.files.get(&to).copied() {
            // Two names of one file: rename(2) does nothing.
            Some(other) if other == id => return Ok(Some(from)),
            Some(other) => self.touch_all(other)?,
            None => self.touch(&to)?,
        }
        let (old, new) = (self.root.join(&from), self.root.join(&to));
        fs::rename(&old, &new).on("rename", &new)?;
        self.files.remove(&from);
        self.files.insert(to.clone(), id);
        self.gone.remove(&to);
        self.gone.insert(from);
        Ok(Some(to))
    }

    fn link(&mut self, from: String) -> Result<Option<String>> {
        let to = self.some_name();
        if self.files.contains_key(&to) {
            return Ok(None);
        }
        let id = self.files[&from];
        self.touch_all(id)?;
        self.touch(&to)?;
        let (old, new) = (self.root.join(&from), self.root.join(&to));
        fs::hard_link(&old, &new).on("link", &new)?;
        self.files.insert(to.clone(), id);
        self.gone.remove(&to);
        Ok(Some(to))
    }

    fn xattr(&mut self, full: &Path) -> Result<()> {
        let name = format!("user.x{}", self.rng.below(XATTRS));
        if self.rng.below(4) == 0 {
            match rustix::fs::removexattr(full, &name) {
                Err(rustix::io::Errno::NODATA) => return Ok(()),
                done => return done.on("removexattr", full),
            }
        }
        // In the inode, or in a block of its own.
        let length = if self.rng.below(2) == 0 {
            12
        } else {
            100 + self.rng.below(900)
        };
        self.generation += 1;
        let contents = Contents {
            payload: Payload::Word,
            file: self.load.seed,
            generation: self.generation,
        };
        let done = with_buffer(length as usize, |buffer| {
            contents.fill(0, buffer);
            rustix::fs::setxattr(full, &name, buffer, XattrFlags::empty())
        });
        match done {
            // The file's attributes have one block, and it is full.
            Err(rustix::io::Errno::NOSPC) => Ok(()),
            done => done.on("setxattr", full),
        }
    }

    /// A wide directory that goes, and a file that gets its blocks.
    fn reuse(&mut self) -> Result<Option<String>> {
        let dir = self.root.join(&self.load.path).join("wide");
        fs::create_dir(&dir).on("mkdir", &dir)?;
        for number in 0..self.load.wide {
            let path = dir.join(format!("{number:03}{:w<200}", ""));
            File::create(&path).on("create", &path)?;
        }
        if self.rng.below(2) == 0 {
            let opened = File::open(&dir).on("open", &dir)?;
            opened.sync_all().on("fsync", &dir)?;
        }
        for number in 0..self.load.wide {
            let path = dir.join(format!("{number:03}{:w<200}", ""));
            fs::remove_file(&path).on("unlink", &path)?;
        }
        fs::remove_dir(&dir).on("rmdir", &dir)?;
        if self.files.len() as u64 >= self.load.files {
            self.unlink()?;
        }
        self.create()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Listing;
    use crate::testing::scratch;

    /// The notes of a run, and the tree that it left.
    fn run(load: &Marked) -> (Vec<String>, Listing) {
        let (dir, out) = (scratch(), scratch());
        let marks = out.path().join("marks");
        File::create(&marks).unwrap();
        let load = Marked {
            marks: Some(marks.clone()),
            ..load.clone()
        };
        load.run(dir.path()).unwrap();
        let text = fs::read_to_string(marks).unwrap();
        (
            text.lines().map(str::to_owned).collect(),
            Listing::of(dir.path()).unwrap(),
        )
    }

    #[test]
    fn every_kind_runs_and_is_the_same_each_time() {
        let kinds = [Kind::Storm, Kind::Rename, Kind::Truncate, Kind::Reuse];
        for kind in kinds {
            let load = Marked {
                kind,
                operations: 300,
                sync_one_in: 0,
                ..Default::default()
            };
            let (_, first) = run(&load);
            assert_eq!(first.entries, run(&load).1.entries, "{kind:?}");
            assert!(first.entries.len() > load.dirs as usize + 5, "{kind:?}");
        }
    }

    #[test]
    fn the_last_note_is_of_what_is_there() {
        // Every note overwrites the file's beginning, so only the last one is whole.
        let load = Marked {
            operations: 50,
            fsync_one_in: 1,
            sync_one_in: 0,
            ..Default::default()
        };
        let (marks, tree) = run(&load);
        let last = &marks[0];
        if let Some((path, entry)) = last
            .strip_prefix("keep ")
            .and_then(|rest| rest.split_once('\t'))
        {
            let found = &tree.entries[path];
            assert!(entry.starts_with(&found[..found.len().min(20)]), "{last}");
        } else {
            assert!(last.starts_with("gone "), "{last}");
        }
    }
}
