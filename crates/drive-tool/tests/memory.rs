// SPDX-License-Identifier: MIT OR Apache-2.0
//! A whole drive with dynamic mapping and full exception buffers fits in 100 MiB, contents aside.

mod common;

use common::{fully_used_host, Random};
use smr_drive::request::Op;

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("VmRSS in kB") * 1024
}

#[test]
fn a_full_drive_of_4_tb_takes_less_than_100_mib() {
    let before = resident();
    let mut host = fully_used_host("wd40efax");
    let blocks = host.drive.profile().capacity_blocks();
    let mut random = Random(2);
    while host.drive.counters().cache_entries_max < 350_000 {
        for _ in 0..1000 {
            host.request(Op::Write, common::at(random.below(blocks), 1), 0)
                .unwrap();
        }
    }
    let taken = resident() - before;
    println!(
        "{:.1} MiB with {} entries",
        taken as f64 / 1048576.0,
        host.drive.snapshot().cache_entries
    );
    assert!(taken < 100 << 20, "{taken}");
}
