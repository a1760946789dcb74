// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retention: a file or a directory that forgets its oldest data by itself, as cameras and series want it.
//!
//! A *ring file* gives its head up, a zone's worth at a time, so that whole zones become free. A *ring directory* unlinks
//! its oldest files, in the order in which they got their names; the newest stays, and directories in it are left alone.
//! Where the retention names a target, nothing is forgotten here: whoever mounted it copies what is spent there, verifies
//! the copy, and then says `forget`.

use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::ZonedDevice;

/// The attribute that sets a retention, as `bytes=N seconds=N to=DIRECTORY`; what is not said is no limit.
pub const RETAIN_ATTRIBUTE: &[u8] = b"user.safs.retain";
/// Parts of a retention that are given up at a time: so much smaller than it are the steps.
const PARTS: u64 = 8;
/// Entries of a ring directory, or extents of a ring file, that one pass looks at.
const LOOK_MAX: usize = 4096;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many bytes.
    pub bytes: Option<u64>,
    /// What is younger.
    pub seconds: Option<u64>,
    /// Where older data are copied, a directory of the host.
    pub target: Option<String>,
}

impl Retention {
    /// Reads the attribute's value.
    pub fn parse(value: &[u8]) -> Result<Self> {
        const WRONG: Error =
            Error::Invalid("a retention is bytes=N or seconds=N, and perhaps to=DIRECTORY");
        let mut rest = std::str::from_utf8(value).map_err(|_| WRONG)?.trim();
        let mut retention = Retention::default();
        while !rest.is_empty() {
            // A directory's name may have spaces, so it comes last.
            if let Some(target) = rest.strip_prefix("to=") {
                retention.target = Some(target.to_string());
                break;
            }
            let (word, others) = rest.split_once(' ').unwrap_or((rest, ""));
            let (name, number) = word.split_once('=').ok_or(WRONG)?;
            let number = number.parse().map_err(|_| WRONG)?;
            match name {
                "bytes" => retention.bytes = Some(number),
                "seconds" => retention.seconds = Some(number),
                _ => return Err(WRONG),
            }
            rest = others.trim_start();
        }
        match (retention.bytes, retention.seconds) {
            (None, None) => Err(WRONG),
            _ => Ok(retention),
        }
    }

    /// The attribute's value.
    pub fn encode(&self) -> String {
        let bytes = self.bytes.map(|bytes| format!("bytes={bytes}"));
        let seconds = self.seconds.map(|seconds| format!("seconds={seconds}"));
        let target = self.target.as_ref().map(|target| format!("to={target}"));
        let words: Vec<String> = bytes.into_iter().chain(seconds).chain(target).collect();
        words.join(" ")
    }
}

