// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a drive remembers while it is switched off, apart from the contents.

use crate::profile::{Profile, SBlocks, Translation};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use zoned::{BandId, Block, BlockRange, ZoneId, ZoneState};

/// The first section of a drive file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The drive's model.
    pub profile: Profile,
    /// Of this one drive: what differs between two of a model.
    pub seed: u64,
    /// What the translation layer keeps on the platters.
    pub translation: SavedTranslation,
}

/// What a translation layer keeps on the platters, one variant for each kind that keeps something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum SavedTranslation {
    /// Nothing was ever written, or there is nothing to know.
    #[default]
    Nothing,
    /// [`StaticMapping`](crate::translation::StaticMapping).
    Static(SavedStatic),
    /// [`HostManaged`](crate::translation::HostManaged) and [`Enforcing`](crate::translation::Enforcing): the zones that
    /// are not as new.
    Zones(Vec<SavedZone>),
    /// [`HostAware`](crate::translation::HostAware).
    HostAware(SavedHostAware),
    /// [`SBlocks`](crate::translation::SBlocks).
    SBlocks(SavedSBlocks),
}

/// The zones of a host-aware disk that are not as new, and its media cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedHostAware {
    /// The zones.
    pub zones: Vec<SavedZone>,
    /// The media cache.
    pub cache: SavedStatic,
}

/// What an S-block drive keeps: whatever is not as new.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedSBlocks {
    /// Blocks ever appended to each section's exception buffer.
    pub log_heads: Vec<u64>,
    /// Where s-blocks are.
    pub slots: Vec<SavedSlots>,
    /// S-blocks that are being written to another slot.
    pub open: Vec<SavedOpen>,
    /// What the exception buffers hold.
    pub dirty: Vec<SavedDirty>,
}

/// S-blocks in a row that lie in slots in a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedSlots {
    /// The first s-block.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// The first one's slot in its section.
    pub slot: u32,
    /// Which 64ths of each of them hold data.
    pub live: u64,
}

/// A half-written s-block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedOpen {
    /// Which.
    pub s_block: u32,
    /// Where it is written.
    pub slot: u32,
    /// Blocks of it that are there.
    pub blocks: u64,
}

/// An s-block with exceptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedDirty {
    /// Which.
    pub s_block: u32,
    /// Where its section's log was when it became dirty.
    pub since: u64,
    /// Its exceptions by address.
    pub entries: Vec<SavedEntry>,
}

/// A zone that was used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedZone {
    /// Which.
    pub zone: ZoneId,
    /// Its condition. No zone is open after power-on.
    pub state: ZoneState,
    /// Sectors below the write pointer.
    pub written_sectors: u64,
}

/// The persistent cache's map and what is known of the bands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedStatic {
    /// Blocks ever appended to the log.
    pub log_head: u64,
    /// The map.
    pub entries: Vec<SavedEntry>,
    /// What was ever written in place.
    pub written: Vec<BlockRange>,
    /// Bands that have to be rewritten from some block on.
    pub tails: Vec<SavedTail>,
}

/// An extent in the persistent cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedEntry {
    /// First block.
    pub start: Block,
    /// The block after the last.
    pub end: Block,
    /// First data block in the log.
    pub place: u64,
    /// Classes of its writes, a bit each.
    pub classes: u8,
}

/// Where a run stopped in a band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedTail {
    /// The band.
    pub band: BandId,
    /// First block behind the run.
    pub start: Block,
    /// The log's head at that time.
    pub order: u64,
    /// Classes of the run, a bit each.
    pub classes: u8,
}

impl SavedSBlocks {
    /// The first `blocks` blocks were written some time ago and lie in order.
    pub fn written(profile: &SBlocks, blocks: u64) -> Self {
        let s_blocks = blocks.div_ceil(profile.s_block_blocks) as u32;
        let slots = (0..s_blocks)
            .step_by(profile.section_s_blocks as usize)
            .map(|first| SavedSlots {
                first,
                count: profile.section_s_blocks.min(s_blocks - first),
                slot: 0,
                live: u64::MAX,
            })
            .collect();
        SavedSBlocks {
            slots,
            ..SavedSBlocks::default()
        }
    }
}

impl State {
    /// A new drive.
    pub fn new(profile: Profile, seed: u64) -> Self {
        State {
            profile,
            seed,
            translation: SavedTranslation::default(),
        }
    }

    /// A drive on which every block was written before, as on the papers' drives.
    pub fn used(profile: Profile, seed: u64) -> Self {
        let all = BlockRange::new(Block(0), Block(profile.capacity_blocks()));
        let translation = match &profile.translation {
            Translation::StaticMapping(_) => SavedTranslation::Static(SavedStatic {
                written: alloc::vec![all],
                ..SavedStatic::default()
            }),
            Translation::SBlocks(s_blocks) => SavedTranslation::SBlocks(SavedSBlocks::written(
                s_blocks,
                profile.capacity_blocks(),
            )),
            // Of a zoned disk the host knows what was written, and mkfs resets it.
            _ => SavedTranslation::Nothing,
        };
        State {
            profile,
            seed,
            translation,
        }
    }

    /// As in the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a state is made of numbers, lists and strings")
    }

    /// From the file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Box<Self>, String> {
        postcard::from_bytes(bytes)
            .map(Box::new)
            .map_err(|why| format!("{why}"))
    }
}
