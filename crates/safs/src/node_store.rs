// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the catalog's nodes are: slots in the first half of the reserved zones, each with a mirror in the second.
//!
//! INV-S7: a slot that was in use by the durable root record is not written before the next one is durable. A node is
//! "rewritten in place" only in that it stays in these zones.
//!
//! Where these are written in order, slots are given out in order within one zone, and then within the next in which none
//! is in use. That others become empty is the catalog's care: with a root record it has the nodes of some zones written
//! again (`victims`).

use crate::disk::Disk;
use crate::error::{At, Error, Result};
use crate::format::{Node, Pointer, Uuid, BLOCK, NODE_BYTES};
use crate::layout::{map_bytes, InOrder, Layout};
use crate::lru::Lru;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zoned::{Block, ZoneState, ZonedDevice};

/// Where a node's level is in its bytes.
const NODE_LEVEL_AT: usize = 8;
/// Bytes of new nodes that are kept until all are made.
const UNWRITTEN_BYTES: usize = 4 << 20;
/// A decoded node and what the cache adds, about.
const CACHED_BYTES: usize = 2 * NODE_BYTES;
/// In order: nodes that some become two when a zone is cleaned.
pub(crate) const RESERVE_NODES: u32 = 4;
/// In order: zones' worth of free slots below which zones are cleaned.
const CLEAN_ZONES: u32 = 3;
/// The same that only deletions may use: one is for cleaning, one for what a crash leaves unusable.
const RESERVE_ZONES: u32 = 2;
/// In order: a part of the slots that the tree may fill; of more, cleaning would move too much.
const FILL_PART: u32 = 2;

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct NodeStore {
    uuid: Uuid,
    layout: Layout,
    /// One bit a slot: of the tree, or released since the last root record.
    used: Vec<u64>,
    /// Slots whose bit is not set.
    unused: u32,
    released: Vec<u32>,
    next: u32,
    cache: Lru<u64, Arc<Node>>,
    /// What the cache and the leaves that change may take.
    cache_bytes: usize,
    /// Leaves that the next root record writes elsewhere: it finds them here.
    changing: BTreeMap<u64, Arc<Node>>,
    /// Nodes of the tree that is being made, not written yet.
    unwritten: BTreeMap<u64, Vec<u8>>,
    order: Option<Order>,
    /// Nodes of which both copies are lost, and that a repair takes for empty leaves.
    lost: BTreeSet<u64>,
    /// Nodes of which one copy could not be read.
    pub copies_lost: u64,
    /// Nodes read from the device.
    pub reads: u64,
}

/// Zones of nodes that are written in order.
#[cfg_attr(test, derive(Clone))]
struct Order {
    zone_slots: u32,
    zones: Vec<NodeZone>,
    /// The slot that the next node gets; none if a zone has to be begun.
    at: Option<u32>,
    /// What `at` was when all that had been given out was written.
    written: Option<u32>,
    /// The zone that was begun last.
    last: u32,
}

#[derive(Clone, Copy, Default)]
struct NodeZone {
    used: u32,
    /// One of its copies is not written any more by the device.
    is_bad: bool,
}

/// What `go_back` goes back to.
pub struct Before {
    used: Vec<u64>,
    released: usize,
}

impl Order {
    fn new(layout: &Layout, form: InOrder) -> Self {
        let zones = layout.slots / form.zone_slots;
        Order {
            zone_slots: form.zone_slots,
            zones: vec![NodeZone::default(); zones as usize],
            at: None,
            written: None,
            last: zones - 1,
        }
    }

    /// The zone that is being written.
    fn current(&self) -> Option<u32> {
        self.at.map(|slot| slot / self.zone_slots)
    }

    fn is_empty(&self, zone: u32) -> bool {
        let found = self.zones[zone as usize];
        found.used == 0 && !found.is_bad && self.current() != Some(zone)
    }

    /// Zones, the one behind the last first.
    fn round(&self) -> impl Iterator<Item = u32> {
        let zones = self.zones.len() as u32;
        let first = self.last + 1;
        (0..zones).map(move |step| (first + step) % zones)
    }

