// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Read-ahead: after a read the head goes on reading where it is, until the segment is full or there is other work.

use super::arm::Arm;
use crate::profile::Mechanics;
use alloc::vec::Vec;
use zoned::{Block, BlockRange, Pba};

/// Blocks in the DRAM that were read and not changed since.
struct Segment {
    range: BlockRange,
    used: u64,
}

/// What the head does while nobody asks for anything.
struct Following {
    since_ns: u64,
    from: Pba,
    blocks: u64,
    lba: Block,
}

/// The read segments.
pub struct ReadAhead {
    segments: Vec<Segment>,
    following: Option<Following>,
    segment_blocks: u64,
    segments_max: usize,
    uses: u64,
}

impl ReadAhead {
    /// No segments yet.
    pub fn new(mechanics: &Mechanics) -> Self {
        ReadAhead {
            segments: Vec::new(),
            following: None,
            segment_blocks: u64::from(mechanics.segment_blocks),
            segments_max: mechanics.segments as usize,
            uses: 0,
        }
    }

    /// How many blocks the head has passed since it began to follow. The block under the head counts: it is waited for.
    fn passed(following: &Following, arm: &Arm, now_ns: u64) -> u64 {
        let layout = arm.layout();
        let start_ns = layout.linear_ns(following.from);
        let elapsed_ns = now_ns.saturating_sub(following.since_ns);
        let (mut least, mut most) = (0, following.blocks);
        while least < most {
            let middle = (least + most) / 2;
            if layout.linear_ns(following.from + middle) - start_ns < elapsed_ns {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }

    /// There is other work: what has been read by now is kept, and the arm is where it got to.
    pub fn stop(&mut self, arm: &mut Arm, now_ns: u64) {
        if let Some(following) = self.following.take() {
            let passed = Self::passed(&following, arm, now_ns);
            arm.drift_to(following.from + passed);
            self.keep(BlockRange::new(following.lba, following.lba + passed));
        }
    }

    /// Blocks of a segment: so much is read ahead at most.
    pub fn segment_blocks(&self) -> u64 {
        self.segment_blocks
    }

    /// A read of `range` ended with the head at `from`, where the `blocks` blocks after the range come next.
    pub fn start(&mut self, now_ns: u64, range: BlockRange, from: Pba, blocks: u64) {
        self.keep(range);
        let blocks = self.segment_blocks.min(blocks);
        if self.segments_max > 0 && blocks > 0 {
            self.following = Some(Following {
                since_ns: now_ns,
                from,
                blocks,
                lba: range.end,
            });
        }
    }

    /// Whether all of `range` is in the DRAM at `now_ns`.
    pub fn hit(&mut self, arm: &Arm, now_ns: u64, range: BlockRange) -> bool {
        let mut known_to = range.start;
        // Segments follow each other: the one that was read, and what was read ahead of it.
        for _ in 0..3 {
            if let Some(i) = self
                .segments
                .iter()
                .position(|s| s.range.start <= known_to && known_to < s.range.end)
            {
                self.uses += 1;
                self.segments[i].used = self.uses;
                known_to = self.segments[i].range.end;
            }
            if known_to >= range.end {
                return true;
            }
        }
        self.following.as_ref().is_some_and(|f| {
            f.lba <= known_to
                && range.end <= f.lba + f.blocks
                && range.end <= f.lba + Self::passed(f, arm, now_ns)
        })
    }

    /// How far into `range` everything is known from segments.
    pub fn known_to(&self, range: BlockRange) -> Block {
        let first = self
            .segments
            .iter()
            .find(|s| s.range.start <= range.start && range.start < s.range.end);
        first.map_or(range.start, |s| s.range.end.min(range.end))
    }

    fn keep(&mut self, range: BlockRange) {
        if range.is_empty() || self.segments_max == 0 {
            return;
        }
        self.uses += 1;
        if let Some(segment) = self
            .segments
            .iter_mut()
            .find(|s| s.range.end == range.start)
        {
            // The start of a long sequential read falls out of its segment.
            let start = segment
                .range
                .start
                .0
                .max(range.end.0.saturating_sub(2 * self.segment_blocks));
            segment.range = BlockRange::new(Block(start.min(range.start.0)), range.end);
            segment.used = self.uses;
            return;
        }
        if self.segments.len() >= self.segments_max {
            let oldest = self
                .segments
                .iter()
                .enumerate()
                .min_by_key(|(_, s)| s.used)
                .map_or(0, |(i, _)| i);
            self.segments.swap_remove(oldest);
        }
        self.segments.push(Segment {
            range,
            used: self.uses,
        });
    }

    /// The host has written `range`: what was read of it is old.
    pub fn forget(&mut self, range: BlockRange) {
        self.segments.retain(|s| !s.range.overlaps(range));
        if let Some(following) = &mut self.following {
            if range.start < following.lba + following.blocks && range.end > following.lba {
                // Only what lies before the written blocks is of use.
                following.blocks = range.start.0.saturating_sub(following.lba.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arm::Access;
    use super::*;
    use crate::profile::sample;

    fn read(range: BlockRange) -> (Arm, ReadAhead, u64) {
        let mechanics = sample::conventional(1 << 30).mechanics;
        let (mut arm, mut ahead) = (Arm::new(&mechanics, 1), ReadAhead::new(&mechanics));
        let now = arm.access(0, Pba(range.start.0), range.blocks(), Access::Read);
        ahead.start(now, range, Pba(range.end.0), u64::MAX);
        (arm, ahead, now)
    }

    #[test]
    fn the_next_blocks_come_with_time() {
        let range = BlockRange::new(Block(100), Block(110));
        let next = BlockRange::new(Block(110), Block(120));
        let (arm, mut ahead, now) = read(range);
        assert!(ahead.hit(&arm, now, range));
        assert!(!ahead.hit(&arm, now, next));
        assert!(
            ahead.hit(&arm, now + 1_000_000, next),
            "ten blocks pass in half a millisecond"
        );
        assert!(
            !ahead.hit(
                &arm,
                now + 1_000_000_000,
                BlockRange::new(Block(230), Block(240))
            ),
            "a segment has an end"
        );
    }

    #[test]
    fn a_read_that_goes_on_finds_the_head_in_place() {
        let (mut arm, mut ahead, now) = read(BlockRange::new(Block(100), Block(110)));
        ahead.stop(&mut arm, now + 1_000_000);
        assert!(arm.at() > Pba(120));
        assert!(
            arm.position_ns(now + 1_000_000, arm.at(), Access::Read) < 60_000,
            "less than a block"
        );
    }

    #[test]
    fn written_blocks_are_forgotten() {
        let range = BlockRange::new(Block(100), Block(110));
        let (arm, mut ahead, now) = read(range);
        ahead.forget(BlockRange::new(Block(112), Block(113)));
        assert!(ahead.hit(
            &arm,
            now + 5_000_000,
            BlockRange::new(Block(110), Block(112))
        ));
        assert!(!ahead.hit(
            &arm,
            now + 5_000_000,
            BlockRange::new(Block(110), Block(113))
        ));
        ahead.forget(BlockRange::new(Block(105), Block(106)));
        assert!(!ahead.hit(&arm, now + 5_000_000, range));
    }
}
