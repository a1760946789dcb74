// SPDX-License-Identifier: MIT OR Apache-2.0
//! The budget: what may be accepted (INV-S8, INV-S16).
//!
//! Three things run out: blocks of the log, zones, and slots for nodes. Before anything is accepted, `afford` asks whether it
//! fits beside what waits and the reserves, and makes room if it does not. What waits is charged while it waits, and no
//! longer: a file's bytes with the file (`Staging::charge`), batches with the log (`Log::pending`). Once pushed, bytes are in
//! zones and keys in the overlay, which are counted themselves.
//!
//! Deletions are never refused. After any root record there are slots for the next deletion (`Catalog::deletion_nodes`), and
//! batches for which the log is short go into a root record instead.

use crate::charge::{Charge, LOG_ROOM_MIN};
use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::ZonedDevice;

#[cfg(test)]
mod tests;

/// Zones that are left for compaction's outputs, and for the log's way past its next zone.
const RESERVE_ZONES: u64 = 4;
/// The same as a part of all zones.
const RESERVE_PART: u32 = 100;
/// Rounds of making room and of writing what waits, after which there is room or is none.
const ROUNDS: usize = 3;
/// Keys of a change of names or attributes, at most: an exchange of two names.
const KEYS_OF_A_CHANGE: u64 = 12;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// Data.
    Data(Charge),
    /// New names and attributes, or others.
    Change,
    /// Fewer: never refused.
    Deletion,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Refuses what does not fit, after having tried to make room; deletions are not refused.
    pub(crate) fn afford(&mut self, claim: Claim) -> Result {
        self.keep_house();
        self.writable()?;
        for _ in 0..ROUNDS {
            if self.has_blocks(claim) && self.has_nodes(claim) {
                return Ok(());
            }
            // What waits may need less than its charge, and costs nobody a zone's cleaning.
            let (waits, can_settle) = (self.staged.waiting.files > 0, self.catalog.can_settle());
            if waits {
                self.sync()?;
            }
            let has_room = self.make_room_until(|fs| fs.has_blocks(claim))?;
            if self.catalog.can_settle() && !(has_room && self.has_nodes(claim)) {
                self.root_commit(false)?;
            }
            if !waits && !can_settle {
                break;
            }
        }
        match claim {
            Claim::Deletion => Ok(()),
            _ if self.has_blocks(claim) && self.has_nodes(claim) => Ok(()),
            _ => Err(Error::NoSpace),
        }
    }

    /// How many of so many extents compaction may move before the next root record, which is written now if that helps.
    pub(crate) fn afford_moves(&mut self, extents: usize) -> Result<usize> {
        let fits = |fs: &Self, extents| fs.has_nodes_for(extents, true);
        if !fits(self, extents) && self.catalog.can_settle() {
            self.root_commit(false)?;
        }
        let mut most = extents;
        while most > 0 && !fits(self, most) {
            most /= 2;
        }
        match most {
            0 => Err(Error::NoSpace),
            most => Ok(most),
        }
    }

    fn has_nodes(&self, claim: Claim) -> bool {
        let keys = match claim {
            // One claim lies within the zones that are kept where slots are written in order.
            _ if self.catalog.nodes.reserve(true) > 0 => 0,
            Claim::Data(charge) => charge.keys(&self.options),
            Claim::Change | Claim::Deletion => KEYS_OF_A_CHANGE as usize,
        };
        self.has_nodes_for(keys, matches!(claim, Claim::Deletion))
    }

    /// Whether the next root record finds slots for what waits and so many keys more; and, unless these are of a deletion or
    /// of compaction, whether afterwards there are some for a deletion.
    fn has_nodes_for(&self, keys: usize, is_deletion: bool) -> bool {
        let keys = keys + self.staged.waiting.keys(&self.options);
        let nodes = &self.catalog.nodes;
        let needed = self.catalog.nodes_needed_with(keys);
        let growth = self.catalog.growth(keys);
        let is_left = nodes.room() >= growth.saturating_add(self.catalog.deletion_nodes(growth));
        nodes.free() >= needed.saturating_add(nodes.reserve(is_deletion))
            && (is_deletion || is_left)
    }

    /// Batches need no blocks: a root record takes them if the log is short.
    fn has_blocks(&self, claim: Claim) -> bool {
        let Claim::Data(charge) = claim else {
            return true;
        };
        let capacity = self.disk.geometry().capacity_blocks;
        self.log_blocks_left() >= charge.blocks(&self.options, capacity)
    }

    /// Blocks that the log can have beside what waits of files and the reserve.
    pub(crate) fn log_blocks_left(&self) -> u64 {
        let capacity = self.disk.geometry().capacity_blocks;
        let free = u64::from(self.zones.free()) + u64::from(self.log.next.is_some());
        let rest = capacity.saturating_sub(self.log.at.block + LOG_ROOM_MIN);
        let room =
            free.saturating_sub(self.reserve_zones()) * u64::from(capacity) + u64::from(rest);
        room.saturating_sub(self.staged.waiting.blocks(&self.options, capacity))
    }

    /// Zones that data never get.
    pub(crate) fn reserve_zones(&self) -> u64 {
        RESERVE_ZONES + u64::from(self.sequential_zones() / RESERVE_PART)
    }

    /// Inodes that could still be made, about: one with its two names takes about 300 bytes of nodes that are three quarters
    /// full.
    pub(crate) fn inodes_left(&self) -> u64 {
        let reserve = self.catalog.deletion_nodes(0);
        let room = self.catalog.nodes.room().saturating_sub(reserve);
        u64::from(room) * (NODE_BYTES as u64 * 3 / 4 / 300)
    }
}
