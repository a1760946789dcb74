// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorded build, replayed: what its jobs did to files is done, what they
//! computed is waited for, on so many processors as there shall be.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{
    ftruncate, lstat, mkdir, open, rename, rmdir, unlink, utimensat, AtFlags, Mode, OFlags,
    Timespec, Timestamps, CWD, UTIME_NOW,
};
use rustix::io::{pwrite, Errno};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::build_trace::{Before, BuildTrace, Operation, PathId};
use crate::error::{IoContext, Result};
use crate::file::{read_range, with_buffer, Io};
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::team;
use crate::Load;

/// Which half of the load is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Make the tree of sources, in the order of the trace.
    Tree,
    /// Build in it.
    Build,
}

/// `make -j` of FAST'17 §4.2.2, replayed from a trace. So many jobs run at a
/// time, started in the recorded order, each when the jobs have ended that wrote
/// what it reads. A job that computes holds one of the processors and sleeps as
/// long as it computed when it was recorded; files are really read and written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Replay {
    /// The trace, uncompressed.
    pub trace: PathBuf,
    /// SHA-256 of the trace, if it must be that one.
    pub sha256: Option<String>,
    /// Which half is run.
    pub stage: Stage,
    /// Jobs at a time: make's -j.
    pub jobs: u32,
    /// Processors that they share.
    pub processors: u32,
    /// Read first what the jobs will read of the tree, as if it had just been
    /// unpacked: a part of its own.
    pub warm: bool,
    /// Directory of the tree, below the load's directory.
    pub path: String,
    /// Bytes of each read and write.
    pub io_bytes: u64,
    /// What files are filled with.
    pub payload: Payload,
    /// Decides the contents of files.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            trace: PathBuf::new(),
            sha256: None,
            stage: Stage::Build,
            jobs: 16,
            processors: 8,
            warm: true,
            path: "build".into(),
            io_bytes: 128 << 10,
            payload: Payload::Word,
            seed: 1,
            latency: false,
        }
    }
}

impl Load for Replay {
    fn run(&self, dir: &Path) -> Result<Report> {
        let trace = BuildTrace::read(&self.trace, self.sha256.as_deref())?;
        let player = Player {
            load: self,
            root: dir.join(&self.path).display().to_string(),
            trace: &trace,
        };
        let mut report = Report::default();
        match self.stage {
            Stage::Tree => {
                let mut meter = Meter::new(self.latency);
                report.part("tree", || player.make_tree(&mut meter))?;
                Ok(report.metered(&meter))
            }
            Stage::Build => {
                let mut meter = Meter::new(self.latency);
                if self.warm {
                    report.part("warm", || player.warm(&mut meter))?;
                }
                meter.merge(&report.part("build", || player.build())?);
                let computed_us: u64 = trace.jobs.iter().flat_map(|j| &j.operations).map(us).sum();
                let report = report.metered(&meter).detail("jobs", trace.jobs.len());
                Ok(report.detail("computed_us", computed_us))
            }
        }
    }
}

fn us(operation: &Operation) -> u64 {
    match operation {
        Operation::Compute(us) => *us,
        _ => 0,
    }
}

/// Hands out jobs: the first, in recorded order, of those that wait for nothing.
struct Schedule {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// Who waits for each job.
    followers: Vec<Vec<usize>>,
}

struct Waiting {
    ready: BTreeSet<usize>,
    /// How many jobs each one still waits for.
    for_jobs: Vec<usize>,
    unfinished: usize,
}

impl Schedule {
    fn new(after: &[&[usize]]) -> Self {
        let mut followers = vec![Vec::new(); after.len()];
        for (number, earlier) in after.iter().enumerate() {
            earlier.iter().for_each(|e| followers[*e].push(number));
        }
        let for_jobs: Vec<usize> = after.iter().map(|earlier| earlier.len()).collect();
        let ready = (0..after.len()).filter(|n| for_jobs[*n] == 0).collect();
        let unfinished = after.len();
        Self {
            state: Mutex::new(Waiting {
                ready,
                for_jobs,
                unfinished,
            }),
            changed: Condvar::new(),
            followers,
        }
    }

    fn take(&self) -> Option<usize> {
        let mut state = self.state.lock().expect("no thread panicked");
        loop {
            if state.unfinished == 0 {
                return None;
            }
            if let Some(number) = state.ready.pop_first() {
                return Some(number);
            }
            state = self.changed.wait(state).expect("no thread panicked");
        }
    }

    fn ended(&self, number: usize) {
        let mut state = self.state.lock().expect("no thread panicked");
        state.unfinished = state.unfinished.saturating_sub(1);
        for follower in &self.followers[number] {
            state.for_jobs[*follower] -= 1;
            if state.for_jobs[*follower] == 0 {
                state.ready.insert(*follower);
            }
        }
        self.changed.notify_all();
    }

    /// Lets the others end early: one of them has met an error.
    fn stop(&self) {
        self.state.lock().expect("no thread panicked").unfinished = 0;
        self.changed.notify_all();
    }
}

