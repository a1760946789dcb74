// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does to the file system what a plan says, and compares it with the model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::{pread, pwrite, Errno};

use super::extents::Extents;
use super::model::{DirId, Entry, FileId, Model, Place};
use super::plan::{Act, Piece};
use crate::error::{IoContext, LoadError, Result};
use crate::file::with_buffer;
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::walk::{Order, Walker};

/// One thread's hands.
pub struct Performer {
    pub root: PathBuf,
    pub thread: u32,
    pub payload: Payload,
    pub meter: Meter,
    walker: Walker,
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
const WRITE: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

impl Performer {
    pub fn new(root: &Path, thread: u32, payload: Payload, latency: bool) -> Self {
        let walker = Walker::new(Order::Name);
        Self {
            root: root.to_owned(),
            thread,
            payload,
            meter: Meter::new(latency),
            walker,
        }
    }

    pub fn perform(&mut self, act: &Act, model: &Model) -> Result<()> {
        match act {
            Act::Create { path, piece } => {
                let flags = WRITE | OFlags::CREATE | OFlags::EXCL;
                self.write(Op::Create, path, flags, piece)
            }
            Act::Write { path, piece } => self.write(Op::Open, path, WRITE, piece),
            Act::Append { path, piece } => self.append(path, piece),
            Act::Truncate { path, bytes } => self.truncate(path, *bytes),
            Act::Unlink { path } => self.named(Op::Unlink, path, |p| fs::unlink(p)),
            Act::UnlinkOpen {
                path,
                piece,
                file,
                extents,
            } => self.unlink_open(path, piece, *file, extents),
            Act::Rename { from, to } => {
                let to = self.root.join(to);
                self.named(Op::Rename, from, |p| fs::rename(p, &to))
            }
            Act::Link { from, to } => {
                let to = self.root.join(to);
                self.named(Op::Link, from, |p| fs::link(p, &to))
            }
            Act::Symlink { path, target } => {
                self.named(Op::Symlink, path, |p| fs::symlink(target.as_str(), p))
            }
            Act::Mkdir { path } => self.named(Op::Mkdir, path, |p| {
                fs::mkdir(p, Mode::from_raw_mode(0o755))
            }),
            Act::Rmdir { path } => self.named(Op::Rmdir, path, |p| fs::rmdir(p)),
            Act::RemoveTree { paths } => paths.iter().try_for_each(|(path, is_dir)| match is_dir {
                true => self.named(Op::Rmdir, path, |p| fs::rmdir(p)),
                false => self.named(Op::Unlink, path, |p| fs::unlink(p)),
            }),
            Act::Fsync { path, data_only } => self.fsync(path, *data_only),
            Act::CheckDir(id) => self.check_dir(*id, model),
            Act::CheckFile { place } => {
                let entry = &model.dir(place.dir).entries[&place.name];
                self.check_entry(place, entry, model)
            }
        }
    }

    /// A system call on one path.
    fn named(
        &mut self,
        op: Op,
        path: &str,
        act: impl FnOnce(&Path) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let path = self.root.join(path);
        self.meter.time(op, || act(&path)).on(op.name(), &path)
    }

    fn open(&mut self, op: Op, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o644);
        self.meter
            .time(op, || fs::open(path, flags, mode))
            .on(op.name(), path)
    }

    fn contents(&self, file: FileId, generation: u64) -> Contents {
        // Threads number their files alike; their contents must differ.
        let file = u64::from(self.thread) << 48 | file as u64;
        Contents {
            payload: self.payload,
            file,
            generation,
        }
    }

    fn write(&mut self, op: Op, path: &str, flags: OFlags, piece: &Piece) -> Result<()> {
        let path = self.root.join(path);
        let fd = self.open(op, &path, flags)?;
        self.write_piece(&fd, piece).on("write", &path)
    }

    fn write_piece(&mut self, fd: &OwnedFd, piece: &Piece) -> rustix::io::Result<()> {
        let contents = self.contents(piece.file, piece.generation);
        let mut offset = piece.start;
        while offset < piece.end {
            let written = with_buffer((piece.end - offset) as usize, |buffer| {
                contents.fill(offset, buffer);
                self.meter.time(Op::Write, || pwrite(fd, &*buffer, offset))
            })?;
            if written == 0 {
                return Err(Errno::IO);
            }
            offset += written as u64;
            self.meter.written_bytes += written as u64;
        }
        Ok(())
    }

    /// O_APPEND: the kernel finds the end itself, and must find the model's.
    fn append(&mut self, path: &str, piece: &Piece) -> Result<()> {
        let path = self.root.join(path);
        let fd = self.open(Op::Open, &path, WRITE | OFlags::APPEND)?;
        let contents = self.contents(piece.file, piece.generation);
        let mut offset = piece.start;
        while offset < piece.end {
            let written = with_buffer((piece.end - offset) as usize, |buffer| {
                contents.fill(offset, buffer);
                self.meter
                    .time(Op::Write, || rustix::io::write(&fd, &*buffer))
            });
            match written.on("append", &path)? {
                0 => return Err(Errno::IO).on("append", &path),
                written => offset += written as u64,
            }
        }
        self.meter.written_bytes += piece.end - piece.start;
        Ok(())
    }

    fn truncate(&mut self, path: &str, bytes: u64) -> Result<()> {
        let path = self.root.join(path);
        let fd = self.open(Op::Open, &path, WRITE)?;
        self.meter
            .time(Op::Truncate, || fs::ftruncate(&fd, bytes))
            .on("truncate", &path)
    }

