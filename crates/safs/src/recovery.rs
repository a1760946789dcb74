// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounting. After a crash the log behind the newest root record is read forward; the decision table with its rows R1 to
//! R26 is in docs/design/safs-design.md, and the branches name the rows.
//!
//! No data are read: a file whose last extents were perhaps never written is remembered (R8), and its end is checked when
//! it is first used.

use crate::budget::Claim;
use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::error::{At, Error, Result};
use crate::format::*;
use crate::fs::{Counters, FileSystem, Log, Policy, Roots};
use crate::layout::{self, Layout};
use crate::lru::Lru;
use crate::node_store::NodeStore;
use crate::options::Options;
use crate::roots::lost_record;
pub use crate::roots::{roots, superblock};
use crate::staging::Staged;
use crate::zones::Zones;
use std::collections::{BTreeSet, VecDeque};
use zoned::{ZoneId, ZonedDevice};

/// Orphans listed at a time.
const ORPHANS_AT_ONCE: usize = 256;
/// Mounts that may have left something if root records are lost: more than there are places for records.
const MOUNTS_LOST_MAX: u64 = 1 << 16;

/// What reading the log forward found.
struct Forward {
    flushed_seq: u64,
    /// Where the log was when the root record was written.
    start: ZoneId,
    /// Extents that were put and never flushed: their data may be missing.
    puts: Vec<Put>,
    next: Option<(ZoneId, u64)>,
    next_is_named: bool,
    previous: u32,
    /// A segment that was durable cannot be found (R7).
    lost: Option<String>,
    /// A segment names a newer durable root record than the one that was found (R26).
    newer: Option<u64>,
    /// Something was written after the root record.
    is_dirty: bool,
}

/// An extent of which only the record is known to be there.
struct Put {
    ino: Ino,
    logical: u64,
    /// What was there before, and durable.
    old: Option<Extent>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Mounts a file system. Time is in nanoseconds since 1970.
    pub fn mount(device: D, options: Options, now_ns: i64) -> Result<Self> {
        FileSystem::mount_slowly(device, options, now_ns, |_| ())
    }

    /// The same; `progress` is told each zone that is read, which is done only for a repair and if a part of the catalog is
    /// lost.
    pub fn mount_slowly(
        device: D,
        options: Options,
        now_ns: i64,
        mut progress: impl FnMut(ZoneId),
    ) -> Result<Self> {
        let mut disk = Disk::new(device)?;
        let superblock = superblock(&mut disk)?;
        let layout = layout::suits(&disk, &superblock)?;
        let mut failure = Error::corrupt("the root records", "none can be read");
        let found = roots(&mut disk, &superblock)?;
        let mut doubt = lost_record(&mut disk, layout, &found)?;
        for (root, _) in found {
            let nodes = NodeStore::new(superblock.uuid, layout, options.node_cache_bytes);
            let (zones, catalog) = match read_image(&mut disk, &superblock, layout, &root, nodes) {
                Ok(image) => image,
                Err(error) => {
                    // R2: the one before, and then with doubts.
                    doubt = Some(error.to_string());
                    failure = error;
                    continue;
                }
            };
            let mut fs = FileSystem {
                headers: Lru::new(options.header_cache_bytes),
                options,
                layout,
                catalog,
                zones,
                log: Log {
                    at: root.log,
                    next: None,
                    next_is_named: false,
                    previous: root.log.block,
                    tail_ns: 0,
                    pending: VecDeque::new(),
                    pending_bytes: 0,
                    seq: root.seq,
                    flushed_seq: root.seq,
                    buffer: Vec::new(),
                },
                roots: Roots {
                    newest: root.root_seq,
                    next: layout.root_behind(&disk, root.root_seq)?,
                    mount_gen: root.mount_gen,
                    was_clean: root.clean,
                },
                staged: Staged::default(),
                policy: Policy::default(),
                next_ino: root.next_ino,
                inodes: root.inodes,
                unverified: BTreeSet::new(),
                salvaged: Vec::new(),
                now_ns,
                steady_ns: 0,
                counters: Counters::default(),
                superblock,
                disk,
            };
            if fs.options.repair {
                fs.salvage(&mut progress)?;
            }
            fs.recover(doubt)?;
            return Ok(fs);
        }
        Err(failure)
    }

    /// Something newer was durable than what was found. Nothing is written then, unless it is a repair that goes on from what
    /// there is.
    fn doubt_all(&mut self, why: String) {
        match self.options.repair {
            true => self.salvaged.push(why),
            false => self
                .disk
                .refuse(format!("{why}; safs fsck goes on from what there is")),
        }
    }

