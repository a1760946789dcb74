// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A disk that looks ordinary and whose firmware enforces that its zones are written in order: Western Digital's prototype
//! of 2014 (FSL-14-03, the NILFS2 report). The host sees no zones, can reset none, and reads what it likes.
//!
//! ```text
//!             write at the pointer: admit
//!   Empty ────────────────────────────────► used ──┐ write at the start of the zone: admit resets it (implicit_reset)
//!     ▲                                      ▲ │   │
//!     └── power_cut: all of it was lost      │ └───┘
//!                                            └─── any other write: admit counts a violation and refuses it (reject),
//!                                                 or counts it and writes in place
//! ```
//!
//! Of a zone that is begun again, the old blocks can be read until they are overwritten: on the platter they are still
//! there, and an ordinary disk has no blocks that read as zeros because another was written.
//!
//! INV-E1: with `reject`, of a zone begun again the new blocks on the platter are those below some block (INV-H1).
//! INV-E2: a write that was not counted began at its zone's write pointer, or at the start of the zone.

use super::host_managed::HostManaged;
use crate::counters::Snapshot;
use crate::mechanics::arm::Arm;
use crate::profile::{self, Profile};
use crate::request::{Op, Request};
use crate::state::{SavedTranslation, SavedZone};
use crate::translation::layer::{Destage, Need, TranslationLayer};
use crate::volatile_buffer::VolatileBuffer;
use alloc::vec::Vec;
use zoned::{BlockRange, Lba, Pba, Zone, ZoneError};

/// The translation layer.
pub struct Enforcing {
    profile: profile::Enforcing,
    disk: HostManaged,
    violations: u64,
}

impl Enforcing {
    /// As it was saved.
    pub fn new(enforcing: &profile::Enforcing, profile: &Profile, saved: &[SavedZone]) -> Self {
        Enforcing {
            profile: *enforcing,
            disk: HostManaged::new(&enforcing.zones, profile, saved),
            violations: 0,
        }
    }

    /// The parts of a request, zone by zone: first sector and number of sectors.
    fn parts(&self, request: &Request) -> Vec<(Lba, u64)> {
        let (mut at, end) = (request.lba, request.lba.0 + u64::from(request.sectors));
        let mut parts = Vec::new();
        while at.0 < end {
            let zone = self.disk.table.blocks(self.disk.table.at(at));
            let sectors = end.min(zone.end.first_sector().0) - at.0;
            parts.push((at, sectors));
            at = Lba(at.0 + sectors);
        }
        parts
    }

    /// Whether a write begins a used zone again.
    fn restarts(&self, at: Lba) -> bool {
        let zone = self.disk.table.zone(self.disk.table.at(at));
        let used = |zone: Zone| zone.start == at && zone.write_pointer != at;
        self.profile.implicit_reset && zone.is_some_and(used)
    }

    /// Moves the write pointer of one zone.
    fn write(&mut self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        if self.restarts(at) {
            self.disk.table.reset(at)?;
        }
        self.disk.table.write(at, sectors)
    }
}

impl TranslationLayer for Enforcing {
    fn save(&self, volatile: &[BlockRange]) -> SavedTranslation {
        self.disk.save(volatile)
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool)) {
        self.disk.pieces(range, visit);
    }

    fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        self.disk.accepts(range, buffer)
    }

    fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        self.disk.plan(buffer, arm, need)
    }

    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        self.disk.begin(destage, arm, now_ns)
    }

    fn firmware_ns(&self, service_ns: u64) -> u64 {
        service_ns * u64::from(self.profile.overhead_permille) / 1000
    }

    fn power_cut(&mut self, volatile: &[BlockRange]) {
        self.disk.power_cut(volatile);
    }

    /// A request is one write: it is refused as a whole, and counted once.
    fn admit(&mut self, request: &Request) -> Result<(), ZoneError> {
        if !request.writes() {
            let read = request.op == Op::Read;
            let sectors = u64::from(request.sectors);
            return if read {
                self.disk.table.read(request.lba, sectors)
            } else {
                Ok(())
            };
        }
        let parts = self.parts(request);
        let judged = parts.iter().try_for_each(|(at, sectors)| {
            if self.restarts(*at) {
                self.disk.table.judge_restart(*at, *sectors)
            } else {
                self.disk.table.judge(*at, *sectors)
            }
        });
        match judged {
            Ok(()) => parts
                .into_iter()
                .try_for_each(|(at, sectors)| self.write(at, sectors)),
            Err(error @ (ZoneError::ReadOnly | ZoneError::Offline)) => Err(error),
            Err(error) => {
                self.violations += 1;
                if self.profile.reject {
                    return Err(error);
                }
                let sectors = u64::from(request.sectors);
                self.disk.table.write_anywhere(request.lba, sectors, |_| ())
            }
        }
    }

    #[cfg(any(test, debug_assertions))]
    fn check(&self) {
        self.disk.check();
    }

    fn describe(&self, snapshot: &mut Snapshot) {
        self.disk.describe(snapshot);
        snapshot.violations = self.violations;
    }
}
