// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retention: a file or a directory that forgets its oldest data by itself, as cameras and series want it.
//!
//! A *ring file* gives its head up, a zone's worth at a time, so that whole zones become free. A *ring directory* unlinks
//! its oldest files, in the order in which they got their names; the newest stays, and directories in it are left alone.
//! Where the retention asks for copies, nothing is forgotten here: the program that mounted copies what is spent, verifies
//! the copy, and then says `forget`. Where to, the file system does not say.

use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use crate::rings::Ring;

use zoned::ZonedDevice;

/// The attribute that sets a retention, as `bytes=N seconds=N copy`; what is not said is no limit.
pub const RETAIN_ATTRIBUTE: &[u8] = b"user.safs.retain";
/// Parts of a retention that are given up at a time: so much smaller than it are the steps.
const PARTS: u64 = 8;
/// Entries of a ring directory, or extents of a ring file, that one look takes.
const LOOK_MAX: usize = 4096;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many bytes.
    pub bytes: Option<u64>,
    /// What is younger.
    pub seconds: Option<u64>,
    /// Older data are copied before they go.
    pub is_copied: bool,
}

impl Retention {
    /// Reads the attribute's value.
    pub fn parse(value: &[u8]) -> Result<Self> {
        const WRONG: Error =
            Error::Invalid("a retention is bytes=N or seconds=N, and perhaps copy");
        let text = std::str::from_utf8(value).map_err(|_| WRONG)?;
        let mut retention = Retention::default();
        for word in text.split_ascii_whitespace() {
            let (name, number) = word.split_once('=').unwrap_or((word, ""));
            match (name, number.parse()) {
                ("bytes", Ok(number)) => retention.bytes = Some(number),
                ("seconds", Ok(number)) => retention.seconds = Some(number),
                ("copy", Err(_)) if word == "copy" => retention.is_copied = true,
                _ => return Err(WRONG),
            }
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
        let copy = self.is_copied.then(|| "copy".into());
        let words: Vec<String> = bytes.into_iter().chain(seconds).chain(copy).collect();
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
    /// It is to be copied first.
    pub is_copied: bool,
    /// What tells that it is still what was found: of a file that goes as a whole its change time and its size, of a
    /// beginning its extents.
    pub(crate) mark: Mark,
}

/// See `Spent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Changed(i64, u64),
    Extents(Vec<(u64, Extent)>),
}

fn changed(inode: &Inode) -> Mark {
    Mark::Changed(inode.ctime_ns, inode.size)
}

impl<D: ZonedDevice> FileSystem<D> {
    /// What of ring files and directories is spent.
    pub fn spent(&mut self) -> Result<Vec<Spent>> {
        self.all_spent(false)
    }

    /// The same; what was not counted yet of ring directories is counted now, if it is needed `now`.
    fn all_spent(&mut self, now: bool) -> Result<Vec<Spent>> {
        let mut spent = Vec::new();
        for ino in self.policy.retained.clone() {
            // A retention that cannot be read keeps everything, and stands in no other's way.
            match self.spent_of(ino, now) {
                Ok(of_this) => spent.extend(of_this),
                failed => self.note_trouble(failed.map(drop)),
            }
        }
        Ok(spent)
    }

    fn spent_of(&mut self, ino: Ino, now: bool) -> Result<Vec<Spent>> {
        let retention = Retention::parse(&self.xattr(ino, RETAIN_ATTRIBUTE)?)?;
        match self.attributes(ino)?.file_type {
            FileType::Directory => self.spent_entries(ino, &retention, now),
            _ => Ok(self.spent_head(ino, &retention)?.into_iter().collect()),
        }
    }

    /// Forgets what is spent and needs no copy, because room is short.
    pub(crate) fn retain(&mut self) {
        self.retain_all(true);
    }

    /// The same, because time has passed: of a large ring directory that was not looked at since the mount only a part is.
    pub(crate) fn retain_slowly(&mut self) {
        self.retain_all(false);
    }

