// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Zones with write pointers, as ZBC has them.
//!
//! ```text
//!            write, open                  write, to the end
//!   Empty ───────────────► Implicit/     ───────────────► Full
//!     ▲                    ExplicitOpen ◄──┐   finish       │
//!     │ reset                │ close, LRU  │ write, open    │
//!     ├───────────────────── ▼             │                │
//!     ├─────────────────── Closed ─────────┘                │
//!     └───────────────────────────────────── reset ─────────┘
//! ```
//! `write` (host-managed) and `write_anywhere` (host-aware), `open`, `close`, `finish` and `reset` are the functions; LRU is
//! `make_room`.
//!
//! INV-Z1: an empty zone has nothing below its write pointer, every other sequential zone has.
//! INV-Z2: `implicit` and `explicit` count exactly the zones that are open, and these are at most `open_max`; where no
//! write may be refused, one more.

use crate::profile::Zones;
use crate::state::SavedZone;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use zoned::{Block, BlockRange, Lba, Zone, ZoneError, ZoneId, ZoneState, ZoneType, BLOCK_SECTORS};

/// What differs from zone to zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    written_sectors: u64,
    state: ZoneState,
}

/// All zones of a disk.
pub struct ZoneTable {
    zones: Zones,
    sequential: ZoneType,
    capacity_sectors: u64,
    /// Writes into sequential zones are multiples of this.
    unit_sectors: u64,
    rows: Vec<Row>,
    /// Implicitly open zones, the one that was written longest ago first.
    implicit: Vec<ZoneId>,
    explicit: u32,
    /// Zones closed to make room since somebody asked.
    closed_for_room: u64,
}

impl ZoneTable {
    /// The zones of a disk whose sequential zones are of type `sequential`.
    pub fn new(
        zones: Zones,
        sequential: ZoneType,
        capacity_sectors: u64,
        unit_sectors: u64,
        saved: &[SavedZone],
    ) -> Self {
        let zone_sectors = zones.zone_blocks * BLOCK_SECTORS;
        let count = capacity_sectors.div_ceil(zone_sectors) as u32;
        let mut table = ZoneTable {
            zones,
            sequential,
            capacity_sectors,
            unit_sectors,
            rows: Vec::new(),
            implicit: Vec::new(),
            explicit: 0,
            closed_for_room: 0,
        };
        let empty = Row {
            written_sectors: 0,
            state: ZoneState::Empty,
        };
        table.rows = vec![empty; count as usize];
        for i in (0..count).map(ZoneId) {
            if table.is_conventional(i) {
                table.rows[i.0 as usize].state = ZoneState::NotWritePointer;
            }
        }
        for SavedZone {
            zone,
            state,
            written_sectors,
        } in saved.iter().copied()
        {
            if let Some(row) = table.rows.get_mut(zone.0 as usize) {
                *row = Row {
                    written_sectors,
                    state,
                };
            }
        }
        table
    }

    /// How many zones there are.
    pub fn count(&self) -> u32 {
        self.rows.len() as u32
    }

    /// The zone that holds `at`.
    pub fn at(&self, at: Lba) -> ZoneId {
        ZoneId((at.0 / self.zone_sectors()) as u32)
    }

    /// Whether a zone may be written anywhere.
    pub fn is_conventional(&self, zone: ZoneId) -> bool {
        zone.0 < self.zones.conventional_first
            || u64::from(zone.0) + u64::from(self.zones.conventional_last)
                >= self.capacity_sectors.div_ceil(self.zone_sectors())
    }

    fn zone_sectors(&self) -> u64 {
        self.zones.zone_blocks * BLOCK_SECTORS
    }

    /// A zone's report.
    pub fn zone(&self, zone: ZoneId) -> Option<Zone> {
        let row = self.rows.get(zone.0 as usize)?;
        let start = u64::from(zone.0) * self.zone_sectors();
        let size_sectors = self.zone_sectors().min(self.capacity_sectors - start);
        let conventional = self.is_conventional(zone);
        Some(Zone {
            start: Lba(start),
            size_sectors,
            capacity_sectors: if conventional {
                size_sectors
            } else {
                size_sectors.min(self.zones.zone_capacity_blocks * BLOCK_SECTORS)
            },
            zone_type: if conventional {
                ZoneType::Conventional
            } else {
                self.sequential
            },
            state: row.state,
            write_pointer: Lba(start + row.written_sectors),
        })
    }

