// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file's bytes that are not written yet, or only as a fragment.

use crate::charge::Charge;
use crate::format::{Extent, Ino, BLOCK};
use crate::readers::Readers;
use std::collections::BTreeMap;
use zoned::ZoneId;

/// From `base` on, which is a multiple of 4 KiB, all of the file's bytes are here; the first `logged` are in the log too.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Staging {
    pub base: u64,
    pub bytes: Vec<u8>,
    /// Bytes of the first block that a fragment holds.
    pub logged: usize,
    /// That fragment.
    pub tail: Option<Extent>,
    /// What was written behind a gap.
    pub gap: BTreeMap<u64, Vec<u8>>,
    pub mtime_ns: i64,
    /// When bytes were accepted last; `mtime_ns` may be what a program set.
    pub ctime_ns: i64,
    /// The zone that the file is written to past the log.
    pub stream: Option<ZoneId>,
    /// When the oldest byte that waits was accepted, or before.
    pub waits_since_ns: i64,
    /// What of the file lies behind `marked_end` was accepted at `marked_ns` or later.
    pub marked_ns: i64,
    pub marked_end: u64,
    /// Bytes accepted since the last fsync.
    pub since_sync: u64,
}

impl Staging {
    /// The file's next byte.
    pub fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// The file's size as those see it who read it now.
    pub fn visible(&self) -> u64 {
        let gap = self.gap.iter().next_back();
        let gap = gap.map_or(0, |(at, bytes)| at + bytes.len() as u64);
        self.end().max(gap)
    }

    /// Whole blocks.
    pub fn ready_blocks(&self) -> u32 {
        u32::try_from(self.bytes.len() / BLOCK).unwrap_or(u32::MAX)
    }

    /// Bytes behind the last whole block.
    pub fn tail_bytes(&self) -> usize {
        self.bytes.len() % BLOCK
    }

    /// Bytes that no segment holds.
    pub fn unlogged(&self) -> usize {
        self.bytes.len() - self.logged
    }

    /// Bytes in memory that no segment holds, those behind a gap included.
    pub fn held(&self) -> u64 {
        let gap: usize = self.gap.values().map(Vec::len).sum();
        (self.unlogged() + gap) as u64
    }

    /// The first byte comes that has to wait.
    pub fn begin_to_wait(&mut self, now_ns: i64) {
        (self.waits_since_ns, self.marked_ns, self.marked_end) = (now_ns, now_ns, self.end());
    }

    /// What is charged for it while it waits.
    fn charge(&self) -> Charge {
        let mut end = self.end();
        let gaps = self.gap.iter().map(|(at, bytes)| {
            let gap = at.saturating_sub(end);
            end = at + bytes.len() as u64;
            gap
        });
        Charge::of_file(self.held(), gaps)
    }

    /// Lengths of the gaps that would be before and behind a piece; it may make two short ones of a long one.
    pub fn gaps_beside(&self, offset: u64, end: u64) -> impl Iterator<Item = u64> {
        let before = self.gap.range(..offset).next_back();
        let before = before.map_or(self.end(), |(at, bytes)| at + bytes.len() as u64);
        let behind = self.gap.range(end..).next().map_or(end, |(at, _)| *at);
        let gaps = [offset.saturating_sub(before), behind - end];
        gaps.into_iter().filter(|gap| *gap > 0)
    }

    /// `blocks` blocks are written, and after them a fragment.
    pub fn advance(&mut self, blocks: u32, tail: Option<Extent>, now_ns: i64) {
        self.bytes.drain(..blocks as usize * BLOCK);
        self.base += u64::from(blocks) * BLOCK as u64;
        if blocks > 0 || tail.is_some() {
            self.logged = tail.map_or(0, |tail| tail.bytes as usize);
            self.tail = tail;
        }
        // What is left is younger than the mark only when all that lay before the mark is written.
        if self.base + self.logged as u64 >= self.marked_end {
            self.waits_since_ns = self.marked_ns;
            (self.marked_ns, self.marked_end) = (now_ns, self.visible());
        }
    }

