// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Random requests and zone commands against disks with zones.
//!
//! A failure prints the shortest list of actions that shows it; PROPTEST_CASES=1000 for a longer search.

mod common;

use common::World;
use proptest::prelude::*;
use smr_drive::profile::{sample, Profile, Translation};

/// Of a zone: 4 MiB on disks of 64 MiB.
const ZONE_BLOCKS: u64 = 1024;

#[derive(Clone, Debug)]
enum Action {
    Write {
        zone: u64,
        offset: u64,
        blocks: u64,
        fua: bool,
    },
    /// At the write pointer.
    Append {
        zone: u64,
        blocks: u64,
    },
    Read {
        zone: u64,
        offset: u64,
        blocks: u64,
    },
    Flush,
    Wait,
    Sleep {
        ms: u64,
    },
    PowerCut,
    SaveAndOpen,
}

fn action() -> impl Strategy<Value = Action> {
    // Few zones and small places, so that writes meet.
    let place = || (0..6u64, prop_oneof![0..64u64, 960..1024u64], 1..60u64);
    prop_oneof![
        4 => (place(), prop::bool::weighted(0.2))
            .prop_map(|((zone, offset, blocks), fua)| Action::Write { zone, offset, blocks, fua }),
        8 => (0..6u64, 1..100u64).prop_map(|(zone, blocks)| Action::Append { zone, blocks }),
        2 => place().prop_map(|(zone, offset, blocks)| Action::Read { zone, offset, blocks }),
        2 => Just(Action::Flush),
        1 => Just(Action::Wait),
        2 => (0..3000u64).prop_map(|ms| Action::Sleep { ms }),
        1 => Just(Action::PowerCut),
        1 => Just(Action::SaveAndOpen),
    ]
}

fn small_host_aware() -> Profile {
    let mut profile = sample::host_aware(64 << 20, ZONE_BLOCKS, 2048, 48);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile.buffer.destage_blocks_max = 64;
    if let Translation::HostAware(disk) = &mut profile.translation {
        disk.cache.entry_blocks_max = 32;
        disk.cache.append_entries_max = 8;
        disk.cache.clean_slice_ns = 20_000_000;
    }
    profile
}

fn perform(profile: Profile, actions: &[Action]) -> World {
    let mut world = World::new(profile, 5);
    for action in actions {
        match *action {
            Action::Write {
                zone,
                offset,
                blocks,
                fua,
            } => {
                world.write(zone * ZONE_BLOCKS + offset, blocks, fua);
            }
            Action::Append { zone, blocks } => {
                let report = world.drive.zone(zoned::ZoneId(zone as u32)).unwrap();
                let at = report.write_pointer.block().0;
                let end = (zone + 1) * ZONE_BLOCKS;
                if at < end {
                    world.write(at, blocks.min(end - at), false);
                }
            }
            Action::Read {
                zone,
                offset,
                blocks,
            } => {
                world.read(zone * ZONE_BLOCKS + offset, blocks);
            }
            Action::Flush => world.flush(),
            Action::Wait => world.wait_all(),
            Action::Sleep { ms } => world.sleep(ms * 1_000_000),
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

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_host_aware_disk_takes_every_write(actions in prop::collection::vec(action(), 1..80)) {
        let mut world = perform(small_host_aware(), &actions);
        world.wait_clean();
        world.check_newest();
        prop_assert_eq!(world.drive.snapshot().cache_entries, 0);
    }

    #[test]
    fn the_same_requests_give_the_same_trace(actions in prop::collection::vec(action(), 1..40)) {
        let (once, twice) = (perform(small_host_aware(), &actions), perform(small_host_aware(), &actions));
        prop_assert_eq!(once.now_ns, twice.now_ns);
        prop_assert!(once.trace == twice.trace);
    }
}