    /// The blocks of a zone.
    pub fn blocks(&self, zone: ZoneId) -> BlockRange {
        let start = u64::from(zone.0) * self.zones.zone_blocks;
        let end =
            (start + self.zones.zone_blocks).min(self.capacity_sectors.div_ceil(BLOCK_SECTORS));
        BlockRange::new(Block(start), Block(end))
    }

    /// Judges a read of `sectors` from `at`.
    pub fn read(&self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        let (first, last) = (self.at(at), self.at(Lba(at.0 + sectors.max(1) - 1)));
        for id in (first.0..=last.0).map(ZoneId) {
            let zone = self.zone(id).ok_or(ZoneError::OutOfRange)?;
            if zone.state == ZoneState::Offline {
                return Err(ZoneError::Offline);
            }
            if !self.zones.read_restricted {
                continue;
            }
            if self.is_conventional(id) != self.is_conventional(first) {
                return Err(ZoneError::ReadBoundary);
            }
            let end = (at.0 + sectors).min(zone.start.0 + zone.size_sectors);
            if zone.state != ZoneState::NotWritePointer && end > zone.write_pointer.0 {
                return Err(ZoneError::InvalidData);
            }
        }
        Ok(())
    }

    /// Judges a write by the rules of a host-managed disk: the zone as it would be afterwards, or nothing if it is a
    /// conventional one.
    fn judged(&self, mut zone: Zone, at: Lba, sectors: u64) -> Result<Option<Zone>, ZoneError> {
        if zone.zone_type == ZoneType::Conventional {
            let (first, last) = (self.at(at), self.at(Lba(at.0 + sectors.max(1) - 1)));
            let inside = (first.0..=last.0).all(|i| self.is_conventional(ZoneId(i)));
            return if inside {
                Ok(None)
            } else {
                Err(ZoneError::Boundary)
            };
        }
        zone.write(at, sectors)?;
        if (at.0 | sectors) % self.unit_sectors != 0 {
            return Err(ZoneError::Unaligned);
        }
        Ok(Some(zone))
    }

    /// Judges a write; whether there is room to open its zone is not asked.
    pub fn judge(&self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        let zone = self.zone(self.at(at)).ok_or(ZoneError::OutOfRange)?;
        self.judged(zone, at, sectors).map(|_| ())
    }

    /// Judges a write that comes after a reset of the zone that begins at `at`.
    pub fn judge_restart(&self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        let (_, mut zone) = self.named(at)?;
        zone.reset()?;
        self.judged(zone, at, sectors).map(|_| ())
    }

    /// Judges a write, and moves the write pointer.
    pub fn write(&mut self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        let id = self.at(at);
        let zone = self.zone(id).ok_or(ZoneError::OutOfRange)?;
        if let Some(written) = self.judged(zone, at, sectors)? {
            if !is_open(zone.state) {
                self.make_room()?;
            }
            self.put(id, written);
        }
        Ok(())
    }

    /// Notes a write of a host-aware disk, which may go anywhere: a write pointer moves to the end of the last block
    /// written (tcmu-runner, file_zbc.c: `zbc_write`). `in_order` gets what was written at write pointers.
    pub fn write_anywhere(
        &mut self,
        at: Lba,
        sectors: u64,
        mut in_order: impl FnMut(BlockRange),
    ) -> Result<(), ZoneError> {
        let end = at.0 + sectors;
        let ids = self.at(at).0..=self.at(Lba(end - 1)).0;
        for id in ids.clone().map(ZoneId) {
            match self.zone(id).ok_or(ZoneError::OutOfRange)?.state {
                ZoneState::ReadOnly => return Err(ZoneError::ReadOnly),
                ZoneState::Offline => return Err(ZoneError::Offline),
                _ => {}
            }
        }
        for id in ids.map(ZoneId) {
            let Some(mut zone) = self.zone(id) else { break };
            let zone_end = zone.start.0 + zone.size_sectors;
            let (from, to) = (at.0.max(zone.start.0), end.min(zone_end));
            if self.is_conventional(id) || zone.state == ZoneState::Full {
                continue;
            }
            if from == zone.write_pointer.0 {
                in_order(BlockRange::covering(Lba(from), to - from));
            }
            zone.write_pointer = zone.write_pointer.max(Lba(to));
            if zone.write_pointer.0 == zone_end {
                zone.state = ZoneState::Full;
            } else if !is_open(zone.state) {
                // Without room it is opened all the same: no write is refused.
                let _ = self.make_room();
                zone.state = ZoneState::ImplicitOpen;
            }
            self.put(id, zone);
        }
        Ok(())
    }