    /// Takes in what waits behind a gap that is filled.
    pub fn join(&mut self) {
        while let Some(first) = self.gap.first_entry() {
            if *first.key() != self.base + self.bytes.len() as u64 {
                break;
            }
            let bytes = first.remove();
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// Whether bytes behind a gap share a byte with these.
    pub fn overlaps_gap(&self, offset: u64, bytes: u64) -> bool {
        let before = self.gap.range(..offset + bytes).next_back();
        before.is_some_and(|(at, held)| at + held.len() as u64 > offset)
    }
}

/// All bytes of files that no segment holds, and what else is known of files in use.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Staged {
    pub files: BTreeMap<Ino, Open>,
    /// The sum of what is charged for `files`.
    pub waiting: Charge,
    /// When what is not durable began to be so, on the clock that never goes back.
    pub dirty_since_ns: Option<i64>,
}

impl Staged {
    /// A file's bytes.
    pub fn of(&self, ino: Ino) -> Option<&Staging> {
        self.files.get(&ino)?.staging.as_ref()
    }

    pub fn of_mut(&mut self, ino: Ino) -> Option<&mut Staging> {
        self.files.get_mut(&ino)?.staging.as_mut()
    }

    /// Changes a file's bytes, and what is charged for them.
    pub fn change<T>(&mut self, ino: Ino, act: impl FnOnce(&mut Staging) -> T) -> T {
        let open = self.files.entry(ino).or_default();
        let staging = open.staging.get_or_insert_with(Staging::default);
        self.waiting -= staging.charge();
        let done = act(staging);
        self.waiting += staging.charge();
        done
    }

    /// Forgets a file's bytes.
    pub fn take(&mut self, ino: Ino) -> Option<Staging> {
        let staging = self.files.get_mut(&ino)?.staging.take()?;
        self.waiting -= staging.charge();
        Some(staging)
    }

    /// All files' bytes.
    pub fn all(&self) -> impl Iterator<Item = (Ino, &Staging)> {
        let files = self.files.iter();
        files.filter_map(|(ino, open)| Some((*ino, open.staging.as_ref()?)))
    }

    /// Whether a program has the file open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|open| open.handles > 0)
    }

    /// When the oldest bytes were accepted that no segment holds.
    pub fn oldest_ns(&self) -> Option<i64> {
        let waiting = self.all().filter(|(_, staging)| staging.held() > 0);
        waiting.map(|(_, staging)| staging.waits_since_ns).min()
    }
}

/// What is known of a file that is open or has bytes in memory.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Open {
    pub handles: u32,
    pub staging: Option<Staging>,
    /// Who reads it.
    pub readers: Readers,
}

#[cfg(test)]
mod tests {
    use super::{Staging, BLOCK};

    fn accept(staging: &mut Staging, bytes: usize, now_ns: i64) {
        if staging.held() == 0 {
            staging.begin_to_wait(now_ns);
        }
        let end = staging.bytes.len() + bytes;
        staging.bytes.resize(end, 1);
    }

    #[test]
    fn a_tail_is_as_old_as_its_bytes_however_often_what_is_before_it_is_written() {
        let mut staging = Staging::default();
        accept(&mut staging, 2 * BLOCK + 10, 1);
        // Two segments take the two blocks, later; the ten bytes are from the beginning.
        staging.advance(1, None, 5);
        staging.advance(1, None, 6);
        assert_eq!(staging.waits_since_ns, 1);
        // Only when they are written, what came after is younger.
        accept(&mut staging, BLOCK, 7);
        staging.advance(1, None, 8);
        assert!(staging.waits_since_ns > 1 && staging.waits_since_ns <= 7);
    }

    #[test]
    fn what_waits_behind_a_gap_keeps_its_age() {
        let mut staging = Staging::default();
        accept(&mut staging, BLOCK, 1);
        staging.gap.insert(8 * BLOCK as u64, vec![1; 10]);
        for now_ns in 2..5 {
            accept(&mut staging, BLOCK, now_ns);
            staging.advance(1, None, now_ns);
        }
        assert_eq!(staging.waits_since_ns, 1);
    }
}
