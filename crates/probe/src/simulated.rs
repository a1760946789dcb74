// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated drive in this process: virtual time, so that hours take seconds.

use crate::disk::{Disk, Facts, Stop, BLOCK_BYTES};
use drive_tool::host::Host;
use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::request::{Op, Refusal};
use smr_drive::state::State;
use smr_drive::Drive;
use zoned::{Block, BlockRange, SECTOR_BYTES};

/// What a host spends between two requests: a system call and a half.
const HOST_NS: u64 = 5_000;

/// See the module's head.
pub struct SimulatedDisk {
    host: Host,
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
            host: Host::with_drive(Drive::new(opened, seed)),
            facts,
        }
    }

    fn request(&mut self, op: Op, offset: u64, bytes: u64) -> Result<(), Stop> {
        let piece = self.facts.max_request_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let mut at = offset;
        loop {
            let end = (at + piece).min(offset + bytes);
            self.host.now_ns += HOST_NS;
            let range = BlockRange::new(Block(at / BLOCK_BYTES), Block(end / BLOCK_BYTES));
            self.host
                .request(op, range, 0)
                .map_err(|why| refused(op, at, why))?;
            at = end;
            if at >= offset + bytes {
                return Ok(());
            }
        }
    }
}

fn refused(op: Op, offset: u64, why: Refusal) -> Stop {
    Stop::Failed(format!(
        "the drive refuses a {op:?} at byte {offset}: {why:?}"
    ))
}

impl Disk for SimulatedDisk {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns
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
        self.host.sleep(ns);
        Ok(())
    }
}
