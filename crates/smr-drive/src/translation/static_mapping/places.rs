// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The space of a cache that is overwritten: which entry holds which places, and which places are free.
//!
//! A new entry goes to the free places that come next behind the last one, around the cache. Victims are found the same
//! way, around the cache on their own: what has been overwritten lately is not spared.
//!
//! ```text
//!   |  held, oldest first  |     free     | held …    one round later
//!                          ▲ cursor       ▲ hand
//! ```

use crate::translation::written::Written;
use alloc::collections::BTreeMap;
use zoned::{Block, BlockRange};

/// Who holds what. A place counts from the start of the cache.
pub(super) struct Places {
    /// Free places, as if they were blocks.
    free: Written,
    free_count: u64,
    /// By their first place, the first block of each entry.
    holders: BTreeMap<u64, Block>,
    /// Where a free place is looked for next.
    cursor: u64,
    /// Where a victim is looked for next.
    hand: u64,
}

fn range(place: u64, count: u64) -> BlockRange {
    BlockRange::new(Block(place), Block(place + count))
}

impl Places {
    /// All of `count` places are free.
    pub fn new(count: u64, cursor: u64) -> Self {
        let mut free = Written::default();
        free.add(range(0, count));
        Places {
            free,
            free_count: count,
            holders: BTreeMap::new(),
            cursor,
            hand: 0,
        }
    }

    /// How many are free.
    pub fn free_count(&self) -> u64 {
        self.free_count
    }

    /// Where a free place is looked for next.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The first place that is free from `cursor` on, or else of all, and how many follow it, at most `most`.
    pub fn next_free(&self, cursor: u64, most: u64) -> Option<(u64, u64)> {
        let found = self.free.next(Block(cursor));
        let extent = found.or_else(|| self.free.next(Block(0)))?;
        let place = if extent.end.0 > cursor {
            extent.start.0.max(cursor)
        } else {
            extent.start.0
        };
        Some((place, (extent.end.0 - place).min(most)))
    }

    /// An entry that begins with block `start` holds places, which were free.
    pub fn hold(&mut self, place: u64, count: u64, start: Block) {
        self.free.remove(range(place, count));
        self.free_count -= count;
        self.holders.insert(place, start);
    }

    /// The next entry is looked for from `cursor` on.
    pub fn go_on_at(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    /// The entry at `place` is no more.
    pub fn release(&mut self, place: u64, count: u64) {
        self.free.add(range(place, count));
        self.free_count += count;
        self.holders.remove(&place);
    }

    /// The entry whose band is to be cleaned next: its place and first block.
    pub fn victim(&self) -> Option<(u64, Block)> {
        let next = self.holders.range(self.hand..).next();
        next.or_else(|| self.holders.iter().next())
            .map(|(place, start)| (*place, *start))
    }

    /// The victim at `place` is being cleaned: the next one lies behind it.
    pub fn pass(&mut self, place: u64) {
        self.hand = place + 1;
    }

    /// By place, the first block of each entry.
    #[cfg(any(test, debug_assertions))]
    pub fn holders(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        self.holders.iter().map(|(place, start)| (*place, *start))
    }

    /// Whether all of these places are held.
    #[cfg(any(test, debug_assertions))]
    pub fn are_held(&self, place: u64, count: u64) -> bool {
        self.free.count(range(place, count)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_places_are_given_out_around_the_cache() {
        let mut places = Places::new(100, 90);
        assert_eq!(places.next_free(90, 20), Some((90, 10)));
        places.hold(90, 10, Block(1));
        assert_eq!(places.next_free(100, 20), Some((0, 20)));
        places.hold(0, 90, Block(2));
        assert_eq!((places.next_free(90, 1), places.free_count()), (None, 0));
        places.release(90, 10);
        assert_eq!(places.next_free(95, 20), Some((95, 5)));
    }

    #[test]
    fn victims_come_around_the_cache_whenever_they_were_written() {
        let mut places = Places::new(100, 0);
        for place in [70, 10, 40] {
            places.hold(place, 10, Block(place));
        }
        let mut seen = [0; 4];
        for at in &mut seen {
            let (place, _) = places.victim().unwrap();
            places.pass(place);
            *at = place;
        }
        assert_eq!(seen, [10, 40, 70, 10]);
    }
}
