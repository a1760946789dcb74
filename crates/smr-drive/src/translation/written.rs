// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Which blocks were ever written in place: a set of extents. What was never written need not be saved when its band is
//! rewritten. Host-aware zones use the same kind of set for the blocks that will go in place.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Disjoint extents that do not adjoin, by their first block.
#[derive(Default)]
pub struct Written {
    extents: BTreeMap<Block, Block>,
}

impl Written {
    /// Extents that overlap or adjoin `range`, the last one first.
    fn touching_back(&self, range: BlockRange) -> impl Iterator<Item = BlockRange> + '_ {
        self.extents
            .range(..=range.end)
            .rev()
            .map(|(s, e)| BlockRange::new(*s, *e))
            .take_while(move |r| r.end >= range.start)
    }

    /// Extents that overlap or adjoin `range`.
    fn touching(&self, range: BlockRange) -> Vec<BlockRange> {
        let mut found: Vec<BlockRange> = self.touching_back(range).collect();
        found.reverse();
        found
    }

    /// Adds blocks.
    pub fn add(&mut self, range: BlockRange) {
        if range.is_empty() || self.next(range.start).is_some_and(|e| e.contains(range)) {
            return;
        }
        let mut all = range;
        for extent in self.touching(range) {
            self.extents.remove(&extent.start);
            all = BlockRange::new(all.start.min(extent.start), all.end.max(extent.end));
        }
        self.extents.insert(all.start, all.end);
    }

    /// Takes blocks out.
    pub fn remove(&mut self, range: BlockRange) {
        for extent in self.touching(range) {
            if !extent.overlaps(range) {
                continue;
            }
            self.extents.remove(&extent.start);
            if extent.start < range.start {
                self.extents.insert(extent.start, range.start);
            }
            if extent.end > range.end {
                self.extents.insert(range.end, extent.end);
            }
        }
    }

    /// The parts of `range` that are in the set, in order.
    pub fn parts(&self, range: BlockRange) -> Vec<BlockRange> {
        let mut parts = self.touching(range);
        parts.retain(|extent| extent.overlaps(range));
        parts
            .iter_mut()
            .for_each(|extent| *extent = extent.intersection(range));
        parts
    }

    /// The extent that holds `block`, or else the first behind it.
    pub fn next(&self, block: Block) -> Option<BlockRange> {
        let before = self.extents.range(..=block).next_back();
        let at = before.filter(|(_, end)| **end > block);
        let found = at.or_else(|| self.extents.range(block..).next());
        found.map(|(start, end)| BlockRange::new(*start, *end))
    }

    /// How many blocks of `range` are in the set.
    pub fn count(&self, range: BlockRange) -> u64 {
        self.touching_back(range)
            .map(|e| e.intersection(range).blocks())
            .sum()
    }

    /// End of the last block of `range` in the set.
    pub fn last_end(&self, range: BlockRange) -> Option<Block> {
        let mut back = self.touching_back(range).map(|e| e.intersection(range));
        Some(back.find(|e| !e.is_empty())?.end)
    }

    /// All extents, to be saved.
    pub fn extents(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.extents.iter().map(|(s, e)| BlockRange::new(*s, *e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> BlockRange {
        BlockRange::new(Block(start), Block(end))
    }

    #[test]
    fn extents_that_adjoin_become_one() {
        let mut written = Written::default();
        written.add(range(10, 20));
        written.add(range(30, 40));
        assert_eq!(written.count(range(15, 35)), 10);
        written.add(range(20, 30));
        assert_eq!(written.extents().collect::<Vec<_>>(), [range(10, 40)]);
        assert_eq!(written.last_end(range(0, 35)), Some(Block(35)));
        assert_eq!(written.last_end(range(40, 50)), None);
    }

    #[test]
    fn what_is_taken_out_leaves_the_ends_of_its_extents() {
        let mut written = Written::default();
        written.add(range(10, 20));
        written.add(range(30, 40));
        written.remove(range(15, 32));
        assert_eq!(written.parts(range(0, 50)), [range(10, 15), range(32, 40)]);
        assert_eq!(written.next(Block(14)), Some(range(10, 15)));
        assert_eq!(written.next(Block(15)), Some(range(32, 40)));
        assert_eq!(written.next(Block(40)), None);
    }
}
