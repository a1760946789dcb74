// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The DRAM buffer: which blocks were acknowledged and are not yet on the medium. It knows addresses, not contents.
//!
//! Blocks form pieces. Every flush begins a new *epoch*, and pieces of different epochs stay apart, though they may
//! adjoin: so a flush knows what it waits for, even while a stream of writes goes on behind it. A block that is written
//! again while it is dirty keeps its old epoch: the older version is gone, so the flush must wait for the newer one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// Dirty blocks that adjoin and were written in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The block after the last.
    pub end: Block,
    /// See the module's head.
    pub epoch: u64,
    /// When its first block was written.
    pub since_ns: u64,
    /// When its last block was written.
    pub last_ns: u64,
    /// Classes of its writes, a bit each.
    pub classes: u8,
    /// Somebody waits for this very piece (FUA).
    pub urgent: bool,
}

/// Who wrote what when.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Now.
    pub now_ns: u64,
    /// The present epoch.
    pub epoch: u64,
    /// Classes, a bit each.
    pub classes: u8,
    /// FUA.
    pub urgent: bool,
}

/// Blocks on their way to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Which.
    pub range: BlockRange,
    /// Oldest epoch among them.
    pub epoch: u64,
    /// Classes, a bit each.
    pub classes: u8,
}

/// The buffer.
#[derive(Default)]
pub struct VolatileBuffer {
    pieces: BTreeMap<Block, Piece>,
    in_flight: Vec<InFlight>,
    blocks: u64,
    urgent: u32,
    oldest_ns: Option<u64>,
}

impl VolatileBuffer {
    /// Blocks that are dirty and not in flight.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks that a power cut would lose.
    pub fn volatile_blocks(&self) -> u64 {
        self.blocks + self.in_flight.iter().map(|f| f.range.blocks()).sum::<u64>()
    }

    /// Number of pieces.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Whether nothing is dirty or in flight.
    pub fn is_clean(&self) -> bool {
        self.pieces.is_empty() && self.in_flight.is_empty()
    }

