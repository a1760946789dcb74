// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse of freed metadata blocks: a directory is removed and its blocks become
//! file data at once, written past the page cache. Whoever later writes the
//! directory's old blocks home from a journal overwrites the file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{fsync, link, mkdir, open, rmdir, statvfs, syncfs, unlink, Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::direct::{check_alignment, Buffer, How, Target};
use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::Load;

/// A negative control. At the start a filler takes most of the space. Each round
/// makes directories of many blocks (hard links to one file with long names) in
/// what is left, removes them, syncs so that their blocks are free, compares and
/// removes the files of the round before, and writes new files with O_DIRECT
/// until just the room for the next round's directories is left: so most of the
/// freed blocks become data. Those files live on while the next round's
/// directories press the journal to write old blocks home.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DirtyReuse {
    /// Rounds of making, removing, writing and comparing.
    pub rounds: u64,
    /// Names in each directory; a block of 4 KiB holds 15 of them. ext4 allows
    /// 65,000 links to a file.
    pub names: u64,
    /// Directories made and removed in each round.
    pub directories: u64,
    /// Sync after a directory is made, so that it is committed before it is removed.
    pub commit_made: bool,
    /// Sync after it is removed: ext4 hands out freed blocks only after the commit.
    pub commit_removed: bool,
    /// Commit by an fsync of the directory instead of a sync: a sync also writes
    /// every dirty buffer of the device home, so a stale one does no harm later.
    pub commit_only: bool,
    /// Bytes of each file that is written.
    pub file_bytes: u64,
    /// Bytes of each write.
    pub io_bytes: u64,
    /// Free space that the filler leaves; null: no filler.
    pub free_bytes: Option<u64>,
    /// Free space that the files leave: room for the directories of the next round.
    pub spare_bytes: u64,
    /// Most bytes of files in each round.
    pub data_bytes: u64,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// Drop the kernel's caches before comparing (needs root).
    pub drop_caches: bool,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Directory to make, below the load's directory.
    pub path: String,
    /// Seed of the contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for DirtyReuse {
    fn default() -> Self {
        Self {
            rounds: 30,
            names: 6000,
            directories: 4,
            commit_made: true,
            commit_removed: true,
            commit_only: false,
            file_bytes: 64 << 10,
            io_bytes: 64 << 10,
            free_bytes: Some(32 << 20),
            spare_bytes: 10 << 20,
            data_bytes: 64 << 20,
            direct: true,
            drop_caches: true,
            payload: Payload::Word,
            path: "reuse".into(),
            seed: 1,
            latency: false,
        }
    }
}

/// Some space is left for the file system's own growth.
const RESERVE_BYTES: u64 = 1 << 20;
/// Length of the names in the directories.
const NAME_BYTES: usize = 250;

impl Load for DirtyReuse {
    fn run(&self, dir: &Path) -> Result<Report> {
        check_alignment(self.direct, &[("file_bytes", self.file_bytes)])?;
        check_alignment(self.direct, &[("io_bytes", self.io_bytes)])?;
        if self.file_bytes == 0 || self.io_bytes == 0 {
            return Err(LoadError::Arguments(
                "file_bytes and io_bytes must not be 0".into(),
            ));
        }
        let mut state = State {
            load: self,
            root: dir.join(&self.path),
            meter: Meter::new(self.latency),
            buffer: Buffer::new(self.io_bytes),
            live: 0..0,
        };
        let mut report = Report::default();
        report.part("fill", || state.prepare())?;
        let replay =
            |error: LoadError, round| error.during(format!(" (round {round}); SEED={}", self.seed));
        report.part("rounds", || {
            (0..self.rounds).try_for_each(|n| state.round(n).map_err(|e| replay(e, n)))
        })?;
        report.part("last_look", || {
            state.sync_all()?;
            state.compare().map_err(|e| replay(e, self.rounds))
        })?;
        let files = state.live.end;
        Ok(report.metered(&state.meter).detail("files_written", files))
    }
}

struct State<'a> {
    load: &'a DirtyReuse,
    root: PathBuf,
    meter: Meter,
    buffer: Buffer,
    /// Numbers of the files that are there.
    live: Range<u64>,
}

