// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appending, making durable.
//!
//! INV-S9: `head` ≤ `written` ≤ `size`; bytes below `written` never change. INV-S10: extents of a file start at whole
//! blocks and cover what lies between `head` and `written` without gap or overlap; only the last may be a fragment.

use crate::budget::Claim;
use crate::charge::{Charge, SHORT_GAP_BYTES};
use crate::error::{unless_full, At, Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use crate::log::{blocks_at, Part};
use crate::options::Placement;
use crate::staging::Staging;
use zoned::{ZoneId, ZonedDevice};

/// Others' data that a segment takes along when one file is made durable.
const RIDERS_MAX_BYTES: usize = 1 << 20;

impl<D: ZonedDevice> FileSystem<D> {
    /// Appends `data` at `offset`: at the file's end, or behind it, which leaves a gap.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result {
        if data.is_empty() {
            return Ok(());
        }
        let bytes = data.len() as u64;
        let end = offset
            .checked_add(bytes)
            .filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooBig)?;
        self.load(ino)?;
        self.refuse_overwrite(ino, offset, bytes)?;
        let charge = Charge::of_file(bytes, self.staging(ino).gaps_beside(offset, end));
        self.afford(Claim::Data(charge))?;
        // What waited may be written now, and a gap that was to be filled be a hole.
        self.load(ino)?;
        self.refuse_overwrite(ino, offset, bytes)?;
        let written = self.staging(ino).end();
        let (now_ns, steady_ns) = (self.now_ns, self.steady_ns);
        if offset > written && end - written > self.options.gap_bytes {
            self.close_gap(ino, Some(offset))?;
        }
        self.staged.change(ino, |staging| {
            if staging.held() == 0 {
                staging.begin_to_wait(steady_ns);
            }
            (staging.mtime_ns, staging.ctime_ns) = (now_ns, now_ns);
            staging.since_sync += bytes;
            if offset == staging.end() {
                staging.bytes.extend_from_slice(data);
                staging.join();
            } else {
                staging.gap.insert(offset, data.to_vec());
            }
        });
        self.counters.accepted_bytes += bytes;
        self.staged.dirty_since_ns.get_or_insert(steady_ns);
        // The data are accepted: that a segment finds no zone now is no answer to this call.
        let drained = self.drain(ino);
        unless_full(drained)
    }

    /// Bytes that were written, or wait behind a gap, are never written over; `load` came before.
    fn refuse_overwrite(&mut self, ino: Ino, offset: u64, bytes: u64) -> Result {
        let written = self.staging(ino).end();
        match offset < written || self.staging(ino).overlaps_gap(offset, bytes) {
            true => Err(Error::Overwrite {
                ino,
                offset,
                written,
            }),
            false => Ok(()),
        }
    }

    /// The file's bytes that are in memory; `load` came before.
    fn staging(&mut self, ino: Ino) -> &mut Staging {
        let open = self.staged.files.entry(ino).or_default();
        open.staging.get_or_insert_with(Staging::default)
    }

    /// Prepares a file for being appended to.
    fn load(&mut self, ino: Ino) -> Result {
        if self
            .staged
            .files
            .get(&ino)
            .is_some_and(|open| open.staging.is_some())
        {
            return Ok(());
        }
        let inode = self.regular(ino)?;
        let base = inode.written / BLOCK as u64 * BLOCK as u64;
        let mut staging = Staging {
            base,
            mtime_ns: inode.mtime_ns,
            ctime_ns: inode.ctime_ns,
            ..Staging::default()
        };
        if inode.written > base {
            let key = Key::extent(ino, base / BLOCK as u64);
            let place = || format!("inode {}", ino.0);
            let value = self
                .get(&key)?
                .ok_or(Damage("its last extent is missing"))
                .at(place)?;
            let tail = Extent::decode(&value).at(place)?;
            if !tail.is_fragment || base + u64::from(tail.bytes) != inode.written {
                return Err(Error::corrupt(place(), "its last extent is not its end"));
            }
            staging.bytes = self.read_fragment(&tail)?;
            staging.logged = staging.bytes.len();
            staging.tail = Some(tail);
        }
        self.staged.files.entry(ino).or_default().staging = Some(staging);
        Ok(())
    }

    /// Writes what fills a segment or a stream's turn.
    fn drain(&mut self, ino: Ino) -> Result {
        if self.is_stream(ino)? {
            let ready = self.staging(ino).unlogged() as u64;
            if ready >= self.options.turn_bytes {
                self.write_stream(ino)?;
            }
            return Ok(());
        }
        // Both headers of a full segment take less than a fortieth of it, but never less than four blocks.
        let segment = u64::from(self.options.segment_blocks);
        let payload = segment - (segment / 40).max(4);
        if self.staged.waiting.bytes >= payload * BLOCK as u64 {
            self.push_ready()?;
        }
        Ok(())
    }

    /// Writes all whole blocks to the log, those of streams apart.
    pub(crate) fn push_ready(&mut self) -> Result {
        let segment = u64::from(self.options.segment_blocks) * BLOCK as u64;
        let ready = self.staged.all();
        let ready = ready.filter(|(_, staging)| staging.ready_blocks() > 0);
        let (streams, others): (Vec<_>, Vec<_>) =
            ready.partition(|(_, staging)| staging.stream.is_some());
        let bytes: usize = others.iter().map(|(_, staging)| staging.unlogged()).sum();
        let part = |ino| Part {
            ino,
            with_tail: false,
        };
        let parts: Vec<Part> = others.iter().map(|(ino, _)| part(*ino)).collect();
        let streams: Vec<Ino> = streams.iter().map(|(ino, _)| *ino).collect();
        if bytes as u64 >= segment / 2 {
            self.push(&parts)?;
            self.forget_all_idle(&parts)?;
        }
        if self.staged.waiting.bytes > self.options.buffer_bytes {
            for ino in streams {
                self.write_stream(ino)?;
            }
        }
        Ok(())
    }

    /// Whether a file is written past the log. It becomes so after many bytes without an fsync.
    fn is_stream(&mut self, ino: Ino) -> Result<bool> {
        let (is_stream, since_sync) = {
            let staging = self.staging(ino);
            (staging.stream.is_some(), staging.since_sync)
        };
        if is_stream || self.options.placement == Placement::Log {
            return Ok(is_stream);
        }
        if since_sync < self.options.stream_after_bytes || self.streams() >= self.streams_max() {
            return Ok(false);
        }
        let zone = self.stream_zone(ino)?;
        self.staging(ino).stream = zone;
        Ok(zone.is_some())
    }

    fn streams(&self) -> usize {
        let streams = self.staged.all();
        streams
            .filter(|(_, staging)| staging.stream.is_some())
            .count()
    }

    /// INV-S11: open zones stay within the device's limit: the log's two, compaction's three, a spare, and the streams.
    fn streams_max(&self) -> usize {
        let open_max = self.open_max().unwrap_or(32).min(32) as usize;
        self.options.streams_max.min(open_max.saturating_sub(6))
    }

    /// A zone for a stream: one that another has left, or a free one.
    fn stream_zone(&mut self, ino: Ino) -> Result<Option<ZoneId>> {
        if let Some(zone) = self.take_left_zone()? {
            return Ok(Some(zone));
        }
        if u64::from(self.zones.free()) <= self.low_for_streams() {
            return Ok(None);
        }
        let zone = self.open_zone(ZoneKind::File, ino)?;
        if let Some(zone) = zone {
            let entry = *self.zones.get(zone)?;
            self.change(vec![Change::Zone(zone, entry)])?;
        }
        Ok(zone)
    }

    /// A zone that was partly written for one file, and is for several from now on.
    pub(crate) fn take_left_zone(&mut self) -> Result<Option<ZoneId>> {
        let Some(zone) = self.zones.left.pop() else {
            return Ok(None);
        };
        let entry = ZoneEntry {
            owner: Ino(0),
            kind: ZoneKind::Shared,
            ..*self.zones.get(zone)?
        };
        self.change(vec![Change::Zone(zone, entry)])?;
        Ok(Some(zone))
    }

    fn low_for_streams(&self) -> u64 {
        6 + u64::from(self.sequential_zones() / 50)
    }

    /// A stream has no use for its zone any more.
    pub(crate) fn leave_zone(&mut self, zone: ZoneId) -> Result {
        let entry = *self.zones.get(zone)?;
        let room = self.disk.geometry().capacity_blocks - entry.write_blocks;
        if room > 8 && self.zones.left.len() < self.options.streams_max {
            self.zones.left.push(zone);
            return Ok(());
        }
        self.seal_logged(zone)
    }

    /// Seals a zone outside the log, and says so in the log.
    pub(crate) fn seal_logged(&mut self, zone: ZoneId) -> Result {
        self.seal(zone)?;
        let entry = *self.zones.get(zone)?;
        self.change(vec![Change::Zone(zone, entry)])
    }

    /// Writes a stream's whole blocks to its zone. The batch that names them waits for the next log segment.
    fn write_stream(&mut self, ino: Ino) -> Result {
        let result = self.write_stream_blocks(ino);
        self.sticky(result)
    }

    fn write_stream_blocks(&mut self, ino: Ino) -> Result {
        let capacity = self.disk.geometry().capacity_blocks;
        while self.staging(ino).ready_blocks() > 0 {
            let Some(zone) = self.staging(ino).stream else {
                return self.push(&[Part {
                    ino,
                    with_tail: false,
                }]);
            };
            let block = self.zones.get(zone)?.write_blocks;
            let room = (capacity - block).min(self.options.segment_blocks);
            let records_bytes = Change::Data(DataRecord {
                ino,
                logical: 0,
                bytes: 0,
            })
            .bytes();
            let fits = blocks_that_fit(room, records_bytes);
            if fits == 0 {
                self.seal_logged(zone)?;
                let next = self.stream_zone(ino)?;
                self.staging(ino).stream = next;
                continue;
            }
            let staging = self.staging(ino);
            let blocks = staging.ready_blocks().min(fits);
            let (logical, old) = (staging.base / BLOCK as u64, staging.tail);
            let (mtime_ns, ctime_ns) = (staging.mtime_ns, staging.ctime_ns);
            let bytes = blocks * BLOCK as u32;
            let mut draft = self.draft(records_bytes, blocks as usize, 0);
            draft.records.push(&[Change::Data(DataRecord {
                ino,
                logical,
                bytes,
            })]);
            let at = block + draft.payload(&self.staging(ino).bytes[..bytes as usize]);
            let mut inode = self.inode(ino)?;
            self.write_segment(zone, block, draft, false)?;
            inode.written = logical * BLOCK as u64 + u64::from(bytes);
            inode.size = inode.size.max(inode.written);
            (inode.mtime_ns, inode.ctime_ns) = (mtime_ns, inode.ctime_ns.max(ctime_ns));
            inode.stored += u64::from(bytes);
            let extent = blocks_at(zone, at, blocks, block);
            let mut batch = vec![
                Change::Put(Key::extent(ino, logical), extent.encode()),
                Change::Live(zone, i64::from(bytes)),
            ];
            if let Some(old) = old {
                batch.push(Change::Live(old.zone, -i64::from(old.bytes)));
                inode.stored -= u64::from(old.bytes);
            }
            batch.push(Change::Put(Key::inode(ino), inode.encode()));
            self.change(batch)?;
            self.written(ino, blocks, None);
        }
        Ok(())
    }

    /// What waits behind a gap comes next; or, if `before` says so, what will be written there. The gap becomes a hole.
    pub(crate) fn close_gap(&mut self, ino: Ino, before: Option<u64>) -> Result {
        loop {
            let staging = self.staging(ino);
            let end = staging.end();
            let first = staging.gap.keys().next().copied();
            let Some(target) = first
                .into_iter()
                .chain(before)
                .min()
                .filter(|target| *target > end)
            else {
                return Ok(());
            };
            let block = BLOCK as u64;
            let (from, to) = (end.next_multiple_of(block), target / block * block);
            let is_hole = target - end > SHORT_GAP_BYTES && from < to;
            let zeros = if is_hole { from - end } else { target - end } as usize;
            self.staged.change(ino, |staging| {
                staging.bytes.resize(staging.bytes.len() + zeros, 0);
                staging.join();
            });
            if !is_hole {
                continue;
            }
            self.push(&[Part {
                ino,
                with_tail: false,
            }])?;
            self.put_hole(ino, from, to)?;
            self.staged.change(ino, |staging| {
                staging.base = to;
                // What begins at a whole block is next now, and no zeros come before it.
                staging.join();
            });
        }
    }

    /// Logs that nothing was written between two whole blocks, the first of which is the file's end.
    fn put_hole(&mut self, ino: Ino, from: u64, to: u64) -> Result {
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(HOLE_BYTES);
            let hole = Extent::hole(u32::try_from(bytes).unwrap_or(u32::MAX));
            let mut inode = self.inode(ino)?;
            inode.written = at + bytes;
            inode.size = inode.size.max(inode.written);
            self.change(vec![
                Change::Put(Key::extent(ino, at / BLOCK as u64), hole.encode()),
                Change::Put(Key::inode(ino), inode.encode()),
            ])?;
            at += bytes;
        }
        Ok(())
    }

    /// Forgets what of a file is only in memory.
    pub(crate) fn discard_staging(&mut self, ino: Ino) -> Result {
        let Some(open) = self.staged.files.get_mut(&ino) else {
            return Ok(());
        };
        open.readers.clear();
        let is_closed = open.handles == 0;
        let Some(staging) = self.staged.take(ino) else {
            return Ok(());
        };
        if is_closed {
            self.staged.files.remove(&ino);
        }
        staging.stream.map_or(Ok(()), |zone| self.leave_zone(zone))
    }

    /// Makes everything that was written to a file durable, and every change of a name before it. Of the root directory
    /// it is `sync`, because the kernel does not hand syncfs on.
    pub fn fsync(&mut self, ino: Ino) -> Result {
        self.writable()?;
        if ino == ROOT_INO {
            return self.sync();
        }
        let mut parts = Vec::new();
        let staged = self.staged.of(ino);
        if staged.is_some() {
            self.close_gap(ino, None)?;
            if self.staging(ino).stream.is_some() {
                self.write_stream(ino)?;
            }
            self.staging(ino).since_sync = 0;
            parts.push(Part {
                ino,
                with_tail: true,
            });
            parts.extend(self.riders(ino));
        }
        self.push(&parts)?;
        self.flush()
    }

    /// Other files of which a little waits.
    fn riders(&self, ino: Ino) -> Vec<Part> {
        let mut bytes = 0;
        let mut riders = Vec::new();
        for (other, staging) in self.staged.all() {
            if other != ino && staging.stream.is_none() && staging.ready_blocks() > 0 {
                bytes += staging.unlogged();
                riders.push(Part {
                    ino: other,
                    with_tail: false,
                });
            }
            if bytes > RIDERS_MAX_BYTES {
                return Vec::new();
            }
        }
        riders
    }

    /// Makes everything durable.
    pub fn sync(&mut self) -> Result {
        self.writable()?;
        let inos: Vec<Ino> = self.staged.all().map(|(ino, _)| ino).collect();
        let mut parts = Vec::with_capacity(inos.len());
        for ino in inos {
            self.close_gap(ino, None)?;
            if self.staging(ino).stream.is_some() {
                self.write_stream(ino)?;
            }
            parts.push(Part {
                ino,
                with_tail: true,
            });
        }
        self.push(&parts)?;
        self.flush()?;
        self.staged.dirty_since_ns = None;
        self.forget_all_idle(&parts)
    }

    fn forget_all_idle(&mut self, parts: &[Part]) -> Result {
        parts.iter().try_for_each(|part| self.forget_idle(part.ino))
    }

    /// To be called now and then, with the time: what has waited too long is made durable.
    pub fn tick(&mut self, now_ns: i64) -> Result {
        self.set_time(now_ns);
        self.keep_house();
        let steady_ns = self.steady_ns;
        let waited = self
            .staged
            .dirty_since_ns
            .map(|since_ns| steady_ns - since_ns);
        if self.disk.refusal().is_none() && waited.is_some_and(|ns| ns >= self.options.dirty_max_ns)
        {
            self.sync()?;
        }
        self.retain_slowly();
        Ok(())
    }

    /// A file is used; until it is released it stays, even without a name.
    pub fn open(&mut self, ino: Ino) -> Result {
        self.inode(ino)?;
        self.staged.files.entry(ino).or_default().handles += 1;
        Ok(())
    }

    /// A file is used once less.
    pub fn release(&mut self, ino: Ino) -> Result {
        let Some(open) = self.staged.files.get_mut(&ino) else {
            return Ok(());
        };
        open.handles = open.handles.saturating_sub(1);
        if open.handles > 0 {
            return Ok(());
        }
        if self.disk.refusal().is_some() {
            return Ok(());
        }
        let nlink = self.inode(ino)?.nlink;
        if nlink == 0 {
            self.staged.files.entry(ino).or_default();
            self.delete_inode(ino)?;
            return Ok(());
        }
        let has_gap = self.staged.of(ino);
        if has_gap.is_some_and(|staging| !staging.gap.is_empty()) {
            self.close_gap(ino, None)?;
        }
        let stream = self.staged.of_mut(ino).and_then(|s| s.stream);
        if stream.is_some() {
            self.write_stream(ino)?;
            if let Some(zone) = self.staging(ino).stream.take() {
                self.leave_zone(zone)?;
            }
        }
        self.forget_idle(ino)
    }

    /// A file that nobody uses and of which nothing waits need not be remembered.
    pub(crate) fn forget_idle(&mut self, ino: Ino) -> Result {
        let is_idle = self.staged.files.get(&ino).is_some_and(|open| {
            let waits = open
                .staging
                .as_ref()
                .is_some_and(|staging| staging.held() > 0);
            open.handles == 0 && !waits
        });
        if !is_idle {
            return Ok(());
        }
        self.discard_staging(ino)?;
        self.staged.files.remove(&ino);
        Ok(())
    }
}

