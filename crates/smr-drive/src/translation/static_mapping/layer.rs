// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Drive-managed SMR with static mapping: bands at fixed places, a persistent cache in front of them.
//!
//! A write goes to the cache's log, unless it belongs to a long sequential run, which is written in place
//! (`plan.rs`). Bands with data in the cache are dirty, and are cleaned (`cleaning.rs`).
//!
//! Writing in place destroys the tracks behind. Where a run stops in the middle of a band and the rest of the band was
//! written before, that rest (the *tail*) has to be rewritten: the band is dirty, too, until the run goes on or the
//! tail is closed.
//!
//! The life of a band; it is dirty as long as it has entries in the log, a tail, or both:
//!
//! ```text
//!          land: entries;                         clean_slice (start_job): it is
//!          land_in_place: a tail                  idle, or a write waits for room
//!   clean ───────────────────────► dirty ─────────────────────────────────────────► being cleaned ──┐ end_slice:
//!    ▲ ▲                           │ ▲ ▲                                              │ │      ▲    │ more to do
//!    │ └───────────────────────────┘ │ │ power_cut, land_in_place: the job is dropped │ │      └────┘
//!    │   land_in_place over all of   │ └──────────────────────────────────────────────┘ │
//!    │   it; the run goes on         │                                                  │
//!    │                               └────────── entries came meanwhile ────────────────┤
//!    └──────────────────────────────────────────────────────────────────────────────────┘ end_slice: all done
//! ```
//!
//! INV-C1 to INV-C4, about log and map, are in `cache_map.rs`.

use super::bands::Bands;
use super::cache_map::CacheMap;
use super::job::Job;
use crate::activity::Activity;
use crate::counters::{CleaningBand, Counters, Snapshot, DIRTY_BANDS_LISTED};
use crate::mechanics::arm::{Access, Arm};
use crate::mechanics::layout::Layout;
use crate::profile::{self, Profile, NEVER_NS};
use crate::state::{SavedEntry, SavedStatic, SavedTail, SavedTranslation};
use crate::trace::{Event, EventKind, Where};
use crate::translation::layer::{Destage, Need, TranslationLayer};
use crate::translation::streams::Streams;
use crate::translation::written::Written;
use crate::volatile_buffer::{InFlight, VolatileBuffer};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{BandId, Block, BlockRange, Pba, BLOCK_BYTES};

/// What was behind a run that stopped in a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Its first block.
    pub start: Block,
    /// The log's head when the run stopped: bands are cleaned in the order in which they became dirty.
    pub order: u64,
    /// Classes of the run, a bit each.
    pub classes: u8,
}

/// The translation layer.
pub struct StaticMapping {
    pub(super) profile: profile::StaticMapping,
    pub(super) destage_blocks_max: u64,
    /// Blocks of the cache on the platters.
    area_blocks: u64,
    pub(in crate::translation) bands: Bands,
    pub(in crate::translation) map: CacheMap,
    pub(in crate::translation) written: Written,
    pub(super) tails: BTreeMap<BandId, Tail>,
    pub(super) streams: Streams,
    pub(in crate::translation) job: Option<Job>,
    /// For the trace.
    pub(super) events: Vec<Event>,
    /// Where the last visit to the log looked at the buffer.
    pub(super) cursor: Block,
}

impl StaticMapping {
    /// As it was saved.
    pub fn new(
        mapping: profile::StaticMapping,
        profile: &Profile,
        layout: &Layout,
        saved: &SavedStatic,
    ) -> Self {
        let bands = Bands::new(layout, &mapping, profile);
        StaticMapping::with_bands(mapping, profile, bands, saved)
    }

    /// The same with bands of another kind.
    pub(in crate::translation) fn with_bands(
        mapping: profile::StaticMapping,
        profile: &Profile,
        bands: Bands,
        saved: &SavedStatic,
    ) -> Self {
        let (blocks, head) = (mapping.area_blocks(&profile.buffer), saved.log_head);
        let mut map = if mapping.cache_overwritten {
            CacheMap::overwritten(&bands, blocks, head)
        } else {
            CacheMap::new(&bands, blocks, mapping.entry_header_blocks, head)
        };
        map.restore(&bands, &saved.entries);
        let mut written = Written::default();
        saved.written.iter().for_each(|range| written.add(*range));
        // One by one: to collect would sort, and that takes 4 KiB of a small stack.
        let mut tails = BTreeMap::new();
        for SavedTail {
            band,
            start,
            order,
            classes,
        } in saved.tails.iter().copied()
        {
            tails.insert(
                band,
                Tail {
                    start,
                    order,
                    classes,
                },
            );
        }
        StaticMapping {
            streams: Streams::new(mapping.stream_runs_max, mapping.stream_memory_ns),
            destage_blocks_max: profile.buffer.destage_blocks_max,
            area_blocks: blocks,
            profile: mapping,
            bands,
            map,
            written,
            tails,
            job: None,
            events: Vec::new(),
            cursor: Block(0),
        }
    }

