// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Drive-managed SMR with dynamic mapping: s-blocks that move within their section, an exception buffer for each
//! section, and cleaning all the time (Cassuto et al., MSST'10; the parameters are those of Skylight's dm-sblock).
//!
//! The life of an s-block; the edges are functions of `SBlockMap`, called from the one in brackets:
//!
//! ```text
//!                     begin_fill, fill (land)
//!   in no slot ─────────────────────────────────► open ──┐ fill (land): goes on
//!    │  ▲  ▲                                      │ ▲  ▲─┘
//!    │  │  │ discard           fill (land): full, │ │ begin_fill, fill (land): a stream
//!    │  │  └──────────────┐    close (end_slice,  │ │ from the first block on
//!    │  │                 │    land: evicted)     ▼ │
//!    │  │ discard         └────────────────── in one slot
//!    │  │                                         ▲ │
//!    │  │         moved (end_slice); a stream or  │ │ append (land): a write that is
//!    │  │         a discard of the exceptions     │ ▼ no stream
//!    └─►└────────────────────────────────────── dirty: exceptions in the buffer; also
//!       append (land)                           together with open or no slot
//! ```
//!
//! While the host writes, cleaning takes a share of the arm's time that grows with how full the section's exception
//! buffer is, up to all of it: the drive slows down by degrees and has no edge to fall from. When nobody asks for
//! anything, it cleans until the buffers are empty.
//!
//! The invariants INV-S1 to INV-S7 are in `s_block_map.rs`. Here:
//!
//! INV-S8: what `accepts` let in finds room in its section's ring, whichever way it goes: only whole s-blocks are let in
//! without, and these always become streams, because no more than `stream_runs_max` s-blocks are open at a time and a
//! section has two slots more than that to spare.
//! INV-S9: a power cut drops streams, the job and what was to be opened; the map needs none of them.

use super::job::Job;
use super::map::SBlockMap;
use crate::activity::Activity;
use crate::counters::{CleaningBand, Counters, Snapshot, DIRTY_BANDS_LISTED};
use crate::mechanics::arm::{Access, Arm};
use crate::mechanics::layout::Layout;
use crate::profile::{self, Profile, NEVER_NS};
use crate::state::{SavedSBlocks, SavedTranslation};
use crate::trace::{Event, Where};
use crate::translation::layer::{Destage, Need, TranslationLayer};
use crate::translation::streams::{Streams, GROWING_BLOCKS};
use crate::volatile_buffer::{InFlight, Piece, VolatileBuffer};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use zoned::{BandId, Block, BlockRange, BLOCK_BYTES};

/// What the destage on its way will do to the map before its own blocks.
#[derive(Clone, Copy, Default)]
struct Pending {
    /// An open s-block that is closed.
    close: Option<u32>,
    /// Blocks that closing it writes.
    closed_blocks: u64,
    /// An s-block that is opened, and the slot taken for it.
    open: Option<(u32, u32)>,
    now_ns: u64,
}

/// The translation layer.
pub struct SBlocks {
    pub(super) profile: profile::SBlocks,
    pub(super) map: SBlockMap,
    pub(super) job: Option<Job>,
    /// Time that cleaning has to catch up with writing.
    pub(super) debt_ns: u64,
    /// What waits in the buffer for each section; too much where writes overlapped.
    waiting: Vec<Cell<Demand>>,
    /// The section whose lack of room makes a write wait.
    pub(super) wanted: Cell<Option<usize>>,
    streams: Streams,
    pending: Pending,
    destage_blocks_max: u64,
    segment_blocks: u64,
    /// For the trace.
    pub(super) events: Vec<Event>,
    /// Where the last visit to a log looked at the buffer.
    cursor: Block,
}

/// What a write may take of an exception buffer.
#[derive(Clone, Copy, Default)]
struct Demand {
    entries: u64,
    blocks: u64,
}

impl Demand {
    fn plus(self, other: Demand) -> Demand {
        Demand {
            entries: self.entries + other.entries,
            blocks: self.blocks + other.blocks,
        }
    }

