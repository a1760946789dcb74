// SPDX-License-Identifier: MIT OR Apache-2.0
//! INV-S16, step by step: whatever was accepted, a root record, a sync and an unmount work, and so does each deletion. A copy
//! of the whole file system tries them after every step. proptest prints the history that fails, as short as it gets.

#[allow(dead_code)]
#[path = "../../../safs-sim/src/suites/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../../safs-sim/src/suites/sim.rs"]
mod sim;

use super::Claim;
use crate::format::*;
use crate::{make, Error, FileSystem, MakeOptions, Options, Owner, Placement, XattrMode};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use sim::{Shape, Sim};

/// What is done; numbers choose among the files that are there.
#[derive(Clone, Debug)]
enum Op {
    /// Files with names of so many bytes.
    Create(u16, usize),
    /// So many sixteenths of a zone, 4 MiB each at most, and so many bytes.
    Append(u16, usize, usize),
    /// So many bytes behind a gap of so many.
    Behind(u16, u64, usize),
    /// A little for each of so many files, from one on.
    Each(u16, u16),
    Attribute(u16, usize),
    Rename(u16),
    Open(u16),
    Release(u16),
    Fsync(u16),
    Sync,
    Root,
    Tick,
    Truncate(u16),
    Unlink(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let file = || any::<u16>();
    prop_oneof![
        3 => (1..400u16, 6..240usize).prop_map(|(count, name)| Op::Create(count, name)),
        6 => (file(), 0..16usize, 1..4096usize).prop_map(|(file, parts, rest)| Op::Append(file, parts, rest)),
        2 => (file(), 0..41u32, 1..60_000usize).prop_map(|(file, gap, bytes)| Op::Behind(file, 1 << gap, bytes)),
        3 => (file(), 1..400u16).prop_map(|(file, count)| Op::Each(file, count)),
        2 => (file(), 1..4000usize).prop_map(|(file, bytes)| Op::Attribute(file, bytes)),
        1 => file().prop_map(Op::Rename),
        1 => file().prop_map(Op::Open),
        1 => file().prop_map(Op::Release),
        2 => file().prop_map(Op::Fsync),
        1 => Just(Op::Sync),
        1 => Just(Op::Root),
        1 => Just(Op::Tick),
        1 => file().prop_map(Op::Truncate),
        2 => file().prop_map(Op::Unlink),
    ]
}

/// Blocks of a zone, conventional zones, sequential ones, and how many of these are left free at the beginning.
type Size = (u32, u32, u32, u32);

/// From the smallest that mkfs accepts on.
const SMALL: [Size; 9] = [
    (64, 2, 12, 8),
    (64, 4, 20, 8),
    (64, 0, 28, 8),
    (64, 8, 40, 8),
    (1024, 2, 12, 7),
    (1024, 0, 40, 7),
    (1024, 4, 300, 9),
    (16384, 2, 12, 4),
    (65536, 2, 12, 4),
];
/// 20 TB in zones of 64 and of 256 MiB.
const LARGE: [Size; 3] = [
    (16384, 8, 298_000, 2_983),
    (65536, 2, 74_500, 749),
    (65536, 0, 75_300, 748),
];

struct State {
    fs: FileSystem<Sim>,
    files: Vec<(Vec<u8>, Ino)>,
    made: usize,
    now_ns: i64,
    /// What was refused because slots were short, and because zones were.
    refused: (usize, usize),
}

impl State {
    fn new(
        (zone_blocks, conventional, sequential, free): Size,
        placement: Placement,
        is_small: bool,
    ) -> Self {
        let device = Sim::new(Shape {
            conventional,
            sequential,
            zone_blocks,
            capacity_blocks: zone_blocks - if conventional == 0 { 2 } else { 0 },
            open_max: Some(14),
            keeps_pointers: true,
            discards: true,
        });
        let mut options = Options {
            placement,
            ..Options::default()
        };
        if is_small {
            (options.segment_blocks, options.overlay_bytes) = (32, 96 << 10);
            (options.stream_after_bytes, options.turn_bytes) = (48 << 10, 64 << 10);
            (options.buffer_bytes, options.gap_bytes) = (512 << 10, 96 << 10);
            options.compaction_bytes = 128 << 10;
        }
        let make_options = MakeOptions {
            uuid: [7; 16],
            label: [0; 64],
            now_ns: 1,
        };
        let device = make(device, make_options, |_| ()).expect("the device suits");
        let mut fs = FileSystem::mount(device, options, 1).expect("it was made");
        fill(&mut fs, free, 1);
        State {
            fs,
            files: Vec::new(),
            made: 0,
            now_ns: 1,
            refused: (0, 0),
        }
    }

    /// Some file that is there.
    fn file(&self, number: u16) -> Option<(usize, Vec<u8>, Ino)> {
        let at = usize::from(number) % self.files.len().max(1);
        self.files
            .get(at)
            .map(|(name, ino)| (at, name.clone(), *ino))
    }