    /// How many zones were closed to make room since the last call.
    pub fn take_closed_for_room(&mut self) -> u64 {
        core::mem::take(&mut self.closed_for_room)
    }

    /// Opens a zone: it stays open until it is closed, finished, reset or full.
    pub fn open(&mut self, at: Lba) -> Result<(), ZoneError> {
        let (id, mut zone) = self.named(at)?;
        match zone.state {
            ZoneState::ExplicitOpen | ZoneState::Full => return Ok(()),
            // Of a host-aware disk one zone may be open beyond what there is room for.
            ZoneState::ImplicitOpen if self.explicit >= self.zones.open_max => {
                return Err(ZoneError::Resources)
            }
            ZoneState::ImplicitOpen => {}
            _ => self.make_room()?,
        }
        zone.state = ZoneState::ExplicitOpen;
        self.put(id, zone);
        Ok(())
    }

    /// Closes a zone if it is open.
    pub fn close(&mut self, at: Lba) -> Result<(), ZoneError> {
        let (id, mut zone) = self.named(at)?;
        if is_open(zone.state) {
            zone.state = closed(&zone);
            self.put(id, zone);
        }
        Ok(())
    }

    /// Declares a zone full.
    pub fn finish(&mut self, at: Lba) -> Result<(), ZoneError> {
        let (id, mut zone) = self.named(at)?;
        zone.finish()?;
        zone.write_pointer = Lba(zone.start.0 + zone.capacity_sectors);
        self.put(id, zone);
        Ok(())
    }

    /// Empties a zone; returns its blocks, which read as zeros from now on.
    pub fn reset(&mut self, at: Lba) -> Result<BlockRange, ZoneError> {
        let (id, mut zone) = self.named(at)?;
        zone.reset()?;
        self.put(id, zone);
        Ok(self.blocks(id))
    }

    /// Empties every zone that can be emptied and is not empty.
    pub fn reset_all(&mut self, forgotten: &mut dyn FnMut(BlockRange)) {
        for id in (0..self.count()).map(ZoneId) {
            let Some(mut zone) = self.zone(id) else {
                return;
            };
            if zone.state != ZoneState::Empty && zone.reset().is_ok() {
                self.put(id, zone);
                forgotten(self.blocks(id));
            }
        }
    }

    /// The drive gives up a sequential zone. False if there is none of this number.
    pub fn fail(&mut self, id: ZoneId, state: ZoneState) -> bool {
        let sequential = !self.is_conventional(id);
        match self.zone(id).filter(|_| sequential) {
            Some(mut zone) => {
                zone.state = state;
                self.put(id, zone);
                true
            }
            None => false,
        }
    }

    /// The sequential zone that begins at `at`.
    fn named(&self, at: Lba) -> Result<(ZoneId, Zone), ZoneError> {
        let id = self.at(at);
        let zone = self.zone(id).ok_or(ZoneError::OutOfRange)?;
        match zone.state {
            _ if zone.start != at => Err(ZoneError::InvalidField),
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            ZoneState::ReadOnly => Err(ZoneError::ReadOnly),
            ZoneState::Offline => Err(ZoneError::Offline),
            _ => Ok((id, zone)),
        }
    }

    /// Makes sure that one more zone can be opened: closes the implicitly open one that was written longest ago.
    fn make_room(&mut self) -> Result<(), ZoneError> {
        if (self.implicit.len() as u32 + self.explicit) < self.zones.open_max {
            return Ok(());
        }
        let id = *self.implicit.first().ok_or(ZoneError::Resources)?;
        if let Some(mut zone) = self.zone(id) {
            zone.state = closed(&zone);
            self.put(id, zone);
            self.closed_for_room += 1;
        }
        Ok(())
    }

