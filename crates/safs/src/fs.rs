// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mounted file system: its parts, and the one way in which it changes.
//!
//! Every change is a batch: applied in memory at once, and queued for the log. What is in memory is therefore what recovery
//! would make of the log (INV-S6). The parts and who changes them:
//!
//! | part | is | changed by |
//! |---|---|---|
//! | `disk` | the only way to the device; after a failed write nothing is written any more | `log`, `commit` |
//! | `catalog`, `zones`, `ids` | what the log says | `apply`, and nobody else while it is mounted |
//! | `log` | where segments go, batches that wait | `log` |
//! | `roots` | which root records there are | `commit` |
//! | `staged` | bytes of files that no segment holds | `append`, and `log` when it wrote them |
//! | `policy` | what is done without being asked for | `housekeeping`, `retain`, `compaction` |

use crate::catalog::Catalog;
use crate::disk::{Disk, Geometry};
use crate::error::{At, Error, Result};
use crate::format::*;
use crate::layout::Layout;
use crate::lru::Lru;
use crate::options::Options;
use crate::rings::Rings;
use crate::staging::Staged;
use crate::victim::Cleaning;
use crate::zones::Zones;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use zoned::{ZoneId, ZonedDevice};

/// Where segments are written, and what waits for one.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Log {
    pub at: LogPosition,
    /// Where it goes on then.
    pub next: Option<ZoneId>,
    /// Whether a header in this zone names `next`, so that recovery finds it.
    pub next_is_named: bool,
    /// Where the zone's last segment starts.
    pub previous: u32,
    /// How long reading the log behind the root record would take, about.
    pub tail_ns: u64,
    /// Batches that no segment holds yet, and their bytes.
    pub pending: VecDeque<Records>,
    pub pending_bytes: usize,
    /// The last segment that was written, and the last that is durable.
    pub seq: u64,
    pub flushed_seq: u64,
    /// Memory of the segment that was written last.
    pub buffer: Vec<u8>,
}

/// Which root records there are.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Roots {
    /// The newest durable one.
    pub newest: u64,
    /// The number of the one that comes next.
    pub next: u64,
    /// Number of this mount.
    pub mount_gen: u64,
    /// The one that was mounted says that nothing was behind it.
    pub was_clean: bool,
}

/// What is done without being asked for.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Policy {
    /// Files and directories with a retention.
    pub retained: BTreeSet<Ino>,
    /// What the directories among them hold.
    pub rings: Rings,
    /// What is spent is being forgotten.
    pub is_retaining: bool,
    /// Making room before anyone asks failed; not tried again before so many bytes were accepted or died.
    pub room_retry_bytes: u64,
    /// The zone that is being emptied, a part for each call.
    pub cleaning: Option<Cleaning>,
    /// Bytes that were accepted and that died before housekeeping came last, and bytes that are to move for them while room
    /// is short.
    pub accepted_before: u64,
    pub died_before: u64,
    pub owed_bytes: u64,
    /// Why housekeeping failed last: no answer to any call.
    pub trouble: Option<String>,
}

