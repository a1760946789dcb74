// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives and requests for measuring how fast the model itself is, in host time: shared by the benchmarks
//! (benches/native.rs) and by the program that writes docs/performance.md (examples/performance.rs).

use crate::host::{at, Host};
use crate::random::Random;
use crate::trace_file::{Event, Row};
use smr_drive::profile::{Profile, Translation};
use smr_drive::request::{Op, Request};
use zoned::Lba;

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

/// A drive whose cache is full to `percent`, of entries spread over all of it.
pub fn filled(profile: Profile, percent: u64) -> (Host, Random) {
    let mut host = Host::used(profile, 1);
    let mut random = Random(9);
    let entries = match &host.drive.profile().translation {
        Translation::StaticMapping(m) => m.cache_entries_max,
        _ => 0,
    };
    let blocks = host.drive.profile().capacity_blocks();
    while host.drive.snapshot().cache_entries * 100 + 2_000 * 100 < entries * percent {
        for _ in 0..1_000 {
            write(&mut host, &mut random, blocks);
        }
    }
    (host, random)
}

/// One random 4 KiB write.
pub fn write(host: &mut Host, random: &mut Random, blocks: u64) {
    host.request(Op::Write, at(random.below(blocks), 1), 0)
        .expect("inside the drive");
}
