// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a persistent cache fills, what comes when it is full, and when it is emptied at rest.

use super::readings::{flush, histogram, Readings, MS, S};
use crate::host::{at, Host};
use crate::random::Random;
use smr_drive::profile::{Profile, Translation};
use smr_drive::request::Op;
use zoned::{ZoneId, ZoneType, BLOCK_SECTORS};

/// So many writes are looked at after the cache was full.
const AFTER: u64 = 5_000;
/// A cache that takes more is not filled by what is done.
const WRITES_MAX: u64 = 4_000_000;
const DAY_NS: u64 = 86_400 * S as u64;

/// Where random writes go.
pub struct Places {
    first: u64,
    count: u64,
    blocks: u64,
    skewed: bool,
    random: Random,
}

impl Places {
    /// Places of `kib` in the first `gib` (0: all) of what a host may write in any order and the drive does not write in
    /// place. `skewed`: by Zipf's law with exponent 1, the ranks scattered; else all alike.
    pub fn new(profile: &Profile, kib: u64, gib: u64, skewed: bool) -> Self {
        let zones = match &profile.translation {
            Translation::HostAware(disk) => {
                disk.zones.zone_blocks * u64::from(disk.zones.conventional_first)
            }
            _ => 0,
        };
        let all = profile.capacity_blocks() - zones;
        let range = if gib == 0 { all } else { all.min(gib << 18) };
        let blocks = kib / 4;
        Places {
            first: zones,
            count: range / blocks,
            blocks,
            skewed,
            random: Random(11),
        }
    }

    fn next(&mut self) -> u64 {
        let mut i = self.random.below(self.count);
        if self.skewed {
            // The share of ranks up to r is ln r / ln n.
            let part = i as f64 / self.count as f64;
            let rank = (self.count as f64).powf(part) as u64;
            // An odd factor scatters them, and gives each place to one rank or few.
            i = (u128::from(rank) * 0x9e37_79b9_7f4a_7c15 % u128::from(self.count)) as u64;
        }
        self.first + i * self.blocks
    }
}

/// The host of a drive on which everything was written before. Of a zoned disk this means that all zones are full.
pub fn full(mut host: Host) -> Host {
    for zone in (0..host.drive.zones()).map(ZoneId) {
        let zone = host.drive.zone(zone).expect("one of its zones");
        if zone.zone_type != ZoneType::Conventional {
            host.request(Op::ZoneFinish, at(zone.start.0 / BLOCK_SECTORS, 0), 0)
                .expect("a zone can be finished");
        }
    }
    host
}

/// Writes one at a time until a band had to be cleaned for one: how many before. `None` if that does not happen.
fn fill(host: &mut Host, places: &mut Places) -> Option<u64> {
    (0..WRITES_MAX).find(|_| {
        write(host, places);
        host.drive.counters().bands_cleaned_forced > 0
    })
}

fn write(host: &mut Host, places: &mut Places) -> u64 {
    let range = at(places.next(), places.blocks);
    host.request(Op::Write, range, 0)
        .expect("inside the drive, one at a time")
}

/// Fills the cache, and goes on for a while.
pub fn fill_and_go_on(mut host: Host, mut places: Places) -> Readings {
    let start_ns = host.now_ns;
    let Some(writes) = fill(&mut host, &mut places) else {
        return Readings::new();
    };
    let mib = places.blocks as f64 / 256.0;
    let knee_s = (host.now_ns - start_ns) as f64 / S;
    let mut latencies = histogram();
    let knee_ns = host.now_ns;
    for _ in 0..AFTER {
        latencies.saturating_record(write(&mut host, &mut places));
    }
    let after_s = (host.now_ns - knee_ns) as f64 / S;
    let mb_s = |writes: u64, s: f64| writes as f64 * mib * 1.048576 / s;
    let ms = |q| latencies.value_at_quantile(q) as f64 / MS;
    Readings::from([
        ("knee_writes", writes as f64),
        ("knee_gib", writes as f64 * mib / 1024.0),
        ("knee_s", knee_s),
        ("knee_iops", writes as f64 / knee_s),
        ("knee_mb_s", mb_s(writes, knee_s)),
        ("after_iops", AFTER as f64 / after_s),
        ("after_mb_s", mb_s(AFTER, after_s)),
        ("after_p50_ms", ms(0.5)),
        ("after_p90_ms", ms(0.9)),
        ("after_p99_ms", ms(0.99)),
        ("after_max_s", latencies.max() as f64 / S),
    ])
}

/// Fills the cache, and lets the drive rest until it is clean.
pub fn fill_and_rest(mut host: Host, mut places: Places) -> Readings {
    if fill(&mut host, &mut places).is_none() {
        return Readings::new();
    }
    flush(&mut host);
    let start_ns = host.now_ns;
    let (bands, before) = (
        host.drive.snapshot().bands_dirty,
        host.drive.counters().clone(),
    );
    while host.drive.counters().bands_cleaned_idle == 0 && host.now_ns < start_ns + DAY_NS {
        host.sleep(S as u64);
    }
    let begun_ns = host.now_ns;
    let _ = host.wait_clean(DAY_NS);
    let after = host.drive.counters();
    let cleaning_s = (after.cleaning_ns - before.cleaning_ns) as f64 / S;
    let h = |ns: u64| (ns - start_ns) as f64 / S / 3600.0;
    Readings::from([
        ("bands", bands as f64),
        ("begins_h", h(begun_ns)),
        ("cleans_h", h(host.now_ns) - h(begun_ns)),
        ("band_s", cleaning_s / after.bands_cleaned_idle as f64),
    ])
}
