// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The persistent cache: a log on the platters, and the map from logical extents to places in it.
//!
//! INV-C1: `entries` (by logical address) and `by_place` (by place in the log) hold the same extents.
//! INV-C2: entries do not overlap, and none crosses the end of a band or of the ring.
//! INV-C3: a band is in `dirt` exactly if it has entries, with their number and blocks.
//! INV-C4: the log between the oldest entry and the head is at most as long as the ring.

use super::bands::Bands;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{BandId, Block, BlockRange, Pba};

/// An extent in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The block after the last.
    pub end: Block,
    /// Its first data block in the log: blocks ever appended before it. Grows for ever; the ring wraps around.
    pub place: u64,
    /// Classes of its writes, a bit each.
    pub classes: u8,
}

/// What a band has in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirt {
    /// Entries.
    pub entries: u64,
    /// Blocks.
    pub blocks: u64,
    /// Classes of its writes, a bit each; may be too many after overwriting.
    pub classes: u8,
}

/// The map and the log's bounds.
pub struct CacheMap {
    entries: BTreeMap<Block, Entry>,
    by_place: BTreeMap<u64, Block>,
    dirt: BTreeMap<BandId, Dirt>,
    blocks: u64,
    head: u64,
    ring_blocks: u64,
    header_blocks: u64,
}

impl CacheMap {
    /// An empty cache.
    pub fn new(ring_blocks: u64, header_blocks: u64, head: u64) -> Self {
        CacheMap {
            entries: BTreeMap::new(),
            by_place: BTreeMap::new(),
            dirt: BTreeMap::new(),
            blocks: 0,
            head,
            ring_blocks,
            header_blocks,
        }
    }

    /// Number of entries.
    pub fn entry_count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Blocks of data.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where the next entry will be appended.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// A place's physical address: the ring is at the start of the platters.
    pub fn pba(&self, place: u64) -> Pba {
        Pba(place % self.ring_blocks)
    }

    /// Blocks of the ring from the oldest entry on.
    pub fn occupied(&self) -> u64 {
        self.oldest().map_or(0, |(place, _)| {
            self.head - (place - self.header_blocks.min(place))
        })
    }

    /// Place and first block of the oldest entry.
    pub fn oldest(&self) -> Option<(u64, Block)> {
        self.by_place.first_key_value().map(|(p, b)| (*p, *b))
    }

    /// What bands have in the cache.
    pub fn dirt(&self) -> &BTreeMap<BandId, Dirt> {
        &self.dirt
    }

    /// All entries by address.
    pub fn entries(&self) -> impl Iterator<Item = (Block, &Entry)> {
        self.entries.iter().map(|(b, e)| (*b, e))
    }

    /// Entries that overlap `range`, in order.
    pub fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = (BlockRange, &Entry)> {
        let before = self
            .entries
            .range(..range.start)
            .next_back()
            .filter(|(_, e)| e.end > range.start);
        before
            .into_iter()
            .chain(self.entries.range(range.start..range.end))
            .map(|(b, e)| (BlockRange::new(*b, e.end), e))
    }

    /// Whether one entry holds all of `range`, so that overwriting it adds none.
    pub fn has_entry(&self, range: BlockRange) -> bool {
        self.entries
            .get(&range.start)
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

    /// Appends an entry for `range`, which must lie in one band. Older entries of these blocks are dropped.
    pub fn append(&mut self, bands: &Bands, range: BlockRange, classes: u8) {
        self.drop_range(bands, range);
        let place = self.place_for(range.blocks());
        self.head = place + range.blocks();
        self.insert(
            bands,
            range.start,
            Entry {
                end: range.end,
                place,
                classes,
            },
        );
    }

    /// Adds an entry as it was saved.
    pub fn insert(&mut self, bands: &Bands, start: Block, entry: Entry) {
        let blocks = entry.end.0 - start.0;
        self.entries.insert(start, entry);
        self.by_place.insert(entry.place, start);
        self.blocks += blocks;
        let dirt = self.dirt.entry(bands.band(start)).or_default();
        dirt.entries += 1;
        dirt.blocks += blocks;
        dirt.classes |= entry.classes;
    }

    fn remove(&mut self, bands: &Bands, start: Block) -> Option<Entry> {
        let entry = self.entries.remove(&start)?;
        self.by_place.remove(&entry.place);
        let blocks = entry.end.0 - start.0;
        self.blocks -= blocks;
        let band = bands.band(start);
        if let Some(dirt) = self.dirt.get_mut(&band) {
            dirt.entries -= 1;
            dirt.blocks -= blocks;
            if dirt.entries == 0 {
                self.dirt.remove(&band);
            }
        }
        Some(entry)
    }

    /// Drops what the cache has of `range`.
    pub fn drop_range(&mut self, bands: &Bands, range: BlockRange) {
        loop {
            // From the last one on, so that one look into the map is enough.
            let last = self.entries.range(..range.end).next_back();
            let Some((start, entry)) = last.filter(|(_, e)| e.end > range.start) else {
                return;
            };
            let (found, entry) = (BlockRange::new(*start, entry.end), *entry);
            self.remove(bands, found.start);
            if found.start < range.start {
                self.insert(
                    bands,
                    found.start,
                    Entry {
                        end: range.start,
                        ..entry
                    },
                );
            }
            if found.end > range.end {
                let place = entry.place + (range.end.0 - found.start.0);
                self.insert(bands, range.end, Entry { place, ..entry });
            }
        }
    }

    /// Drops entries of `range` that were appended before `place`: their band has been rewritten.
    pub fn drop_older(&mut self, bands: &Bands, range: BlockRange, place: u64) {
        let old: Vec<Block> = self
            .overlapping(range)
            .filter(|(_, e)| e.place < place)
            .map(|(r, _)| r.start)
            .collect();
        for start in old {
            self.remove(bands, start);
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
        assert_eq!(self.entries.len(), self.by_place.len(), "INV-C1");
        let mut dirt: BTreeMap<BandId, (u64, u64)> = BTreeMap::new();
        let mut last_end = Block(0);
        for (start, entry) in &self.entries {
            assert_eq!(self.by_place.get(&entry.place), Some(start), "INV-C1");
            assert!(
                *start >= last_end && *start < entry.end,
                "INV-C2: {start:?}"
            );
            assert!(bands.range_of(*start).end >= entry.end, "INV-C2");
            assert!(
                entry.place % self.ring_blocks + (entry.end.0 - start.0) <= self.ring_blocks,
                "INV-C2"
            );
            last_end = entry.end;
            let band = dirt.entry(bands.band(*start)).or_default();
            *band = (band.0 + 1, band.1 + entry.end.0 - start.0);
        }
        let known: Vec<_> = self
            .dirt
            .iter()
            .map(|(b, d)| (*b, (d.entries, d.blocks)))
            .collect();
        assert_eq!(known, dirt.into_iter().collect::<Vec<_>>(), "INV-C3");
        assert_eq!(
            self.blocks,
            self.dirt.values().map(|d| d.blocks).sum::<u64>()
        );
        assert!(self.occupied() <= self.ring_blocks, "INV-C4");
    }
}
