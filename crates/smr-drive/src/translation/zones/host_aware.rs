// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A host-aware zoned disk: writes at a zone's write pointer go in place, all others to a media cache.
//!
//! It is a static mapping whose bands are the zones, or equal parts of them, and whose streams are the write pointers:
//! cache, map and cleaning are those of [`StaticMapping`].
//!
//! ```text
//!               write at the pointer                     write elsewhere: the zone becomes non-sequential
//!   arrives ─── admit ───► in order ─── begin, land ──► in place ◄──────── end_slice (zone rewritten)
//!      │                      ▲ written again before                            ▲
//!      │                      └ it is on its way                                │ clean_slice: idle, cache full,
//!      └────── admit ───► (not in order) ── begin, land ──► in the cache ───────┘ or too many such zones
//!   zone_command(reset): nothing of the zone is left, neither in place nor in the cache
//! ```
//!
//! A zone with data in the cache is *non-sequential*. When there are as many as the disk can follow, a write that would
//! make one more waits until the zone among them that was written out of order longest ago has been cleaned (`accepts`,
//! `clean_slice`). Cleaning rewrites a band from its start to its last block; see docs/design/drive-zones.md for what
//! is known.
//!
//! INV-A1: what goes in place next in a zone lies behind all that is in place there: `in_place` goes in order of address.
//! INV-A2: `recent` holds exactly the zones that have data in the cache, and these are at most `non_sequential_max`.
//! INV-A3: nothing is at or behind a write pointer: neither in place, nor in the cache, nor in order.

use super::zone_table::ZoneTable;
use crate::activity::Activity;
use crate::counters::{Counters, Snapshot};
use crate::mechanics::arm::Arm;
use crate::mechanics::layout::Layout;
use crate::profile::{self, Profile};
use crate::request::{Op, Request};
use crate::state::{SavedHostAware, SavedTranslation, SavedZone};
use crate::trace::{Event, Where};
use crate::translation::conventional::{in_place, Conventional};
use crate::translation::layer::{Destage, Need, TranslationLayer};
use crate::translation::static_mapping::bands::Bands;
use crate::translation::static_mapping::StaticMapping;
use crate::translation::written::Written;
use crate::volatile_buffer::{InFlight, Piece, VolatileBuffer};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{
    BandId, Block, BlockRange, Lba, Pba, Zone, ZoneError, ZoneId, ZoneState, ZoneType, BLOCK_BYTES,
    BLOCK_SECTORS, SECTOR_BYTES,
};

/// The translation layer.
pub struct HostAware {
    profile: profile::HostAware,
    table: ZoneTable,
    /// The media cache, with the zones or their parts as bands.
    cache: StaticMapping,
    /// What may go in place: conventional zones, and what was written at write pointers and has not landed.
    in_place: Written,
    /// Non-sequential zones, the one that was written out of order longest ago first.
    recent: Vec<ZoneId>,
    /// Of zones written since power-on, the end of the last block on the medium.
    landed: BTreeMap<ZoneId, Block>,
    elevator: Conventional,
    destage_blocks_max: u64,
    appended_last: bool,
}

impl HostAware {
    /// As it was saved; to be [`started`](Self::started).
    pub fn new(
        zones: &profile::HostAware,
        profile: &Profile,
        layout: &Layout,
        saved: &SavedHostAware,
    ) -> Self {
        let table = ZoneTable::new(
            zones.zones,
            ZoneType::SeqPreferred,
            profile.capacity_sectors(),
            u64::from(profile.logical_block_bytes) / SECTOR_BYTES,
            &saved.zones,
        );
        let bands = Bands::of_zones(
            layout,
            &zones.cache,
            zones.zones.zone_blocks / u64::from(zones.zone_bands),
            profile,
        );
        HostAware {
            profile: zones.clone(),
            table,
            cache: StaticMapping::with_bands(zones.cache.clone(), profile, bands, &saved.cache),
            in_place: Written::default(),
            recent: Vec::new(),
            landed: BTreeMap::new(),
            elevator: Conventional::new(profile),
            destage_blocks_max: profile.buffer.destage_blocks_max,
            appended_last: false,
        }
    }

    /// Finds out the rest, in place: two of these are too much for a kernel's stack.
    pub fn started(mut self: Box<Self>) -> Box<Self> {
        self.reset_in_place();
        self.order_recent();
        self
    }

    fn reset_in_place(&mut self) {
        self.in_place = Written::default();
        let conventional = (0..self.table.count()).map(ZoneId);
        for id in conventional.filter(|id| self.table.is_conventional(*id)) {
            self.in_place.add(self.table.blocks(id));
        }
    }

