// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Where s-blocks and their exceptions are: the map of a drive with dynamic mapping.
//!
//! ```text
//! physical:  | section 0                          | section 1 …
//!            | exception buffer | slot 0 | slot 1 …|
//! ```
//!
//! An s-block lies in some slot of its section, or in none while it has no data. Its *exceptions* are newer blocks of it
//! in the section's exception buffer, a log ring. While a stream rewrites it from its first block on, it is *open*: the
//! beginning is in a second slot already, the rest is still in the old one.
//!
//! INV-S1: a slot is free, or exactly one holds it: an s-block, an open s-block, or who took it (`take_slot`).
//! INV-S2: exceptions of an s-block are in order, do not overlap, lie in it, and none wraps around the ring.
//! INV-S3: an s-block is in its section's queue exactly if it has exceptions, and became dirty before all of them.
//! INV-S4: the log from where the oldest in the queue became dirty to the head is at most as long as the ring.
//! INV-S5: a section's counts are the sums over its s-blocks.
//! INV-S6: an s-block has a slot exactly if it has live data there.
//! INV-S7: an open s-block is not yet full, and what its beginning replaces is not live in the old slot.

#[cfg(any(test, debug_assertions))]
mod check;
mod exceptions;
mod slots;
#[cfg(test)]
mod tests;

use crate::profile;
use crate::state::{SavedDirty, SavedEntry, SavedOpen, SavedSBlocks, SavedSlots};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use slots::Slots;
use zoned::{Block, BlockRange, Pba};

/// Live data of an s-block are known in so many parts.
const PARTS: u64 = 64;
const NO_SLOT: u32 = u32::MAX;

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its first data block in the log: blocks ever appended before it.
    pub place: u64,
    /// First block, counted from the s-block's.
    start: u16,
    /// The block after the last.
    end: u16,
    /// Classes of its writes, a bit each.
    pub classes: u8,
}

/// An s-block.
struct SBlock {
    slot: u32,
    /// Which parts of the slot hold data, a bit each.
    live: u64,
    /// Where the log's head was when it became dirty.
    since: u64,
    exceptions: Vec<Exception>,
}

/// An s-block that is being written to another slot from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where to.
    pub slot: u32,
    /// Blocks that are there.
    pub fill: u64,
    /// When it last grew.
    pub last_ns: u64,
}

/// A section.
struct Section {
    log_head: u64,
    /// Dirty s-blocks, oldest first.
    queue: BTreeSet<(u64, u32)>,
    entries: u64,
    blocks: u64,
    slots: Slots,
}

