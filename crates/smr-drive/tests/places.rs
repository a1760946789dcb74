// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A translation layer over a medium that remembers what was written where: whatever the layer moves, and whenever power
//! is cut, each block is found where the layer says, and nothing else was written there (INV-T1 to INV-T3).
//!
//! The drive's own contents know blocks by their logical address, so the other tests cannot see a layer that forgets where
//! a block is. Here a block exists only at its physical place.

mod common;

use common::{
    small_conventional, small_overwritten, small_passing, small_s_blocks, small_shingled,
};
use proptest::prelude::*;
use smr_drive::counters::Counters;
use smr_drive::mechanics::arm::Arm;
use smr_drive::profile::{Profile, Translation};
use smr_drive::state::SavedTranslation;
use smr_drive::trace::Where;
use smr_drive::translation::{self, Need, TranslationLayer};
use smr_drive::volatile_buffer::{Arrival, VolatileBuffer};
use std::collections::BTreeMap;
use zoned::{Block, BlockRange, Pba};

const BLOCKS: u64 = 2048;

#[derive(Clone, Debug)]
enum Action {
    Write { first: u64, blocks: u64 },
    Continue { requests: u64, blocks: u64 },
    Destage { times: u64, cut: bool },
    Clean { slices: u64, cut: bool },
    Sleep { ms: u64 },
    Discard { first: u64, blocks: u64 },
    PowerCut,
    SaveAndOpen,
}

fn action() -> impl Strategy<Value = Action> {
    let place = || prop_oneof![2 => 0..200u64, 1 => 0..BLOCKS - 40];
    let seldom = || prop::bool::weighted(0.1);
    // Short writes that meet, and enough visits to the medium that they meet there and not in the buffer.
    prop_oneof![
        10 => (place(), prop_oneof![3 => 1..10u64, 1 => 1..40u64])
            .prop_map(|(first, blocks)| Action::Write { first, blocks }),
        4 => (1..12u64, 1..32u64).prop_map(|(requests, blocks)| Action::Continue { requests, blocks }),
        10 => (1..6u64, seldom()).prop_map(|(times, cut)| Action::Destage { times, cut }),
        3 => (1..5u64, seldom()).prop_map(|(slices, cut)| Action::Clean { slices, cut }),
        2 => (0..6000u64).prop_map(|ms| Action::Sleep { ms }),
        1 => (place(), 1..100u64).prop_map(|(first, blocks)| Action::Discard { first, blocks }),
        1 => Just(Action::PowerCut),
        1 => Just(Action::SaveAndOpen),
    ]
}

struct Bench {
    profile: Profile,
    layer: Box<dyn TranslationLayer>,
    buffer: VolatileBuffer,
    arm: Arm,
    now_ns: u64,
    epoch: u64,
    /// Which write's data are at a physical place.
    medium: BTreeMap<Pba, u64>,
    /// Of each block: the write on the medium and the newest one; 0 if there is none.
    durable: Vec<u64>,
    newest: Vec<u64>,
    writes: u64,
}

impl Bench {
    fn new(mut profile: Profile) -> Self {
        profile.capacity_bytes = BLOCKS * 4096;
        let arm = Arm::new(&profile.mechanics, 1);
        Bench {
            layer: translation::new(&profile, &arm, &SavedTranslation::default()),
            profile,
            buffer: VolatileBuffer::default(),
            arm,
            now_ns: 0,
            epoch: 0,
            medium: BTreeMap::new(),
            durable: vec![0; BLOCKS as usize],
            newest: vec![0; BLOCKS as usize],
            writes: 0,
        }
    }

    /// Where each block is. The pieces cover the drive exactly, in order (INV-T1).
    fn places(&self) -> Vec<Pba> {
        let all = BlockRange::new(Block(0), Block(BLOCKS));
        let (mut places, mut at) = (Vec::new(), Block(0));
        self.layer.pieces(all, &mut |range, pba, _| {
            assert_eq!(range.start, at, "INV-T1");
            places.extend((0..range.blocks()).map(|i| pba + i));
            at = range.end;
        });
        assert_eq!(at, all.end, "INV-T1");
        places
    }

