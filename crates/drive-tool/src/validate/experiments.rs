// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a drive so that it can be compared with a measurement. Each experiment gives named readings; the
//! rows of `targets.rs` name the one that they are about.
//!
//! Everything is decided by the profile and the seeds in here: the same sources give the same numbers, to the last bit.

use super::filling::{self, Places};
use super::readings::{flush, histogram, Readings, MS, S};
use crate::host::{at, Host};
use crate::random::Random;
use serde::{Deserialize, Serialize};
use smr_drive::mechanics::arm::{seek_ns, Arm};
use smr_drive::profile::{Profile, Translation};
use smr_drive::request::{Op, FLAG_FUA};
use smr_drive::translation::static_mapping::bands::Bands;
use std::fmt;
use zoned::{Block, BlockRange};

/// Of every drive and every run of the validation.
pub const SEED: u64 = 7;
/// A request that takes as long waits for a slice of cleaning: the least stall of the logs.
const STALL_NS: u64 = 80_000_000;
/// The longest stall that the logs count as one slice.
const SLICE_STALL_MAX_NS: u64 = 170_000_000;
const GIB_BLOCKS: u64 = 1 << 18;
const MIB_BLOCKS: u64 = 1 << 8;
const ZONE_BLOCKS: u64 = 256 * MIB_BLOCKS;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Experiment {
    /// 500,000 random 4 KiB writes within the first `gib` (0: the whole drive), one at a time, on a clean drive that was
    /// written before. Windows of 50,000, as in the logs.
    RandomWrites {
        /// Size of the range.
        gib: u64,
    },
    /// The same within a range of mebibytes.
    RandomWritesMib {
        /// Size of the range.
        mib: u64,
    },
    /// The same for `warm_s`, then `log_s` in which every request's latency is kept.
    Stalls {
        /// Size of the range.
        gib: u64,
        /// Not looked at.
        warm_s: u64,
        /// Looked at.
        log_s: u64,
    },
    /// 10,000 random 4 KiB writes over the whole drive, in windows of 2,000.
    FewRandomWrites,
    /// 1 GiB in requests of 1 MiB, eight at a time, beginning `per_mille` of the way inwards.
    Sequential {
        /// Direction.
        write: bool,
        /// Place: 0 is the outer edge, 1000 the inner one.
        per_mille: u64,
    },
    /// The same, beginning at an address, rounded down to 256 MiB.
    SequentialAt {
        /// Direction.
        write: bool,
        /// Address, in gigabytes.
        gb: u64,
    },
    /// 64 GiB from the outer edge on, read in requests of 1 MiB, eight at a time.
    #[serde(rename = "first_64_gib")]
    First64GiB,
    /// Sequential reads at 33 places, evenly over the addresses.
    RateCurve,
    /// 2,000 random 4 KiB reads over the whole drive, one at a time.
    RandomReads,
    /// The arm alone: seeks between random places, without rotation.
    Seeks,
    /// 20 bands, evenly over the drive, `pieces` blocks of each cached one by one in random order; then idleness until all
    /// is clean. From 4,000 pieces on, one band in the middle.
    BandClean {
        /// 4 KiB blocks per band; at most all of them.
        pieces: u64,
    },
    /// One 4 KiB write to each of `places`, evenly over `1/share` in the middle of the drive; then idleness until all is
    /// clean.
    Touch {
        /// Number of writes.
        places: u64,
        /// 1: the whole drive.
        share: u64,
    },
    /// One sequential run of this many blocks and a flush, on a new drive.
    Run {
        /// 4 KiB blocks.
        blocks: u64,
    },
    /// 512 MiB sequential with one 4 KiB write elsewhere in the middle, against the same without.
    Interrupted,
    /// 250,000 random 4 KiB writes over 8 GiB, then 8 GiB sequential.
    CacheReset,
    /// Random writes of `kib` over the whole drive, one at a time, until one waits for the cache; then 5,000 more. Of a
    /// host-aware drive, over its sequential zones.
    CacheFill {
        /// Size of a write.
        kib: u64,
    },
    /// The same within the first `gib` (0: the whole drive), by Zipf's law with exponent 1.
    Skewed {
        /// Size of a write.
        kib: u64,
        /// Size of the range.
        gib: u64,
    },
    /// Random writes of `kib` over the whole drive until one waits for the cache; then rest until all is clean.
    CacheRest {
        /// Size of a write.
        kib: u64,
    },
    /// Ten commits of 20 MiB as jbd2 writes them, 5 s apart.
    Journal,
    /// Nothing is done: what the profile's geometry gives.
    Geometry,
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Experiment::RandomWrites { gib: 0 } => write!(f, "500,000 random 4 KiB writes"),
            Experiment::RandomWrites { gib } => {
                write!(f, "500,000 random 4 KiB writes over {gib} GiB")
            }
            Experiment::RandomWritesMib { mib } => {
                write!(f, "500,000 random 4 KiB writes over {mib} MiB")
            }
            Experiment::Stalls { gib, warm_s, log_s } => {
                write!(
                    f,
                    "random 4 KiB writes over {gib} GiB, {log_s} s after {warm_s} s"
                )
            }
            Experiment::FewRandomWrites => write!(f, "10,000 random 4 KiB writes"),
            Experiment::Sequential { write, per_mille } => {
                let op = if *write { "write" } else { "read" };
                write!(f, "sequential {op}, {} % inwards", *per_mille as f64 / 10.0)
            }
            Experiment::First64GiB => write!(f, "sequential read of the first 64 GiB"),
            Experiment::RateCurve => write!(f, "sequential reads at 33 places"),
            Experiment::RandomReads => write!(f, "2,000 random 4 KiB reads"),
            Experiment::Seeks => write!(f, "seeks"),
            Experiment::BandClean { pieces } => write!(f, "bands with {pieces} cached pieces"),
            Experiment::Touch { places, share: 1 } => write!(f, "{places} places written"),
            Experiment::Touch { places, share } => {
                write!(f, "{places} places in 1/{share} of the drive written")
            }
            Experiment::Run { blocks } => write!(f, "a run of {} KiB", blocks * 4),
            Experiment::Interrupted => write!(f, "a stream, interrupted once"),
            Experiment::CacheReset => write!(f, "250,000 random writes, then sequential ones"),
            Experiment::SequentialAt { write, gb } => {
                let op = if *write { "write" } else { "read" };
                write!(f, "sequential {op} at {gb} GB")
            }
            Experiment::CacheFill { kib } => write!(f, "random writes of {kib} KiB"),
            Experiment::Skewed { kib, gib: 0 } => write!(f, "skewed writes of {kib} KiB"),
            Experiment::Skewed { kib, gib } => {
                write!(f, "skewed writes of {kib} KiB over {gib} GiB")
            }
            Experiment::CacheRest { kib } => write!(f, "rest after random writes of {kib} KiB"),
            Experiment::Journal => write!(f, "commits of 20 MiB every 5 s"),
            Experiment::Geometry => write!(f, "geometry"),
        }
    }
}

