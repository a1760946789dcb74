// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The cache's entries by logical address. A look costs the same however many there are and however large the drive is:
//! the address space is cut into *shelves* of 8 MiB, a flat index says which shelf has entries, and those are in order
//! in one place.
//!
//! A `BTreeMap` did the same before, and a random write paid for five of its levels in cold memory several times
//! (docs/results/performance.md).

use alloc::vec;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Blocks of a shelf. Twice as many, and to insert into a full one is felt; half, and the index of a large drive is.
const SHELF_BLOCKS: u64 = 2048;
const NO_SHELF: u32 = u32::MAX;

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

/// An entry in 16 bytes.
#[derive(Clone, Copy)]
struct Extent {
    place: u64,
    blocks: u32,
    /// First block, counted from the shelf's.
    offset: u16,
    classes: u8,
}

/// The entries that begin in some blocks: most shelves have one, and need no memory of their own for it.
enum Shelf {
    One(Extent),
    /// In order; at least one unless the shelf is spare.
    More(Vec<Extent>),
}

impl Shelf {
    fn entries(&self) -> &[Extent] {
        match self {
            Shelf::One(extent) => core::slice::from_ref(extent),
            Shelf::More(extents) => extents,
        }
    }
}

/// A shelf with the block that its offsets count from.
#[derive(Clone, Copy)]
struct Look<'a> {
    first: u64,
    entries: &'a [Extent],
}

impl<'a> Look<'a> {
    fn start(self, extent: &Extent) -> u64 {
        self.first + u64::from(extent.offset)
    }

    fn parts(self, extent: &Extent) -> (BlockRange, Entry) {
        let start = self.start(extent);
        let end = Block(start + u64::from(extent.blocks));
        let entry = Entry {
            end,
            place: extent.place,
            classes: extent.classes,
        };
        (BlockRange::new(Block(start), end), entry)
    }

    /// How many begin before `block`.
    fn before(self, block: Block) -> usize {
        self.entries.partition_point(|e| self.start(e) < block.0)
    }

    /// How many end before `block`, or there.
    fn reaching(self, block: Block) -> usize {
        self.entries
            .partition_point(|e| self.parts(e).0.end <= block)
    }

    fn iter_from(self, first: usize) -> impl Iterator<Item = (BlockRange, Entry)> + 'a {
        self.entries[first..].iter().map(move |e| self.parts(e))
    }
}

/// Entries that do not overlap.
pub(super) struct Extents {
    /// Which of `shelves` holds the entries that begin in these blocks.
    index: Vec<u32>,
    shelves: Vec<Shelf>,
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

    fn shelf(&self, i: u64) -> Look<'_> {
        let entries = match self.index.get(i as usize) {
            Some(&shelf) if shelf != NO_SHELF => self.shelves[shelf as usize].entries(),
            _ => &[],
        };
        Look {
            first: i * SHELF_BLOCKS,
            entries,
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
        let extent = shelf.entries.get(shelf.before(start))?;
        let (range, entry) = shelf.parts(extent);
        (range.start == start).then_some(entry)
    }

    /// The last entry that overlaps `range`.
    pub fn last_overlapping(&self, range: BlockRange) -> Option<(BlockRange, Entry)> {
        let last = self.shelves_of(range).rev().find_map(|i| {
            let shelf = self.shelf(i);
            let last = shelf.before(range.end).checked_sub(1)?;
            Some(shelf.parts(&shelf.entries[last]))
        });
        last.filter(|(found, _)| found.end > range.start)
    }

    /// Entries that overlap `range`, in order.
    pub fn overlapping(&self, range: BlockRange) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        let near = self.shelves_of(range).flat_map(move |i| {
            let shelf = self.shelf(i);
            shelf.iter_from(shelf.reaching(range.start))
        });
        near.take_while(move |(found, _)| found.start < range.end)
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockRange, Entry)> + '_ {
        let shelves = 0..self.index.len() as u64;
        shelves.flat_map(|i| self.shelf(i).iter_from(0))
    }

    /// Adds an entry, which overlaps no other.
    pub fn insert(&mut self, start: Block, entry: Entry) {
        let i = start.0 / SHELF_BLOCKS;
        let extent = Extent {
            place: entry.place,
            blocks: (entry.end.0 - start.0) as u32,
            offset: (start.0 % SHELF_BLOCKS) as u16,
            classes: entry.classes,
        };
        self.count += 1;
        self.longest = self.longest.max(u64::from(extent.blocks));
        let at = self.shelf(i).before(start);
        let slot = &mut self.index[i as usize];
        if *slot == NO_SHELF {
            let shelf = Shelf::One(extent);
            match self.spare.pop() {
                Some(spare) => {
                    *slot = spare;
                    self.shelves[spare as usize] = shelf;
                }
                None => {
                    *slot = self.shelves.len() as u32;
                    self.shelves.push(shelf);
                }
            }
            return;
        }
        let shelf = &mut self.shelves[*slot as usize];
        match shelf {
            Shelf::One(other) => {
                let mut both = vec![*other];
                both.insert(at, extent);
                *shelf = Shelf::More(both);
            }
            Shelf::More(extents) => extents.insert(at, extent),
        }
    }

    /// Takes the entry out that begins at `start`.
    pub fn remove(&mut self, start: Block) -> Option<Entry> {
        let entry = self.get(start)?;
        let i = start.0 / SHELF_BLOCKS;
        let at = self.shelf(i).before(start);
        let slot = &mut self.index[i as usize];
        let shelf = &mut self.shelves[*slot as usize];
        if let Shelf::More(extents) = shelf {
            extents.remove(at);
        }
        if matches!(shelf, Shelf::One(_)) || shelf.entries().is_empty() {
            *shelf = Shelf::More(Vec::new());
            self.spare.push(*slot);
            *slot = NO_SHELF;
        }
        self.count -= 1;
        Some(entry)
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