    /// Whole bands hold nothing any more.
    pub(in crate::translation) fn forget(&mut self, range: BlockRange) {
        self.map.drop_range(&self.bands, range);
        self.written.remove(range);
        let bands = &self.bands;
        self.tails
            .retain(|band, _| !bands.range(*band).overlaps(range));
        if let Some(job) = &self.job {
            if bands.range(job.band).overlaps(range) {
                self.job = None;
            }
        }
    }

    /// Classes of what makes a band dirty, a bit each.
    fn dirty_classes(&self, band: BandId) -> u8 {
        let pieces = self.map.dirt().of(band).classes;
        pieces | self.tails.get(&band).map_or(0, |tail| tail.classes)
    }

    /// Notes for the trace that a band's cleaning began or ended.
    pub(super) fn note_cleaning(&mut self, kind: EventKind, band: BandId, value: u64) {
        self.events.push(Event {
            kind,
            start: self.bands.range(band).start,
            classes: self.dirty_classes(band),
            value,
        });
    }

    /// Writes `ranges` to a cache that is overwritten, in the order of their places: how long that takes. New entries cost
    /// what they cost in a log; a place that is overwritten has to pass under the head.
    fn begin_overwriting(&mut self, ranges: &[BlockRange], arm: &mut Arm, now_ns: u64) -> u64 {
        let mut parts: Vec<(u64, u64, bool)> = Vec::new();
        let mut cursor = self.map.head();
        for range in ranges {
            self.streams.cached(*range, now_ns);
            let mut rest = *range;
            while let Some(part) = self.map.next_part(rest, cursor) {
                if part.is_new {
                    cursor = part.place + part.range.blocks();
                }
                parts.push((part.place, part.range.blocks(), part.is_new));
                rest.start = part.range.end;
            }
        }
        parts.sort_unstable();
        let mut ns = 0;
        for (place, blocks, is_new) in parts {
            let at = self.map.pba(place);
            if arm.at() != at {
                ns += arm.access(now_ns + ns, at, 0, Access::Write);
            }
            let least_ns = if is_new { self.profile.entry_ns } else { 0 };
            ns += arm.transfer_ns(at, blocks).max(least_ns);
            arm.drift_to(at + blocks);
        }
        ns
    }

    /// A run was written in place over `span`.
    fn land_in_place(&mut self, span: BlockRange, classes: u8) {
        self.map.drop_range(&self.bands, span);
        self.written.add(span);
        let (first, last) = (
            self.bands.band(span.start),
            self.bands.band(Block(span.end.0 - 1)),
        );
        for band in (first.0..=last.0).map(BandId) {
            // A half-cleaned image in the scratch band is out of date now.
            if self.job.as_ref().is_some_and(|job| job.band == band) {
                self.job = None;
                self.note_cleaning(EventKind::CleaningEnded, band, 0);
            }
            let range = self.bands.range(band);
            let older = self.tails.get(&band).copied();
            if older.is_some_and(|t| t.start < span.start) {
                continue;
            }
            let rest = BlockRange::new(span.end.min(range.end), range.end);
            if self.written.count(rest) == 0 {
                self.tails.remove(&band);
                continue;
            }
            let classes = classes | older.map_or(0, |t| t.classes);
            self.tails.insert(
                band,
                Tail {
                    start: rest.start,
                    order: self.map.head(),
                    classes,
                },
            );
        }
    }
}

