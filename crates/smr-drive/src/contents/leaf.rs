// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a block holds, and the leaves in which blocks are grouped.

use super::arena::Record;
use alloc::boxed::Box;
use alloc::vec;
use zoned::Block;

/// Blocks of a leaf.
pub const LEAF_BLOCKS: usize = 512;
/// Leaves of one entry of the root.
pub(super) const NODE_LEAVES: usize = 1024;

/// A leaf whose bytes in the drive file do not match their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its number: the first block divided by [`LEAF_BLOCKS`].
    pub leaf: u64,
}

/// What a block holds. Not `Clone`: a record in the arena has one owner.
#[derive(Debug, PartialEq, Eq)]
pub struct Value(pub(super) Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Zero,
    /// One word, 512 times. Never 0.
    Word(u64),
    Lines(Record),
    /// Mask and lines at this byte of the file's packed contents.
    File(u64),
}

/// A leaf in memory. Kinds and payloads apart: 9 bytes a block instead of 16.
pub(super) struct Leaf {
    pub(super) kinds: Box<[u8]>,
    pub(super) payloads: Box<[u64]>,
}

pub(super) enum Slot {
    Empty,
    /// Still in the file: number of its index entry.
    Packed(u32),
    Loaded(Leaf),
}

impl Leaf {
    pub(super) fn new() -> Self {
        Leaf {
            kinds: vec![0; LEAF_BLOCKS].into_boxed_slice(),
            payloads: vec![0; LEAF_BLOCKS].into_boxed_slice(),
        }
    }

    pub(super) fn get(&self, i: usize) -> Kind {
        let payload = self.payloads[i];
        match self.kinds[i] {
            0 => Kind::Zero,
            1 => Kind::Word(payload),
            2 => Kind::Lines(Record(payload)),
            _ => Kind::File(payload),
        }
    }

    pub(super) fn set(&mut self, i: usize, kind: Kind) {
        (self.kinds[i], self.payloads[i]) = match kind {
            Kind::Zero => (0, 0),
            Kind::Word(word) => (1, word),
            Kind::Lines(record) => (2, record.0),
            Kind::File(at) => (3, at),
        };
    }
}

pub(super) fn leaf_of(block: Block) -> u64 {
    block.0 / LEAF_BLOCKS as u64
}

pub(super) fn word_at(bytes: &[u8], i: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
    u64::from_le_bytes(word)
}