    fn fsync(&mut self, path: &str, data_only: bool) -> Result<()> {
        let path = self.root.join(path);
        let fd = self.open(Op::Open, &path, READ)?;
        let sync = || {
            if data_only {
                fs::fdatasync(&fd)
            } else {
                fs::fsync(&fd)
            }
        };
        self.meter.time(Op::Fsync, sync).on("fsync", &path)
    }

    fn unlink_open(
        &mut self,
        path: &str,
        piece: &Piece,
        file: FileId,
        extents: &Extents,
    ) -> Result<()> {
        let path = self.root.join(path);
        let fd = self.open(Op::Open, &path, WRITE)?;
        self.meter
            .time(Op::Unlink, || fs::unlink(&path))
            .on("unlink", &path)?;
        self.write_piece(&fd, piece).on("write", &path)?;
        self.check_contents(&fd, &path, file, extents)
    }

    /// Compares all that the thread has with the model.
    pub fn check_all(&mut self, model: &Model) -> Result<()> {
        for id in model.dir_ids() {
            self.check_dir(id, model)?;
        }
        Ok(())
    }

    /// Compares a directory's names, and what they lead to.
    fn check_dir(&mut self, id: DirId, model: &Model) -> Result<()> {
        let dir = model.dir(id);
        let path = self.root.join(model.dir_path(id));
        let (prefix, shared) = (model.prefix(), dir.shared);
        let mut found = BTreeMap::new();
        for entry in self.walker.read_dir(&path, &mut self.meter)? {
            let name = entry
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mine = !shared || name.starts_with(&prefix);
            if mine && found.insert(name.clone(), ()).is_some() {
                return Err(mismatch(&path, format!("readdir gives {name} twice")));
            }
        }
        if let Some(name) = found.keys().find(|name| !dir.entries.contains_key(*name)) {
            return Err(mismatch(
                &path,
                format!("has {name}, which should not be there"),
            ));
        }
        for (name, entry) in &dir.entries {
            if !found.contains_key(name) {
                return Err(mismatch(&path, format!("readdir does not give {name}")));
            }
            self.check_entry(
                &Place {
                    dir: id,
                    name: name.clone(),
                },
                entry,
                model,
            )?;
        }
        Ok(())
    }

    fn check_entry(&mut self, place: &Place, entry: &Entry, model: &Model) -> Result<()> {
        let path = self.root.join(model.path(place));
        let stat = self
            .meter
            .time(Op::Stat, || fs::lstat(&path))
            .on("lstat", &path)?;
        let found = FileType::from_raw_mode(stat.st_mode);
        let expected = match entry {
            Entry::Dir(_) => FileType::Directory,
            Entry::File(_) => FileType::RegularFile,
            Entry::Symlink(_) => FileType::Symlink,
        };
        if found != expected {
            return Err(mismatch(&path, format!("is {found:?}, not {expected:?}")));
        }
        match entry {
            Entry::Dir(_) => Ok(()),
            Entry::Symlink(target) => self.check_symlink(&path, target),
            Entry::File(id) => {
                let file = model.file(*id);
                let (links, size) = (stat.st_nlink, stat.st_size as u64);
                if (links, size) != (file.links, file.extents.bytes()) {
                    let (l, b) = (file.links, file.extents.bytes());
                    let text = format!("has {links} links and {size} bytes, not {l} and {b}");
                    return Err(mismatch(&path, text));
                }
                let fd = self.open(Op::Open, &path, READ)?;
                self.check_contents(&fd, &path, *id, &file.extents)
            }
        }
    }

    fn check_symlink(&mut self, path: &Path, target: &str) -> Result<()> {
        let found = self
            .meter
            .time(Op::Readlink, || fs::readlink(path, Vec::new()));
        let found = found.on("readlink", path)?;
        match found.as_bytes() == target.as_bytes() {
            true => Ok(()),
            false => Err(mismatch(
                path,
                format!("leads to {found:?}, not {target:?}"),
            )),
        }
    }

    fn check_contents(
        &mut self,
        fd: &OwnedFd,
        path: &Path,
        file: FileId,
        extents: &Extents,
    ) -> Result<()> {
        let size = extents.bytes() as usize;
        let contents = self.contents(file, 0);
        // One byte more than there should be, to meet a file that is too long.
        with_buffer(2 * size + 1, |buffer| {
            let (expected, found) = buffer.split_at_mut(size);
            extents.fill(contents, expected);
            let mut length = 0;
            while length < found.len() {
                let read = || pread(fd, &mut found[length..], length as u64);
                match self.meter.time(Op::Read, read).on("read", path)? {
                    0 => break,
                    read => length += read,
                }
            }
            self.meter.read_bytes += length as u64;
            compare(path, expected, &found[..length])
        })
    }
}

fn compare(path: &Path, expected: &[u8], found: &[u8]) -> Result<()> {
    if let Some(at) = expected.iter().zip(found).position(|(e, f)| e != f) {
        let (e, f) = (expected[at], found[at]);
        return Err(mismatch(
            path,
            format!("byte {at} is {f:#04x}, not {e:#04x}"),
        ));
    }
    match expected.len() == found.len() {
        true => Ok(()),
        false => {
            let text = format!("{} bytes can be read, not {}", found.len(), expected.len());
            Err(mismatch(path, text))
        }
    }
}

fn mismatch(path: &Path, text: String) -> LoadError {
    LoadError::Mismatch(format!("{}: {text}", path.display()))
}
