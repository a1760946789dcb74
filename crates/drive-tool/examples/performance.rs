// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes docs/results/performance.md, its tables anyway and with a file's name a record in JSON lines for the figure:
//!
//! ```text
//! cargo run --release -p drive-tool --example performance -- speed.jsonl > docs/results/performance.md
//! cd lab && python -m shingle.evidence.speed_figure ../speed.jsonl ../docs/figures/model-speed.svg
//! ```
//! One of two places where the host's clock is read: they measure the host.
#![allow(clippy::disallowed_methods)]

use drive_tool::{profile, speed};
use serde_json::json;
use smr_drive::profile::Profile;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

const WRITES: u64 = 50_000;
const SHINGLED: [&str; 6] = [
    "st8000as0002",
    "st5000as0011",
    "st4000lm016",
    "wd40nmzw",
    "wd40efax",
    "safs5000ha",
];

fn drive(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../drives/{name}.toml"));
    profile::load(&path).expect("a profile of the house")
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

fn main() {
    let began = Instant::now();
    let before = resident_mib();
    let full = speed::Load::filled(drive("st8000as0002"), 100);
    let memory = resident_mib() - before;
    drop(full);
    let mut record = String::new();
    println!(include_str!("performance-head.md"));
    println!("| | wanted | measured |\n|---|--:|--:|");
    let sequential_s = speed::sequential_s(&drive("st8000as0002"), 2_000_000);
    println!(
        "| native replay, sequential 4 KiB writes | 3.0 M/s | {:.2} M/s |",
        1e-6 / sequential_s
    );
    for name in SHINGLED {
        let (write_s, _) = speed::Load::filled(drive(name), 100).seconds(4 * WRITES);
        println!(
            "| random 4 KiB writes, {name}, cache full | 1.0 M/s | {:.2} M/s |",
            1e-6 / write_s
        );
    }
    println!("| memory of st8000as0002, cache full | 100 MiB | {memory:.0} MiB |\n");
    println!(
        "Microseconds for a random 4 KiB write, and in brackets for each event in the drive, over the size of the drive and\n\
         how full its cache is at the start (50,000 and more entries arrive while that is measured, of 180,000):\n\n\
         | | empty | half full | full |\n|---|--:|--:|--:|"
    );
    for tenths in [1, 3, 10, 30, 80, 200] {
        let mut line = String::new();
        for percent in [0, 50, 100] {
            let profile = speed::resized(&drive("st8000as0002"), tenths * 100_000_000_000);
            let mut load = speed::Load::filled(profile, percent);
            let (write_s, event_s) = load.seconds(WRITES / 3);
            let _ = write!(line, " {:.2} ({:.2}) |", write_s * 1e6, event_s * 1e6);
            let tb = tenths as f64 / 10.0;
            let row = json!({"tb": tb, "percent": percent, "write_us": write_s * 1e6, "event_us": event_s * 1e6});
            let _ = writeln!(record, "{row}");
        }
        println!("| {} TB |{line}", tenths as f64 / 10.0);
    }
    println!(
        "\n![Microseconds for a random write, over the size of the drive](../figures/model-speed.svg)"
    );
    // But for its first line, the licence.
    let tail = include_str!("performance-tail.md").split_once('\n');
    print!("{}", tail.expect("a file of several lines").1);
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, record).expect("a place for the record");
    }
    eprintln!("took {:.0} s", began.elapsed().as_secs_f64());
}
