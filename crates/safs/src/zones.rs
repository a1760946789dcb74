// SPDX-License-Identifier: MIT OR Apache-2.0
//! The zone table: what each zone is for, how far it is written, what lives in it.
//!
//! INV-S3: an epoch never repeats; it is made of the mount's number and a counter. INV-S12: `live_bytes` of a zone is the
//! sum of the extents that lie in it. INV-S15: no zone is written beyond its end, and the first ones are random-write zones
//! and no others, whatever an image or a segment says.

use crate::error::{Error, Result};
use crate::format::{Ino, ZoneEntry, ZoneKind, ZoneStage, ZONE_ENTRY_BYTES};
use std::collections::BTreeSet;
use zoned::ZoneId;

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct Zones {
    entries: Vec<ZoneEntry>,
    random_zones: u32,
    /// Blocks that one zone holds.
    capacity_blocks: u32,
    free: BTreeSet<u32>,
    mount_gen: u64,
    opened: u32,
    next: u32,
    /// Zones of files, partly written, that nobody writes now.
    pub left: Vec<ZoneId>,
    /// The zone that takes what compaction finds of small files.
    pub shared: Option<ZoneId>,
    /// Bytes that ceased to live in any zone since the mount.
    pub died: u64,
}

impl Zones {
    /// A fresh table: random-write zones, and the rest free. Each holds `capacity_blocks`.
    pub fn new(zones: u32, random_zones: u32, capacity_blocks: u32) -> Self {
        let entry = |zone| {
            if zone < random_zones {
                ZoneEntry::RANDOM
            } else {
                ZoneEntry::FREE
            }
        };
        Zones::of(
            (0..zones).map(entry).collect(),
            random_zones,
            capacity_blocks,
        )
    }

    fn of(entries: Vec<ZoneEntry>, random_zones: u32, capacity_blocks: u32) -> Self {
        let mut table = Zones {
            entries,
            random_zones,
            capacity_blocks,
            free: BTreeSet::new(),
            mount_gen: 1,
            opened: 0,
            next: 0,
            left: Vec::new(),
            shared: None,
            died: 0,
        };
        table.count_free();
        table
    }

    /// Reads the table of an image. Of its zones, which hold `capacity_blocks` each, the first `random_zones` are
    /// random-write zones.
    pub fn decode(bytes: &[u8], random_zones: u32, capacity_blocks: u32) -> Result<Self> {
        let entries = bytes.chunks_exact(ZONE_ENTRY_BYTES).map(ZoneEntry::decode);
        let entries = entries.collect::<std::result::Result<_, _>>();
        let damaged = |reason| Error::corrupt("the zone table", reason);
        let table = Zones::of(entries.map_err(damaged)?, random_zones, capacity_blocks);
        for (zone, entry) in table.iter() {
            table.check(zone, entry)?;
        }
        Ok(table)
    }

    /// INV-S15.
    fn check(&self, zone: ZoneId, entry: &ZoneEntry) -> Result {
        let wrong = if entry.write_blocks > self.capacity_blocks {
            "it ends before the place to which it is written"
        } else if (zone.0 < self.random_zones) != (entry.kind == ZoneKind::Random) {
            "it cannot be of this kind"
        } else if entry.kind == ZoneKind::Random && entry.stage != ZoneStage::Open {
            "a random-write zone is always open"
        } else {
            return Ok(());
        };
        Err(Error::corrupt(format!("zone {}", zone.0), wrong))
    }

    /// The table's bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.entries.iter().flat_map(ZoneEntry::encode).collect()
    }

    fn count_free(&mut self) {
        let is_free = |zone: &u32| self.entries[*zone as usize].stage == ZoneStage::Free;
        self.free = (0..self.count()).filter(is_free).collect();
    }

    /// From now on epochs belong to this mount.
    pub fn begin(&mut self, mount_gen: u64) {
        self.mount_gen = mount_gen;
        self.opened = 0;
    }

    /// Zones.
    pub fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Free zones.
    pub fn free(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// A zone's entry; numbers come from the disk, so there may be no such zone.
    pub fn get(&self, zone: ZoneId) -> Result<&ZoneEntry> {
        self.entries
            .get(zone.0 as usize)
            .ok_or_else(|| Error::corrupt(format!("zone {}", zone.0), "there is no such zone"))
    }

    /// Changes an entry.
    pub fn change(&mut self, zone: ZoneId, change: impl FnOnce(&mut ZoneEntry)) -> Result {
        let mut entry = *self.get(zone)?;
        change(&mut entry);
        self.check(zone, &entry)?;
        self.entries[zone.0 as usize] = entry;
        if entry.stage == ZoneStage::Free {
            self.free.insert(zone.0);
        } else {
            self.free.remove(&zone.0);
        }
        Ok(())
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &ZoneEntry)> {
        (0..).map(ZoneId).zip(&self.entries)
    }

    /// Takes the next free zone behind the last that was taken.
    pub fn take(&mut self, kind: ZoneKind, owner: Ino) -> Option<ZoneId> {
        let behind = self.free.range(self.next..).next();
        let zone = *behind.or_else(|| self.free.first())?;
        self.free.remove(&zone);
        self.next = zone + 1;
        self.opened += 1;
        self.entries[zone as usize] = ZoneEntry {
            epoch: self.mount_gen << 32 | u64::from(self.opened),
            owner,
            stage: ZoneStage::Open,
            kind,
            ..ZoneEntry::FREE
        };
        Some(ZoneId(zone))
    }

    /// Counts bytes that begin or cease to live in a zone.
    pub fn live(&mut self, zone: ZoneId, delta: i64) -> Result {
        let live = i64::from(self.get(zone)?.live_bytes) + delta;
        let live = u32::try_from(live).map_err(|_| {
            Error::corrupt(
                format!("zone {}", zone.0),
                "more bytes cease to live in it than did",
            )
        })?;
        self.entries[zone.0 as usize].live_bytes = live;
        self.died += delta.min(0).unsigned_abs();
        Ok(())
    }

    /// Zones that are open for writing, random-write ones apart.
    pub fn open(&self) -> impl Iterator<Item = (ZoneId, &ZoneEntry)> {
        self.iter()
            .filter(|(_, entry)| entry.stage == ZoneStage::Open && entry.kind != ZoneKind::Random)
    }

    /// Bytes that live in all zones.
    pub fn live_total(&self) -> u64 {
        self.entries
            .iter()
            .map(|entry| u64::from(entry.live_bytes))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zone_is_written_beyond_its_end() {
        let mut zones = Zones::new(3, 1, 64);
        let whole = |entry: &mut ZoneEntry| entry.write_blocks = 64;
        zones.change(ZoneId(1), whole).unwrap();
        assert!(Zones::decode(&zones.encode(), 1, 64).is_ok());
        assert!(Zones::decode(&zones.encode(), 1, 63).is_err());
        let beyond = zones.change(ZoneId(1), |entry| entry.write_blocks += 1);
        assert!(beyond.is_err());
        assert_eq!(zones.get(ZoneId(1)).unwrap().write_blocks, 64);
    }

    #[test]
    fn a_random_write_zone_is_nothing_else() {
        let mut zones = Zones::new(3, 1, 64);
        assert!(Zones::decode(&zones.encode(), 2, 64).is_err());
        assert!(Zones::decode(&zones.encode(), 0, 64).is_err());
        let freed = zones.change(ZoneId(0), |entry| *entry = ZoneEntry::FREE);
        assert!(freed.is_err());
        let freed = zones.change(ZoneId(0), |entry| entry.stage = ZoneStage::Free);
        assert!(freed.is_err());
    }
}
