// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drives of `drives/` against what was measured on real ones.
//!
//! `cargo test -p drive-tool --test validation -- --nocapture` prints the tables of docs/drive-model.md.

mod common;

use common::{at, host, used_host, Random, GIB_BLOCKS, S};
use drive_tool::host::Host;
use smr_drive::request::Op;

fn random(host: &mut Host, op: Op, count: u64, range_blocks: u64, seed: u64) -> f64 {
    let mut random = Random(seed);
    let start_ns = host.now_ns;
    for _ in 0..count {
        host.request(op, at(random.below(range_blocks), 1), 0)
            .unwrap();
    }
    (host.now_ns - start_ns) as f64 / S
}

/// Megabytes per second of `count` requests of 1 MiB, eight at a time.
fn sequential(host: &mut Host, op: Op, from: u64, count: u64) -> f64 {
    let start_ns = host.now_ns;
    let (mut submitted, mut done) = (0, 0);
    while done < count {
        if submitted < count && submitted - done < 8 {
            host.submit(op, at(from + submitted * 256, 256), 0).unwrap();
            submitted += 1;
            continue;
        }
        done += host.completions() as u64;
        if done < submitted {
            host.step();
            done += host.completions() as u64;
        }
    }
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    count as f64 * 1048576.0 / 1e6 / ((host.now_ns - start_ns) as f64 / S)
}

#[test]
fn sequential_rates_are_those_of_the_data_sheets() {
    for (name, outer, inner) in [("st8000as0002", 190.0, 85.0), ("wd5000ys", 65.0, 35.0)] {
        let last = host(name).drive.profile().capacity_blocks() - 1030 * 256;
        for (place, from, expected) in [("OD", 0, outer), ("ID", last, inner)] {
            for op in [Op::Read, Op::Write] {
                let rate = sequential(&mut host(name), op, from / 256 * 256, 1024);
                println!("{name} {place} {op:?}: {rate:.0} MB/s (data sheet {expected})");
                assert!(
                    (rate / expected - 1.0).abs() < 0.12,
                    "{name} {place} {op:?} {rate}"
                );
            }
        }
    }
}

#[test]
fn random_reads_take_as_long_as_measured() {
    for (name, expected_ms) in [("st8000as0002", 14.0), ("wd5000ys", 8.9 + 4.17)] {
        let mut host = host(name);
        let blocks = host.drive.profile().capacity_blocks();
        let ms = random(&mut host, Op::Read, 2000, blocks, 1) / 2000.0 * 1e3;
        println!("{name}: random 4 KiB read {ms:.1} ms (expected {expected_ms:.1})");
        assert!((ms / expected_ms - 1.0).abs() < 0.1);
    }
}

#[test]
fn random_writes_of_the_conventional_drive_are_slow_and_steady() {
    let mut host = host("wd5000ys");
    let blocks = host.drive.profile().capacity_blocks();
    random(&mut host, Op::Write, 500, blocks, 1);
    let rates: Vec<f64> = (2..6)
        .map(|seed| 2000.0 / random(&mut host, Op::Write, 2000, blocks, seed))
        .collect();
    println!("wd5000ys: random 4 KiB writes per second, four windows: {rates:.0?} (measured on such a drive: 212)");
    assert!(rates.iter().all(|r| (150.0..=220.0).contains(r)));
}

/// (range in GiB, ms per write early and late, as measured)
const FORCED: [(u64, f64, f64); 5] = [
    (2, 10.9, 9.1),
    (8, 8.2, 8.1),
    (32, 7.5, 7.6),
    (128, 14.8, 9.4),
    (512, 48.0, 28.0),
];

#[test]
fn random_writes_fill_the_cache_and_then_wait_for_cleaning() {
    println!(
        "range    fast IOPS   knee at   ms/write early (measured)   late (measured)   s per band"
    );
    for (gib, early_measured, late_measured) in FORCED {
        let range = gib * GIB_BLOCKS;
        let mut host = used_host("st8000as0002", range);
        let mut random = Random(11);
        let start_ns = host.now_ns;
        let mut writes = 0u64;
        // The knee: the first write that waits for a slice of cleaning.
        while host
            .request(Op::Write, at(random.below(range), 1), 0)
            .unwrap()
            < 80_000_000
        {
            writes += 1;
        }
        let knee = writes;
        let fast = knee as f64 / ((host.now_ns - start_ns) as f64 / S);
        let mut windows = Vec::new();
        let cleaned = host.drive.counters().clone();
        for _ in 0..6 {
            let window_ns = host.now_ns;
            for _ in 0..50_000 {
                host.request(Op::Write, at(random.below(range), 1), 0)
                    .unwrap();
            }
            windows.push((host.now_ns - window_ns) as f64 / 50_000.0 / 1e6);
        }
        let c = host.drive.counters();
        let bands = c.bands_cleaned_forced - cleaned.bands_cleaned_forced;
        let per_band = (c.cleaning_ns - cleaned.cleaning_ns) as f64 / S / bands as f64;
        let (early, late) = (windows[0], windows[5]);
        println!(
            "{gib:4} GiB {fast:9.0} {knee:10} {early:10.1} ({early_measured}){late:15.1} ({late_measured}) {per_band:12.2}   {windows:.1?}"
        );
        assert!((3000.0..3600.0).contains(&fast), "{fast}");
        for (rate, measured) in [(early, early_measured), (late, late_measured)] {
            assert!(
                (rate / measured - 1.0).abs() < 0.25,
                "{gib} GiB: {rate:.1} ms, measured {measured}"
            );
        }
    }
}