    /// Brings memory to what the log says, and makes a new root record before anything else is written (R18). `doubt` says
    /// that a newer root record is lost (R2, R26).
    fn recover(&mut self, doubt: Option<String>) -> Result {
        let forward = self.roll_forward()?;
        let newer = forward.newer.map(|newer| {
            let newest = self.roots.newest;
            format!("root record {newer} was durable, and {newest} is the newest that is found")
        });
        let doubt = doubt.or(newer);
        // INV-S3: of the mounts that wrote what is lost, segments may be left.
        self.roots.mount_gen += doubt.as_ref().map_or(0, |_| MOUNTS_LOST_MAX);
        doubt
            .into_iter()
            .chain(forward.lost)
            .for_each(|why| self.doubt_all(why));
        self.log.flushed_seq = forward.flushed_seq;
        self.log.next_is_named = forward.next_is_named;
        self.log.previous = forward.previous;
        for put in &forward.puts {
            self.doubt(put.ino, put.logical)?;
        }
        for put in &forward.puts {
            self.restore_fragment(put)?;
        }
        let marks = (
            Key::first(Ino(0), Kind::Unverified),
            Key::behind(Ino(0), Kind::Unverified),
        );
        let marks = self
            .catalog
            .scan(&mut self.disk, &marks.0, &marks.1, usize::MAX)?;
        self.unverified = marks
            .iter()
            .filter_map(|cell| cell.key.number().map(Ino))
            .collect();
        self.load_retained()?;
        if self.options.read_only {
            self.disk.refuse("mounted read-only");
        }
        if self.disk.refusal().is_some() {
            return Ok(());
        }
        self.roots.mount_gen += 1;
        self.zones.begin(self.roots.mount_gen);
        self.settle_zones(forward.next, forward.is_dirty)?;
        self.log.next = match forward.next {
            // Only a zone of the log: a random-write zone has epoch 0, which a forged header can name.
            Some((zone, epoch)) => {
                let entry = self.zones.get(zone)?;
                let is_it = entry.epoch == epoch
                    && (entry.kind, entry.stage) == (ZoneKind::Log, ZoneStage::Open);
                is_it.then_some(zone)
            }
            None => None,
        };
        if self.log.next.is_none() {
            self.log.next_is_named = false;
            self.log.next = self.open_zone(ZoneKind::Log, Ino(0))?;
        }
        self.root_commit(false)?;
        self.finish_deletions()
    }

    /// Reads the log behind the root record.
    fn roll_forward(&mut self) -> Result<Forward> {
        let mut forward = Forward {
            flushed_seq: self.log.flushed_seq,
            start: self.log.at.zone,
            puts: Vec::new(),
            next: None,
            next_is_named: false,
            previous: self.log.at.block,
            lost: None,
            newer: None,
            is_dirty: !self.roots.was_clean,
        };
        let mut headers = Vec::new();
        while let Some(header) = self.next_header(&mut forward)? {
            self.log.at = LogPosition {
                zone: header.zone,
                block: header.block + header.segment_blocks(),
                epoch: header.epoch,
                log_seq: header.log_seq + 1,
            };
            self.log.seq = header.seq;
            forward.is_dirty = true;
            forward.flushed_seq = forward.flushed_seq.max(header.flushed_seq);
            forward.previous = header.block;
            forward.next_is_named = header.next_zone != NO_ZONE;
            forward.next = forward
                .next_is_named
                .then_some((header.next_zone, header.next_epoch));
            headers.push(header);
        }
        let first_ino = self.next_ino;
        for (i, header) in headers.iter().enumerate() {
            let is_durable = header.seq <= forward.flushed_seq;
            for batch in header
                .records
                .batches()
                .at(|| format!("log segment {}", header.log_seq))?
            {
                self.count_inodes(&batch, first_ino);
                for change in &batch {
                    self.follow_write(change)?;
                    if !is_durable {
                        self.note_put(change, &mut forward)?;
                    }
                }
                self.apply(&batch)?;
            }
            let end = header.block + header.segment_blocks();
            self.zones.change(header.zone, |entry| {
                *entry = ZoneEntry {
                    epoch: header.epoch,
                    stage: ZoneStage::Open,
                    kind: ZoneKind::Log,
                    write_blocks: end,
                    ..*entry
                };
            })?;
            if headers
                .get(i + 1)
                .is_some_and(|next| next.zone != header.zone)
            {
                self.seal_in_table(header.zone)?;
            }
        }
        // The root record's own zone, if the log left it before the first segment.
        let start = forward.start;
        if headers.first().is_some_and(|first| first.zone != start) {
            self.seal_in_table(start)?;
        }
        Ok(forward)
    }

