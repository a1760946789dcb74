// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walking a directory tree as `ls`, `find`, `tar` and `rm` do: a directory is
//! read whole before anything below it is touched.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{open, FileType, Mode, OFlags, RawDir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};

/// The size of the C library's buffer for directory entries.
const READDIR_BYTES: usize = 32 * 1024;

/// In what order the entries of a directory are visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As the file system hands them out.
    #[default]
    Readdir,
    /// By inode number, as `rm` and `find` do in very large directories.
    Inode,
    /// By name.
    Name,
}

pub struct Entry {
    pub path: PathBuf,
    pub is_dir: bool,
    inode: u64,
}

pub struct Walker {
    buffer: Vec<MaybeUninit<u8>>,
    order: Order,
}

impl Walker {
    pub fn new(order: Order) -> Self {
        Self {
            buffer: vec![MaybeUninit::uninit(); READDIR_BYTES],
            order,
        }
    }

    /// All entries of a directory, without `.` and `..`.
    pub fn read_dir(&mut self, dir: &Path, meter: &mut Meter) -> Result<Vec<Entry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = meter
            .time(Op::Open, || open(dir, flags, Mode::empty()))
            .on("open", dir)?;
        let mut raw = RawDir::new(fd, &mut self.buffer);
        let mut entries = Vec::new();
        let mut read = || -> std::result::Result<(), rustix::io::Errno> {
            while let Some(entry) = raw.next() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    entries.push(Entry {
                        path: dir.join(OsString::from_vec(name.to_vec())),
                        is_dir: entry.file_type() == FileType::Directory,
                        inode: entry.ino(),
                    });
                }
            }
            Ok(())
        };
        meter.time(Op::Readdir, &mut read).on("readdir", dir)?;
        match self.order {
            Order::Readdir => (),
            Order::Inode => entries.sort_by_key(|e| e.inode),
            Order::Name => entries.sort_by(|a, b| a.path.cmp(&b.path)),
        }
        Ok(entries)
    }
}

/// A tree is walked into its sub-directories in order; a directory is visited
/// before (`enter`) and after (`leave`) what is in it.
pub trait Visitor {
    fn enter(&mut self, _dir: &Path, _meter: &mut Meter) -> Result<()> {
        Ok(())
    }
    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()>;
    fn leave(&mut self, _dir: &Path, _meter: &mut Meter) -> Result<()> {
        Ok(())
    }
}

/// When a directory's entries are visited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// All entries of a directory, then the sub-directories (`ls -lR`).
    AfterSiblings,
    /// Into a sub-directory as soon as it is met (`find`, `tar`, `rm`).
    AtOnce,
}

/// Walks the tree at `root`, which must be a directory. Its own entry is not visited.
pub fn walk(
    root: &Path,
    order: Order,
    descent: Descent,
    visitor: &mut impl Visitor,
    meter: &mut Meter,
) -> Result<()> {
    if root.as_os_str().is_empty() {
        return Err(LoadError::Arguments("the path to walk is empty".into()));
    }
    let mut walker = Walker::new(order);
    descend(&mut walker, root, descent, visitor, meter)
}

fn descend(
    walker: &mut Walker,
    dir: &Path,
    descent: Descent,
    visitor: &mut impl Visitor,
    meter: &mut Meter,
) -> Result<()> {
    visitor.enter(dir, meter)?;
    let entries = walker.read_dir(dir, meter)?;
    for entry in &entries {
        visitor.entry(entry, meter)?;
        if entry.is_dir && descent == Descent::AtOnce {
            descend(walker, &entry.path, descent, visitor, meter)?;
        }
    }
    if descent == Descent::AfterSiblings {
        for entry in entries.iter().filter(|e| e.is_dir) {
            descend(walker, &entry.path, descent, visitor, meter)?;
        }
    }
    visitor.leave(dir, meter)
}
