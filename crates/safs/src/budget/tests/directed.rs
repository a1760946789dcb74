// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histories that chance does not tell: each is of one guard.

use super::*;

/// What waits behind a gap takes a segment of its own, or zeros in the gap.
#[test]
fn what_waits_behind_gaps_has_room() {
    for gap in [50_000, 100_000] {
        let mut state = State::new((64, 64, 40, 12), Placement::Log, false);
        state.act(&Op::Create(12, 20));
        state.stops_at_brim = true;
        for number in 0..12 {
            state.act(&Op::Behind(number, gap, 100, 10));
        }
        assert!(state.fs.staged.waiting.files > 0, "nothing waits");
        state.assert_promise(0);
        state.end();
    }
}

/// What marks files for deletion that have no name and are in use is new in the catalog, and full of names it stays.
#[test]
fn files_in_use_can_be_deleted_however_full_the_catalog_is() {
    let mut state = State::new((1024, 4, 60, 60), Placement::Log, false);
    while state.refused.0 == 0 {
        state.act(&Op::Create(400, 7));
    }
    for number in 0..40u16 {
        state.act(&Op::Each(number.wrapping_mul(7919), 300, 100));
    }
    let (used, others): (Vec<_>, Vec<_>) = (0..)
        .zip(std::mem::take(&mut state.files))
        .partition(|(number, _)| number % 8 == 0);
    state.files = others.into_iter().map(|(_, file)| file).collect();
    for (_, (_, ino)) in &used {
        state.fs.open(*ino).expect("it is there");
    }
    assert!(used.len() > 2000, "only {} are in use", used.len());
    for (_, (name, ino)) in used {
        state.fs.unlink(ROOT_INO, &name).expect("deleting works");
        state
            .fs
            .root_commit(false)
            .expect("a root record fits after a deletion");
        state.gone.push(ino);
    }
    state.end();
}

/// Names and attributes take none of the room that waiting data were promised.
#[test]
fn batches_leave_what_waits_its_room() {
    for size in [SMALLEST, SMALLEST_IN_ORDER, (64, 4, 20, 8), (64, 8, 40, 8)] {
        let mut state = State::new(size, Placement::Log, false);
        state.act(&Op::Create(60, 7));
        state.act(&Op::Sync);
        state.stops_at_brim = true;
        for _ in 0..100 {
            state.act(&Op::Each(0, 60, 100));
        }
        assert!(state.fs.staged.waiting.files > 0, "nothing waits");
        for number in 0..60u16 {
            for _ in 0..17 {
                state.attribute(state.files[0].1, 3900);
            }
            state.act(&Op::Fsync(number));
        }
        state.assert_promise(0);
        state.end();
    }
}

/// A catalog so full that not all of it can be written anew at once: small writes all over it wait, and each costs slots.
#[test]
fn what_waits_for_a_full_catalog_fits_into_it() {
    let mut state = State::new((1024, 4, 60, 60), Placement::Log, false);
    while state.refused.0 == 0 {
        state.act(&Op::Create(400, 7));
    }
    // The newest go, so that some nodes are given back.
    for _ in 0..state.files.len() / 8 {
        state.unlink(0);
    }
    let refused = state.refused.0;
    for number in 0..10u16 {
        state.act(&Op::Each(number.wrapping_mul(7919), 300, 100));
        state.assert_promise(number);
    }
    assert!(
        state.refused.0 - refused < 1500,
        "half of it has to be accepted"
    );
    state.end();
}

/// In small zones headers are a large part. A zone that is nearly full gives less than it takes to empty it; housekeeping did so
/// 267 times, until the zones were gone that waiting data were promised.
#[test]
fn housekeeping_empties_no_zone_that_costs_more_than_it_gives() {
    let mut state = State::new((64, 8, 40, 8), Placement::Log, false);
    state.act(&Op::Create(12, 20));
    let story = [
        (Op::Unlink(0, 6), 2354),
        (Op::Root, 45615),
        (Op::Create(277, 196), 64762),
        (Op::Batches(19779, 53), 23959),
        (Op::Create(256, 41), 55373),
        (Op::Each(25908, 184, 285), 57739),
        (Op::Append(38476, 6, 3393), 21365),
        (Op::Append(14758, 2, 3642), 15056),
        (Op::Unlink(6692, 5), 8286),
        (Op::Tick, 56225),
        (Op::Append(24003, 6, 666), 31086),
        (Op::Open(29437, 12), 37417),
        (Op::Behind(45879, 1 << 33, 9, 2849), 30356),
        (Op::Append(47795, 7, 2684), 11132),
        (Op::Create(369, 35), 27104),
    ];
    for (op, number) in &story {
        state.stops_at_brim = number % 2 == 0;
        state.act(op);
        state.assert_promise(*number);
    }
}

/// A file of a million extents, and little room for nodes.
#[test]
fn truncating_a_file_of_very_many_extents_stays_within_the_reserve() {
    let mut state = State::new((16384, 2, 25_000, 25_000), Placement::Log, true);
    fill(&mut state.fs, 10, 40);
    let ballast = state.fs.lookup(ROOT_INO, b"ballast").expect("it was made");
    let name = |number: usize| format!("{number:06}").into_bytes();
    let mut made = 0;
    while state
        .fs
        .create(
            ROOT_INO,
            &name(made),
            FileType::Regular,
            Owner::default(),
            0,
        )
        .is_ok()
    {
        made += 1;
    }
    let before = state.fs.counters().roots;
    state.fs.truncate(ballast, 0).expect("emptying works");
    let roots = state.fs.counters().roots - before;
    assert!(roots > 0, "it took no root record");
    assert!(state.fs.catalog.changed_bytes() <= 2 * state.fs.options.overlay_bytes);
    state.fs.unmount().expect("unmounting works");
}
