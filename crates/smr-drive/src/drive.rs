// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! First drive: right data, simple times.

use crate::contents::{Contents, Damaged, Value};
use crate::file::Opened;
use crate::profile::Profile;
use crate::request::{Class, Completion, Op, Outcome, Refusal, Request};
use crate::state::State;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt::Write;
use zoned::{Block, BlockRange, BLOCK_SECTORS, SECTOR_BYTES};

const BLOCK: usize = zoned::BLOCK_BYTES as usize;

/// A drive.
pub struct Drive {
    state: State,
    contents: Contents,
    staged: BTreeMap<u64, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    done: VecDeque<(u64, Completion)>,
    busy_until_ns: u64,
    last: Block,
}

impl Drive {
    /// Switches a drive on.
    pub fn new(opened: Opened, _seed: u64) -> Self {
        Drive {
            state: opened.state,
            contents: opened.contents,
            staged: BTreeMap::new(),
            spare: Vec::new(),
            done: VecDeque::new(),
            busy_until_ns: 0,
            last: Block(0),
        }
    }

    /// The drive's model.
    pub fn profile(&self) -> &Profile {
        &self.state.profile
    }

    /// Throws away data that were put for a request that will not be submitted.
    pub fn forget_staged(&mut self, tag: u64) {
        self.staged.remove(&tag);
    }

    /// Writes the counters as JSON.
    pub fn report(&self, _now_ns: u64, out: &mut dyn Write) -> core::fmt::Result {
        write!(out, "{{\"clean\":1}}")
    }

    /// Tells where a class of data lies.
    pub fn set_class(&mut self, _class: Class, _ranges: Vec<BlockRange>) {}

    /// Writes a marker into the trace.
    pub fn mark(&mut self, _now_ns: u64, _text: &[u8]) {}

    /// Takes finished bytes of the trace.
    pub fn trace_take(&mut self, _buf: &mut [u8]) -> usize {
        0
    }

    /// Takes a piece of the data of a write that will be submitted under `tag`.
    pub fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        let limit =
            self.state.profile.interface.max_request_sectors as usize * SECTOR_BYTES as usize;
        let end = offset
            .checked_add(data.len())
            .filter(|end| *end <= limit)
            .ok_or(Refusal::Invalid)?;
        let spare = &mut self.spare;
        let staged = self
            .staged
            .entry(tag)
            .or_insert_with(|| spare.pop().unwrap_or_default());
        if staged.len() < end {
            staged.resize(end, 0);
        }
        staged[offset..end].copy_from_slice(data);
        Ok(())
    }

    /// Accepts a request.
    pub fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal> {
        if self.done.len() >= self.state.profile.interface.queue_depth as usize {
            return Err(Refusal::QueueFull);
        }
        if request.lba.0 + u64::from(request.sectors) > self.state.profile.capacity_sectors() {
            return Err(Refusal::Invalid);
        }
        let outcome = match request.op {
            Op::Discard => return Err(Refusal::Unsupported),
            Op::Write => self.store(&request),
            Op::WriteZeroes => self.store_zeros(&request),
            Op::Read | Op::Flush => Ok(()),
        };
        let outcome = if outcome.is_ok() {
            Outcome::Done
        } else {
            Outcome::Damaged
        };
        let end = self.service(now_ns, &request);
        self.done.push_back((
            end,
            Completion {
                tag: request.tag,
                outcome,
            },
        ));
        Ok(())
    }

    fn service(&mut self, now_ns: u64, request: &Request) -> u64 {
        let start = now_ns.max(self.busy_until_ns);
        let blocks = request.blocks();
        let mut ns = self.state.profile.interface.command_ns;
        if request.op != Op::Flush {
            if blocks.start != self.last {
                ns += 12_000_000;
            }
            ns += blocks.blocks() * 30_000;
            self.last = blocks.end;
        }
        self.busy_until_ns = start + ns;
        self.busy_until_ns
    }

    fn store(&mut self, request: &Request) -> Result<(), Damaged> {
        let data = self.staged.remove(&request.tag).unwrap_or_default();
        let mut sector = request.lba.0;
        let mut rest = &data[..];
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let offset = (sector % BLOCK_SECTORS * SECTOR_BYTES) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK - offset));
            let at = Block(sector / BLOCK_SECTORS);
            let old = if piece.len() == BLOCK {
                self.contents.write(at, piece)
            } else {
                self.contents.write_part(at, offset, piece)
            };
            result = old.map(|old| self.forget(old));
            sector += piece.len() as u64 / SECTOR_BYTES;
            rest = tail;
        }
        let mut data = data;
        data.clear();
        self.spare.push(data);
        result
    }

    fn forget(&mut self, old: Option<Value>) {
        if let Some(old) = old {
            self.contents.release(old);
        }
    }

    fn store_zeros(&mut self, request: &Request) -> Result<(), Damaged> {
        let mut olds = Vec::new();
        let first = request.lba.0.div_ceil(BLOCK_SECTORS);
        let end = (request.lba.0 + u64::from(request.sectors)) / BLOCK_SECTORS;
        self.contents.zero(
            BlockRange::new(Block(first), Block(end.max(first))),
            |_, old| olds.push(old),
        )?;
        olds.into_iter().for_each(|old| self.contents.release(old));
        Ok(())
    }

    /// Reads the newest data.
    pub fn get(&mut self, sector: u64, data: &mut [u8]) -> Result<(), Damaged> {
        let mut block = alloc::vec![0; BLOCK];
        let (mut sector, mut rest) = (sector, data);
        while !rest.is_empty() {
            let offset = (sector % BLOCK_SECTORS * SECTOR_BYTES) as usize;
            let len = rest.len().min(BLOCK - offset);
            let (piece, tail) = rest.split_at_mut(len);
            if len == BLOCK {
                self.contents.read(Block(sector / BLOCK_SECTORS), piece)?;
            } else {
                self.contents
                    .read(Block(sector / BLOCK_SECTORS), &mut block)?;
                piece.copy_from_slice(&block[offset..offset + len]);
            }
            sector += len as u64 / SECTOR_BYTES;
            rest = tail;
        }
        Ok(())
    }

    /// When something will happen.
    pub fn next_event(&self) -> Option<u64> {
        self.done.front().map(|(at, _)| *at)
    }

    /// Lets time pass; completions are handed to `done`, at most `max` of them.
    pub fn advance(&mut self, now_ns: u64, max: usize, mut done: impl FnMut(Completion)) -> usize {
        let mut count = 0;
        while count < max && self.done.front().is_some_and(|(at, _)| *at <= now_ns) {
            if let Some((_, completion)) = self.done.pop_front() {
                done(completion);
                count += 1;
            }
        }
        count
    }

    /// Power fails.
    pub fn power_cut(&mut self, _now_ns: u64) {
        self.done.clear();
        self.staged.clear();
    }

    /// Writes the drive file.
    pub fn save<E>(&self, write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        crate::file::save(&self.state, &self.contents, &BTreeMap::new(), write)
    }
}
