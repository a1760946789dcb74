// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of the power cuts: of each configuration a story with some cuts, but of gigabytes. The long run is
//! `cargo run --release -p safs-sim --example suites -- cuts`; docs/results/safs-tests.md. `SEED=n` does another seed.

use safs_sim::suites::config::{all, Config, Load};
use safs_sim::suites::cuts;
use safs_sim::suites::reach::Reach;

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    seed.unwrap_or(1)
}

/// Cuts some stories of a load on each device; all together reach what the load is about.
fn sample(load: Load, stories: u64, states: usize) {
    let mut reach = Reach::default();
    for config in all()
        .into_iter()
        .filter(|config: &Config| config.load == load)
    {
        for seed in seed()..seed() + stories {
            println!("--replay {config}:{seed}");
            let say = |cut| println!("cut {cut}");
            reach.add(&cuts::run(config, seed, states, None, say).reach);
        }
    }
    println!("{reach:?}");
    assert!(reach.states > 0 && reach.nested > 0 && reach.promises > 0);
    assert!(reach.root_records > 0 && reach.resets > 0 && reach.sync_writes > 0);
    match load {
        Load::Mixed => assert!(reach.unnamed > 0 && reach.exchanges > 0 && reach.node_splits > 0),
        Load::Full => assert!(reach.compactions > 0 && reach.refusals > 0 && reach.log_wraps > 0),
        Load::Extents => assert!(reach.extents_max > 256),
        Load::Rings => assert!(reach.ring_turns > 0),
        Load::Errors => assert!(reach.failed_commands > 0),
        Load::Large => assert!(reach.segment_blocks_max >= 900),
        Load::Giga => assert!(reach.bytes_max >= 1 << 30),
    }
}

#[test]
fn a_bit_of_everything_survives_power_cuts() {
    sample(Load::Mixed, 2, 60);
}

#[test]
fn a_full_disk_survives_power_cuts() {
    sample(Load::Full, 2, 60);
}

#[test]
fn files_of_many_extents_survive_power_cuts() {
    sample(Load::Extents, 4, 20);
}

#[test]
fn rings_survive_power_cuts() {
    sample(Load::Rings, 1, 60);
}

#[test]
fn what_a_failed_command_leaves_survives_power_cuts() {
    sample(Load::Errors, 3, 40);
}

#[test]
fn writes_of_megabytes_survive_power_cuts() {
    sample(Load::Large, 1, 6);
}
