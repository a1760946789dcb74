// SPDX-License-Identifier: MIT OR Apache-2.0
//! Postmark 1.5's transactions, with the paper's changes (FAST'17 §4.2.2): sync
//! after the working set is created; at the end a sync instead of deleting it.
//!
//! What happens is planned apart from the doing: the plan depends on the seed
//! alone. So the paper's totals are checked without a disk, and the transactions
//! can run in another process than the creation of the working set.

use std::ops::Range;
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{mkdir, open, unlink, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, LoadError, Result};
use crate::file;
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::rng::Rng;
use crate::Load;

/// Which part of Postmark runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    #[default]
    All,
    /// The working set only.
    Create,
    /// The transactions only, on a working set that stage `create` made with the
    /// same parameters.
    Transactions,
}

/// Postmark 1.5 with the changes of FAST'17 §4.2.2. A transaction is a read or
/// an append, then a creation or a deletion; files are picked uniformly.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Postmark {
    /// Files of the working set. FAST'17: 10,000.
    pub files: u64,
    /// Directories, all in one, over which files are spread at random. FAST'17: 25,000.
    pub directories: u64,
    /// Smallest file in bytes. FAST'17: 512.
    pub size_min_bytes: u64,
    /// Largest file in bytes; files do not grow beyond it. FAST'17: 1 MiB.
    pub size_max_bytes: u64,
    /// FAST'17: 100,000.
    pub transactions: u64,
    /// Bytes of each read or write. FAST'17: 1 MiB.
    pub io_bytes: u64,
    /// Reads in ten reads and appends. Postmark's default: 5.
    pub bias_read: u64,
    /// Creations in ten creations and deletions. Postmark's default: 5.
    pub bias_create: u64,
    /// sync(2) after the working set is created.
    pub sync_after_create: bool,
    /// sync(2) after the transactions.
    pub sync_at_end: bool,
    /// `all`, or only `create` the working set, or only the `transactions` on it.
    pub stage: Stage,
    /// Compare what is read with what was written.
    pub verify: bool,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Directory to make, below the load's directory; `.`: that one itself, as
    /// Postmark does it in its `location`. At the top of a file system ext4
    /// spreads directories over the whole disk, further down it does not.
    pub path: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Postmark {
    fn default() -> Self {
        Self {
            files: 10_000,
            directories: 25_000,
            size_min_bytes: 512,
            size_max_bytes: 1 << 20,
            transactions: 100_000,
            io_bytes: 1 << 20,
            bias_read: 5,
            bias_create: 5,
            sync_after_create: true,
            sync_at_end: true,
            stage: Stage::All,
            verify: false,
            payload: Payload::Word,
            path: "postmark".into(),
            seed: 1,
            latency: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    number: u64,
    directory: u64,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Create(File),
    Read(File),
    Append(File, Range<u64>),
    Delete(File),
}

/// The working set as it will be, and the choices that lead there.
struct Plan<'a> {
    load: &'a Postmark,
    rng: Rng,
    live: Vec<File>,
    created: u64,
}

impl<'a> Plan<'a> {
    fn new(load: &'a Postmark) -> Self {
        Self {
            load,
            rng: Rng::new(load.seed, 0),
            live: Vec::new(),
            created: 0,
        }
    }

    fn create(&mut self) -> Action {
        let span = self
            .load
            .size_max_bytes
            .saturating_sub(self.load.size_min_bytes);
        let file = File {
            number: self.created,
            directory: self.rng.below(self.load.directories),
            bytes: self.load.size_min_bytes + self.rng.below(span),
        };
        self.created += 1;
        self.live.push(file);
        Action::Create(file)
    }

    /// The two actions of the next transaction; fewer when no file is left.
    fn transaction(&mut self) -> [Option<Action>; 2] {
        [self.read_or_append(), self.create_or_delete()]
    }

    fn read_or_append(&mut self) -> Option<Action> {
        let index = self.rng.index(self.live.len());
        let read = self.rng.below(10) < self.load.bias_read;
        let file = self.live.get_mut(index)?;
        if read {
            return Some(Action::Read(*file));
        }
        let room = self.load.size_max_bytes.saturating_sub(file.bytes);
        let start = file.bytes;
        if room > 0 {
            file.bytes += 1 + self.rng.below(room);
        }
        Some(Action::Append(*file, start..file.bytes))
    }

    fn create_or_delete(&mut self) -> Option<Action> {
        if self.rng.below(10) < self.load.bias_create {
            return Some(self.create());
        }
        let index = self.rng.index(self.live.len());
        (index < self.live.len()).then(|| Action::Delete(self.live.swap_remove(index)))
    }
}

/// Does what the plan says, below one directory.
struct Doer<'a> {
    load: &'a Postmark,
    root: String,
    meter: Meter,
}

