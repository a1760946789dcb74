// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! How long requests took: a histogram for each class and direction, and one for flushes.
//!
//! The buckets are those of an HDR histogram (G. Tene): within each power of two they are equally wide, so that every
//! value is known to better than 1 %, from a microsecond to an hour, in at most 13 KiB.

use crate::request::{Class, Op, CLASSES};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The unit, as a power of two: 1024 ns.
const UNIT_BITS: u32 = 10;
/// Buckets of one power of two, as a power of two: 2⁻⁷ is less than 1 %.
const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;
/// Longest time that is told from longer ones, as a power of two of units: 73 minutes.
const MOST_BITS: u32 = 32;
const GROUPS: usize = (MOST_BITS - SUB_BITS) as usize + 1;

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty until the first time is noted.
    buckets: Vec<u32>,
    /// Sums of the buckets of each power of two.
    groups: [u64; GROUPS],
    count: u64,
    max_ns: u64,
}

fn bucket(ns: u64) -> usize {
    let units = (ns >> UNIT_BITS).min((1 << MOST_BITS) - 1);
    if units < SUB as u64 {
        return units as usize;
    }
    // From here on, the highest bit names the group and the next seven the bucket.
    let shift = units.ilog2() - SUB_BITS;
    ((shift as usize + 1) << SUB_BITS) + ((units >> shift) as usize & (SUB - 1))
}

/// First time of a bucket, and the first of the next.
fn bounds_ns(bucket: usize) -> (u64, u64) {
    let (group, sub) = ((bucket >> SUB_BITS) as u32, (bucket & (SUB - 1)) as u64);
    let (first, shift) = match group {
        0 => (sub, 0),
        _ => (SUB as u64 + sub, group - 1),
    };
    (
        first << shift << UNIT_BITS,
        (first + 1) << shift << UNIT_BITS,
    )
}

impl Histogram {
    /// Notes a time.
    pub fn note(&mut self, ns: u64) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; GROUPS << SUB_BITS];
        }
        let i = bucket(ns);
        self.buckets[i] = self.buckets[i].saturating_add(1);
        self.groups[i >> SUB_BITS] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many times were noted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest, exactly.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time that `permille` of all do not exceed: the end of its bucket, but never more than the longest.
    pub fn quantile_ns(&self, permille: u64) -> u64 {
        let wanted = (self.count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (group, sum) in self.groups.iter().enumerate() {
            if seen + sum < wanted {
                seen += sum;
                continue;
            }
            for i in group << SUB_BITS..(group + 1) << SUB_BITS {
                seen += u64::from(self.buckets[i]);
                if seen >= wanted {
                    return (bounds_ns(i).1 - 1).min(self.max_ns);
                }
            }
        }
        self.max_ns
    }

    /// The buckets that are not empty: first time and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, n)| **n > 0)
            .map(|(i, n)| (bounds_ns(i).0, *n))
    }
}

/// Names of the histograms, in their order.
pub const NAMES: [&str; 2 * CLASSES + 1] = [
    "data_read",
    "metadata_read",
    "journal_read",
    "superblock_read",
    "data_written",
    "metadata_written",
    "journal_written",
    "superblock_written",
    "flushes",
];

/// All histograms of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies(Vec<Histogram>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(vec![Histogram::default(); NAMES.len()])
    }
}

impl Latencies {
    /// Notes how long a request took from its arrival to its completion.
    pub fn note(&mut self, op: Op, class: Class, ns: u64) {
        let i = match op {
            Op::Read => class as usize,
            Op::Write | Op::WriteZeroes => CLASSES + class as usize,
            Op::Flush => 2 * CLASSES,
            _ => return,
        };
        self.0[i].note(ns);
    }

    /// Those that are not empty, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let all = NAMES.iter().copied().zip(&self.0);
        all.filter(|(_, histogram)| histogram.count() > 0)
    }

    /// Median, 99th percentile and maximum of each, in microseconds, as a JSON object.
    pub fn write_summary(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("{")?;
        for (i, (name, h)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let (p50, p99) = (h.quantile_ns(500) / 1000, h.quantile_ns(990) / 1000);
            write!(out, "{comma}\"{name}\":[{p50},{p99},{}]", h.max_ns() / 1000)?;
        }
        out.write_str("}")
    }

    /// Everything, as a JSON object: for each name the count, the maximum, and the buckets as pairs of their first time
    /// and their count.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("{")?;
        for (i, (name, h)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(
                out,
                "{comma}\"{name}\":{{\"count\":{},\"max_ns\":{},\"buckets\":[",
                h.count(),
                h.max_ns()
            )?;
            for (j, (from_ns, count)) in h.buckets().enumerate() {
                let comma = if j == 0 { "" } else { "," };
                write!(out, "{comma}[{from_ns},{count}]")?;
            }
            out.write_str("]}")?;
        }
        out.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut end = 0;
        for i in 0..GROUPS << SUB_BITS {
            let (from, to) = bounds_ns(i);
            assert_eq!(from, end, "bucket {i}");
            assert_eq!((bucket(from), bucket(to - 1)), (i, i));
            assert!(
                i < SUB || (to - from) * 100 < from,
                "bucket {i}: {from} {to}"
            );
            end = to;
        }
        assert_eq!(end, 1 << (UNIT_BITS + MOST_BITS));
        assert_eq!(bucket(u64::MAX), (GROUPS << SUB_BITS) - 1);
    }

    #[test]
    fn quantiles_are_right_to_a_hundredth() {
        let mut h = Histogram::default();
        for ms in 1..=10_000u64 {
            h.note(ms * 1_000_000);
        }
        for (permille, ms) in [(1, 10u64), (500, 5000), (990, 9900), (1000, 10_000)] {
            let found = h.quantile_ns(permille);
            let exact = ms * 1_000_000;
            assert!(found.abs_diff(exact) * 100 <= exact, "{permille}: {found}");
        }
        assert_eq!(h.max_ns(), 10_000_000_000);
        assert_eq!(h.buckets().map(|(_, n)| u64::from(n)).sum::<u64>(), 10_000);
    }

    #[test]
    fn only_what_was_noted_is_told() {
        let mut all = Latencies::default();
        all.note(Op::Write, Class::Journal, 5_000_000);
        all.note(Op::Flush, Class::Data, 1_000_000);
        all.note(Op::Discard, Class::Data, 1_000_000);
        let (mut short, mut long) = (String::new(), String::new());
        all.write_summary(&mut short).unwrap();
        all.write_json(&mut long).unwrap();
        assert_eq!(
            short,
            "{\"journal_written\":[5000,5000,5000],\"flushes\":[1000,1000,1000]}"
        );
        assert!(
            long.starts_with("{\"journal_written\":{\"count\":1,\"max_ns\":5000000,\"buckets\":[[")
        );
    }
}
