// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root record: where recovery starts. Sixteen slots, used in turn, each with a mirror; the newest valid one counts.

use super::{is_sealed, seal, Damage, Pointer, Reader, Uuid, Writer, BLOCK, POINTER_BYTES};
use zoned::{Block, ZoneId};

const MAGIC: &[u8; 8] = b"SAFSRT01";
const CRC_AT: usize = 8;
const CLEAN: u32 = 1;

/// Slots for root records; record `n` is in slot `n` modulo this.
pub const ROOT_SLOTS: u64 = 16;

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Zone of the next log segment.
    pub zone: ZoneId,
    /// Its block in the zone.
    pub block: u32,
    /// That zone's epoch.
    pub epoch: u64,
    /// The next log segment's number.
    pub log_seq: u64,
}

/// A run of blocks with one checksum: the zone table and the map of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// First block.
    pub at: Block,
    /// Blocks.
    pub blocks: u32,
    /// CRC-32C of all of them.
    pub crc: u32,
}

/// See docs/reference/safs-format.md, 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Names the file system.
    pub uuid: Uuid,
    /// The file system was unmounted with this record: nothing is in the log behind it.
    pub clean: bool,
    /// Counts root records.
    pub root_seq: u64,
    /// Counts mounts. Part of every epoch and every segment header.
    pub mount_gen: u64,
    /// The catalog's root; none if the catalog is empty.
    pub catalog: Option<Pointer>,
    /// Where the log goes on.
    pub log: LogPosition,
    /// The last segment's number, of the log or not.
    pub seq: u64,
    /// Zone table and map of nodes.
    pub image: Image,
    /// The next inode number; numbers are never used again.
    pub next_ino: u64,
    /// Inodes.
    pub inodes: u64,
    /// When it was written, nanoseconds since 1970.
    pub time_ns: i64,
}

impl Root {
    /// One block.
    pub fn encode(&self) -> Vec<u8> {
        let catalog = self.catalog.map_or([0; POINTER_BYTES], Pointer::encode);
        let mut block = Writer::new()
            .bytes(MAGIC)
            .u32(0)
            .u32(if self.clean { CLEAN } else { 0 })
            .bytes(&self.uuid)
            .u64(self.root_seq)
            .u64(self.mount_gen)
            .bytes(&catalog)
            .u32(self.log.zone.0)
            .u32(self.log.block)
            .u64(self.log.epoch)
            .u64(self.log.log_seq)
            .u64(self.seq)
            .u64(self.image.at.0)
            .u32(self.image.blocks)
            .u32(self.image.crc)
            .u64(self.next_ino)
            .u64(self.inodes)
            .i64(self.time_ns)
            .padded(BLOCK);
        seal(&mut block, CRC_AT);
        block
    }

    /// Checks a block and reads it.
    pub fn decode(block: &[u8], uuid: &Uuid) -> Result<Self, Damage> {
        let mut from = Reader::new(block);
        if from.bytes(8)? != MAGIC {
            return Err(Damage("no root record"));
        }
        if block.len() != BLOCK || !is_sealed(block, CRC_AT) {
            return Err(Damage("its checksum is wrong"));
        }
        from.u32()?;
        let flags = from.u32()?;
        if from.bytes(16)? != uuid {
            return Err(Damage("it belongs to another file system"));
        }
        let root = Root {
            uuid: *uuid,
            clean: flags & CLEAN != 0,
            root_seq: from.u64()?,
            mount_gen: from.u64()?,
            catalog: Pointer::decode(&from.array()?),
            log: LogPosition {
                zone: ZoneId(from.u32()?),
                block: from.u32()?,
                epoch: from.u64()?,
                log_seq: from.u64()?,
            },
            seq: from.u64()?,
            image: Image {
                at: Block(from.u64()?),
                blocks: from.u32()?,
                crc: from.u32()?,
            },
            next_ino: from.u64()?,
            inodes: from.u64()?,
            time_ns: from.i64()?,
        };
        let counts = root.root_seq | root.mount_gen | root.log.log_seq | root.seq;
        if (counts | root.next_ino | root.inodes) > super::COUNT_MAX {
            return Err(Damage("one of its numbers is too large"));
        }
        if root.next_ino <= super::ROOT_INO.0 {
            return Err(Damage("the next inode's number is in use"));
        }
        Ok(root)
    }
}
