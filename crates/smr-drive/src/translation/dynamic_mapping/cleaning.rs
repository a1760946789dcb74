// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Cleaning an s-block: read it from its slot, collect its exceptions, write the merged image to a free slot. One read
//! and one write, because the map says which of the two slots counts: no scratch band is needed (FAST'17, section 2.1).
//!
//! Until the end the old slot and the exceptions count, and exceptions that arrive meanwhile stay. What rewrites the
//! s-block behind the cleaner's back (a stream, a discard) makes the image worthless: the job is dropped.
//!
//! Closing an open s-block is the same with less: the rest of the old slot is read and written behind the beginning.

use super::job::{Job, Slice};
use super::layer::SBlocks;
use crate::counters::Counters;
use crate::mechanics::arm::{Access, Arm};
use crate::profile::Share;
use crate::trace::{Event, EventKind};
use crate::translation::merge::merge_ns;
use alloc::vec::Vec;
use zoned::BLOCK_BYTES;

impl SBlocks {
    /// How full a section's exception buffer is, in thousandths: of the map or of the ring, whichever is fuller.
    pub(super) fn fill(&self, section: usize) -> u64 {
        let p = &self.profile;
        let entries = self.map.entries(section) * 1000 / p.section_entries_max;
        let ring = self.map.occupied(section) * 1000 / p.section_ring_blocks;
        entries.max(ring).min(1000)
    }

    /// The arm wrote to a section for `ns`: cleaning gets its share.
    pub(super) fn owe(&mut self, section: usize, ns: u64) {
        let share = share_at(&self.profile.share, self.fill(section));
        self.debt_ns += ns * share / (1000 - share);
    }

    /// The s-block that has been dirty for longest in the section that a write waits for, or else in the one that is
    /// fullest; without any, the open one that did not grow for longest and whose old slot still has something to give.
    fn next_to_clean(&self, forced: bool) -> Option<u32> {
        let wanted = self.wanted.get().filter(|_| forced);
        if let Some(x) = wanted.and_then(|section| self.map.oldest(section)) {
            return Some(x);
        }
        if self.map.dirty_count() > 0 {
            let sections = 0..self.map.section_count();
            let oldest = sections.filter_map(|i| Some((i, self.map.oldest(i)?)));
            return oldest.max_by_key(|(i, _)| self.fill(*i)).map(|o| o.1);
        }
        let open = self.map.open().iter();
        open.filter(|(x, _)| self.map.rest(**x).is_some())
            .min_by_key(|(_, open)| open.last_ns)
            .map(|(x, _)| *x)
    }

    fn start_job(&mut self, arm: &mut Arm, now_ns: u64, forced: bool) -> Option<Job> {
        let x = self.next_to_clean(forced)?;
        let section = self.map.section(x);
        let (entries, blocks, pieces) = self.map.scatter(x);
        let dirty = entries > 0;
        let mut job = Job {
            s_block: x,
            target: dirty.then(|| self.map.take_slot(x)),
            log_head: self.map.log_head(section),
            frees: entries,
            written_blocks: 0,
            phases: Vec::new(),
            total_ns: 0,
            done_ns: 0,
            slice: Slice::default(),
        };
        let open = self.map.open().get(&x).copied();
        let Some(target) = job.target else {
            self.close_phases(&mut job, arm, now_ns);
            return Some(job);
        };
        if let Some(open) = open {
            let from = self.map.slot_pba(x, open.slot, 0);
            job.phase(arm, now_ns, from, open.fill, Access::Read);
        }
        let old = if open.is_some() {
            self.map.rest(x)
        } else {
            self.map.live(x)
        };
        if let Some((slot, first, last)) = old {
            let from = self.map.slot_pba(x, slot, first);
            job.phase(arm, now_ns, from, last - first, Access::Read);
        }
        // The seek to the log, then the law for scattered pieces, then what their length adds.
        let place = self.map.exceptions(x).first()?.place;
        let log = self.map.log_pba(section, place);
        job.phase(arm, now_ns, log, 0, Access::Read);
        job.total_ns += merge_ns(&self.profile.merge_ns_by_log2, pieces);
        job.total_ns += arm.transfer_ns(log, blocks - entries.min(blocks));
        let (first, last) = self.map.image(x)?;
        let to = self.map.slot_pba(x, target, first);
        job.phase(arm, now_ns, to, last - first, Access::Write);
        Some(job)
    }

    fn close_phases(&self, job: &mut Job, arm: &mut Arm, now_ns: u64) {
        let x = job.s_block;
        let (Some(open), Some((slot, first, last))) = (self.map.open().get(&x), self.map.rest(x))
        else {
            return;
        };
        let (from, to) = (
            self.map.slot_pba(x, slot, first),
            self.map.slot_pba(x, open.slot, first),
        );
        job.phase(arm, now_ns, from, last - first, Access::Read);
        job.phase(arm, now_ns, to, last - first, Access::Write);
    }

