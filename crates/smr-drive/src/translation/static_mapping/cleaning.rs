// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Band cleaning: read the band, collect its pieces from the cache, write the merged image to the scratch band, write the
//! band. Bands are cleaned in the order in which they became dirty; with a cache that is overwritten, in the order of
//! their places in it, around and around.
//!
//! The scratch band makes this atomic: until the end the old data are valid, and entries that arrive for the band
//! meanwhile stay in the cache.

use super::job::{Job, Phase, Slice};
use super::layer::StaticMapping;
use crate::counters::Counters;
use crate::mechanics::arm::{Access, Arm};
use crate::trace::EventKind;
use crate::translation::merge::merge_ns;
use crate::translation::written::Written;
use alloc::vec::Vec;
use zoned::{BandId, BlockRange, Pba, BLOCK_BYTES};

impl StaticMapping {
    /// The band whose turn it is. When the cache is full, tails can wait: they free nothing.
    fn next_to_clean(&mut self, forced: bool) -> Option<BandId> {
        let entry = self
            .map
            .victim()
            .map(|(place, block)| (place, self.bands.band(block)));
        let oldest_tail = || {
            let tails = self.tails.iter();
            tails.map(|(band, tail)| (tail.order, *band)).min()
        };
        let next = match entry {
            Some(entry) if forced => Some(entry),
            entry => {
                let both = oldest_tail().into_iter().chain(entry);
                both.min_by_key(|(order, _)| *order)
            }
        };
        if let Some((place, _)) = next.filter(|_| next == entry) {
            self.map.pass(place);
        }
        Some(next?.1)
    }

    fn start_job(&mut self, arm: &mut Arm, now_ns: u64, band: BandId) -> Job {
        let range = self.bands.range(band);
        let dirt = self.map.dirt().of(band);
        let (entries, blocks) = (u64::from(dirt.entries), u64::from(dirt.blocks));
        let tail = self.tails.get(&band).map(|t| t.start);
        let tail_only = entries == 0;
        let start = if tail_only {
            tail.unwrap_or(range.start)
        } else {
            range.start
        };
        let rest = BlockRange::new(start, range.end);
        let last_written = self.written.last_end(rest).unwrap_or(start);
        let last_piece = self
            .map
            .overlapping(rest)
            .last()
            .map_or(start, |(r, _)| r.end);
        let span = BlockRange::new(start, last_written.max(last_piece));

        // A cache that is overwritten belongs to firmware that asks not how full a band is.
        let (old_blocks, moved_blocks) = match self.profile.cache_overwritten && !tail_only {
            true => (range.blocks(), range.blocks()),
            false => (self.written.count(rest), span.blocks()),
        };
        let mut job = Job {
            band,
            span,
            moved_blocks,
            late: Written::default(),
            frees: entries,
            tail_only,
            total_ns: 0,
            done_ns: 0,
            phases: Vec::new(),
            slice: Slice::default(),
        };
        let mut ns = 0;
        let mut phase = |ns: &mut u64, arm: &mut Arm, from: Pba, blocks: u64, access: Access| {
            *ns += arm.access(now_ns + *ns, from, blocks, access);
            job.phases.push(Phase {
                end_ns: *ns,
                at: from,
            });
        };
        let home = self.bands.home(start);
        if old_blocks > 0 {
            phase(&mut ns, arm, home, old_blocks, Access::Read);
        }
        if let Some((_, entry)) = self.map.overlapping(rest).next() {
            let first = self.map.pba(entry.place);
            // The seek to the log, then the law for scattered pieces, then what their length adds.
            phase(&mut ns, arm, first, 0, Access::Read);
            ns += merge_ns(
                &self.profile.merge_ns_by_log2,
                self.map.scattered_pieces(rest),
            );
            ns += arm.transfer_ns(first, blocks - entries.min(blocks));
        }
        phase(
            &mut ns,
            arm,
            self.bands.scratch(),
            moved_blocks,
            Access::Write,
        );
        phase(&mut ns, arm, home, moved_blocks, Access::Write);
        job.total_ns = ns.min(self.profile.clean_max_ns_per_block * range.blocks());
        job
    }

    /// See [`clean_slice`](crate::translation::TranslationLayer::clean_slice). A band that is half cleaned is finished; then comes `first`.
    pub(in crate::translation) fn clean_slice_static(
        &mut self,
        arm: &mut Arm,
        now_ns: u64,
        forced: bool,
        first: Option<BandId>,
    ) -> Option<u64> {
        if self.job.is_none() {
            let band = first.or_else(|| self.next_to_clean(forced))?;
            let job = self.start_job(arm, now_ns, band);
            arm.drift_to(job.place());
            self.note_cleaning(EventKind::CleaningBegan, job.band, job.frees);
            self.job = Some(job);
        }
        let job = self.job.as_mut()?;
        // Others may have used the arm since the last slice.
        let place = job.place();
        let way_back_ns = if arm.at() == place {
            0
        } else {
            arm.position_ns(now_ns, place, Access::Read)
        };
        let work_ns = (job.total_ns - job.done_ns).min(self.profile.clean_slice_ns);
        let ns = way_back_ns + work_ns;
        job.slice = Slice {
            work_ns,
            ns,
            forced,
        };
        Some(ns)
    }

    /// The slice is over; perhaps the band is clean.
    pub(super) fn end_slice_static(&mut self, arm: &mut Arm, now_ns: u64, counters: &mut Counters) {
        let Some(job) = &mut self.job else {
            return;
        };
        job.done_ns += job.slice.work_ns;
        counters.cleaning_ns += job.slice.ns;
        arm.drift_to(job.place());
        if job.done_ns < job.total_ns {
            return;
        }
        let Some(job) = self.job.take() else {
            return;
        };
        self.note_cleaning(EventKind::CleaningEnded, job.band, 1);
        self.map
            .drop_older(&self.bands, self.bands.range(job.band), &job.late);
        self.written.add(job.span);
        if self
            .tails
            .get(&job.band)
            .is_some_and(|tail| tail.start >= job.span.start)
        {
            self.tails.remove(&job.band);
        }
        counters.clean_at_ns = now_ns;
        counters.rewritten_bytes += 2 * job.moved_blocks * BLOCK_BYTES;
        counters.tails_closed += u64::from(job.tail_only);
        if job.slice.forced {
            counters.bands_cleaned_forced += 1;
        } else {
            counters.bands_cleaned_idle += 1;
        }
    }
}
