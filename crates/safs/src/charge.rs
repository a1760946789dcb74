// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits to be pushed, and what it will take of the log and of the catalog.

use crate::format::*;
use crate::options::Options;
use std::ops::{AddAssign, SubAssign};

/// A log zone with less room than this is left.
pub(crate) const LOG_ROOM_MIN: u32 = 8;
/// A gap that is shorter is filled with zeros; a longer one becomes a hole.
pub(crate) const SHORT_GAP_BYTES: u64 = 64 << 10;
/// Zeros beside a hole, at most: it begins and ends at whole blocks.
const ZEROS_OF_A_HOLE: u64 = 2 * BLOCK as u64;
/// Keys that a file's bytes change when they are written: an extent, a fragment, the file.
const KEYS_OF_A_FILE: u64 = 4;
/// The same of what waits behind a gap: its extent, and the hole before it.
const KEYS_OF_A_GAP: u64 = 2;
/// Holes of a long gap lie side by side; so many take as many nodes as one key.
const HOLES_OF_A_KEY: u64 = 8;
/// Blocks that what is written alone needs beside its whole ones: two headers of two blocks.
const BLOCKS_OF_A_PIECE: u64 = 4;
/// Bytes of records in a segment of one file, at most.
const RECORDS_BYTES: usize = 512;

/// What waits to be pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Bytes of files, those behind gaps included.
    pub bytes: u64,
    /// Zeros that will be written in gaps.
    pub zeros: u64,
    /// Files.
    pub files: u64,
    /// Pieces that are written alone: a file's first, and one behind each hole.
    pub pieces: u64,
    /// Keys of the catalog that change then, at most.
    pub keys: u64,
}

impl Charge {
    /// So many bytes of one file, with gaps of these lengths.
    pub fn of_file(bytes: u64, gaps: impl IntoIterator<Item = u64>) -> Self {
        if bytes == 0 {
            return Charge::default();
        }
        let mut charge = Charge {
            bytes,
            zeros: 0,
            files: 1,
            pieces: 1,
            keys: KEYS_OF_A_FILE,
        };
        for gap in gaps {
            let is_hole = gap > SHORT_GAP_BYTES;
            charge.keys += KEYS_OF_A_GAP + gap / HOLE_BYTES / HOLES_OF_A_KEY;
            charge.pieces += u64::from(is_hole);
            charge.zeros += if is_hole { ZEROS_OF_A_HOLE } else { gap };
        }
        charge
    }

    /// Blocks of the log for it, in zones of so many: with the headers of its segments, and what is left of zones.
    pub fn blocks(&self, options: &Options, capacity: u32) -> u64 {
        let segment = options.segment_blocks.min(capacity);
        let headers = 2 * Header::blocks_for(RECORDS_BYTES, segment as usize, 0);
        let payload = (self.bytes + self.zeros).div_ceil(BLOCK as u64);
        let segments = payload.div_ceil(u64::from(segment.saturating_sub(headers).max(1)));
        let blocks = payload + segments * u64::from(headers) + self.pieces * BLOCKS_OF_A_PIECE;
        let lost = u64::from(LOG_ROOM_MIN);
        blocks + blocks / u64::from(capacity).saturating_sub(lost).max(1) * lost
    }

    /// Keys with the extents of segments that end before a file does.
    pub fn keys(&self, options: &Options) -> usize {
        let half_segment = u64::from(options.segment_blocks) * BLOCK as u64 / 2;
        let keys = self.keys + KEYS_OF_A_GAP * ((self.bytes + self.zeros) / half_segment);
        usize::try_from(keys).unwrap_or(usize::MAX)
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.zeros += other.zeros;
        self.files += other.files;
        self.pieces += other.pieces;
        self.keys += other.keys;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        self.bytes -= other.bytes;
        self.zeros -= other.zeros;
        self.files -= other.files;
        self.pieces -= other.pieces;
        self.keys -= other.keys;
    }
}