    fn less(self, other: Demand) -> Demand {
        Demand {
            entries: self.entries.saturating_sub(other.entries),
            blocks: self.blocks.saturating_sub(other.blocks),
        }
    }
}

impl SBlocks {
    /// As it was saved.
    pub fn new(
        s_blocks: profile::SBlocks,
        profile: &Profile,
        layout: &Layout,
        saved: &SavedSBlocks,
    ) -> Self {
        let map = SBlockMap::new(&s_blocks, profile.capacity_blocks(), saved);
        assert!(
            layout.blocks() >= map.physical_blocks(),
            "the platters hold all sections with their buffers and spare slots"
        );
        assert!(
            s_blocks.section_ring_blocks
                >= 2 * s_blocks.s_block_blocks + 4 * (s_blocks.entry_blocks_max + 1),
            "a section's exception buffer holds both ends of any request"
        );
        SBlocks {
            waiting: vec![Cell::default(); map.section_count()],
            map,
            job: None,
            debt_ns: 0,
            wanted: Cell::new(None),
            streams: Streams::new(s_blocks.stream_runs_max, s_blocks.stream_memory_ns),
            pending: Pending::default(),
            destage_blocks_max: profile.buffer.destage_blocks_max,
            segment_blocks: u64::from(profile.mechanics.segment_blocks),
            events: Vec::new(),
            cursor: Block(0),
            profile: s_blocks,
        }
    }

    /// What `range`, in one section, can need of the exception buffer: all but the s-blocks that it covers.
    fn demand(&self, range: BlockRange) -> Demand {
        let mut demand = Demand::default();
        if range.is_empty() {
            return demand;
        }
        let (first, _) = self.map.locate(range.start);
        let (last, _) = self.map.locate(Block(range.end.0 - 1));
        for x in [Some(first), Some(last).filter(|x| *x != first)]
            .into_iter()
            .flatten()
        {
            let part = range.intersection(self.map.range(x));
            if part != self.map.range(x) || part.blocks() < self.stream_min() {
                demand.entries += part.blocks().div_ceil(self.profile.entry_blocks_max);
                demand.blocks += part.blocks();
            }
        }
        demand
    }

    /// Whether a section has room for `demand` beside `waiting`. What the present job will free counts in proportion to
    /// what is done: that lets a few writes through between two slices.
    fn has_room(&self, section: usize, demand: Demand, waiting: Demand) -> bool {
        let p = &self.profile;
        let job = self.job.as_ref();
        let job = job.filter(|job| self.map.section(job.s_block) == section);
        let credit = job.map(Job::credit).unwrap_or_default();
        let entries = self.map.entries(section) + waiting.entries + demand.entries;
        if demand.entries > 0 && entries > p.section_entries_max + credit {
            return false;
        }
        // Visits and the ring's end may cut entries once more.
        let headers = 2 * (waiting.entries + demand.entries) * p.entry_header_blocks;
        let slack = 2 * (p.entry_blocks_max + p.entry_header_blocks);
        let log_blocks = waiting.blocks + demand.blocks + headers + slack;
        self.map.occupied(section) + log_blocks <= p.section_ring_blocks
    }

    /// What waits in the buffer for a section.
    fn count_waiting(&self, section: usize, buffer: &VolatileBuffer) -> Demand {
        let of_section = self.map.section_range(section);
        let before = buffer.piece_at(of_section.start);
        let from = before.map_or(of_section.start, |(range, _)| range.start);
        buffer
            .pieces_from(from)
            .take_while(|(range, _)| range.start < of_section.end)
            .map(|(range, _)| self.demand(range.intersection(of_section)))
            .fold(Demand::default(), Demand::plus)
    }

