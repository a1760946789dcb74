// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing segments: those of the log, and those outside it that hold only data.
//!
//! INV-S2: the log is one chain: in a zone each segment follows the last, and a header names the zone where the chain goes
//! on before that zone is written. INV-S5: what a file contains is what batches of the log say; a segment outside the log
//! counts only when one names it.

use crate::charge::LOG_ROOM_MIN;
use crate::error::{unless_full, Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::{ZoneId, ZonedDevice};

/// With more files in memory than this, none keeps the room of what it had to write before.
const BUFFERS_KEPT: usize = 16;
/// A zone with at most so many blocks left is filled up, not finished.
const PADDING_MAX: u32 = 64;
/// Blocks of a header that batches alone may fill: what recovery reads in one piece.
const RECORD_BLOCKS_MAX: u32 = 128;
/// Blocks that have to be left in the log beside batches, or these go into a root record.
const BATCHES_LEAVE_BLOCKS: u64 = 8;
/// What reading one header more costs recovery: a short seek and half a turn.
const HEADER_READ_NS: u64 = 10_000_000;
/// The same if it is in what was read with the last one.
const HEADER_NEAR_NS: u64 = 250_000;

/// A segment in the making. Its lengths are fixed first, because places in it depend on them.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    header_blocks: u32,
    records_bytes: usize,
    payload_blocks: usize,
    pub records: Records,
    checksums: Vec<u32>,
    fragments: Vec<u8>,
}

impl Draft {
    /// `bytes` is the last segment's memory: what is allocated anew costs as much again as copying into it.
    pub fn new(
        mut bytes: Vec<u8>,
        records_bytes: usize,
        payload_blocks: usize,
        fragments_bytes: usize,
    ) -> Self {
        let header_blocks = Header::blocks_for(records_bytes, payload_blocks, fragments_bytes);
        let blocks = header_blocks as usize * 2 + payload_blocks;
        bytes.clear();
        bytes.reserve(blocks * BLOCK);
        bytes.resize(header_blocks as usize * BLOCK, 0);
        Draft {
            bytes,
            header_blocks,
            records_bytes,
            payload_blocks,
            records: Records::default(),
            checksums: Vec::with_capacity(payload_blocks),
            fragments: Vec::with_capacity(fragments_bytes),
        }
    }

    /// Adds whole blocks. Returns the first one's distance from the segment's start, in blocks.
    pub fn payload(&mut self, data: &[u8]) -> u32 {
        let at = self.header_blocks + u32::try_from(self.checksums.len()).unwrap_or(u32::MAX);
        self.checksums
            .extend(data.chunks_exact(BLOCK).map(crc32c::crc32c));
        self.bytes.extend_from_slice(data);
        at
    }

    /// Adds a fragment. Returns its distance from the segment's start, in bytes.
    pub fn fragment(&mut self, data: &[u8]) -> u64 {
        let at =
            Header::fragments_at(self.records_bytes, self.payload_blocks) + self.fragments.len();
        self.fragments.extend_from_slice(data);
        self.fragments
            .resize(self.fragments.len().next_multiple_of(8), 0);
        at as u64
    }
}

/// What of a file is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub ino: Ino,
    /// Also what is behind the last whole block.
    pub with_tail: bool,
}

/// How much of a part fits.
struct Share {
    ino: Ino,
    blocks: u32,
    tail_bytes: usize,
    old: Option<Extent>,
}

impl Share {
    fn records_bytes(&self) -> usize {
        let extent = record_bytes(17, EXTENT_BYTES);
        let live = record_bytes(4, 8);
        let extents = usize::from(self.blocks > 0) + usize::from(self.tail_bytes > 0);
        let lives = 1 + usize::from(self.old.is_some());
        extents * extent + lives * live + record_bytes(9, INODE_BYTES)
    }
}

/// What a log segment will hold.
#[derive(Default)]
struct Plan {
    batches: usize,
    shares: Vec<Share>,
    records_bytes: usize,
    payload_blocks: u32,
    fragments_bytes: usize,
    /// Something did not fit.
    is_full: bool,
}

impl Plan {
    fn blocks(&self) -> u32 {
        let payload = self.payload_blocks as usize;
        2 * Header::blocks_for(self.records_bytes, payload, self.fragments_bytes)
            + self.payload_blocks
    }

