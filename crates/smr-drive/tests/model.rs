// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Random requests against a model that is a list of versions for each block: reads return the newest data, what was
//! flushed survives a power cut, nothing is torn within a block, and every invariant holds after every event.
//!
//! One test for every translation layer: to add one, add its small profile to `common` and a line to `layers!`. On zoned
//! drives `World::writable` moves a write to its zone's write pointer, and `Forget` resets the zone instead of discarding.
//!
//! A failure prints the shortest list of actions that shows it; PROPTEST_CASES=1000 for a longer search.

mod common;

use common::{
    small_conventional, small_host_managed, small_overwritten, small_passing, small_s_blocks,
    small_shingled, World,
};
use proptest::prelude::*;
use smr_drive::profile::Profile;

const BLOCKS: u64 = (64 << 20) / 4096;

#[derive(Clone, Debug)]
enum Action {
    Write {
        first: u64,
        blocks: u64,
        fua: bool,
    },
    /// A sequential run from where the last one ended.
    Continue {
        requests: u64,
        blocks: u64,
    },
    WriteZeroes {
        first: u64,
        blocks: u64,
    },
    Read {
        first: u64,
        blocks: u64,
    },
    /// Discard, or zone reset.
    Forget {
        first: u64,
        blocks: u64,
    },
    Flush,
    Wait,
    Sleep {
        ms: u64,
    },
    /// A few events of the drive, so that power is also cut between any two.
    Steps {
        events: u64,
    },
    PowerCut,
    SaveAndOpen,
}

/// Mostly small places, so that writes meet.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..64u64, 2 => 1200..1400u64, 1 => 0..BLOCKS - 256]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (place(), 1..40u64, prop::bool::weighted(0.1))
            .prop_map(|(first, blocks, fua)| Action::Write { first, blocks, fua }),
        4 => (1..12u64, 1..32u64).prop_map(|(requests, blocks)| Action::Continue { requests, blocks }),
        1 => (place(), 1..256u64).prop_map(|(first, blocks)| Action::WriteZeroes { first, blocks }),
        3 => (place(), 1..64u64).prop_map(|(first, blocks)| Action::Read { first, blocks }),
        1 => (place(), 1..600u64).prop_map(|(first, blocks)| Action::Forget { first, blocks }),
        2 => Just(Action::Flush),
        1 => Just(Action::Wait),
        3 => (0..3000u64).prop_map(|ms| Action::Sleep { ms }),
        3 => (1..12u64).prop_map(|events| Action::Steps { events }),
        1 => Just(Action::PowerCut),
        1 => Just(Action::SaveAndOpen),
    ]
}

fn perform(profile: Profile, actions: &[Action]) -> World {
    let mut world = World::new(profile, 5);
    let mut run_end = 2000;
    for action in actions {
        match *action {
            Action::Write { first, blocks, fua } => {
                if let Some((first, blocks)) = world.writable(first, blocks) {
                    world.write(first, blocks, fua);
                }
            }
            Action::Continue { requests, blocks } => {
                for _ in 0..requests {
                    if let Some((first, blocks)) = world.writable(run_end, blocks) {
                        world.write(first, blocks, false);
                    }
                    run_end = (run_end + blocks) % (BLOCKS - 64);
                }
            }
            Action::WriteZeroes { first, blocks } => {
                if let Some((first, blocks)) = world.writable(first, blocks) {
                    world.write_zeroes(first, blocks);
                }
            }
            Action::Read { first, blocks } => {
                let blocks = world.readable(first, blocks);
                world.read(first, blocks);
            }
            Action::Forget { first, blocks } => world.forget(first, blocks.min(BLOCKS - first)),
            Action::Flush => world.flush(),
            Action::Wait => world.wait_all(),
            Action::Sleep { ms } => world.sleep(ms * 1_000_000),
            Action::Steps { events } => world.steps(events),
            Action::PowerCut => world.power_cut(),
            Action::SaveAndOpen => world.save_and_open(),
        }
        world.collect();
        if matches!(action, Action::Wait | Action::Sleep { .. }) {
            world.check_newest();
        }
    }
    world.wait_all();
    world.check_newest();
    world.check_times();
    world
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(64);
    ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 20_000,
        cases,
        ..ProptestConfig::default()
    }
}

/// For each layer: it is a disk, it ends clean, and the same requests give the same trace.
macro_rules! layers {
    ($($layer:ident: $profile:expr,)*) => {
        $(mod $layer {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn is_a_disk(actions in prop::collection::vec(action(), 1..80)) {
                    let mut world = perform($profile, &actions);
                    world.wait_clean();
                    world.check_newest();
                    prop_assert_eq!(world.drive.snapshot().cache_entries, 0);
                    prop_assert_eq!(world.drive.snapshot().bands_dirty, 0);
                }

                #[test]
                fn gives_the_same_trace_for_the_same_requests(
                    actions in prop::collection::vec(action(), 1..40)
                ) {
                    let (once, twice) = (perform($profile, &actions), perform($profile, &actions));
                    prop_assert_eq!(once.now_ns, twice.now_ns);
                    prop_assert!(once.trace == twice.trace);
                }
            }
        })*
    };
}

layers! {
    conventional: small_conventional(),
    static_mapping: small_shingled(),
    static_mapping_with_writes_that_pass: small_passing(),
    overwritten_cache: small_overwritten(),
    s_blocks: small_s_blocks(),
    host_managed: small_host_managed(),
}
