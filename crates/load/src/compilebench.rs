// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compilebench by Chris Mason, many at a time, from its published description
//! (oss.oracle.com/~mason/compilebench) and the way its users run it.
//!
//! What is not published is its lists of files. Here a tree is a part of the
//! one whose build was recorded, without its largest files: one directory in
//! four is as many files as Linux 2.6.20 had, and 10 KiB each. They all lie at
//! the top, so that a small part has no more directories than it should. A
//! compilation makes an object for every second C file, as large as that: by
//! the times that its users publish, it writes a fifth of a tree's files.
//! Patching is left out, and caches are not dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{lstat, mkdir, open, sync, unlink, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::build_trace::BuildTrace;
use crate::error::{IoContext, LoadError, Result};
use crate::file::{read_range, Io};
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::remove::Remover;
use crate::report::Report;
use crate::rng::Rng;
use crate::team;
use crate::walk::{walk, Descent, Entry, Order, Visitor};
use crate::Load;

/// Larger files of the recorded tree are tables of registers, which kernels
/// of Compilebench's time did not have.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// Compilebench, so many instances at a time (FAST'17 §3.1). Each makes a tree in
/// the order of its names, to see in which order the file system returns them,
/// and removes it; makes its first trees in that order; then does one of these
/// at random, so often: compiles a tree, objects in random order, removes the
/// objects, removes, makes, reads or stats a tree. It calls sync(2) after the first
/// trees and after each of these.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compilebench {
    /// The trace of a build that names the files of a tree, uncompressed.
    pub trace: PathBuf,
    /// SHA-256 of the trace, if it must be that one.
    pub sha256: Option<String>,
    /// Instances at a time, a thread each.
    pub instances: u32,
    /// First trees of each instance: compilebench's -i.
    pub trees: u32,
    /// Random operations of each instance: compilebench's -r.
    pub runs: u32,
    /// One of so many directories of the recorded tree is in a tree.
    pub directories_one_in: u32,
    /// One of so many instances calls sync(2): smaller trees would be synced
    /// more often.
    pub syncs_one_in: u32,
    /// Directory to work in, below the load's directory.
    pub path: String,
    /// Bytes of each read and write: compilebench's -b.
    pub io_bytes: u64,
    /// What files are filled with.
    pub payload: Payload,
    /// Seed of random orders.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Compilebench {
    fn default() -> Self {
        Self {
            trace: PathBuf::new(),
            sha256: None,
            instances: 128,
            trees: 2,
            runs: 50,
            directories_one_in: 4,
            syncs_one_in: 1,
            path: "compilebench".into(),
            io_bytes: 256 << 10,
            payload: Payload::Word,
            seed: 1,
            latency: false,
        }
    }
}

/// The files of a tree, with their sizes, in the order of their names.
struct Files {
    directories: BTreeSet<String>,
    sources: Vec<(String, u64)>,
    objects: Vec<(String, u64)>,
}

impl Files {
    fn new(trace: &BuildTrace, one_in: usize) -> Self {
        let mut by_directory: BTreeMap<&str, Vec<(String, u64)>> = BTreeMap::new();
        for (path, size) in trace.sources().filter(|(_, size)| *size <= FILE_BYTES_MAX) {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let own = by_directory.entry(directory).or_default();
            own.push((path.to_owned(), size));
        }
        let mut files = Self {
            directories: BTreeSet::new(),
            sources: Vec::new(),
            objects: Vec::new(),
        };
        for (directory, own) in by_directory.into_iter().step_by(one_in) {
            let place = directory.replace('/', "-");
            files.sources.extend(own.into_iter().map(|(path, size)| {
                let name = &path[directory.len()..];
                (format!("{place}{name}"), size)
            }));
            files.directories.insert(place);
        }
        files.directories.remove("");
        let compiled = files
            .sources
            .iter()
            .filter(|(path, _)| path.ends_with(".c"));
        files.objects = compiled
            .step_by(2)
            .map(|(path, size)| (format!("{}o", path.trim_end_matches('c')), *size))
            .collect();
        files
    }
}

impl Load for Compilebench {
    fn run(&self, dir: &Path) -> Result<Report> {
        if self.directories_one_in == 0 || self.syncs_one_in == 0 {
            let text = "directories_one_in and syncs_one_in must not be 0".to_owned();
            return Err(LoadError::Arguments(text));
        }
        let trace = BuildTrace::read(&self.trace, self.sha256.as_deref())?;
        let files = Files::new(&trace, self.directories_one_in as usize);
        let root = dir.join(&self.path).display().to_string();
        let mut report = Report::default();
        let mut meter = Meter::new(self.latency);
        make_dir(&root, &mut meter)?;
        let done = report.part("instances", || {
            team::run(self.instances, self.latency, |number, meter| {
                let instance = Instance {
                    load: self,
                    files: &files,
                    root: format!("{root}/{number}"),
                    number: u64::from(number),
                };
                instance.work(meter)
            })
        })?;
        meter.merge(&done);
        let report = report.metered(&meter);
        let report = report.detail("tree_sources", files.sources.len());
        Ok(report.detail("tree_objects", files.objects.len()))
    }
}