/// What a retention does not keep any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The file.
    pub ino: Ino,
    /// Its name in a ring directory; it goes as a whole. None: the beginning of a ring file.
    pub entry: Option<(Ino, Vec<u8>)>,
    /// Where what is spent begins in the file.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// Where it is to be copied.
    pub target: Option<String>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// What of ring files and directories is spent.
    pub fn spent(&mut self) -> Result<Vec<Spent>> {
        let mut spent = Vec::new();
        for ino in self.policy.retained.clone() {
            // A retention that cannot be read keeps everything, and stands in no other's way.
            let found = self.spent_of(ino, &mut spent);
            self.note_trouble(found);
        }
        Ok(spent)
    }

    fn spent_of(&mut self, ino: Ino, spent: &mut Vec<Spent>) -> Result {
        let value = self.xattr(ino, RETAIN_ATTRIBUTE)?;
        let retention = Retention::parse(&value)?;
        match self.attributes(ino)?.file_type {
            FileType::Directory => self.spent_entries(ino, &retention, spent),
            _ => {
                spent.extend(self.spent_head(ino, &retention)?);
                Ok(())
            }
        }
    }

    /// Forgets what is spent and needs no copy.
    pub(crate) fn retain(&mut self) {
        if self.policy.is_retaining
            || self.policy.retained.is_empty()
            || self.disk.refusal().is_some()
        {
            return;
        }
        self.policy.is_retaining = true;
        for spent in self.spent().unwrap_or_default() {
            if spent.target.is_none() {
                let forgotten = self.forget(&spent);
                self.note_trouble(forgotten);
            }
        }
        self.policy.is_retaining = false;
    }

    /// Forgets what is spent. What has changed meanwhile stays.
    pub fn forget(&mut self, spent: &Spent) -> Result {
        match &spent.entry {
            None => self.truncate_head(spent.ino, spent.to),
            Some((parent, name)) => match self.lookup(*parent, name) {
                Ok(ino) if ino == spent.ino => self.unlink(*parent, name),
                Ok(_) | Err(Error::NotFound) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    /// The beginning of a ring file, if there is a step's worth of it.
    fn spent_head(&mut self, ino: Ino, retention: &Retention) -> Result<Option<Spent>> {
        let written = self.attributes(ino)?.written;
        let inode = self.regular(ino)?;
        let zone_bytes = u64::from(self.disk.geometry().capacity_blocks) * BLOCK as u64;
        let mut to = inode.head;
        if let Some(bytes) = retention.bytes {
            let step = zone_bytes.min(bytes / PARTS);
            let least = written.saturating_sub(bytes).min(inode.written);
            if least >= inode.head.saturating_add(step) {
                to = to.max(least);
            }
        }
        if let Some(seconds) = retention.seconds {
            to = to.max(self.older_than(ino, inode.head, self.before(seconds))?);
        }
        Ok((to > inode.head).then_some(Spent {
            ino,
            entry: None,
            from: inode.head,
            to,
            target: retention.target.clone(),
        }))
    }

    /// The time so many seconds ago.
    fn before(&self, seconds: u64) -> i64 {
        let ns = i64::try_from(seconds.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX);
        self.now_ns.saturating_sub(ns)
    }

    /// Where a file's extents from `head` on end that were written before `time_ns`: their segments say when.
    fn older_than(&mut self, ino: Ino, head: u64, time_ns: i64) -> Result<u64> {
        let mut to = head;
        for (logical, extent) in self.extents(ino, head / BLOCK as u64, LOOK_MAX)? {
            // What cannot be read is as old as what is before it.
            let header = match extent.is_hole {
                true => None,
                false => self.header(extent.zone, extent.header).ok(),
            };
            if header.is_some_and(|header| header.time_ns >= time_ns) {
                break;
            }
            to = to.max(logical * BLOCK as u64 + u64::from(extent.bytes));
        }
        Ok(to)
    }

    /// The oldest files of a ring directory.
    fn spent_entries(
        &mut self,
        parent: Ino,
        retention: &Retention,
        spent: &mut Vec<Spent>,
    ) -> Result {
        let mut files = Vec::new();
        let mut bytes = 0;
        for entry in self.entries(parent, 0, LOOK_MAX)? {
            if entry.file_type != FileType::Regular {
                continue;
            }
            let inode = self.attributes(entry.ino)?;
            bytes += inode.stored;
            files.push((entry, inode));
        }
        let before_ns = retention.seconds.map(|seconds| self.before(seconds));
        let newest = files.len().saturating_sub(1);
        for (entry, inode) in files.into_iter().take(newest) {
            let is_too_much = retention.bytes.is_some_and(|most| bytes > most);
            let is_old = before_ns.is_some_and(|before_ns| inode.mtime_ns < before_ns);
            if !is_too_much && !is_old {
                break;
            }
            bytes -= inode.stored;
            spent.push(Spent {
                ino: entry.ino,
                entry: Some((parent, entry.name)),
                from: inode.head,
                to: inode.size,
                target: retention.target.clone(),
            });
        }
        Ok(())
    }

    /// Sets a retention, as an attribute and as a mark that a mount finds.
    pub(crate) fn set_retention(&mut self, ino: Ino, value: &[u8]) -> Result<Vec<Change>> {
        Retention::parse(value)?;
        match self.inode(ino)?.file_type {
            FileType::Regular | FileType::Directory => {}
            _ => return Err(Error::Invalid("only files and directories are retained")),
        }
        self.policy.retained.insert(ino);
        Ok(vec![Change::Put(Key::retain(ino), Vec::new())])
    }

    /// Ends a retention.
    pub(crate) fn end_retention(&mut self, ino: Ino) -> Option<Change> {
        let was_there = self.policy.retained.remove(&ino);
        was_there.then(|| Change::Delete(Key::retain(ino)))
    }

    /// Reads the marks.
    pub(crate) fn load_retained(&mut self) -> Result {
        let (first, behind) = (
            Key::first(Ino(0), Kind::Retain),
            Key::behind(Ino(0), Kind::Retain),
        );
        let cells = self
            .catalog
            .scan(&mut self.disk, &first, &behind, usize::MAX)?;
        let numbers = cells.iter().filter_map(|cell| cell.key.number());
        self.policy.retained = numbers.map(Ino).collect();
        Ok(())
    }
}
