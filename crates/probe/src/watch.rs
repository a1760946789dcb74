// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells from outside what a disk is doing: a small read now and then, and what the kernel counts of everybody's
//! requests.
//!
//! What this can tell: that somebody other than the host keeps the arm busy (reads of an idle disk are late), and that
//! writes take far longer than an arm needs. What it cannot: how full the cache is, or whether an idle disk that answers
//! at once has nothing left to clean or has not begun. Each read costs a drive its idle delay, so a look must be rare.

use serde::Serialize;
use std::collections::VecDeque;

/// A read of an idle disk that takes longer was kept waiting: no arm needs two revolutions and a full stroke.
pub const LATE_MS: f64 = 45.0;
/// Writes that take longer in the mean, while little is written, wait for cleaning.
pub const SLOW_WRITE_MS: f64 = 80.0;
/// Looks that count.
const WINDOW: usize = 12;
/// Less is no load that could explain slow writes, in bytes per second.
const LITTLE_WRITTEN: f64 = 12e6;

/// One look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Look {
    /// Seconds since the watch began.
    pub at_s: f64,
    /// Our read.
    pub read_ms: f64,
    /// Requests per second of everybody else, reads and writes, since the last look.
    pub other_reads_per_s: f64,
    /// See above.
    pub other_writes_per_s: f64,
    /// Bytes per second written.
    pub written_per_s: f64,
    /// Mean time of the writes that ended since the last look; 0 if there were none.
    pub write_ms: f64,
    /// Requests in the disk's queue before our read.
    pub in_flight: u64,
}

impl Look {
    fn host_is_idle(&self) -> bool {
        self.other_reads_per_s + self.other_writes_per_s < 0.5 && self.in_flight == 0
    }
}

/// What the looks speak for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Not enough looks yet.
    Waiting,
    /// Nobody asks for anything, and reads come at once.
    Quiet,
    /// Nobody asks for anything, and reads are late.
    Cleaning,
    /// Writes wait though little is written: the cache is full or close to it.
    Full,
    /// The host keeps the disk busy; reads alone cannot tell more.
    Busy,
}

impl Verdict {
    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            Verdict::Waiting => "looking",
            Verdict::Quiet => "quiet: nothing is seen to be cleaned (or cleaning has not begun)",
            Verdict::Cleaning => {
                "cleaning: nobody asks for anything, and reads are late all the same"
            }
            Verdict::Full => {
                "close to full: writes wait far longer than an arm needs, though little is written"
            }
            Verdict::Busy => "busy with the host's requests: more cannot be told from outside",
        }
    }
}

/// The last looks.
#[derive(Default)]
pub struct Watch {
    looks: VecDeque<Look>,
}

impl Watch {
    /// Adds a look; what all of them speak for.
    pub fn add(&mut self, look: Look) -> Verdict {
        self.looks.push_back(look);
        if self.looks.len() > WINDOW {
            self.looks.pop_front();
        }
        self.verdict()
    }

    fn verdict(&self) -> Verdict {
        let n = self.looks.len();
        if n < 4 {
            return Verdict::Waiting;
        }
        let count = |of: fn(&Look) -> bool| self.looks.iter().filter(|l| of(l)).count();
        let writing = count(|l| l.other_writes_per_s >= 0.5);
        let slow = count(|l| l.write_ms > SLOW_WRITE_MS && l.written_per_s < LITTLE_WRITTEN);
        if writing * 2 >= n {
            return if slow * 2 >= writing {
                Verdict::Full
            } else {
                Verdict::Busy
            };
        }
        let idle = count(Look::host_is_idle);
        if idle * 2 < n {
            return Verdict::Busy;
        }
        // Idle cleaning has pauses where our looks interrupt it, so a third is enough.
        let late = count(|l| l.host_is_idle() && l.read_ms > LATE_MS);
        if late * 3 >= idle {
            Verdict::Cleaning
        } else {
            Verdict::Quiet
        }
    }
}