/// A tree that is there.
struct Kernel {
    root: String,
    compiled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Compile,
    Clean,
    Remove,
    Make,
    Read,
    Stat,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Compile,
    Operation::Clean,
    Operation::Remove,
    Operation::Make,
    Operation::Read,
    Operation::Stat,
];

impl Operation {
    fn suits(self, tree: &Kernel) -> bool {
        match self {
            Self::Compile => !tree.compiled,
            Self::Clean => tree.compiled,
            _ => true,
        }
    }
}

struct Instance<'a> {
    load: &'a Compilebench,
    files: &'a Files,
    root: String,
    number: u64,
}

impl Instance<'_> {
    fn work(&self, meter: &mut Meter) -> Result<()> {
        make_dir(&self.root, meter)?;
        let native = self.native_order(meter)?;
        let mut rng = Rng::new(self.load.seed, self.number);
        let mut objects = self.files.objects.clone();
        shuffle(&mut objects, &mut rng);
        let mut trees: Vec<Kernel> = Vec::new();
        let mut made = 0;
        while made < self.load.trees {
            trees.push(self.make_kernel(made, &native, meter)?);
            made += 1;
        }
        self.sync(meter);
        let mut runs = 0;
        while runs < self.load.runs {
            let operation = OPERATIONS[rng.index(OPERATIONS.len())];
            if operation == Operation::Make {
                trees.push(self.make_kernel(made, &native, meter)?);
                made += 1;
            } else {
                let suited: Vec<usize> = (0..trees.len())
                    .filter(|number| operation.suits(&trees[*number]))
                    .collect();
                if suited.is_empty() {
                    continue;
                }
                let number = suited[rng.index(suited.len())];
                self.work_on(operation, &mut trees[number], &objects, meter)?;
                if operation == Operation::Remove {
                    trees.remove(number);
                }
            }
            self.sync(meter);
            runs += 1;
        }
        Ok(())
    }

    fn work_on(
        &self,
        operation: Operation,
        tree: &mut Kernel,
        objects: &[(String, u64)],
        meter: &mut Meter,
    ) -> Result<()> {
        match operation {
            Operation::Make => Ok(()),
            Operation::Compile => {
                tree.compiled = true;
                self.make_files(&tree.root, objects, meter)
            }
            Operation::Clean => {
                tree.compiled = false;
                remove_files(&tree.root, objects, meter)
            }
            Operation::Remove => remove(&tree.root, meter),
            Operation::Read => self.visit(&tree.root, Some(self.load.io_bytes), meter),
            Operation::Stat => self.visit(&tree.root, None, meter),
        }
    }

    fn make_kernel(
        &self,
        number: u32,
        native: &[(String, u64)],
        meter: &mut Meter,
    ) -> Result<Kernel> {
        let root = format!("{}/kernel-{number}", self.root);
        self.make_tree(&root, native, meter)?;
        Ok(Kernel {
            root,
            compiled: false,
        })
    }

    fn visit(&self, root: &str, io_bytes: Option<u64>, meter: &mut Meter) -> Result<()> {
        let mut visitor = FileVisitor { io_bytes };
        let root = Path::new(root);
        walk(root, Order::Readdir, Descent::AtOnce, &mut visitor, meter)
    }

    fn sync(&self, meter: &mut Meter) {
        if self.number % u64::from(self.load.syncs_one_in) == 0 {
            let _ = meter.time(Op::Sync, || {
                sync();
                Ok::<(), ()>(())
            });
        }
    }

    /// The files of a tree in the order in which the file system returns them.
    fn native_order(&self, meter: &mut Meter) -> Result<Vec<(String, u64)>> {
        let root = format!("{}/native-0", self.root);
        self.make_tree(&root, &self.files.sources, meter)?;
        let mut found = Collector {
            skip: root.len() + 1,
            paths: Vec::new(),
        };
        walk(
            Path::new(&root),
            Order::Readdir,
            Descent::AfterSiblings,
            &mut found,
            meter,
        )?;
        remove(&root, meter)?;
        let sizes: BTreeMap<&str, u64> = self
            .files
            .sources
            .iter()
            .map(|(path, size)| (path.as_str(), *size))
            .collect();
        let sized = found.paths.into_iter().map(|path| {
            let size = sizes[path.as_str()];
            (path, size)
        });
        Ok(sized.collect())
    }

    fn make_tree(&self, root: &str, files: &[(String, u64)], meter: &mut Meter) -> Result<()> {
        make_dir(root, meter)?;
        for directory in &self.files.directories {
            make_dir(&format!("{root}/{directory}"), meter)?;
        }
        self.make_files(root, files, meter)
    }

    fn make_files(&self, root: &str, files: &[(String, u64)], meter: &mut Meter) -> Result<()> {
        files
            .iter()
            .try_for_each(|(path, size)| self.make_file(&format!("{root}/{path}"), *size, meter))
    }

    fn make_file(&self, path: &str, size: u64, meter: &mut Meter) -> Result<()> {
        let name = Path::new(path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let fd = meter
            .time(Op::Create, || open(name, flags, Mode::from_raw_mode(0o644)))
            .on("create", name)?;
        let contents = Contents {
            payload: self.load.payload,
            file: self.number << 32 | meter.count(Op::Create),
            generation: self.load.seed,
        };
        let io = Io {
            contents,
            io_bytes: self.load.io_bytes,
        };
        io.append(fd.as_fd(), 0..size, meter).on("write", name)
    }
}