/// Processors that jobs share; who finds none free waits.
struct Processors {
    free: Mutex<u32>,
    released: Condvar,
}

impl Processors {
    fn compute(&self, length: Duration) {
        let mut free = self.free.lock().expect("no thread panicked");
        while *free == 0 {
            free = self.released.wait(free).expect("no thread panicked");
        }
        *free -= 1;
        drop(free);
        sleep(length);
        *self.free.lock().expect("no thread panicked") += 1;
        self.released.notify_one();
    }
}

struct Player<'a> {
    load: &'a Replay,
    root: String,
    trace: &'a BuildTrace,
}

impl Player<'_> {
    fn path(&self, id: PathId) -> String {
        format!("{}/{}", self.root, self.trace.paths[id].0)
    }

    fn contents(&self, file: PathId) -> Contents {
        Contents {
            payload: self.load.payload,
            file: file as u64,
            generation: self.load.seed,
        }
    }

    fn make_tree(&self, meter: &mut Meter) -> Result<()> {
        make_dir(&self.root, meter)?;
        for (id, (_, before)) in self.trace.paths.iter().enumerate() {
            match before {
                Before::Directory => make_dir(&self.path(id), meter)?,
                Before::File(size) => self.make_file(id, *size, meter)?,
                Before::Nothing => (),
            }
        }
        Ok(())
    }

    fn make_file(&self, id: PathId, size: u64, meter: &mut Meter) -> Result<()> {
        let path = self.path(id);
        let name = Path::new(&path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = meter
            .time(Op::Create, || open(name, flags, Mode::from_raw_mode(0o644)))
            .on("create", name)?;
        let io = Io {
            contents: self.contents(id),
            io_bytes: self.load.io_bytes,
        };
        io.append(fd.as_fd(), 0..size, meter).on("write", name)
    }

    fn warm(&self, meter: &mut Meter) -> Result<()> {
        let operations = self.trace.jobs.iter().flat_map(|job| &job.operations);
        let wanted: BTreeSet<PathId> = operations
            .filter_map(|operation| match operation {
                Operation::Read(id, _) => Some(*id),
                _ => None,
            })
            .collect();
        for id in wanted {
            if let Before::File(size) = self.trace.paths[id].1 {
                self.read(Path::new(&self.path(id)), size, meter)?;
            }
        }
        Ok(())
    }

    fn build(&self) -> Result<Meter> {
        let after: Vec<&[usize]> = self.trace.jobs.iter().map(|j| j.after.as_slice()).collect();
        let schedule = Schedule::new(&after);
        let processors = Processors {
            free: Mutex::new(self.load.processors.max(1)),
            released: Condvar::new(),
        };
        team::run(self.load.jobs, self.load.latency, |_, meter| {
            while let Some(number) = schedule.take() {
                for operation in &self.trace.jobs[number].operations {
                    self.act(operation, &processors, meter)
                        .map_err(|e| e.during(format!(", in job {number}")))
                        .inspect_err(|_| schedule.stop())?;
                }
                schedule.ended(number);
            }
            Ok(())
        })
    }

    fn act(&self, operation: &Operation, processors: &Processors, meter: &mut Meter) -> Result<()> {
        let (id, other) = match operation {
            Operation::Compute(us) => {
                processors.compute(Duration::from_micros(*us));
                return Ok(());
            }
            Operation::Look(id)
            | Operation::Read(id, _)
            | Operation::Write { path: id, .. }
            | Operation::Resize(id, _)
            | Operation::Change(id)
            | Operation::MakeDir(id)
            | Operation::RemoveDir(id)
            | Operation::Unlink(id) => (*id, None),
            Operation::Rename(id, other) => (*id, Some(*other)),
        };
        let path = self.path(id);
        let name = Path::new(&path);
        match operation {
            Operation::Compute(_) => Ok(()),
            // make looks for what other jobs are still to make.
            Operation::Look(_) => match meter.time(Op::Stat, || lstat(name)) {
                Ok(_) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error).on("lstat", name),
            },
            Operation::Read(_, bytes) => self.read(name, *bytes, meter),
            Operation::Write {
                create,
                truncate,
                pieces,
                ..
            } => {
                let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
                flags.set(OFlags::CREATE, *create);
                flags.set(OFlags::TRUNC, *truncate);
                self.write(id, name, flags, pieces, meter)
            }
            Operation::Resize(_, size) => {
                let fd = meter
                    .time(Op::Open, || open(name, OFlags::WRONLY, Mode::empty()))
                    .on("open", name)?;
                meter
                    .time(Op::Truncate, || ftruncate(fd, *size))
                    .on("truncate", name)
            }
            Operation::Change(_) => {
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_NOW,
                };
                let times = Timestamps {
                    last_access: now,
                    last_modification: now,
                };
                utimensat(CWD, name, &times, AtFlags::empty()).on("utimensat", name)
            }
            Operation::MakeDir(_) => make_dir(&path, meter),
            Operation::RemoveDir(_) => meter.time(Op::Rmdir, || rmdir(name)).on("rmdir", name),
            Operation::Unlink(_) => meter.time(Op::Unlink, || unlink(name)).on("unlink", name),
            Operation::Rename(..) => {
                let new = self.path(other.expect("a new name"));
                meter
                    .time(Op::Rename, || rename(name, &new))
                    .on("rename", name)
            }
        }
    }

    fn read(&self, name: &Path, bytes: u64, meter: &mut Meter) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = meter
            .time(Op::Open, || open(name, flags, Mode::empty()))
            .on("open", name)?;
        read_range(fd.as_fd(), 0..bytes, self.load.io_bytes, None, meter)
            .on("read", name)
            .map(|_| ())
    }

    fn write(
        &self,
        id: PathId,
        name: &Path,
        flags: OFlags,
        pieces: &[(u64, u64)],
        meter: &mut Meter,
    ) -> Result<()> {
        let op = if flags.contains(OFlags::CREATE) {
            Op::Create
        } else {
            Op::Open
        };
        let fd = meter
            .time(op, || open(name, flags, Mode::from_raw_mode(0o644)))
            .on("create", name)?;
        let contents = self.contents(id);
        for (start, length) in pieces {
            let (mut at, end) = (*start, start + length);
            while at < end {
                let wanted = self.load.io_bytes.max(1).min(end - at) as usize;
                let written = with_buffer(wanted, |buffer| {
                    contents.fill(at, buffer);
                    meter.time(Op::Write, || pwrite(&fd, buffer, at))
                });
                at += written.on("write", name)? as u64;
            }
            meter.written_bytes += length;
        }
        Ok(())
    }
}