impl State<'_> {
    fn prepare(&mut self) -> Result<()> {
        let root = self.root.clone();
        self.named(Op::Mkdir, &root, |p| mkdir(p, Mode::from_raw_mode(0o755)))?;
        let origin = self.origin();
        let how = How {
            write: true,
            create: true,
            ..How::default()
        };
        Target::open(&origin, how)?;
        if let Some(free_bytes) = self.load.free_bytes {
            let available = self.available_bytes()?;
            let filler = available.saturating_sub(free_bytes + RESERVE_BYTES);
            let how = How {
                direct: self.load.direct,
                ..how
            };
            self.write_file(&self.root.join("filler"), u64::MAX, filler, how)?;
        }
        self.sync()
    }

    /// The file that all names of the directories lead to.
    fn origin(&self) -> PathBuf {
        self.root.join("origin")
    }

    fn available_bytes(&self) -> Result<u64> {
        let stat = statvfs(&self.root).on("statvfs", &self.root)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    fn round(&mut self, round: u64) -> Result<()> {
        for number in 0..self.load.directories {
            self.make_directory(round, number)?;
        }
        if self.load.commit_made {
            self.sync()?;
        }
        for number in 0..self.load.directories {
            self.remove_directory(round, number)?;
        }
        if self.load.commit_removed {
            self.sync()?;
        }
        self.compare()?;
        self.remove_files()?;
        self.write_files()?;
        self.sync()?;
        self.compare()
    }

    fn directory(&self, round: u64, number: u64) -> PathBuf {
        self.root.join(format!("directory-{round}-{number}"))
    }

    fn make_directory(&mut self, round: u64, number: u64) -> Result<()> {
        let dir = self.directory(round, number);
        self.named(Op::Mkdir, &dir, |p| mkdir(p, Mode::from_raw_mode(0o755)))?;
        let origin = self.origin();
        for name in 0..self.load.names {
            self.named(Op::Link, &dir.join(long_name(name)), |p| link(&origin, p))?;
        }
        Ok(())
    }

    fn remove_directory(&mut self, round: u64, number: u64) -> Result<()> {
        let dir = self.directory(round, number);
        for name in 0..self.load.names {
            self.named(Op::Unlink, &dir.join(long_name(name)), |p| unlink(p))?;
        }
        self.named(Op::Rmdir, &dir, |p| rmdir(p))
    }

    fn remove_files(&mut self) -> Result<()> {
        for number in self.live.clone() {
            self.named(Op::Unlink, &self.file(number), |p| unlink(p))?;
        }
        self.live.start = self.live.end;
        self.sync()
    }

    fn write_files(&mut self) -> Result<()> {
        let spare = self.load.spare_bytes + RESERVE_BYTES;
        let room = self.available_bytes()?.saturating_sub(spare);
        let count = self.load.data_bytes.min(room) / self.load.file_bytes;
        let direct = self.load.direct;
        let how = How {
            write: true,
            create: true,
            direct,
            ..How::default()
        };
        for _ in 0..count {
            let number = self.live.end;
            self.write_file(&self.file(number), number, self.load.file_bytes, how)?;
            self.live.end += 1;
        }
        Ok(())
    }

    fn file(&self, number: u64) -> PathBuf {
        self.root.join(format!("file-{number}"))
    }

    fn contents(&self, number: u64) -> Contents {
        Contents {
            payload: self.load.payload,
            file: number,
            generation: self.load.seed,
        }
    }

    fn write_file(&mut self, path: &Path, number: u64, bytes: u64, how: How) -> Result<()> {
        let contents = self.contents(number);
        let target = Target::open(path, how)?;
        let mut offset = 0;
        while offset < bytes {
            let length = self.load.io_bytes.min(bytes - offset);
            // The filler's size need not be a multiple of anything.
            let length = if length < self.load.io_bytes {
                length & !4095
            } else {
                length
            };
            if length == 0 {
                break;
            }
            target.write(&contents, offset, length, &mut self.buffer, &mut self.meter)?;
            offset += length;
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        if self.load.drop_caches {
            let path = Path::new("/proc/sys/vm/drop_caches");
            // Twice: the first time only makes the journal let go of its blocks.
            (0..2).try_for_each(|_| std::fs::write(path, "3").on("write", path))?;
        }
        let how = How {
            direct: self.load.direct,
            ..How::default()
        };
        for number in self.live.clone() {
            let target = Target::open(&self.file(number), how)?;
            let contents = self.contents(number);
            let mut offset = 0;
            while offset < self.load.file_bytes {
                let length = self.load.io_bytes.min(self.load.file_bytes - offset);
                let (buffer, meter) = (&mut self.buffer, &mut self.meter);
                match target.read(Some(&contents), offset, length, buffer, meter)? {
                    0 => {
                        let path = self.file(number).display().to_string();
                        return Err(LoadError::Mismatch(format!("{path} ends at {offset}")));
                    }
                    read => offset += read,
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if !self.load.commit_only {
            return self.sync_all();
        }
        let dir = self.open_root()?;
        let root = &self.root;
        self.meter.time(Op::Sync, || fsync(&dir)).on("fsync", root)
    }

    fn sync_all(&mut self) -> Result<()> {
        let dir = self.open_root()?;
        let root = &self.root;
        self.meter
            .time(Op::Sync, || syncfs(&dir))
            .on("syncfs", root)
    }

    fn open_root(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.root, flags, Mode::empty()).on("open", &self.root)
    }

    fn named(
        &mut self,
        op: Op,
        path: &Path,
        act: impl FnOnce(&Path) -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.meter.time(op, || act(path)).on(op.name(), path)
    }
}

fn long_name(number: u64) -> String {
    format!("{number:0NAME_BYTES$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{count_entries, scratch};

    #[test]
    fn rounds_leave_only_the_files_that_are_kept() {
        let dir = scratch();
        let load = DirtyReuse {
            rounds: 3,
            names: 50,
            data_bytes: 1 << 20,
            free_bytes: None,
            drop_caches: false,
            direct: false,
            ..DirtyReuse::default()
        };
        let report = load.run(dir.path()).unwrap();
        assert_eq!(report.details["files_written"], 48);
        assert_eq!(report.operations["link"], 3 * 4 * 50);
        // one round's files, and the origin of the links
        assert_eq!(count_entries(dir.path()).files, 16 + 1);
    }

    #[test]
    fn names_fill_blocks() {
        assert_eq!(long_name(7).len(), NAME_BYTES);
    }
}
