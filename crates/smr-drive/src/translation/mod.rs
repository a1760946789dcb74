// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! From logical to physical addresses, and what has to be done so that this stays possible.
//!
//! The drive asks a translation four things: where the pieces of a read are; what of the DRAM buffer to write next, and
//! how long that takes; whether it can take a write at all; and for a slice of whatever work it wants to do when nobody
//! else needs the arm.

pub mod bands;
pub mod cache_map;
mod cleaning;
mod conventional;
mod plan_static;
mod static_mapping;
mod streams;
mod written;

use crate::counters::{Counters, Snapshot};
use crate::mechanics::arm::Arm;
use crate::profile::{self, Profile};
use crate::state::SavedTranslation;
use crate::trace::Where;
use crate::volatile_buffer::{InFlight, Piece, VolatileBuffer};
use alloc::boxed::Box;
use alloc::vec::Vec;
pub use conventional::Conventional;
pub use static_mapping::StaticMapping;
use zoned::{BlockRange, Pba};

/// A translation layer.
pub enum Translation {
    /// In place.
    Conventional(Conventional),
    /// Bands and a persistent cache.
    Static(Box<StaticMapping>),
}

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
}

impl Need {
    /// Whether somebody or something waits for this piece, apart from pressure.
    pub fn is_due(&self, piece: &Piece) -> bool {
        piece.urgent
            || self.flush_epoch.is_some_and(|epoch| piece.epoch <= epoch)
            || piece.since_ns + self.hold_ns <= self.now_ns
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

impl Translation {
    /// The translation of a profile, as it was saved.
    pub fn new(profile: &Profile, arm: &Arm, saved: &SavedTranslation) -> Self {
        match &profile.translation {
            profile::Translation::Conventional => {
                Translation::Conventional(Conventional::new(profile))
            }
            profile::Translation::StaticMapping(mapping) => Translation::Static(Box::new(
                StaticMapping::new(mapping.clone(), profile, arm.layout(), saved),
            )),
        }
    }

    /// To be saved.
    pub fn save(&self) -> SavedTranslation {
        match self {
            Translation::Conventional(_) => SavedTranslation::default(),
            Translation::Static(t) => t.save(),
        }
    }

    /// The pieces of `range` in order: which blocks, where, and whether in place.
    pub fn pieces(&self, range: BlockRange, mut visit: impl FnMut(BlockRange, Pba, bool)) {
        match self {
            Translation::Conventional(_) => visit(range, Pba(range.start.0), true),
            Translation::Static(t) => t.pieces(range, visit),
        }
    }

    /// Whether a write of `range` may enter the buffer.
    pub fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        match self {
            Translation::Conventional(_) => true,
            Translation::Static(t) => t.accepts(range, buffer),
        }
    }

    /// Chooses what to write next, if anything.
    pub fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        match self {
            Translation::Conventional(t) => t.plan(buffer, arm, need),
            Translation::Static(t) => t.plan(buffer, need),
        }
    }

    /// When a plan may become due without anything happening; `None` if not by itself.
    pub fn plan_due_ns(&self, buffer: &VolatileBuffer, hold_ns: u64) -> Option<u64> {
        buffer.oldest_ns().map(|oldest| oldest + hold_ns)
    }

    /// Writes it: how long that takes.
    pub fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        match self {
            Translation::Conventional(_) => destage.ranges.iter().fold(0, |ns, range| {
                let from = Pba(range.start.0);
                ns + arm.access(
                    now_ns + ns,
                    from,
                    range.blocks(),
                    crate::mechanics::arm::Access::Write,
                )
            }),
            Translation::Static(t) => t.begin(destage, arm, now_ns),
        }
    }

    /// It is written.
    pub fn land(&mut self, destage: &Destage, landed: &[InFlight], counters: &mut Counters) {
        if let Translation::Static(t) = self {
            t.land(destage, landed, counters);
        }
    }

    /// Time without host requests after which there is work to do.
    pub fn idle_ns(&self) -> Option<u64> {
        match self {
            Translation::Conventional(_) => None,
            Translation::Static(t) => (!t.is_clean()).then_some(t.profile().idle_ns),
        }
    }

    /// Starts a slice of cleaning: how long it takes. `None` if there is nothing to clean.
    pub fn clean_slice(&mut self, arm: &mut Arm, now_ns: u64, forced: bool) -> Option<u64> {
        match self {
            Translation::Conventional(_) => None,
            Translation::Static(t) => t.clean_slice(arm, now_ns, forced),
        }
    }

    /// The slice is over.
    pub fn end_slice(&mut self, arm: &mut Arm, now_ns: u64, counters: &mut Counters) {
        if let Translation::Static(t) = self {
            t.end_slice(arm, now_ns, counters);
        }
    }

    /// Nothing to clean.
    pub fn is_clean(&self) -> bool {
        match self {
            Translation::Conventional(_) => true,
            Translation::Static(t) => t.is_clean(),
        }
    }

    /// Forgets what is in DRAM.
    pub fn power_cut(&mut self) {
        if let Translation::Static(t) = self {
            t.power_cut();
        }
    }

    /// Cleans all bands, without any time: for drive files made ahead of an experiment.
    pub fn clean_now(&mut self) {
        if let Translation::Static(t) = self {
            t.clean_now();
        }
    }

    /// Checks the invariants.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) {
        if let Translation::Static(t) = self {
            t.check();
        }
    }

    /// Fills in what a report says of the translation.
    pub fn describe(&self, snapshot: &mut Snapshot) {
        if let Translation::Static(t) = self {
            t.describe(snapshot);
        }
    }
}
