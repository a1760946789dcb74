// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Exceptions: the blocks of s-blocks that are newer in their section's log, and what a section knows of them.

use super::{Exception, SBlockMap, NO_SLOT};
use alloc::vec::Vec;
use zoned::BlockRange;

impl SBlockMap {
    pub(super) fn count(&mut self, x: u32, exception: Exception, add: bool) {
        let blocks = u64::from(exception.end - exception.start);
        let section = self.section(x);
        let section = &mut self.sections[section];
        if add {
            section.entries += 1;
            section.blocks += blocks;
        } else {
            section.entries -= 1;
            section.blocks -= blocks;
        }
    }

    pub(super) fn enqueue(&mut self, x: u32, since: u64) {
        let section = self.section(x);
        self.s_blocks[x as usize].since = since;
        self.sections[section].queue.insert((since, x));
        self.dirty_count += 1;
    }

    fn dequeue(&mut self, x: u32) {
        let section = self.section(x);
        let since = self.s_blocks[x as usize].since;
        self.dirty_count -= u64::from(self.sections[section].queue.remove(&(since, x)));
    }

    /// Drops the exceptions of blocks `first..last` of an s-block.
    pub fn drop_exceptions(&mut self, x: u32, first: u64, last: u64) {
        let exceptions = &self.s_blocks[x as usize].exceptions;
        let from = exceptions.partition_point(|e| u64::from(e.end) <= first);
        let to = exceptions.partition_point(|e| u64::from(e.start) < last);
        if from >= to {
            return;
        }
        let (head, tail) = (exceptions[from], exceptions[to - 1]);
        // What sticks out on either side stays.
        let left = (u64::from(head.start) < first).then_some(Exception {
            end: first as u16,
            ..head
        });
        let right = (u64::from(tail.end) > last).then(|| Exception {
            start: last as u16,
            place: tail.place + last - u64::from(tail.start),
            ..tail
        });
        for i in from..to {
            self.count(x, self.s_blocks[x as usize].exceptions[i], false);
        }
        for kept in [left, right].into_iter().flatten() {
            self.count(x, kept, true);
        }
        let exceptions = &mut self.s_blocks[x as usize].exceptions;
        exceptions.splice(from..to, [left, right].into_iter().flatten());
        if exceptions.is_empty() {
            *exceptions = Vec::new();
            self.dequeue(x);
        }
    }

    /// Appends an exception for blocks `first..last` of an s-block.
    pub fn append(&mut self, x: u32, first: u64, last: u64, classes: u8) {
        self.drop_exceptions(x, first, last);
        let index = self.section(x);
        let (ring, header) = (self.ring_blocks, self.header_blocks);
        let section = &mut self.sections[index];
        let since = section.log_head;
        let in_ring = since % ring;
        // Entries do not wrap around.
        let skip = if in_ring + header + (last - first) > ring {
            ring - in_ring
        } else {
            0
        };
        let exception = Exception {
            place: since + skip + header,
            start: first as u16,
            end: last as u16,
            classes,
        };
        section.log_head = exception.place + (last - first);
        self.count(x, exception, true);
        let exceptions = &mut self.s_blocks[x as usize].exceptions;
        let at = exceptions.partition_point(|e| e.start < exception.start);
        exceptions.insert(at, exception);
        if exceptions.len() == 1 {
            self.enqueue(x, since);
        }
    }

    /// The exceptions of an s-block, in order.
    pub fn exceptions(&self, x: u32) -> &[Exception] {
        &self.s_blocks[x as usize].exceptions
    }

    /// Number of exceptions of an s-block, their blocks, and breaks of the log's order among them: pieces that have to
    /// be collected one by one.
    pub fn scatter(&self, x: u32) -> (u64, u64, u64) {
        let mut expected = None;
        let (mut blocks, mut pieces) = (0, 0);
        for e in self.exceptions(x) {
            let len = u64::from(e.end - e.start);
            pieces += u64::from(expected != Some(e.place));
            expected = Some(e.place + len + self.header_blocks);
            blocks += len;
        }
        (self.exceptions(x).len() as u64, blocks, pieces)
    }

