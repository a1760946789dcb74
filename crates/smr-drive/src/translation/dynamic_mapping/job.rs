// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! An s-block that is being cleaned or closed: how far the work is, and where the arm is meanwhile.

use crate::mechanics::arm::{Access, Arm};
use alloc::vec::Vec;
use zoned::Pba;

/// An s-block that is being cleaned.
pub(super) struct Job {
    /// Which.
    pub s_block: u32,
    /// Where it is written; `None` if it is only closed.
    pub target: Option<u32>,
    /// Exceptions appended from here on came too late.
    pub(super) log_head: u64,
    /// Exceptions that will be gone afterwards.
    pub(super) frees: u64,
    /// Blocks that it writes.
    pub(super) written_blocks: u64,
    /// Ends of the phases, counted from the job's start, and where the arm is meanwhile.
    pub(super) phases: Vec<(u64, Pba)>,
    pub(super) total_ns: u64,
    pub(super) done_ns: u64,
    pub(super) slice: Slice,
}

/// The slice that is running.
#[derive(Clone, Copy, Default)]
pub(super) struct Slice {
    /// Of the job.
    pub(super) work_ns: u64,
    /// With the way back to where the job was interrupted.
    pub(super) ns: u64,
    /// The host waits for the arm meanwhile.
    pub(super) busy: bool,
}

impl Job {
    /// The share of the exceptions that the job has earned by now.
    pub fn credit(&self) -> u64 {
        self.frees * self.done_ns / self.total_ns.max(1)
    }

    /// How far it is, in thousandths.
    pub fn done_permille(&self) -> u64 {
        self.done_ns * 1000 / self.total_ns.max(1)
    }

    pub(super) fn place(&self) -> Pba {
        let phase = self.phases.iter().find(|p| p.0 > self.done_ns);
        phase.or(self.phases.last()).map_or(Pba(0), |p| p.1)
    }

    pub(super) fn phase(
        &mut self,
        arm: &mut Arm,
        now_ns: u64,
        from: Pba,
        blocks: u64,
        access: Access,
    ) {
        self.total_ns += arm.access(now_ns + self.total_ns, from, blocks, access);
        self.phases.push((self.total_ns, from));
        if access == Access::Write {
            self.written_blocks += blocks;
        }
    }
}