    fn free(&self) -> u32 {
        let empty = self.round().filter(|zone| self.is_empty(*zone)).count() as u32;
        let rest = self
            .at
            .map_or(0, |slot| self.zone_slots - slot % self.zone_slots);
        rest + empty * self.zone_slots
    }

    fn usable(&self) -> u32 {
        let good = self.zones.iter().filter(|zone| !zone.is_bad).count() as u32;
        good * self.zone_slots
    }

    fn take(&mut self) -> Option<u32> {
        let begun = || self.round().find(|zone| self.is_empty(*zone));
        let slot = self.at.or_else(|| Some(begun()? * self.zone_slots))?;
        self.last = slot / self.zone_slots;
        self.at = Some(slot + 1).filter(|next| next % self.zone_slots != 0);
        Some(slot)
    }
}

impl NodeStore {
    /// An empty store.
    pub fn new(uuid: Uuid, layout: Layout, cache_bytes: usize) -> Self {
        NodeStore {
            uuid,
            layout,
            used: vec![0; (layout.slots as usize).div_ceil(64)],
            unused: layout.slots,
            released: Vec::new(),
            next: 0,
            cache: Lru::new(cache_bytes),
            cache_bytes,
            changing: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            order: layout.in_order.map(|form| Order::new(&layout, form)),
            lost: BTreeSet::new(),
            copies_lost: 0,
            reads: 0,
        }
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
        if bytes.len() != map_bytes(self.layout.slots) {
            return Err(Error::corrupt("the map of nodes", "its length is wrong"));
        }
        let words = bytes.chunks_exact(8);
        self.used = words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect();
        self.count();
        Ok(())
    }

    /// Counts what the map says.
    fn count(&mut self) {
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        self.unused = self.layout.slots.saturating_sub(used);
        let is_used = |slot: u32| self.used[slot as usize / 64] & 1 << (slot % 64) != 0;
        if let Some(order) = &mut self.order {
            for (zone, first) in order
                .zones
                .iter_mut()
                .zip((0..).step_by(order.zone_slots as usize))
            {
                let slots = first..first + order.zone_slots;
                zone.used = slots.filter(|slot| is_used(*slot)).count() as u32;
            }
        }
    }

    /// Asks the device for its zones of nodes: it goes on in one that ends, in both copies, with a node in use. Where a
    /// crash left something behind the last, nothing is written before the zone is empty (R25).
    pub fn look<D: ZonedDevice>(&mut self, disk: &Disk<D>) -> Result {
        let mirror = self.layout.mirror_blocks();
        let Some(order) = &mut self.order else {
            return Ok(());
        };
        for (number, zone) in (0u32..).zip(&mut order.zones) {
            let first = number * order.zone_slots;
            let slots = (first..first + order.zone_slots).rev();
            let is_used = |slot: &u32| self.used[*slot as usize / 64] & 1 << (slot % 64) != 0;
            let end = slots.into_iter().find(is_used).map(|last| last + 1);
            let mut is_open = end.is_some_and(|end| end % order.zone_slots != 0);
            for distance in [0, mirror] {
                let start = self.layout.block_of(first) + distance;
                let (id, _) = disk.zone_at(start);
                let state = disk.state(id);
                zone.is_bad |=
                    matches!(state, None | Some(ZoneState::ReadOnly | ZoneState::Offline));
                let blocks = (end.unwrap_or(first) - first) * (NODE_BYTES / BLOCK) as u32;
                is_open &= disk.write_pointer(id)? == blocks;
            }
            if is_open && !zone.is_bad && order.at.is_none() {
                order.at = end;
                order.last = number;
            }
        }
        order.written = order.at;
        Ok(())
    }

    /// What is wrong if the device's write pointers are not where the next node goes.
    pub fn out_of_order<D: ZonedDevice>(&self, disk: &Disk<D>) -> Option<String> {
        let slot = self.order.as_ref()?.at?;
        let wrong = |distance: &u64| {
            let (zone, block) = disk.zone_at(self.layout.block_of(slot) + *distance);
            let pointer = disk.write_pointer(zone).unwrap_or(0);
            pointer != block && self.unwritten.is_empty() && block > 0
        };
        let distances = [0, self.layout.mirror_blocks()];
        let distance = distances.iter().find(|distance| wrong(distance))?;
        let at = self.layout.block_of(slot) + *distance;
        Some(format!(
            "the next node goes to block {}, the zone is not written up to there",
            at.0
        ))
    }