    /// Whether a section can take `range`, which lies in it. What is let in is remembered as waiting; only when that
    /// leaves no room, the buffer is looked through.
    fn accepts_in(&self, section: usize, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        let mut demand = self.demand(range);
        if demand.blocks == 0 {
            return true;
        }
        let waiting = &self.waiting[section];
        let mut fits = self.has_room(section, demand, waiting.get());
        if !fits {
            waiting.set(self.count_waiting(section, buffer));
            if buffer.absorbs(range) || self.map.has_exception(range) || self.goes_on(range.start) {
                demand.entries = 0;
            }
            fits = self.has_room(section, demand, waiting.get());
        }
        if fits {
            waiting.set(waiting.get().plus(demand));
        }
        fits
    }

    /// Whether a stream goes on at `at`.
    fn goes_on(&self, at: Block) -> bool {
        let (x, offset) = self.map.locate(at);
        match self.map.open().get(&x) {
            Some(open) if offset > 0 => open.fill == offset,
            _ => offset == 0 && self.streams.streaming().iter().any(|run| run.end == at),
        }
    }

    /// Where streams go on: behind what is written of an open s-block, and at the s-block behind a stream.
    fn frontiers(&self) -> impl Iterator<Item = Block> + '_ {
        let open = self.map.open().iter();
        let fills = open.map(|(x, open)| self.map.range(*x).start + open.fill);
        let ends = self.streams.streaming().iter().map(|run| run.end);
        fills.chain(ends.filter(|end| {
            let (_, offset) = self.map.locate(*end);
            offset == 0
        }))
    }

    /// Nobody waits, nothing has waited for long, and no run is long enough to be written without need.
    fn nothing_to_do(&self, buffer: &VolatileBuffer, need: Need) -> bool {
        let least = self.destage_blocks_max.min(self.stream_min());
        let held = buffer
            .oldest_ns()
            .is_some_and(|oldest| oldest + need.hold_ns > need.now_ns);
        buffer.blocks() == 0
            || held
                && !need.pressure
                && need.flush_epoch.is_none()
                && !buffer.has_urgent()
                && buffer.blocks() < least
    }

    fn stream_min(&self) -> u64 {
        self.profile
            .stream_min_blocks
            .min(self.profile.s_block_blocks)
    }

    /// More of a stream.
    fn plan_continuation(&self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        self.frontiers().find_map(|at| {
            let dirty_end = buffer.contiguous_end(at);
            let chunk = self.chunk(at, dirty_end);
            let s_block = self.map.range(self.map.locate(at).0);
            let full = chunk.end == s_block.end || chunk.blocks() >= self.destage_blocks_max;
            let go =
                full && need.overdue.is_none() || need.pressure || need.is_due_from(buffer, at);
            (!chunk.is_empty() && go).then(|| stream(chunk))
        })
    }

    /// A run that covers enough of an s-block from its first block on.
    fn plan_new_stream(&self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        if buffer.blocks() < self.stream_min() {
            return None;
        }
        let mut run = BlockRange::new(Block(0), Block(0));
        let mut has_turn = false;
        for (range, piece) in buffer.pieces() {
            let goes_on = range.start == run.end;
            run = BlockRange::new(if goes_on { run.start } else { range.start }, range.end);
            has_turn = has_turn && goes_on || need.overdue.is_none() || need.is_due(piece);
            if run.blocks() < self.stream_min() || !has_turn {
                continue;
            }
            let first = Block(run.start.0.next_multiple_of(self.profile.s_block_blocks));
            if first + self.stream_min() <= run.end {
                return Some(stream(self.chunk(first, buffer.contiguous_end(run.end))));
            }
        }
        None
    }

    /// What can be written at once from `at` on: within one s-block, so that others get a turn.
    fn chunk(&self, at: Block, dirty_end: Block) -> BlockRange {
        let s_block = self.map.range(self.map.locate(at).0);
        let end = dirty_end.min(s_block.end).min(at + self.destage_blocks_max);
        BlockRange::new(at, end.max(at))
    }

    /// A batch of entries for one section's log. What grows into a run is left alone as long as nobody waits for it.
    fn plan_append(&mut self, buffer: &VolatileBuffer, need: Need) -> Option<Destage> {
        let growing = |range: BlockRange, p: &Piece| {
            range.blocks() >= GROWING_BLOCKS && p.last_ns + need.hold_ns > need.now_ns
        };
        let mut ranges = self.gather(buffer, |range, piece| {
            need.is_due(piece) || need.pressure && !growing(range, piece)
        });
        if ranges.is_empty() && need.pressure {
            ranges = self.gather(buffer, |_, _| true);
        }
        let last = *ranges.last()?;
        self.cursor = last.end;
        let section = self.map.section(self.map.locate(last.start).0);
        self.waiting[section].set(self.count_waiting(section, buffer));
        Some(Destage {
            place: Where::PersistentCache,
            ranges,
            span: last,
        })
    }

    /// Entries for the pieces that are `wanted`, from the cursor on and around, as far as they are of one section.
    fn gather(
        &self,
        buffer: &VolatileBuffer,
        wanted: impl Fn(BlockRange, &Piece) -> bool,
    ) -> Vec<BlockRange> {
        let mut ranges = Vec::new();
        let mut section = None;
        let mut blocks_left = self.destage_blocks_max;
        let from = buffer
            .piece_at(self.cursor)
            .map_or(self.cursor, |(range, _)| range.start);
        let around = buffer
            .pieces_from(from)
            .chain(buffer.pieces().take_while(|(r, _)| r.start < from));
        for (range, piece) in around {
            if section.is_some_and(|s: BlockRange| range.start >= s.end || range.end <= s.start) {
                break;
            }
            if !wanted(range, piece) {
                continue;
            }
            let mut at = range.start;
            while at < range.end {
                let x = self.map.locate(at).0;
                let of_section =
                    *section.get_or_insert_with(|| self.map.section_range(self.map.section(x)));
                if at >= of_section.end {
                    return ranges;
                }
                let entry_end = at + self.profile.entry_blocks_max.min(blocks_left);
                let end = range.end.min(entry_end).min(self.map.range(x).end);
                ranges.push(BlockRange::new(at, end));
                blocks_left -= end.0 - at.0;
                if blocks_left == 0 || ranges.len() >= self.profile.append_entries_max as usize {
                    return ranges;
                }
                at = end;
            }
        }
        ranges
    }

    /// Goes to the log of the ranges' section and writes entries as they come: each takes its time wherever the platters
    /// stand, but the way there counts.
    fn begin_append(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        let section = self.map.section(self.map.locate(destage.span.start).0);
        let log_head = self.map.log_head(section);
        let head = self.map.log_pba(section, log_head);
        let mut ns = if arm.at() == head {
            0
        } else {
            arm.access(now_ns, head, 0, Access::Write)
        };
        let mut blocks = 0;
        for range in &destage.ranges {
            let entry_blocks = range.blocks() + self.profile.entry_header_blocks;
            ns += arm
                .transfer_ns(head, entry_blocks)
                .max(self.profile.entry_ns);
            blocks += entry_blocks;
        }
        arm.drift_to(self.map.log_pba(section, log_head + blocks));
        ns
    }

    /// Writes a chunk of a stream, and opens its s-block if it begins there. If too many are open, the one that did not
    /// grow for longest is closed first.
    fn begin_stream(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        let (x, offset) = self.map.locate(destage.span.start);
        self.streams.streamed(destage.span, now_ns);
        self.pending = Pending {
            now_ns,
            ..Pending::default()
        };
        let mut ns = 0;
        if offset == 0 {
            let open = self.map.open();
            let full = open.len() >= self.profile.stream_runs_max as usize;
            let oldest = open.iter().min_by_key(|(_, o)| o.last_ns).map(|o| *o.0);
            let again = open.contains_key(&x).then_some(x);
            self.pending.close = again.or(oldest.filter(|_| full));
            if let Some(close) = self.pending.close {
                (ns, self.pending.closed_blocks) = self.close(close, arm, now_ns);
            }
            self.pending.open = Some((x, self.map.take_slot(x)));
        }
        let slot = match self.pending.open {
            Some((_, slot)) => slot,
            None => self.map.open().get(&x).map_or(0, |open| open.slot),
        };
        let to = self.map.slot_pba(x, slot, offset);
        ns + arm.access(now_ns + ns, to, destage.span.blocks(), Access::Write)
    }

    fn land_stream(&mut self, span: BlockRange) {
        let Pending {
            close,
            open,
            now_ns,
            ..
        } = core::mem::take(&mut self.pending);
        if let Some(close) = close {
            self.drop_job_of(close);
            self.map.close(close);
        }
        let (x, _) = self.map.locate(span.start);
        self.drop_job_of(x);
        if let Some((x, slot)) = open {
            self.map.begin_fill(x, slot);
        }
        let last = span.end.0 - self.map.range(x).start.0;
        self.map.fill(x, last, now_ns);
    }

    fn drop_pending(&mut self) {
        if let Some((x, slot)) = core::mem::take(&mut self.pending).open {
            self.map.give_slot(x, slot);
        }
    }
}

