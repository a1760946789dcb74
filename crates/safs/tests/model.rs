// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations, done by SAFS and by a trivial file system in memory: same answers, same contents, and the invariants
//! hold after every step. `SEED=n cargo test -p safs --test model` replays one seed; `SEEDS=n` does the first n.

mod common;

use common::steps::{Pair, Step};
use common::{assert_sound, device, made, options, Random};
use safs::{FileSystem, Placement};
use zoned::RamDevice;

const STEPS: usize = 250;

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SEEDS").unwrap_or(40)).collect(),
    }
}

fn run(seed: u64, sequential: u32) {
    println!("SEED={seed}");
    let mut random = Random::new(seed);
    let placement = *random.pick(&[Placement::Log, Placement::Auto]);
    let options = options(placement);
    let fs = FileSystem::mount(made(device(sequential)), options.clone(), 1).unwrap();
    let mut pair = Pair::new(fs);
    for i in 0..STEPS {
        let step = Step::choose(&mut random, &pair.model);
        pair.step(&step);
        assert_sound(&mut pair.fs, false);
        if i % 50 == 49 {
            pair.compare();
        }
        if random.below(60) == 0 {
            pair = remounted(pair, options.clone());
        }
    }
    pair = remounted(pair, options);
    assert_sound(&mut pair.fs, true);
    pair.compare();
}

fn remounted(pair: Pair<RamDevice>, options: safs::Options) -> Pair<RamDevice> {
    let device = pair.fs.unmount().unwrap();
    Pair {
        fs: FileSystem::mount(device, options, pair.now_ns).unwrap(),
        ..pair
    }
}

#[test]
fn answers_are_those_of_a_file_system_in_memory() {
    seeds().into_iter().for_each(|seed| run(seed, 48));
}

/// Little space: the disk is full now and then, and compaction has to make room.
#[test]
fn a_full_disk_refuses_and_forgets_nothing() {
    seeds().into_iter().for_each(|seed| run(1000 + seed, 14));
}