    /// Marks these nodes as used, and no others.
    pub fn set_used(&mut self, nodes: &[Block]) {
        self.used.fill(0);
        self.released.clear();
        for slot in nodes.iter().filter_map(|at| self.layout.slot_at(*at)) {
            self.used[slot as usize / 64] |= 1 << (slot % 64);
        }
        self.count();
    }

    /// Slots that can be written now.
    pub fn free(&self) -> u32 {
        self.order.as_ref().map_or(self.unused, Order::free)
    }

    /// Slots that the tree may still fill.
    pub fn room(&self) -> u32 {
        match &self.order {
            None => self.unused,
            Some(order) => (order.usable() / FILL_PART).saturating_sub(self.in_use()),
        }
    }

    /// Slots that a root record has to leave where they are written in order; deletions draw on the reserve.
    pub fn reserve(&self, is_deletion: bool) -> u32 {
        let zones = if is_deletion { 1 } else { RESERVE_ZONES };
        self.order
            .as_ref()
            .map_or(0, |order| zones * order.zone_slots)
    }

    /// Zones whose nodes the next root record should have elsewhere, because few are empty; it needs so many slots itself.
    pub fn victims(&self, needed: u32) -> BTreeSet<u32> {
        let mut victims = BTreeSet::new();
        let Some(order) = &self.order else {
            return victims;
        };
        let mut room = order.free().saturating_sub(needed);
        let mut gain = 0;
        // The nodes, those above them, and some that become two.
        let cost = |zone: u32| {
            let used = order.zones[zone as usize].used;
            used + used / 4 + RESERVE_NODES
        };
        let is_worth = |zone: &u32| {
            let found = order.zones[*zone as usize];
            found.used > 0
                && !found.is_bad
                && order.current() != Some(*zone)
                && cost(*zone) < order.zone_slots
        };
        let mut worth: Vec<u32> = order.round().filter(is_worth).collect();
        worth.sort_by_key(|zone| cost(*zone));
        for zone in worth {
            if room + gain >= CLEAN_ZONES * order.zone_slots || cost(zone) > room {
                break;
            }
            room -= cost(zone);
            gain += order.zone_slots;
            victims.insert(zone);
        }
        victims
    }

    /// The zone of nodes in which a node is, if they are written in order.
    pub fn zone_of(&self, pointer: Pointer) -> Option<u32> {
        let slot = self.layout.slot_at(pointer.at)?;
        Some(slot / self.order.as_ref()?.zone_slots)
    }

    /// What is in use, before a tree is made that may not find room.
    pub fn before(&self) -> Before {
        Before {
            used: self.used.clone(),
            released: self.released.len(),
        }
    }

    /// Forgets the tree that was being made. What of it is written is in nobody's way: its zone goes on behind it.
    pub fn go_back(&mut self, before: &Before) {
        for at in std::mem::take(&mut self.unwritten).keys() {
            self.cache.remove(at);
        }
        self.used.clone_from(&before.used);
        self.released.truncate(before.released);
        if let Some(order) = &mut self.order {
            order.at = order.written;
        }
        self.count();
    }

    /// All slots.
    pub fn slots(&self) -> u32 {
        self.layout.slots
    }

    /// Whether a pointer's slot is marked as used.
    pub fn is_used(&self, at: Block) -> bool {
        self.layout
            .slot_at(at)
            .is_some_and(|slot| self.used[slot as usize / 64] & 1 << (slot % 64) != 0)
    }

    /// Slots in use by the tree.
    pub fn in_use(&self) -> u32 {
        let released = u32::try_from(self.released.len()).unwrap_or(u32::MAX);
        (self.layout.slots - self.unused).saturating_sub(released)
    }