/// Bits `from..to`.
fn bits(from: u64, to: u64) -> u64 {
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

/// The map.
pub struct SBlockMap {
    s_block_blocks: u64,
    part_blocks: u64,
    section_s_blocks: u32,
    slots: u32,
    ring_blocks: u64,
    header_blocks: u64,
    capacity_blocks: u64,
    s_blocks: Vec<SBlock>,
    sections: Vec<Section>,
    open: BTreeMap<u32, Open>,
    dirty_count: u64,
    live_parts: u64,
}

impl SBlockMap {
    /// As it was saved.
    pub fn new(profile: &profile::SBlocks, capacity_blocks: u64, saved: &SavedSBlocks) -> Self {
        let count = capacity_blocks.div_ceil(profile.s_block_blocks) as u32;
        let sections = count.div_ceil(profile.section_s_blocks);
        // Half-written s-blocks, one that is being cleaned, and one that is about to be opened.
        let spare = profile.section_spare_slots.max(profile.stream_runs_max + 2);
        let slots = profile.section_s_blocks + spare;
        let mut map = SBlockMap {
            s_block_blocks: profile.s_block_blocks,
            part_blocks: profile.s_block_blocks.div_ceil(PARTS),
            section_s_blocks: profile.section_s_blocks,
            slots,
            ring_blocks: profile.section_ring_blocks,
            header_blocks: profile.entry_header_blocks,
            capacity_blocks,
            s_blocks: Vec::with_capacity(count as usize),
            sections: Vec::with_capacity(sections as usize),
            open: BTreeMap::new(),
            dirty_count: 0,
            live_parts: 0,
        };
        map.s_blocks.resize_with(count as usize, || SBlock {
            slot: NO_SLOT,
            live: 0,
            since: 0,
            exceptions: Vec::new(),
        });
        for section in 0..sections {
            map.sections.push(Section {
                log_head: saved.log_heads.get(section as usize).copied().unwrap_or(0),
                queue: BTreeSet::new(),
                entries: 0,
                blocks: 0,
                slots: Slots::new(slots),
            });
        }
        map.restore(saved);
        map
    }

    fn restore(&mut self, saved: &SavedSBlocks) {
        for run in &saved.slots {
            for i in 0..run.count {
                let x = run.first + i;
                self.hold_slot(x, run.slot + i);
                let whole = self.parts_touched(0, self.len(x));
                self.set_slot(x, run.slot + i, run.live & whole);
            }
        }
        for open in &saved.open {
            self.hold_slot(open.s_block, open.slot);
            self.open.insert(
                open.s_block,
                Open {
                    slot: open.slot,
                    fill: open.blocks,
                    last_ns: 0,
                },
            );
        }
        for dirty in &saved.dirty {
            let x = dirty.s_block;
            let first = self.range(x).start.0;
            self.s_blocks[x as usize].since = dirty.since;
            for entry in &dirty.entries {
                let exception = Exception {
                    place: entry.place,
                    start: (entry.start.0 - first) as u16,
                    end: (entry.end.0 - first) as u16,
                    classes: entry.classes,
                };
                self.s_blocks[x as usize].exceptions.push(exception);
                self.count(x, exception, true);
            }
            self.enqueue(x, dirty.since);
        }
    }

    /// To be saved.
    pub fn save(&self) -> SavedSBlocks {
        let mut saved = SavedSBlocks {
            log_heads: self.sections.iter().map(|s| s.log_head).collect(),
            ..SavedSBlocks::default()
        };
        for (x, s) in self.s_blocks.iter().enumerate() {
            let x = x as u32;
            if s.slot != NO_SLOT {
                match saved.slots.last_mut() {
                    Some(run)
                        if run.first + run.count == x
                            && run.slot + run.count == s.slot
                            && run.live == s.live
                            && x % self.section_s_blocks != 0 =>
                    {
                        run.count += 1;
                    }
                    _ => saved.slots.push(SavedSlots {
                        first: x,
                        count: 1,
                        slot: s.slot,
                        live: s.live,
                    }),
                }
            }
            if !s.exceptions.is_empty() {
                let first = self.range(x).start;
                saved.dirty.push(SavedDirty {
                    s_block: x,
                    since: s.since,
                    entries: s
                        .exceptions
                        .iter()
                        .map(|e| SavedEntry {
                            start: first + u64::from(e.start),
                            end: first + u64::from(e.end),
                            place: e.place,
                            classes: e.classes,
                        })
                        .collect(),
                });
            }
        }
        saved.open = self
            .open
            .iter()
            .map(|(x, open)| SavedOpen {
                s_block: *x,
                slot: open.slot,
                blocks: open.fill,
            })
            .collect();
        saved
    }

    // Addresses.

    /// The s-block that holds `block`, and where in it.
    pub fn locate(&self, block: Block) -> (u32, u64) {
        let x = block.0 / self.s_block_blocks;
        (x as u32, block.0 - x * self.s_block_blocks)
    }

    /// The blocks of an s-block; the last one ends where the drive does.
    pub fn range(&self, x: u32) -> BlockRange {
        let start = u64::from(x) * self.s_block_blocks;
        let end = (start + self.s_block_blocks).min(self.capacity_blocks);
        BlockRange::new(Block(start), Block(end))
    }

    /// Blocks of an s-block.
    pub fn len(&self, x: u32) -> u64 {
        self.range(x).blocks()
    }

    /// The section of an s-block.
    pub fn section(&self, x: u32) -> usize {
        (x / self.section_s_blocks) as usize
    }

    /// How many sections there are.
    pub fn section_count(&self) -> usize {
        self.sections.len()
    }

    /// The blocks of a section.
    pub fn section_range(&self, section: usize) -> BlockRange {
        let blocks = u64::from(self.section_s_blocks) * self.s_block_blocks;
        let start = section as u64 * blocks;
        BlockRange::new(
            Block(start),
            Block((start + blocks).min(self.capacity_blocks)),
        )
    }

    fn section_start(&self, section: usize) -> u64 {
        section as u64 * (self.ring_blocks + u64::from(self.slots) * self.s_block_blocks)
    }

    /// Physical blocks of all sections.
    pub fn physical_blocks(&self) -> u64 {
        self.section_start(self.sections.len())
    }

    /// Where a place of a section's log is.
    pub fn log_pba(&self, section: usize, place: u64) -> Pba {
        Pba(self.section_start(section) + place % self.ring_blocks)
    }

    /// Where a block of a slot of x's section is.
    pub fn slot_pba(&self, x: u32, slot: u32, offset: u64) -> Pba {
        let first = self.section_start(self.section(x)) + self.ring_blocks;
        Pba(first + u64::from(slot) * self.s_block_blocks + offset)
    }

    /// The slot where the blocks from `offset` on would be read, exceptions apart, and where that changes. What was never
    /// written is nowhere; a read of it goes where the s-block lies on a new drive.
    fn base(&self, x: u32, offset: u64) -> (u32, u64) {
        let s = &self.s_blocks[x as usize];
        let open = self.open.get(&x);
        match open {
            Some(open) if offset < open.fill => (open.slot, open.fill),
            _ if s.slot != NO_SLOT => (s.slot, self.len(x)),
            _ => (
                open.map_or(x % self.section_s_blocks, |open| open.slot),
                self.len(x),
            ),
        }
    }

    /// The pieces of `range`; see [`pieces`](crate::translation::TranslationLayer::pieces). Behind a piece that ends less than `ahead` blocks
    /// before its s-block does, the platter goes on with something else, unless the next s-block lies there.
    pub fn pieces(
        &self,
        range: BlockRange,
        ahead: u64,
        visit: &mut dyn FnMut(BlockRange, Pba, bool),
    ) {
        let mut at = range.start;
        while at < range.end {
            let (x, first) = self.locate(at);
            let s_block = self.range(x);
            let last = range.end.min(s_block.end).0 - s_block.start.0;
            let exceptions = &self.s_blocks[x as usize].exceptions;
            let mut offset = first;
            let mut i = exceptions.partition_point(|e| u64::from(e.end) <= first);
            while offset < last {
                let next = exceptions.get(i).filter(|e| u64::from(e.start) < last);
                if let Some(e) = next.filter(|e| u64::from(e.start) <= offset) {
                    let end = last.min(u64::from(e.end));
                    let pba = self.log_pba(self.section(x), e.place + offset - u64::from(e.start));
                    let part = BlockRange::new(s_block.start + offset, s_block.start + end);
                    visit(part, pba, false);
                    (offset, i) = (end, i + 1);
                    continue;
                }
                let (slot, changes) = self.base(x, offset);
                let end = next
                    .map_or(last, |e| u64::from(e.start))
                    .min(last)
                    .min(changes);
                let part = BlockRange::new(s_block.start + offset, s_block.start + end);
                let goes_on =
                    end + ahead <= changes || changes == self.len(x) && self.follows(x, slot);
                visit(part, self.slot_pba(x, slot, offset), goes_on);
                offset = end;
            }
            at = s_block.start + last;
        }
    }

    /// Whether the s-block behind `x` lies behind `slot`.
    fn follows(&self, x: u32, slot: u32) -> bool {
        let next = x as usize + 1;
        next < self.s_blocks.len()
            && (x + 1) % self.section_s_blocks != 0
            && self.base(next as u32, 0).0 == slot + 1
    }

    // Slots.

    /// Takes a free slot of x's section: whoever asks holds it from now on.
    pub fn take_slot(&mut self, x: u32) -> u32 {
        let section = self.section(x);
        self.sections[section].slots.take()
    }

    /// Gives a slot of x's section back.
    pub fn give_slot(&mut self, x: u32, slot: u32) {
        let section = self.section(x);
        if slot != NO_SLOT {
            self.sections[section].slots.give(slot);
        }
    }

    fn hold_slot(&mut self, x: u32, slot: u32) {
        let section = self.section(x);
        self.sections[section].slots.hold(slot);
    }

    /// What is live in the s-block's slot from now on; without anything, the slot is given back.
    fn set_slot(&mut self, x: u32, slot: u32, live: u64) {
        let s = &mut self.s_blocks[x as usize];
        self.live_parts -= u64::from(s.live.count_ones());
        self.live_parts += u64::from(live.count_ones());
        s.live = live;
        s.slot = if live == 0 { NO_SLOT } else { slot };
        if live == 0 {
            self.give_slot(x, slot);
        }
    }

    /// Parts that `first..last` touches.
    fn parts_touched(&self, first: u64, last: u64) -> u64 {
        bits(first / self.part_blocks, last.div_ceil(self.part_blocks))
    }

    /// Parts of x that lie in `first..last` as a whole.
    fn parts_covered(&self, x: u32, first: u64, last: u64) -> u64 {
        let end = if last == self.len(x) {
            last.div_ceil(self.part_blocks)
        } else {
            last / self.part_blocks
        };
        bits(first.div_ceil(self.part_blocks), end)
    }

    /// The blocks from the first to the last of these parts, not before `from`.
    fn hull(&self, x: u32, parts: u64, from: u64) -> Option<(u64, u64)> {
        if parts == 0 {
            return None;
        }
        let first = u64::from(parts.trailing_zeros()) * self.part_blocks;
        let last = (64 - u64::from(parts.leading_zeros())) * self.part_blocks;
        Some((first.max(from), last.min(self.len(x)))).filter(|(first, last)| first < last)
    }

    /// Slot, and first and last live block of it.
    pub fn live(&self, x: u32) -> Option<(u32, u64, u64)> {
        let s = &self.s_blocks[x as usize];
        let (first, last) = self.hull(x, s.live, 0)?;
        Some((s.slot, first, last))
    }

    /// Live parts of all slots, in blocks.
    pub fn live_blocks(&self) -> u64 {
        self.live_parts * self.part_blocks
    }

    // Open s-blocks.

    /// All that are open.
    pub fn open(&self) -> &BTreeMap<u32, Open> {
        &self.open
    }

    /// Of an open s-block, what the old slot still has to give: slot, first and last block.
    pub fn rest(&self, x: u32) -> Option<(u32, u64, u64)> {
        let fill = self.open.get(&x)?.fill;
        let s = &self.s_blocks[x as usize];
        let (first, last) = self.hull(x, s.live, fill)?;
        Some((s.slot, first, last))
    }

    /// A stream begins at x's first block, in `slot`.
    pub fn begin_fill(&mut self, x: u32, slot: u32) {
        let open = Open {
            slot,
            fill: 0,
            last_ns: 0,
        };
        let before = self.open.insert(x, open);
        debug_assert!(before.is_none());
    }

    /// The blocks from the fill to `last` are written.
    pub fn fill(&mut self, x: u32, last: u64, now_ns: u64) {
        let Some(open) = self.open.get_mut(&x) else {
            return;
        };
        let first = open.fill;
        open.fill = last;
        open.last_ns = now_ns;
        let slot = open.slot;
        self.drop_exceptions(x, first, last);
        let s = &self.s_blocks[x as usize];
        if s.slot != NO_SLOT {
            let live = s.live & !self.parts_covered(x, 0, last);
            self.set_slot(x, s.slot, live);
        }
        if last == self.len(x) {
            self.open.remove(&x);
            self.set_slot(x, slot, self.parts_touched(0, last));
        }
    }

    /// The rest is written behind the beginning: the s-block is as a whole in its new slot.
    pub fn close(&mut self, x: u32) {
        let Some(open) = self.open.remove(&x) else {
            return;
        };
        let s = &self.s_blocks[x as usize];
        let live = self.parts_touched(0, open.fill) | s.live & !self.parts_covered(x, 0, open.fill);
        self.give_slot(x, s.slot);
        self.set_slot(x, open.slot, live);
    }
}