    /// Whether somebody waits for a piece.
    pub fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// When the oldest dirty block was written.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.oldest_ns
    }

    /// Pieces in order of address, from `start` on.
    pub fn pieces_from(&self, start: Block) -> impl Iterator<Item = (BlockRange, &Piece)> {
        self.pieces
            .range(start..)
            .map(|(s, p)| (BlockRange::new(*s, p.end), p))
    }

    /// All pieces.
    pub fn pieces(&self) -> impl Iterator<Item = (BlockRange, &Piece)> {
        self.pieces_from(Block(0))
    }

    /// The piece that holds `block`.
    pub fn piece_at(&self, block: Block) -> Option<(BlockRange, &Piece)> {
        let (start, piece) = self.pieces.range(..=block).next_back()?;
        (piece.end > block).then(|| (BlockRange::new(*start, piece.end), piece))
    }

    /// End of the dirty blocks that follow `start` without a gap; `start` itself if it is not dirty.
    pub fn contiguous_end(&self, start: Block) -> Block {
        let mut end = start;
        while let Some((range, _)) = self.piece_at(end) {
            end = range.end;
        }
        end
    }

    /// Whether a write of `range` needs no piece of its own: it overwrites one, or goes on where one ends.
    pub fn absorbs(&self, range: BlockRange) -> bool {
        let before = Block(range.start.0.saturating_sub(1));
        self.piece_at(before).is_some()
            || self
                .piece_at(range.start)
                .is_some_and(|(r, _)| r.contains(range))
    }

    /// Notes a write.
    pub fn write(&mut self, range: BlockRange, arrival: Arrival) {
        let mut at = range.start;
        while at < range.end {
            // What is dirty already stays as it is.
            if let Some((dirty, _)) = self.piece_at(at) {
                if arrival.urgent {
                    self.make_urgent(dirty.start);
                }
                at = dirty.end;
                continue;
            }
            let gap_end = self
                .pieces
                .range(at..range.end)
                .next()
                .map_or(range.end, |(next, _)| *next);
            self.insert(BlockRange::new(at, gap_end), arrival);
            at = gap_end;
        }
    }

    fn make_urgent(&mut self, start: Block) {
        if let Some(piece) = self.pieces.get_mut(&start) {
            self.urgent += u32::from(!piece.urgent);
            piece.urgent = true;
        }
    }

    /// Adds blocks that are not dirty, and joins them with the piece that they continue.
    fn insert(&mut self, range: BlockRange, arrival: Arrival) {
        let Arrival {
            now_ns,
            epoch,
            classes,
            urgent,
        } = arrival;
        self.blocks += range.blocks();
        self.oldest_ns.get_or_insert(now_ns);
        if let Some((_, left)) = self.pieces.range_mut(..range.start).next_back() {
            if left.end == range.start && left.epoch == epoch && left.urgent == urgent {
                left.end = range.end;
                left.last_ns = now_ns;
                left.classes |= classes;
                return;
            }
        }
        self.urgent += u32::from(urgent);
        let mut piece = Piece {
            end: range.end,
            epoch,
            since_ns: now_ns,
            last_ns: now_ns,
            classes,
            urgent,
        };
        if let Some(right) = self
            .pieces
            .get(&range.end)
            .filter(|r| r.epoch == epoch && r.urgent == urgent)
        {
            piece.end = right.end;
            piece.since_ns = right.since_ns;
            piece.classes |= right.classes;
            self.urgent -= u32::from(urgent);
            self.pieces.remove(&range.end);
        }
        self.pieces.insert(range.start, piece);
    }

    /// Sends the dirty blocks of `ranges` on their way. They stay volatile until [`VolatileBuffer::landed`].
    pub fn take(&mut self, ranges: &[BlockRange]) {
        ranges.iter().for_each(|range| self.take_range(*range));
        self.oldest_ns = self.pieces.values().map(|p| p.since_ns).min();
    }

    fn take_range(&mut self, range: BlockRange) {
        let first = self
            .piece_at(range.start)
            .map_or(range.start, |(r, _)| r.start);
        while let Some((&start, &piece)) = self
            .pieces
            .range(first..range.end)
            .find(|(_, p)| p.end > range.start)
        {
            self.pieces.remove(&start);
            self.urgent -= u32::from(piece.urgent);
            let taken = BlockRange::new(start, piece.end).intersection(range);
            for rest in [
                BlockRange::new(start, taken.start),
                BlockRange::new(taken.end, piece.end),
            ] {
                if !rest.is_empty() {
                    self.pieces.insert(
                        rest.start,
                        Piece {
                            end: rest.end,
                            ..piece
                        },
                    );
                    self.urgent += u32::from(piece.urgent);
                }
            }
            self.blocks -= taken.blocks();
            self.in_flight.push(InFlight {
                range: taken,
                epoch: piece.epoch,
                classes: piece.classes,
            });
        }
    }

    /// What is in flight.
    pub fn in_flight(&self) -> &[InFlight] {
        &self.in_flight
    }

    /// Whether a block of `range` is in flight.
    pub fn flies(&self, range: BlockRange) -> bool {
        self.in_flight.iter().any(|f| f.range.overlaps(range))
    }

    /// What was in flight is on the medium.
    pub fn landed(&mut self) -> Vec<InFlight> {
        core::mem::take(&mut self.in_flight)
    }

    /// Whether all blocks of `range` that were written in `epoch` or before are on the medium.
    pub fn durable(&self, range: BlockRange, epoch: u64) -> bool {
        let first = self
            .piece_at(range.start)
            .map_or(range.start, |(r, _)| r.start);
        let dirty = self
            .pieces
            .range(first..range.end)
            .any(|(_, p)| p.epoch <= epoch);
        !dirty
            && !self
                .in_flight
                .iter()
                .any(|f| f.epoch <= epoch && f.range.overlaps(range))
    }

    /// Whether all blocks of the range are here, and need not be read.
    pub fn holds(&self, range: BlockRange) -> bool {
        let mut at = range.start;
        while at < range.end {
            let dirty = self.piece_at(at).map(|(r, _)| r.end);
            let flying = self
                .in_flight
                .iter()
                .find(|f| f.range.start <= at && at < f.range.end)
                .map(|f| f.range.end);
            match dirty.or(flying) {
                Some(end) => at = end,
                None => return false,
            }
        }
        true
    }

    /// What is in flight will not land, but for the blocks of `landed`: those are no longer volatile.
    pub fn flight_lost(&mut self, landed: &[BlockRange]) {
        let mut lost = Vec::new();
        for flight in core::mem::take(&mut self.in_flight) {
            let mut at = flight.range.start;
            let mut inside: Vec<BlockRange> = landed
                .iter()
                .map(|range| range.intersection(flight.range))
                .filter(|range| !range.is_empty())
                .collect();
            inside.sort_unstable();
            inside.push(BlockRange::new(flight.range.end, flight.range.end));
            for range in inside {
                if at < range.start {
                    lost.push(InFlight {
                        range: BlockRange::new(at, range.start),
                        ..flight
                    });
                }
                at = range.end;
            }
        }
        self.in_flight = lost;
    }

    /// Everything is lost.
    pub fn clear(&mut self) {
        *self = VolatileBuffer::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> BlockRange {
        BlockRange::new(Block(start), Block(end))
    }

    fn at(now_ns: u64, epoch: u64) -> Arrival {
        Arrival {
            now_ns,
            epoch,
            classes: 1,
            urgent: false,
        }
    }

    #[test]
    fn writes_that_adjoin_become_one_piece_within_an_epoch() {
        let mut buffer = VolatileBuffer::default();
        buffer.write(range(10, 20), at(1, 0));
        buffer.write(range(30, 40), at(2, 0));
        buffer.write(range(20, 30), at(3, 0));
        buffer.write(range(40, 50), at(4, 1));
        let pieces: Vec<_> = buffer.pieces().map(|(r, p)| (r, p.epoch)).collect();
        assert_eq!(
            pieces,
            [(range(10, 30), 0), (range(30, 40), 0), (range(40, 50), 1)]
        );
        assert_eq!(buffer.contiguous_end(Block(10)), Block(50));
        assert_eq!(buffer.blocks(), 40);
    }

    #[test]
    fn a_block_written_again_keeps_its_epoch() {
        let mut buffer = VolatileBuffer::default();
        buffer.write(range(10, 20), at(1, 0));
        buffer.write(range(15, 25), at(2, 1));
        assert!(
            !buffer.durable(range(15, 16), 0),
            "the flush of epoch 0 waits for the newer version"
        );
        assert!(buffer.durable(range(20, 25), 0));
        assert_eq!(buffer.blocks(), 15);
    }

    #[test]
    fn taken_blocks_are_volatile_until_they_land() {
        let mut buffer = VolatileBuffer::default();
        buffer.write(range(10, 20), at(1, 0));
        buffer.take(&[range(12, 14)]);
        assert_eq!(
            (
                buffer.blocks(),
                buffer.volatile_blocks(),
                buffer.piece_count()
            ),
            (8, 10, 2)
        );
        assert!(!buffer.durable(range(12, 14), 0));
        assert!(buffer.holds(range(10, 20)));
        assert_eq!(buffer.landed().len(), 1);
        assert!(buffer.durable(range(12, 14), 0));
        assert!(!buffer.holds(range(10, 20)));
    }

    #[test]
    fn urgent_pieces_are_counted_through_splits() {
        let mut buffer = VolatileBuffer::default();
        buffer.write(
            range(10, 20),
            Arrival {
                urgent: true,
                ..at(1, 0)
            },
        );
        buffer.take(&[range(12, 14)]);
        assert!(buffer.has_urgent());
        buffer.take(&[range(0, 100)]);
        assert!(!buffer.has_urgent() && buffer.oldest_ns().is_none());
    }
}