    /// Done, or refused for want of space.
    fn may_fill<T>(&mut self, result: crate::Result<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(Error::NoSpace) => {
                match self.fs.has_nodes(Claim::Change) {
                    true => self.refused.1 += 1,
                    false => self.refused.0 += 1,
                }
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn append(&mut self, ino: Ino, gap: u64, bytes: usize) {
        let end = self.fs.attributes(ino).expect("it is there").size;
        let done = self.fs.write(ino, end + gap, &vec![7; bytes]);
        if !matches!(done, Err(Error::TooBig)) {
            self.may_fill(done);
        }
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Create(count, bytes) => {
                for _ in 0..*count {
                    let mut name = format!("{:06}", self.made).into_bytes();
                    name.resize(*bytes, b'n');
                    self.made += 1;
                    let made =
                        self.fs
                            .create(ROOT_INO, &name, FileType::Regular, Owner::default(), 0);
                    match self.may_fill(made) {
                        Some(ino) => self.files.push((name, ino)),
                        None => break,
                    }
                }
            }
            Op::Sync => self.fs.sync().expect("what was accepted fits"),
            Op::Root => self.fs.root_commit(false).expect("what was accepted fits"),
            Op::Tick => {
                self.now_ns += 6_000_000_000;
                self.fs.tick(self.now_ns).expect("what was accepted fits");
            }
            _ => self.act_on_file(op),
        }
    }

    fn act_on_file(&mut self, op: &Op) {
        let (Op::Append(number, ..)
        | Op::Behind(number, ..)
        | Op::Each(number, _)
        | Op::Attribute(number, _)
        | Op::Rename(number)
        | Op::Open(number)
        | Op::Release(number)
        | Op::Fsync(number)
        | Op::Truncate(number)
        | Op::Unlink(number)) = op
        else {
            return;
        };
        let Some((at, name, ino)) = self.file(*number) else {
            return;
        };
        match op {
            Op::Append(_, parts, bytes) => {
                let part = self.fs.disk.geometry().capacity_blocks as usize * BLOCK / 16;
                self.append(ino, 0, parts * part.min(4 << 20) + bytes);
            }
            Op::Behind(_, gap, bytes) => self.append(ino, *gap, *bytes),
            Op::Each(_, count) => {
                for step in 0..usize::from(*count).min(self.files.len()) {
                    // In an order that is not the catalog's.
                    let ino = self.files[(at + step * 7919) % self.files.len()].1;
                    self.append(ino, 0, 100);
                }
            }
            Op::Attribute(_, bytes) => {
                let set = self
                    .fs
                    .set_xattr(ino, b"user.value", &vec![1; *bytes], XattrMode::Any);
                self.may_fill(set);
            }
            Op::Rename(_) => {
                let mut new = name.clone();
                new.push(b'r');
                let done =
                    self.fs
                        .rename(ROOT_INO, &name, ROOT_INO, &new, crate::RenameMode::Replace);
                match done {
                    Ok(()) => self.files[at].0 = new,
                    Err(Error::NameTooLong) => {}
                    full => drop(self.may_fill(full)),
                }
            }
            Op::Open(_) => self.fs.open(ino).expect("it is there"),
            Op::Release(_) => self.fs.release(ino).expect("releasing works"),
            Op::Fsync(_) => self.fs.fsync(ino).expect("what was accepted fits"),
            Op::Truncate(_) => self.fs.truncate(ino, 0).expect("deleting works"),
            Op::Unlink(_) => {
                self.files.swap_remove(at);
                self.fs.unlink(ROOT_INO, &name).expect("deleting works");
            }
            _ => {}
        }
    }

    /// On copies: everything that always works.
    fn assert_promise(&self, number: u16) {
        let mut fs = self.fs.clone();
        fs.root_commit(false).expect("a root record fits");
        let mut fs = self.fs.clone();
        let (left, free, at, waiting) = (
            fs.log_blocks_left(),
            fs.zones.free(),
            fs.log.at.block,
            fs.staged.waiting,
        );
        fs.sync().unwrap_or_else(|error| {
            panic!(
                "{waiting:?} was accepted; {free} zones were free, the log was at block {at}, {left} blocks were \
                 left; {} zones are free now: {error}",
                fs.zones.free()
            )
        });
        if let Some((_, name, ino)) = self.file(number) {
            fs.truncate(ino, 0).expect("emptying works");
            fs.unlink(ROOT_INO, &name).expect("deleting works");
            fs.root_commit(false)
                .expect("a root record fits after a deletion");
        }
        let fs = self.fs.clone();
        let device = fs.unmount().expect("unmounting works");
        FileSystem::mount(device, self.fs.options.clone(), self.now_ns).expect("mounting works");
        // As if the power had failed.
        let fs = FileSystem::mount(
            self.fs.device().clone(),
            self.fs.options.clone(),
            self.now_ns,
        );
        let fs = fs.expect("recovery works");
        assert_eq!(fs.refusal(), None);
    }

    /// Deletes everything, in another order than it was made, and looks whether it is gone.
    fn end(mut self) {
        while !self.files.is_empty() {
            let (name, _) = self.files.swap_remove(self.files.len() / 2);
            self.fs.unlink(ROOT_INO, &name).expect("deleting works");
        }
        let device = self.fs.unmount().expect("unmounting works");
        let mut fs = FileSystem::mount(device, Options::default(), 2).expect("it was unmounted");
        let report = fs.check(false, |_| ()).expect("the catalog can be read");
        assert_eq!(report.problems, Vec::<String>::new());
        let names = fs
            .entries(ROOT_INO, 0, 10)
            .expect("the root directory is there");
        assert!(names.iter().all(|entry| entry.name == b"ballast"));
    }
}

/// Makes all zones but some full, with one file that has so many extents in each: as if it had been written.
fn fill(fs: &mut FileSystem<Sim>, free: u32, parts: u32) {
    if fs.zones.free() <= free {
        return;
    }
    let ino = fs.create(ROOT_INO, b"ballast", FileType::Regular, Owner::default(), 0);
    let ino = ino.expect("there is room");
    let capacity = fs.disk.geometry().capacity_blocks;
    let blocks = (capacity - 2) / parts;
    let mut inode = fs.inode(ino).expect("it was made");
    while fs.zones.free() > free {
        let zone = fs.zones.take(ZoneKind::File, ino).expect("it is free");
        fs.disk.finish(zone).expect("it is empty");
        let entry = ZoneEntry {
            stage: ZoneStage::Sealed,
            write_blocks: capacity,
            ..*fs.zones.get(zone).expect("it is there")
        };
        let mut batch = vec![Change::Zone(zone, entry)];
        for part in 0..parts {
            let extent = crate::log::blocks_at(zone, 1 + part * blocks, blocks, 0);
            batch.push(Change::Put(
                Key::extent(ino, inode.written / BLOCK as u64),
                extent.encode(),
            ));
            batch.push(Change::Live(zone, i64::from(extent.bytes)));
            inode.written += u64::from(extent.bytes);
            inode.stored += u64::from(extent.bytes);
        }
        inode.size = inode.written;
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        fs.change(batch).expect("it fits");
        if fs.catalog.changed_bytes() > 16 << 20 {
            fs.root_commit(false).expect("it fits");
        }
    }
    fs.root_commit(false).expect("it fits");
}

/// What the histories reached.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// Requests that were refused because slots for nodes, or blocks and zones, were short.
    refused: (usize, usize),
    /// Zones that compaction emptied, and root records.
    compacted: u64,
    roots: u64,
}

/// Tells so many histories on devices of these sizes; proptest prints the one that fails.
fn tell(sizes: &'static [Size], histories: u32, steps: usize) -> Reach {
    let config = ProptestConfig {
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::with_cases(histories)
    };
    let story = (
        proptest::sample::select(sizes),
        prop_oneof![Just(Placement::Log), Just(Placement::Auto)],
        any::<bool>(),
        proptest::collection::vec((op(), any::<u16>()), steps / 2..steps),
    );
    let reach = std::cell::Cell::new(Reach::default());
    let seed: u8 =
        std::env::var("SEED").map_or(1, |seed| seed.parse().expect("a number below 256"));
    println!("SEED={seed} repeats this");
    let numbers = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let told = TestRunner::new_with_rng(config, numbers).run(
        &story,
        |(size, placement, is_small, ops)| {
            let mut state = State::new(size, placement, is_small);
            state.act(&Op::Create(12, 20));
            for (op, number) in &ops {
                state.act(op);
                state.assert_promise(*number);
            }
            let mut sum = reach.get();
            sum.refused.0 += state.refused.0;
            sum.refused.1 += state.refused.1;
            sum.compacted += state.fs.counters().compacted;
            sum.roots += state.fs.counters().roots;
            reach.set(sum);
            state.end();
            Ok(())
        },
    );
    told.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{:?}", reach.get());
    reach.get()
}

#[test]
fn what_was_accepted_fits_and_deleting_and_unmounting_work_on_small_devices() {
    let reach = tell(&SMALL, 16, 50);
    assert!(reach.refused.0 > 0, "slots were never short: {reach:?}");
    assert!(reach.refused.1 > 0, "zones were never short: {reach:?}");
    assert!(reach.compacted > 0, "nothing was compacted: {reach:?}");
}

#[test]
fn what_was_accepted_fits_and_deleting_and_unmounting_work_on_20_tb() {
    let reach = tell(&LARGE, 2, 24);
    assert!(reach.roots > 0, "{reach:?}");
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
        state.act(&Op::Unlink(0));
    }
    let refused = state.refused.0;
    for number in 0..10u16 {
        state.act(&Op::Each(number.wrapping_mul(7919), 300));
        state.assert_promise(number);
    }
    assert!(
        state.refused.0 - refused < 1500,
        "half of it has to be accepted"
    );
    state.end();
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