/// Blocks of payload that fit with their headers into `room` blocks.
pub(crate) fn blocks_that_fit(room: u32, records_bytes: usize) -> u32 {
    let mut blocks = room;
    loop {
        let needed = 2 * Header::blocks_for(records_bytes, blocks as usize, 0) + blocks;
        if needed <= room {
            return blocks;
        }
        if blocks == 0 {
            return 0;
        }
        blocks -= (needed - room).min(blocks);
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::format::{FileType, BLOCK, FILE_BYTES_MAX, ROOT_INO};
    use crate::testing::made;
    use crate::{FileSystem, Options, Owner};

    #[test]
    fn what_lies_behind_a_gap_stays_wherever_it_begins() {
        let block = BLOCK as u64;
        for (before, at) in [
            (0, 8 * block),
            (10, 8 * block),
            (10, 8 * block + 7),
            (BLOCK, 9 * block),
        ] {
            let device = made();
            let mut fs = FileSystem::mount(device, Options::default(), 1).unwrap();
            let file = fs.create(ROOT_INO, b"file", FileType::Regular, Owner::default(), 0);
            let file = file.unwrap();
            fs.open(file).unwrap();
            fs.write(file, 0, &vec![1; before]).unwrap();
            fs.write(file, at, b"behind").unwrap();
            fs.release(file).unwrap();
            let device = fs.unmount().unwrap();
            let mut fs = FileSystem::mount(device, Options::default(), 2).unwrap();
            let mut expected = vec![1; before];
            expected.resize(at as usize, 0);
            expected.extend(b"behind");
            let found = fs.read(file, 0, expected.len() + 1).unwrap();
            assert_eq!(found, expected, "{before} bytes, then some at {at}");
        }
    }

    #[test]
    fn a_gap_as_long_as_a_file_can_be_takes_neither_long_nor_all_memory() {
        let mut fs = FileSystem::mount(made(), Options::default(), 1).unwrap();
        let file = fs.create(ROOT_INO, b"file", FileType::Regular, Owner::default(), 0);
        let file = file.unwrap();
        let too_big = |result| assert!(matches!(result, Err(Error::TooBig)), "{result:?}");
        too_big(fs.truncate(file, FILE_BYTES_MAX + 1));
        too_big(fs.write(file, FILE_BYTES_MAX - 5, b"beyond"));
        fs.truncate(file, FILE_BYTES_MAX).unwrap();
        fs.write(file, FILE_BYTES_MAX - 6, b"behind").unwrap();
        fs.fsync(file).unwrap();
        let mut fs = FileSystem::mount(fs.unmount().unwrap(), Options::default(), 2).unwrap();
        let found = fs.read(file, FILE_BYTES_MAX - 8, 10).unwrap();
        assert_eq!(found, b"\0\0behind");
    }
}
