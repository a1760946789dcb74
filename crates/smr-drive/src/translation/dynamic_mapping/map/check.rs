// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! INV-S1 to INV-S7, as far as they can be seen from inside.

use super::{SBlockMap, NO_SLOT};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

impl SBlockMap {
    /// Checks the invariants; `taken` are slots that somebody took, with an s-block of their section.
    pub fn check(&self, taken: &[(u32, u32)]) {
        let mut sums = vec![(0, 0, 0); self.sections.len()];
        let mut held: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); self.sections.len()];
        let mut hold = |x: u32, slot: u32| {
            let section = self.section(x);
            assert!(held[section].insert(slot), "INV-S1: slot {slot} held twice");
            assert!(!self.sections[section].slots.is_free(slot), "INV-S1");
        };
        for (x, s) in self.s_blocks.iter().enumerate() {
            let x = x as u32;
            assert_eq!(s.slot == NO_SLOT, s.live == 0, "INV-S6: {x}");
            assert_eq!(s.live & !self.parts_touched(0, self.len(x)), 0, "INV-S6");
            if s.slot != NO_SLOT {
                hold(x, s.slot);
            }
            let queue = &self.sections[self.section(x)].queue;
            let sum = &mut sums[self.section(x)];
            if !s.exceptions.is_empty() {
                assert!(queue.contains(&(s.since, x)), "INV-S3: {x}");
                sum.2 += 1;
            }
            let mut at = 0;
            for e in &s.exceptions {
                assert!(e.start >= at && e.start < e.end, "INV-S2: {x} {e:?}");
                assert!(u64::from(e.end) <= self.len(x), "INV-S2: {x} {e:?}");
                let blocks = u64::from(e.end - e.start);
                let place = e.place % self.ring_blocks;
                assert!(place + blocks <= self.ring_blocks, "INV-S2: {x} {e:?}");
                assert!(s.since + self.header_blocks <= e.place, "INV-S3: {x}");
                at = e.end;
                *sum = (sum.0 + 1, sum.1 + blocks, sum.2);
            }
        }
        for (x, open) in &self.open {
            hold(*x, open.slot);
            let old = self.s_blocks[*x as usize].live & self.parts_covered(*x, 0, open.fill);
            assert!(open.fill < self.len(*x) && old == 0, "INV-S7: {x}");
        }
        for (x, slot) in taken {
            hold(*x, *slot);
        }
        for (i, section) in self.sections.iter().enumerate() {
            let free = (0..self.slots)
                .filter(|s| section.slots.is_free(*s))
                .count();
            assert_eq!(free + held[i].len(), self.slots as usize, "INV-S1: {i}");
            let known = (section.entries, section.blocks, section.queue.len());
            assert_eq!(known, sums[i], "INV-S3, INV-S5: {i}");
            assert!(self.occupied(i) <= self.ring_blocks, "INV-S4: {i}");
        }
        let queued: usize = self.sections.iter().map(|s| s.queue.len()).sum();
        assert_eq!(queued as u64, self.dirty_count, "INV-S3");
        let live = self.s_blocks.iter().map(|s| u64::from(s.live.count_ones()));
        assert_eq!(live.sum::<u64>(), self.live_parts, "INV-S5");
    }
}
