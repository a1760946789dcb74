// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the catalog's nodes are: slots in the first half of the random-write zones, each with a mirror in the second.
//!
//! INV-S7: a slot that was in use by the durable root record is not written before the next one is durable. A node is
//! "rewritten in place" only in that it stays in these zones.

use crate::disk::Disk;
use crate::error::{At, Error, Result};
use crate::format::{Node, Pointer, Uuid, BLOCK, NODE_BYTES};
use crate::lru::Lru;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoned::{Block, ZonedDevice};

const SLOT_BLOCKS: u64 = (NODE_BYTES / BLOCK) as u64;
/// A decoded node and what the cache adds, about.
const CACHED_BYTES: usize = 2 * NODE_BYTES;

/// See the module's head.
pub struct NodeStore {
    uuid: Uuid,
    mirror_blocks: u64,
    first: Block,
    slots: u32,
    /// One bit a slot: of the tree, or released since the last root record.
    used: Vec<u64>,
    free: u32,
    released: Vec<u32>,
    next: u32,
    cache: Lru<u64, Arc<Node>>,
    /// Nodes of the tree that is being made, not written yet.
    unwritten: BTreeMap<u64, Vec<u8>>,
    /// Nodes of which one copy could not be read.
    pub copies_lost: u64,
}

impl NodeStore {
    /// An empty store of `slots` slots from `first`.
    pub fn new(
        uuid: Uuid,
        mirror_blocks: u64,
        first: Block,
        slots: u32,
        cache_bytes: usize,
    ) -> Self {
        NodeStore {
            uuid,
            mirror_blocks,
            first,
            slots,
            used: vec![0; (slots as usize).div_ceil(64)],
            free: slots,
            released: Vec::new(),
            next: 0,
            cache: Lru::new(cache_bytes),
            unwritten: BTreeMap::new(),
            copies_lost: 0,
        }
    }

    /// Bytes of a map of so many slots.
    pub fn map_bytes(slots: u32) -> usize {
        (slots as usize).div_ceil(64) * 8
    }