/// Does it.
pub fn run(profile: &Profile, experiment: Experiment) -> Readings {
    let host = || Host::new(profile.clone(), SEED);
    let used = || Host::used(profile.clone(), SEED);
    let full = || filling::full(used());
    match experiment {
        Experiment::RandomWrites { gib } => random_writes(used(), gib * 1024),
        Experiment::RandomWritesMib { mib } => random_writes(used(), mib),
        Experiment::Stalls { gib, warm_s, log_s } => stalls(used(), gib * 1024, warm_s, log_s),
        Experiment::FewRandomWrites => few_random_writes(host()),
        Experiment::Sequential { write, per_mille } => {
            let op = if write { Op::Write } else { Op::Read };
            let mb_s = sequential(&mut host(), op, place(profile, per_mille, 1024), 1024);
            Readings::from([("mb_s", mb_s)])
        }
        Experiment::SequentialAt { write, gb } => {
            let op = if write { Op::Write } else { Op::Read };
            let from = gb * 1_000_000_000 / 4096 / ZONE_BLOCKS * ZONE_BLOCKS;
            Readings::from([("mb_s", sequential(&mut host(), op, from, 1024))])
        }
        Experiment::CacheFill { kib } => {
            filling::fill_and_go_on(full(), Places::new(profile, kib, 0, false))
        }
        Experiment::Skewed { kib, gib } => {
            filling::fill_and_go_on(full(), Places::new(profile, kib, gib, true))
        }
        Experiment::CacheRest { kib } => {
            filling::fill_and_rest(full(), Places::new(profile, kib, 0, false))
        }
        Experiment::First64GiB => {
            let mb_s = sequential(&mut host(), Op::Read, 0, 64 * 1024);
            Readings::from([("mib_s", mb_s * 1e6 / 1048576.0)])
        }
        Experiment::RateCurve => rate_curve_readings(profile),
        Experiment::RandomReads => random_reads(host()),
        Experiment::Seeks => seeks(profile),
        Experiment::BandClean { pieces } => band_clean(used(), pieces),
        Experiment::Touch { places, share } => touch(used(), places, share),
        Experiment::Run { blocks } => one_run(host(), blocks),
        Experiment::Interrupted => interrupted(profile),
        Experiment::CacheReset => cache_reset(used()),
        Experiment::Journal => journal(used()),
        Experiment::Geometry => geometry(profile),
    }
}