    /// Of each block, whether it is where writing it again may leave it.
    fn overwrites(&self) -> Vec<bool> {
        let all = BlockRange::new(Block(0), Block(BLOCKS));
        let mut found = Vec::new();
        let overwritten = match &self.profile.translation {
            Translation::StaticMapping(mapping) => mapping.cache_overwritten,
            _ => false,
        };
        self.layer.pieces(all, &mut |range, _, at_home| {
            found.extend((0..range.blocks()).map(|_| overwritten && !at_home));
        });
        found
    }

    /// Does what changes the layer's mind about places: `landed` are new. Other data may be elsewhere only where it
    /// `moves` them, and were copied there.
    fn change(&mut self, landed: &[(u64, u64)], moves: bool, change: impl FnOnce(&mut Self)) {
        let before = self.places();
        change(self);
        let after = self.places();
        let moved = (0..BLOCKS as usize)
            .filter(|i| moves && self.durable[*i] != 0 && before[*i] != after[*i]);
        let copies: Vec<(Pba, u64)> = moved.map(|i| (after[i], self.durable[i])).collect();
        self.medium.extend(copies);
        for (block, write) in landed {
            self.medium.insert(after[*block as usize], *write);
            self.durable[*block as usize] = *write;
        }
        self.verify();
    }

    fn verify(&self) {
        self.layer.check();
        for (block, place) in self.places().into_iter().enumerate() {
            let write = self.durable[block];
            if write != 0 {
                assert_eq!(
                    self.medium.get(&place),
                    Some(&write),
                    "block {block} at {place:?}"
                );
            }
        }
    }

    fn volatile(&self) -> Vec<BlockRange> {
        let in_flight = self.buffer.in_flight().iter().map(|f| f.range);
        self.buffer.pieces().map(|p| p.0).chain(in_flight).collect()
    }

    fn write(&mut self, first: u64, blocks: u64) {
        let range = BlockRange::new(Block(first), Block(first + blocks));
        let mut patience = 2000;
        while self.buffer.blocks() >= self.profile.buffer.dirty_blocks_max
            || self.buffer.piece_count() >= self.profile.buffer.dirty_extents_max as usize
            || !self.layer.accepts(range, &self.buffer)
        {
            patience -= 1;
            assert!(patience > 0, "a write is let in some time (INV-T4)");
            let full = self.buffer.blocks() > 0 && patience % 2 == 0;
            if !(full && self.destage(true, false)) {
                self.clean(true, false);
            }
        }
        self.writes += 1;
        self.newest[first as usize..(first + blocks) as usize].fill(self.writes);
        let arrival = Arrival {
            now_ns: self.now_ns,
            epoch: self.epoch,
            classes: 1,
            urgent: false,
        };
        self.buffer.write(range, arrival);
    }

    /// Writes once from the buffer to the medium, as far as power lasts. False if there is nothing to write.
    fn destage(&mut self, flush: bool, cut: bool) -> bool {
        let need = Need {
            now_ns: self.now_ns,
            flush_epoch: flush.then_some(self.epoch),
            pressure: false,
            hold_ns: self.profile.buffer.hold_ns,
            overdue: (flush && self.writes % 2 == 0).then_some(self.epoch),
        };
        self.epoch += u64::from(flush);
        let Some(destage) = self.layer.plan(&self.buffer, &self.arm, need) else {
            assert!(
                !flush || self.buffer.blocks() == 0,
                "a flush ends some time"
            );
            return false;
        };
        self.buffer.take(&destage.ranges);
        let blocks = destage.ranges.iter().flat_map(|r| r.start.0..r.end.0);
        let flying: Vec<(u64, u64)> = blocks.map(|b| (b, self.newest[b as usize])).collect();
        assert!(
            flying.iter().all(|(_, write)| *write != 0),
            "dirty blocks were written"
        );
        self.now_ns += self.layer.begin(&destage, &mut self.arm, self.now_ns);
        self.layer.check();
        if cut {
            self.power_cut();
            return true;
        }
        let landed = self.buffer.landed();
        let before = self.places();
        let cached_before = self.overwrites();
        let in_place = destage.place == Where::InPlace;
        self.change(&flying, in_place, |bench| {
            bench
                .layer
                .land(&destage, &landed, &mut Counters::default());
        });
        // INV-T2, as far as it shows: the arm is behind what was written in place; what was appended is elsewhere now.
        let after = self.places();
        if in_place {
            for block in destage.span.start.0..destage.span.end.0 {
                let behind = after[block as usize] + (destage.span.end.0 - block);
                assert_eq!(behind, self.arm.at(), "INV-T2: {block}");
            }
        } else {
            // A place in an overwritten cache may be the same one; one at home may not.
            let same = |b: u64| before[b as usize] == after[b as usize];
            let moved = |b: u64| !same(b) || cached_before[b as usize];
            assert!(flying.iter().all(|(b, _)| moved(*b)), "INV-T2");
        }
        true
    }