    /// The map as the next root record's image holds it: what is released is free.
    pub fn encode_map(&self) -> Vec<u8> {
        let mut used = self.used.clone();
        for slot in &self.released {
            used[*slot as usize / 64] &= !(1 << (slot % 64));
        }
        used.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Takes the map of an image.
    pub fn decode_map(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() != NodeStore::map_bytes(self.slots) {
            return Err(Error::corrupt("the map of nodes", "its length is wrong"));
        }
        let words = bytes.chunks_exact(8);
        self.used = words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        self.free = self.slots.saturating_sub(used);
        Ok(())
    }

    /// Marks these nodes as used, and no others.
    pub fn set_used(&mut self, nodes: &[Block]) {
        self.used.fill(0);
        self.released.clear();
        for slot in nodes
            .iter()
            .filter_map(|at| self.slot(*at))
            .collect::<Vec<_>>()
        {
            self.used[slot as usize / 64] |= 1 << (slot % 64);
        }
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        self.free = self.slots.saturating_sub(used);
    }

    /// Slots that can be written now.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// All slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Whether a pointer's slot is marked as used.
    pub fn is_used(&self, at: Block) -> bool {
        self.slot(at)
            .is_some_and(|slot| self.used[slot as usize / 64] & 1 << (slot % 64) != 0)
    }

    /// Slots in use by the tree.
    pub fn in_use(&self) -> u32 {
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        used - u32::try_from(self.released.len()).unwrap_or(u32::MAX)
    }

    fn slot(&self, at: Block) -> Option<u32> {
        let distance = at.0.checked_sub(self.first.0)?;
        let slot = u32::try_from(distance / SLOT_BLOCKS).ok()?;
        (distance % SLOT_BLOCKS == 0 && slot < self.slots).then_some(slot)
    }

    fn allocate(&mut self) -> Result<Block> {
        for step in 0..self.slots {
            let slot = (self.next + step) % self.slots;
            let word = &mut self.used[slot as usize / 64];
            if *word & 1 << (slot % 64) == 0 {
                *word |= 1 << (slot % 64);
                self.free -= 1;
                self.next = (slot + 1) % self.slots;
                return Ok(self.first + u64::from(slot) * SLOT_BLOCKS);
            }
        }
        Err(Error::NoSpace)
    }

    /// A node that the next root record does not have any more.
    pub fn release(&mut self, pointer: Pointer) {
        let slot = self
            .slot(pointer.at)
            .expect("a pointer was checked when it was read");
        // A node made for the same root record was never in use by a durable one.
        if self.unwritten.remove(&pointer.at.0).is_some() {
            self.used[slot as usize / 64] &= !(1 << (slot % 64));
            self.free += 1;
        } else {
            self.released.push(slot);
        }
        self.cache.remove(&pointer.at.0);
    }

    /// Takes a new node; it is written by `write`.
    pub fn add(&mut self, node: Node, root_seq: u64) -> Result<Pointer> {
        let at = self.allocate()?;
        let (bytes, crc) = node.encode(&self.uuid, root_seq, at);
        let level = node.level;
        self.unwritten.insert(at.0, bytes);
        self.cache.put(at.0, Arc::new(node), CACHED_BYTES);
        Ok(Pointer { at, crc, level })
    }

    /// Writes what was added: all first copies, then all second ones.
    pub fn write<D: ZonedDevice>(&mut self, disk: &mut Disk<D>) -> Result {
        let unwritten = std::mem::take(&mut self.unwritten);
        for distance in [0, self.mirror_blocks] {
            let mut run: Vec<u8> = Vec::new();
            let mut start = Block(0);
            for (at, bytes) in &unwritten {
                if !run.is_empty() && start.0 + (run.len() / BLOCK) as u64 != *at {
                    disk.write_random(start + distance, &run)?;
                    run.clear();
                }
                if run.is_empty() {
                    start = Block(*at);
                }
                run.extend_from_slice(bytes);
            }
            if !run.is_empty() {
                disk.write_random(start + distance, &run)?;
            }
        }
        Ok(())
    }

    /// The root record is durable: what it does not have can be written again.
    pub fn settle(&mut self) {
        for slot in self.released.drain(..) {
            self.used[slot as usize / 64] &= !(1 << (slot % 64));
            self.free += 1;
        }
    }

    /// Reads a node; if the first copy is not what the parent says, the second.
    pub fn read<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        pointer: Pointer,
    ) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.get(&pointer.at.0) {
            return Ok(node);
        }
        let place = || format!("the catalog's node at block {}", pointer.at.0);
        if self.slot(pointer.at).is_none() {
            return Err(Error::corrupt(place(), "no node can be there"));
        }
        if let Some(bytes) = self.unwritten.get(&pointer.at.0) {
            return Ok(Arc::new(
                Node::decode(bytes, &self.uuid, pointer).at(place)?,
            ));
        }
        let node = match self.copy(disk, pointer, 0) {
            Ok(node) => node,
            Err(_) => {
                self.copies_lost += 1;
                self.copy(disk, pointer, self.mirror_blocks)?
            }
        };
        let node = Arc::new(node);
        self.cache
            .put(pointer.at.0, Arc::clone(&node), CACHED_BYTES);
        Ok(node)
    }

    /// Reads one copy of a node, past the cache.
    pub fn copy<D: ZonedDevice>(
        &self,
        disk: &mut Disk<D>,
        pointer: Pointer,
        distance: u64,
    ) -> Result<Node> {
        let mut bytes = vec![0; NODE_BYTES];
        let at = pointer.at + distance;
        disk.read(at, &mut bytes)?;
        let place = || format!("the catalog's node at block {}", at.0);
        Node::decode(&bytes, &self.uuid, pointer).at(place)
    }

    /// Distance of a node's two copies.
    pub fn mirror_blocks(&self) -> u64 {
        self.mirror_blocks
    }
}
