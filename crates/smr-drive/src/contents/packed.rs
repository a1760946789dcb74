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

use super::{
    word_at, Contents, Damaged, Kind, Leaf, Slot, Value, LEAF_BLOCKS, LINE_BYTES, NODE_LEAVES,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::Block;

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

    fn from_bytes(bytes: &[u8]) -> Self {
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

impl Contents {
    /// The contents of a drive file: its index, and the bytes that the index speaks of.
    pub fn from_file(index: &[u8], packed: &'static [u8]) -> Self {
        let mut contents = Contents::new();
        contents.packed = packed;
        contents.index = index
            .chunks_exact(INDEX_ENTRY_BYTES)
            .map(IndexEntry::from_bytes)
            .collect();
        for i in 0..contents.index.len() {
            let leaf = contents.index[i].leaf;
            *contents.slot_mut(u64::from(leaf)) = Slot::Packed(i as u32);
        }
        contents
    }

    /// Verifies every leaf that is still in the file.
    pub fn verify(&mut self) -> Result<(), Damaged> {
        for leaf in 0..(self.root.len() * NODE_LEAVES) as u64 {
            self.load(leaf, false)?;
        }
        Ok(())
    }

    /// Packs all leaves, one after the other. `instead` holds other values for some blocks: what a power cut would
    /// leave. `emit` gets each leaf's index entry and bytes.
    pub fn pack<E>(
        &self,
        instead: &BTreeMap<Block, Value>,
        mut emit: impl FnMut(IndexEntry, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = Vec::new();
        let mut start = 0;
        for leaf in self.leaves_to_pack(instead) {
            let crc = match self.pack_leaf(leaf, instead, &mut bytes) {
                Some(crc) => crc,
                None => continue,
            };
            emit(
                IndexEntry {
                    leaf: leaf as u32,
                    crc,
                    start,
                    len: bytes.len() as u32,
                },
                &bytes,
            )?;
            start += bytes.len() as u64;
        }
        Ok(())
    }

    /// Leaves that exist, or that a value of `instead` brings into being.
    fn leaves_to_pack<'a>(
        &'a self,
        instead: &'a BTreeMap<Block, Value>,
    ) -> impl Iterator<Item = u64> + 'a {
        let last = instead
            .keys()
            .next_back()
            .map_or(0, |b| super::leaf_of(*b) + 1);
        let leaves = last.max((self.root.len() * NODE_LEAVES) as u64);
        (0..leaves).filter(move |leaf| {
            !matches!(self.slot(*leaf), Slot::Empty) || in_leaf(instead, *leaf).next().is_some()
        })
    }

    /// The leaf's packed bytes, and their checksum; none if all of it is zero.
    fn pack_leaf(
        &self,
        leaf: u64,
        instead: &BTreeMap<Block, Value>,
        bytes: &mut Vec<u8>,
    ) -> Option<u32> {
        bytes.clear();
        let untouched = in_leaf(instead, leaf).next().is_none();
        let loaded = match self.slot(leaf) {
            Slot::Packed(entry) => {
                let entry = &self.index[*entry as usize];
                let packed = self
                    .packed
                    .get(entry.start as usize..)
                    .and_then(|b| b.get(..entry.len as usize))?;
                if untouched {
                    bytes.extend_from_slice(packed);
                    return Some(entry.crc);
                }
                unpack(self.packed, entry).ok()?
            }
            Slot::Loaded(leaf) => Leaf {
                kinds: leaf.kinds.clone(),
                payloads: leaf.payloads.clone(),
            },
            Slot::Empty => Leaf::new(),
        };
        let kinds: Vec<Kind> = (0..LEAF_BLOCKS)
            .map(|i| {
                let block = Block(leaf * LEAF_BLOCKS as u64 + i as u64);
                instead
                    .get(&block)
                    .map_or_else(|| loaded.get(i), |value| value.0)
            })
            .collect();
        if kinds.iter().all(|k| *k == Kind::Zero) {
            return None;
        }
        bytes.extend(kinds.iter().map(|k| match k {
            Kind::Zero => 0u8,
            Kind::Word(_) => 1,
            Kind::Lines(_) | Kind::File(_) => 2,
        }));
        for kind in kinds {
            match kind {
                Kind::Zero => {}
                Kind::Word(word) => bytes.extend_from_slice(&word.to_le_bytes()),
                Kind::Lines(_) | Kind::File(_) => bytes.extend_from_slice(self.stored(kind)),
            }
        }
        Some(crc32fast::hash(bytes))
    }
}

fn in_leaf(instead: &BTreeMap<Block, Value>, leaf: u64) -> impl Iterator<Item = (&Block, &Value)> {
    let first = leaf * LEAF_BLOCKS as u64;
    instead.range(Block(first)..Block(first + LEAF_BLOCKS as u64))
}
