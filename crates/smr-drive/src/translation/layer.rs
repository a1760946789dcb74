// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a translation layer is: what the drive asks it, and what it answers.

use crate::activity::Activity;
use crate::counters::{Counters, Snapshot};
use crate::mechanics::arm::Arm;
use crate::request::{Op, Request};
use crate::state::SavedTranslation;
use crate::trace::{Event, Where};
use crate::volatile_buffer::{InFlight, Piece, VolatileBuffer};
use alloc::vec::Vec;
use zoned::{Block, BlockRange, Lba, Pba, Zone, ZoneError, ZoneId, ZoneState};

/// Why dirty blocks should leave the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// Now.
    pub now_ns: u64,
    /// Pieces of this epoch and before: a flush waits.
    pub flush_epoch: Option<u64>,
    /// The buffer is filling up.
    pub pressure: bool,
    /// Longest that a piece may stay for no other reason.
    pub hold_ns: u64,
    /// A flush or FUA of this epoch has waited for too long: only what it waits for is due, and no stream goes on before it.
    pub overdue: Option<u64>,
}

impl Need {
    /// Whether somebody or something waits for this piece, apart from pressure.
    pub fn is_due(&self, piece: &Piece) -> bool {
        let waited_for = piece.urgent || self.flush_epoch.is_some_and(|epoch| piece.epoch <= epoch);
        match self.overdue {
            Some(epoch) => waited_for && piece.epoch <= epoch,
            None => waited_for || piece.since_ns + self.hold_ns <= self.now_ns,
        }
    }

    /// False if certainly no piece is due.
    pub fn may_be_due(&self, buffer: &VolatileBuffer) -> bool {
        let oldest = buffer.oldest_ns();
        self.flush_epoch.is_some()
            || buffer.has_urgent()
            || oldest.is_some_and(|oldest_ns| oldest_ns + self.hold_ns <= self.now_ns)
    }

    /// Whether anything is due among the contiguous dirty blocks from `start` on.
    pub fn is_due_from(&self, buffer: &VolatileBuffer, start: Block) -> bool {
        let mut at = start;
        while let Some((range, piece)) = buffer.piece_at(at) {
            if self.is_due(piece) {
                return true;
            }
            at = range.end;
        }
        false
    }
}

/// What to write next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destage {
    /// Where to.
    pub place: Where,
    /// Dirty blocks, to be taken from the buffer.
    pub ranges: Vec<BlockRange>,
    /// What is written: the ranges, and for a new stream its beginning from the DRAM.
    pub span: BlockRange,
}

/// A translation layer. See the module's head for what it promises.
pub trait TranslationLayer {
    /// To be saved, as a power cut now would leave it that loses the `volatile` blocks.
    fn save(&self, volatile: &[BlockRange]) -> SavedTranslation;

    /// The pieces of `range` in order: which blocks, where, and whether what lies behind them on the platter also
    /// follows them logically (so that reading ahead makes sense).
    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool));

    /// Whether a write of `range` may enter the buffer.
    fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool;

    /// Chooses what to write next, if anything.
    fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage>;

    /// Writes it: how long that takes, in nanoseconds.
    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64;

    /// What the firmware still has to do, in nanoseconds, before it acknowledges a write that the arm was busy with for
    /// `service_ns`. The arm is free meanwhile.
    fn firmware_ns(&self, _service_ns: u64) -> u64 {
        0
    }

    /// It is written.
    fn land(&mut self, _destage: &Destage, _landed: &[InFlight], _counters: &mut Counters) {}

    /// Time without host requests after which there is work to do; `None` if there is none, or it is done under load only.
    fn idle_ns(&self) -> Option<u64> {
        None
    }

    /// Whether a slice of cleaning is due now, before anything that waits in the buffer: for layers that clean all the
    /// time.
    fn cleaning_is_due(&self, _buffer: &VolatileBuffer) -> bool {
        false
    }

    /// Starts a slice of cleaning: how long it takes. `None` if there is nothing to clean. `forced`: a write waits for
    /// room.
    fn clean_slice(&mut self, _arm: &mut Arm, _now_ns: u64, _forced: bool) -> Option<u64> {
        None
    }

    /// The slice is over.
    fn end_slice(&mut self, _arm: &mut Arm, _now_ns: u64, _counters: &mut Counters) {}

    /// Nothing to clean.
    fn is_clean(&self) -> bool {
        true
    }

    /// Forgets what is in DRAM; the `volatile` blocks are lost.
    fn power_cut(&mut self, _volatile: &[BlockRange]) {}

    /// Cleans everything, without any time: for drive files made ahead of an experiment.
    fn clean_now(&mut self) {}

    /// Whether the drive has the discard command (TRIM, UNMAP).
    fn has_discard(&self) -> bool {
        false
    }

    /// The host no longer needs `range`. Whether it reads as zeros from now on.
    fn discard(&mut self, _range: BlockRange) -> bool {
        false
    }

    /// The zones that the drive can report; none for most.
    fn zones(&self) -> u32 {
        0
    }

    /// A zone's report.
    fn zone(&self, _zone: ZoneId) -> Option<Zone> {
        None
    }

    /// Which zone holds `at`.
    fn zone_at(&self, _at: Lba) -> Option<ZoneId> {
        None
    }

    /// Judges a read or a write that arrives, and moves write pointers. After an error nothing was changed.
    fn admit(&mut self, _request: &Request) -> Result<(), ZoneError> {
        Ok(())
    }

    /// Executes a zone command for the zone that begins at `at`, or for all. `forgotten` gets what reads as zeros from
    /// now on. Nothing of it is volatile.
    fn zone_command(
        &mut self,
        _op: Op,
        _at: Lba,
        _forgotten: &mut dyn FnMut(BlockRange),
    ) -> Result<(), ZoneError> {
        Err(ZoneError::InvalidField)
    }

    /// How long a zone command takes, in nanoseconds.
    fn zone_command_ns(&self) -> u64 {
        0
    }

    /// Checks the invariants.
    #[cfg(any(test, debug_assertions))]
    fn check(&self) {}

    /// What happened in the layer since the last call, for the trace.
    fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// What the arm does while it writes this.
    fn activity(&self, destage: &Destage) -> Activity {
        match destage.place {
            Where::PersistentCache => Activity::Caching,
            _ => Activity::Writing,
        }
    }

    /// Whether the layer keeps how far a place is written, not which blocks: then what a stopped transfer wrote behind a
    /// gap is lost.
    fn writes_in_order(&self, _place: Where) -> bool {
        false
    }

    /// Of a destage that was begun, power was cut while only `durable`, parts of its ranges, was on the medium.
    fn land_torn(
        &mut self,
        destage: &Destage,
        durable: &[BlockRange],
        landed: &[InFlight],
        counters: &mut Counters,
    ) {
        for range in durable {
            let part = Destage {
                place: destage.place,
                ranges: alloc::vec![*range],
                span: *range,
            };
            self.land(&part, landed, counters);
        }
    }

    /// The drive gives up a zone. False if it cannot: there is no such zone.
    fn fail_zone(&mut self, _zone: ZoneId, _state: ZoneState) -> bool {
        false
    }

    /// Fills in what a report says of the translation.
    fn describe(&self, _snapshot: &mut Snapshot) {}
}
