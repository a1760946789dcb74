// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The persistent cache: an area on the platters, and the map from logical extents to places in it. The area is a log, or
//! it is overwritten: then a block that is in it stays in its place however often it is written, and [`Places`] has the
//! others.
//!
//! INV-C1: in a log, an entry is a part of what one record of `log` says was appended, address for place; the records are
//! in the order of their places, and `oldest` is the entry with the lowest. In an overwritten cache, the held places are
//! those of the entries, each of one entry.
//! INV-C2: entries do not overlap, and none crosses the end of a band or of the ring.
//! INV-C3: a band is in `dirt` exactly if it has entries, with their number and blocks.
//! INV-C4: the log between the oldest entry and the head is at most as long as the ring; an overwritten cache has as many
//! places as entries hold and are free.

use super::bands::Bands;
use super::dirty_bands::DirtyBands;
use super::extents::{Entry, Extents};
use super::places::Places;
use crate::state::SavedEntry;
use crate::translation::written::Written;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
#[cfg(any(test, debug_assertions))]
use zoned::BandId;
use zoned::{Block, BlockRange, Pba};

/// What was appended, wholly or partly overwritten since: the log as it was written, which a drive need not keep in order
/// of anything else.
#[derive(Clone, Copy, Debug)]
struct Record {
    place: u64,
    start: Block,
    blocks: u32,
}

impl Record {
    /// What of it the cache still holds: its first entry.
    fn first_left(&self, entries: &Extents) -> Option<(u64, Block)> {
        let places = self.place..self.place + u64::from(self.blocks);
        entries
            .overlapping(BlockRange::new(
                self.start,
                self.start + u64::from(self.blocks),
            ))
            .find(|(_, e)| places.contains(&e.place))
            .map(|(range, e)| (e.place, range.start))
    }
}

/// A part of what is written to a cache that is overwritten.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its blocks.
    pub range: BlockRange,
    /// The place of the first.
    pub place: u64,
    /// Whether nothing holds the places yet.
    pub is_new: bool,
}

/// The map and the log's bounds.
pub struct CacheMap {
    entries: Extents,
    /// Oldest first. Records of which nothing is left stay until they come to the front, or are too many.
    log: VecDeque<Record>,
    /// Place and first block.
    oldest: Option<(u64, Block)>,
    dirt: DirtyBands,
    blocks: u64,
    head: u64,
    ring_blocks: u64,
    header_blocks: u64,
    /// Of a cache that is overwritten.
    places: Option<Places>,
    first: Pba,
}

/// So many records of which nothing is left may wait in the log beyond as many as there are entries.
const STALE_MAX: u64 = 1024;

impl CacheMap {
    /// An empty log for these bands.
    pub fn new(bands: &Bands, ring_blocks: u64, header_blocks: u64, head: u64) -> Self {
        CacheMap {
            entries: Extents::new(bands.capacity_blocks()),
            log: VecDeque::new(),
            oldest: None,
            dirt: DirtyBands::new(bands.count()),
            blocks: 0,
            head,
            ring_blocks,
            header_blocks,
            places: None,
            first: bands.cache(),
        }
    }

    /// An empty cache of so many places that is overwritten; `cursor` is the first to be given out.
    pub fn overwritten(bands: &Bands, places: u64, cursor: u64) -> Self {
        CacheMap {
            places: Some(Places::new(places, cursor)),
            ..CacheMap::new(bands, places, 0, 0)
        }
    }

    /// Adds the entries as they were saved.
    pub fn restore(&mut self, bands: &Bands, saved: &[SavedEntry]) {
        // One by one: to sort a vector takes 4 KiB of a small stack.
        let mut by_place = BTreeMap::new();
        for entry in saved {
            by_place.insert(entry.place, entry);
        }
        for saved in by_place.into_values() {
            let entry = Entry {
                end: saved.end,
                place: saved.place,
                classes: saved.classes,
            };
            if self.places.is_none() {
                self.note(saved.start, entry);
            }
            self.insert(bands, saved.start, entry);
        }
    }

    /// Number of entries.
    pub fn entry_count(&self) -> u64 {
        self.entries.len()
    }

    /// Blocks of data.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where the next entry will be appended, or is looked for a place.
    pub fn head(&self) -> u64 {
        self.places.as_ref().map_or(self.head, Places::cursor)
    }

    /// A place's physical address.
    pub fn pba(&self, place: u64) -> Pba {
        self.first + place % self.ring_blocks
    }

    /// Free places, of a cache that is overwritten.
    pub fn free_places(&self) -> Option<u64> {
        self.places.as_ref().map(Places::free_count)
    }

    /// Whether the cache has all of `range`, so that overwriting it takes no place.
    pub fn holds(&self, range: BlockRange) -> bool {
        let parts = self.overlapping(range).map(|(r, _)| r.intersection(range));
        parts.map(BlockRange::blocks).sum::<u64>() == range.blocks()
    }

    /// Blocks of the ring from the oldest entry on.
    pub fn occupied(&self) -> u64 {
        self.oldest().map_or(0, |(place, _)| {
            self.head - (place - self.header_blocks.min(place))
        })
    }

