// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a power cut would bring back.
//!
//! The contents always hold the newest data. For each block whose newest version is volatile, this keeps the version on
//! the medium (`on_medium`). If a block is written again while it is in flight, it also keeps the version in flight
//! (`landing`), which becomes the one on the medium when the transfer ends.
//!
//! INV-D1: a block is in `landing` only while it is in flight, and then it is also in `on_medium`.
//! INV-D2: a block that is not in `on_medium` has the same bytes on the medium as in the contents.

use crate::contents::{Contents, Damaged, Value};
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Older versions of volatile blocks.
#[derive(Default)]
pub struct Durability {
    on_medium: BTreeMap<Block, Value>,
    landing: BTreeMap<Block, Value>,
}

impl Durability {
    /// The contents of `block` were changed, and `old` is what they were. `flies`: an older version is in flight.
    pub fn replaced(&mut self, contents: &mut Contents, block: Block, old: Value, flies: bool) {
        if flies && !self.landing.contains_key(&block) {
            // The first change since take-off: `old` is what flies.
            let known = self.on_medium.contains_key(&block);
            if !known {
                let copy = contents.duplicate(&old);
                self.on_medium.insert(block, copy);
            }
            self.landing.insert(block, old);
        } else {
            match self.on_medium.entry(block) {
                Entry::Occupied(_) => contents.release(old),
                Entry::Vacant(place) => {
                    place.insert(old);
                }
            }
        }
    }

    /// What was in flight in `range` is on the medium.
    pub fn landed(&mut self, contents: &mut Contents, range: BlockRange) {
        let blocks: Vec<Block> = self
            .on_medium
            .range(range.start..range.end)
            .map(|(b, _)| *b)
            .collect();
        for block in blocks {
            let older = match self.landing.remove(&block) {
                Some(landed) => self.on_medium.insert(block, landed),
                None => self.on_medium.remove(&block),
            };
            if let Some(older) = older {
                contents.release(older);
            }
        }
    }

    /// What is still in flight will not land.
    pub fn flight_lost(&mut self, contents: &mut Contents) {
        for (_, value) in core::mem::take(&mut self.landing) {
            contents.release(value);
        }
    }

    /// Brings the contents back to what is on the medium.
    pub fn cut(&mut self, contents: &mut Contents) -> Result<(), Damaged> {
        self.flight_lost(contents);
        for (block, value) in core::mem::take(&mut self.on_medium) {
            contents.restore(block, value)?;
        }
        Ok(())
    }

    /// Checks that only volatile blocks have older versions.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self, buffer: &crate::volatile_buffer::VolatileBuffer) {
        for block in self.landing.keys() {
            assert!(
                buffer.flies(BlockRange::new(*block, *block + 1)),
                "INV-D1: {block:?}"
            );
            assert!(self.on_medium.contains_key(block), "INV-D1: {block:?}");
        }
        for block in self.on_medium.keys() {
            let range = BlockRange::new(*block, *block + 1);
            assert!(
                !buffer.durable(range, u64::MAX),
                "an older version of {block:?} is kept though it is durable"
            );
        }
    }

    /// Blocks that differ on the medium from the contents.
    pub fn on_medium(&self) -> &BTreeMap<Block, Value> {
        &self.on_medium
    }
}
