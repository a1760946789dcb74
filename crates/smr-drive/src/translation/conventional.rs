// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A conventional disk: every block in place, and an elevator that destages the buffer.

use super::{Destage, Need};
use crate::mechanics::arm::{Access, Arm};
use crate::profile::Profile;
use crate::trace::Where;
use crate::volatile_buffer::VolatileBuffer;
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

    /// Among the next few pieces in the arm's direction, the one that it reaches first. The arm moves inwards only and
    /// then starts again at the outer edge, so that no piece waits for ever.
    pub fn plan(&self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        let here = Block(arm.at().0);
        let ahead = buffer
            .pieces_from(here)
            .chain(buffer.pieces().take_while(|(r, _)| r.start < here));
        let wanted = ahead
            .filter(|(_, piece)| need.pressure || need.is_due(piece))
            .take(self.window);
        let (_, start) = wanted
            .map(|(range, _)| {
                (
                    arm.position_ns(need.now_ns, Pba(range.start.0), Access::Write),
                    range.start,
                )
            })
            .min()?;
        let end = buffer
            .contiguous_end(start)
            .min(start + self.destage_blocks_max);
        let span = BlockRange::new(start, end);
        Some(Destage {
            place: Where::InPlace,
            ranges: vec![span],
            span,
        })
    }
}
