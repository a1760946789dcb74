// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A conventional disk: every block in place, and an elevator that destages the buffer.

use super::layer::{Destage, Need, TranslationLayer};
use crate::mechanics::arm::{Access, Arm};
use crate::profile::Profile;
use crate::state::SavedTranslation;
use crate::trace::Where;
use crate::volatile_buffer::{Piece, VolatileBuffer};
use alloc::vec;
use zoned::{Block, BlockRange, Pba};

/// Nothing but the elevator's parameters.
pub struct Conventional {
    destage_blocks_max: u64,
    window: usize,
}

impl Conventional {
    /// The elevator of a profile.
    pub fn new(profile: &Profile) -> Self {
        Conventional {
            destage_blocks_max: profile.buffer.destage_blocks_max,
            window: profile.buffer.elevator_window as usize,
        }
    }

    /// Among the next few pieces in the arm's direction that are `allowed`, the one that it reaches first. The arm moves
    /// inwards only and then starts again at the outer edge, so that no piece waits for ever.
    pub fn elevator(
        &self,
        buffer: &VolatileBuffer,
        arm: &Arm,
        need: Need,
        allowed: impl Fn(BlockRange, &Piece) -> bool,
    ) -> Option<BlockRange> {
        let here = Block(arm.at().0);
        let ahead = buffer
            .pieces_from(here)
            .chain(buffer.pieces().take_while(|(r, _)| r.start < here));
        let wanted = ahead.filter(|(range, piece)| allowed(*range, piece));
        let starts = wanted.map(|(range, _)| range.start);
        let start = self.nearest(arm, need.now_ns, |block| Pba(block.0), starts)?;
        let end = buffer
            .contiguous_end(start)
            .min(start + self.destage_blocks_max);
        Some(BlockRange::new(start, end))
    }
}

impl Conventional {
    /// Of the first few of `starts`, the one that the arm reaches first.
    pub(super) fn nearest(
        &self,
        arm: &Arm,
        now_ns: u64,
        home: impl Fn(Block) -> Pba,
        starts: impl Iterator<Item = Block>,
    ) -> Option<Block> {
        let cost = |start: Block| arm.position_ns(now_ns, home(start), Access::Write);
        let first = starts.take(self.window).map(|start| (cost(start), start));
        first.min().map(|(_, start)| start)
    }
}

/// Writes ranges in place, one after the other: how long that takes, in nanoseconds.
pub(super) fn write_in_place(destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
    destage.ranges.iter().fold(0, |ns, range| {
        let from = Pba(range.start.0);
        ns + arm.access(now_ns + ns, from, range.blocks(), Access::Write)
    })
}

/// A destage of one range in place.
pub(super) fn in_place(span: BlockRange) -> Destage {
    Destage {
        place: Where::InPlace,
        ranges: vec![span],
        span,
    }
}

impl TranslationLayer for Conventional {
    fn save(&self, _volatile: &[BlockRange]) -> SavedTranslation {
        SavedTranslation::Nothing
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool)) {
        visit(range, Pba(range.start.0), true);
    }

    fn accepts(&self, _range: BlockRange, _buffer: &VolatileBuffer) -> bool {
        true
    }

    fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        self.elevator(buffer, arm, need, |_, piece| {
            need.pressure || need.is_due(piece)
        })
        .map(in_place)
    }

    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        write_in_place(destage, arm, now_ns)
    }
}