/// What was done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of files accepted.
    pub accepted_bytes: u64,
    /// Bytes moved by compaction.
    pub moved_bytes: u64,
    /// Segments written.
    pub segments: u64,
    /// Root records written.
    pub roots: u64,
    /// Zones reset.
    pub resets: u64,
    /// Zones that compaction emptied.
    pub compacted: u64,
    /// Headers or nodes of which one copy was bad.
    pub copies_lost: u64,
    /// Times that housekeeping failed; `FileSystem::trouble` says why.
    pub troubles: u64,
}

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct FileSystem<D> {
    pub(crate) disk: Disk<D>,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    pub(crate) catalog: Catalog,
    pub(crate) zones: Zones,
    pub(crate) log: Log,
    pub(crate) roots: Roots,
    pub(crate) staged: Staged,
    pub(crate) policy: Policy,
    pub(crate) headers: Lru<(ZoneId, u32), Arc<Header>>,
    pub(crate) next_ino: u64,
    pub(crate) inodes: u64,
    /// Files whose end has to be checked before it is used.
    pub(crate) unverified: BTreeSet<Ino>,
    /// What was lost of the catalog, and what of it was found elsewhere.
    pub(crate) salvaged: Vec<String>,
    pub(crate) now_ns: i64,
    /// The sum of the wall clock's steps forward: it never goes back, as that does when it is set.
    pub(crate) steady_ns: i64,
    pub(crate) counters: Counters,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Says what time it is, in nanoseconds since 1970. Time never comes from anywhere else.
    pub fn set_time(&mut self, now_ns: i64) {
        let step_ns = now_ns.saturating_sub(self.now_ns).max(0);
        self.steady_ns = self.steady_ns.saturating_add(step_ns);
        self.now_ns = now_ns;
    }

    /// The device underneath.
    pub fn device(&self) -> &D {
        self.disk.device()
    }

    /// Why nothing can be written, if so.
    pub fn refusal(&self) -> Option<&str> {
        self.disk.refusal()
    }

    /// Why housekeeping failed last, if it did.
    pub fn trouble(&self) -> Option<&str> {
        self.policy.trouble.as_deref()
    }

    /// What was done since the mount.
    pub fn counters(&self) -> Counters {
        let lost = self.counters.copies_lost + self.catalog.nodes.copies_lost;
        Counters {
            copies_lost: lost,
            ..self.counters
        }
    }

    /// Bytes written to the device since the mount.
    pub fn device_bytes(&self) -> u64 {
        self.disk.written_blocks * BLOCK as u64
    }

    /// Bytes of files that no segment holds.
    pub fn held_bytes(&self) -> u64 {
        self.staged.waiting.bytes
    }

    /// The zone table.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// How the device is divided.
    pub fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    /// Zones of data that may be open at a time: where the reserved zones are written in order, one of the ring and one of
    /// nodes are open, too, each twice (INV-S11).
    pub(crate) fn open_max(&self) -> Option<u32> {
        let reserved = if self.superblock.is_in_order() { 4 } else { 0 };
        let open_max = self.disk.geometry().open_max?;
        Some(open_max.saturating_sub(reserved))
    }

    /// A segment's header, for those who look at the disk.
    pub fn segment(&mut self, zone: ZoneId, block: u32) -> Result<Header> {
        self.read_header(zone, block)
    }

    /// Every key of the catalog with its value, in order.
    pub fn each_key(&mut self, mut act: impl FnMut(&Key, &[u8])) -> Result {
        let mut from = Key::default();
        loop {
            let cells = self
                .catalog
                .scan(&mut self.disk, &from, &Key::last(), 1024)?;
            let Some(last) = cells.last() else {
                return Ok(());
            };
            let mut next = last.key.0.clone();
            next.push(0);
            from = Key(next);
            cells.iter().for_each(|cell| act(&cell.key, &cell.value));
        }
    }

    /// Refuses if nothing can be written.
    pub(crate) fn writable(&self) -> Result {
        match self.disk.refusal() {
            None => Ok(()),
            Some(_) => Err(Error::ReadOnly),
        }
    }

    /// What failed in the middle of a change: what is in memory is no more what the log says. (Writes that fail are
    /// remembered by the disk.)
    pub(crate) fn sticky<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error @ (Error::Device { .. } | Error::Corrupt { .. })) = &result {
            self.disk.refuse(error.to_string());
        }
        result
    }

    /// Applies a batch and queues it for the log.
    pub(crate) fn change(&mut self, batch: Vec<Change>) -> Result {
        if batch.is_empty() {
            return Ok(());
        }
        self.keep_leaves(&batch);
        self.apply(&batch)?;
        let mut records = Records::default();
        records.push(&batch);
        self.log.pending_bytes += records.bytes.len();
        self.log.pending.push_back(records);
        self.staged.dirty_since_ns.get_or_insert(self.steady_ns);
        Ok(())
    }

    /// Before a batch is applied: the leaves of its keys are kept for the root record. If there are too many, or one cannot
    /// be read, the root record reads it itself.
    pub(crate) fn keep_leaves(&mut self, batch: &[Change]) {
        for change in batch {
            if let Change::Put(key, _) | Change::Delete(key) = change {
                if !self.has_many_leaves() {
                    self.catalog.keep_leaf(&mut self.disk, key).unwrap_or(());
                }
            }
        }
    }

    /// Whether as many leaves have changed as may be kept: a root record is due.
    pub(crate) fn has_many_leaves(&self) -> bool {
        self.catalog.nodes.changing_bytes() >= self.options.changing_bytes
    }

    /// Applies a batch to what is in memory.
    pub(crate) fn apply(&mut self, batch: &[Change]) -> Result {
        for change in batch {
            self.policy.rings.note(change);
            match change {
                Change::Put(key, value) => self.catalog.put(key.clone(), value.clone()),
                Change::Delete(key) => self.catalog.delete(key.clone()),
                Change::Zone(zone, entry) => self.zones.change(*zone, |old| *old = *entry)?,
                Change::Live(zone, delta) => self.zones.live(*zone, *delta)?,
                Change::Data(_) => {}
            }
        }
        Ok(())
    }

    /// The value of a key.
    pub(crate) fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.catalog.get(&mut self.disk, key)
    }

    /// An inode as the catalog has it.
    pub(crate) fn inode(&mut self, ino: Ino) -> Result<Inode> {
        let bytes = self.get(&Key::inode(ino))?.ok_or(Error::NotFound)?;
        Inode::decode(&bytes).at(|| format!("inode {}", ino.0))
    }

    /// A directory's inode.
    pub(crate) fn directory(&mut self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode.file_type {
            FileType::Directory => Ok(inode),
            _ => Err(Error::NotDirectory),
        }
    }

    /// A regular file's inode; its end is checked if it has to be.
    pub(crate) fn regular(&mut self, ino: Ino) -> Result<Inode> {
        self.verify_end(ino)?;
        let inode = self.inode(ino)?;
        match inode.file_type {
            FileType::Regular => Ok(inode),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only regular files hold data")),
        }
    }

    /// Extents of a file from the one that holds or follows a logical block, at most `limit`.
    pub(crate) fn extents(
        &mut self,
        ino: Ino,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Extent)>> {
        let low = Key::extent(ino, 0);
        let first = self
            .catalog
            .floor(&mut self.disk, &low, &Key::extent(ino, from))?;
        let start = first.map_or(Key::extent(ino, from), |cell| cell.key);
        let end = Key::behind(ino, Kind::Extent);
        let cells = self.catalog.scan(&mut self.disk, &start, &end, limit)?;
        cells.into_iter().map(|cell| extent_of(&cell)).collect()
    }

    /// The last extent of a file.
    pub(crate) fn last_extent(&mut self, ino: Ino) -> Result<Option<(u64, Extent)>> {
        let (low, high) = (Key::extent(ino, 0), Key::extent(ino, u64::MAX));
        let last = self.catalog.floor(&mut self.disk, &low, &high)?;
        last.map(|cell| extent_of(&cell)).transpose()
    }
}

/// Reads an extent's key and value.
pub(crate) fn extent_of(cell: &Cell) -> Result<(u64, Extent)> {
    let place = || format!("{:?}", cell.key);
    let logical = cell
        .key
        .number()
        .ok_or(Damage("its key has no number"))
        .at(place)?;
    let extent = Extent::decode(&cell.value).at(place)?;
    Ok((logical, extent))
}
