// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the model is, in host time: `cargo bench -p drive-tool`.
#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use drive_tool::meter::Meter;
use drive_tool::{profile, replay, speed};
use smr_drive::profile::Profile;
use std::path::Path;
use std::time::Duration;

fn drive() -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives/st8000as0002.toml");
    profile::load(&path).expect("a profile of the house")
}

fn sequential_replay(c: &mut Criterion) {
    const REQUESTS: u64 = 100_000;
    let events = speed::sequential_trace(REQUESTS);
    let options = replay::Options {
        seed: 1,
        used: true,
        keep_trace: false,
    };
    let mut group = c.benchmark_group("replay");
    group
        .throughput(Throughput::Elements(REQUESTS))
        .sample_size(10);
    group.bench_function("sequential 4 KiB", |b| {
        b.iter_batched(
            || (drive(), Meter::new(80_000_000, 1_000_000_000)),
            |(profile, meter)| replay::replay(profile, options, &events, meter).end_ns,
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Written in each sample, however many criterion asks for: more would fill a cache that is to be empty, and fewer would
/// measure the clock.
const WRITES: u64 = 20_000;

fn random_writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("random 4 KiB write");
    group
        .throughput(Throughput::Elements(1))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    for percent in [0, 50, 100] {
        for (name, tenths_tb) in [("0.1 TB", 1), ("8 TB", 80), ("20 TB", 200)] {
            let profile = speed::resized(&drive(), tenths_tb * 100_000_000_000);
            group.bench_function(
                format!("{name}, cache {percent} % full at the start"),
                |b| {
                    b.iter_custom(|iterations| {
                        let mut load = speed::Load::filled(profile.clone(), percent);
                        let start = speed::cpu_s();
                        load.writes(WRITES);
                        let s = speed::cpu_s() - start;
                        Duration::from_secs_f64(s * iterations as f64 / WRITES as f64)
                    });
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, sequential_replay, random_writes);
criterion_main!(benches);
