// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A host that knows what it wrote, and what a drive may have lost.
//!
//! Each write gives its blocks a new version. Of each block we know the versions written, the oldest that a read may
//! return (`acknowledged`) and the oldest that may be found after a power cut (`durable`).

#![allow(dead_code, reason = "every test program uses a part of it")]

pub mod small;

use smr_drive::contents::Contents;
use smr_drive::file::{self, Opened};
use smr_drive::profile::{sample, Profile, Translation};
use smr_drive::request::{Op, Outcome, Refusal, Request, FLAG_FUA};
use smr_drive::state::State;
use smr_drive::trace::EventKind;
use smr_drive::Drive;
use std::collections::BTreeMap;
use zoned::{Lba, Zone, ZoneId, ZoneState, ZoneType};

pub const BLOCK: usize = 4096;

#[derive(Clone, Default)]
struct History {
    /// Versions in the order of writing.
    versions: Vec<u32>,
    /// Indices into it.
    acknowledged: usize,
    durable: usize,
}

enum Outstanding {
    Read {
        /// Its first block, to be compared with what may be there.
        first: u64,
    },
    /// First block and the index that each block's version has.
    Write {
        first: u64,
        indices: Vec<usize>,
        fua: bool,
    },
    /// What was acknowledged when the flush was submitted.
    Flush { acknowledged: Vec<usize> },
}

pub struct World {
    pub drive: Drive,
    pub now_ns: u64,
    pub trace: Vec<u8>,
    blocks: Vec<History>,
    outstanding: BTreeMap<u64, Outstanding>,
    next_tag: u64,
    next_version: u32,
    /// Flushes promise nothing.
    pub flush_lies: bool,
    /// Requests that failed.
    pub errors: u64,
}

/// The bytes of a version: all zero, one word, nearly empty, or dense.
fn bytes_of(version: u32) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let word = u64::from(version) * 0x0101_0101_0101;
    match version % 4 {
        _ if version == 0 => {}
        0 | 1 => block
            .chunks_exact_mut(8)
            .for_each(|c| c.copy_from_slice(&word.to_le_bytes())),
        2 => block[1024..1032].copy_from_slice(&word.to_le_bytes()),
        _ => block.chunks_exact_mut(8).enumerate().for_each(|(i, c)| {
            c.copy_from_slice(
                &(word ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes(),
            );
        }),
    }
    block
}

/// A small shingled drive on which everything happens soon: bands of 5 MiB, runs of 256 KiB, 48 entries.
pub fn small_shingled() -> Profile {
    soon(sample::shingled(64 << 20, 2048, 48))
}

/// The same, whose writes pass one that waits for the cache.
pub fn small_passing() -> Profile {
    let mut profile = small_shingled();
    profile.buffer.writes_pass = true;
    profile
}

/// `small_shingled` with a cache that is overwritten and holds less.
pub fn small_overwritten() -> Profile {
    soon(sample::overwritten(64 << 20, 256, 48))
}

fn soon(mut profile: Profile) -> Profile {
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile.buffer.destage_blocks_max = 64;
    if let Translation::StaticMapping(mapping) = &mut profile.translation {
        mapping.stream_min_blocks = 64;
        mapping.entry_blocks_max = 32;
        mapping.append_entries_max = 8;
        mapping.stream_runs_max = 2;
        mapping.stream_memory_ns = 8_000_000_000;
    }
    profile
}

pub fn small_conventional() -> Profile {
    let mut profile = sample::conventional(64 << 20);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile
}

/// A small drive with s-blocks of 256 KiB, sections of 8 MiB, and 24 entries for each.
pub fn small_s_blocks() -> Profile {
    let mut profile = sample::s_blocks(64 << 20);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile.buffer.destage_blocks_max = 24;
    if let Translation::SBlocks(s_blocks) = &mut profile.translation {
        s_blocks.s_block_blocks = 64;
        s_blocks.section_s_blocks = 31;
        s_blocks.section_ring_blocks = 320;
        s_blocks.section_entries_max = 24;
        s_blocks.entry_blocks_max = 16;
        s_blocks.append_entries_max = 8;
        s_blocks.stream_min_blocks = 32;
        s_blocks.stream_runs_max = 2;
        s_blocks.stream_memory_ns = 3_000_000_000;
    }
    profile
}