    /// Notes a zone's new state, and which zones are open.
    fn put(&mut self, id: ZoneId, zone: Zone) {
        let row = &mut self.rows[id.0 as usize];
        match row.state {
            ZoneState::ImplicitOpen => self.implicit.retain(|other| *other != id),
            ZoneState::ExplicitOpen => self.explicit -= 1,
            _ => {}
        }
        *row = Row {
            written_sectors: zone.write_pointer.0 - zone.start.0,
            state: zone.state,
        };
        match zone.state {
            ZoneState::ImplicitOpen => self.implicit.push(id),
            ZoneState::ExplicitOpen => self.explicit += 1,
            _ => {}
        }
    }

    /// The zones that are not as new, after a power cut that loses the `volatile` blocks: a write pointer goes back to
    /// the first block that is lost, because behind it nothing may be missing.
    pub fn save(&self, volatile: &[BlockRange]) -> Vec<SavedZone> {
        let mut kept: BTreeMap<ZoneId, u64> = BTreeMap::new();
        for range in volatile {
            let (first, last) = (
                self.at(range.start.first_sector()),
                self.at(Block(range.end.0.max(1) - 1).first_sector()),
            );
            for id in (first.0..=last.0).map(ZoneId) {
                let start = self.blocks(id).start;
                let sectors = (range.start.0.max(start.0) - start.0) * BLOCK_SECTORS;
                let least = kept.entry(id).or_insert(u64::MAX);
                *least = sectors.min(*least);
            }
        }
        self.save_kept(|id| kept.get(&id).copied())
    }

    /// The same, given how many sectors of a zone are left if that is not all.
    pub fn save_kept(&self, kept: impl Fn(ZoneId) -> Option<u64>) -> Vec<SavedZone> {
        let mut saved = Vec::new();
        for id in (0..self.count()).map(ZoneId) {
            let Some(mut zone) = self.zone(id) else { break };
            if self.is_conventional(id) || zone.state == ZoneState::Empty {
                continue;
            }
            if let Some(sectors) = kept(id).filter(|s| zone.start.0 + s < zone.write_pointer.0) {
                zone.write_pointer = Lba(zone.start.0 + sectors);
                if !is_given_up(zone.state) {
                    zone.state = closed(&zone);
                }
            }
            if is_open(zone.state) {
                zone.state = closed(&zone);
            }
            if zone.state != ZoneState::Empty {
                saved.push(SavedZone {
                    zone: id,
                    state: zone.state,
                    written_sectors: zone.write_pointer.0 - zone.start.0,
                });
            }
        }
        saved
    }

    /// The same, here and now.
    pub fn power_cut(&mut self, volatile: &[BlockRange]) {
        self.restore(&self.save(volatile));
    }

    /// As it was saved.
    pub fn restore(&mut self, saved: &[SavedZone]) {
        *self = ZoneTable::new(
            self.zones,
            self.sequential,
            self.capacity_sectors,
            self.unit_sectors,
            saved,
        );
    }

    /// How many zones are open.
    pub fn open_count(&self) -> u32 {
        self.implicit.len() as u32 + self.explicit
    }

    /// Checks the invariants.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) {
        let in_state = |state| self.rows.iter().filter(|row| row.state == state).count();
        assert_eq!(
            in_state(ZoneState::ImplicitOpen),
            self.implicit.len(),
            "INV-Z2"
        );
        assert_eq!(
            in_state(ZoneState::ExplicitOpen),
            self.explicit as usize,
            "INV-Z2"
        );
        let beyond = u32::from(self.sequential == ZoneType::SeqPreferred);
        assert!(self.open_count() <= self.zones.open_max + beyond, "INV-Z2");
        for (i, row) in self.rows.iter().enumerate() {
            match row.state {
                ZoneState::Empty => assert_eq!(row.written_sectors, 0, "INV-Z1: zone {i}"),
                ZoneState::Closed | ZoneState::ImplicitOpen | ZoneState::Full => {
                    assert!(row.written_sectors > 0, "INV-Z1: zone {i}")
                }
                _ => {}
            }
        }
    }
}

fn is_given_up(state: ZoneState) -> bool {
    matches!(state, ZoneState::ReadOnly | ZoneState::Offline)
}