    fn clean(&mut self, forced: bool, cut: bool) {
        let Some(ns) = self.layer.clean_slice(&mut self.arm, self.now_ns, forced) else {
            return;
        };
        self.now_ns += ns;
        if cut {
            return self.power_cut();
        }
        self.change(&[], true, |bench| {
            let now_ns = bench.now_ns;
            bench
                .layer
                .end_slice(&mut bench.arm, now_ns, &mut Counters::default());
        });
    }

    fn power_cut(&mut self) {
        let volatile = self.volatile();
        self.layer.power_cut(&volatile);
        self.forget_volatile();
    }

    fn save_and_open(&mut self) {
        let saved = self.layer.save(&self.volatile());
        self.layer = translation::new(&self.profile, &self.arm, &saved);
        assert_eq!(self.layer.save(&[]), saved, "nothing is lost by saving");
        self.forget_volatile();
    }

    fn forget_volatile(&mut self) {
        self.buffer.clear();
        self.newest = self.durable.clone();
        self.verify();
    }

    fn discard(&mut self, first: u64, blocks: u64) {
        let range = BlockRange::new(Block(first), Block((first + blocks).min(BLOCKS)));
        if self.layer.has_discard() && self.buffer.durable(range, u64::MAX) {
            self.layer.discard(range);
            for block in range.start.0..range.end.0 {
                self.durable[block as usize] = 0;
                self.newest[block as usize] = 0;
            }
            self.verify();
        }
    }
}

fn perform(profile: Profile, actions: &[Action]) {
    let mut bench = Bench::new(profile);
    let mut run_end = 700;
    for action in actions {
        match *action {
            Action::Write { first, blocks } => bench.write(first, blocks),
            Action::Continue { requests, blocks } => {
                for _ in 0..requests {
                    bench.write(run_end, blocks);
                    run_end = (run_end + blocks) % (BLOCKS - 64);
                }
            }
            Action::Destage { times, cut } => {
                (1..times).for_each(|_| {
                    bench.destage(true, false);
                });
                // A stream goes on without a flush.
                bench.destage(times > 2, cut);
            }
            Action::Clean { slices, cut } => {
                (1..slices).for_each(|_| bench.clean(false, false));
                bench.clean(false, cut);
            }
            Action::Sleep { ms } => bench.now_ns += ms * 1_000_000,
            Action::Discard { first, blocks } => bench.discard(first, blocks),
            Action::PowerCut => bench.power_cut(),
            Action::SaveAndOpen => bench.save_and_open(),
        }
    }
    while bench.destage(true, false) {}
    let mut patience = 10_000;
    while !bench.layer.is_clean() {
        bench.clean(false, false);
        patience -= 1;
        assert!(patience > 0, "cleaning ends");
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(128);
    ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 20_000,
        cases,
        ..ProptestConfig::default()
    }
}

/// For each layer that does not need writes in order: a line.
macro_rules! layers {
    ($($layer:ident: $profile:expr,)*) => {
        proptest! {
            #![proptest_config(config())]

            $(#[test]
            fn $layer(actions in prop::collection::vec(action(), 1..150)) {
                perform($profile, &actions);
            })*
        }
    };
}

layers! {
    conventional_blocks_are_where_they_are_said_to_be: small_conventional(),
    static_mapping_blocks_are_where_they_are_said_to_be: small_shingled(),
    static_mapping_blocks_are_where_they_are_said_to_be_when_writes_pass: small_passing(),
    overwritten_cache_blocks_are_where_they_are_said_to_be: small_overwritten(),
    s_blocks_are_where_they_are_said_to_be: small_s_blocks(),
}