/// The first `mib` of a drive; 0 is all of it.
fn range_blocks(host: &Host, mib: u64) -> u64 {
    let all = host.drive.profile().capacity_blocks();
    if mib == 0 {
        all
    } else {
        all.min(mib * MIB_BLOCKS)
    }
}

fn write_one(host: &mut Host, random: &mut Random, range: u64) -> u64 {
    host.request(Op::Write, at(random.below(range), 1), 0)
        .expect("inside the drive, one at a time")
}

fn random_writes(mut host: Host, mib: u64) -> Readings {
    const WRITES: u64 = 500_000;
    const WINDOW: u64 = 50_000;
    let range = range_blocks(&host, mib);
    let mut random = Random(11);
    let mut readings = Readings::new();
    let (mut written, mut slow) = (Vec::new(), 0u64);
    let (mut window_ns, mut windows, mut slow_before) = (0, Vec::new(), vec![0]);
    for i in 0..WRITES {
        let block = random.below(range);
        let before_ns = host.now_ns;
        let ns = host
            .request(Op::Write, at(block, 1), 0)
            .expect("inside the drive, one at a time");
        if ns >= STALL_NS {
            if slow == 0 {
                written.sort_unstable();
                written.dedup();
                readings.insert("knee_writes", i as f64);
                readings.insert("knee_distinct", written.len() as f64);
                readings.insert("knee_s", before_ns as f64 / S);
                readings.insert("plateau_iops", i as f64 / (before_ns as f64 / S));
                written = Vec::new();
            }
            slow += 1;
        }
        if slow == 0 {
            written.push(block);
        }
        if (i + 1) % WINDOW == 0 {
            let s = (host.now_ns - window_ns) as f64 / S;
            window_ns = host.now_ns;
            windows.push(s);
            slow_before.push(slow);
        }
    }
    readings.insert("slow_writes", slow as f64);
    readings.insert("total_s", host.now_ns as f64 / S);
    let ms = |s: f64| s / WINDOW as f64 * 1e3;
    // Early is the first window that lies behind the knee as a whole, late the last one.
    let early = (0..windows.len()).find(|i| slow_before[*i] > 0);
    if let Some(early) = early {
        readings.insert("early_ms", ms(windows[early]));
    }
    let late_s = windows[windows.len() - 1];
    readings.insert("late_ms", ms(late_s));
    readings.insert("late_iops", WINDOW as f64 / late_s);
    readings.insert("first_window_s", windows[0]);
    readings.insert("first_50k_iops", WINDOW as f64 / windows[0]);
    readings.insert("window_5_s", windows[4]);
    readings.insert("window_9_s", windows[8]);
    if let Some(plateau) = readings.get("plateau_iops") {
        readings.insert("plateau_over_late", plateau / readings["late_iops"]);
    }
    readings
}

fn stalls(mut host: Host, mib: u64, warm_s: u64, log_s: u64) -> Readings {
    let range = range_blocks(&host, mib);
    let mut random = Random(11);
    while host.now_ns < warm_s * S as u64 {
        write_one(&mut host, &mut random, range);
    }
    let end_ns = host.now_ns + log_s * S as u64;
    let mut latencies = histogram();
    let (mut slices, mut fast) = (0u64, 0u64);
    while host.now_ns < end_ns {
        let ns = write_one(&mut host, &mut random, range);
        latencies.saturating_record(ns);
        slices += u64::from((STALL_NS..=SLICE_STALL_MAX_NS).contains(&ns));
        fast += u64::from(ns < STALL_NS);
    }
    let ms = |q| latencies.value_at_quantile(q) as f64 / MS;
    let stalls = latencies.len() - fast;
    Readings::from([
        ("p50_ms", ms(0.5)),
        ("p90_ms", ms(0.9)),
        ("p99_ms", ms(0.99)),
        ("max_s", latencies.max() as f64 / S),
        ("stalls", slices as f64),
        ("other_stalls", (stalls - slices) as f64),
        ("fast_between", fast as f64 / (stalls as f64).max(1.0)),
    ])
}

