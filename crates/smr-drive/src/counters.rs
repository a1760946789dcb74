// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What the drive counts, and how it reports it.

use crate::request::{Class, Op, CLASSES};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use zoned::{BandId, Block};

/// Bytes and requests of one class and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
}

/// Since the drive was switched on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By class.
    pub read: [Traffic; CLASSES],
    /// By class.
    pub written: [Traffic; CLASSES],
    /// FLUSH requests.
    pub flushes: u64,
    /// Most entries the persistent cache's map had.
    pub cache_entries_max: u64,
    /// Most bytes the persistent cache held.
    pub cache_bytes_max: u64,
    /// Bands cleaned because nobody asked for anything, tails included.
    pub bands_cleaned_idle: u64,
    /// Bands cleaned because the persistent cache was full.
    pub bands_cleaned_forced: u64,
    /// Those of the bands cleaned where only the part behind a streamed run had to be rewritten.
    pub tails_closed: u64,
    /// Drive time spent cleaning.
    pub cleaning_ns: u64,
    /// Written in place in bands by streaming.
    pub streamed_bytes: u64,
    /// Written to the persistent cache.
    pub cached_bytes: u64,
    /// Time in which the arm was busy.
    pub busy_ns: u64,
    /// Time of the last host request.
    pub last_host_ns: u64,
    /// When the last band was cleaned.
    pub clean_at_ns: u64,
    /// Trace records that nobody took in time.
    pub trace_lost: u64,
}

/// What the counters say only together with the drive's present state.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Moves of the arm to another cylinder.
    pub seeks: u64,
    /// Entries of the persistent cache's map.
    pub cache_entries: u64,
    /// Data in the persistent cache.
    pub cache_bytes: u64,
    /// Bands that must be cleaned.
    pub bands_dirty: u64,
    /// The first of them: band, first block, classes of what was written there.
    pub dirty: Vec<(BandId, Block, u8)>,
    /// Blocks ever written in place.
    pub written_blocks: u64,
    /// Zones that are open.
    pub zones_open: u32,
    /// Writes that were not in order where the firmware enforces it.
    pub violations: u64,
    /// Acknowledged and not durable.
    pub volatile_bytes: u64,
    /// Nothing to clean, nothing volatile.
    pub clean: bool,
}

/// How many dirty bands a report lists.
pub const DIRTY_BANDS_LISTED: usize = 64;

const CLASS_NAMES: [&str; CLASSES] = ["data", "metadata", "journal", "superblock"];

impl Counters {
    /// Counts a host request.
    pub fn request(&mut self, op: Op, class: Class, bytes: u64) {
        let traffic = match op {
            Op::Read => &mut self.read[class as usize],
            Op::Write | Op::WriteZeroes => &mut self.written[class as usize],
            Op::Flush => {
                self.flushes += 1;
                return;
            }
            _ => return,
        };
        traffic.bytes += bytes;
        traffic.requests += 1;
    }

    /// As one JSON object.
    pub fn write_json(&self, snapshot: &Snapshot, out: &mut dyn Write) -> fmt::Result {
        out.write_str("{")?;
        for (direction, traffic) in [("read", &self.read), ("written", &self.written)] {
            for (name, traffic) in CLASS_NAMES.iter().zip(traffic) {
                write!(out, "\"{name}_{direction}_bytes\":{},", traffic.bytes)?;
                write!(out, "\"{name}_{direction}_requests\":{},", traffic.requests)?;
            }
        }
        let fields: [(&str, u64); 25] = [
            ("flushes", self.flushes),
            ("seeks", snapshot.seeks),
            ("cache_entries", snapshot.cache_entries),
            ("cache_bytes", snapshot.cache_bytes),
            ("cache_entries_max", self.cache_entries_max),
            ("cache_bytes_max", self.cache_bytes_max),
            ("bands_dirty", snapshot.bands_dirty),
            (
                "bands_cleaned",
                self.bands_cleaned_idle + self.bands_cleaned_forced,
            ),
            ("bands_cleaned_idle", self.bands_cleaned_idle),
            ("bands_cleaned_forced", self.bands_cleaned_forced),
            ("tails_closed", self.tails_closed),
            ("cleaning_ns", self.cleaning_ns),
            ("streamed_bytes", self.streamed_bytes),
            ("cached_bytes", self.cached_bytes),
            ("busy_ns", self.busy_ns),
            ("volatile_bytes", snapshot.volatile_bytes),
            ("zones_open", u64::from(snapshot.zones_open)),
            ("last_host_ns", self.last_host_ns),
            ("clean_at_ns", self.clean_at_ns),
            ("clean", u64::from(snapshot.clean)),
            ("trace_lost", self.trace_lost),
            ("read_requests", self.read.iter().map(|t| t.requests).sum()),
            (
                "written_requests",
                self.written.iter().map(|t| t.requests).sum(),
            ),
            ("written_bytes", self.written.iter().map(|t| t.bytes).sum()),
            ("violations", snapshot.violations),
        ];
        for (name, value) in fields {
            write!(out, "\"{name}\":{value},")?;
        }
        out.write_str("\"bands_dirty_by_class\":[")?;
        for (i, (band, first, classes)) in snapshot.dirty.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(
                out,
                "{comma}[{},{},{classes}]",
                band.0,
                first.first_sector().0
            )?;
        }
        out.write_str("]}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn a_report_of_many_dirty_bands_fits_in_8_kib() {
        let dirty = (0..DIRTY_BANDS_LISTED as u64)
            .map(|i| (BandId(u32::MAX), Block(u64::from(u32::MAX) + i), 15))
            .collect();
        let mut text = String::new();
        Counters {
            busy_ns: u64::MAX,
            ..Counters::default()
        }
        .write_json(
            &Snapshot {
                dirty,
                ..Snapshot::default()
            },
            &mut text,
        )
        .unwrap();
        assert!(
            text.len() < 8192
                && text.ends_with("]]}")
                && text.starts_with("{\"data_read_bytes\":0,")
        );
    }
}
