// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! From logical to physical addresses, and what has to be done so that this stays possible.
//!
//! A translation layer is one file that implements [`TranslationLayer`], one variant of
//! [`profile::Translation`](crate::profile::Translation) and one of [`SavedTranslation`]. The drive asks it where the
//! pieces of a read are; whether it can take a write at all; what of the DRAM buffer to write next, and how long that
//! takes; and for a slice of whatever work it wants to do when nobody else needs the arm. Layers that show zones to the
//! host also judge requests when they arrive, and execute zone commands.
//!
//! What every layer promises, and `check` asserts as far as it can be seen from inside:
//!
//! INV-T1: `pieces` covers its range exactly, in order: no block is lost, none is in two places.
//! INV-T2: what `plan` chose and `land` was told is where `pieces` says from then on; until `land`, the old place counts.
//! INV-T3: what `save` returns, given the volatile blocks, describes a layer in which every other block is where it was.
//! INV-T4: space is accounted for: what `accepts` let in always finds room.

pub mod bands;
pub mod cache_map;
mod cleaning;
mod conventional;
mod dirty_bands;
mod enforcing;
mod extents;
mod host_aware;
mod host_managed;
mod plan_static;
mod s_block_cleaning;
mod s_block_map;
mod s_blocks;
mod static_mapping;
mod streams;
mod written;
mod zone_table;

use crate::activity::Activity;
use crate::counters::{Counters, Snapshot};
use crate::mechanics::arm::Arm;
use crate::profile::{self, Profile};
use crate::request::{Op, Request};
use crate::state::SavedTranslation;
use crate::trace::{Event, Where};
use crate::volatile_buffer::{InFlight, Piece, VolatileBuffer};
use alloc::boxed::Box;
use alloc::vec::Vec;
pub use conventional::Conventional;
pub use enforcing::Enforcing;
pub use host_aware::HostAware;
pub use host_managed::HostManaged;
pub use s_blocks::SBlocks;
pub use static_mapping::StaticMapping;
use zoned::{BlockRange, Lba, Pba, Zone, ZoneError, ZoneId, ZoneState};

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

    /// False if certainly no piece is due.
    pub fn may_be_due(&self, buffer: &VolatileBuffer) -> bool {
        let oldest = buffer.oldest_ns();
        self.flush_epoch.is_some()
            || buffer.has_urgent()
            || oldest.is_some_and(|oldest_ns| oldest_ns + self.hold_ns <= self.now_ns)
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

    /// Time without host requests after which there is work to do; `None` if there is none.
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

/// The translation layer of a profile, as it was saved.
pub fn new(profile: &Profile, arm: &Arm, saved: &SavedTranslation) -> Box<dyn TranslationLayer> {
    match &profile.translation {
        profile::Translation::Conventional => Box::new(Conventional::new(profile)),
        profile::Translation::StaticMapping(mapping) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::Static(saved) => saved,
                _ => &fresh,
            };
            Box::new(StaticMapping::new(
                mapping.clone(),
                profile,
                arm.layout(),
                saved,
            ))
        }
        profile::Translation::HostManaged(zones) => {
            let saved = match saved {
                SavedTranslation::Zones(saved) => saved.as_slice(),
                _ => &[],
            };
            Box::new(HostManaged::new(zones, profile, saved))
        }
        profile::Translation::Enforcing(enforcing) => {
            let saved = match saved {
                SavedTranslation::Zones(saved) => saved.as_slice(),
                _ => &[],
            };
            Box::new(Enforcing::new(enforcing, profile, saved))
        }
        profile::Translation::HostAware(zones) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::HostAware(saved) => saved,
                _ => &fresh,
            };
            Box::new(HostAware::new(zones, profile, arm.layout(), saved)).started()
        }
        profile::Translation::SBlocks(s_blocks) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::SBlocks(saved) => saved,
                _ => &fresh,
            };
            Box::new(SBlocks::new(s_blocks.clone(), profile, arm.layout(), saved))
        }
    }
}
