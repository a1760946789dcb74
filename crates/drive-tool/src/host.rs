// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simplest host: one request at a time, and virtual time that passes only while it waits.

use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::request::{Op, Refusal, Request};
use smr_drive::state::State;
use smr_drive::Drive;
use std::collections::BTreeSet;
use zoned::{Block, BlockRange, Lba, BLOCK_SECTORS};

/// `blocks` blocks from `block` on.
pub fn at(block: u64, blocks: u64) -> BlockRange {
    BlockRange::new(Block(block), Block(block + blocks))
}

/// A host with one drive.
pub struct Host {
    /// The drive.
    pub drive: Drive,
    /// Virtual time.
    pub now_ns: u64,
    next_tag: u64,
    flushes: BTreeSet<u64>,
    last_flush_ns: Option<u64>,
}

impl Host {
    /// A host with a new drive.
    pub fn new(profile: Profile, seed: u64) -> Self {
        Host::with_drive(Drive::new(
            Opened {
                state: Box::new(State::new(profile, seed)),
                contents: Contents::new(),
            },
            seed,
        ))
    }

    /// A host with a clean drive whose every band was written before, as on the drives that were measured.
    pub fn used(profile: Profile, seed: u64) -> Self {
        Host::with_drive(Drive::new(
            Opened {
                state: Box::new(State::used(profile, seed)),
                contents: Contents::new(),
            },
            seed,
        ))
    }

    /// A host with this drive.
    pub fn with_drive(drive: Drive) -> Self {
        Host {
            drive,
            now_ns: 0,
            next_tag: 1,
            flushes: BTreeSet::new(),
            last_flush_ns: None,
        }
    }

    /// Submits a request and waits for its completion. Returns how long that took.
    pub fn request(&mut self, op: Op, range: BlockRange, flags: u32) -> Result<u64, Refusal> {
        let start_ns = self.now_ns;
        self.submit(op, range, flags)?;
        while self.completions() == 0 {
            self.step();
        }
        Ok(self.now_ns - start_ns)
    }

    /// Submits a request and does not wait.
    pub fn submit(&mut self, op: Op, range: BlockRange, flags: u32) -> Result<(), Refusal> {
        self.next_tag += 1;
        if op == Op::Flush {
            self.flushes.insert(self.next_tag);
        }
        let sectors = (range.blocks() * BLOCK_SECTORS) as u32;
        let lba = Lba(range.start.0 * BLOCK_SECTORS);
        self.drive.submit(
            self.now_ns,
            Request {
                tag: self.next_tag,
                op,
                flags,
                lba,
                sectors,
            },
        )
    }

    /// `blocks` blocks from `from` on, in requests of `request` blocks, `depth` of them at a time; waits for all.
    pub fn run_of(&mut self, op: Op, from: u64, blocks: u64, request: u64, depth: usize) {
        let (mut next, end, mut running) = (from, from + blocks, 0);
        while next < end || running > 0 {
            if next < end && running < depth {
                let n = request.min(end - next);
                self.submit(op, at(next, n), 0)
                    .expect("inside the drive, and within its queue");
                next += n;
                running += 1;
                continue;
            }
            running -= self.completions();
            if running > 0 {
                self.step();
                running -= self.completions();
            }
        }
    }

    /// Collects completions that are due; returns how many.
    pub fn completions(&mut self) -> usize {
        let Host {
            drive,
            flushes,
            last_flush_ns,
            now_ns,
            ..
        } = self;
        drive.advance(*now_ns, usize::MAX, |completion| {
            if flushes.remove(&completion.tag) {
                *last_flush_ns = Some(*now_ns);
            }
        })
    }

    /// When the last flush ended.
    pub fn last_flush_ns(&self) -> Option<u64> {
        self.last_flush_ns
    }

    /// Goes to the drive's next event.
    pub fn step(&mut self) {
        let next_ns = self
            .drive
            .next_event()
            .expect("a request is in the drive, so something will happen");
        self.now_ns = self.now_ns.max(next_ns);
    }

    /// Lets time pass.
    pub fn sleep(&mut self, ns: u64) {
        self.now_ns += ns;
        self.completions();
    }

    /// Waits until nothing is left to clean; returns how long that took, or `None` after `limit_ns`.
    pub fn wait_clean(&mut self, limit_ns: u64) -> Option<u64> {
        let start_ns = self.now_ns;
        while !self.drive.is_clean() {
            let next_ns = self.drive.next_event()?;
            if next_ns > start_ns + limit_ns {
                return None;
            }
            self.now_ns = self.now_ns.max(next_ns);
            self.completions();
        }
        Some(self.now_ns - start_ns)
    }
}