/// A destage of one run to a slot.
fn stream(span: BlockRange) -> Destage {
    Destage {
        place: Where::InPlace,
        ranges: vec![span],
        span,
    }
}

impl TranslationLayer for SBlocks {
    fn save(&self, _volatile: &[BlockRange]) -> SavedTranslation {
        SavedTranslation::SBlocks(self.map.save())
    }

    fn pieces(&self, range: BlockRange, visit: &mut dyn FnMut(BlockRange, zoned::Pba, bool)) {
        self.map.pieces(range, self.segment_blocks, visit);
    }

    fn accepts(&self, range: BlockRange, buffer: &VolatileBuffer) -> bool {
        let mut at = range.start;
        while at < range.end {
            let section = self.map.section(self.map.locate(at).0);
            let end = range.end.min(self.map.section_range(section).end);
            if !self.accepts_in(section, BlockRange::new(at, end), buffer) {
                self.wanted.set(Some(section));
                return false;
            }
            at = end;
        }
        true
    }

    fn plan(&mut self, buffer: &VolatileBuffer, _arm: &Arm, need: Need) -> Option<Destage> {
        if self.nothing_to_do(buffer, need) {
            return None;
        }
        self.streams.expire(need.now_ns);
        self.plan_continuation(buffer, need)
            .or_else(|| self.plan_new_stream(buffer, need))
            .or_else(|| self.plan_append(buffer, need))
    }

