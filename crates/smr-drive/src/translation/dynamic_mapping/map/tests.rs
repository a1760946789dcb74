// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What happens to exceptions and slots.

use super::*;
use crate::profile::{sample, Translation};

fn map() -> SBlockMap {
    let profile = sample::s_blocks(64 << 20);
    let Translation::SBlocks(s_blocks) = &profile.translation else {
        unreachable!()
    };
    SBlockMap::new(
        s_blocks,
        profile.capacity_blocks(),
        &SavedSBlocks::default(),
    )
}

/// Places of the blocks `first..last` of s-block 0.
fn places(map: &SBlockMap, first: u64, last: u64) -> Vec<Pba> {
    let mut places = Vec::new();
    map.pieces(
        BlockRange::new(Block(first), Block(last)),
        0,
        &mut |range, pba, _| places.extend((0..range.blocks()).map(|i| pba + i)),
    );
    places
}

#[test]
fn overwriting_the_middle_of_an_exception_leaves_both_ends_where_they_were() {
    let mut map = map();
    map.append(0, 10, 30, 1);
    let before = places(&map, 10, 30);
    map.append(0, 15, 20, 1);
    map.check(&[]);
    let after = places(&map, 10, 30);
    assert_eq!((&before[..5], &before[10..]), (&after[..5], &after[10..]));
    assert!((5..10).all(|i| before[i] != after[i]));
    assert_eq!(map.entries(0), 3);
}

#[test]
fn exceptions_that_came_while_their_s_block_was_cleaned_stay() {
    let mut map = map();
    map.append(0, 10, 12, 1);
    let slot = map.take_slot(0);
    let log_head = map.log_head(0);
    map.append(0, 11, 13, 2);
    let newer = places(&map, 11, 13);
    map.moved(0, slot, log_head);
    map.check(&[]);
    assert_eq!(places(&map, 11, 13), newer);
    assert_eq!(places(&map, 10, 11), [map.slot_pba(0, slot, 10)]);
    assert_eq!((map.dirty_count(), map.entries(0)), (1, 1));
}

#[test]
fn a_stream_drops_the_exceptions_that_it_overwrites_and_no_others() {
    let mut map = map();
    map.append(0, 10, 12, 1);
    map.append(0, 100, 102, 1);
    let later = places(&map, 100, 102);
    let slot = map.take_slot(0);
    map.begin_fill(0, slot);
    map.fill(0, 64, 1);
    map.check(&[]);
    assert_eq!(places(&map, 10, 11), [map.slot_pba(0, slot, 10)]);
    assert_eq!(places(&map, 100, 102), later);
    map.fill(0, 256, 2);
    map.check(&[]);
    assert_eq!((map.dirty_count(), map.open().len()), (0, 0));
}

#[test]
fn two_discards_that_meet_free_the_slot() {
    let mut map = map();
    let slot = map.take_slot(0);
    map.begin_fill(0, slot);
    map.fill(0, 256, 1);
    map.discard(0, 0, 128);
    assert_eq!(map.live(0), Some((slot, 128, 256)));
    map.discard(0, 128, 256);
    assert_eq!(map.live(0), None);
    map.check(&[]);
}
