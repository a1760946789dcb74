// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room: how it is made, and what has to be done from time to time. What may be accepted says the budget.

use crate::cleaning::{Emptied, PART_BYTES};
use crate::error::{unless_full, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::{ZoneId, ZonedDevice};

/// A zone more than this full of live bytes, in percent, is not worth moving.
const LIVE_MAX_PERCENT: u64 = 95;
/// The oldest zone is the victim unless another is emptier by so many points.
const EMPTIER_PERCENT: u64 = 25;
/// Files of which something waits, at most: each takes some hundred bytes beside its own.
const WAITING_FILES_MAX: u64 = 16_384;
/// Zones emptied for one request. Twenty of the fullest that are worth moving give one.
const ROOM_ROUNDS: usize = 64;
/// Room below which some is made before anyone asks: one zone, which the data that move may open, and so many blocks for the log
/// meanwhile, another zone at most. With less, nothing was left in the middle of a zone, and all the rest of it had to
/// move in one call. What moves early may die next: with two zones of 256 MiB ahead, 3 % more moved (e30, application 2 where
/// the log is first).
const LOW_BLOCKS: u64 = (64 << 20) / BLOCK as u64;
/// So much has to be owed before a part is emptied.
const OWED_BYTES: u64 = 16 << 20;
/// What the next write may need: the kernel's largest, and its headers.
const NEXT_WRITE_BLOCKS: u64 = 512;
/// So much moves for what was accepted: a zone that is worth moving gives a twentieth at least, less its headers.
const MOVES_FOR_ACCEPTED: u64 = 32;
/// The part of a zone that has to be written, or to die, before room is looked for again where there was none.
const RETRY_PART: u64 = 4;

/// What `statfs` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Blocks that data can use.
    pub blocks: u64,
    /// Blocks that are free for them.
    pub free: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made, about.
    pub inodes_free: u64,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Zones for the log and for data.
    pub(crate) fn sequential_zones(&self) -> u32 {
        self.zones.count() - self.superblock.random_zones
    }

    fn zone_bytes(&self) -> u64 {
        u64::from(self.disk.geometry().capacity_blocks) * BLOCK as u64
    }

    /// What has to be done from time to time: before a call that changes something. That it failed is no answer to the
    /// call; if nothing can be written any more, the call finds that itself.
    pub(crate) fn keep_house(&mut self) {
        if self.disk.refusal().is_none() {
            let kept = self.housekeeping();
            self.note_trouble(kept);
        }
    }

    /// Remembers why something failed that nobody asked for.
    pub(crate) fn note_trouble(&mut self, result: Result) {
        if let Err(error) = result {
            self.counters.troubles += 1;
            self.policy.trouble = Some(error.to_string());
        }
    }

    fn housekeeping(&mut self) -> Result {
        if self.staged.waiting.bytes > self.options.buffer_bytes {
            self.push_ready()?;
        }
        if self.staged.waiting.bytes > self.options.buffer_bytes {
            // What is left waits behind gaps.
            self.sync()?;
        }
        if self.staged.waiting.files > WAITING_FILES_MAX {
            self.sync()?;
        }
        if self.log.pending_bytes > self.options.overlay_bytes {
            self.push(&[])?;
        }
        let is_long = self.log.tail_ns > self.options.recovery_budget_ns;
        if is_long
            || self.has_many_leaves()
            || self.catalog.changed_bytes() > self.options.overlay_bytes
        {
            self.root_commit(false)?;
        }
        self.make_room_in_advance()
    }

    /// Parts of zones are emptied before anyone lacks their room, so that no writer waits for a whole one: as much as what was
    /// accepted pays for, a part for each call, and more only for a call that writes much. Deletions pay nothing, because what
    /// is moved while others die may die next; but when the next write would wait, they pay as much as died.
    fn make_room_in_advance(&mut self) -> Result {
        let accepted = self.counters.accepted_bytes;
        // What moved died where it was; what failed to move is counted, and did not die.
        let died = self.zones.died.saturating_sub(self.counters.moved_bytes);
        let since = accepted - std::mem::replace(&mut self.policy.accepted_before, accepted);
        let died_since = died.saturating_sub(std::mem::replace(&mut self.policy.died_before, died));
        if !self.is_low() {
            self.policy.owed_bytes = 0;
            return Ok(());
        }
        self.policy.owed_bytes += since * MOVES_FOR_ACCEPTED;
        if self.log_blocks_left() < NEXT_WRITE_BLOCKS {
            self.policy.owed_bytes += died_since;
        }
        let least = OWED_BYTES.min(self.zone_bytes());
        for _ in 0..=since * MOVES_FOR_ACCEPTED / PART_BYTES {
            let changed = accepted + self.zones.died;
            if self.policy.owed_bytes < least || changed < self.policy.room_retry_bytes {
                break;
            }
            let before = self.counters.moved_bytes;
            if !self.make_room(false)? {
                self.policy.room_retry_bytes = changed + self.zone_bytes() / RETRY_PART;
                self.policy.owed_bytes = 0;
            }
            let moved = self.counters.moved_bytes - before;
            self.policy.owed_bytes = self.policy.owed_bytes.saturating_sub(moved);
        }
        Ok(())
    }

    /// Whether room is made before anyone asks: little is left beside what waits and the reserve.
    fn is_low(&self) -> bool {
        let zone = u64::from(self.disk.geometry().capacity_blocks);
        self.log_blocks_left() < zone + LOW_BLOCKS.min(zone)
    }

    /// Makes room until there is enough, if there will be.
    pub(crate) fn make_room_until(&mut self, is_enough: impl Fn(&Self) -> bool) -> Result<bool> {
        for _ in 0..ROOM_ROUNDS {
            if is_enough(self) {
                return Ok(true);
            }
            if !self.make_room(true)? {
                break;
            }
        }
        Ok(is_enough(self))
    }

    /// Makes room: first what is empty, then what compaction can empty, a whole zone or a part. Says whether it did.
    fn make_room(&mut self, is_whole: bool) -> Result<bool> {
        if self.disk.refusal().is_some() {
            return Ok(false);
        }
        let free = self.zones.free();
        self.retain();
        self.seal_empty()?;
        if self.zones.iter().any(|(_, entry)| is_empty(entry)) {
            self.root_commit(false)?;
            if self.zones.free() > free {
                return Ok(true);
            }
        }
        let cleaning = match (self.begun(None)?, self.victim(true)) {
            (None, Some(victim)) => Some(self.begin(victim)?),
            (begun, _) => begun,
        };
        if let Some(cleaning) = cleaning {
            // What compaction opened for its outputs has room for the next zones' data.
            match self.empty(cleaning, is_whole) {
                Ok(Emptied::Part | Emptied::All { gained: true }) => return Ok(true),
                Ok(Emptied::All { gained: false }) => {}
                full => unless_full(full.map(drop))?,
            }
        }
        // What nobody writes may be a victim, too, if more is dead in it than its rest is worth. That ends: nothing dies
        // here, and what compaction writes is as dense as it gets.
        let least = u64::from(self.disk.geometry().capacity_blocks) * (100 - LIVE_MAX_PERCENT);
        let is_worth = |zone: &ZoneId| {
            self.zones.get(*zone).is_ok_and(|entry| {
                let dense = self.dense_blocks(u64::from(entry.live_bytes));
                u64::from(entry.write_blocks).saturating_sub(dense) * 100 >= least
            })
        };
        match self.zones.left.iter().position(is_worth) {
            Some(at) => {
                let zone = self.zones.left.remove(at);
                self.seal_logged(zone).map(|()| true)
            }
            None => Ok(false),
        }
    }

    /// Blocks that so many bytes take where compaction writes them, with both headers of each segment.
    fn dense_blocks(&self, bytes: u64) -> u64 {
        let payload = bytes.div_ceil(BLOCK as u64);
        let segment = self.options.segment_blocks;
        let headers = 2 * u64::from(Header::blocks_for(0, segment as usize, 0));
        payload + headers * payload.div_ceil(u64::from(segment) - headers)
    }

    /// Zones that were left and hold nothing any more.
    fn seal_empty(&mut self) -> Result {
        let left = std::mem::take(&mut self.zones.left);
        let holds = |zone: &ZoneId| self.zones.get(*zone).is_ok_and(|zone| zone.live_bytes > 0);
        let (kept, empty): (Vec<ZoneId>, Vec<ZoneId>) = left.into_iter().partition(holds);
        self.zones.left = kept;
        empty
            .into_iter()
            .try_for_each(|zone| self.seal_logged(zone))
    }

    /// Blocks of free zones, and of those that were left half written.
    pub(crate) fn writable_blocks(&self) -> u64 {
        let capacity = self.disk.geometry().capacity_blocks;
        let left = self.zones.left.iter().chain(&self.zones.shared);
        let room = |zone: &ZoneId| {
            let entry = self.zones.get(*zone);
            entry.map_or(0, |entry| u64::from(capacity - entry.write_blocks))
        };
        u64::from(self.zones.free()) * u64::from(capacity) + left.map(room).sum::<u64>()
    }

    /// The zone that compaction takes next: the oldest, or, if room is short, one that is much emptier.
    pub(crate) fn victim(&self, is_short: bool) -> Option<ZoneId> {
        let percent = |entry: &ZoneEntry| u64::from(entry.live_bytes) * 100 / self.zone_bytes();
        // What lives in it takes less where compaction writes it: headers are a large part of a small zone.
        let most = u64::from(self.disk.geometry().capacity_blocks) * LIVE_MAX_PERCENT;
        let worth = self.zones.iter().filter(|(_, entry)| {
            let dense = self.dense_blocks(u64::from(entry.live_bytes));
            entry.stage == ZoneStage::Sealed && dense * 100 <= most
        });
        let worth: Vec<_> = worth.collect();
        let age = |entry: &ZoneEntry| (entry.sealed_at, entry.epoch);
        let oldest = worth.iter().min_by_key(|(_, entry)| age(entry))?;
        let emptiest = worth.iter().min_by_key(|(_, entry)| percent(entry))?;
        let is_better = percent(emptiest.1) + EMPTIER_PERCENT <= percent(oldest.1);
        Some(if is_short && is_better {
            emptiest.0
        } else {
            oldest.0
        })
    }

    /// Blocks and inodes, used and free.
    pub fn space(&self) -> Space {
        let usable = u64::from(self.sequential_zones()).saturating_sub(self.reserve_zones() + 2);
        let blocks = usable * u64::from(self.disk.geometry().capacity_blocks);
        let used = (self.zones.live_total() + self.staged.waiting.bytes).div_ceil(BLOCK as u64);
        Space {
            blocks,
            free: blocks.saturating_sub(used),
            inodes: self.inodes,
            inodes_free: self.inodes_left(),
        }
    }
}

fn is_empty(entry: &ZoneEntry) -> bool {
    entry.stage == ZoneStage::Sealed && entry.live_bytes == 0
}