    /// Takes as much of a file as fits into `room` blocks.
    fn take(&mut self, mut share: Share, tail_bytes: usize, room: u32) {
        let ready = share.blocks;
        // The headers of more would take room that this segment's do not.
        share.blocks = ready.min(room);
        let before = (
            self.records_bytes,
            self.payload_blocks,
            self.fragments_bytes,
        );
        loop {
            share.tail_bytes = if share.blocks == ready { tail_bytes } else { 0 };
            self.records_bytes = before.0 + share.records_bytes();
            self.payload_blocks = before.1 + share.blocks;
            self.fragments_bytes = before.2 + share.tail_bytes.next_multiple_of(8);
            let needed = self.blocks();
            if needed <= room {
                break;
            }
            if share.blocks == 0 {
                (
                    self.records_bytes,
                    self.payload_blocks,
                    self.fragments_bytes,
                ) = before;
                self.is_full = true;
                return;
            }
            share.blocks -= (needed - room).min(share.blocks);
        }
        self.is_full |= share.blocks < ready;
        if share.blocks > 0 || share.tail_bytes > 0 {
            self.shares.push(share);
        } else {
            (
                self.records_bytes,
                self.payload_blocks,
                self.fragments_bytes,
            ) = before;
        }
    }
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Writes all batches that wait, and the parts, in as many log segments as it takes.
    pub(crate) fn push(&mut self, parts: &[Part]) -> Result {
        let result = self.push_all(parts);
        self.sticky(result)
    }

    fn push_all(&mut self, parts: &[Part]) -> Result {
        // Batches are written twice, in both headers. Where the log is short they go into a root record.
        let blocks = 2 * self.log.pending_bytes.div_ceil(BLOCK) as u64;
        if blocks > 0 && blocks + BATCHES_LEAVE_BLOCKS > self.log_blocks_left() {
            unless_full(self.root_commit(false))?;
        }
        while self.has_to_push(parts) {
            let room = self.log_room()?;
            let plan = self.plan(parts, room);
            if plan.batches == 0 && plan.shares.is_empty() {
                if !plan.is_full {
                    return Ok(());
                }
                if self.log.at.block == 0 {
                    return Err(Error::corrupt("the log", "a batch is larger than a zone"));
                }
                self.move_log()?;
                continue;
            }
            self.write_log_segment(&plan)?;
        }
        Ok(())
    }

    fn has_to_push(&self, parts: &[Part]) -> bool {
        let waits = |part: &Part| {
            let staging = self.staged.of(part.ino);
            staging.is_some_and(|staging| {
                staging.ready_blocks() > 0 || part.with_tail && staging.unlogged() > 0
            })
        };
        !self.log.pending.is_empty() || parts.iter().any(waits)
    }

    fn plan(&self, parts: &[Part], room: u32) -> Plan {
        let mut plan = Plan::default();
        for records in &self.log.pending {
            let bytes = plan.records_bytes + records.bytes.len();
            let blocks = Header::blocks_for(bytes, 0, 0);
            if blocks > RECORD_BLOCKS_MAX.min(room / 2) {
                plan.is_full = true;
                return plan;
            }
            plan.records_bytes = bytes;
            plan.batches += 1;
        }
        for part in parts {
            let staging = self.staged.of(part.ino);
            let Some(staging) = staging.filter(|staging| staging.unlogged() > 0) else {
                continue;
            };
            let share = Share {
                ino: part.ino,
                blocks: staging.ready_blocks(),
                tail_bytes: 0,
                old: staging.tail,
            };
            let tail_bytes = if part.with_tail {
                staging.tail_bytes()
            } else {
                0
            };
            plan.take(share, tail_bytes, room);
            if plan.is_full {
                break;
            }
        }
        plan
    }

    fn write_log_segment(&mut self, plan: &Plan) -> Result {
        let payload_blocks = plan.payload_blocks as usize;
        let mut draft = self.draft(plan.records_bytes, payload_blocks, plan.fragments_bytes);
        for records in self.log.pending.drain(..plan.batches) {
            self.log.pending_bytes -= records.bytes.len();
            draft.records.append(&records);
        }
        let (zone, block) = (self.log.at.zone, self.log.at.block);
        let mut tails = Vec::with_capacity(plan.shares.len());
        for share in &plan.shares {
            let (batch, tail) = self.data_batch(share, &mut draft, zone, block)?;
            self.keep_leaves(&batch);
            self.apply(&batch)?;
            draft.records.push(&batch);
            tails.push(tail);
        }
        let blocks = self.write_segment(zone, block, draft, true)?;
        self.log.at.block += blocks;
        for (share, tail) in plan.shares.iter().zip(tails) {
            self.written(share.ino, share.blocks, tail);
        }
        Ok(())
    }