    /// Closes an open s-block while the arm does nothing else: the time it takes, and the blocks it writes. The map learns
    /// of it later.
    pub(super) fn close(&self, x: u32, arm: &mut Arm, now_ns: u64) -> (u64, u64) {
        let mut job = Job {
            s_block: x,
            target: None,
            log_head: 0,
            frees: 0,
            written_blocks: 0,
            phases: Vec::new(),
            total_ns: 0,
            done_ns: 0,
            slice: Slice::default(),
        };
        self.close_phases(&mut job, arm, now_ns);
        (job.total_ns, job.written_blocks)
    }

    /// See [`clean_slice`](crate::translation::TranslationLayer::clean_slice).
    pub(super) fn clean_slice_s_blocks(
        &mut self,
        arm: &mut Arm,
        now_ns: u64,
        forced: bool,
    ) -> Option<u64> {
        let busy = forced || self.debt_ns >= self.profile.clean_slice_ns;
        let mut job = match self.job.take() {
            Some(job) => job,
            None => {
                let job = self.start_job(arm, now_ns, forced)?;
                self.note_cleaning(EventKind::CleaningBegan, job.s_block, job.frees);
                arm.drift_to(job.place());
                job
            }
        };
        // Others may have used the arm since the last slice.
        let way_back_ns = if arm.at() == job.place() {
            0
        } else {
            arm.position_ns(now_ns, job.place(), Access::Read)
        };
        let work_ns = (job.total_ns - job.done_ns).min(self.profile.clean_slice_ns);
        let ns = way_back_ns + work_ns;
        job.slice = Slice { work_ns, ns, busy };
        self.debt_ns = if busy {
            self.debt_ns.saturating_sub(ns)
        } else {
            0
        };
        self.job = Some(job);
        Some(ns)
    }

    /// See [`end_slice`](crate::translation::TranslationLayer::end_slice).
    pub(super) fn end_slice_s_blocks(
        &mut self,
        arm: &mut Arm,
        now_ns: u64,
        counters: &mut Counters,
    ) {
        let Some(mut job) = self.job.take() else {
            return;
        };
        job.done_ns += job.slice.work_ns;
        counters.cleaning_ns += job.slice.ns;
        arm.drift_to(job.place());
        if job.done_ns < job.total_ns {
            self.job = Some(job);
            return;
        }
        self.note_cleaning(EventKind::CleaningEnded, job.s_block, 1);
        match job.target {
            Some(target) => self.map.moved(job.s_block, target, job.log_head),
            None => self.map.close(job.s_block),
        }
        counters.clean_at_ns = now_ns;
        counters.rewritten_bytes += job.written_blocks * BLOCK_BYTES;
        counters.tails_closed += u64::from(job.target.is_none());
        if job.slice.busy {
            counters.bands_cleaned_forced += 1;
        } else {
            counters.bands_cleaned_idle += 1;
        }
        if self.map.dirty_count() == 0 {
            self.debt_ns = 0;
        }
    }

    /// Notes for the trace that an s-block's cleaning began or ended.
    fn note_cleaning(&mut self, kind: EventKind, x: u32, value: u64) {
        self.events.push(Event {
            kind,
            start: self.map.range(x).start,
            classes: self.map.classes(x),
            value,
        });
    }

    /// The s-block is rewritten or forgotten: an image of it is worth nothing.
    pub(super) fn drop_job_of(&mut self, x: u32) {
        if self.job.as_ref().is_some_and(|job| job.s_block == x) {
            self.drop_job();
        }
    }

    /// Gives up what is being cleaned.
    pub(super) fn drop_job(&mut self) {
        let Some(job) = self.job.take() else { return };
        self.note_cleaning(EventKind::CleaningEnded, job.s_block, 0);
        if let Some(target) = job.target {
            self.map.give_slot(job.s_block, target);
        }
    }
}

/// Cleaning never takes more, in thousandths: a visit to a log is followed by at most nineteen times as much cleaning.
const SHARE_MAX: u64 = 950;

/// The share of the arm's time that cleaning takes when an exception buffer is so full, both in thousandths.
fn share_at(share: &Share, fill: u64) -> u64 {
    let line = |x0: u64, y0: u64, x1: u64, y1: u64| y0 + (y1 - y0) * (fill - x0) / (x1 - x0);
    let taken = if fill < share.low_water {
        line(0, 0, share.low_water, share.low)
    } else if fill < share.high_water {
        line(share.low_water, share.low, share.high_water, share.high)
    } else {
        line(share.high_water, share.high, 1000, 1000)
    };
    taken.min(SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_cleaning_rises_without_a_step() {
        let share = Share {
            low_water: 50,
            low: 400,
            high_water: 900,
            high: 750,
        };
        let curve: Vec<u64> = (0..=1000).map(|fill| share_at(&share, fill)).collect();
        assert_eq!(
            (curve[0], curve[50], curve[900], curve[1000]),
            (0, 400, 750, SHARE_MAX)
        );
        assert!(curve.windows(2).all(|w| w[0] <= w[1] && w[1] <= w[0] + 8));
    }
}
