// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filebench's personalities: sets of files, and threads that go through a list of
//! flow operations until the time is over. What the operations do, and which file
//! they take, is as in Filebench 1.4.9 (flowop_library.c, fileset.c): files of a set
//! are taken in the order of their numbers, one rotor for those that exist and one
//! for those that do not, past those that a thread is about to open or delete.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fsync, open, stat, unlink, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::error::{IoContext, LoadError, Result};
use crate::file;
use crate::makedirs::make_inner;
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::rng::Rng;
use crate::team;
use crate::tree::Tree;
use crate::Load;

/// Which part of a personality runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    #[default]
    All,
    /// The files only.
    Create,
    /// The threads only, on files that stage `create` made with the same parameters.
    Run,
}

/// A set of files, in a directory of its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSet {
    pub name: String,
    /// Files, whether they are there at the beginning or not.
    pub entries: u32,
    /// Mean entries of a directory, from 2; the tree is Filebench's.
    pub width: u32,
    /// Mean size in bytes; sizes are drawn from a gamma distribution of shape 1.5.
    pub mean_bytes: u64,
    /// Of a hundred files, how many are there at the beginning.
    pub prealloc_percent: u8,
}

/// Threads that do the same.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    pub count: u32,
    /// Done from front to back, again and again.
    pub flow: Vec<Flow>,
}

/// Filebench's flow operations, under their names. `fd` is a thread's own number of an open file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Flow {
    CreateFile {
        fileset: String,
        #[serde(default = "first")]
        fd: u32,
    },
    OpenFile {
        fileset: String,
        #[serde(default = "first")]
        fd: u32,
    },
    CloseFile {
        #[serde(default = "first")]
        fd: u32,
    },
    ReadWholeFile {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
    },
    /// As many bytes as the file set has for this file.
    WriteWholeFile {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
    },
    /// Below `io_bytes`, evenly. With a set, a file of it is opened if none is, and stays open.
    AppendFileRand {
        #[serde(default = "first")]
        fd: u32,
        io_bytes: u64,
        fileset: Option<String>,
    },
    Fsync {
        #[serde(default = "first")]
        fd: u32,
    },
    /// Nothing, if another thread has the file open.
    DeleteFile {
        fileset: String,
    },
    StatFile {
        fileset: String,
    },
}

fn first() -> u32 {
    1
}

/// Makes sets of files, then lets threads work on them for some time. The defaults
/// are the web server that Filebench is shipped with, for ten seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Personality {
    /// The sets of files.
    pub filesets: Vec<FileSet>,
    /// The threads.
    pub threads: Vec<Threads>,
    /// Seconds after which no thread begins another operation, but for its first of each.
    pub duration_s: f64,
    /// `all`, or only `create` the files, or only `run` the threads.
    pub stage: Stage,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Personality {
    fn default() -> Self {
        let set = |name: &str, entries| FileSet {
            name: name.into(),
            entries,
            width: 20,
            mean_bytes: 16 << 10,
            prealloc_percent: 100,
        };
        let one = [
            Flow::OpenFile {
                fileset: "bigfileset".into(),
                fd: 1,
            },
            Flow::ReadWholeFile {
                fd: 1,
                io_bytes: 1 << 20,
            },
            Flow::CloseFile { fd: 1 },
        ];
        let log = Flow::AppendFileRand {
            fd: 2,
            io_bytes: 16 << 10,
            fileset: Some("logfiles".into()),
        };
        let flow = std::iter::repeat_n(one, 10).flatten().chain([log]);
        Self {
            filesets: vec![set("bigfileset", 1000), set("logfiles", 1)],
            threads: vec![Threads {
                count: 100,
                flow: flow.collect(),
            }],
            duration_s: 10.0,
            stage: Stage::All,
            payload: Payload::Word,
            path: "personality".into(),
            seed: 1,
            latency: false,
        }
    }
}

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

