// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a drive has in hand: requests, the work of the arm, and what is remembered for the trace.

use crate::activity::Activity;
use crate::request::{Class, Outcome, Request};
use crate::trace::Record;
use crate::translation::Destage;
use zoned::{BlockRange, Pba};

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) class: Class,
    pub(super) arrival_ns: u64,
    /// How much later than otherwise it ends.
    pub(super) extra_ns: u64,
    /// A reset came while the arm was at it: nobody is told of its end.
    pub(super) forgotten: bool,
}

/// A request whose completion has a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) record: Record,
    pub(super) outcome: Outcome,
}

/// What the arm does.
pub(super) enum Work {
    /// A read; `ahead` is where it ends if the head can go on reading there.
    Read {
        pending: Pending,
        service_ns: u64,
        ahead: Option<(BlockRange, Pba)>,
        outcome: Outcome,
    },
    /// From the buffer to the medium.
    Destage { destage: Destage, service_ns: u64 },
    /// A discard or a zone command.
    Command { pending: Pending, service_ns: u64 },
    /// A slice of cleaning.
    Clean,
}

/// A request that ends when something is on the medium.
pub(super) struct Waiter {
    pub(super) pending: Pending,
    /// What: everything for a flush, its own blocks for a FUA write.
    pub(super) range: BlockRange,
    pub(super) epoch: u64,
    pub(super) flush: bool,
}

/// What is remembered for the events.
#[derive(Clone, Copy, Default)]
pub(super) struct Watched {
    /// Why the last slice of cleaning ran.
    pub why: Activity,
    /// When the band's cleaning began.
    pub(super) cleaning_since_ns: u64,
    /// Since when writes have been waiting for cleaning, and until when the last slice for them ran.
    pub(super) forced_ns: Option<(u64, u64)>,
}