    /// A share's data go into the draft; the answer is the batch that says so.
    fn data_batch(
        &mut self,
        share: &Share,
        draft: &mut Draft,
        zone: ZoneId,
        block: u32,
    ) -> Result<(Vec<Change>, Option<Extent>)> {
        let ino = share.ino;
        let mut inode = self.inode(ino)?;
        let open = self.staged.of(ino);
        let staging = open.expect("the plan has only files with staged bytes");
        let whole = share.blocks as usize * BLOCK;
        let logical = staging.base / BLOCK as u64;
        let mut batch = Vec::with_capacity(5);
        if share.blocks > 0 {
            let at = block + draft.payload(&staging.bytes[..whole]);
            let extent = blocks_at(zone, at, share.blocks, block);
            batch.push(Change::Put(Key::extent(ino, logical), extent.encode()));
        }
        let tail = &staging.bytes[whole..whole + share.tail_bytes];
        let tail = (!tail.is_empty()).then(|| fragment_at(zone, block, draft.fragment(tail), tail));
        if let Some(tail) = tail {
            let key = Key::extent(ino, logical + u64::from(share.blocks));
            batch.push(Change::Put(key, tail.encode()));
        }
        let added = (whole + share.tail_bytes) as u64;
        inode.written = staging.base + added;
        inode.size = inode.size.max(inode.written);
        inode.mtime_ns = staging.mtime_ns;
        inode.ctime_ns = inode.ctime_ns.max(staging.ctime_ns);
        batch.push(Change::Live(zone, added as i64));
        inode.stored += added;
        if let Some(old) = share.old {
            batch.push(Change::Live(old.zone, -i64::from(old.bytes)));
            inode.stored -= u64::from(old.bytes);
        }
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        Ok((batch, tail))
    }

    /// Data of a file are in a segment.
    pub(crate) fn written(&mut self, ino: Ino, blocks: u32, tail: Option<Extent>) {
        let many = self.staged.files.len() > BUFFERS_KEPT;
        let Some(open) = self.staged.files.get_mut(&ino) else {
            return;
        };
        let is_closed = open.handles == 0;
        if open.staging.is_some() {
            let steady_ns = self.steady_ns;
            self.staged.change(ino, |staging| {
                staging.advance(blocks, tail, steady_ns);
                if is_closed || many {
                    // Elsewhere: shrunk in its place, each buffer would leave a hole that is too small for the next.
                    staging.bytes = staging.bytes.to_vec();
                }
            });
        }
    }

    /// Begins a segment.
    pub(crate) fn draft(
        &mut self,
        records_bytes: usize,
        payload_blocks: usize,
        fragments_bytes: usize,
    ) -> Draft {
        let bytes = std::mem::take(&mut self.log.buffer);
        Draft::new(bytes, records_bytes, payload_blocks, fragments_bytes)
    }

    /// Writes a segment at a zone's block. Returns its blocks.
    pub(crate) fn write_segment(
        &mut self,
        zone: ZoneId,
        block: u32,
        draft: Draft,
        is_log: bool,
    ) -> Result<u32> {
        let entry = *self.zones.get(zone)?;
        // INV-S1; only a damaged image names another place.
        if entry.write_blocks != block {
            let reason = format!(
                "a segment at block {block}, but {} are written",
                entry.write_blocks
            );
            return Err(Error::corrupt(format!("zone {}", zone.0), reason));
        }
        let named = if is_log { self.log.next } else { None };
        let next_zone = named.unwrap_or(NO_ZONE);
        let next_epoch = match named {
            Some(next) => self.zones.get(next)?.epoch,
            None => 0,
        };
        let header = Header {
            is_log,
            seq: self.log.seq + 1,
            log_seq: if is_log { self.log.at.log_seq } else { 0 },
            epoch: entry.epoch,
            zone,
            block,
            payload_blocks: u32::try_from(draft.checksums.len()).unwrap_or(u32::MAX),
            previous: if is_log { self.log.previous } else { block },
            next_zone,
            next_epoch,
            flushed_seq: self.log.flushed_seq,
            time_ns: self.now_ns,
            mount_gen: self.roots.mount_gen,
            root_seq: self.roots.newest,
            records: draft.records,
            checksums: draft.checksums,
            fragments: draft.fragments,
        };
        debug_assert_eq!(header.records.bytes.len(), draft.records_bytes);
        debug_assert_eq!(header.blocks(), draft.header_blocks);
        let (first, copy) = header.encode(&self.superblock.uuid);
        let mut bytes = draft.bytes;
        bytes[..first.len()].copy_from_slice(&first);
        bytes.extend_from_slice(&copy);
        self.disk.append(zone, block, &bytes)?;
        self.log.buffer = bytes;
        let blocks = header.segment_blocks();
        self.zones
            .change(zone, |entry| entry.write_blocks += blocks)?;
        self.log.seq += 1;
        self.counters.segments += 1;
        if is_log {
            self.log.at.log_seq += 1;
            self.log.previous = block;
            self.log.next_is_named |= named.is_some();
            let is_far = header.payload_blocks > 32;
            self.log.tail_ns += if is_far {
                HEADER_READ_NS
            } else {
                HEADER_NEAR_NS
            };
            self.log.tail_ns += u64::from(header.blocks()) * 30_000;
        }
        Ok(blocks)
    }

