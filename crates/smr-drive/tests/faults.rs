// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A drive with random faults is still a disk: every read returns the newest data or an error, and what was flushed
//! survives power cuts, unless the drive lies. proptest prints the shortest plan and list of actions that shows otherwise.

mod common;

use common::{
    small_conventional, small_host_managed, small_overwritten, small_s_blocks, small_shingled,
    World,
};
use proptest::prelude::*;
use smr_drive::faults::{
    Effect, FaultPlan, Rule, Torn, Trigger, Unreadable, ALWAYS_Q32, EVERYWHERE, FLUSHES, READS,
    WRITES,
};
use smr_drive::profile::{sample, Profile};
use zoned::{Block, BlockRange, ZoneId, ZoneState};

const BLOCKS: u64 = (64 << 20) / 4096;
const S: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Action {
    Write { first: u64, blocks: u64, fua: bool },
    Read { first: u64, blocks: u64 },
    Flush,
    Wait,
    Sleep { ms: u64 },
    PowerCut,
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..64u64, 1 => 1200..1400u64, 1 => 0..BLOCKS - 256]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => (place(), 1..100u64, prop::bool::weighted(0.1))
            .prop_map(|(first, blocks, fua)| Action::Write { first, blocks, fua }),
        3 => (place(), 1..64u64).prop_map(|(first, blocks)| Action::Read { first, blocks }),
        2 => Just(Action::Flush),
        1 => Just(Action::Wait),
        3 => (0..1500u64).prop_map(|ms| Action::Sleep { ms }),
        1 => Just(Action::PowerCut),
    ]
}

