// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Memory for block contents: records of a mask and 1 to 64 lines, packed into pages of one size each.
//!
//! A record is named by a number and not by a pointer: four bytes instead of sixteen for each block, and no unsafe code.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use zoned::BLOCK_BYTES;

pub(super) const LINE_BYTES: usize = 64;
pub(super) const LINES: usize = BLOCK_BYTES as usize / LINE_BYTES;
/// Large enough that pages are few, small enough that 64 sizes in use waste little.
const PAGE_BYTES: usize = 64 * 1024;

/// Mask and lines of a block: lines that are all zero are left out.
#[derive(Default)]
pub(super) struct Arena {
    sizes: Vec<Size>,
    /// Blocks held.
    pub records: u64,
}

/// All records with the same number of lines.
#[derive(Default)]
struct Size {
    pages: Vec<Box<[u8]>>,
    free: Vec<u32>,
    used: u32,
}

/// Which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(pub u64);

impl Record {
    fn new(lines: usize, index: u32) -> Self {
        Record((lines as u64) << 32 | u64::from(index))
    }
    fn lines(self) -> usize {
        (self.0 >> 32) as usize
    }
    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

fn record_bytes(lines: usize) -> usize {
    8 + lines * LINE_BYTES
}

impl Arena {
    /// Stores the lines of `block` whose bit is set in `mask` (at least one).
    pub fn store(&mut self, mask: u64, block: &[u8]) -> Record {
        let record = self.allocate(mask.count_ones() as usize);
        let bytes = self.bytes_mut(record);
        bytes[..8].copy_from_slice(&mask.to_le_bytes());
        let mut to = 8;
        for line in (0..LINES).filter(|l| mask >> l & 1 == 1) {
            bytes[to..to + LINE_BYTES].copy_from_slice(&block[line * LINE_BYTES..][..LINE_BYTES]);
            to += LINE_BYTES;
        }
        record
    }

    /// Mask and lines, as stored.
    pub fn bytes(&self, record: Record) -> &[u8] {
        let len = record_bytes(record.lines());
        let per_page = PAGE_BYTES / len;
        let page = &self.sizes[record.lines()].pages[record.index() / per_page];
        &page[record.index() % per_page * len..][..len]
    }

    fn bytes_mut(&mut self, record: Record) -> &mut [u8] {
        let len = record_bytes(record.lines());
        let per_page = PAGE_BYTES / len;
        let page = &mut self.sizes[record.lines()].pages[record.index() / per_page];
        &mut page[record.index() % per_page * len..][..len]
    }

    /// A second record with the same bytes.
    pub fn duplicate(&mut self, record: Record) -> Record {
        let copy = self.allocate(record.lines());
        let bytes = self.bytes(record).to_vec();
        self.bytes_mut(copy).copy_from_slice(&bytes);
        copy
    }

    fn allocate(&mut self, lines: usize) -> Record {
        if self.sizes.is_empty() {
            self.sizes.resize_with(LINES + 1, Size::default);
        }
        self.records += 1;
        let size = &mut self.sizes[lines];
        if let Some(index) = size.free.pop() {
            return Record::new(lines, index);
        }
        let per_page = PAGE_BYTES / record_bytes(lines);
        if size.used as usize == size.pages.len() * per_page {
            size.pages.push(vec![0; PAGE_BYTES].into_boxed_slice());
        }
        size.used += 1;
        Record::new(lines, size.used - 1)
    }

    /// Gives the record's place to a later one.
    pub fn release(&mut self, record: Record) {
        self.records -= 1;
        self.sizes[record.lines()].free.push(record.index() as u32);
    }
}
