// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are in the reserved zones, and how these are written: in any order if they are conventional, in order on a
//! disk that has no conventional zones.
//!
//! In order: zone 0 holds the superblock, zones 1 and 2 a ring of root records, each behind its image, and the others
//! nodes. INV-S14: a zone of the ring is reset only when the newest durable record is in the other.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::*;
use zoned::{Block, ZonedDevice};

const NODE_BLOCKS: u64 = (NODE_BYTES / BLOCK) as u64;
/// Slots for nodes that a file system has at least.
const SLOTS_MIN: u64 = 8;
/// The same for a zone that is written in order: cleaning has to gain something.
const ZONE_SLOTS_MIN: u32 = 12;
/// Zones of a half before those of nodes.
const RING_ZONES: u64 = 3;
/// Zones reserved at least where all are written in order: five of nodes, and everything twice.
const RESERVED_MIN: u32 = 16;
/// Places of root records that are looked at from a zone's write pointer backwards.
const LOOK_BACK: u64 = 16;

/// Bytes of a map of so many slots for nodes.
pub(crate) fn map_bytes(slots: u32) -> usize {
    (slots as usize).div_ceil(64) * 8
}

/// Zones that mkfs reserves on a disk with so many zones, all of them sequential.
pub(crate) fn reserved_zones(zones: u32) -> u32 {
    zones.div_ceil(100).next_multiple_of(2).max(RESERVED_MIN)
}

/// Where things are in the reserved zones; all of it once more, a mirror's distance behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Blocks of an image: zone table and map of nodes.
    pub image_blocks: u32,
    /// The first slot for a node.
    pub nodes: Block,
    /// Slots for nodes.
    pub slots: u32,
    /// How the zones are divided, if they are written in order.
    pub in_order: Option<InOrder>,
    mirror_blocks: u64,
}

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InOrder {
    zone_blocks: u64,
    capacity_blocks: u32,
    /// Slots for nodes in a zone.
    pub zone_slots: u32,
    /// Root records in a zone of the ring.
    pub zone_records: u64,
}

impl Layout {
    /// Of a file system with this superblock; none if its reserved zones are too small. Of a sequential zone so many blocks
    /// can be written.
    pub fn of(superblock: &Superblock, capacity_blocks: u32) -> Option<Self> {
        if superblock.is_in_order() {
            return Layout::in_order(superblock, capacity_blocks);
        }
        let half = superblock.mirror_blocks;
        let most = u32::try_from(half / NODE_BLOCKS).ok()?;
        let image_blocks = image_blocks(superblock, most);
        let nodes = (1 + ROOT_SLOTS + 2 * image_blocks).next_multiple_of(NODE_BLOCKS);
        let slots = half.checked_sub(nodes)? / NODE_BLOCKS;
        (slots >= SLOTS_MIN).then_some(Layout {
            image_blocks: u32::try_from(image_blocks).ok()?,
            nodes: Block(nodes),
            slots: u32::try_from(slots).ok()?,
            in_order: None,
            mirror_blocks: half,
        })
    }

    fn in_order(superblock: &Superblock, capacity_blocks: u32) -> Option<Self> {
        let zone_blocks = u64::from(superblock.zone_blocks);
        let zones = u64::from(superblock.random_zones / 2).checked_sub(RING_ZONES)?;
        let zone_slots = capacity_blocks / NODE_BLOCKS as u32;
        let slots = u32::try_from(zones * u64::from(zone_slots)).ok()?;
        let image_blocks = image_blocks(superblock, slots);
        let zone_records = u64::from(capacity_blocks) / (image_blocks + 1);
        (zones >= 2 && zone_slots >= ZONE_SLOTS_MIN && zone_records >= 2).then_some(Layout {
            image_blocks: u32::try_from(image_blocks).ok()?,
            nodes: Block(RING_ZONES * zone_blocks),
            slots,
            in_order: Some(InOrder {
                zone_blocks,
                capacity_blocks,
                zone_slots,
                zone_records,
            }),
            mirror_blocks: superblock.mirror_blocks,
        })
    }

