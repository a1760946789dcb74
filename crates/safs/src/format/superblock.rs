// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock: what never changes after mkfs. Block 0 and its mirror.

use super::{is_sealed, seal, Damage, Reader, Uuid, Writer, BLOCK};

const MAGIC: &[u8; 8] = b"SAFSSB01";
const VERSION: u32 = 1;
const CRC_AT: usize = 8;

/// See docs/reference/safs-format.md, 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names this file system.
    pub uuid: Uuid,
    /// Features without which the file system cannot be read: that of `is_in_order`.
    pub incompatible: u64,
    /// Features without which it cannot be written; none is known yet.
    pub read_only_compatible: u64,
    /// Zones of the device.
    pub zones: u32,
    /// Blocks from one zone to the next.
    pub zone_blocks: u32,
    /// Zones, from zone 0, that hold the file system's own structures. Their blocks may be written in any order, unless
    /// `is_in_order` says otherwise.
    pub random_zones: u32,
    /// Distance of a structure of the random zones from its second copy.
    pub mirror_blocks: u64,
    /// What the user calls it, UTF-8 with zeros behind.
    pub label: [u8; 64],
    /// When it was made, nanoseconds since 1970.
    pub made_ns: i64,
}

impl Superblock {
    /// The feature that reserved zones are written in order.
    pub const IN_ORDER: u64 = 1;

    /// Whether the reserved zones, too, are written in order, because the disk has no conventional ones.
    pub fn is_in_order(&self) -> bool {
        self.incompatible & Superblock::IN_ORDER != 0
    }

    /// One block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Writer::new()
            .bytes(MAGIC)
            .u32(0)
            .u32(VERSION)
            .bytes(&self.uuid)
            .u64(self.incompatible)
            .u64(self.read_only_compatible)
            .u32(self.zones)
            .u32(self.zone_blocks)
            .u32(self.random_zones)
            .u32(super::NODE_BYTES as u32 / BLOCK as u32)
            .u64(self.mirror_blocks)
            .bytes(&self.label)
            .i64(self.made_ns)
            .padded(BLOCK);
        seal(&mut block, CRC_AT);
        block
    }

    /// Checks a block and reads it.
    pub fn decode(block: &[u8]) -> Result<Self, Damage> {
        let mut from = Reader::new(block);
        if from.bytes(8)? != MAGIC {
            return Err(Damage("no SAFS superblock"));
        }
        if block.len() != BLOCK || !is_sealed(block, CRC_AT) {
            return Err(Damage("its checksum is wrong"));
        }
        from.u32()?;
        if from.u32()? != VERSION {
            return Err(Damage("its version is not known"));
        }
        let found = Superblock {
            uuid: from.array()?,
            incompatible: from.u64()?,
            read_only_compatible: from.u64()?,
            zones: from.u32()?,
            zone_blocks: from.u32()?,
            random_zones: from.u32()?,
            mirror_blocks: {
                if from.u32()? as usize * BLOCK != super::NODE_BYTES {
                    return Err(Damage("its nodes have another size"));
                }
                from.u64()?
            },
            label: from.array()?,
            made_ns: from.i64()?,
        };
        if found.incompatible & !Superblock::IN_ORDER != 0 {
            return Err(Damage("it has features that this version does not know"));
        }
        let half = u64::from(found.random_zones / 2) * u64::from(found.zone_blocks);
        if found.zone_blocks < 16
            || found.random_zones < 2
            || found.random_zones >= found.zones
            || found.mirror_blocks != half
        {
            return Err(Damage("its geometry contradicts itself"));
        }
        Ok(found)
    }
}
