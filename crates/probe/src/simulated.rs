// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated drive in this process: virtual time, so that hours take seconds.

use crate::disk::{Disk, Facts, Stop, BLOCK_BYTES};
use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::request::{Op, Outcome, Request};
use smr_drive::state::State;
use smr_drive::Drive;
use zoned::{Lba, SECTOR_BYTES};

/// What a host spends between two requests: a system call and a half.
const HOST_NS: u64 = 5_000;

/// See the module's head.
pub struct SimulatedDisk {
    drive: Drive,
    now_ns: u64,
    next_tag: u64,
    facts: Facts,
}

impl SimulatedDisk {
    /// A drive of this profile that has served: every band was written before.
    pub fn used(profile: Profile, seed: u64) -> Self {
        Self::with_state(State::used(profile, seed), seed)
    }

    /// A drive fresh from the factory.
    pub fn new(profile: Profile, seed: u64) -> Self {
        Self::with_state(State::new(profile, seed), seed)
    }

    fn with_state(state: State, seed: u64) -> Self {
        let profile = &state.profile;
        let facts = Facts {
            name: profile.name.clone(),
            model: profile.model.clone(),
            capacity_bytes: profile.capacity_bytes / BLOCK_BYTES * BLOCK_BYTES,
            logical_block_bytes: profile.logical_block_bytes,
            physical_block_bytes: profile.physical_block_bytes,
            max_request_bytes: u64::from(profile.interface.max_request_sectors) * SECTOR_BYTES,
        };
        let opened = Opened {
            state: Box::new(state),
            contents: Contents::new(),
        };
        SimulatedDisk {
            drive: Drive::new(opened, seed),
            now_ns: 0,
            next_tag: 0,
            facts,
        }
    }

    fn request(&mut self, op: Op, offset: u64, bytes: u64) -> Result<(), Stop> {
        let piece = self.facts.max_request_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let mut at = offset;
        loop {
            let end = (at + piece).min(offset + bytes);
            self.now_ns += HOST_NS;
            self.one(op, at, end - at)?;
            at = end;
            if at >= offset + bytes {
                return Ok(());
            }
        }
    }

    /// One command, and the time until it is answered.
    fn one(&mut self, op: Op, offset: u64, bytes: u64) -> Result<(), Stop> {
        let name = &self.facts.name;
        let failed =
            |why: &dyn std::fmt::Debug| format!("{name}: {op:?} at byte {offset}: {why:?}");
        self.next_tag += 1;
        let request = Request {
            tag: self.next_tag,
            op,
            flags: 0,
            lba: Lba(offset / SECTOR_BYTES),
            sectors: (bytes / SECTOR_BYTES) as u32,
        };
        self.drive
            .submit(self.now_ns, request)
            .map_err(|why| Stop::Failed(failed(&why)))?;
        loop {
            let mut outcome = None;
            self.drive
                .advance(self.now_ns, usize::MAX, |done| outcome = Some(done.outcome));
            match outcome {
                Some(Outcome::Done) => return Ok(()),
                Some(other) if request.writes() => return Err(Stop::Refused(failed(&other))),
                Some(other) => return Err(Stop::Failed(failed(&other))),
                None => {}
            }
            let next_ns = self
                .drive
                .next_event()
                .expect("a request is in the drive, so something will happen");
            self.now_ns = self.now_ns.max(next_ns);
        }
    }
}

impl Disk for SimulatedDisk {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Result<(), Stop> {
        self.request(Op::Read, offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: u64) -> Result<(), Stop> {
        // Nobody reads what a probe writes, and zeros cost the simulation least.
        self.request(Op::WriteZeroes, offset, bytes)
    }

    fn flush(&mut self) -> Result<(), Stop> {
        self.request(Op::Flush, 0, 0)
    }

    fn idle(&mut self, ns: u64) -> Result<(), Stop> {
        self.now_ns += ns;
        self.drive.advance(self.now_ns, usize::MAX, |_| ());
        Ok(())
    }
}