fn few_random_writes(mut host: Host) -> Readings {
    let range = range_blocks(&host, 0);
    let mut random = Random(11);
    let (mut least, mut most, mut window_ns) = (f64::MAX, 0f64, 0);
    let mut readings = Readings::new();
    for i in 0..10_000 {
        write_one(&mut host, &mut random, range);
        if (i + 1) % 2_000 == 0 {
            let iops = 2_000.0 / ((host.now_ns - window_ns) as f64 / S);
            window_ns = host.now_ns;
            if i < 2_000 {
                readings.insert("first_window_iops", iops);
            }
            (least, most) = (least.min(iops), most.max(iops));
        }
    }
    readings.insert("iops", 10_000.0 / (host.now_ns as f64 / S));
    readings.insert("highest_over_lowest", most / least);
    readings
}

/// First block of a run of `mib`, aligned to its requests.
fn place(profile: &Profile, per_mille: u64, mib: u64) -> u64 {
    let last = profile.capacity_blocks() - (mib + 1) * MIB_BLOCKS;
    last * per_mille / 1000 / MIB_BLOCKS * MIB_BLOCKS
}

/// Megabytes per second of `count` requests of 1 MiB, eight at a time, the flush at the end included.
fn sequential(host: &mut Host, op: Op, from: u64, count: u64) -> f64 {
    let start_ns = host.now_ns;
    host.run_of(op, from, count * MIB_BLOCKS, MIB_BLOCKS, 8);
    flush(host);
    count as f64 * 1048576.0 / 1e6 / ((host.now_ns - start_ns) as f64 / S)
}

/// Address as a share of the drive, and MB/s there.
pub fn rate_curve(profile: &Profile) -> Vec<(f64, f64)> {
    (0..=32)
        .map(|i| {
            let per_mille = i * 1000 / 32;
            let mut host = Host::new(profile.clone(), SEED);
            let from = place(profile, per_mille, 256);
            (i as f64 / 32.0, sequential(&mut host, Op::Read, from, 256))
        })
        .collect()
}

fn rate_curve_readings(profile: &Profile) -> Readings {
    let curve = rate_curve(profile);
    // The time to read it all: trapezoids over the reciprocal, as a data sheet's average is bytes over time.
    let s_per_mb: f64 = curve
        .windows(2)
        .map(|w| (1.0 / w[0].1 + 1.0 / w[1].1) / 2.0)
        .sum::<f64>()
        / (curve.len() - 1) as f64;
    let mean = curve.iter().map(|(_, mb_s)| mb_s).sum::<f64>() / curve.len() as f64;
    Readings::from([("mean_mb_s", mean), ("whole_drive_mb_s", 1.0 / s_per_mb)])
}

fn random_reads(mut host: Host) -> Readings {
    let range = range_blocks(&host, 0);
    let mut random = Random(11);
    for _ in 0..2_000 {
        host.request(Op::Read, at(random.below(range), 1), 0)
            .expect("inside the drive, one at a time");
    }
    Readings::from([("mean_ms", host.now_ns as f64 / 2_000.0 / MS)])
}

fn seeks(profile: &Profile) -> Readings {
    let mechanics = &profile.mechanics;
    let arm = Arm::new(mechanics, SEED);
    let cylinders = arm.layout().cylinders();
    let mut random = Random(11);
    let total: u64 = (0..100_000)
        .map(|_| {
            let (a, b) = (random.below(cylinders), random.below(cylinders));
            seek_ns(&mechanics.seek, a.abs_diff(b), cylinders)
        })
        .sum();
    let mean_ms = total as f64 / 100_000.0 / MS;
    let write_ms = mean_ms + mechanics.write_settle_ns as f64 / MS;
    let full = seek_ns(&mechanics.seek, cylinders - 1, cylinders);
    Readings::from([
        ("mean_ms", mean_ms),
        ("write_mean_ms", write_ms),
        ("full_ms", full as f64 / MS),
    ])
}