    fn begin(&mut self, destage: &Destage, arm: &mut Arm, now_ns: u64) -> u64 {
        let section = self.map.section(self.map.locate(destage.span.start).0);
        let ns = if destage.place == Where::InPlace {
            self.begin_stream(destage, arm, now_ns)
        } else {
            self.begin_append(destage, arm, now_ns)
        };
        self.owe(section, ns);
        ns
    }

    fn land(&mut self, destage: &Destage, landed: &[InFlight], counters: &mut Counters) {
        let bytes = |range: &BlockRange| range.blocks() * BLOCK_BYTES;
        if destage.place == Where::InPlace {
            counters.rewritten_bytes += self.pending.closed_blocks * BLOCK_BYTES;
            self.land_stream(destage.span);
            counters.streamed_bytes += bytes(&destage.span);
            return;
        }
        for range in &destage.ranges {
            let of_range = landed.iter().filter(|f| f.range.overlaps(*range));
            let classes = of_range.fold(0, |c, f| c | f.classes);
            let (x, first) = self.map.locate(range.start);
            self.map.append(x, first, first + range.blocks(), classes);
            let landed = Demand {
                entries: 1,
                blocks: range.blocks(),
            };
            let waiting = &self.waiting[self.map.section(x)];
            waiting.set(waiting.get().less(landed));
            counters.cached_bytes += bytes(range);
        }
        let (entries, blocks) = self.map.totals();
        counters.cache_entries_max = counters.cache_entries_max.max(entries);
        counters.cache_bytes_max = counters.cache_bytes_max.max(blocks * BLOCK_BYTES);
    }

