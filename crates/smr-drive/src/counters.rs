// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What the drive counts, and how it reports it.

use crate::activity::{self, Activity, ACTIVITIES};
use crate::latency::Latencies;
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
    /// What cleaning has written to the medium, the image in the scratch band included.
    pub rewritten_bytes: u64,
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
    /// Faults of the plan that happened.
    pub faults: u64,
    /// Resets of the link by the host, because a request took too long.
    pub resets: u64,
    /// How long requests took.
    pub latencies: Latencies,
}

/// A band that is being cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningBand {
    /// Which.
    pub band: BandId,
    /// Classes of what made it dirty, a bit each.
    pub classes: u8,
    /// How far it is, in thousandths.
    pub done_permille: u64,
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
    /// Nothing to clean without a host that asks for something, nothing volatile.
    pub clean: bool,
    /// What the arm does.
    pub activity: Activity,
    /// How much of the time it did what, by [`Activity`].
    pub activity_ns: [u64; ACTIVITIES],
    /// The arm's cylinder, and how many there are.
    pub arm_cylinder: (u64, u64),
    /// The band whose cleaning has begun, if any.
    pub cleaning: Option<CleaningBand>,
    /// Why: the last cleaning activity.
    pub cleaning_why: Activity,
    /// Runs that stream, and runs that may be going to.
    pub streams: (usize, usize),
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

    fn numbers(&self, snapshot: &Snapshot) -> [(&'static str, u64); 28] {
        [
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
            ("rewritten_bytes", self.rewritten_bytes),
            ("streamed_bytes", self.streamed_bytes),
            ("cached_bytes", self.cached_bytes),
            ("busy_ns", self.busy_ns),
            ("volatile_bytes", snapshot.volatile_bytes),
            ("zones_open", u64::from(snapshot.zones_open)),
            ("last_host_ns", self.last_host_ns),
            ("clean_at_ns", self.clean_at_ns),
            ("clean", u64::from(snapshot.clean)),
            ("trace_lost", self.trace_lost),
            ("faults", self.faults),
            ("resets", self.resets),
            ("read_requests", self.read.iter().map(|t| t.requests).sum()),
            (
                "written_requests",
                self.written.iter().map(|t| t.requests).sum(),
            ),
            ("written_bytes", self.written.iter().map(|t| t.bytes).sum()),
            ("violations", snapshot.violations),
        ]
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
        for (name, value) in self.numbers(snapshot) {
            write!(out, "\"{name}\":{value},")?;
        }
        for (name, ns) in activity::NAMES.iter().zip(snapshot.activity_ns) {
            write!(out, "\"{name}\":{ns},")?;
        }
        let (cylinder, cylinders) = snapshot.arm_cylinder;
        let activity = snapshot.activity as u8;
        write!(out, "\"arm\":[{cylinder},{cylinders},{activity}],")?;
        let (streams, candidates) = snapshot.streams;
        write!(out, "\"streams\":[{streams},{candidates}],\"cleaning\":[")?;
        if let Some(job) = snapshot.cleaning {
            let (band, why) = (job.band.0, snapshot.cleaning_why as u8);
            write!(out, "{band},{why},{},{}", job.classes, job.done_permille)?;
        }
        out.write_str("],\"latency_us\":")?;
        self.latencies.write_summary(out)?;
        out.write_str(",\"bands_dirty_by_class\":[")?;
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

    /// The machine hands a report over as one page: so must be the largest that can come of the largest drives.
    #[test]
    fn a_report_of_a_long_life_fits_in_a_page() {
        const DAY_NS: u64 = 86_400_000_000_000;
        let traffic = Traffic {
            bytes: 99_999_999_999_999,
            requests: 9_999_999_999,
        };
        let mut counters = Counters {
            read: [traffic; CLASSES],
            written: [traffic; CLASSES],
            flushes: 999_999_999,
            cleaning_ns: 99 * DAY_NS,
            busy_ns: 99 * DAY_NS,
            last_host_ns: 99 * DAY_NS,
            clean_at_ns: 99 * DAY_NS,
            streamed_bytes: 99_999_999_999_999,
            cached_bytes: 99_999_999_999_999,
            ..Counters::default()
        };
        for op in [Op::Read, Op::Write, Op::Flush] {
            for class in [
                Class::Data,
                Class::Metadata,
                Class::Journal,
                Class::Superblock,
            ] {
                counters.latencies.note(op, class, 99_999_999_999);
            }
        }
        let snapshot = Snapshot {
            seeks: 9_999_999_999,
            cache_bytes: 25 << 30,
            cache_entries: 180_000,
            bands_dirty: 266_567,
            dirty: (0..DIRTY_BANDS_LISTED as u64)
                .map(|i| (BandId(900_000), Block(5_000_000_000 + i), 15))
                .collect(),
            activity_ns: [99 * DAY_NS; ACTIVITIES],
            arm_cylinder: (400_000, 400_000),
            cleaning: Some(CleaningBand {
                band: BandId(266_567),
                classes: 15,
                done_permille: 1000,
            }),
            streams: (8, 8),
            ..Snapshot::default()
        };
        let mut text = String::new();
        counters.write_json(&snapshot, &mut text).unwrap();
        assert!(text.len() <= 4094, "{}", text.len());
    }

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
