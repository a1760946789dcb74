// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Addresses. No `as` leads from one kind to another: a conversion is a named function, and says what it rounds.

use core::fmt;
use core::ops::Add;
use serde::{Deserialize, Serialize};

/// Bytes of a sector, the unit of host addresses.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of a block, the unit of everything inside a drive.
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// Logical address of a sector: what the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lba(pub u64);

/// Logical address of a 4 KiB block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Block(pub u64);

/// Physical address of a 4 KiB block: where on the platters it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pba(pub u64);

/// Number of a band, counted from the outer diameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BandId(pub u32);

impl Lba {
    /// The block that holds this sector.
    pub fn block(self) -> Block {
        Block(self.0 / BLOCK_SECTORS)
    }
}

impl Block {
    /// The block's first sector.
    pub fn first_sector(self) -> Lba {
        Lba(self.0 * BLOCK_SECTORS)
    }
}

impl Add<u64> for Block {
    type Output = Block;
    fn add(self, blocks: u64) -> Block {
        Block(self.0 + blocks)
    }
}

impl Add<u64> for Pba {
    type Output = Pba;
    fn add(self, blocks: u64) -> Pba {
        Pba(self.0 + blocks)
    }
}

/// Logical blocks `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockRange {
    /// First block.
    pub start: Block,
    /// The block after the last.
    pub end: Block,
}

impl BlockRange {
    /// Blocks `start..end`.
    pub fn new(start: Block, end: Block) -> Self {
        debug_assert!(start <= end);
        BlockRange { start, end }
    }

    /// The blocks that `sectors` sectors from `first` touch, rounded outwards.
    pub fn covering(first: Lba, sectors: u64) -> Self {
        BlockRange::new(
            first.block(),
            Block((first.0 + sectors).div_ceil(BLOCK_SECTORS)),
        )
    }

    /// Number of blocks.
    pub fn blocks(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether no block is in it.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether the two share a block.
    pub fn overlaps(self, other: BlockRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The blocks in both; possibly none.
    pub fn intersection(self, other: BlockRange) -> BlockRange {
        let start = self.start.max(other.start);
        BlockRange {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: BlockRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start.0, self.end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_rounded_outwards_to_blocks() {
        assert_eq!(
            BlockRange::covering(Lba(7), 2),
            BlockRange::new(Block(0), Block(2))
        );
        assert_eq!(
            BlockRange::covering(Lba(8), 8),
            BlockRange::new(Block(1), Block(2))
        );
    }

    #[test]
    fn an_empty_intersection_is_empty_and_not_negative() {
        let low = BlockRange::new(Block(0), Block(2));
        let high = BlockRange::new(Block(5), Block(9));
        assert!(low.intersection(high).is_empty());
        assert_eq!(low.intersection(high).blocks(), 0);
    }
}
