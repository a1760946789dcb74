// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The free slots of a section.

use alloc::vec;
use alloc::vec::Vec;

/// Free slots, a bit each.
pub(super) struct Slots {
    free: Vec<u64>,
    /// Where to look first: runs of s-blocks come to lie in a row.
    next: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let mut slots = Slots {
            free: vec![0; count.div_ceil(64) as usize],
            next: 0,
        };
        (0..count).for_each(|slot| slots.give(slot));
        slots
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn is_free(&self, slot: u32) -> bool {
        self.free[slot as usize / 64] & (1 << (slot % 64)) != 0
    }

    pub(super) fn give(&mut self, slot: u32) {
        self.free[slot as usize / 64] |= 1 << (slot % 64);
    }

    pub(super) fn hold(&mut self, slot: u32) {
        self.free[slot as usize / 64] &= !(1 << (slot % 64));
    }

    /// The next free slot from where the last one was found, around the end.
    pub(super) fn take(&mut self) -> u32 {
        let words = self.free.len();
        let first = self.next as usize / 64 % words;
        // The first word comes twice: first its upper part, at last all of it.
        let mut mask = u64::MAX << (self.next % 64);
        for i in 0..=words {
            let word = (first + i) % words;
            let found = self.free[word] & mask;
            if found != 0 {
                let slot = word as u32 * 64 + found.trailing_zeros();
                self.hold(slot);
                self.next = slot + 1;
                return slot;
            }
            mask = u64::MAX;
        }
        unreachable!("INV-S1: a section has more spare slots than are ever in use at a time")
    }
}