/// The kernel's count of a disk's requests (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    reads: u64,
    writes: u64,
    sectors_written: u64,
    write_ms: u64,
    in_flight: u64,
}

impl Stat {
    /// From the text of `/sys/block/NAME/stat`.
    pub fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|f| f.parse().ok())
            .collect();
        Some(Stat {
            reads: *fields.first()?,
            writes: *fields.get(4)?,
            sectors_written: *fields.get(6)?,
            write_ms: *fields.get(7)?,
            in_flight: *fields.get(8)?,
        })
    }

    /// A look: what others did between `before` and this, `seconds` apart, `own` reads being ours.
    pub fn look(&self, before: &Stat, seconds: f64, own: u64) -> Look {
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let writes = each(self.writes, before.writes);
        Look {
            other_reads_per_s: (each(self.reads, before.reads) - own as f64).max(0.0) / seconds,
            other_writes_per_s: writes / seconds,
            written_per_s: each(self.sectors_written, before.sectors_written) * 512.0 / seconds,
            write_ms: if writes > 0.0 {
                each(self.write_ms, before.write_ms) / writes
            } else {
                0.0
            },
            in_flight: self.in_flight,
            ..Look::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, BLOCK_BYTES, GIB};
    use crate::simulated::SimulatedDisk;
    use drive_tool::profile::parse;

    const SHINGLED: &str = include_str!("../../../drives/st8000as0002.toml");

    fn looked(disk: &mut SimulatedDisk, first: u64) -> Verdict {
        let mut watch = Watch::default();
        let mut verdict = Verdict::Waiting;
        // Each look goes somewhere new: what was read before comes from DRAM.
        for i in first..first + 12 {
            disk.idle(5_000_000_000).unwrap();
            let start = disk.now_ns();
            disk.read((i * 7919 % 4000) * GIB, BLOCK_BYTES).unwrap();
            let read_ms = (disk.now_ns() - start) as f64 / 1e6;
            verdict = watch.add(Look {
                read_ms,
                ..Look::default()
            });
        }
        verdict
    }

    #[test]
    fn a_drive_that_cleans_is_told_from_one_that_has_nothing_to_clean() {
        let mut disk = SimulatedDisk::used(parse("x", SHINGLED).unwrap(), 3);
        assert_eq!(looked(&mut disk, 0), Verdict::Quiet);
        for i in 0..4000 {
            disk.write(GIB + i * 37 * 4 * 1024 * 1024, BLOCK_BYTES)
                .unwrap();
        }
        assert_eq!(looked(&mut disk, 12), Verdict::Cleaning);
    }

    #[test]
    fn slow_writes_under_little_load_mean_full_and_under_much_load_nothing() {
        let mut watch = Watch::default();
        let slow = Look {
            other_writes_per_s: 20.0,
            written_per_s: 80e3,
            write_ms: 150.0,
            ..Look::default()
        };
        assert_eq!((0..12).map(|_| watch.add(slow)).last(), Some(Verdict::Full));
        let much = Look {
            written_per_s: 150e6,
            ..slow
        };
        assert_eq!((0..12).map(|_| watch.add(much)).last(), Some(Verdict::Busy));
        let quick = Look {
            write_ms: 0.3,
            ..slow
        };
        assert_eq!(
            (0..12).map(|_| watch.add(quick)).last(),
            Some(Verdict::Busy)
        );
    }

    #[test]
    fn the_kernel_s_counts_become_rates_without_our_own_reads() {
        let before = Stat::parse("100 0 800 50 10 0 80 7 0 9 9").unwrap();
        let now = Stat::parse("103 0 824 90 30 0 2128 2007 2 9 9").unwrap();
        let look = now.look(&before, 10.0, 1);
        assert_eq!(
            (look.other_reads_per_s, look.other_writes_per_s),
            (0.2, 2.0)
        );
        assert_eq!((look.write_ms, look.in_flight), (100.0, 2));
        assert!(Stat::parse("1 2 x").is_none());
    }
}
