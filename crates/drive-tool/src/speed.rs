// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives and requests for measuring how fast the model itself is, in host time: shared by the benchmarks
//! (benches/native.rs), the program that writes docs/results/performance.md (examples/performance.rs) and the test that holds its
//! ratios (tests/speed.rs).

use crate::host::{at, Host};
use crate::meter::Meter;
use crate::random::Random;
use crate::replay;
use crate::trace_file::{Event, Row};
use smr_drive::profile::{Profile, Translation};
use smr_drive::request::{Op, Request};
use zoned::{Block, BlockRange, Lba};

/// `count` sequential 4 KiB writes, one every 120 µs: a trace to replay.
pub fn sequential_trace(count: u64) -> Vec<Event> {
    (0..count)
        .map(|i| {
            Event::Request(Row {
                arrival_ns: i * 120_000,
                completion_ns: i * 120_000,
                request: Request {
                    tag: i,
                    op: Op::Write,
                    flags: 0,
                    lba: Lba(i * 8),
                    sectors: 8,
                },
                class: 0,
                place: 0,
                service_ns: 0,
            })
        })
        .collect()
}

/// The profile with another size: the same tracks, more or fewer of them.
pub fn resized(profile: &Profile, capacity_bytes: u64) -> Profile {
    let mut resized = profile.clone();
    for zone in &mut resized.mechanics.zones {
        let cylinders = u128::from(zone.cylinders) * u128::from(capacity_bytes);
        let cylinders = (cylinders / u128::from(profile.capacity_bytes)) as u32;
        // Room for the cache, which stays as large as it was.
        let cache = match &profile.translation {
            Translation::StaticMapping(m) => 2 * m.cache_blocks,
            _ => 0,
        };
        let extra = cache / u64::from(zone.track_blocks * profile.mechanics.heads);
        let tracks = profile.mechanics.serpentine_tracks;
        zone.cylinders = (cylinders + extra as u32).next_multiple_of(tracks);
    }
    resized.capacity_bytes = capacity_bytes / 4096 * 4096;
    resized
}

/// Random 4 KiB writes, one at a time.
pub struct Load {
    /// The drive.
    pub host: Host,
    random: Random,
    range: BlockRange,
}

impl Load {
    /// To a used drive whose cache is full to `percent` of entries spread over all of it, or as full as it gets. On a
    /// host-aware drive, over as many sequential zones as it can follow: with one more it does nothing but clean.
    pub fn filled(profile: Profile, percent: u64) -> Self {
        let mut range = BlockRange::new(Block(0), Block(profile.capacity_blocks()));
        let entries_max = match &profile.translation {
            Translation::StaticMapping(m) => m.cache_entries_max,
            Translation::HostAware(h) => {
                let first = Block(u64::from(h.zones.conventional_first) * h.zones.zone_blocks);
                let blocks = u64::from(h.non_sequential_max) * h.zones.zone_blocks;
                range = BlockRange::new(first, range.end.min(first + blocks));
                h.cache.cache_entries_max
            }
            Translation::SBlocks(s) => {
                let section_blocks = s.s_block_blocks * u64::from(s.section_s_blocks);
                s.section_entries_max * range.blocks().div_ceil(section_blocks)
            }
            _ => 0,
        };
        let mut load = Load {
            host: Host::used(profile, 1),
            random: Random(9),
            range,
        };
        let mut last = None;
        loop {
            let entries = load.host.drive.snapshot().cache_entries;
            if (entries + 2_000) * 100 >= entries_max * percent || last >= Some(entries) {
                return load;
            }
            last = Some(entries);
            load.writes(10_000);
        }
    }

    /// So many writes; returns how often something happened in the drive.
    pub fn writes(&mut self, count: u64) -> u64 {
        let mut events = 0;
        for _ in 0..count {
            let block = self.range.start.0 + self.random.below(self.range.blocks());
            self.host
                .submit(Op::Write, at(block, 1), 0)
                .expect("inside the drive");
            while self.host.completions() == 0 {
                self.host.step();
                events += 1;
            }
        }
        events
    }

    /// Seconds of processor time that a write takes, and that an event of the drive takes: best of three.
    pub fn seconds(&mut self, writes: u64) -> (f64, f64) {
        let (mut per_write, mut per_event) = (f64::MAX, f64::MAX);
        for _ in 0..3 {
            let start = cpu_s();
            let events = self.writes(writes);
            let s = cpu_s() - start;
            per_write = per_write.min(s / writes as f64);
            per_event = per_event.min(s / events as f64);
        }
        (per_write, per_event)
    }
}

/// Processor time of this thread in seconds: other processes of the host do not count.
pub fn cpu_s() -> f64 {
    // The kernel adds up at ticks of some milliseconds, and when a thread gives the processor away.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat
        .split_whitespace()
        .next()
        .and_then(|w| w.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

/// Seconds that a sequential write takes to replay: best of three.
pub fn sequential_s(profile: &Profile, count: u64) -> f64 {
    let events = sequential_trace(count);
    let options = replay::Options {
        seed: 1,
        used: true,
        keep_trace: false,
    };
    let run = |_| {
        let meter = Meter::new(80_000_000, 1_000_000_000);
        let start = cpu_s();
        replay::replay(profile.clone(), options, &events, meter);
        cpu_s() - start
    };
    (0..3).map(run).fold(f64::MAX, f64::min) / count as f64
}
