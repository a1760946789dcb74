// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of the model: random operations, done by SAFS and by a trivial file system in memory. The long run is
//! `cargo run --release -p safs-sim --example suites -- model`; docs/results/safs-tests.md.

use safs_sim::suites::config::{all, Load};
use safs_sim::suites::history;
use safs_sim::suites::reach::Reach;

#[test]
fn answers_are_those_of_a_file_system_in_memory() {
    let mut reach = Reach::default();
    for config in all() {
        if matches!(
            config.load,
            Load::Giga | Load::Large | Load::Errors | Load::Extents
        ) {
            continue;
        }
        for seed in 1..4 {
            println!("--replay {config}:{seed}");
            reach.add(&history::run(config, seed));
        }
    }
    println!("{reach:?}");
    assert!(reach.compactions > 0 && reach.refusals > 0 && reach.ring_turns > 0);
    // Splits of nodes are counted by the suite of cuts alone.
    assert!(reach.root_records > 0 && reach.exchanges > 0);
}