    /// Distance of the two copies of everything.
    pub fn mirror_blocks(&self) -> u64 {
        self.mirror_blocks
    }

    /// Where a root record's image is: one of two places in turn, or in front of the record.
    pub fn image(&self, root_seq: u64) -> Block {
        let Some(ring) = self.in_order else {
            return Block(1 + ROOT_SLOTS + root_seq % 2 * u64::from(self.image_blocks));
        };
        let zone = 1 + root_seq / ring.zone_records % 2;
        Block(zone * ring.zone_blocks + root_seq % ring.zone_records * self.record_blocks())
    }

    /// Where a root record is.
    pub fn root(&self, root_seq: u64) -> Block {
        match self.in_order {
            None => Block(1 + root_seq % ROOT_SLOTS),
            Some(_) => self.image(root_seq) + u64::from(self.image_blocks),
        }
    }

    fn record_blocks(&self) -> u64 {
        u64::from(self.image_blocks) + 1
    }

    /// The number of the first root record.
    pub fn first_root(&self) -> u64 {
        self.in_order.map_or(1, |ring| ring.zone_records)
    }

    /// Where a slot is.
    pub fn block_of(&self, slot: u32) -> Block {
        let (zone, slot, zone_blocks) = match self.in_order {
            None => (0, slot, 0),
            Some(order) => (
                slot / order.zone_slots,
                slot % order.zone_slots,
                order.zone_blocks,
            ),
        };
        self.nodes + u64::from(zone) * zone_blocks + u64::from(slot) * NODE_BLOCKS
    }

    /// The slot at a block, if one begins there.
    pub fn slot_at(&self, at: Block) -> Option<u32> {
        let distance = at.0.checked_sub(self.nodes.0)?;
        let slot = match self.in_order {
            None => distance / NODE_BLOCKS,
            Some(order) => {
                let slot = distance % order.zone_blocks / NODE_BLOCKS;
                if slot >= u64::from(order.zone_slots) {
                    return None;
                }
                distance / order.zone_blocks * u64::from(order.zone_slots) + slot
            }
        };
        let slot = u32::try_from(slot).ok().filter(|slot| *slot < self.slots)?;
        (self.block_of(slot) == at).then_some(slot)
    }

    /// Writes whole blocks of reserved zones; in order, they lie in one zone, which is empty before its first block.
    pub fn write<D: ZonedDevice>(&self, disk: &mut Disk<D>, at: Block, data: &[u8]) -> Result {
        if self.in_order.is_none() {
            return disk.write_random(at, data);
        }
        let (zone, block) = disk.zone_at(at);
        if block == 0 && disk.write_pointer(zone)? != 0 {
            disk.reset(zone)?;
        }
        disk.append(zone, block, data)
    }

    /// No more is written into the zone of a block, or of its mirror: it need not stay open.
    pub fn close<D: ZonedDevice>(&self, disk: &mut Disk<D>, at: Block) -> Result {
        let Some(order) = self.in_order else {
            return Ok(());
        };
        for distance in [0, self.mirror_blocks] {
            let (zone, _) = disk.zone_at(at + distance);
            let pointer = disk.write_pointer(zone)?;
            if pointer != 0 && pointer != order.capacity_blocks {
                disk.finish(zone)?;
            }
        }
        Ok(())
    }

    /// A root record is durable. If it is its zone's first, the other zone of the ring is not written any more.
    pub fn settle<D: ZonedDevice>(&self, disk: &mut Disk<D>, root_seq: u64) -> Result {
        match self.in_order {
            Some(ring) if root_seq % ring.zone_records == 0 => {
                let other = root_seq.saturating_add(ring.zone_records);
                self.close(disk, self.image(other))
            }
            _ => Ok(()),
        }
    }