    /// Non-sequential zones in the order of their newest entries.
    fn order_recent(&mut self) {
        let mut newest: BTreeMap<ZoneId, u64> = BTreeMap::new();
        for (range, entry) in self.cache.map.entries() {
            let place = newest.entry(self.zone_of(range.start)).or_default();
            *place = entry.place.max(*place);
        }
        // One by one: to collect would sort, and that takes 4 KiB of a small stack.
        let mut by_place = BTreeMap::new();
        for (zone, place) in newest {
            by_place.insert(place, zone);
        }
        self.recent = by_place.into_values().collect();
    }

    fn zone_of(&self, block: Block) -> ZoneId {
        self.table.at(block.first_sector())
    }

    /// The bands of a zone.
    fn bands_of(&self, zone: ZoneId) -> impl Iterator<Item = BandId> {
        let bands = self.profile.zone_bands;
        (zone.0 * bands..(zone.0 + 1) * bands).map(BandId)
    }

    /// The bands of a zone that have data in the cache.
    fn dirty_bands(&self, zone: ZoneId) -> impl Iterator<Item = BandId> + '_ {
        let last = self.cache.bands.count();
        let bands = self.bands_of(zone).filter(move |band| band.0 < last);
        bands.filter(|band| self.cache.map.dirt().contains(*band))
    }

    fn is_dirty(&self, zone: ZoneId) -> bool {
        self.dirty_bands(zone).next().is_some()
    }

    /// Whether blocks of `part`, which lies in one zone, go to the cache when they come into the buffer now: what is on
    /// its way in place is no longer in order.
    fn is_diverted(&self, part: BlockRange, buffer: &VolatileBuffer) -> bool {
        let sequential = !self.table.is_conventional(self.zone_of(part.start));
        self.in_place.count(part) < part.blocks() || sequential && buffer.flies(part)
    }

    /// `range` by zones.
    fn by_zone(&self, range: BlockRange) -> impl Iterator<Item = (ZoneId, BlockRange)> + '_ {
        let ids = self.zone_of(range.start).0..=self.zone_of(Block(range.end.0 - 1)).0;
        ids.map(move |id| {
            let part = self.table.blocks(ZoneId(id)).intersection(range);
            (ZoneId(id), part)
        })
    }

    /// Whether what of `range` goes to the cache can go there without one non-sequential zone too many.
    fn has_zones_for(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        let dirty = self.recent.len();
        let diverted = |(zone, part): &(ZoneId, BlockRange)| {
            !self.is_dirty(*zone) && self.is_diverted(*part, buffer)
        };
        let mut zones: Vec<ZoneId> = self.by_zone(range).filter(diverted).map(|z| z.0).collect();
        if zones.is_empty() {
            return true;
        }
        let most = self.profile.non_sequential_max as usize;
        if dirty + zones.len() > most {
            return false;
        }
        // Those that will be non-sequential when the buffer is on the medium.
        for (piece, _) in buffer.pieces() {
            zones.extend(self.by_zone(piece).filter(diverted).map(|z| z.0));
        }
        for flight in buffer.in_flight() {
            let to_cache = |(zone, part): &(ZoneId, BlockRange)| {
                !self.is_dirty(*zone) && self.in_place.count(*part) < part.blocks()
            };
            zones.extend(self.by_zone(flight.range).filter(to_cache).map(|z| z.0));
        }
        zones.sort_unstable();
        zones.dedup();
        dirty + zones.len() <= most
    }

    /// What can be written in place now: of a sequential zone, the first blocks that are dirty and in order (INV-A1), if
    /// somebody waits for anything of the zone that is in order; of conventional zones, what is wanted.
    fn candidates(&self, buffer: &VolatileBuffer, need: Need) -> Vec<BlockRange> {
        let wanted = |piece: &Piece| need.pressure || need.is_due(piece);
        let mut found: Vec<BlockRange> = Vec::new();
        let mut zone = None;
        for extent in self.in_place.extents() {
            let mut at = extent.start;
            while at < extent.end {
                let id = self.zone_of(at);
                let part = self.table.blocks(id).intersection(extent);
                let part = BlockRange::new(at, part.end);
                at = part.end;
                let conventional = self.table.is_conventional(id);
                if zone == Some(id) && !conventional {
                    continue;
                }
                let before = buffer
                    .piece_at(part.start)
                    .filter(|(r, _)| r.start < part.start);
                let behind = buffer.pieces_from(part.start);
                let dirty = before.into_iter().chain(behind);
                let mut dirty = dirty.take_while(|(r, _)| r.start < part.end).peekable();
                if conventional {
                    let wanted = dirty.filter(|(_, piece)| wanted(piece));
                    found.extend(wanted.map(|(r, _)| r.intersection(part)));
                } else if let Some(first) = dirty.peek().map(|(r, _)| r.intersection(part)) {
                    zone = Some(id);
                    if dirty.any(|(_, piece)| wanted(piece)) {
                        let end = buffer.contiguous_end(first.start).min(part.end);
                        found.push(BlockRange::new(first.start, end));
                    }
                }
            }
        }
        found
    }

    /// Of what can be written in place, what the arm reaches first.
    fn plan_in_place(&self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        let candidates = self.candidates(buffer, need);
        let bands = &self.cache.bands;
        let here = bands.block_at(arm.at());
        let first = candidates.partition_point(|range| range.start < here);
        let (behind, ahead) = candidates.split_at(first);
        let starts = ahead.iter().chain(behind).map(|range| range.start);
        let home = |block| bands.home(block);
        let start = self.elevator.nearest(arm, need.now_ns, home, starts)?;
        let range = candidates.iter().find(|range| range.start == start)?;
        let end = range.end.min(start + self.destage_blocks_max);
        Some(in_place(BlockRange::new(start, end)))
    }

    /// A zone is empty: its blocks are nowhere.
    fn forget(&mut self, zone: BlockRange) {
        let id = self.zone_of(zone.start);
        self.cache.forget(zone);
        self.in_place.remove(zone);
        self.recent.retain(|zone| *zone != id);
        self.landed.insert(id, zone.start);
    }

    fn saved_zones(&self) -> Vec<SavedZone> {
        self.table.save_kept(|id| {
            let start = self.table.blocks(id).start.0;
            let end = self.landed.get(&id)?;
            Some((end.0 - start) * BLOCK_SECTORS)
        })
    }
}