fn is_open(state: ZoneState) -> bool {
    matches!(state, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen)
}

/// What an open zone becomes when it is closed.
fn closed(zone: &Zone) -> ZoneState {
    if zone.write_pointer == zone.start {
        ZoneState::Empty
    } else {
        ZoneState::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(open_max: u32) -> ZoneTable {
        let zones = Zones {
            zone_blocks: 16,
            zone_capacity_blocks: 16,
            conventional_first: 1,
            conventional_last: 1,
            open_max,
            command_ns: 0,
            read_restricted: true,
            discard_resets: false,
        };
        ZoneTable::new(zones, ZoneType::SeqRequired, 10 * 128, 8, &[])
    }

    fn start(zone: u64) -> Lba {
        Lba(zone * 128)
    }

    #[test]
    fn first_and_last_zones_are_conventional_and_need_no_order() {
        let mut t = table(2);
        assert_eq!(t.count(), 10);
        t.write(Lba(40), 8).unwrap();
        t.write(Lba(start(9).0 + 64), 3).unwrap();
        assert_eq!(t.write(Lba(120), 16), Err(ZoneError::Boundary));
        assert_eq!(t.reset(start(0)), Err(ZoneError::InvalidField));
        t.check();
    }

    #[test]
    fn of_zones_where_no_write_is_refused_one_is_open_beyond_the_limit() {
        let mut t = table(2);
        t.sequential = ZoneType::SeqPreferred;
        t.open(start(1)).unwrap();
        t.open(start(2)).unwrap();
        t.write_anywhere(start(3), 8, |_| ()).unwrap();
        t.check();
        assert_eq!(t.open(start(3)), Err(ZoneError::Resources));
        t.write_anywhere(start(4), 8, |_| ()).unwrap();
        t.check();
        t.close(start(1)).unwrap();
        t.open(start(4)).unwrap();
        t.check();
    }

    #[test]
    fn every_error_has_its_sense() {
        let mut t = table(1);
        t.write(start(1), 8).unwrap();
        for (result, asc, ascq) in [
            (t.write(start(1), 8), 0x21, 0x04),
            (t.write(Lba(start(1).0 + 8), 128), 0x21, 0x05),
            (t.write(Lba(start(1).0 + 8), 4), 0x21, 0x04),
            (t.read(start(1), 16), 0x21, 0x06),
            (t.read(Lba(120), 16), 0x21, 0x07),
            (t.open(Lba(start(1).0 + 8)), 0x24, 0x00),
        ] {
            let sense = result.unwrap_err().sense();
            assert_eq!((sense.asc, sense.ascq), (asc, ascq));
        }
        t.open(start(2)).unwrap();
        assert_eq!(t.write(start(3), 8), Err(ZoneError::Resources));
        assert_eq!(t.open(start(3)), Err(ZoneError::Resources));
        t.check();
    }

    #[test]
    fn the_zone_written_longest_ago_is_closed_for_another() {
        let mut t = table(2);
        for zone in [1, 2, 1, 3] {
            let at = t.zone(ZoneId(zone)).unwrap().write_pointer;
            t.write(at, 8).unwrap();
            t.check();
        }
        let states: Vec<_> = (1..4).map(|z| t.zone(ZoneId(z)).unwrap().state).collect();
        assert_eq!(
            states,
            [
                ZoneState::ImplicitOpen,
                ZoneState::Closed,
                ZoneState::ImplicitOpen
            ]
        );
    }

    #[test]
    fn a_power_cut_takes_a_write_pointer_back_to_the_first_lost_block() {
        let mut t = table(2);
        t.write(start(1), 128).unwrap();
        t.write(start(2), 32).unwrap();
        let lost = [
            BlockRange::new(Block(20), Block(34)),
            BlockRange::new(Block(18), Block(19)),
        ];
        t.power_cut(&lost);
        t.check();
        let zone = |z| t.zone(ZoneId(z)).unwrap();
        assert_eq!(
            (zone(1).state, zone(1).write_pointer),
            (ZoneState::Closed, Lba(144))
        );
        assert_eq!(
            (zone(2).state, zone(2).write_pointer),
            (ZoneState::Empty, start(2))
        );
    }
}