    /// The number of the root record behind the newest: the next one; or, where the ring does not end with the newest in
    /// both copies, the first of the other zone (INV-S14, R24).
    pub fn root_behind<D: ZonedDevice>(&self, disk: &Disk<D>, newest: u64) -> Result<u64> {
        let next = newest.saturating_add(1);
        let Some(ring) = self.in_order else {
            return Ok(next);
        };
        let end = (newest % ring.zone_records + 1) * self.record_blocks();
        for distance in [0, self.mirror_blocks] {
            let (zone, _) = disk.zone_at(self.image(newest) + distance);
            if u64::from(disk.write_pointer(zone)?) != end {
                return Ok((newest / ring.zone_records)
                    .saturating_add(1)
                    .saturating_mul(ring.zone_records));
            }
        }
        Ok(next)
    }

    /// The zone of the ring for a record, 0 or 1.
    pub fn ring_zone(&self, number: u64) -> Option<u64> {
        Some(number / self.in_order?.zone_records % 2)
    }

    /// Whether the ring's write pointers say that a record behind the newest was written, twice (R26). `has_record` says
    /// whether a record was found in one of the two zones.
    pub fn has_lost_record<D: ZonedDevice>(
        &self,
        disk: &Disk<D>,
        newest: u64,
        has_record: impl Fn(u64) -> bool,
    ) -> Result<bool> {
        let Some(ring) = self.in_order else {
            return Ok(false);
        };
        let mut written = [u64::MAX; 2];
        for (zone, written) in (0..).zip(&mut written) {
            for distance in [0, self.mirror_blocks] {
                let (number, _) = disk.zone_at(self.image(zone * ring.zone_records) + distance);
                let whole = u64::from(disk.write_pointer(number)?) / self.record_blocks();
                *written = (*written).min(whole.min(ring.zone_records));
            }
        }
        let zone = newest / ring.zone_records % 2;
        let other = 1 - zone;
        // The other zone is older if anything is found in it, or if it was declared full.
        let is_newer = (1..ring.zone_records).contains(&written[other as usize]);
        let behind = written[zone as usize] > newest % ring.zone_records + 1;
        Ok(behind || is_newer && !has_record(other))
    }

    /// Runs of blocks where root records may be: copy, first block, blocks.
    pub fn root_places<D: ZonedDevice>(
        &self,
        disk: &Disk<D>,
    ) -> Result<Vec<(usize, Block, usize)>> {
        let mut places = Vec::new();
        for (copy, distance) in [0, self.mirror_blocks].into_iter().enumerate() {
            let Some(ring) = self.in_order else {
                places.push((copy, self.root(0) + distance, ROOT_SLOTS as usize));
                continue;
            };
            for zone in 0..2 {
                let first = zone * ring.zone_records;
                let (number, _) = disk.zone_at(self.image(first) + distance);
                let whole = u64::from(disk.write_pointer(number)?) / self.record_blocks();
                let whole = whole.min(ring.zone_records);
                let near = whole.saturating_sub(LOOK_BACK)..whole;
                places.extend(near.map(|index| (copy, self.root(first + index) + distance, 1)));
            }
        }
        Ok(places)
    }
}

fn image_blocks(superblock: &Superblock, slots: u32) -> u64 {
    let table = superblock.zones as usize * ZONE_ENTRY_BYTES;
    (table + map_bytes(slots)).div_ceil(BLOCK) as u64
}

/// The refusal of a disk whose zones do not suit the superblock.
pub(crate) fn suits<D: ZonedDevice>(disk: &Disk<D>, superblock: &Superblock) -> Result<Layout> {
    let geometry = disk.geometry();
    let is_other = match superblock.is_in_order() {
        true => geometry.conventional > 1 || !disk.keeps_write_pointers(),
        false => superblock.random_zones != geometry.conventional,
    };
    if is_other
        || superblock.zones > geometry.zones
        || superblock.zone_blocks != geometry.zone_blocks
    {
        return Err(Error::corrupt(
            "the superblock",
            "it is of a device with other zones",
        ));
    }
    Layout::of(superblock, geometry.capacity_blocks)
        .ok_or_else(|| Error::corrupt("the superblock", "its reserved zones are too small"))
}