    /// First and last block of an s-block with data, wherever they are.
    pub fn image(&self, x: u32) -> Option<(u64, u64)> {
        let exceptions = self.exceptions(x);
        let hulls = [
            self.live(x).map(|(_, first, last)| (first, last)),
            self.open.get(&x).map(|open| (0, open.fill)),
            exceptions
                .first()
                .zip(exceptions.last())
                .map(|(first, last)| (u64::from(first.start), u64::from(last.end))),
        ];
        hulls
            .into_iter()
            .flatten()
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Whether one exception holds all of `range`, so that overwriting it adds none.
    pub fn has_exception(&self, range: BlockRange) -> bool {
        let (x, offset) = self.locate(range.start);
        let exceptions = self.exceptions(x);
        let i = exceptions.partition_point(|e| u64::from(e.start) < offset);
        exceptions.get(i).is_some_and(|e| {
            u64::from(e.start) == offset && u64::from(e.end) == offset + range.blocks()
        })
    }

    /// x was rewritten to `slot` with all exceptions that were appended before `log_head`.
    pub fn moved(&mut self, x: u32, slot: u32, log_head: u64) {
        let mut live = self.s_blocks[x as usize].live;
        if let Some(open) = self.open.remove(&x) {
            live |= self.parts_touched(0, open.fill);
            self.give_slot(x, open.slot);
        }
        let exceptions = core::mem::take(&mut self.s_blocks[x as usize].exceptions);
        if !exceptions.is_empty() {
            self.dequeue(x);
        }
        let mut newer = Vec::new();
        for e in exceptions {
            if e.place < log_head {
                live |= self.parts_touched(u64::from(e.start), u64::from(e.end));
                self.count(x, e, false);
            } else {
                newer.push(e);
            }
        }
        if !newer.is_empty() {
            self.s_blocks[x as usize].exceptions = newer;
            self.enqueue(x, log_head);
        }
        self.give_slot(x, self.s_blocks[x as usize].slot);
        self.set_slot(x, slot, live);
    }

    /// The host no longer needs blocks `first..last` of an s-block.
    pub fn discard(&mut self, x: u32, first: u64, last: u64) {
        self.drop_exceptions(x, first, last);
        if first == 0 && last == self.len(x) {
            if let Some(open) = self.open.remove(&x) {
                self.give_slot(x, open.slot);
            }
        }
        let s = &self.s_blocks[x as usize];
        if s.slot != NO_SLOT {
            let live = s.live & !self.parts_covered(x, first, last);
            self.set_slot(x, s.slot, live);
        }
    }

    // Sections.

    /// Entries of a section.
    pub fn entries(&self, section: usize) -> u64 {
        self.sections[section].entries
    }

    /// Entries and blocks in all exception buffers.
    pub fn totals(&self) -> (u64, u64) {
        let sections = self.sections.iter();
        sections.fold((0, 0), |(e, b), s| (e + s.entries, b + s.blocks))
    }

    /// Where the next exception will be appended.
    pub fn log_head(&self, section: usize) -> u64 {
        self.sections[section].log_head
    }

    /// Blocks of a section's ring from where its oldest dirty s-block became dirty.
    pub fn occupied(&self, section: usize) -> u64 {
        let section = &self.sections[section];
        let oldest = section.queue.first();
        oldest.map_or(0, |(since, _)| section.log_head - since)
    }

    /// The s-block of a section that has been dirty for longest.
    pub fn oldest(&self, section: usize) -> Option<u32> {
        self.sections[section].queue.first().map(|(_, x)| *x)
    }

    /// How many s-blocks have exceptions.
    pub fn dirty_count(&self) -> u64 {
        self.dirty_count
    }

    /// Classes of what is in an s-block's exceptions, a bit each.
    pub fn classes(&self, x: u32) -> u8 {
        self.exceptions(x).iter().fold(0, |c, e| c | e.classes)
    }

    /// The first `max` dirty s-blocks by address with the classes of what was written there.
    pub fn dirty_by_address(&self, max: usize) -> Vec<(u32, u8)> {
        let mut found = Vec::new();
        for (i, section) in self.sections.iter().enumerate() {
            if section.queue.is_empty() {
                continue;
            }
            let first = i as u32 * self.section_s_blocks;
            let last = (first + self.section_s_blocks).min(self.s_blocks.len() as u32);
            for x in first..last {
                let exceptions = self.exceptions(x);
                if found.len() < max && !exceptions.is_empty() {
                    found.push((x, self.classes(x)));
                }
            }
            if found.len() >= max {
                break;
            }
        }
        found
    }
}