    /// Blocks that a log segment may have now. Moves to the next zone if this one is as good as full.
    fn log_room(&mut self) -> Result<u32> {
        let capacity = self.disk.geometry().capacity_blocks;
        if capacity - self.log.at.block < LOG_ROOM_MIN {
            self.move_log()?;
        }
        Ok((capacity - self.log.at.block).min(self.options.segment_blocks))
    }

    /// The log goes on in its next zone.
    pub(crate) fn move_log(&mut self) -> Result {
        if self.log.next.is_none() {
            self.prepare_next()?;
        }
        let next = self.log.next.take().ok_or(Error::NoSpace)?;
        let was_named = self.log.next_is_named;
        self.seal(self.log.at.zone)?;
        self.log.at.zone = next;
        self.log.at.block = 0;
        self.log.at.epoch = self.zones.get(next)?.epoch;
        self.log.previous = 0;
        self.log.next_is_named = false;
        if self.zones.free() > 0 {
            self.prepare_next()?;
        }
        if !was_named {
            // No header leads to the new zone: a root record has to.
            self.root_commit(false)?;
        }
        Ok(())
    }

    /// Chooses where the log goes on, before it has to.
    fn prepare_next(&mut self) -> Result {
        self.log.next = self.open_zone(ZoneKind::Log, Ino(0))?;
        Ok(())
    }

    /// Takes a free zone. What an earlier life or a lost attempt left in it goes first (R14).
    pub(crate) fn open_zone(&mut self, kind: ZoneKind, owner: Ino) -> Result<Option<ZoneId>> {
        // INV-S11: a zone that nobody writes makes room for one that somebody does.
        let open_max = self.open_max().unwrap_or(u32::MAX) as usize;
        while self.zones.open().count() >= open_max {
            if !self.zones.left.is_empty() {
                let zone = self.zones.left.remove(0);
                self.seal_logged(zone)?;
            } else if !self.seal_output()? {
                break;
            }
        }
        loop {
            let Some(zone) = self.zones.take(kind, owner) else {
                return Ok(None);
            };
            if self.retire_if_bad(zone)? {
                continue;
            }
            if self.disk.write_pointer(zone)? != 0 {
                self.disk.reset(zone)?;
                self.counters.resets += 1;
            }
            return Ok(Some(zone));
        }
    }

    /// A zone that the device has given up is not used again (R16).
    pub(crate) fn retire_if_bad(&mut self, zone: ZoneId) -> Result<bool> {
        let stage = match self.disk.state(zone) {
            Some(zoned::ZoneState::ReadOnly) => ZoneStage::ReadOnly,
            Some(zoned::ZoneState::Offline) | None => ZoneStage::Offline,
            _ => return Ok(false),
        };
        self.zones.change(zone, |entry| entry.stage = stage)?;
        Ok(true)
    }