    fn allocate(&mut self) -> Result<Block> {
        let slot = match &mut self.order {
            Some(order) => order.take(),
            None => {
                let slots = self.layout.slots;
                let mut round = (0..slots).map(|step| (self.next + step) % slots);
                round.find(|slot| self.used[*slot as usize / 64] & 1 << (slot % 64) == 0)
            }
        };
        let slot = slot.ok_or(Error::NoSpace)?;
        self.next = (slot + 1) % self.layout.slots;
        self.mark(slot, true);
        Ok(self.layout.block_of(slot))
    }

    fn mark(&mut self, slot: u32, is_used: bool) {
        let (word, bit) = (&mut self.used[slot as usize / 64], 1 << (slot % 64));
        if (*word & bit != 0) == is_used {
            return;
        }
        *word ^= bit;
        let by = |count: &mut u32, up: bool| {
            *count = if up {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
        };
        by(&mut self.unused, !is_used);
        if let Some(order) = &mut self.order {
            by(
                &mut order.zones[(slot / order.zone_slots) as usize].used,
                is_used,
            );
        }
    }

    /// A node that the next root record does not have any more.
    pub fn release(&mut self, pointer: Pointer) {
        let Some(slot) = self.layout.slot_at(pointer.at) else {
            // A pointer was checked when it was read, unless what it leads to was lost.
            return;
        };
        // A node made for the same root record was never in use by a durable one. In order its place has to be written.
        if self.order.is_none() && self.unwritten.remove(&pointer.at.0).is_some() {
            self.mark(slot, false);
        } else {
            self.released.push(slot);
        }
        self.cache.remove(&pointer.at.0);
    }

    /// Takes a new node; it is written by `write`, or `write_early`.
    pub fn add(&mut self, node: Node, root_seq: u64) -> Result<Pointer> {
        let at = self.allocate()?;
        let (bytes, crc) = node.encode(&self.uuid, root_seq, at);
        let level = node.level;
        self.unwritten.insert(at.0, bytes);
        self.cache.put(at.0, Arc::new(node), CACHED_BYTES);
        Ok(Pointer { at, crc, level })
    }

    /// Writes what was added so far, if it is much: a change of many places would hold a large part of the tree.
    pub fn write_early<D: ZonedDevice>(&mut self, disk: &mut Disk<D>) -> Result {
        match self.unwritten.len() * NODE_BYTES < UNWRITTEN_BYTES {
            true => Ok(()),
            false => self.write(disk),
        }
    }

    /// Writes what was added: all first copies, then all second ones.
    pub fn write<D: ZonedDevice>(&mut self, disk: &mut Disk<D>) -> Result {
        let unwritten = std::mem::take(&mut self.unwritten);
        let zone_blocks = u64::from(disk.geometry().zone_blocks);
        let is_new_zone = |at: u64| self.order.is_some() && at % zone_blocks == 0;
        for distance in [0, self.layout.mirror_blocks()] {
            let mut run: Vec<u8> = Vec::new();
            let mut start = Block(0);
            for (at, bytes) in &unwritten {
                let is_next = start.0 + (run.len() / BLOCK) as u64 == *at && !is_new_zone(*at);
                if !run.is_empty() && !is_next {
                    self.layout.write(disk, start + distance, &run)?;
                    run.clear();
                }
                if run.is_empty() {
                    start = Block(*at);
                }
                run.extend_from_slice(bytes);
            }
            if !run.is_empty() {
                self.layout.write(disk, start + distance, &run)?;
            }
        }
        let Some(order) = &mut self.order else {
            return Ok(());
        };
        order.written = order.at;
        // Full zones need not stay open, if there is room behind their last slots.
        let is_last = |at: &u64| {
            let slot = self.layout.slot_at(Block(*at));
            slot.is_some_and(|slot| (slot + 1) % order.zone_slots == 0)
        };
        for at in unwritten.keys().filter(|at| is_last(at)) {
            self.layout.close(disk, Block(*at))?;
        }
        Ok(())
    }

    /// The root record is durable: what it does not have can be written again.
    pub fn settle(&mut self) {
        self.lost.clear();
        self.changing.clear();
        self.cache.limit(self.cache_bytes);
        for slot in std::mem::take(&mut self.released) {
            self.mark(slot, false);
        }
    }

    /// Reads a node; if the first copy is not what the parent says, the second.
    pub fn read<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        pointer: Pointer,
    ) -> Result<Arc<Node>> {
        if let Some(node) = self.changing.get(&pointer.at.0) {
            return Ok(Arc::clone(node));
        }
        if let Some(node) = self.cache.get(&pointer.at.0) {
            return Ok(node);
        }
        let place = || format!("the catalog's node at block {}", pointer.at.0);
        if self.lost.contains(&pointer.at.0) {
            let (level, cells) = (0, Vec::new());
            return Ok(Arc::new(Node { level, cells }));
        }
        if self.layout.slot_at(pointer.at).is_none() {
            return Err(Error::corrupt(place(), "no node can be there"));
        }
        if let Some(bytes) = self.unwritten.get(&pointer.at.0) {
            return Ok(Arc::new(
                Node::decode(bytes, &self.uuid, pointer).at(place)?,
            ));
        }
        self.reads += 1;
        let node = match self.copy(disk, pointer, 0) {
            Ok(node) => node,
            Err(_) => {
                self.copies_lost += 1;
                self.copy(disk, pointer, self.layout.mirror_blocks())?
            }
        };
        let node = Arc::new(node);
        self.cache
            .put(pointer.at.0, Arc::clone(&node), CACHED_BYTES);
        Ok(node)
    }

