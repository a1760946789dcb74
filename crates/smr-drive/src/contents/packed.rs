// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Leaves as they are in a drive file.
//!
//! ```text
//! index entry, 24 bytes       packed leaf, a multiple of 8 bytes
//!  0  u32  leaf                 0  u8[512]  kind of each block: 0 zero, 1 word, 2 lines
//!  4  u32  CRC-32 of the leaf   512         for each block that is not zero, in order:
//!  8  u64  first byte             kind 1:   u64 word
//! 16  u32  bytes                  kind 2:   u64 mask, then 64 bytes for each bit set, lowest first
//! 20  u32  0
//! ```
//! Bytes are counted from the start of the packed contents. A leaf's checksum is verified when it is first touched.

use super::arena::LINE_BYTES;
use super::leaf::{word_at, Damaged, Kind, Leaf, LEAF_BLOCKS};

/// Bytes of an index entry.
pub const INDEX_ENTRY_BYTES: usize = 24;

/// Where a leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Number of the leaf.
    pub leaf: u32,
    /// CRC-32 of its bytes.
    pub crc: u32,
    /// First byte in the packed contents.
    pub start: u64,
    /// Number of bytes.
    pub len: u32,
}

impl IndexEntry {
    /// As in the file.
    pub fn to_bytes(self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut bytes = [0; INDEX_ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&self.leaf.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let (low, len) = (word_at(bytes, 0), word_at(bytes, 2));
        IndexEntry {
            leaf: low as u32,
            crc: (low >> 32) as u32,
            start: word_at(bytes, 1),
            len: len as u32,
        }
    }
}

/// Mask and lines at byte `at`; the leaf was verified, so they are there.
pub(super) fn record_at(packed: &[u8], at: u64) -> &[u8] {
    let bytes = &packed[at as usize..];
    &bytes[..8 + word_at(bytes, 0).count_ones() as usize * LINE_BYTES]
}

/// Makes a leaf whose lines stay in the file.
pub(super) fn unpack(packed: &[u8], entry: &IndexEntry) -> Result<Leaf, Damaged> {
    let damaged = Damaged {
        leaf: u64::from(entry.leaf),
    };
    let start = entry.start as usize;
    let bytes = start
        .checked_add(entry.len as usize)
        .and_then(|end| packed.get(start..end))
        .ok_or(damaged)?;
    if crc32fast::hash(bytes) != entry.crc {
        return Err(damaged);
    }
    let mut leaf = Leaf::new();
    let mut at = LEAF_BLOCKS;
    for i in 0..LEAF_BLOCKS {
        let kind = *bytes.get(i).ok_or(damaged)?;
        if kind == 0 {
            continue;
        }
        let word = word_at(bytes.get(at..at + 8).ok_or(damaged)?, 0);
        if kind == 1 {
            leaf.set(i, Kind::Word(word));
            at += 8;
        } else {
            leaf.set(i, Kind::File(entry.start + at as u64));
            at += 8 + word.count_ones() as usize * LINE_BYTES;
        }
    }
    if at == bytes.len() {
        Ok(leaf)
    } else {
        Err(damaged)
    }
}