    fn retain_all(&mut self, now: bool) {
        if self.policy.is_retaining
            || self.policy.retained.is_empty()
            || self.disk.refusal().is_some()
        {
            return;
        }
        self.policy.is_retaining = true;
        let spent = self.all_spent(now).unwrap_or_default();
        for spent in spent.iter().filter(|spent| !spent.is_copied) {
            let forgotten = self.forget(spent);
            self.note_trouble(forgotten);
        }
        self.policy.is_retaining = false;
    }

    /// Forgets what is spent. What has changed meanwhile stays.
    pub fn forget(&mut self, spent: &Spent) -> Result {
        let mark = match self.mark_of(spent) {
            Err(Error::NotFound) => return Ok(()),
            mark => mark?,
        };
        if mark != spent.mark {
            return Ok(());
        }
        match &spent.entry {
            None => self.truncate_head(spent.ino, spent.to),
            Some((parent, name)) => match self.lookup(*parent, name) {
                Ok(ino) if ino == spent.ino => self.unlink(*parent, name),
                Ok(_) | Err(Error::NotFound) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    fn mark_of(&mut self, spent: &Spent) -> Result<Mark> {
        match spent.mark {
            Mark::Changed(..) => Ok(changed(&self.attributes(spent.ino)?)),
            Mark::Extents(_) => {
                let extents = self.extents_before(spent.ino, spent.from, spent.to)?;
                Ok(Mark::Extents(extents))
            }
        }
    }

    /// The extents that hold a file's bytes from one place to another. Bytes of a file never change, but a file can be
    /// emptied and written anew: then others are there.
    fn extents_before(&mut self, ino: Ino, from: u64, to: u64) -> Result<Vec<(u64, Extent)>> {
        let mut found: Vec<(u64, Extent)> = Vec::new();
        let mut at = from / BLOCK as u64;
        while at * (BLOCK as u64) < to {
            let extents = self.extents(ino, at, LOOK_MAX)?;
            let new = extents.into_iter().filter(|(logical, _)| *logical >= at);
            let before = found.len();
            found.extend(new.take_while(|(logical, _)| logical * (BLOCK as u64) < to));
            match found[before..].last() {
                Some((logical, extent)) => at = logical + extent.blocks(),
                None => break,
            }
        }
        Ok(found)
    }

    /// Whether somebody has a file open.
    pub fn is_open(&self, ino: Ino) -> bool {
        let open = self.staged.files.get(&ino);
        open.is_some_and(|open| open.handles > 0)
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
        // Only whole extents go.
        let mut extents = self.extents_before(ino, inode.head, to)?;
        let end =
            |(logical, extent): &(u64, Extent)| logical * BLOCK as u64 + u64::from(extent.bytes);
        extents.retain(|extent| end(extent) <= to && end(extent) < inode.written);
        Ok(extents.last().map(end).map(|to| Spent {
            ino,
            entry: None,
            from: inode.head,
            to,
            is_copied: retention.is_copied,
            mark: Mark::Extents(extents.clone()),
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

    /// The bytes of a ring directory's files, if all are counted. One look counts some; if it is needed `now`, all.
    fn ring_bytes(&mut self, parent: Ino, now: bool) -> Result<Option<u64>> {
        loop {
            let ring = self.policy.rings.0.entry(parent).or_insert_with(|| Ring {
                counted_to: Some(0),
                ..Ring::default()
            });
            let Some(counted_to) = ring.counted_to else {
                let staged = self
                    .staged
                    .files
                    .iter()
                    .filter(|(ino, _)| ring.stored.contains_key(ino));
                let held = staged.filter_map(|(_, open)| Some(open.staging.as_ref()?.held()));
                return Ok(Some(ring.bytes + held.sum::<u64>()));
            };
            let entries = self.entries(parent, counted_to, LOOK_MAX)?;
            let last = entries.last().map(|entry| entry.id);
            let is_end = entries.len() < LOOK_MAX;
            for entry in entries
                .iter()
                .filter(|entry| entry.file_type == FileType::Regular)
            {
                // What cannot be read stays, and hinders no other.
                let stored = self.inode(entry.ino).map_or(0, |inode| inode.stored);
                if let Some(ring) = self.policy.rings.0.get_mut(&parent) {
                    ring.add(entry.id, entry.ino, stored);
                }
            }
            if let Some(ring) = self.policy.rings.0.get_mut(&parent) {
                ring.counted_to = if is_end { None } else { last };
            }
            if !is_end && !now {
                return Ok(None);
            }
        }
    }

    /// The oldest files of a ring directory.
    fn spent_entries(
        &mut self,
        parent: Ino,
        retention: &Retention,
        now: bool,
    ) -> Result<Vec<Spent>> {
        let mut spent = Vec::new();
        let most = retention.bytes.unwrap_or(u64::MAX);
        let mut bytes = match retention.bytes {
            Some(_) => self.ring_bytes(parent, now)?.unwrap_or(0),
            None => 0,
        };
        if bytes <= most && retention.seconds.is_none() {
            return Ok(spent);
        }
        let before_ns = retention.seconds.map(|seconds| self.before(seconds));
        let mut files = self.entries(parent, 0, LOOK_MAX)?;
        files.retain(|entry| entry.file_type == FileType::Regular);
        // The newest of them stays, whatever comes behind.
        files.pop();
        for entry in files {
            // What cannot be read stays, and hinders no other.
            let Ok(inode) = self.attributes(entry.ino) else {
                continue;
            };
            let is_old = before_ns.is_some_and(|before_ns| inode.mtime_ns < before_ns);
            if bytes <= most && !is_old {
                break;
            }
            bytes = bytes.saturating_sub(inode.stored);
            spent.push(Spent {
                ino: entry.ino,
                entry: Some((parent, entry.name)),
                from: inode.head,
                to: inode.size,
                is_copied: retention.is_copied,
                mark: changed(&inode),
            });
        }
        Ok(spent)
    }

    /// Sets a retention, as an attribute and as a mark that a mount finds.
    pub(crate) fn set_retention(&mut self, ino: Ino, value: &[u8]) -> Result<Vec<Change>> {
        Retention::parse(value)?;
        match self.inode(ino)?.file_type {
            FileType::Regular | FileType::Directory => {}
            _ => return Err(Error::Invalid("only files and directories are retained")),
        }
        self.policy.retained.insert(ino);
        self.policy.rings.0.remove(&ino);
        Ok(vec![Change::Put(Key::retain(ino), Vec::new())])
    }

    /// Ends a retention.
    pub(crate) fn end_retention(&mut self, ino: Ino) -> Option<Change> {
        let was_there = self.policy.retained.remove(&ino);
        self.policy.rings.0.remove(&ino);
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

#[cfg(test)]
mod tests {
    use super::RETAIN_ATTRIBUTE;
    use crate::format::{Change, FileType, Ino, Key, BLOCK, ROOT_INO};
    use crate::testing::made;
    use crate::{FileSystem, Options, Owner, XattrMode};

    #[test]
    fn a_retention_that_cannot_be_read_stands_in_no_other_s_way() {
        let mut fs = FileSystem::mount(made(), Options::default(), 1).unwrap();
        let mut ring = |name: &[u8]| -> Ino {
            let file = fs.create(ROOT_INO, name, FileType::Regular, Owner::default(), 0);
            let file = file.unwrap();
            let kept = format!("bytes={}", 8 * BLOCK);
            fs.set_xattr(file, RETAIN_ATTRIBUTE, kept.as_bytes(), XattrMode::Any)
                .unwrap();
            file
        };
        let (bad, good) = (ring(b"bad"), ring(b"good"));
        fs.change(vec![Change::Put(Key::inode(bad), vec![0xff; 128])])
            .unwrap();
        for at in 0..100 {
            fs.write(good, at * BLOCK as u64, &[1; BLOCK]).unwrap();
            fs.fsync(good).unwrap();
        }
        fs.tick(2_000_000_000).unwrap();
        assert!(fs.attributes(good).unwrap().head > 0);
        assert!(fs.trouble().is_some());
    }
}