    /// A zone is not written any more.
    pub(crate) fn seal(&mut self, zone: ZoneId) -> Result {
        let entry = *self.zones.get(zone)?;
        let capacity = self.disk.geometry().capacity_blocks;
        let room = capacity.saturating_sub(entry.write_blocks);
        if entry.write_blocks > 0 && room > 0 {
            // A zone becomes full by itself when its last block is written. The command waits until all that the zone was
            // given is on the medium, and meanwhile the disk gets nothing new.
            // Without write pointers nobody knows what is behind: after a crash that may be the copy of the last header.
            let is_there = self.disk.keeps_write_pointers()
                && self.disk.write_pointer(zone)? == entry.write_blocks;
            if is_there && room <= PADDING_MAX.min(capacity / 16) {
                let zeros = vec![0; room as usize * BLOCK];
                self.disk.append(zone, entry.write_blocks, &zeros)?;
            } else {
                self.disk.finish(zone)?;
            }
        }
        let sealed_at = self.roots.newest as u32;
        self.zones.change(zone, |entry| {
            entry.stage = ZoneStage::Sealed;
            entry.sealed_at = sealed_at;
        })
    }

    /// Makes everything durable that is in segments.
    pub(crate) fn flush(&mut self) -> Result {
        if self.log.flushed_seq < self.log.seq {
            let result = self.disk.flush();
            self.sticky(result)?;
            self.log.flushed_seq = self.log.seq;
        }
        Ok(())
    }
}

/// Whole blocks of a segment.
pub(crate) fn blocks_at(zone: ZoneId, at: u32, blocks: u32, header: u32) -> Extent {
    Extent {
        zone,
        offset: u64::from(at) * BLOCK as u64,
        bytes: blocks * BLOCK as u32,
        crc: 0,
        header,
        is_fragment: false,
        is_hole: false,
    }
}

/// A fragment in the header of the segment that starts at `header`.
pub(crate) fn fragment_at(zone: ZoneId, header: u32, in_segment: u64, bytes: &[u8]) -> Extent {
    Extent {
        zone,
        offset: u64::from(header) * BLOCK as u64 + in_segment,
        bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        crc: crc32c::crc32c(bytes),
        header,
        is_fragment: true,
        is_hole: false,
    }
}

#[cfg(test)]
mod tests {
    use crate::format::*;
    use crate::testing::sim::{Shape, Sim};
    use crate::{make, FileSystem, MakeOptions, Options, Owner};
    use zoned::ZonedDevice;

    fn mounted(device: Sim) -> FileSystem<Sim> {
        let options = Options {
            stream_after_bytes: 64 << 10,
            turn_bytes: 64 << 10,
            ..Options::default()
        };
        FileSystem::mount(device, options, 5).unwrap()
    }

    /// The log names data, and not the copy of their header behind them: a zone that ends there is not filled up with zeros.
    #[test]
    fn a_crash_leaves_the_copy_of_a_header_at_a_zone_s_end() {
        let shape = Shape {
            conventional: 4,
            sequential: 100,
            zone_blocks: 64,
            capacity_blocks: 64,
            open_max: None,
            keeps_pointers: false,
            discards: false,
        };
        let options = MakeOptions {
            uuid: [7; 16],
            label: [0; 64],
            now_ns: 0,
        };
        let mut fs = mounted(make(Sim::new(shape), options, |_| ()).unwrap());
        let owner = Owner::default();
        let file = fs
            .create(ROOT_INO, b"file", FileType::Regular, owner, 0)
            .unwrap();
        fs.open(file).unwrap();
        let mut end = 0;
        let last = loop {
            let blocks = 17 + end as usize / BLOCK % 7;
            fs.write(file, end, &vec![1; blocks * BLOCK]).unwrap();
            fs.fsync(file).unwrap();
            end += (blocks * BLOCK) as u64;
            let (_, last) = fs.extents(file, 0, 100).unwrap().last().copied().unwrap();
            let behind = (last.offset + u64::from(last.bytes)) / BLOCK as u64;
            let is_elsewhere = last.zone != fs.log.at.zone;
            if is_elsewhere && (60..64).contains(&behind) {
                break last;
            }
            assert!(end < 8 << 20, "no zone ends that way");
        };
        let mut device = fs.device().clone();
        device.power_on();
        let mut device = mounted(device).device().clone();
        let header = device.zone(last.zone).unwrap().start.0 + u64::from(last.header) * 8;
        device.power_on();
        device
            .set_write_pointer(last.zone, zoned::Lba(header))
            .unwrap();
        device.write(zoned::Lba(header), &[0; BLOCK]).unwrap();
        device.flush().unwrap();
        let mut fs = mounted(device);
        assert_eq!(
            fs.header(last.zone, last.header).unwrap().block,
            last.header
        );
        assert!(fs.read(file, 0, end as usize).unwrap() == vec![1; end as usize]);
    }
}
