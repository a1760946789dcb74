// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Which dirty blocks leave the buffer next, and whether they are written in place or appended to the cache's log.
//!
//! In place go only sequential runs: contiguous dirty blocks that continue a stream, or that are long enough
//! ([`stream_min_blocks`](crate::profile::StaticMapping::stream_min_blocks)) together with what the DRAM still has of
//! them. Everything else goes to the log.

use super::layer::StaticMapping;
use crate::trace::Where;
use crate::translation::layer::{Destage, Need};
use crate::translation::streams::GROWING_BLOCKS;
use crate::translation::written::Written;
use crate::volatile_buffer::{Piece, VolatileBuffer};
use alloc::vec;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

impl StaticMapping {
    /// See the module's head.
    pub(super) fn plan_static(&mut self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        if buffer.blocks() == 0 {
            return None;
        }
        self.streams.expire(need.now_ns);
        if self.nothing_to_do(buffer, need) {
            return None;
        }
        self.plan_continuation(buffer, need)
            .or_else(|| self.plan_new_stream(buffer, need))
            .or_else(|| self.plan_append(buffer, need, &Written::default()))
    }

    /// Whether nothing is due and nothing is long enough, which is so at most looks and cheap to see.
    fn nothing_to_do(&self, buffer: &VolatileBuffer, need: Need) -> bool {
        let least = self.profile.stream_min_blocks;
        let candidates = self.streams.candidates().iter();
        let longest = candidates.map(|r| r.end.0 - r.start.0).max().unwrap_or(0);
        !need.may_be_due(buffer)
            && !need.pressure
            && buffer.blocks() < self.destage_blocks_max
            && longest + buffer.blocks() < least
    }

    /// More of a run that streams, or of a candidate that is now long enough.
    fn plan_continuation(&self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        for run in self.streams.streaming() {
            let end = buffer.contiguous_end(run.end);
            let long_enough =
                need.overdue.is_none() && end.0 - run.end.0 >= self.destage_blocks_max;
            if end > run.end && (long_enough || need.pressure || need.is_due_from(buffer, run.end))
            {
                return Some(self.in_place(run.end, run.end, end));
            }
        }
        let least = self.profile.stream_min_blocks;
        // Most candidates are random writes, and no look at the buffer is needed to see that they are short.
        let candidates = self.streams.candidates().iter();
        for run in candidates.filter(|r| r.end.0 - r.start.0 + buffer.blocks() >= least) {
            let end = buffer.contiguous_end(run.end);
            let has_turn = need.overdue.is_none() || need.is_due_from(buffer, run.end);
            if end > run.end && end.0 - run.start.0 >= least && has_turn {
                return Some(self.in_place(run.start, run.end, end));
            }
        }
        None
    }

    /// A run that is long enough before any of it left the buffer.
    fn plan_new_stream(&self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        let least = self.profile.stream_min_blocks;
        if buffer.blocks() < least {
            return None;
        }
        let mut run = BlockRange::new(Block(0), Block(0));
        let mut has_turn = false;
        for (range, piece) in buffer.pieces() {
            let goes_on = range.start == run.end;
            let start = if goes_on { run.start } else { range.start };
            run = BlockRange::new(start, range.end);
            has_turn = has_turn && goes_on || need.overdue.is_none() || need.is_due(piece);
            if run.blocks() >= least && has_turn {
                return Some(self.in_place(run.start, run.start, buffer.contiguous_end(run.end)));
            }
        }
        None
    }

    /// In place from `start`; dirty are the blocks from `dirty` to `end`. One chunk at a time, so that others get a turn.
    fn in_place(&self, start: Block, dirty: Block, end: Block) -> Destage {
        let end = end.min(dirty + self.destage_blocks_max);
        Destage {
            place: Where::InPlace,
            ranges: vec![BlockRange::new(dirty, end)],
            span: BlockRange::new(start, end),
        }
    }

    /// A batch of entries for the log, without the blocks of `skip`. What grows into a run is left alone as long as nobody
    /// waits for it.
    pub(in crate::translation) fn plan_append(
        &mut self,
        buffer: &VolatileBuffer,
        need: Need,
        skip: &Written,
    ) -> Option<Destage> {
        let growing = |range: BlockRange, p: &Piece| {
            range.blocks() >= GROWING_BLOCKS && p.last_ns + need.hold_ns > need.now_ns
        };
        let mut ranges = self.gather(buffer, skip, |range, piece| {
            need.is_due(piece) || need.pressure && !growing(range, piece)
        });
        if ranges.is_empty() && need.pressure {
            ranges = self.gather(buffer, skip, |_, _| true);
        }
        let last = ranges.last()?;
        self.cursor = last.end;
        let span = BlockRange::new(last.start, last.end);
        Some(Destage {
            place: Where::PersistentCache,
            ranges,
            span,
        })
    }

    /// Entries for the pieces that are `wanted`, from the cursor on and around.
    fn gather(
        &self,
        buffer: &VolatileBuffer,
        skip: &Written,
        wanted: impl Fn(BlockRange, &Piece) -> bool,
    ) -> Vec<BlockRange> {
        let mut ranges = Vec::new();
        let mut blocks_left = self.destage_blocks_max;
        let from = buffer
            .piece_at(self.cursor)
            .map_or(self.cursor, |(range, _)| range.start);
        let around = buffer
            .pieces_from(from)
            .chain(buffer.pieces().take_while(|(r, _)| r.start < from));
        for (range, _) in around.filter(|(range, piece)| wanted(*range, piece)) {
            let mut at = range.start;
            while at < range.end {
                let skipped = skip.next(at);
                if let Some(extent) = skipped.filter(|extent| extent.start <= at) {
                    at = extent.end;
                    continue;
                }
                let entry_end = at + self.profile.entry_blocks_max.min(blocks_left);
                let end = range
                    .end
                    .min(entry_end)
                    .min(self.bands.range_of(at).end)
                    .min(skipped.map_or(range.end, |extent| extent.start));
                ranges.push(BlockRange::new(at, end));
                blocks_left -= end.0 - at.0;
                if blocks_left == 0 || ranges.len() >= self.profile.append_entries_max as usize {
                    return ranges;
                }
                at = end;
            }
        }
        ranges
    }
}
