// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Which blocks were ever written in place: a set of extents. What was never written need not be saved when its band is
//! rewritten.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Disjoint extents that do not adjoin, by their first block.
#[derive(Default)]
pub struct Written {
    extents: BTreeMap<Block, Block>,
}

impl Written {
    /// Extents that overlap or adjoin `range`.
    fn touching(&self, range: BlockRange) -> Vec<BlockRange> {
        let mut found: Vec<BlockRange> = self
            .extents
            .range(..=range.end)
            .rev()
            .map(|(s, e)| BlockRange::new(*s, *e))
            .take_while(|r| r.end >= range.start)
            .collect();
        found.reverse();
        found
    }

    /// Adds blocks.
    pub fn add(&mut self, range: BlockRange) {
        if range.is_empty() {
            return;
        }
        let mut all = range;
        for extent in self.touching(range) {
            self.extents.remove(&extent.start);
            all = BlockRange::new(all.start.min(extent.start), all.end.max(extent.end));
        }
        self.extents.insert(all.start, all.end);
    }

    /// How many blocks of `range` are in the set.
    pub fn count(&self, range: BlockRange) -> u64 {
        self.touching(range)
            .iter()
            .map(|e| e.intersection(range).blocks())
            .sum()
    }

    /// End of the last block of `range` in the set.
    pub fn last_end(&self, range: BlockRange) -> Option<Block> {
        let last = self
            .touching(range)
            .into_iter()
            .rev()
            .map(|e| e.intersection(range))
            .find(|e| !e.is_empty())?;
        Some(last.end)
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
}