type Sets = BTreeMap<String, Set>;

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

    fn io(&self, set: &Set, number: u32, io_bytes: u64) -> file::Io {
        let contents = Contents {
            payload: self.payload,
            file: set.number << 32 | u64::from(number),
            generation: self.seed,
        };
        file::Io { contents, io_bytes }
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

const NO_PANIC: &str = "no thread panics with the files in its hands";

/// Bytes of each write with which Filebench makes a file (FILE_ALLOC_BLOCK).
const FILE_ALLOC_BYTES: u64 = 1 << 20;

/// A file set and what has become of it.
struct Set {
    number: u64,
    root: String,
    tree: Tree,
    /// Sizes of the files when they are made.
    planned: Vec<u64>,
    /// Those that are there at the beginning, in the order in which they are made.
    made_in: Vec<u32>,
    files: Mutex<Files>,
    idle: Condvar,
}

impl Set {
    /// Draws everything: the tree, the sizes, and in which order files are made.
    fn new(of: &FileSet, number: u64, root: &Path, seed: u64) -> Result<Self> {
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

    fn path(&self, number: u32) -> String {
        let mut path = self.root.clone();
        self.tree
            .push_leaf_path(self.tree.leaves[number as usize], &mut path);
        path
    }

    /// Never held across a system call, and so never waited for in the machine.
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect(NO_PANIC)
    }

    /// A file that exists, or one that does not; it is busy from now on. If only busy ones would do, it waits for them.
    fn take(&self, exists: bool) -> Option<u32> {
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
    fn give_back(&self, number: u32, note: impl FnOnce(&mut Files)) {
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
struct Files {
    present: BTreeSet<u32>,
    absent: BTreeSet<u32>,
    /// About to be opened, made, deleted or looked at by some thread.
    busy: BTreeSet<u32>,
    /// How often each is open.
    opened: Vec<u32>,
    now_bytes: Vec<u64>,
    present_rotor: u32,
    absent_rotor: u32,
    /// Threads that wait for one that is not busy.
    waiting: u32,
}

impl Files {
    fn take(&mut self, exists: bool) -> Option<u32> {
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
fn pick(among: &BTreeSet<u32>, busy: &BTreeSet<u32>, from: u32) -> Option<u32> {
    let mut around = among.range(from..).chain(among.range(..from));
    around.find(|number| !busy.contains(number)).copied()
}

/// The first from `from` on, around the end.
fn next(among: &BTreeSet<u32>, from: u32) -> Option<u32> {
    pick(among, &BTreeSet::new(), from)
}

fn create(path: &str, meter: &mut Meter) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    meter
        .time(Op::Create, || open(path, flags, Mode::from_raw_mode(0o644)))
        .on("create", Path::new(path))
}

/// A file that a thread has open.
struct Opened<'a> {
    set: &'a Set,
    number: u32,
    fd: OwnedFd,
}

impl Opened<'_> {
    fn path(&self) -> String {
        self.set.path(self.number)
    }
}

struct Worker<'a> {
    load: &'a Personality,
    sets: &'a Sets,
    rng: Rng,
    open: BTreeMap<u32, Opened<'a>>,
    meter: &'a mut Meter,
}

impl<'a> Worker<'a> {
    fn act(&mut self, flow: &Flow) -> Result<()> {
        match flow {
            Flow::CreateFile { fileset, fd } => self.create(fileset, *fd),
            Flow::OpenFile { fileset, fd } => self.open(fileset, *fd),
            Flow::CloseFile { fd } => self.close(*fd),
            Flow::ReadWholeFile { fd, io_bytes } => self.read(*fd, *io_bytes),
            Flow::WriteWholeFile { fd, io_bytes } => {
                let opened = opened(&self.open, *fd)?;
                let bytes = opened.set.planned[opened.number as usize];
                self.append(*fd, bytes, *io_bytes)
            }
            Flow::AppendFileRand {
                fd,
                io_bytes,
                fileset,
            } => {
                let bytes = self.rng.below(*io_bytes);
                match fileset {
                    Some(fileset) if !self.open.contains_key(fd) => self.open(fileset, *fd)?,
                    _ => (),
                }
                self.append(*fd, bytes, *io_bytes)
            }
            Flow::Fsync { fd } => {
                let opened = opened(&self.open, *fd)?;
                self.meter
                    .time(Op::Fsync, || fsync(&opened.fd))
                    .on("fsync", Path::new(&opened.path()))
            }
            Flow::DeleteFile { fileset } => self.delete(fileset),
            Flow::StatFile { fileset } => self.stat(fileset),
        }
    }

    fn set(&self, name: &str) -> Result<&'a Set> {
        let sets = self.sets;
        sets.get(name)
            .ok_or_else(|| LoadError::Arguments(format!("there is no file set named {name}")))
    }

    fn create(&mut self, fileset: &str, fd: u32) -> Result<()> {
        let set = self.set(fileset)?;
        let number = set
            .take(false)
            .ok_or_else(|| none_left(fileset, "that does not exist"))?;
        let made = create(&set.path(number), self.meter);
        set.give_back(number, |files| {
            if made.is_ok() {
                files.absent.remove(&number);
                files.present.insert(number);
                files.now_bytes[number as usize] = 0;
                files.opened[number as usize] += 1;
            }
        });
        self.now_open(set, number, fd, made?)
    }

    fn open(&mut self, fileset: &str, fd: u32) -> Result<()> {
        let set = self.set(fileset)?;
        let number = take_present(set, fileset)?;
        let path = set.path(number);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let found = self
            .meter
            .time(Op::Open, || open(&path, flags, Mode::empty()));
        set.give_back(number, |files| {
            files.opened[number as usize] += u32::from(found.is_ok());
        });
        self.now_open(set, number, fd, found.on("open", Path::new(&path))?)
    }

    fn now_open(&mut self, set: &'a Set, number: u32, fd: u32, file: OwnedFd) -> Result<()> {
        let opened = Opened {
            set,
            number,
            fd: file,
        };
        match self.open.insert(fd, opened) {
            None => Ok(()),
            Some(_) => Err(LoadError::Arguments(format!("fd {fd} was open already"))),
        }
    }

    fn close(&mut self, fd: u32) -> Result<()> {
        let closed = self.open.remove(&fd).ok_or_else(|| not_open(fd))?;
        drop(closed.fd);
        closed.set.files().opened[closed.number as usize] -= 1;
        Ok(())
    }

    fn read(&mut self, fd: u32, io_bytes: u64) -> Result<()> {
        let opened = opened(&self.open, fd)?;
        let bytes = opened.set.files().now_bytes[opened.number as usize];
        let name = opened.path();
        let mut at = 0;
        while at < bytes {
            let length = io_bytes.max(1).min(bytes - at);
            let read = file::with_buffer(length as usize, |buffer| {
                self.meter
                    .time(Op::Read, || rustix::io::pread(&opened.fd, buffer, at))
            });
            // Another thread has not written yet what it appends.
            match read.on("read", Path::new(&name))? {
                0 => break,
                read => at += read as u64,
            }
        }
        self.meter.read_bytes += at;
        Ok(())
    }

    /// Takes the next `bytes` of the file and writes them, in pieces.
    fn append(&mut self, fd: u32, bytes: u64, io_bytes: u64) -> Result<()> {
        let opened = opened(&self.open, fd)?;
        let mut files = opened.set.files();
        let size = &mut files.now_bytes[opened.number as usize];
        let range = *size..*size + bytes;
        *size = range.end;
        drop(files);
        let contents = self.load.io(opened.set, opened.number, io_bytes).contents;
        let name = opened.path();
        let mut at = range.start;
        while at < range.end {
            let length = io_bytes.max(1).min(range.end - at);
            let written = file::with_buffer(length as usize, |buffer| {
                contents.fill(at, buffer);
                self.meter
                    .time(Op::Write, || rustix::io::pwrite(&opened.fd, buffer, at))
            });
            at += written.on("write", Path::new(&name))? as u64;
        }
        self.meter.written_bytes += bytes;
        Ok(())
    }

    fn delete(&mut self, fileset: &str) -> Result<()> {
        let set = self.set(fileset)?;
        let number = take_present(set, fileset)?;
        if set.files().opened[number as usize] > 0 {
            set.give_back(number, |_| ());
            return Ok(());
        }
        let path = set.path(number);
        let gone = self.meter.time(Op::Unlink, || unlink(&path));
        set.give_back(number, |files| {
            if gone.is_ok() {
                files.present.remove(&number);
                files.absent.insert(number);
            }
        });
        gone.on("unlink", Path::new(&path))
    }

    fn stat(&mut self, fileset: &str) -> Result<()> {
        let set = self.set(fileset)?;
        let number = take_present(set, fileset)?;
        let path = set.path(number);
        let seen = self.meter.time(Op::Stat, || stat(&path));
        set.give_back(number, |_| ());
        seen.map(|_| ()).on("stat", Path::new(&path))
    }
}

fn take_present(set: &Set, fileset: &str) -> Result<u32> {
    set.take(true)
        .ok_or_else(|| none_left(fileset, "that exists"))
}

fn opened<'a, 'b>(open: &'b BTreeMap<u32, Opened<'a>>, fd: u32) -> Result<&'b Opened<'a>> {
    open.get(&fd).ok_or_else(|| not_open(fd))
}

fn not_open(fd: u32) -> LoadError {
    LoadError::Arguments(format!("fd {fd} is not open"))
}

/// Filebench ends with an error, too: "reduce runtime, increase fileset entries".
fn none_left(fileset: &str, which: &str) -> LoadError {
    LoadError::Arguments(format!("no file of {fileset} is left {which}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};

    const ENTRIES: u32 = 200;

    fn small(flow: Vec<Flow>, prealloc_percent: u8) -> Personality {
        Personality {
            filesets: vec![FileSet {
                name: "set".into(),
                entries: ENTRIES,
                width: 5,
                mean_bytes: 8 << 10,
                prealloc_percent,
            }],
            threads: vec![Threads { count: 1, flow }],
            duration_s: 0.2,
            ..Personality::default()
        }
    }

    fn fileset() -> String {
        "set".into()
    }

    /// Filebench's varmail.f.
    fn mail() -> Vec<Flow> {
        let io_bytes = 16 << 10;
        let append = Flow::AppendFileRand {
            fd: 1,
            io_bytes,
            fileset: None,
        };
        vec![
            Flow::DeleteFile { fileset: fileset() },
            Flow::CreateFile {
                fileset: fileset(),
                fd: 1,
            },
            append.clone(),
            Flow::Fsync { fd: 1 },
            Flow::CloseFile { fd: 1 },
            Flow::OpenFile {
                fileset: fileset(),
                fd: 1,
            },
            Flow::ReadWholeFile { fd: 1, io_bytes },
            append,
            Flow::CloseFile { fd: 1 },
            Flow::StatFile { fileset: fileset() },
        ]
    }

    #[test]
    fn makes_the_part_of_the_files_that_is_there_at_the_beginning() {
        for (percent, least, most) in [(0, 0, 0), (80, 140, 180), (100, 200, 200)] {
            let dir = scratch();
            let load = Personality {
                stage: Stage::Create,
                ..small(mail(), percent)
            };
            let report = load.run(dir.path()).unwrap();
            let found = count_entries(dir.path());
            assert!((least..=most).contains(&found.files), "{}", found.files);
            assert_eq!(report.user_written_bytes, found.bytes);
            // The directory of the personality is one more.
            let inner = &report.details["trees"]["set"]["inner"];
            assert_eq!(*inner, found.directories - 1);
        }
    }

    #[test]
    fn sizes_have_the_mean_of_the_set() {
        let set = FileSet {
            entries: 20_000,
            ..small(mail(), 100).filesets.remove(0)
        };
        let sizes = Set::new(&set, 0, Path::new("/"), 1).unwrap().planned;
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        assert!((mean / 8192.0 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn files_are_taken_in_turn_past_those_that_are_busy() {
        let mut files = Files {
            present: [1, 3, 5].into(),
            ..Files::default()
        };
        let mut taken = || files.take(true);
        assert_eq!([taken(), taken(), taken()], [Some(1), Some(3), Some(5)]);
        assert_eq!(taken(), None);
        files.busy.remove(&3);
        assert_eq!(files.take(true), Some(3));
        assert_eq!(files.take(false), None);
    }

    #[test]
    fn a_file_that_is_open_is_not_deleted() {
        let dir = scratch();
        let keeps = [
            Flow::OpenFile {
                fileset: fileset(),
                fd: 1,
            },
            Flow::DeleteFile { fileset: fileset() },
            Flow::CloseFile { fd: 1 },
        ];
        let mut load = small(keeps.to_vec(), 100);
        load.filesets[0].entries = 1;
        let report = load.run(dir.path()).unwrap();
        assert!(report.operations["open"].as_u64() >= Some(1));
        assert!(!report.operations.contains_key("unlink"));
    }

    /// What the load says it did is what is there, by several threads, in two stages.
    #[test]
    fn counts_agree_with_the_directory() {
        let dir = scratch();
        let stage = |stage, threads| {
            let mut load = Personality {
                stage,
                ..small(mail(), 80)
            };
            load.threads[0].count = threads;
            load.run(dir.path()).unwrap()
        };
        let made = stage(Stage::Create, 1);
        let done = stage(Stage::Run, 4);
        let count = |report: &Report, of: &str| report.operations[of].as_u64().unwrap();
        let files = count(&made, "create") + count(&done, "create") - count(&done, "unlink");
        assert_eq!(count_entries(dir.path()).files, files);
        assert!(done.user_read_bytes > 0);
    }

    #[test]
    fn the_default_is_filebenchs_web_server() {
        let dir = scratch();
        let load = Personality {
            duration_s: 0.2,
            ..Personality::default()
        };
        let report = load.run(dir.path()).unwrap();
        let count = |of: &str| report.operations[of].as_u64().unwrap();
        assert_eq!(count("create"), 1001);
        assert!(count("read") > count("write") - 1001);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let open = |fileset: &str| Flow::OpenFile {
            fileset: fileset.into(),
            fd: 1,
        };
        for (flow, percent, said) in [
            (vec![open("other")], 100, "no file set named other"),
            (vec![open("set")], 0, "no file of set is left that exists"),
            (vec![open("set"), open("set")], 100, "fd 1 was open already"),
            (vec![Flow::CloseFile { fd: 1 }], 100, "fd 1 is not open"),
        ] {
            let dir = scratch();
            let error = small(flow, percent).run(dir.path()).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