impl TranslationLayer for HostAware {
    /// A write pointer goes back to the last block that is on the medium. Before it there may be blocks that were lost:
    /// they read as they were.
    fn save(&self, volatile: &[BlockRange]) -> SavedTranslation {
        let SavedTranslation::Static(cache) = self.cache.save(volatile) else {
            return SavedTranslation::Nothing;
        };
        SavedTranslation::HostAware(SavedHostAware {
            zones: self.saved_zones(),
            cache,
        })
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool)) {
        self.cache.pieces(range, visit);
    }

    fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        let diverted = self
            .by_zone(range)
            .any(|(_, part)| self.is_diverted(part, buffer));
        !diverted || self.has_zones_for(range, buffer) && self.cache.accepts(range, buffer)
    }

    /// In place first, but what waits for the cache gets its turn.
    fn plan(&mut self, buffer: &VolatileBuffer, arm: &Arm, need: Need) -> Option<Destage> {
        if buffer.blocks() == 0 {
            return None;
        }
        if !core::mem::take(&mut self.appended_last) {
            let due = Need {
                pressure: false,
                ..need
            };
            if let Some(destage) = self.cache.plan_append(buffer, due, &self.in_place) {
                self.appended_last = true;
                return Some(destage);
            }
        }
        self.plan_in_place(buffer, arm, need)
            .or_else(|| self.cache.plan_append(buffer, need, &self.in_place))
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.cache.take_events()
    }

    fn activity(&self, destage: &Destage) -> Activity {
        self.cache.activity(destage)
    }

    fn fail_zone(&mut self, zone: ZoneId, state: ZoneState) -> bool {
        self.table.fail(zone, state)
    }

    /// Zones that were closed to make room cost the time to note where they end.
    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        let close_ns = self.table.take_closed_for_room() * self.profile.close_ns;
        close_ns + self.cache.begin(destage, arm, now_ns + close_ns)
    }

    fn land(&mut self, destage: &Destage, landed: &[InFlight], counters: &mut Counters) {
        if self.table.is_conventional(self.zone_of(destage.span.start)) {
            counters.streamed_bytes += destage.span.blocks() * BLOCK_BYTES;
            return;
        }
        self.cache.land(destage, landed, counters);
        for range in &destage.ranges {
            let id = self.zone_of(range.start);
            let end = self.landed.entry(id).or_insert(range.end);
            *end = range.end.max(*end);
            if destage.place == Where::InPlace {
                self.in_place.remove(*range);
                // The first block may have been begun out of order, and is whole now.
                if !self.is_dirty(id) {
                    self.recent.retain(|zone| *zone != id);
                }
            } else if self.recent.last() != Some(&id) {
                self.recent.retain(|zone| *zone != id);
                self.recent.push(id);
            }
        }
    }

    fn idle_ns(&self) -> Option<u64> {
        self.cache.idle_ns()
    }

    fn clean_slice(&mut self, arm: &mut Arm, now_ns: u64, forced: bool) -> Option<u64> {
        let too_many = self.recent.len() >= self.profile.non_sequential_max as usize;
        let oldest = self.recent.first().filter(|_| forced && too_many);
        let first = oldest.and_then(|zone| self.dirty_bands(*zone).next());
        self.cache.clean_slice_static(arm, now_ns, forced, first)
    }

    fn end_slice(&mut self, arm: &mut Arm, now_ns: u64, counters: &mut Counters) {
        let band = self.cache.job.as_ref().map(|job| job.band);
        self.cache.end_slice(arm, now_ns, counters);
        let Some(band) = band.filter(|_| self.cache.job.is_none()) else {
            return;
        };
        // What was behind a gap is in place now; what comes into the gap would destroy it.
        let id = ZoneId(band.0 / self.profile.zone_bands);
        let zone = self.table.blocks(id);
        if let Some(last) = self.cache.written.last_end(zone) {
            self.in_place.remove(BlockRange::new(zone.start, last));
        }
        if !self.is_dirty(id) {
            self.recent.retain(|zone| *zone != id);
        }
    }

    fn is_clean(&self) -> bool {
        self.cache.is_clean()
    }

    fn power_cut(&mut self, volatile: &[BlockRange]) {
        let saved = self.saved_zones();
        self.table.restore(&saved);
        self.cache.power_cut(volatile);
        self.landed.clear();
        self.reset_in_place();
    }

    fn clean_now(&mut self) {
        for id in (0..self.table.count()).map(ZoneId) {
            if !self.table.is_conventional(id) {
                let in_order = self.in_place.parts(self.table.blocks(id));
                in_order.into_iter().for_each(|r| self.cache.written.add(r));
            }
        }
        self.cache.clean_now();
        self.recent.clear();
        self.landed.clear();
        self.reset_in_place();
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
            Op::Write | Op::WriteZeroes => {
                let blocks = request.blocks();
                let ids = self.zone_of(blocks.start).0..=self.zone_of(Block(blocks.end.0 - 1)).0;
                for id in ids.map(ZoneId) {
                    let Some(zone) = self.table.zone(id) else {
                        break;
                    };
                    let end = zone.write_pointer.0.div_ceil(BLOCK_SECTORS);
                    self.landed.entry(id).or_insert(Block(end));
                }
                let in_place = &mut self.in_place;
                self.table
                    .write_anywhere(request.lba, sectors, |range| in_place.add(range))
            }
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
            Op::ZoneFinish => {
                self.table.finish(at)?;
                let id = self.table.at(at);
                self.landed.insert(id, self.table.blocks(id).end);
                Ok(())
            }
            Op::ZoneReset => {
                let zone = self.table.reset(at)?;
                self.forget(zone);
                forgotten(zone);
                Ok(())
            }
            Op::ZoneResetAll => {
                let mut zones = Vec::new();
                self.table.reset_all(&mut |zone| zones.push(zone));
                for zone in zones {
                    self.forget(zone);
                    forgotten(zone);
                }
                Ok(())
            }
            _ => Err(ZoneError::InvalidField),
        }
    }

    fn zone_command_ns(&self) -> u64 {
        self.profile.zones.command_ns
    }

    #[cfg(any(test, debug_assertions))]
    fn check(&self) {
        self.table.check();
        self.cache.check();
        let mut recent = self.recent.clone();
        recent.sort_unstable();
        let all = (0..self.table.count()).map(ZoneId);
        let dirty: Vec<ZoneId> = all.filter(|id| self.is_dirty(*id)).collect();
        assert_eq!(recent, dirty, "INV-A2");
        assert!(
            recent.len() <= self.profile.non_sequential_max as usize,
            "INV-A2"
        );
        for id in (0..self.table.count()).map(ZoneId) {
            let Some(zone) = self.table.zone(id) else {
                break;
            };
            if self.table.is_conventional(id) {
                continue;
            }
            let blocks = self.table.blocks(id);
            let end = Block(zone.write_pointer.0.div_ceil(BLOCK_SECTORS));
            let last = self.cache.written.last_end(blocks);
            let in_order = self.in_place.parts(blocks);
            if let (Some(last), Some(first)) = (last, in_order.first()) {
                // A block of which only a part was written may be written again for its other part.
                assert!(last.0 <= first.start.0 + 1, "INV-A1: {id:?}");
            }
            let cached = self.cache.map.overlapping(blocks).last();
            let ends = [
                last,
                in_order.last().map(|range| range.end),
                cached.map(|(range, _)| range.end),
            ];
            assert!(
                ends.into_iter().flatten().all(|last| last <= end),
                "INV-A3: {id:?}"
            );
        }
    }

    fn describe(&self, snapshot: &mut Snapshot) {
        self.cache.describe(snapshot);
        snapshot.zones_open = self.table.open_count();
    }
}
