// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Contents out of a drive file, and into one.

use super::leaf::{Damaged, Kind, Leaf, Slot, Value, LEAF_BLOCKS, NODE_LEAVES};
use super::packed::{unpack, IndexEntry, INDEX_ENTRY_BYTES};
use super::Contents;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::Block;

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
