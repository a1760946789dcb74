// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host-aware drive of SAFS, natively: streams at the write pointers run at the rate of the medium, random writes to
//! more zones than it can follow collapse, and a reset costs next to nothing.

mod common;

use common::{at, host, Random, MIB_BLOCKS};
use drive_tool::host::Host;
use smr_drive::request::Op;
use zoned::{ZoneId, ZoneState};

const DRIVE: &str = "safs5000ha";
const ZONE_BLOCKS: u64 = 256 * MIB_BLOCKS;
/// The first zone that is not conventional.
const FIRST: u64 = 64;
const S: f64 = 1e9;

/// Writes `request` blocks at a time to each of `zones` in turn, eight requests at a time, until each has `blocks`.
fn round_robin(host: &mut Host, zones: &[u64], blocks: u64, request: u64) {
    let mut running = 0;
    for offset in (0..blocks).step_by(request as usize) {
        for zone in zones {
            while running >= 8 {
                host.step();
                running -= host.completions();
            }
            let place = at(zone * ZONE_BLOCKS + offset, request);
            host.submit(Op::Write, place, 0).unwrap();
            running += 1;
        }
    }
    while running > 0 {
        host.step();
        running -= host.completions();
    }
}

fn mib_per_s(blocks: u64, ns: u64) -> f64 {
    blocks as f64 / MIB_BLOCKS as f64 / (ns as f64 / S)
}

/// SAFS, App 1: four files appended to in turn. The slides have 143.1 MiB/s end to end on this drive, so the drive alone
/// must do better; its medium gives 171 MiB/s here.
#[test]
fn four_streams_in_turn_run_at_the_rate_of_the_medium() {
    let mut host = host(DRIVE);
    let zones: Vec<u64> = (FIRST..FIRST + 4).collect();
    round_robin(&mut host, &zones, ZONE_BLOCKS, 128);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    let written = zones.len() as u64 * ZONE_BLOCKS;
    let rate = mib_per_s(written, host.now_ns);
    println!("four streams: {rate:.1} MiB/s");
    let c = host.drive.counters();
    assert_eq!((c.cached_bytes, c.streamed_bytes), (0, written * 4096));
    assert!((145.0..172.0).contains(&rate), "{rate}");
    for zone in &zones {
        assert_eq!(
            host.drive.zone(ZoneId(*zone as u32)).unwrap().state,
            ZoneState::Full
        );
    }
    assert!(host.drive.is_clean());
}

#[test]
fn random_writes_to_more_zones_than_it_can_follow_collapse() {
    let rate = |zones: u64, requests: u64| {
        let mut host = host(DRIVE);
        let all: Vec<u64> = (FIRST..FIRST + zones).collect();
        round_robin(&mut host, &all, ZONE_BLOCKS / 8, 256);
        host.request(Op::Flush, at(0, 0), 0).unwrap();
        let (start_ns, mut random) = (host.now_ns, Random(1));
        for _ in 0..requests {
            let block = random.below(ZONE_BLOCKS / 8);
            let zone = FIRST + random.below(zones);
            host.request(Op::Write, at(zone * ZONE_BLOCKS + block, 1), 0)
                .unwrap();
        }
        host.request(Op::Flush, at(0, 0), 0).unwrap();
        let c = host.drive.counters().clone();
        assert!(host.drive.snapshot().bands_dirty <= 16);
        (requests as f64 / ((host.now_ns - start_ns) as f64 / S), c)
    };
    let (few, counters) = rate(16, 3000);
    assert_eq!(counters.bands_cleaned_forced, 0);
    let (many, counters) = rate(64, 300);
    println!("random 4 KiB writes into 16 zones {few:.0} /s, into 64 zones {many:.2} /s");
    assert!(counters.bands_cleaned_forced > 100);
    assert!(few > 1000.0 && many < 5.0, "{few} {many}");
}

#[test]
fn more_open_zones_than_is_optimal_cost_a_note_each() {
    let rate = |zones: u64| {
        let mut host = host(DRIVE);
        let all: Vec<u64> = (FIRST..FIRST + zones).collect();
        round_robin(&mut host, &all, 4 * MIB_BLOCKS, 64);
        host.request(Op::Flush, at(0, 0), 0).unwrap();
        assert_eq!(host.drive.snapshot().zones_open, zones.min(128) as u32);
        mib_per_s(zones * 4 * MIB_BLOCKS, host.now_ns)
    };
    let (optimal, beyond) = (rate(128), rate(129));
    println!("streams into 128 zones {optimal:.1} MiB/s, into 129 {beyond:.1} MiB/s");
    assert!(beyond < optimal / 2.0);
}

#[test]
fn an_idle_drive_cleans_its_zones_and_a_reset_is_cheaper_than_that() {
    let mut host = host(DRIVE);
    round_robin(&mut host, &[FIRST, FIRST + 1], ZONE_BLOCKS, 256);
    for zone in [FIRST, FIRST + 1] {
        host.request(Op::Write, at(zone * ZONE_BLOCKS + 5000, 1), 0)
            .unwrap();
    }
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    assert_eq!(host.drive.snapshot().bands_dirty, 2);
    let reset_ns = host
        .request(Op::ZoneReset, at(FIRST * ZONE_BLOCKS, 0), 0)
        .unwrap();
    assert_eq!(host.drive.snapshot().bands_dirty, 1);
    host.wait_clean(60_000_000_000)
        .expect("clean within a minute");
    let c = host.drive.counters();
    let cleaning_s = c.cleaning_ns as f64 / S;
    println!(
        "reset {} ms, a full zone cleaned in {cleaning_s:.2} s",
        reset_ns / 1_000_000
    );
    assert_eq!(c.bands_cleaned_idle, 1);
    // Read and twice written, 256 MiB at 171 MiB/s.
    assert!((4.0..6.0).contains(&cleaning_s), "{cleaning_s}");
    assert!(reset_ns < 20_000_000);
}
