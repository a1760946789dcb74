// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that goes through its flow operations.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{fsync, open, stat, unlink, Mode, OFlags};

use super::parameters::{Flow, Personality};
use super::set::{create, Set, Sets};
use crate::error::{IoContext, LoadError, Result};
use crate::file;
use crate::meter::{Meter, Op};
use crate::payload::Contents;
use crate::rng::Rng;

impl Personality {
    pub(super) fn io(&self, set: &Set, number: u32, io_bytes: u64) -> file::Io {
        let contents = Contents {
            payload: self.payload,
            file: set.number << 32 | u64::from(number),
            generation: self.seed,
        };
        file::Io { contents, io_bytes }
    }
}

/// A file that a thread has open.
pub struct Opened<'a> {
    set: &'a Set,
    number: u32,
    fd: OwnedFd,
}

impl Opened<'_> {
    fn path(&self) -> String {
        self.set.path(self.number)
    }
}

pub struct Worker<'a> {
    pub load: &'a Personality,
    pub sets: &'a Sets,
    pub rng: Rng,
    pub open: BTreeMap<u32, Opened<'a>>,
    pub meter: &'a mut Meter,
}

impl<'a> Worker<'a> {
    pub fn act(&mut self, flow: &Flow) -> Result<()> {
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