    /// Keeps a leaf until the next root record is durable, in memory that the cache gives up.
    pub fn keep(&mut self, pointer: Pointer, leaf: Arc<Node>) {
        self.cache.remove(&pointer.at.0);
        self.changing.insert(pointer.at.0, leaf);
        let rest = self.cache_bytes.saturating_sub(self.changing_bytes());
        self.cache.limit(rest);
    }

    /// What the kept leaves take in memory, about.
    pub fn changing_bytes(&self) -> usize {
        self.changing.len() * CACHED_BYTES
    }

    /// Reads one copy of a node, past the cache.
    pub fn copy<D: ZonedDevice>(
        &self,
        disk: &mut Disk<D>,
        pointer: Pointer,
        distance: u64,
    ) -> Result<Node> {
        // The check comes here without `read`: a forged pointer may name a block outside the device.
        if self.layout.slot_at(pointer.at).is_none() {
            let place = format!("the catalog's node at block {}", pointer.at.0);
            return Err(Error::corrupt(place, "no node can be there"));
        }
        let at = pointer.at + distance;
        let mut bytes = vec![0; NODE_BYTES];
        disk.read(at, &mut bytes)?;
        let place = || format!("the catalog's node at block {}", at.0);
        Node::decode(&bytes, &self.uuid, pointer).at(place)
    }

    /// From now on a node is taken for an empty leaf.
    pub fn lose(&mut self, pointer: Pointer) {
        self.lost.insert(pointer.at.0);
    }

    /// Places of nodes that are marked as used.
    pub fn used(&self) -> impl Iterator<Item = Block> + '_ {
        let slots = (0..self.layout.slots).map(|slot| self.layout.block_of(slot));
        slots.filter(|at| self.is_used(*at))
    }

    /// Reads a node that nothing leads to, so that nobody knows its checksum: both copies have to be the same.
    pub fn unled<D: ZonedDevice>(&self, disk: &mut Disk<D>, at: Block) -> Option<Node> {
        let mut copies = [vec![0; NODE_BYTES], vec![0; NODE_BYTES]];
        disk.read(at, &mut copies[0]).ok()?;
        disk.read(at + self.layout.mirror_blocks(), &mut copies[1])
            .ok()?;
        let [first, second] = copies;
        let level = *first.get(NODE_LEVEL_AT)?;
        let crc = crc32c::crc32c(&first);
        let pointer = Pointer { at, crc, level };
        (first == second).then(|| Node::decode(&first, &self.uuid, pointer).ok())?
    }

    /// Distance of a node's two copies.
    pub fn mirror_blocks(&self) -> u64 {
        self.layout.mirror_blocks()
    }
}