/// A small host-managed drive with zones of 1 MiB.
pub fn small_host_managed() -> Profile {
    let mut profile = sample::host_managed(64 << 20, 256);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile
}

impl World {
    pub fn new(profile: Profile, seed: u64) -> Self {
        let blocks = profile.capacity_blocks() as usize;
        let opened = Opened {
            state: Box::new(State::new(profile, seed)),
            contents: Contents::new(),
        };
        let mut world = World {
            drive: Drive::new(opened, seed),
            now_ns: 0,
            trace: Vec::new(),
            blocks: vec![
                History {
                    versions: vec![0],
                    ..History::default()
                };
                blocks
            ],
            outstanding: BTreeMap::new(),
            next_tag: 0,
            next_version: 1,
            flush_lies: false,
            errors: 0,
        };
        world.take_trace();
        world
    }

    fn take_trace(&mut self) {
        let mut buf = [0; 4096];
        loop {
            let n = self.drive.trace_take(&mut buf);
            self.trace.extend_from_slice(&buf[..n]);
            if n == 0 {
                return;
            }
        }
    }

    /// Collects what is done by now.
    pub fn collect(&mut self) {
        let mut done = Vec::new();
        self.drive.advance(self.now_ns, usize::MAX, |completion| {
            done.push((completion.tag, completion.outcome))
        });
        for (tag, outcome) in done {
            if outcome != Outcome::Done {
                self.errors += 1;
                self.outstanding.remove(&tag);
                continue;
            }
            match self
                .outstanding
                .remove(&tag)
                .expect("a completion belongs to a request")
            {
                Outstanding::Read { first } => {
                    let from = self.blocks[first as usize].acknowledged;
                    self.find(first as usize, from);
                }
                Outstanding::Write {
                    first,
                    indices,
                    fua,
                } => {
                    for (history, index) in self.blocks[first as usize..].iter_mut().zip(indices) {
                        history.acknowledged = history.acknowledged.max(index);
                        if fua {
                            history.durable = history.durable.max(index);
                        }
                    }
                }
                Outstanding::Flush { .. } if self.flush_lies => {}
                Outstanding::Flush { acknowledged } => {
                    for (history, index) in self.blocks.iter_mut().zip(acknowledged) {
                        history.durable = history.durable.max(index);
                    }
                }
            }
        }
        self.take_trace();
        self.drive.check_invariants();
    }

    fn step(&mut self) {
        let next_ns = self
            .drive
            .next_event()
            .expect("requests wait, so something will happen");
        assert!(
            next_ns < self.now_ns + 600_000_000_000,
            "nothing takes ten minutes"
        );
        self.now_ns = self.now_ns.max(next_ns);
        self.collect();
    }

    /// Lets the next few things happen, however long that takes.
    pub fn steps(&mut self, events: u64) {
        for _ in 0..events {
            if self.drive.next_event().is_none() {
                return;
            }
            self.step();
        }
    }

    pub fn wait_all(&mut self) {
        while !self.outstanding.is_empty() {
            self.step();
        }
    }

    /// Lets time pass, with every event in it.
    pub fn sleep(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.drive.next_event().is_some_and(|at| at <= end_ns) {
            self.step();
        }
        self.now_ns = end_ns;
        self.collect();
    }

    fn submit(
        &mut self,
        op: Op,
        flags: u32,
        first: u64,
        blocks: u64,
        outstanding: impl Fn(&mut Self) -> Outstanding,
    ) {
        self.next_tag += 1;
        let tag = self.next_tag;
        let request = Request {
            tag,
            op,
            flags,
            lba: Lba(first * 8),
            sectors: (blocks * 8) as u32,
        };
        loop {
            match self.drive.submit(self.now_ns, request) {
                Ok(()) => break,
                Err(Refusal::QueueFull) => self.step(),
                Err(other) => panic!("{request:?}: {other:?}"),
            }
        }
        let outstanding = outstanding(self);
        self.outstanding.insert(tag, outstanding);
    }

    fn new_versions(&mut self, first: u64, blocks: u64, zero: bool) -> (Vec<usize>, Vec<u8>) {
        let (mut indices, mut data) = (Vec::new(), Vec::new());
        for history in &mut self.blocks[first as usize..(first + blocks) as usize] {
            let version = if zero { 0 } else { self.next_version };
            self.next_version += 1;
            history.versions.push(version);
            indices.push(history.versions.len() - 1);
            data.extend(bytes_of(version));
        }
        (indices, data)
    }