fn make_dir(path: &str, meter: &mut Meter) -> Result<()> {
    meter
        .time(Op::Mkdir, || mkdir(path, Mode::from_raw_mode(0o755)))
        .on("mkdir", Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_trace::tests::SMALL;
    use crate::testing::{count_entries, scratch};
    use std::fs;

    fn load(dir: &Path, text: &str) -> Replay {
        let trace = dir.join("trace");
        fs::write(&trace, text).unwrap();
        Replay {
            trace,
            ..Replay::default()
        }
    }

    #[test]
    fn a_build_leaves_what_the_recorded_one_left() {
        let dir = scratch();
        let build = load(dir.path(), SMALL);
        let tree = Replay {
            stage: Stage::Tree,
            ..build.clone()
        };
        let made = tree.run(dir.path()).unwrap();
        assert_eq!(made.operations["create"], 2);
        let report = build.run(dir.path()).unwrap();
        assert_eq!(report.user_written_bytes, 100 + 6000 + 8064 + 14064);
        assert_eq!(
            report.user_read_bytes,
            2 * (5000 + 9000) + 2 * 100 + 6000 + 8064
        );
        let parts: Vec<_> = report.parts.iter().map(|part| part.name).collect();
        assert_eq!(parts, ["warm", "build"]);
        assert_eq!(report.details["computed_us"], 81_000);
        let found = count_entries(&dir.path().join("build"));
        assert_eq!((found.files, found.directories), (6, 1));
        assert_eq!(found.bytes, 14_000 + 100 + 6000 + 8064 + 14064);
    }

    #[test]
    fn jobs_wait_for_what_they_need_and_start_in_order() {
        let schedule = Schedule::new(&[&[], &[0], &[], &[1, 2]]);
        assert_eq!((schedule.take(), schedule.take()), (Some(0), Some(2)));
        schedule.ended(2);
        schedule.ended(0);
        assert_eq!(schedule.take(), Some(1));
        schedule.ended(1);
        assert_eq!(schedule.take(), Some(3));
        schedule.ended(3);
        assert_eq!(schedule.take(), None);
    }

    #[test]
    fn fewer_processors_take_longer() {
        let work = "job\nt 60000\n".repeat(4);
        let text = format!("shingle-build 1\n{work}");
        let taken_ns = |jobs, processors| {
            let dir = scratch();
            let replay = Replay {
                jobs,
                processors,
                ..load(dir.path(), &text)
            };
            replay.run(dir.path()).unwrap().parts[1].ns
        };
        assert!(taken_ns(4, 1) >= 240_000_000);
        assert!(taken_ns(1, 4) >= 240_000_000);
        let both = taken_ns(4, 2);
        assert!((120_000_000..240_000_000).contains(&both), "{both}");
    }

    #[test]
    fn an_error_names_the_job_and_ends_the_team() {
        let dir = scratch();
        let text = "shingle-build 1\n+ gone\njob\nt 1000\njob 0\nr 0 1\njob 1\nt 1\n";
        let error = load(dir.path(), text).run(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("in job 1"), "{error}");
    }

    #[test]
    fn another_trace_is_refused() {
        let dir = scratch();
        let replay = Replay {
            sha256: Some("00".into()),
            ..load(dir.path(), SMALL)
        };
        let error = replay.run(dir.path()).unwrap_err();
        assert!(error.to_string().contains("another trace"), "{error}");
    }
}