impl Doer<'_> {
    fn make_directories(&mut self) -> Result<()> {
        let mode = Mode::from_raw_mode(0o755);
        if self.load.path != "." {
            let root = Path::new(&self.root);
            self.meter
                .time(Op::Mkdir, || mkdir(root, mode))
                .on("mkdir", root)?;
        }
        for number in 0..self.load.directories {
            let path = format!("{}/s{number}", self.root);
            self.meter
                .time(Op::Mkdir, || mkdir(&path, mode))
                .on("mkdir", Path::new(&path))?;
        }
        Ok(())
    }

    fn act(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Create(file) => self.write(file, 0..file.bytes, OFlags::CREATE | OFlags::EXCL),
            Action::Append(file, range) => self.write(file, range.clone(), OFlags::APPEND),
            Action::Read(file) => self.read(file),
            Action::Delete(file) => {
                let path = self.path(file);
                self.meter
                    .time(Op::Unlink, || unlink(&path))
                    .on("unlink", Path::new(&path))
            }
        }
    }

    fn path(&self, file: &File) -> String {
        format!("{}/s{}/{}", self.root, file.directory, file.number)
    }

    fn contents(&self, file: &File) -> Contents {
        Contents {
            payload: self.load.payload,
            file: file.number,
            generation: self.load.seed,
        }
    }

    fn write(&mut self, file: &File, range: Range<u64>, how: OFlags) -> Result<()> {
        let path = self.path(file);
        let name = Path::new(&path);
        let op = if how.contains(OFlags::CREATE) {
            Op::Create
        } else {
            Op::Open
        };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | how;
        let mode = Mode::from_raw_mode(0o644);
        let fd = self
            .meter
            .time(op, || open(name, flags, mode))
            .on("open", name)?;
        let io = file::Io {
            contents: self.contents(file),
            io_bytes: self.load.io_bytes,
        };
        io.append(fd.as_fd(), range, &mut self.meter)
            .on("write", name)
    }

    fn read(&mut self, file: &File) -> Result<()> {
        let path = self.path(file);
        let name = Path::new(&path);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = self
            .meter
            .time(Op::Open, || open(name, flags, Mode::empty()))
            .on("open", name)?;
        let contents = self.contents(file);
        let check = self.load.verify.then_some(&contents);
        let io_bytes = self.load.io_bytes;
        let wrong = file::read_range(fd.as_fd(), 0..file.bytes, io_bytes, check, &mut self.meter)
            .on("read", name)?;
        match wrong {
            None => Ok(()),
            Some(at) => Err(LoadError::Mismatch(format!(
                "{path}: byte {at} of {} is wrong or missing; SEED={}",
                file.bytes, self.load.seed
            ))),
        }
    }

    fn sync(&mut self, wanted: bool) {
        if wanted {
            let synced: std::result::Result<(), ()> = self.meter.time(Op::Sync, || {
                rustix::fs::sync();
                Ok(())
            });
            debug_assert!(synced.is_ok());
        }
    }

    fn working_set(&mut self, plan: &mut Plan) -> Result<()> {
        self.make_directories()?;
        (0..self.load.files).try_for_each(|_| self.act(&plan.create()))
    }

    fn transactions(&mut self, plan: &mut Plan) -> Result<()> {
        for _ in 0..self.load.transactions {
            for action in plan.transaction().iter().flatten() {
                self.act(action)?;
            }
        }
        Ok(())
    }
}

