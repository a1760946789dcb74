// SPDX-License-Identifier: MIT OR Apache-2.0
//! An entry of the zone table.

use super::{Damage, Ino, Reader, Writer};

/// Bytes of an entry.
pub const ZONE_ENTRY_BYTES: usize = 32;

/// What may become of a zone next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneStage {
    /// Holds nothing; may be opened.
    Free,
    /// Being written.
    Open,
    /// Not written any more.
    Sealed,
    /// Holds nothing that counts; reset once the root record that says so is durable.
    Dying,
    /// The device will not write it any more; what lives in it can be read.
    ReadOnly,
    /// The device has lost it.
    Offline,
}

/// What a zone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// Nothing yet.
    None,
    /// Written in any order: superblock, root records, images, nodes.
    Random,
    /// The log.
    Log,
    /// One file's data.
    File,
    /// Data of several files.
    Shared,
}

/// See docs/reference/safs-format.md, 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneEntry {
    /// Tells this life of the zone from all others; 0 if it never was opened.
    pub epoch: u64,
    /// The file whose zone it is; 0 if it has several.
    pub owner: Ino,
    /// The next block to be written.
    pub write_blocks: u32,
    /// Bytes that extents of files point to.
    pub live_bytes: u32,
    /// Low bits of the number of the root record when it was sealed: its age.
    pub sealed_at: u32,
    /// What may become of it.
    pub stage: ZoneStage,
    /// What it is for.
    pub kind: ZoneKind,
}

const STAGES: [ZoneStage; 6] = [
    ZoneStage::Free,
    ZoneStage::Open,
    ZoneStage::Sealed,
    ZoneStage::Dying,
    ZoneStage::ReadOnly,
    ZoneStage::Offline,
];

const KINDS: [ZoneKind; 5] = [
    ZoneKind::None,
    ZoneKind::Random,
    ZoneKind::Log,
    ZoneKind::File,
    ZoneKind::Shared,
];

impl ZoneEntry {
    /// A zone that holds nothing.
    pub const FREE: ZoneEntry = ZoneEntry {
        epoch: 0,
        owner: Ino(0),
        write_blocks: 0,
        live_bytes: 0,
        sealed_at: 0,
        stage: ZoneStage::Free,
        kind: ZoneKind::None,
    };

    /// A random-write zone.
    pub const RANDOM: ZoneEntry = ZoneEntry {
        stage: ZoneStage::Open,
        kind: ZoneKind::Random,
        ..ZoneEntry::FREE
    };

    /// Its bytes.
    pub fn encode(&self) -> [u8; ZONE_ENTRY_BYTES] {
        let place = |found: Option<usize>| u8::try_from(found.unwrap_or(0)).unwrap_or(0);
        Writer::new()
            .u64(self.epoch)
            .u64(self.owner.0)
            .u32(self.write_blocks)
            .u32(self.live_bytes)
            .u32(self.sealed_at)
            .u8(place(STAGES.iter().position(|s| *s == self.stage)))
            .u8(place(KINDS.iter().position(|k| *k == self.kind)))
            .u16(0)
            .finish()
            .try_into()
            .expect("the fields are 32 bytes")
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut from = Reader::new(bytes);
        Ok(ZoneEntry {
            epoch: from.u64()?,
            owner: Ino(from.u64()?),
            write_blocks: from.u32()?,
            live_bytes: from.u32()?,
            sealed_at: from.u32()?,
            stage: *STAGES
                .get(usize::from(from.u8()?))
                .ok_or(Damage("a zone is in no known stage"))?,
            kind: *KINDS
                .get(usize::from(from.u8()?))
                .ok_or(Damage("a zone is of no known kind"))?,
        })
    }
}