    /// Remembers an extent whose data may never have arrived, and the fragment that it supersedes.
    fn note_put(&mut self, change: &Change, forward: &mut Forward) -> Result {
        let Change::Put(key, _) = change else {
            return Ok(());
        };
        let (Some(ino), Some(logical), true) = (
            key.ino(),
            key.number(),
            key.kind() == Some(Kind::Extent as u8),
        ) else {
            return Ok(());
        };
        let old = self
            .get(key)?
            .map(|value| Extent::decode(&value).at(|| format!("{key:?}")));
        let old = old.transpose()?.filter(|old| old.is_fragment);
        forward.puts.push(Put { ino, logical, old });
        Ok(())
    }

    /// The log's next header: behind the last one, or at the start of the zone that the last one names.
    fn next_header(&mut self, forward: &mut Forward) -> Result<Option<Header>> {
        let at = self.log.at;
        let capacity = self.disk.geometry().capacity_blocks;
        if at.block < capacity {
            if let Some(header) = self.log_header(at.zone, at.block, at.epoch) {
                return Ok(Some(header));
            }
        }
        if let Some((zone, epoch)) = forward.next {
            if self.zones.get(zone).is_ok() {
                if let Some(header) = self.log_header(zone, 0, epoch) {
                    return Ok(Some(header));
                }
            }
        }
        // Neither first header is there. One look further: a copy (R5), or proof that something is missing (R7).
        if at.block < capacity {
            if let Some(header) = self.look_ahead(forward)? {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// A header that continues the log (R4); anything else is as if it were not there (R6, R17, R20).
    fn log_header(&mut self, zone: ZoneId, block: u32, epoch: u64) -> Option<Header> {
        let header = self.read_header(zone, block).ok()?;
        self.continues_log(&header, zone, block, epoch)
            .then_some(header)
    }

    fn continues_log(&self, header: &Header, zone: ZoneId, block: u32, epoch: u64) -> bool {
        header.is_log
            && (header.zone, header.block, header.epoch) == (zone, block, epoch)
            && header.log_seq == self.log.at.log_seq
            && header.seq <= COUNT_MAX
            && header.mount_gen == self.roots.mount_gen
            && header.root_seq == self.roots.newest
            && header.segment_blocks() <= self.disk.geometry().capacity_blocks - block
    }

    fn look_ahead(&mut self, forward: &mut Forward) -> Result<Option<Header>> {
        let at = self.log.at;
        let end = self
            .readable_end(at.zone)?
            .min(at.block.saturating_add(SEGMENT_BLOCKS_MAX));
        let uuid = self.superblock.uuid;
        for block in at.block..end {
            let Ok(bytes) = self.disk.read_zone(at.zone, block, 1) else {
                continue;
            };
            if Header::length(&bytes, &uuid).is_err() {
                continue;
            }
            let Ok(header) = self.read_header(at.zone, block) else {
                continue;
            };
            if self.continues_log(&header, at.zone, at.block, at.epoch) {
                self.counters.copies_lost += 1;
                return Ok(Some(header));
            }
            if (header.zone, header.block, header.epoch) == (at.zone, block, at.epoch)
                && header.root_seq > self.roots.newest
            {
                forward.newer = Some(header.root_seq);
                break;
            }
            let is_later = header.is_log
                && header.epoch == at.epoch
                && header.mount_gen == self.roots.mount_gen;
            if is_later && header.log_seq > at.log_seq && header.flushed_seq > self.log.seq {
                forward.lost.get_or_insert_with(|| {
                    format!("log segment {} was durable and cannot be read", at.log_seq)
                });
                break;
            }
        }
        Ok(None)
    }

    /// A zone that the log left.
    fn seal_in_table(&mut self, zone: ZoneId) -> Result {
        let sealed_at = self.roots.newest as u32;
        self.zones.change(zone, |entry| {
            entry.stage = ZoneStage::Sealed;
            entry.sealed_at = sealed_at;
        })
    }

    fn count_inodes(&mut self, batch: &[Change], first_ino: u64) {
        for change in batch {
            match change {
                Change::Put(key, _) if key.kind() == Some(Kind::Inode as u8) => {
                    let number = key.ino().map_or(0, |ino| ino.0);
                    // Numbers are never used again: the first record of a number behind the last is a new inode.
                    if number >= self.next_ino.max(first_ino) {
                        // A root record says no larger one.
                        self.next_ino = number.saturating_add(1).min(crate::format::COUNT_MAX);
                        self.inodes = self.inodes.saturating_add(1);
                    }
                }
                Change::Delete(key) if key.kind() == Some(Kind::Inode as u8) => {
                    self.inodes = self.inodes.saturating_sub(1);
                }
                _ => {}
            }
        }
    }

    /// Zones outside the log are at least written to the end of what the log names.
    fn follow_write(&mut self, change: &Change) -> Result {
        let Change::Put(key, value) = change else {
            return Ok(());
        };
        if key.kind() != Some(Kind::Extent as u8) {
            return Ok(());
        }
        let extent = Extent::decode(value).at(|| format!("{key:?}"))?;
        if extent.is_hole {
            return Ok(());
        }
        let end = (extent.offset + u64::from(extent.bytes)).div_ceil(BLOCK as u64);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        self.zones.change(extent.zone, |entry| {
            entry.write_blocks = entry.write_blocks.max(end)
        })
    }

    /// A file's bytes from a logical block on may never have been written (R8, R21).
    fn doubt(&mut self, ino: Ino, logical: u64) -> Result {
        if self.get(&Key::inode(ino))?.is_none() {
            return Ok(());
        }
        let key = Key::unverified(ino);
        let before = self.get(&key)?.and_then(|value| value.try_into().ok());
        let before = before.map_or(u64::MAX, u64::from_le_bytes);
        self.change(vec![Change::Put(
            key,
            before.min(logical).to_le_bytes().to_vec(),
        )])
    }

    /// A fragment that was durable, and whose block was written again but never arrived, counts again (H5 of the design's
    /// hazards). This cannot wait: with the next root record the fragment's zone may go.
    fn restore_fragment(&mut self, put: &Put) -> Result {
        let Some(old) = put.old else {
            return Ok(());
        };
        let Some(value) = self.get(&Key::extent(put.ino, put.logical))? else {
            return Ok(());
        };
        let extent = Extent::decode(&value).at(|| format!("inode {}", put.ino.0))?;
        let first = Extent {
            bytes: extent.bytes.min(BLOCK as u32),
            ..extent
        };
        match self.first_bad(&first)? {
            Some(_) => self.cut(put.ino, put.logical, &extent, 0, Some(old)),
            None => Ok(()),
        }
    }

    /// Brings the table's open zones together with what the device says of them.
    fn settle_zones(&mut self, next: Option<(ZoneId, u64)>, is_dirty: bool) -> Result {
        let capacity = self.disk.geometry().capacity_blocks;
        let keeps = self.disk.keeps_write_pointers();
        let entries: Vec<(ZoneId, ZoneEntry)> = self
            .zones
            .iter()
            .map(|(zone, entry)| (zone, *entry))
            .collect();
        for (zone, entry) in entries {
            if entry.kind == ZoneKind::Random || entry.stage != ZoneStage::Open {
                self.set_known_pointer(zone, &entry)?;
                continue;
            }
            if self.retire_if_bad(zone)? {
                continue;
            }
            let is_log = zone == self.log.at.zone;
            let is_next = next.is_some_and(|(next, epoch)| next == zone && epoch == entry.epoch);
            if entry.kind == ZoneKind::Log && !is_log {
                // R10: named as the log's next zone and never entered. A lost attempt goes when it is opened (R14).
                if entry.live_bytes == 0 && !is_next {
                    self.zones.change(zone, |entry| *entry = ZoneEntry::FREE)?;
                    continue;
                }
                if is_next && self.disk.write_pointer(zone)? != 0 {
                    self.disk.reset(zone)?;
                }
                continue;
            }
            if is_log {
                self.resume_log(zone, &entry)?;
                continue;
            }
            let pointer = self.disk.write_pointer(zone)?;
            let at = entry.write_blocks.max(if keeps { pointer } else { 0 });
            let at = at.min(capacity);
            self.zones.change(zone, |entry| entry.write_blocks = at)?;
            // R12, R13, R23: where the device and the log disagree, or the device cannot say, nothing more is written.
            let is_lost = if keeps {
                pointer < entry.write_blocks
            } else {
                is_dirty
            };
            if is_lost || at == capacity {
                self.set_known_pointer(
                    zone,
                    &ZoneEntry {
                        write_blocks: at,
                        ..entry
                    },
                )?;
                self.seal(zone)?;
            } else {
                self.set_known_pointer(zone, &entry)?;
                self.zones.left.push(zone);
            }
        }
        Ok(())
    }

    /// A device that keeps no write pointers learns what the table knows.
    pub(crate) fn set_known_pointer(&mut self, zone: ZoneId, entry: &ZoneEntry) -> Result {
        if self.disk.keeps_write_pointers() || entry.kind == ZoneKind::Random {
            return Ok(());
        }
        let is_full = matches!(entry.stage, ZoneStage::Sealed | ZoneStage::Dying);
        let capacity = self.disk.geometry().capacity_blocks;
        let at = if is_full {
            capacity
        } else {
            entry.write_blocks
        };
        self.disk.set_write_pointer(zone, at)
    }

    /// Where the log goes on: behind its last segment, and behind what a lost one left (R11).
    fn resume_log(&mut self, zone: ZoneId, entry: &ZoneEntry) -> Result {
        let capacity = self.disk.geometry().capacity_blocks;
        if !self.disk.keeps_write_pointers() {
            return self.set_known_pointer(zone, entry);
        }
        // Also where the last segment was torn (R8): its header is there, the rest is not, and files named in it are cut
        // when they are first used. That what was flushed is gone (R12) shows in its checksums, as EIO (R9).
        let pointer = self.disk.write_pointer(zone)?;
        let at = pointer.min(capacity);
        self.log.at.block = at;
        if at != entry.write_blocks {
            self.log.next_is_named = false;
        }
        self.zones.change(zone, |entry| entry.write_blocks = at)
    }

    /// Deletes what had no name when the power failed or the file system was unmounted.
    fn finish_deletions(&mut self) -> Result {
        loop {
            let (first, behind) = (
                Key::first(Ino(0), Kind::Orphan),
                Key::behind(Ino(0), Kind::Orphan),
            );
            let cells = self
                .catalog
                .scan(&mut self.disk, &first, &behind, ORPHANS_AT_ONCE)?;
            let orphans: Vec<Ino> = cells
                .iter()
                .filter_map(|cell| cell.key.number().map(Ino))
                .collect();
            if orphans.is_empty() {
                return Ok(());
            }
            for ino in orphans {
                match self.delete_inode(ino) {
                    Err(Error::NotFound) => self.change(vec![Change::Delete(Key::orphan(ino))])?,
                    other => other?,
                }
                self.afford(Claim::Deletion)?;
            }
        }
    }

    /// Leaves a root record that says that nothing is behind it. Gives the device back.
    pub fn unmount(mut self) -> Result<D> {
        if self.disk.refusal().is_none() {
            self.sync()?;
            let unnamed: Vec<Ino> = self.staged.files.keys().copied().collect();
            for ino in unnamed {
                if self.inode(ino).is_ok_and(|inode| inode.nlink == 0) {
                    self.delete_inode(ino)?;
                }
            }
            self.root_commit(true)?;
        }
        Ok(self.disk.into_device())
    }
}

/// Zone table and catalog of a root record (R2: from either copy).
fn read_image<D: ZonedDevice>(
    disk: &mut Disk<D>,
    superblock: &Superblock,
    layout: Layout,
    root: &Root,
    mut nodes: NodeStore,
) -> Result<(Zones, Catalog)> {
    let place = || format!("the image of root record {}", root.root_seq);
    let table_bytes = superblock.zones as usize * ZONE_ENTRY_BYTES;
    let map_bytes = layout::map_bytes(nodes.slots());
    let blocks = root.image.blocks as usize;
    let end = root.image.at.0.saturating_add(blocks as u64);
    let is_elsewhere = layout.in_order.is_some() && root.image.at != layout.image(root.root_seq);
    if is_elsewhere || end > superblock.mirror_blocks || blocks * BLOCK < table_bytes + map_bytes {
        return Err(Error::corrupt(
            place(),
            "it cannot be where the record says",
        ));
    }
    let mut image = vec![0; blocks * BLOCK];
    let mut is_good = false;
    for distance in [0, superblock.mirror_blocks] {
        let read = disk.read(root.image.at + distance, &mut image);
        is_good = read.is_ok() && crc32c::crc32c(&image) == root.image.crc;
        if is_good {
            break;
        }
    }
    if !is_good {
        return Err(Error::corrupt(place(), "both copies are bad"));
    }
    let capacity_blocks = disk.geometry().capacity_blocks;
    let zones = Zones::decode(
        &image[..table_bytes],
        superblock.random_zones,
        capacity_blocks,
    )?;
    nodes.decode_map(&image[table_bytes..table_bytes + map_bytes])?;
    nodes.look(disk)?;
    let is_outside = zones.get(root.log.zone).is_err() || root.log.block > capacity_blocks;
    if root.log.zone.0 < superblock.random_zones || is_outside {
        return Err(Error::corrupt(
            place(),
            "the log cannot be where the record says",
        ));
    }
    Ok((zones, Catalog::new(nodes, root.catalog)))
}