fn make_dir(path: &str, meter: &mut Meter) -> Result<()> {
    meter
        .time(Op::Mkdir, || mkdir(path, Mode::from_raw_mode(0o755)))
        .on("mkdir", Path::new(path))
}

fn remove(root: &str, meter: &mut Meter) -> Result<()> {
    let root = Path::new(root);
    walk(root, Order::Readdir, Descent::AtOnce, &mut Remover, meter)
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.index(last + 1));
    }
}

fn remove_files(root: &str, files: &[(String, u64)], meter: &mut Meter) -> Result<()> {
    files.iter().try_for_each(|(path, _)| {
        let path = format!("{root}/{path}");
        let name = Path::new(&path);
        meter.time(Op::Unlink, || unlink(name)).on("unlink", name)
    })
}

struct Collector {
    /// Bytes of the path that are not the tree's.
    skip: usize,
    paths: Vec<String>,
}

impl Visitor for Collector {
    fn entry(&mut self, entry: &Entry, _meter: &mut Meter) -> Result<()> {
        if !entry.is_dir {
            let path = entry.path.display().to_string();
            self.paths.push(path[self.skip..].to_owned());
        }
        Ok(())
    }
}

/// Reads files in pieces of so many bytes, or only looks at them.
struct FileVisitor {
    io_bytes: Option<u64>,
}

impl Visitor for FileVisitor {
    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()> {
        let path = &entry.path;
        let Some(io_bytes) = self.io_bytes else {
            let looked = meter.time(Op::Stat, || lstat(path));
            return looked.on("lstat", path).map(|_| ());
        };
        if entry.is_dir {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = meter
            .time(Op::Open, || open(path, flags, Mode::empty()))
            .on("open", path)?;
        read_range(fd.as_fd(), 0..u64::MAX, io_bytes, None, meter)
            .on("read", path)
            .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};
    use std::fs;

    const TRACE: &str = "\
shingle-build 1
10 Makefile
- a
1000 a/one.c
2000 a/two.c
- a/b
3000 a/b/three.c
500 a/b/three.h
900000 a/b/table.h
- c
700 c/four.c
";

    fn load(dir: &Path) -> Compilebench {
        let trace = dir.join("trace");
        fs::write(&trace, TRACE).unwrap();
        Compilebench {
            trace,
            instances: 3,
            runs: 30,
            directories_one_in: 1,
            ..Compilebench::default()
        }
    }

    #[test]
    fn what_is_left_is_whole_trees() {
        let dir = scratch();
        let report = load(dir.path()).run(dir.path()).unwrap();
        let found = count_entries(&dir.path().join("compilebench"));
        // six sources in three directories, and perhaps two objects
        let trees = (found.directories - 3) / 4;
        let objects = found.files - 6 * trees;
        assert!(objects % 2 == 0 && objects <= 2 * trees);
        let made = report.operations["create"].as_u64().unwrap();
        let removed = report.operations["unlink"].as_u64().unwrap();
        assert_eq!(found.files, made - removed);
        assert_eq!(report.operations["sync"], 3 * (1 + 30));
    }

    #[test]
    fn a_part_of_a_tree_is_whole_directories_at_the_top() {
        let trace = BuildTrace::parse(TRACE).unwrap();
        let files = Files::new(&trace, 2);
        let names: Vec<&str> = files
            .sources
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["Makefile", "a-b/three.c", "a-b/three.h"]);
        assert_eq!(files.objects, [("a-b/three.o".to_owned(), 3000)]);
    }

    #[test]
    fn one_of_some_instances_syncs() {
        let dir = scratch();
        let compile = Compilebench {
            syncs_one_in: 2,
            ..load(dir.path())
        };
        let report = compile.run(dir.path()).unwrap();
        assert_eq!(report.operations["sync"], 2 * (1 + 30));
    }
}
