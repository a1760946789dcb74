// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The cache's entries by logical address. A look costs the same however many there are and however large the drive is:
//! the address space is cut into *shelves* of 4 MiB, a flat index says which shelf has entries, and those are a sorted
//! vector of at most 1,024.
//!
//! A `BTreeMap` did the same before, and a random write paid for five of its levels in cold memory several times
//! (docs/performance.md).

use super::cache_map::Entry;
use alloc::vec;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Blocks of a shelf. Twice as many, and to insert into a full one is felt; half, and the index of a large drive is.
const SHELF_BLOCKS: u64 = 1024;
const NO_SHELF: u32 = u32::MAX;

/// An entry with its start, in 24 bytes.
#[derive(Clone, Copy)]
struct Extent {
    start: u64,
    place: u64,
    blocks: u32,
    classes: u8,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + u64::from(self.blocks)
    }

    fn parts(&self) -> (BlockRange, Entry) {
        let end = Block(self.end());
        let entry = Entry {
            end,
            place: self.place,
            classes: self.classes,
        };
        (BlockRange::new(Block(self.start), end), entry)
    }
}

/// Entries that do not overlap.
pub(super) struct Extents {
    /// Which of `shelves` holds the entries that begin in these blocks.
    index: Vec<u32>,
    shelves: Vec<Vec<Extent>>,
    /// Shelves without entries.
    spare: Vec<u32>,
    count: u64,
    /// Blocks of the longest entry there ever was: so far back may one begin that reaches into a range.
    longest: u64,
}

impl Extents {
    /// No entries, of a drive of so many blocks.
    pub fn new(capacity_blocks: u64) -> Self {
        Extents {
            index: vec![NO_SHELF; capacity_blocks.div_ceil(SHELF_BLOCKS) as usize],
            shelves: Vec::new(),
            spare: Vec::new(),
            count: 0,
            longest: 0,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// The entries that begin in the i-th shelf.
    fn shelf(&self, i: u64) -> &[Extent] {
        match self.index.get(i as usize) {
            Some(&shelf) if shelf != NO_SHELF => &self.shelves[shelf as usize],
            _ => &[],
        }
    }

    /// The shelves in which entries can begin that overlap `range`.
    fn shelves_of(&self, range: BlockRange) -> core::ops::RangeInclusive<u64> {
        let first = range.start.0.saturating_sub(self.longest);
        let last = range.end.0.saturating_sub(1);
        let most = (self.index.len() as u64).saturating_sub(1);
        first / SHELF_BLOCKS..=(last / SHELF_BLOCKS).min(most)
    }

    /// The entry that begins at `start`.
    pub fn get(&self, start: Block) -> Option<Entry> {
        let shelf = self.shelf(start.0 / SHELF_BLOCKS);
        let i = shelf.partition_point(|e| e.start < start.0);
        let found = shelf.get(i).filter(|e| e.start == start.0)?;
        Some(found.parts().1)
    }

    /// The last entry that overlaps `range`.
    pub fn last_overlapping(&self, range: BlockRange) -> Option<(BlockRange, Entry)> {
        let found = self.shelves_of(range).rev().find_map(|i| {
            let shelf = self.shelf(i);
            let behind = shelf.partition_point(|e| e.start < range.end.0);
            shelf[..behind].last()
        })?;
        (found.end() > range.start.0).then(|| found.parts())
    }

    /// Entries that overlap `range`, in order.
    pub fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        self.shelves_of(range)
            .flat_map(move |i| {
                let shelf = self.shelf(i);
                let first = shelf.partition_point(|e| e.end() <= range.start.0);
                shelf[first..].iter()
            })
            .take_while(move |e| e.start < range.end.0)
            .map(Extent::parts)
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        let shelves = 0..self.index.len() as u64;
        shelves.flat_map(|i| self.shelf(i)).map(Extent::parts)
    }

    /// Adds an entry, which overlaps no other.
    pub fn insert(&mut self, start: Block, entry: Entry) {
        let extent = Extent {
            start: start.0,
            place: entry.place,
            blocks: (entry.end.0 - start.0) as u32,
            classes: entry.classes,
        };
        let slot = &mut self.index[(start.0 / SHELF_BLOCKS) as usize];
        if *slot == NO_SHELF {
            *slot = self.spare.pop().unwrap_or_else(|| {
                self.shelves.push(Vec::new());
                self.shelves.len() as u32 - 1
            });
            // Most have one.
            self.shelves[*slot as usize].reserve_exact(1);
        }
        let shelf = &mut self.shelves[*slot as usize];
        let at = shelf.partition_point(|e| e.start < extent.start);
        shelf.insert(at, extent);
        self.count += 1;
        self.longest = self.longest.max(u64::from(extent.blocks));
    }

    /// Takes the entry out that begins at `start`.
    pub fn remove(&mut self, start: Block) -> Option<Entry> {
        let slot = self.index.get_mut((start.0 / SHELF_BLOCKS) as usize)?;
        let shelf = self.shelves.get_mut(*slot as usize)?;
        let i = shelf.partition_point(|e| e.start < start.0);
        shelf.get(i).filter(|e| e.start == start.0)?;
        let extent = shelf.remove(i);
        if shelf.is_empty() {
            *shelf = Vec::new();
            self.spare.push(*slot);
            *slot = NO_SHELF;
        }
        self.count -= 1;
        Some(extent.parts().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const BLOCKS: u64 = 5 * SHELF_BLOCKS - 77;

    fn range(start: u64, end: u64) -> BlockRange {
        BlockRange::new(Block(start), Block(end))
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(actions in prop::collection::vec((0..BLOCKS, 1..1500u64, any::<bool>()), 1..300)) {
            let mut extents = Extents::new(BLOCKS);
            let mut map: BTreeMap<Block, Entry> = BTreeMap::new();
            for (i, (start, blocks, add)) in actions.into_iter().enumerate() {
                let asked = range(start, (start + blocks).min(BLOCKS));
                let known: Vec<_> = map
                    .iter()
                    .map(|(start, e)| (BlockRange::new(*start, e.end), *e))
                    .collect();
                let mut overlapping = known.clone();
                overlapping.retain(|(r, _)| r.overlaps(asked));
                prop_assert_eq!(extents.last_overlapping(asked), overlapping.last().copied());
                prop_assert_eq!(extents.get(asked.start), map.get(&asked.start).copied());
                prop_assert_eq!(extents.overlapping(asked).collect::<Vec<_>>(), overlapping.clone());
                prop_assert_eq!(extents.iter().collect::<Vec<_>>(), known);
                if add && overlapping.is_empty() {
                    let entry = Entry { end: asked.end, place: i as u64, classes: 1 };
                    map.insert(asked.start, entry);
                    extents.insert(asked.start, entry);
                } else {
                    for (r, _) in overlapping {
                        prop_assert_eq!(extents.remove(r.start), map.remove(&r.start));
                    }
                    prop_assert_eq!(extents.remove(asked.start), None);
                }
                prop_assert_eq!(extents.len(), map.len() as u64);
            }
        }
    }
}