    pub fn write(&mut self, first: u64, blocks: u64, fua: bool) {
        // A full queue would throw the data away.
        while self.outstanding.len() > 20 {
            self.step();
        }
        let (indices, data) = self.new_versions(first, blocks, false);
        for (i, piece) in data.chunks(BLOCK).enumerate() {
            self.drive.put(self.next_tag + 1, i * BLOCK, piece).unwrap();
        }
        let flags = if fua { FLAG_FUA } else { 0 };
        self.submit(Op::Write, flags, first, blocks, |_| Outstanding::Write {
            first,
            indices: indices.clone(),
            fua,
        });
    }

    /// The zone that holds a block, on a zoned drive.
    fn zone_of(&self, block: u64) -> Option<Zone> {
        let zones = (0..self.drive.zones()).filter_map(|i| self.drive.zone(ZoneId(i)));
        let lba = block * 8;
        zones
            .into_iter()
            .find(|z| z.start.0 <= lba && lba < z.start.0 + z.size_sectors)
    }

    /// Where a write that wants to begin at `first` may begin, and how long it may be: on zoned drives at a write
    /// pointer. `None` if its zone is full.
    pub fn writable(&self, first: u64, blocks: u64) -> Option<(u64, u64)> {
        let Some(zone) = self.zone_of(first) else {
            return Some((first, blocks));
        };
        let end = (zone.start.0 + zone.size_sectors) / 8;
        let first = match zone.zone_type {
            ZoneType::SeqRequired if zone.state == ZoneState::Full => return None,
            ZoneType::SeqRequired => zone.write_pointer.0 / 8,
            _ => first,
        };
        Some((first, blocks.min(end - first)))
    }

    /// The part of a read that lies in one zone.
    pub fn readable(&self, first: u64, blocks: u64) -> u64 {
        self.zone_of(first).map_or(blocks, |zone| {
            blocks.min((zone.start.0 + zone.size_sectors) / 8 - first)
        })
    }

    /// Tells the drive that a range is no longer needed; on zoned drives, resets the zone of its first block. Either way
    /// it holds zeros afterwards, and that is durable. Nothing else may be on its way to the same place.
    pub fn forget(&mut self, first: u64, blocks: u64) {
        self.wait_all();
        let (op, first, blocks) = match self.zone_of(first) {
            Some(zone) if zone.zone_type == ZoneType::Conventional => return,
            Some(zone) => (Op::ZoneReset, zone.start.0 / 8, zone.size_sectors / 8),
            None if !self.drive.has_discard() => return,
            None => (Op::Discard, first, blocks),
        };
        let (indices, _) = self.new_versions(first, blocks, true);
        let sectors = if op == Op::Discard { blocks } else { 0 };
        self.submit(op, 0, first, sectors, |_| Outstanding::Write {
            first,
            indices: indices.clone(),
            fua: true,
        });
        self.wait_all();
    }

    pub fn write_zeroes(&mut self, first: u64, blocks: u64) {
        while self.outstanding.len() > 20 {
            self.step();
        }
        let (indices, _) = self.new_versions(first, blocks, true);
        let write = |_: &mut Self| Outstanding::Write {
            first,
            indices: indices.clone(),
            fua: false,
        };
        self.submit(Op::WriteZeroes, 0, first, blocks, write);
    }

    pub fn flush(&mut self) {
        // Only what is acknowledged now must be durable then.
        let acknowledged: Vec<usize> = self.blocks.iter().map(|h| h.acknowledged).collect();
        self.submit(Op::Flush, 0, 0, 0, |_| Outstanding::Flush {
            acknowledged: acknowledged.clone(),
        });
    }

    pub fn read(&mut self, first: u64, blocks: u64) {
        self.submit(Op::Read, 0, first, blocks, |_| Outstanding::Read { first });
    }

    /// Reads a block and waits for it. False if that ended with an error; what it read is right otherwise.
    pub fn can_read(&mut self, block: u64) -> bool {
        self.wait_all();
        let errors = self.errors;
        self.read(block, 1);
        self.wait_all();
        self.errors == errors
    }

    /// Reads every block that was ever written. An error is an answer, too; anything else but the newest is not.
    pub fn read_everything(&mut self) {
        self.wait_all();
        for block in 0..self.blocks.len() as u64 {
            if self.blocks[block as usize].versions.len() > 1 {
                self.can_read(block);
            }
        }
    }

