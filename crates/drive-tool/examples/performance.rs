// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes docs/performance.md: `cargo run --release -p drive-tool --example performance > docs/performance.md`.
//! One of two places where the host's clock is read: they measure the host.
#![allow(clippy::disallowed_methods)]

use drive_tool::meter::Meter;
use drive_tool::{profile, replay, speed};
use smr_drive::profile::Profile;
use std::path::Path;
use std::time::Instant;

const WRITES: u64 = 50_000;

fn drive() -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives/st8000as0002.toml");
    profile::load(&path).expect("a profile of the house")
}

/// Processor time of this process in seconds: other processes of the host do not count.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat
        .split_whitespace()
        .next()
        .and_then(|w| w.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

/// The best of three: the host has other work, too.
fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..3).map(|_| run()).fold(f64::MAX, f64::min)
}

/// Resident memory in MiB.
fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn sequential() -> f64 {
    let events = speed::sequential_trace(2_000_000);
    let options = replay::Options {
        seed: 1,
        used: true,
        keep_trace: false,
    };
    best(|| {
        let meter = Meter::new(80_000_000, 1_000_000_000);
        let start = cpu_s();
        replay::replay(drive(), options, &events, meter);
        cpu_s() - start
    }) / 2e6
}

/// Seconds per random write, from `percent` full on.
fn random(capacity_tenths_tb: u64, percent: u64) -> f64 {
    let profile = speed::resized(&drive(), capacity_tenths_tb * 100_000_000_000);
    let (mut host, mut random) = speed::filled(profile, percent);
    let blocks = host.drive.profile().capacity_blocks();
    best(|| {
        let start = cpu_s();
        (0..WRITES / 2).for_each(|_| speed::write(&mut host, &mut random, blocks));
        cpu_s() - start
    }) / (WRITES / 2) as f64
}

fn main() {
    let began = Instant::now();
    let before = resident_mib();
    let full = speed::filled(drive(), 100);
    let memory = resident_mib() - before;
    drop(full);
    println!(
        "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# Speed and size of the model

*Made by `cargo run --release -p drive-tool --example performance > docs/performance.md`; processor time of one core of
the host it ran on, best of three. `cargo bench -p drive-tool` measures the same with criterion.*

| | wanted | measured |
|---|--:|--:|
| native replay, sequential 4 KiB writes | 3.0 M/s | {:.2} M/s |
| random 4 KiB writes over all of st8000as0002, cache full | 1.0 M/s | {:.2} M/s |
| memory of st8000as0002, cache full | 100 MiB | {memory:.0} MiB |

Microseconds for a random 4 KiB write, over the size of the drive and how full its cache is at the start (50,000 and more
entries arrive while that is measured, of 180,000):

| | empty | half full | full |
|---|--:|--:|--:|",
        1e-6 / sequential(),
        1e-6 / random(80, 100)
    );
    for tenths in [1, 10, 80, 200] {
        let us: Vec<String> = [0, 50, 100]
            .iter()
            .map(|percent| format!("{:.2}", random(tenths, *percent) * 1e6))
            .collect();
        println!("| {} TB | {} |", tenths as f64 / 10.0, us.join(" | "));
    }
    eprintln!("took {:.0} s", began.elapsed().as_secs_f64());
}
