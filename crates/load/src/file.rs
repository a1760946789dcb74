// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing a file's worth of payload in pieces of a given size.

use std::cell::RefCell;
use std::ops::Range;

use rustix::fd::BorrowedFd;
use rustix::io::{read, write, Errno};

use crate::meter::{Meter, Op};
use crate::payload::Contents;

thread_local! {
    /// One buffer per thread, kept: a large allocation per file would cost
    /// system calls, and each of them costs virtual time.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What goes into a file, and in what pieces.
#[derive(Clone, Copy)]
pub struct Io {
    pub contents: Contents,
    /// Bytes of each read or write.
    pub io_bytes: u64,
}

impl Io {
    /// Writes the bytes `range` of the file at the descriptor's position.
    pub fn append(
        &self,
        fd: BorrowedFd,
        range: Range<u64>,
        meter: &mut Meter,
    ) -> Result<(), Errno> {
        let mut offset = range.start;
        while offset < range.end {
            let length = self.io_bytes.max(1).min(range.end - offset);
            with_buffer(length as usize, |buffer| {
                self.contents.fill(offset, buffer);
                meter.time(Op::Write, || write_all(fd, buffer))
            })?;
            meter.written_bytes += length;
            offset += length;
        }
        Ok(())
    }
}

/// Reads the bytes `range` at the descriptor's position, and forgets them. Gives
/// the offset of the first wrong or missing byte if `check` says what should be there.
pub fn read_range(
    fd: BorrowedFd,
    range: Range<u64>,
    io_bytes: u64,
    check: Option<&Contents>,
    meter: &mut Meter,
) -> Result<Option<u64>, Errno> {
    let mut offset = range.start;
    while offset < range.end {
        let length = io_bytes.max(1).min(range.end - offset);
        let (read_bytes, wrong) = with_buffer(length as usize, |buffer| {
            let read_bytes = meter.time(Op::Read, || read(fd, &mut *buffer))?;
            let wrong = check.and_then(|c| c.first_difference(offset, &buffer[..read_bytes]));
            Ok::<_, Errno>((read_bytes as u64, wrong))
        })?;
        meter.read_bytes += read_bytes;
        offset += read_bytes;
        if wrong.is_some() || read_bytes == 0 {
            return Ok(Some(wrong.unwrap_or(offset)));
        }
    }
    Ok(None)
}

/// Lends the thread's buffer, at the length asked for.
pub fn with_buffer<T>(length: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        act(&mut buffer[..length])
    })
}

fn write_all(fd: BorrowedFd, bytes: &[u8]) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(fd, rest)? {
            0 => return Err(Errno::IO),
            length => rest = &rest[length..],
        }
    }
    Ok(())
}