    /// Place and first block of the oldest entry of a log.
    pub fn oldest(&self) -> Option<(u64, Block)> {
        self.oldest
    }

    /// Place and first block of the entry whose band is to be cleaned next.
    pub fn victim(&self) -> Option<(u64, Block)> {
        self.places.as_ref().map_or(self.oldest, Places::victim)
    }

    /// The victim at `place` is being cleaned.
    pub fn pass(&mut self, place: u64) {
        if let Some(places) = &mut self.places {
            places.pass(place);
        }
    }

    /// What bands have in the cache.
    pub fn dirt(&self) -> &DirtyBands {
        &self.dirt
    }

    /// All entries by address.
    pub fn entries(&self) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        self.entries.iter()
    }

    /// Entries that overlap `range`, in order.
    pub fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        self.entries.overlapping(range)
    }

    /// Whether one entry holds all of `range`, so that overwriting it adds none.
    pub fn has_entry(&self, range: BlockRange) -> bool {
        self.entries
            .get(range.start)
            .is_some_and(|e| e.end == range.end)
    }

    /// Place for an entry of `blocks` at the head, behind its header; entries do not wrap around.
    fn place_for(&self, blocks: u64) -> u64 {
        let in_ring = self.head % self.ring_blocks;
        let need = self.header_blocks + blocks;
        let skip = if in_ring + need > self.ring_blocks {
            self.ring_blocks - in_ring
        } else {
            0
        };
        self.head + skip + self.header_blocks
    }

    /// Puts `range`, which must lie in one band, into the cache.
    pub fn put(&mut self, bands: &Bands, range: BlockRange, classes: u8) {
        if self.places.is_some() {
            self.overwrite(bands, range, classes);
        } else {
            self.append(bands, range, classes);
        }
    }

    /// Appends an entry for `range` to the log. Older entries of these blocks are dropped.
    fn append(&mut self, bands: &Bands, range: BlockRange, classes: u8) {
        self.drop_range(bands, range);
        let place = self.place_for(range.blocks());
        self.head = place + range.blocks();
        let entry = Entry {
            end: range.end,
            place,
            classes,
        };
        self.note(range.start, entry);
        self.insert(bands, range.start, entry);
    }

    /// What of `range` is in the cache stays where it is; the rest gets places.
    fn overwrite(&mut self, bands: &Bands, range: BlockRange, classes: u8) {
        let mut rest = range;
        while let Some(part) = self.next_part(rest, self.head()) {
            if part.is_new {
                let entry = Entry {
                    end: part.range.end,
                    place: part.place,
                    classes,
                };
                self.insert(bands, part.range.start, entry);
                if let Some(places) = &mut self.places {
                    places.go_on_at(part.place + part.range.blocks());
                }
            }
            rest.start = part.range.end;
        }
        assert!(rest.is_empty(), "INV-T4: there are places for {rest}");
        let others = |(_, e): &(BlockRange, Entry)| e.classes | classes != e.classes;
        let changed: Vec<(BlockRange, Entry)> = self.overlapping(range).filter(others).collect();
        for (found, entry) in changed {
            let classes = entry.classes | classes;
            self.remove(bands, found.start);
            self.insert(bands, found.start, Entry { classes, ..entry });
        }
    }

    /// Of a cache that is overwritten, the first part of `range`: what an entry has of it, or what finds room in the first
    /// free places from `cursor` on. `None` if there are none, or nothing is left.
    pub fn next_part(&self, range: BlockRange, cursor: u64) -> Option<Part> {
        if range.is_empty() {
            return None;
        }
        let held = self.overlapping(range).next();
        let end = held.map_or(range.end, |(found, _)| found.start);
        match held {
            Some((found, entry)) if found.start <= range.start => Some(Part {
                range: found.intersection(range),
                place: entry.place + (range.start.0 - found.start.0),
                is_new: false,
            }),
            _ => {
                let blocks = end.0 - range.start.0;
                let (place, blocks) = self.places.as_ref()?.next_free(cursor, blocks)?;
                Some(Part {
                    range: BlockRange::new(range.start, range.start + blocks),
                    place,
                    is_new: true,
                })
            }
        }
    }

    /// The log goes on with an entry.
    fn note(&mut self, start: Block, entry: Entry) {
        if self.log.len() as u64 > 2 * self.entries.len() + STALE_MAX {
            let entries = &self.entries;
            self.log.retain(|r| r.first_left(entries).is_some());
        }
        self.log.push_back(Record {
            place: entry.place,
            start,
            blocks: (entry.end.0 - start.0) as u32,
        });
        self.oldest.get_or_insert((entry.place, start));
    }

    fn insert(&mut self, bands: &Bands, start: Block, entry: Entry) {
        let blocks = entry.end.0 - start.0;
        self.entries.insert(start, entry);
        if let Some(places) = &mut self.places {
            places.hold(entry.place, blocks, start);
        }
        self.blocks += blocks;
        self.dirt.add(bands.band(start), blocks, entry.classes);
    }

    fn remove(&mut self, bands: &Bands, start: Block) {
        if let Some(entry) = self.entries.remove(start) {
            let blocks = entry.end.0 - start.0;
            if let Some(places) = &mut self.places {
                places.release(entry.place, blocks);
            }
            self.blocks -= blocks;
            self.dirt.remove(bands.band(start), blocks);
        }
    }

    /// The entry at `place` was removed, or cut. If it was the oldest of a log, another may be now.
    fn removed(&mut self, place: u64) {
        if self.oldest.is_none_or(|(oldest, _)| oldest != place) {
            return;
        }
        self.oldest = None;
        while let Some(record) = self.log.front() {
            self.oldest = record.first_left(&self.entries);
            if self.oldest.is_some() {
                return;
            }
            self.log.pop_front();
        }
    }

    /// Drops what the cache has of `range`.
    pub fn drop_range(&mut self, bands: &Bands, range: BlockRange) {
        // From the last one on, so that one look into the map is enough.
        while let Some((found, entry)) = self.entries.last_overlapping(range) {
            self.remove(bands, found.start);
            if found.start < range.start {
                let end = range.start;
                self.insert(bands, found.start, Entry { end, ..entry });
            }
            if found.end > range.end {
                let place = entry.place + (range.end.0 - found.start.0);
                self.insert(bands, range.end, Entry { place, ..entry });
            }
            self.removed(entry.place);
        }
    }

    /// Drops the entries of `range`, whose band has been rewritten, but those that were written meanwhile: `late`.
    pub fn drop_older(&mut self, bands: &Bands, range: BlockRange, late: &Written) {
        let old: Vec<(Block, u64)> = self
            .overlapping(range)
            .filter(|(r, _)| late.count(*r) == 0)
            .map(|(r, e)| (r.start, e.place))
            .collect();
        for (start, place) in old {
            self.remove(bands, start);
            self.removed(place);
        }
    }

    /// Breaks of the log order among the entries of `range`: pieces that have to be collected one by one.
    pub fn scattered_pieces(&self, range: BlockRange) -> u64 {
        let mut expected = None;
        let mut pieces = 0;
        for (found, entry) in self.overlapping(range) {
            pieces += u64::from(expected != Some(entry.place));
            expected = Some(entry.place + found.blocks() + self.header_blocks);
        }
        pieces
    }

    /// Checks the invariants.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self, bands: &Bands) {
        let mut dirt: BTreeMap<BandId, (u32, u32)> = BTreeMap::new();
        let mut last_end = Block(0);
        for (range, entry) in self.entries.iter() {
            let (start, place) = (range.start, entry.place);
            assert!(start >= last_end && start < entry.end, "INV-C2: {start:?}");
            assert!(bands.range_of(start).end >= entry.end, "INV-C2");
            assert!(
                place % self.ring_blocks + range.blocks() <= self.ring_blocks,
                "INV-C2"
            );
            last_end = entry.end;
            let band = dirt.entry(bands.band(start)).or_default();
            *band = (band.0 + 1, band.1 + range.blocks() as u32);
        }
        match &self.places {
            Some(places) => self.check_places(places),
            None => self.check_log(),
        }
        let known: Vec<_> = self
            .dirt
            .iter()
            .map(|(b, d)| (b, (d.entries, d.blocks)))
            .collect();
        assert_eq!(known.len(), self.dirt.len(), "INV-C3");
        assert_eq!(known, dirt.into_iter().collect::<Vec<_>>(), "INV-C3");
        let blocks = self.dirt.iter().map(|(_, d)| u64::from(d.blocks));
        assert_eq!(self.blocks, blocks.sum::<u64>());
    }

    #[cfg(any(test, debug_assertions))]
    fn check_log(&self) {
        let mut oldest: Option<(u64, Block)> = None;
        for (Record { place, .. }, next) in self.log.iter().zip(self.log.iter().skip(1)) {
            assert!(*place < next.place, "INV-C1");
        }
        for (range, entry) in self.entries.iter() {
            let (start, place) = (range.start, entry.place);
            if oldest.is_none_or(|o| place < o.0) {
                oldest = Some((place, start));
            }
            let i = self.log.partition_point(|r| r.place <= place);
            let record = i.checked_sub(1).and_then(|i| self.log.get(i));
            let appended = record.is_some_and(|r| {
                let offset = place - r.place;
                start == r.start + offset && offset + range.blocks() <= u64::from(r.blocks)
            });
            assert!(appended, "INV-C1: {range} {entry:?}");
        }
        assert_eq!(self.oldest, oldest, "INV-C1");
        assert!(self.occupied() <= self.ring_blocks, "INV-C4");
    }

    #[cfg(any(test, debug_assertions))]
    fn check_places(&self, places: &Places) {
        let mut held: Vec<(u64, Block)> = Vec::new();
        for (range, entry) in self.entries.iter() {
            held.push((entry.place, range.start));
            assert!(places.are_held(entry.place, range.blocks()), "INV-C1");
        }
        held.sort_unstable();
        assert_eq!(held, places.holders().collect::<Vec<_>>(), "INV-C1");
        // Together with this, no two entries hold the same place.
        assert_eq!(
            self.blocks + places.free_count(),
            self.ring_blocks,
            "INV-C4"
        );
    }
}
