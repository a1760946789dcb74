// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Data on their way between the host and the contents.

use super::Drive;
use crate::contents::{Damaged, Value};
use crate::request::{Op, Refusal, Request};
use alloc::vec;
use alloc::vec::Vec;
use zoned::{Block, BlockRange, BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Sectors of one block, and where they are in it.
struct Part {
    block: Block,
    offset: usize,
    len: usize,
}

/// The part of the first block that `len` bytes from `sector` on touch.
fn first_part(sector: u64, len: usize) -> Part {
    let offset = (sector % BLOCK_SECTORS * SECTOR_BYTES) as usize;
    Part {
        block: Block(sector / BLOCK_SECTORS),
        offset,
        len: len.min(BLOCK - offset),
    }
}

impl Drive {
    /// Takes a piece of the data of the write that will be submitted under `tag`.
    pub fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        let limit =
            self.state.profile.interface.max_request_sectors as usize * SECTOR_BYTES as usize;
        let end = offset
            .checked_add(data.len())
            .filter(|end| *end <= limit)
            .ok_or(Refusal::Invalid)?;
        let spare = &mut self.staging.spare;
        let staged = self
            .staging
            .by_tag
            .entry(tag)
            .or_insert_with(|| spare.pop().unwrap_or_default());
        if offset == staged.len() {
            staged.extend_from_slice(data);
            return Ok(());
        }
        if staged.len() < end {
            staged.resize(end, 0);
        }
        staged[offset..end].copy_from_slice(data);
        Ok(())
    }

    /// Throws away data that were put for a request that will not be submitted.
    pub fn forget_staged(&mut self, tag: u64) {
        self.staging.forget(tag);
    }

    /// Brings a write's data into the contents. What they replace stays until they are durable.
    pub(super) fn store(&mut self, request: &Request) -> Result<(), Damaged> {
        match request.op {
            Op::Write => self.store_data(request),
            _ => self.store_zeros(request.lba.0, u64::from(request.sectors)),
        }
    }

    fn store_data(&mut self, request: &Request) -> Result<(), Damaged> {
        // Bytes that were not put are zero.
        let Some(mut data) = self.staging.by_tag.remove(&request.tag) else {
            return self.store_zeros(request.lba.0, u64::from(request.sectors));
        };
        data.resize(request.sectors as usize * SECTOR_BYTES as usize, 0);
        let flies = self.buffer.flies(request.blocks());
        let result = self.store_bytes(request.lba.0, &data, flies);
        self.staging.keep(data);
        result
    }

    fn store_bytes(
        &mut self,
        mut sector: u64,
        mut data: &[u8],
        flies: bool,
    ) -> Result<(), Damaged> {
        while !data.is_empty() {
            let part = first_part(sector, data.len());
            let (bytes, rest) = data.split_at(part.len);
            let old = if part.len == BLOCK {
                self.contents.write(part.block, bytes)?
            } else {
                self.contents.write_part(part.block, part.offset, bytes)?
            };
            if let Some(old) = old {
                self.replaced(part.block, old, flies);
            }
            sector += part.len as u64 / SECTOR_BYTES;
            data = rest;
        }
        Ok(())
    }

    fn replaced(&mut self, block: Block, old: Value, flies: bool) {
        let flies = flies && self.buffer.flies(BlockRange::new(block, block + 1));
        self.durability
            .replaced(&mut self.contents, block, old, flies);
    }

    /// Whole blocks by extent, the rest sector by sector.
    fn store_zeros(&mut self, sector: u64, sectors: u64) -> Result<(), Damaged> {
        let end = sector + sectors;
        let whole = BlockRange {
            start: Block(sector.div_ceil(BLOCK_SECTORS)),
            end: Block(end / BLOCK_SECTORS),
        };
        if whole.is_empty() {
            return self.store_bytes(sector, &vec![0; (sectors * SECTOR_BYTES) as usize], true);
        }
        let (first, last) = (whole.start.first_sector().0, whole.end.first_sector().0);
        self.store_bytes(
            sector,
            &vec![0; ((first - sector) * SECTOR_BYTES) as usize],
            true,
        )?;
        self.store_bytes(last, &vec![0; ((end - last) * SECTOR_BYTES) as usize], true)?;
        let mut changed = Vec::new();
        let result = self
            .contents
            .zero(whole, |block, old| changed.push((block, old)));
        for (block, old) in changed {
            self.replaced(block, old, true);
        }
        result
    }

    /// Reads the newest data.
    pub fn get(&mut self, mut sector: u64, mut data: &mut [u8]) -> Result<(), Damaged> {
        while !data.is_empty() {
            let part = first_part(sector, data.len());
            let (bytes, rest) = data.split_at_mut(part.len);
            if part.len == BLOCK {
                self.contents.read(part.block, bytes)?;
            } else {
                let block = &mut self.staging.block;
                block.resize(BLOCK, 0);
                self.contents.read(part.block, block)?;
                bytes.copy_from_slice(&block[part.offset..part.offset + part.len]);
            }
            sector += part.len as u64 / SECTOR_BYTES;
            data = rest;
        }
        Ok(())
    }
}
