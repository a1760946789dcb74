// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations, done by SAFS and by a trivial file system in memory: same answers, same contents, and the invariants
//! hold after every step. Odd seeds are of a disk without conventional zones. `SEED=n cargo test -p safs --test model`
//! replays one seed; `SEEDS=n` does the first n.

mod common;

use common::steps::{Pair, Step};
use common::{assert_sound, device_of, made, options, seeds, Random};
use safs::{FileSystem, Placement};
use zoned::RamDevice;

const STEPS: usize = 250;
/// Zones that one operation may empty.
const COMPACTED_MAX: u64 = 16;

fn run(seed: u64, sequential: u32) {
    let mut random = Random::new(u64::from(sequential) << 32 | seed);
    let placement = *random.pick(&[Placement::Log, Placement::Auto]);
    let options = options(placement);
    let fs = FileSystem::mount(made(device_of(seed, sequential)), options.clone(), 1).unwrap();
    let mut pair = Pair::new(fs);
    for i in 0..STEPS {
        let step = Step::choose(&mut random, &pair.model);
        let before = pair.fs.counters().compacted;
        pair.step(&step);
        let compacted = pair.fs.counters().compacted - before;
        assert!(compacted <= COMPACTED_MAX, "{step:?}: {compacted} zones");
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
    seeds(40).for_each(|seed| run(seed, 48));
}

/// Little space: the disk is full now and then, and compaction has to make room.
#[test]
fn a_full_disk_refuses_and_forgets_nothing() {
    seeds(40).for_each(|seed| run(seed, 14));
}