fn range() -> impl Strategy<Value = BlockRange> {
    prop_oneof![
        1 => Just(EVERYWHERE),
        2 => (place(), 1..100u64).prop_map(|(first, n)| BlockRange::new(Block(first), Block(first + n))),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let effect = prop_oneof![
        (0..S).prop_map(|retry_ns| Effect::FailRead { retry_ns }),
        Just(Effect::FailWrite),
        Just(Effect::FailDestage),
        (0..8u8, 0..S).prop_map(|(ops, extra_ns)| Effect::Slow { ops, extra_ns }),
        (0..8u8, S..30 * S).prop_map(|(ops, ns)| Effect::Timeout { ops, ns }),
    ];
    let trigger = (range(), 0..5u64, 1..=20u64, 0..10u64);
    let trigger = trigger.prop_map(|(range, after, share, times)| Trigger {
        range,
        after,
        probability_q32: ALWAYS_Q32 / share,
        times,
    });
    (trigger, effect).prop_map(|(trigger, effect)| Rule { trigger, effect })
}

fn plan() -> impl Strategy<Value = FaultPlan> {
    let unreadable =
        (0..BLOCKS - 100, 1..100u64, 0..S).prop_map(|(first, n, retry_ns)| Unreadable {
            range: BlockRange::new(Block(first), Block(first + n)),
            retry_ns,
        });
    let torn = prop_oneof![Just(Torn::Nothing), Just(Torn::Prefix), Just(Torn::Subset)];
    (
        prop::collection::vec(unreadable, 0..3),
        prop::collection::vec(rule(), 0..4),
        torn,
        any::<bool>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(unreadable, rules, torn, reorder, flush_lies)| FaultPlan {
            unreadable,
            rules,
            torn,
            reorder,
            flush_lies,
            ..FaultPlan::default()
        })
}

fn perform(profile: Profile, plan: &FaultPlan, actions: &[Action]) -> World {
    let mut world = World::new(profile, 5);
    world.flush_lies = plan.flush_lies;
    world.drive.set_faults(plan.clone()).unwrap();
    for action in actions {
        act(&mut world, action);
    }
    world.read_everything();
    world
}

fn act(world: &mut World, action: &Action) {
    match *action {
        Action::Write { first, blocks, fua } => {
            if let Some((first, blocks)) = world.writable(first, blocks) {
                world.write(first, blocks, fua);
            }
        }
        Action::Read { first, blocks } => {
            let blocks = world.readable(first, blocks);
            world.read(first, blocks);
        }
        Action::Flush => world.flush(),
        Action::Wait => world.wait_all(),
        Action::Sleep { ms } => world.sleep(ms * 1_000_000),
        Action::PowerCut => world.power_cut_with_errors(),
    }
    world.collect();
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
    fn a_shingled_drive_with_faults_never_returns_wrong_data(plan in plan(), actions in prop::collection::vec(action(), 1..60)) {
        perform(small_shingled(), &plan, &actions);
    }

    #[test]
    fn an_overwritten_cache_with_faults_never_returns_wrong_data(plan in plan(), actions in prop::collection::vec(action(), 1..60)) {
        perform(small_overwritten(), &plan, &actions);
    }

    #[test]
    fn a_conventional_drive_with_faults_never_returns_wrong_data(plan in plan(), actions in prop::collection::vec(action(), 1..60)) {
        perform(small_conventional(), &plan, &actions);
    }

    #[test]
    fn a_drive_with_s_blocks_and_faults_never_returns_wrong_data(plan in plan(), actions in prop::collection::vec(action(), 1..60)) {
        perform(small_s_blocks(), &plan, &actions);
    }

    #[test]
    fn a_host_managed_drive_with_faults_never_returns_wrong_data(plan in plan(), actions in prop::collection::vec(action(), 1..60)) {
        perform(small_host_managed(), &plan, &actions);
    }

    #[test]
    fn the_same_faults_give_the_same_trace(plan in plan(), actions in prop::collection::vec(action(), 1..40)) {
        let (once, twice) = (perform(small_shingled(), &plan, &actions), perform(small_shingled(), &plan, &actions));
        prop_assert!(once.trace == twice.trace);
        prop_assert_eq!(once.errors, twice.errors);
    }

    /// A plan in which nothing goes wrong is no plan.
    #[test]
    fn an_empty_plan_changes_no_byte(actions in prop::collection::vec(action(), 1..40)) {
        let without = |actions: &[Action]| {
            let mut world = World::new(small_shingled(), 5);
            for action in actions {
                act(&mut world, action);
            }
            world.read_everything();
            world.trace
        };
        prop_assert!(perform(small_shingled(), &FaultPlan::default(), &actions).trace == without(&actions));
    }
}

fn world(plan: FaultPlan) -> World {
    let mut world = World::new(small_conventional(), 5);
    world.drive.set_faults(plan).unwrap();
    world
}

fn one_rule(effect: Effect, times: u64) -> FaultPlan {
    let trigger = Trigger {
        range: EVERYWHERE,
        after: 0,
        probability_q32: ALWAYS_Q32,
        times,
    };
    FaultPlan {
        rules: vec![Rule { trigger, effect }],
        ..FaultPlan::default()
    }
}

/// Flushes and waits; whether the flush ended well.
fn flushes_well(world: &mut World) -> bool {
    let errors = world.errors;
    world.flush();
    world.wait_all();
    world.errors == errors
}

#[test]
fn a_flush_tells_of_lost_writes_once_and_the_blocks_stay_unreadable() {
    let mut world = world(one_rule(Effect::FailDestage, 1));
    world.write(100, 4, false);
    world.wait_all();
    assert_eq!(world.errors, 0, "the write was acknowledged");
    assert!(!flushes_well(&mut world));
    assert!(flushes_well(&mut world));
    assert!(!world.can_read(100) && !world.can_read(103) && world.can_read(104));
    world.write(100, 4, false);
    assert!(flushes_well(&mut world));
    assert!(world.can_read(100));
}

#[test]
fn a_fua_write_tells_of_its_own_loss() {
    let mut world = world(one_rule(Effect::FailDestage, 1));
    world.write(100, 4, true);
    world.wait_all();
    assert_eq!(world.errors, 1);
}

#[test]
fn a_command_that_times_out_ends_late_and_was_not_executed() {
    let timeout = Effect::Timeout {
        ops: WRITES,
        ns: 30 * S,
    };
    let mut world = world(one_rule(timeout, 1));
    world.write(7, 1, false);
    world.wait_all();
    assert_eq!(world.errors, 1);
    assert!(world.now_ns >= 30 * S && world.now_ns < 31 * S);
    let mut block = vec![1; 4096];
    world.drive.get(7 * 8, &mut block).unwrap();
    assert!(block.iter().all(|b| *b == 0));
}

#[test]
fn slow_commands_take_longer_and_end_well() {
    let slow = Effect::Slow {
        ops: READS | WRITES | FLUSHES,
        extra_ns: 2 * S,
    };
    let mut world = world(one_rule(slow, 2));
    world.write(7, 1, false);
    world.wait_all();
    assert!((2 * S..3 * S).contains(&world.now_ns), "{}", world.now_ns);
    assert!(flushes_well(&mut world));
    assert!((4 * S..5 * S).contains(&world.now_ns), "{}", world.now_ns);
    assert!(world.can_read(7));
    assert!(world.now_ns < 5 * S);
}

#[test]
fn a_lying_flush_loses_what_it_acknowledged_and_an_honest_one_does_not() {
    for lies in [true, false] {
        let plan = FaultPlan {
            flush_lies: lies,
            ..FaultPlan::default()
        };
        let mut world = world(plan);
        world.flush_lies = lies;
        world.write(100, 4, false);
        world.wait_all();
        assert!(flushes_well(&mut world));
        world.drive.power_cut(world.now_ns);
        let mut block = vec![0; 4096];
        world.drive.get(100 * 8, &mut block).unwrap();
        assert_eq!(block.iter().all(|b| *b == 0), lies);
    }
}

/// Blocks that are not zero after a power cut at `cut_ns`, of 32 written at once.
fn left(plan: &FaultPlan, cut_ns: u64) -> Vec<u64> {
    let mut world = world(plan.clone());
    world.write(100, 32, false);
    world.sleep(cut_ns);
    world.drive.power_cut(world.now_ns);
    let mut block = vec![0; 4096];
    let mut is_there = |b: &u64| {
        world.drive.get(b * 8, &mut block).unwrap();
        block.iter().any(|byte| *byte != 0)
    };
    (100..132).filter(|b| is_there(b)).collect()
}

#[test]
fn a_torn_write_leaves_a_part_and_without_the_plan_nothing_or_all() {
    let cuts = || (0..200).map(|i| 20_000_000 + i * 100_000);
    let partly = |torn| {
        let plan = FaultPlan {
            torn,
            ..FaultPlan::default()
        };
        let lefts: Vec<Vec<u64>> = cuts().map(|cut_ns| left(&plan, cut_ns)).collect();
        // Version 4 of the four kinds of bytes is all zero: blocks are told by the others.
        let all = lefts.iter().map(Vec::len).max().unwrap();
        lefts
            .into_iter()
            .filter(|left| !left.is_empty() && left.len() < all)
            .collect::<Vec<_>>()
    };
    assert!(partly(Torn::Nothing).is_empty());
    let prefixes = partly(Torn::Prefix);
    assert!(!prefixes.is_empty() && prefixes.iter().all(|left| left[0] == 100));
    assert!(partly(Torn::Subset)
        .iter()
        .any(|left| left.windows(2).any(|w| w[1] > w[0] + 1)));
}

#[test]
fn a_torn_write_moves_a_zone_s_write_pointer_as_far_as_it_got() {
    let plan = FaultPlan {
        torn: Torn::Prefix,
        ..FaultPlan::default()
    };
    let mut lengths = Vec::new();
    for i in 0..100 {
        let mut world = World::new(sample::host_managed(64 << 20, 1024), 5);
        world.drive.set_faults(plan.clone()).unwrap();
        world.write(2048, 32, false);
        world.sleep(20_000_000 + i * 200_000);
        world.drive.power_cut(world.now_ns);
        world.drive.check_invariants();
        let zone = world.drive.zone(ZoneId(2)).unwrap();
        let kept = (zone.write_pointer.0 - zone.start.0) / 8;
        let mut block = vec![0; 4096];
        for b in 2048..2080 {
            world.drive.get(b * 8, &mut block).unwrap();
            let is_there = block.iter().any(|byte| *byte != 0);
            assert_eq!(is_there, b < 2048 + kept, "block {b} of {kept}");
        }
        lengths.push(kept);
    }
    assert!(lengths.iter().any(|n| (1..32).contains(n)), "{lengths:?}");
}

#[test]
fn reordering_keeps_some_of_what_was_only_in_the_buffer() {
    let plan = |reorder| FaultPlan {
        reorder,
        ..FaultPlan::default()
    };
    // Before the buffer gives anything away by itself.
    let cuts = || (0..50).map(|i| 1_000_000 + i * 100_000);
    assert!(cuts().all(|cut_ns| left(&plan(false), cut_ns).is_empty()));
    let kept: Vec<usize> = cuts()
        .map(|cut_ns| left(&plan(true), cut_ns).len())
        .collect();
    assert!(kept.contains(&0) && kept.iter().any(|n| *n > 0), "{kept:?}");
}

#[test]
fn a_zone_that_is_given_up_keeps_its_state_and_refuses() {
    let mut world = World::new(sample::host_managed(64 << 20, 1024), 5);
    let mut plan = FaultPlan::default();
    for (zone, state) in [(2, ZoneState::ReadOnly), (3, ZoneState::Offline)] {
        plan.zones.push(smr_drive::faults::ZoneFault {
            zone: ZoneId(zone),
            state,
            at_ns: S,
        });
    }
    world.drive.set_faults(plan).unwrap();
    for zone in [2, 3] {
        world.write(zone * 1024, 4, false);
    }
    world.wait_all();
    assert_eq!(world.errors, 0);
    world.sleep(2 * S);
    assert!(world.can_read(2 * 1024) && !world.can_read(3 * 1024));
    for zone in [2, 3] {
        world.write(zone * 1024 + 4, 4, false);
    }
    world.wait_all();
    assert_eq!(world.errors, 3);
    world.drive.power_cut(world.now_ns);
    let state = |zone| world.drive.zone(ZoneId(zone)).unwrap().state;
    assert_eq!(
        (state(2), state(3)),
        (ZoneState::ReadOnly, ZoneState::Offline)
    );
}

#[test]
fn a_plan_for_another_drive_is_refused() {
    let mut world = World::new(small_conventional(), 5);
    let unreadable = Unreadable {
        range: BlockRange::new(Block(BLOCKS), Block(BLOCKS + 1)),
        retry_ns: 0,
    };
    let behind_the_end = FaultPlan {
        unreadable: vec![unreadable],
        ..FaultPlan::default()
    };
    let why = world.drive.set_faults(behind_the_end).unwrap_err();
    assert!(why.contains("behind the end"), "{why}");
    let zone = smr_drive::faults::ZoneFault {
        zone: ZoneId(1),
        state: ZoneState::Offline,
        at_ns: 0,
    };
    let zoned = FaultPlan {
        zones: vec![zone],
        ..FaultPlan::default()
    };
    let why = world.drive.set_faults(zoned).unwrap_err();
    assert!(why.contains("0 zones"), "{why}");
}
