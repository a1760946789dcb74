// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A host-managed zoned disk: every block in place, and the host keeps the order.
//!
//! The life of a sequential zone; the edges are functions of `ZoneTable`, called from `admit` and `zone_command`:
//!
//! ```text
//!             write, open                     close, make_room
//!   Empty ────────────────► ImplicitOpen, ──────────────────────► Closed
//!    ▲  ▲                   ExplicitOpen  ◄──────────────────────   │
//!    │  │ close: nothing was  │  │         write, open              │
//!    │  └─── written ─────────┘  │ write: to the end; finish        │ finish
//!    │                           ▼                                  ▼
//!    └──────────────────────── Full ◄───────────────────────────────┘
//!      reset, from all of them         fail: from all of them to ReadOnly or Offline, for good
//!   A power cut closes what is open and takes a write pointer back to the first block that is lost.
//! ```
//!
//! INV-H1: of a sequential zone, what is on the platter is what lies below some block, whenever power is cut. So a
//! zone's dirty blocks are written from its first dirty block on.

use super::zone_table::ZoneTable;
use crate::counters::Snapshot;
use crate::mechanics::arm::Arm;
use crate::profile::{Profile, Zones};
use crate::request::{Op, Request};
use crate::state::{SavedTranslation, SavedZone};
use crate::translation::conventional::{in_place, write_in_place, Conventional};
use crate::translation::layer::{Destage, Need, TranslationLayer};
use crate::volatile_buffer::VolatileBuffer;
use zoned::{
    Block, BlockRange, Lba, Pba, Zone, ZoneError, ZoneId, ZoneState, ZoneType, SECTOR_BYTES,
};

/// The translation layer.
pub struct HostManaged {
    zones: Zones,
    pub(super) table: ZoneTable,
    elevator: Conventional,
}

impl HostManaged {
    /// As it was saved.
    pub fn new(zones: &Zones, profile: &Profile, saved: &[SavedZone]) -> Self {
        HostManaged {
            zones: *zones,
            table: ZoneTable::new(
                *zones,
                ZoneType::SeqRequired,
                profile.capacity_sectors(),
                u64::from(profile.physical_block_bytes) / SECTOR_BYTES,
                saved,
            ),
            elevator: Conventional::new(profile),
        }
    }

    /// Whether a piece that begins at `start` may be written now: nothing of its zone that lies before it is dirty
    /// (INV-H1), and somebody waits for it or for something behind it in its zone.
    fn is_next(&self, start: Block, buffer: &VolatileBuffer, need: Need) -> bool {
        let id = self.table.at(start.first_sector());
        let conventional = self.table.is_conventional(id);
        let zone = self.table.blocks(id);
        let mut of_zone = buffer
            .pieces_from(zone.start)
            .take_while(|(range, _)| range.start < zone.end)
            .filter(|(range, _)| !conventional || range.start == start)
            .peekable();
        let first = of_zone.peek().map(|(range, _)| range.start);
        first == Some(start) && (need.pressure || of_zone.any(|(_, piece)| need.is_due(piece)))
    }
}

impl TranslationLayer for HostManaged {
    fn save(&self, volatile: &[BlockRange]) -> SavedTranslation {
        SavedTranslation::Zones(self.table.save(volatile))
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool)) {
        visit(range, Pba(range.start.0), true);
    }

    fn accepts(&self, _range: BlockRange, _buffer: &VolatileBuffer) -> bool {
        true
    }

    fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        self.elevator
            .elevator(buffer, arm, need, |range, _| {
                self.is_next(range.start, buffer, need)
            })
            .map(in_place)
    }

    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        write_in_place(destage, arm, now_ns)
    }

    fn power_cut(&mut self, volatile: &[BlockRange]) {
        self.table.power_cut(volatile);
    }

    fn has_discard(&self) -> bool {
        self.zones.discard_resets
    }

    fn discard(&mut self, range: BlockRange) -> bool {
        let id = self.table.at(range.start.first_sector());
        let whole = self.table.blocks(id) == range;
        whole && self.table.reset(range.start.first_sector()).is_ok()
    }

    fn zones(&self) -> u32 {
        self.table.count()
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.table.zone(zone)
    }

    fn zone_at(&self, at: Lba) -> Option<ZoneId> {
        Some(self.table.at(at)).filter(|id| id.0 < self.table.count())
    }

    fn admit(&mut self, request: &Request) -> Result<(), ZoneError> {
        let sectors = u64::from(request.sectors);
        match request.op {
            Op::Read => self.table.read(request.lba, sectors),
            Op::Write | Op::WriteZeroes => self.table.write(request.lba, sectors),
            _ => Ok(()),
        }
    }

    fn zone_command(
        &mut self,
        op: Op,
        at: Lba,
        forgotten: &mut dyn FnMut(BlockRange),
    ) -> Result<(), ZoneError> {
        match op {
            Op::ZoneOpen => self.table.open(at),
            Op::ZoneClose => self.table.close(at),
            Op::ZoneFinish => self.table.finish(at),
            Op::ZoneReset => self.table.reset(at).map(forgotten),
            Op::ZoneResetAll => {
                self.table.reset_all(forgotten);
                Ok(())
            }
            _ => Err(ZoneError::InvalidField),
        }
    }

    fn zone_command_ns(&self) -> u64 {
        self.zones.command_ns
    }

    fn fail_zone(&mut self, zone: ZoneId, state: ZoneState) -> bool {
        self.table.fail(zone, state)
    }

    #[cfg(any(test, debug_assertions))]
    fn check(&self) {
        self.table.check();
    }

    fn describe(&self, snapshot: &mut Snapshot) {
        snapshot.zones_open = self.table.open_count();
    }
}
