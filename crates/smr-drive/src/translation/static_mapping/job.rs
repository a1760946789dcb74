// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A band that is being cleaned: how far the work is, and where the arm is meanwhile.

use crate::translation::written::Written;
use alloc::vec::Vec;
use zoned::{BandId, BlockRange, Pba};

/// A part of a cleaning job: when it is over, counted from the job's start, and where the arm is meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) end_ns: u64,
    pub(super) at: Pba,
}

/// A band that is being cleaned.
pub struct Job {
    /// Which.
    pub band: BandId,
    /// What is rewritten.
    pub(super) span: BlockRange,
    /// Blocks that are written.
    pub(super) moved_blocks: u64,
    /// What came into the cache meanwhile, too late for the image.
    pub(super) late: Written,
    /// Entries of the map that will be free afterwards.
    pub(super) frees: u64,
    /// Only the part behind a run.
    pub(super) tail_only: bool,
    pub(super) total_ns: u64,
    pub(super) done_ns: u64,
    pub(super) phases: Vec<Phase>,
    pub(super) slice: Slice,
}

/// The slice that is running.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    /// Of the job.
    pub(super) work_ns: u64,
    /// With the way back to where the job was interrupted.
    pub(super) ns: u64,
    pub(super) forced: bool,
}

impl Job {
    /// The share of the entries which the job frees that it has earned by now.
    pub fn credit(&self) -> u64 {
        // Up to 2^18 entries, and at most 2^36 ns: no overflow.
        self.frees * self.done_ns / self.total_ns.max(1)
    }

    /// How far the job is, in thousandths.
    pub fn done_permille(&self) -> u64 {
        self.done_ns * 1000 / self.total_ns.max(1)
    }

    /// Where the job is.
    pub(super) fn place(&self) -> Pba {
        let phase = self
            .phases
            .iter()
            .find(|p| p.end_ns > self.done_ns)
            .or(self.phases.last());
        phase.map_or(Pba(0), |p| p.at)
    }
}