fn bands(profile: &Profile) -> Option<Bands> {
    let Translation::StaticMapping(mapping) = &profile.translation else {
        return None;
    };
    let arm = Arm::new(&profile.mechanics, SEED);
    Some(Bands::new(arm.layout(), mapping, profile))
}

fn geometry(profile: &Profile) -> Readings {
    let Some(bands) = bands(profile) else {
        return Readings::new();
    };
    let mib = |block: u64| bands.range_of(Block(block)).blocks() as f64 / MIB_BLOCKS as f64;
    let last = profile.capacity_blocks() - 1;
    let mean = profile.capacity_bytes as f64 / 1048576.0 / f64::from(bands.count());
    Readings::from([
        ("bands", f64::from(bands.count())),
        ("mean_band_mib", mean),
        ("outer_band_mib", mib(0)),
        // The last band may be cut off by the end of the drive.
        ("inner_band_mib", mib(last - 64 * MIB_BLOCKS)),
    ])
}

fn cleaned(host: &mut Host) -> (f64, f64) {
    let start_ns = host.now_ns;
    flush(host);
    // A day is longer than anything in here takes.
    let _ = host.wait_clean(86_400 * S as u64);
    let c = host.drive.counters();
    let bands = c.bands_cleaned_idle as f64;
    let wait_s = (host.now_ns - start_ns) as f64 / S;
    (c.cleaning_ns as f64 / S / bands.max(1.0), wait_s)
}

fn band_clean(mut host: Host, pieces: u64) -> Readings {
    const BANDS: u64 = 20;
    let mut random = Random(3);
    let profile = host.drive.profile().clone();
    let Some(bands) = bands(&profile) else {
        return Readings::new();
    };
    let count = if pieces > 4_000 { 1 } else { BANDS };
    for i in 0..count {
        let middle = profile.capacity_blocks() * (2 * i + 1) / (2 * count);
        let range = bands.range_of(Block(middle));
        let order = shuffled(range, &mut random);
        for block in order.into_iter().take(pieces as usize) {
            // Durable one by one: in the buffer they would be put in order.
            host.request(Op::Write, at(block, 1), FLAG_FUA)
                .expect("inside the drive");
        }
    }
    let (per_band_s, _) = cleaned(&mut host);
    Readings::from([("band_s", per_band_s)])
}

