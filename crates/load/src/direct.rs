// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files read and written at given offsets, through the page cache or past it.

use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{fstat, open, seek, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{pread, pwrite, Errno};

use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};
use crate::payload::Contents;

/// O_DIRECT wants buffers, offsets and lengths aligned to the logical block;
/// no drive has a larger one than this.
pub const ALIGNMENT_BYTES: u64 = 4096;

/// A buffer at an aligned address.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: u64) -> Self {
        let length = length as usize;
        let bytes = vec![0; length + ALIGNMENT_BYTES as usize];
        let start = bytes.as_ptr().align_offset(ALIGNMENT_BYTES as usize);
        Self {
            bytes,
            start,
            length,
        }
    }

    pub fn slice(&mut self, length: u64) -> &mut [u8] {
        let length = (length as usize).min(self.length);
        &mut self.bytes[self.start..self.start + length]
    }
}

/// An open file or block device.
pub struct Target {
    fd: OwnedFd,
    path: PathBuf,
}

/// How a target is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    pub write: bool,
    pub create: bool,
    pub truncate: bool,
    pub direct: bool,
}

impl Target {
    pub fn open(path: &Path, how: How) -> Result<Self> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if how.write {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::TRUNC, how.truncate);
        flags.set(OFlags::DIRECT, how.direct);
        let fd = open(path, flags, Mode::from_raw_mode(0o644)).on("open", path)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Size of the file, or of the device.
    pub fn bytes(&self) -> Result<u64> {
        let stat = fstat(&self.fd).on("stat", &self.path)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            return seek(&self.fd, SeekFrom::End(0)).on("seek", &self.path);
        }
        Ok(stat.st_size as u64)
    }

    /// Writes `length` bytes of the contents at `offset`.
    pub fn write(
        &self,
        contents: &Contents,
        offset: u64,
        length: u64,
        buffer: &mut Buffer,
        meter: &mut Meter,
    ) -> Result<()> {
        let bytes = buffer.slice(length);
        contents.fill(offset, bytes);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let written = meter.time(Op::Write, || pwrite(&self.fd, &bytes[done..], at));
            match written.on("write", &self.path)? {
                0 => return Err(Errno::IO).on("write", &self.path),
                length => done += length,
            }
        }
        meter.written_bytes += length;
        Ok(())
    }

    /// Reads `length` bytes at `offset`; fewer at the end. With `check`, a wrong
    /// byte is an error.
    pub fn read(
        &self,
        check: Option<&Contents>,
        offset: u64,
        length: u64,
        buffer: &mut Buffer,
        meter: &mut Meter,
    ) -> Result<u64> {
        let bytes = buffer.slice(length);
        let read = meter.time(Op::Read, || pread(&self.fd, &mut *bytes, offset));
        let read = read.on("read", &self.path)?;
        meter.read_bytes += read as u64;
        match check.and_then(|c| c.first_difference(offset, &bytes[..read])) {
            None => Ok(read as u64),
            Some(at) => Err(LoadError::Mismatch(format!(
                "{}: byte {at} is {:#04x}, which was not written there",
                self.path.display(),
                bytes[(at - offset) as usize],
            ))),
        }
    }

    pub fn fsync(&self, meter: &mut Meter) -> Result<()> {
        meter
            .time(Op::Fsync, || rustix::fs::fsync(&self.fd))
            .on("fsync", &self.path)
    }
}

/// Refuses lengths that O_DIRECT would refuse less clearly.
pub fn check_alignment(direct: bool, lengths: &[(&str, u64)]) -> Result<()> {
    match lengths
        .iter()
        .find(|(_, bytes)| direct && bytes % ALIGNMENT_BYTES != 0)
    {
        None => Ok(()),
        Some((name, bytes)) => Err(LoadError::Arguments(format!(
            "{name} is {bytes}: direct access needs multiples of {ALIGNMENT_BYTES} bytes"
        ))),
    }
}