impl Load for Postmark {
    fn run(&self, dir: &Path) -> Result<Report> {
        let root = dir.join(&self.path).display().to_string();
        let mut doer = Doer {
            load: self,
            root,
            meter: Meter::new(self.latency),
        };
        let mut plan = Plan::new(self);
        let mut report = Report::default();
        if self.stage == Stage::Transactions {
            for _ in 0..self.files {
                plan.create();
            }
        } else {
            report.part("working_set", || doer.working_set(&mut plan))?;
            report.part("working_set_sync", || doer.sync(self.sync_after_create));
        }
        if self.stage != Stage::Create {
            report.part("transactions", || doer.transactions(&mut plan))?;
            report.part("final_sync", || doer.sync(self.sync_at_end));
        }
        Ok(report
            .metered(&doer.meter)
            .detail("files_at_end", plan.live.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};

    /// FAST'17 §4.2.2: "Postmark writes 37.89 GiB of data and reads 31.54 GiB
    /// of data from user space".
    #[test]
    fn plan_has_the_papers_bytes() {
        let load = Postmark::default();
        let mut plan = Plan::new(&load);
        let mut actions: Vec<Action> = (0..load.files).map(|_| plan.create()).collect();
        for _ in 0..load.transactions {
            actions.extend(plan.transaction().into_iter().flatten());
        }
        let (mut written, mut read) = (0, 0);
        for action in actions {
            match action {
                Action::Create(file) => written += file.bytes,
                Action::Append(_, range) => written += range.end - range.start,
                Action::Read(file) => read += file.bytes,
                Action::Delete(_) => (),
            }
        }
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        assert!(
            (gib(written) / 37.89 - 1.0).abs() < 0.01,
            "written {}",
            gib(written)
        );
        assert!((gib(read) / 31.54 - 1.0).abs() < 0.01, "read {}", gib(read));
    }

    fn small() -> Postmark {
        Postmark {
            files: 50,
            directories: 20,
            size_max_bytes: 20_000,
            transactions: 400,
            io_bytes: 4096,
            verify: true,
            sync_after_create: false,
            sync_at_end: false,
            ..Postmark::default()
        }
    }

    #[test]
    fn does_what_it_planned() {
        let dir = scratch();
        let report = small().run(dir.path()).unwrap();
        let found = count_entries(dir.path());
        assert_eq!(found.directories, 21);
        assert_eq!(report.details["files_at_end"], found.files);
        let made = report.operations["create"].as_u64().unwrap();
        let gone = report.operations["unlink"].as_u64().unwrap();
        assert_eq!(made - gone, found.files);
    }

    #[test]
    fn directories_lie_at_the_top_when_asked_for() {
        let dir = scratch();
        let load = Postmark {
            path: ".".into(),
            ..small()
        };
        load.run(dir.path()).unwrap();
        assert_eq!(count_entries(dir.path()).directories, 20);
        assert!(dir.path().join("s19").is_dir());
    }

    #[test]
    fn stages_apart_end_like_both_together() {
        let (together, apart) = (scratch(), scratch());
        small().run(together.path()).unwrap();
        Postmark {
            stage: Stage::Create,
            ..small()
        }
        .run(apart.path())
        .unwrap();
        Postmark {
            stage: Stage::Transactions,
            ..small()
        }
        .run(apart.path())
        .unwrap();
        let (a, b) = (count_entries(together.path()), count_entries(apart.path()));
        assert_eq!((a.files, a.bytes), (b.files, b.bytes));
    }

    #[test]
    fn a_corrupted_file_is_found() {
        let dir = scratch();
        let load = Postmark {
            bias_create: 10,
            bias_read: 10,
            ..small()
        };
        Postmark {
            stage: Stage::Create,
            ..load.clone()
        }
        .run(dir.path())
        .unwrap();
        for number in 0..20 {
            for file in std::fs::read_dir(dir.path().join(format!("postmark/s{number}"))).unwrap() {
                let path = file.unwrap().path();
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[100] ^= 4;
                std::fs::write(&path, bytes).unwrap();
            }
        }
        let error = Postmark {
            stage: Stage::Transactions,
            ..load
        }
        .run(dir.path())
        .unwrap_err();
        assert!(error.to_string().contains("byte 100 "), "{error}");
    }
}