impl TranslationLayer for StaticMapping {
    /// To be saved. A band that is being cleaned is still dirty.
    fn save(&self, _volatile: &[BlockRange]) -> SavedTranslation {
        SavedTranslation::Static(SavedStatic {
            log_head: self.map.head(),
            entries: self
                .map
                .entries()
                .map(|(range, e)| SavedEntry {
                    start: range.start,
                    end: range.end,
                    place: e.place,
                    classes: e.classes,
                })
                .collect(),
            written: self.written.extents().collect(),
            tails: self
                .tails
                .iter()
                .map(|(band, t)| SavedTail {
                    band: *band,
                    start: t.start,
                    order: t.order,
                    classes: t.classes,
                })
                .collect(),
        })
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, Pba, bool)) {
        let mut at = range.start;
        for (found, entry) in self.map.overlapping(range) {
            let part = found.intersection(range);
            if at < part.start {
                visit(BlockRange::new(at, part.start), self.bands.home(at), true);
            }
            visit(
                part,
                self.map.pba(entry.place + (part.start.0 - found.start.0)),
                false,
            );
            at = part.end;
        }
        if at < range.end {
            visit(BlockRange::new(at, range.end), self.bands.home(at), true);
        }
    }

    /// Whether the map and the cache have room for `range` and for all that is already in the buffer. While a band is
    /// being cleaned because the cache is full, the map's entries it will free count as free, slice by slice: this is what
    /// lets a few writes through between two slices.
    fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        let p = &self.profile;
        if range.blocks() >= p.stream_min_blocks {
            return true;
        }
        // What is on its way to the cache has left the buffer and is not yet in the map: it needs its entry all the same.
        let waiting = (buffer.piece_count() + buffer.in_flight().len()) as u64;
        let credit = self.job.as_ref().map_or(0, Job::credit);
        let entries = range.blocks().div_ceil(p.entry_blocks_max);
        let has_room = self.map.entry_count() + waiting + entries <= p.cache_entries_max + credit;
        let goes_on = || self.streams.ends_at(range.start);
        if let Some(free) = self.map.free_places() {
            let needed = range.blocks() + buffer.volatile_blocks();
            let spare = self.area_blocks - p.cache_blocks;
            let goes_on = || buffer.absorbs(range) || goes_on();
            // All that is in the buffer has a place, whatever grows or goes on (INV-T4).
            return needed <= free && (has_room && needed + spare <= free || goes_on())
                || self.map.holds(range);
        }
        // The map is asked last: of all this, only it is large.
        if !has_room && !buffer.absorbs(range) && !goes_on() && !self.map.has_entry(range) {
            return false;
        }
        let log_blocks = |blocks: u64, entries: u64| blocks + entries * p.entry_header_blocks;
        // An entry may have to skip the end of the ring, and one at each end of a band.
        let slack = 4 * (p.entry_blocks_max + p.entry_header_blocks);
        let needed =
            log_blocks(range.blocks(), 1) + log_blocks(buffer.volatile_blocks(), waiting) + slack;
        // A band that is half cleaned is still in the ring, and may be in the way (INV-C4).
        self.map.occupied() + needed <= p.cache_blocks || goes_on()
    }

    /// Writes what was planned: how long it takes.
    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        if destage.place == Where::InPlace {
            self.streams.streamed(destage.span, now_ns);
            return arm.access(
                now_ns,
                self.bands.home(destage.span.start),
                destage.span.blocks(),
                Access::Write,
            );
        }
        if self.profile.cache_overwritten {
            return self.begin_overwriting(&destage.ranges, arm, now_ns);
        }
        // The log is written as it comes: an entry takes its time wherever the platters stand, but the way there counts.
        let head = self.map.pba(self.map.head());
        let mut ns = if arm.at() == head {
            0
        } else {
            arm.access(now_ns, head, 0, Access::Write)
        };
        let mut blocks = 0;
        for range in &destage.ranges {
            let entry_blocks = range.blocks() + self.profile.entry_header_blocks;
            let at = self.map.pba(self.map.head() + blocks);
            ns += arm.transfer_ns(at, entry_blocks).max(self.profile.entry_ns);
            blocks += entry_blocks;
            self.streams.cached(*range, now_ns);
        }
        arm.drift_to(self.map.pba(self.map.head() + blocks));
        ns
    }

    /// It is written.
    fn land(&mut self, destage: &Destage, landed: &[InFlight], counters: &mut Counters) {
        let bytes = |range: &BlockRange| range.blocks() * BLOCK_BYTES;
        if destage.place == Where::InPlace {
            let classes = landed.iter().fold(0, |c, f| c | f.classes);
            self.land_in_place(destage.span, classes);
            counters.streamed_bytes += bytes(&destage.span);
            return;
        }
        for range in &destage.ranges {
            let of_range = landed.iter().filter(|f| f.range.overlaps(*range));
            self.map
                .put(&self.bands, *range, of_range.fold(0, |c, f| c | f.classes));
            let band = self.bands.band(range.start);
            if let Some(job) = self.job.as_mut().filter(|job| job.band == band) {
                job.late.add(*range);
            }
            counters.cached_bytes += bytes(range);
        }
        counters.cache_entries_max = counters.cache_entries_max.max(self.map.entry_count());
        counters.cache_bytes_max = counters
            .cache_bytes_max
            .max(self.map.blocks() * BLOCK_BYTES);
    }

    fn plan(&mut self, buffer: &VolatileBuffer, _arm: &Arm, need: Need) -> Option<Destage> {
        self.plan_static(buffer, need)
    }

    fn idle_ns(&self) -> Option<u64> {
        (!self.is_clean() && self.profile.idle_ns < NEVER_NS).then_some(self.profile.idle_ns)
    }

    fn clean_slice(&mut self, arm: &mut Arm, now_ns: u64, forced: bool) -> Option<u64> {
        self.clean_slice_static(arm, now_ns, forced, None)
    }

    fn end_slice(&mut self, arm: &mut Arm, now_ns: u64, counters: &mut Counters) {
        self.end_slice_static(arm, now_ns, counters);
    }

    /// Nothing to clean.
    fn is_clean(&self) -> bool {
        self.map.dirt().is_empty() && self.tails.is_empty()
    }

    /// Runs are remembered in DRAM, and a half-cleaned band's image is known only there.
    fn power_cut(&mut self, _volatile: &[BlockRange]) {
        self.streams.clear();
        self.job = None;
    }

    /// All bands cleaned at once.
    fn clean_now(&mut self) {
        let entries: Vec<BlockRange> = self.map.entries().map(|(range, _)| range).collect();
        for range in entries {
            self.map.drop_range(&self.bands, range);
            self.written.add(range);
        }
        self.tails.clear();
        self.power_cut(&[]);
    }

    /// Checks the map, and that a tail lies in its band and was written.
    #[cfg(any(test, debug_assertions))]
    fn check(&self) {
        self.map.check(&self.bands);
        for (band, tail) in &self.tails {
            let range = self.bands.range(*band);
            assert!(
                range.start < tail.start && tail.start < range.end,
                "{band:?} {tail:?}"
            );
            assert!(self.written.count(BlockRange::new(tail.start, range.end)) > 0);
        }
    }

    fn take_events(&mut self) -> Vec<Event> {
        let mut events = core::mem::take(&mut self.streams.events);
        events.append(&mut self.events);
        events
    }

    fn activity(&self, destage: &Destage) -> Activity {
        match destage.place {
            Where::PersistentCache => Activity::Caching,
            _ => Activity::Streaming,
        }
    }

    /// Fills in what a report says of the cache and the bands.
    fn describe(&self, snapshot: &mut Snapshot) {
        let dirt = self.map.dirt();
        let mut classes: BTreeMap<BandId, u8> = BTreeMap::new();
        // Of both kinds the first in order of address: together they hold the first of all.
        for (band, d) in dirt.iter().take(DIRTY_BANDS_LISTED) {
            *classes.entry(band).or_default() |= d.classes;
        }
        for (band, t) in self.tails.iter().take(DIRTY_BANDS_LISTED) {
            *classes.entry(*band).or_default() |= t.classes;
        }
        let only_tails = self
            .tails
            .keys()
            .filter(|band| !dirt.contains(**band))
            .count();
        snapshot.written_blocks = self.written.extents().map(BlockRange::blocks).sum();
        snapshot.streams = (
            self.streams.streaming().len(),
            self.streams.candidates().len(),
        );
        snapshot.cleaning = self.job.as_ref().map(|job| CleaningBand {
            band: job.band,
            classes: self.dirty_classes(job.band),
            done_permille: job.done_permille(),
        });
        snapshot.cache_entries = self.map.entry_count();
        snapshot.cache_bytes = self.map.blocks() * BLOCK_BYTES;
        snapshot.bands_dirty = (dirt.len() + only_tails) as u64;
        snapshot.dirty = classes
            .into_iter()
            .take(DIRTY_BANDS_LISTED)
            .map(|(b, c)| (b, self.bands.range(b).start, c))
            .collect();
    }
}