fn shuffled(range: BlockRange, random: &mut Random) -> Vec<u64> {
    let mut all: Vec<u64> = (range.start.0..range.end.0).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

fn touch(mut host: Host, places: u64, share: u64) -> Readings {
    let profile = host.drive.profile().clone();
    let Some(bands) = bands(&profile) else {
        return Readings::new();
    };
    let stride = profile.capacity_blocks() / share / places;
    let first = (profile.capacity_blocks() - stride * places) / 2;
    let mut blocks = 0;
    for i in 0..places {
        // Not at a band's edge.
        let block = first + i * stride + stride / 2;
        blocks += bands.range_of(Block(block)).blocks();
        host.request(Op::Write, at(block, 1), 0)
            .expect("inside the drive");
    }
    flush(&mut host);
    let dirty = host.drive.snapshot().bands_dirty;
    let (per_band_s, wait_s) = cleaned(&mut host);
    let gib = blocks as f64 / GIB_BLOCKS as f64;
    let media_s = blocks as f64 * 4096.0 / profile_mean_rate(&profile);
    Readings::from([
        ("bands_dirty", dirty as f64),
        ("cleaned_gib", gib),
        ("band_s", per_band_s),
        ("clean_after_s", wait_s),
        // How often each band's bytes pass the head: cleaning time over the time of one pass.
        ("passes", per_band_s * places as f64 / media_s),
    ])
}

/// Bytes per second over the whole drive, track steps included.
fn profile_mean_rate(profile: &Profile) -> f64 {
    let arm = Arm::new(&profile.mechanics, SEED);
    let blocks = arm.layout().blocks();
    let ns = arm.transfer_ns(zoned::Pba(0), blocks - 1);
    blocks as f64 * 4096.0 / (ns as f64 / S)
}

fn one_run(mut host: Host, blocks: u64) -> Readings {
    host.run_of(Op::Write, 0, blocks, 64, 8);
    flush(&mut host);
    let c = host.drive.counters();
    let all = (blocks * 4096) as f64;
    Readings::from([
        ("streamed_share", c.streamed_bytes as f64 / all),
        ("cached_share", c.cached_bytes as f64 / all),
    ])
}

fn interrupted(profile: &Profile) -> Readings {
    let half = 256 * MIB_BLOCKS;
    let elsewhere = profile.capacity_blocks() / 2;
    let took = |interrupt: bool| {
        let mut host = Host::new(profile.clone(), SEED);
        host.run_of(Op::Write, 0, half, 256, 8);
        if interrupt {
            host.request(Op::Write, at(elsewhere, 1), FLAG_FUA)
                .expect("inside the drive");
        }
        host.run_of(Op::Write, half, half, 256, 8);
        flush(&mut host);
        let c = host.drive.counters();
        (
            host.now_ns,
            c.streamed_bytes as f64 / (2 * half * 4096) as f64,
        )
    };
    let (plain_ns, _) = took(false);
    let (disrupted_ns, streamed) = took(true);
    let excursion_ms = (disrupted_ns as f64 - plain_ns as f64) / MS;
    Readings::from([("excursion_ms", excursion_ms), ("streamed_share", streamed)])
}

fn cache_reset(mut host: Host) -> Readings {
    let mut random = Random(11);
    for _ in 0..250_000 {
        write_one(&mut host, &mut random, 8 * GIB_BLOCKS);
    }
    flush(&mut host);
    let before = host.drive.snapshot().cache_entries;
    host.run_of(Op::Write, 0, 8 * GIB_BLOCKS, MIB_BLOCKS, 8);
    flush(&mut host);
    let after = host.drive.snapshot().cache_entries;
    Readings::from([
        ("entries_before", before as f64),
        ("entries_after", after as f64),
    ])
}

fn journal(mut host: Host) -> Readings {
    let commit = |host: &mut Host, from: u64| {
        host.run_of(Op::Write, from, 20 * MIB_BLOCKS, 64, 8);
        flush(host);
        let end = from + 20 * MIB_BLOCKS;
        host.request(Op::Write, at(end, 1), FLAG_FUA)
            .expect("inside the drive");
        end + 1
    };
    let middle = host.drive.profile().capacity_blocks() / 2;
    let mut next = commit(&mut host, middle);
    let before = host.drive.snapshot().seeks;
    for _ in 0..10 {
        next = commit(&mut host, next);
        host.sleep(5 * S as u64);
    }
    let c = host.drive.counters();
    let seeks = host.drive.snapshot().seeks - before;
    Readings::from([
        ("cached_bytes", c.cached_bytes as f64),
        ("seeks_per_commit", seeks as f64 / 10.0),
    ])
}

/// MiB/s of random 4 KiB writes over the whole drive, second by second, for `seconds`: FAST'17's Figure 1.
pub fn throughput_curve(profile: &Profile, seconds: u64) -> Vec<f64> {
    let mut host = filling::full(Host::used(profile.clone(), SEED));
    let start_ns = host.now_ns;
    let range = range_blocks(&host, 0);
    let mut random = Random(11);
    let mut bytes = vec![0u64; seconds as usize];
    loop {
        write_one(&mut host, &mut random, range);
        match bytes.get_mut(((host.now_ns - start_ns) / 1_000_000_000) as usize) {
            Some(second) => *second += 4096,
            None => break,
        }
    }
    bytes.iter().map(|b| *b as f64 / 1048576.0).collect()
}

/// Seconds to clean one band against the number of its cached pieces.
pub fn cleaning_curve(profile: &Profile) -> Vec<(u64, f64)> {
    [1, 3, 10, 30, 100, 300, 1000, 3000, 7680]
        .into_iter()
        .map(|pieces| {
            let readings = run(profile, Experiment::BandClean { pieces });
            (pieces, readings.get("band_s").copied().unwrap_or(0.0))
        })
        .collect()
}

/// Bands cleaned while a host writes one block to each of 250 bands and then, ten times, reads once and pauses for 3 s.
pub fn cleaned_in_pauses(profile: &Profile) -> f64 {
    let mut host = Host::used(profile.clone(), SEED);
    let stride = profile.capacity_blocks() / 250;
    for i in 0..250 {
        host.request(Op::Write, at(i * stride + stride / 2, 1), 0)
            .expect("inside the drive");
    }
    flush(&mut host);
    for i in 0..10 {
        host.sleep(3_000_000_000);
        host.request(Op::Read, at(i * stride, 1), 0)
            .expect("inside the drive");
    }
    host.drive.counters().bands_cleaned_idle as f64
}