    fn idle_ns(&self) -> Option<u64> {
        let p = &self.profile;
        if p.idle_ns == NEVER_NS {
            return None;
        }
        if self.map.dirty_count() > 0 {
            return Some(p.idle_ns);
        }
        // The stream may go on.
        (!self.is_clean()).then_some(p.stream_memory_ns.max(p.idle_ns))
    }

    fn cleaning_is_due(&self, _buffer: &VolatileBuffer) -> bool {
        self.debt_ns >= self.profile.clean_slice_ns && self.map.dirty_count() > 0
    }

    fn clean_slice(&mut self, arm: &mut Arm, now_ns: u64, forced: bool) -> Option<u64> {
        self.clean_slice_s_blocks(arm, now_ns, forced)
    }

    fn end_slice(&mut self, arm: &mut Arm, now_ns: u64, counters: &mut Counters) {
        self.end_slice_s_blocks(arm, now_ns, counters);
    }

    /// No exceptions, and nothing left in the old slot of an open s-block.
    fn is_clean(&self) -> bool {
        self.map.dirty_count() == 0 && self.map.open().keys().all(|x| self.map.rest(*x).is_none())
    }

    /// INV-S9.
    fn power_cut(&mut self, _volatile: &[BlockRange]) {
        self.streams.clear();
        self.drop_job();
        self.drop_pending();
        self.wanted.set(None);
        self.waiting.iter().for_each(|w| w.set(Demand::default()));
        self.debt_ns = 0;
    }

    fn clean_now(&mut self) {
        self.power_cut(&[]);
        while let Some(x) = (0..self.map.section_count()).find_map(|i| self.map.oldest(i)) {
            let slot = self.map.take_slot(x);
            let section = self.map.section(x);
            self.map.moved(x, slot, self.map.log_head(section));
        }
        let open: Vec<u32> = self.map.open().keys().copied().collect();
        open.into_iter().for_each(|x| self.map.close(x));
    }

    fn has_discard(&self) -> bool {
        self.profile.discard
    }

    fn discard(&mut self, range: BlockRange) -> bool {
        let mut at = range.start;
        while at < range.end {
            let (x, first) = self.map.locate(at);
            let s_block = self.map.range(x);
            let last = range.end.min(s_block.end).0 - s_block.start.0;
            self.drop_job_of(x);
            self.map.discard(x, first, last);
            at = s_block.start + last;
        }
        if self.map.dirty_count() == 0 {
            self.debt_ns = 0;
        }
        self.profile.discard_zeros
    }

    #[cfg(any(test, debug_assertions))]
    fn check(&self) {
        let job = self.job.as_ref().and_then(|j| Some((j.s_block, j.target?)));
        let taken: Vec<_> = job.into_iter().chain(self.pending.open).collect();
        self.map.check(&taken);
        assert!(
            self.map.open().len() <= self.profile.stream_runs_max as usize,
            "INV-S8"
        );
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

    fn writes_in_order(&self, place: Where) -> bool {
        place == Where::InPlace
    }

    fn describe(&self, snapshot: &mut Snapshot) {
        let (entries, blocks) = self.map.totals();
        snapshot.streams = (
            self.streams.streaming().len(),
            self.streams.candidates().len(),
        );
        snapshot.cleaning = self.job.as_ref().map(|job| CleaningBand {
            band: BandId(job.s_block),
            classes: self.map.classes(job.s_block),
            done_permille: job.done_permille(),
        });
        let only_open = self
            .map
            .open()
            .keys()
            .filter(|x| self.map.exceptions(**x).is_empty() && self.map.rest(**x).is_some());
        snapshot.written_blocks = self.map.live_blocks();
        snapshot.cache_entries = entries;
        snapshot.cache_bytes = blocks * BLOCK_BYTES;
        snapshot.bands_dirty = self.map.dirty_count() + only_open.count() as u64;
        let dirty = self.map.dirty_by_address(DIRTY_BANDS_LISTED).into_iter();
        snapshot.dirty = dirty
            .map(|(x, classes)| (BandId(x), self.map.range(x).start, classes))
            .collect();
    }
}
