// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The record: what happened at the drive's interface, in order, with the data.
//!
//! ```text
//! record = "SHGLREC1" event*
//! event  = kind:u32 flags:u32 sequence:u64 sector:u64 bytes:u32 0:u32 data padding-to-8
//! ```
//! Little-endian. Kinds: 1 write submitted (`data` is what it writes), 2 flush submitted, 3 completed, 4 marker (`data` is
//! its text). `sequence` numbers requests; a completion has its request's. Reads are not recorded.

use alloc::vec::Vec;
use core::fmt;

/// First bytes of a record.
pub const MAGIC: &[u8; 8] = b"SHGLREC1";
/// Of a write: durable when it completes.
pub const FLAG_FUA: u32 = smr_drive::request::FLAG_FUA;
const HEADER_BYTES: usize = 32;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A write was submitted.
    Write {
        /// The request's number.
        sequence: u64,
        /// First sector.
        sector: u64,
        /// Whether it is durable when it completes.
        fua: bool,
        /// What it writes.
        data: &'a [u8],
    },
    /// A flush was submitted.
    Flush {
        /// The request's number.
        sequence: u64,
    },
    /// A write or a flush was completed.
    Complete {
        /// The request's number.
        sequence: u64,
    },
    /// Somebody wrote a marker.
    Mark(&'a [u8]),
}

impl Event<'_> {
    /// Appends the event to a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags, sequence, sector, data): (u32, u32, u64, u64, &[u8]) = match self {
            Event::Write {
                sequence,
                sector,
                fua,
                data,
            } => (1, if *fua { FLAG_FUA } else { 0 }, *sequence, *sector, data),
            Event::Flush { sequence } => (2, 0, *sequence, 0, &[]),
            Event::Complete { sequence } => (3, 0, *sequence, 0, &[]),
            Event::Mark(text) => (4, 0, 0, 0, text),
        };
        out.extend(kind.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(sequence.to_le_bytes());
        out.extend(sector.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
    }
}

/// A record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The byte where that was seen.
    pub at: usize,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no event of a record at byte {}", self.at)
    }
}

/// Reads a whole record.
pub fn decode(record: &[u8]) -> Result<Vec<Event<'_>>, Damaged> {
    if !record.starts_with(MAGIC) {
        return Err(Damaged { at: 0 });
    }
    let mut events = Vec::new();
    let mut at = MAGIC.len();
    while at < record.len() {
        let (event, bytes) = decode_one(&record[at..]).ok_or(Damaged { at })?;
        events.push(event);
        at += bytes;
    }
    Ok(events)
}

fn decode_one(bytes: &[u8]) -> Option<(Event<'_>, usize)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let data = bytes.get(HEADER_BYTES..HEADER_BYTES + word(24) as usize)?;
    let sequence = long(8);
    let event = match word(0) {
        1 => Event::Write {
            sequence,
            sector: long(16),
            fua: word(4) & FLAG_FUA != 0,
            data,
        },
        2 => Event::Flush { sequence },
        3 => Event::Complete { sequence },
        4 => Event::Mark(data),
        _ => return None,
    };
    Some((event, (HEADER_BYTES + data.len()).next_multiple_of(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_as_they_were() {
        let events = [
            Event::Write {
                sequence: 1,
                sector: 8,
                fua: true,
                data: &[7; 512],
            },
            Event::Mark(b"s a/b"),
            Event::Flush { sequence: 2 },
            Event::Complete { sequence: 1 },
        ];
        let mut record = MAGIC.to_vec();
        events.iter().for_each(|event| event.encode(&mut record));
        assert_eq!(decode(&record).unwrap(), events);
        let cut = record.len() - 8;
        assert!(decode(&record[..cut]).is_err());
        assert_eq!(decode(b"SHGLTRC1"), Err(Damaged { at: 0 }));
    }
}