    /// A power cut after which some blocks may be unreadable: of those nothing is known but that they are no older than
    /// what was durable.
    pub fn power_cut_with_errors(&mut self) {
        self.drive.power_cut(self.now_ns);
        self.drive.check_invariants();
        self.outstanding.clear();
        for block in 0..self.blocks.len() {
            let history = &mut self.blocks[block];
            history.acknowledged = history.durable;
            if history.versions.len() > 1 && self.can_read(block as u64) {
                let found = self.find(block, self.blocks[block].durable);
                let version = self.blocks[block].versions[found];
                self.blocks[block] = History {
                    versions: vec![0, version],
                    acknowledged: 1,
                    durable: 1,
                };
            }
        }
    }

    fn find(&mut self, block: usize, from: usize) -> usize {
        let mut data = vec![0xee; BLOCK];
        self.drive.get(block as u64 * 8, &mut data).unwrap();
        let history = &self.blocks[block];
        let found = (from..history.versions.len())
            .rev()
            .find(|i| bytes_of(history.versions[*i]) == data);
        found.unwrap_or_else(|| {
            panic!(
                "block {block}: neither version {from} nor any later of {:?}",
                history.versions
            )
        })
    }

    /// Reads everything that was ever written: nothing older than what was acknowledged.
    pub fn check_newest(&mut self) {
        for block in 0..self.blocks.len() {
            if self.blocks[block].versions.len() > 1 {
                self.find(block, self.blocks[block].acknowledged);
            }
        }
    }

    /// What is found now is all there ever was.
    fn settle(&mut self) {
        for block in 0..self.blocks.len() {
            if self.blocks[block].versions.len() > 1 {
                let found = self.find(block, self.blocks[block].durable);
                let version = self.blocks[block].versions[found];
                self.blocks[block] = History {
                    versions: vec![0, version],
                    acknowledged: 1,
                    durable: 1,
                };
            }
        }
        self.outstanding.clear();
    }

    /// The trace tells of time that never runs backwards. A drive switched on again begins a new one.
    pub fn check_times(&self) {
        let number = |record: &[u8], at: usize| {
            u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
        };
        // Requests are in the order of their completion, the drive's events in the order in which they happened. But that
        // writes no longer wait is noted only when none has waited for a while.
        let (mut at, mut done_ns, mut happened_ns, mut forced_ns) = (0, 0, 0, 0);
        while at + smr_drive::trace::RECORD_BYTES <= self.trace.len() {
            if self.trace[at..].starts_with(smr_drive::trace::MAGIC) {
                at += 8;
                continue;
            }
            let record = &self.trace[at..at + smr_drive::trace::RECORD_BYTES];
            let (first_ns, second_ns) = (number(record, 0), number(record, 8));
            let (begin_ns, end_ns, last_ns) = match (record[31], record[28]) {
                (0xff, kind) if kind == EventKind::ForcedEnded as u8 => {
                    (second_ns, first_ns, &mut forced_ns)
                }
                (0xff, _) => (second_ns, first_ns, &mut happened_ns),
                _ => (first_ns, second_ns, &mut done_ns),
            };
            assert!(begin_ns <= end_ns && *last_ns <= end_ns);
            assert!(end_ns <= self.now_ns);
            *last_ns = end_ns;
            at += smr_drive::trace::RECORD_BYTES;
        }
    }

    pub fn power_cut(&mut self) {
        self.drive.power_cut(self.now_ns);
        self.drive.check_invariants();
        self.settle();
    }

    /// Saves the drive as it is, without a warning, and goes on with the file.
    pub fn save_and_open(&mut self) {
        let mut bytes = Vec::new();
        self.drive
            .save(|b| {
                bytes.extend_from_slice(b);
                Ok::<(), ()>(())
            })
            .unwrap();
        let opened = file::open(bytes.leak()).unwrap_or_else(|e| panic!("{e}"));
        self.drive = Drive::new(opened, 3);
        self.drive.check_invariants();
        self.settle();
        self.take_trace();
    }

    /// Waits until the drive has nothing left to do.
    pub fn wait_clean(&mut self) {
        self.wait_all();
        while !self.drive.is_clean() {
            self.step();
        }
    }
}
