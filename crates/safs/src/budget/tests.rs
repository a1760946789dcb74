// SPDX-License-Identifier: MIT OR Apache-2.0
//! INV-S16, step by step: whatever was accepted, a root record, a sync and an unmount work, and so does each deletion. A copy
//! of the whole file system tries them after every step. proptest prints the history that fails, as short as it gets.

mod directed;

use super::Claim;
use crate::charge::Charge;
use crate::format::*;
use crate::testing::sim::{Shape, Sim};
use crate::{
    check_device, make, Error, FileSystem, MakeOptions, Options, Owner, Placement, XattrMode,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// What is done; numbers choose among the files that are there.
#[derive(Clone, Debug)]
enum Op {
    /// Files with names of so many bytes.
    Create(u16, usize),
    /// So many sixteenths of a zone, 4 MiB each at most, and so many bytes.
    Append(u16, usize, usize),
    /// So many pieces of so many bytes, each behind a gap.
    Behind(u16, u64, u16, usize),
    /// So many bytes for each of so many files, from one on.
    Each(u16, u16, usize),
    Attribute(u16, usize),
    /// So many large attributes, one after the other; then the file is made durable.
    Batches(u16, u16),
    Rename(u16),
    /// So many files are in use, from one on.
    Open(u16, u16),
    Release(u16),
    Fsync(u16),
    Sync,
    Root,
    Tick,
    Truncate(u16),
    /// So many files, all over the catalog.
    Unlink(u16, u16),
}

/// What a history has most of.
const LOADS: [&str; 6] = ["all", "names", "tiny files", "gaps", "bytes", "batches"];

/// Most are filled with zeros, or wait to become a hole; some are as long as they can be.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..200_000u64, 1 => (0..41u32).prop_map(|bits| 1 << bits)]
}

/// How often each operation comes in a history of this load.
fn op(load: usize) -> impl Strategy<Value = Op> {
    let file = any::<u16>;
    // For each load in their order.
    let weighted: Vec<([u32; 6], BoxedStrategy<Op>)> = vec![
        (
            [3, 9, 4, 1, 1, 2],
            (1..400u16, 6..240usize)
                .prop_map(|(count, name)| Op::Create(count, name))
                .boxed(),
        ),
        (
            [5, 0, 0, 2, 24, 0],
            (file(), 0..16usize, 1..4096usize)
                .prop_map(|(file, parts, rest)| Op::Append(file, parts, rest))
                .boxed(),
        ),
        (
            [2, 0, 0, 20, 0, 0],
            (file(), gap(), 1..60u16, 1..5000usize)
                .prop_map(|(file, gap, count, bytes)| Op::Behind(file, gap, count, bytes))
                .boxed(),
        ),
        (
            [3, 3, 20, 2, 0, 6],
            (file(), 1..400u16, 1..4096usize)
                .prop_map(|(file, count, bytes)| Op::Each(file, count, bytes))
                .boxed(),
        ),
        (
            [2, 4, 0, 0, 0, 2],
            (file(), 1..4000usize)
                .prop_map(|(file, bytes)| Op::Attribute(file, bytes))
                .boxed(),
        ),
        (
            [1, 0, 0, 0, 0, 12],
            (file(), 1..60u16)
                .prop_map(|(file, count)| Op::Batches(file, count))
                .boxed(),
        ),
        ([1, 2, 0, 0, 0, 2], file().prop_map(Op::Rename).boxed()),
        (
            [1, 2, 0, 0, 0, 0],
            (file(), 1..100u16)
                .prop_map(|(file, count)| Op::Open(file, count))
                .boxed(),
        ),
        ([1; 6], file().prop_map(Op::Release).boxed()),
        ([2, 1, 1, 1, 1, 2], file().prop_map(Op::Fsync).boxed()),
        ([1, 1, 0, 0, 0, 0], Just(Op::Sync).boxed()),
        ([1, 1, 0, 0, 0, 0], Just(Op::Root).boxed()),
        ([1, 1, 0, 0, 0, 0], Just(Op::Tick).boxed()),
        ([1, 1, 0, 1, 1, 0], file().prop_map(Op::Truncate).boxed()),
        (
            [2, 4, 1, 1, 1, 1],
            (file(), 1..20u16)
                .prop_map(|(file, count)| Op::Unlink(file, count))
                .boxed(),
        ),
    ];
    let there = weighted
        .into_iter()
        .map(|(weights, op)| (weights[load], op));
    proptest::strategy::Union::new_weighted(there.filter(|(weight, _)| *weight > 0).collect())
}

/// Blocks of a zone, conventional zones, sequential ones, and how many of these are left free at the beginning.
type Size = (u32, u32, u32, u32);

/// From the smallest that mkfs accepts on: with conventional zones, and without.
const SMALL: [Size; 9] = [
    SMALLEST,
    SMALLEST_IN_ORDER,
    (64, 2, 12, 8),
    (64, 4, 20, 8),
    (64, 8, 40, 8),
    (64, 64, 40, 12),
    (64, 64, 300, 12),
    (1024, 2, 12, 7),
    (1024, 0, 28, 12),
];
const SMALLEST: Size = (52, 2, 12, 12);
const SMALLEST_IN_ORDER: Size = (258, 0, 28, 12);
/// Large zones, and 20 TB in zones of 64 and of 256 MiB.
const LARGE: [Size; 5] = [
    (16384, 2, 12, 4),
    (65536, 2, 12, 4),
    (16384, 8, 298_000, 2_983),
    (65536, 2, 74_500, 749),
    (65536, 0, 75_300, 748),
];

/// A device with an empty file system.
fn made((zone_blocks, conventional, sequential, _): Size) -> crate::Result<Sim> {
    let device = Sim::new(Shape {
        conventional,
        sequential,
        zone_blocks,
        capacity_blocks: zone_blocks - if conventional == 0 { 2 } else { 0 },
        open_max: Some(14),
        keeps_pointers: true,
        discards: true,
    });
    let options = MakeOptions {
        uuid: [7; 16],
        label: [0; 64],
        now_ns: 1,
    };
    make(check_device(device, &options)?, options, |_| ())
}

struct State {
    fs: FileSystem<Sim>,
    files: Vec<(Vec<u8>, Ino)>,
    /// Files in use that have no name any more.
    gone: Vec<Ino>,
    made: usize,
    now_ns: i64,
    /// Whether nothing is to be accepted for which room has to be made: most is waiting then.
    stops_at_brim: bool,
    /// What was refused because slots were short, and because zones were.
    refused: (usize, usize),
}

impl State {
    fn new(size: Size, placement: Placement, is_small: bool) -> Self {
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
        let device = made(size).expect("the device suits");
        let mut fs = FileSystem::mount(device, options, 1).expect("it was made");
        fill(&mut fs, size.3, 1);
        State {
            fs,
            files: Vec::new(),
            gone: Vec::new(),
            made: 0,
            now_ns: 1,
            stops_at_brim: false,
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

    /// Says whether it was accepted. At the brim, what would first need room to be made is left.
    fn append(&mut self, ino: Ino, gap: u64, bytes: usize) -> bool {
        let claim = Claim::Data(Charge::of_file(bytes as u64, (gap > 0).then_some(gap)));
        if self.stops_at_brim && !(self.fs.has_blocks(claim) && self.fs.has_nodes(claim)) {
            return false;
        }
        let end = self.fs.attributes(ino).expect("it is there").size;
        match self.fs.write(ino, end + gap, &vec![7; bytes]) {
            Err(Error::TooBig) => false,
            done => self.may_fill(done).is_some(),
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
        | Op::Each(number, ..)
        | Op::Attribute(number, _)
        | Op::Batches(number, _)
        | Op::Rename(number)
        | Op::Open(number, _)
        | Op::Release(number)
        | Op::Fsync(number)
        | Op::Truncate(number)
        | Op::Unlink(number, _)) = op
        else {
            return;
        };
        let Some((at, _, ino)) = self.file(*number) else {
            return;
        };
        match op {
            Op::Append(_, parts, bytes) => {
                let part = self.fs.disk.geometry().capacity_blocks as usize * BLOCK / 16;
                let bytes = parts * part.min(4 << 20) + bytes;
                while self.append(ino, 0, bytes) && self.stops_at_brim && bytes > 4096 {}
            }
            Op::Behind(_, gap, count, bytes) => {
                for _ in 0..*count {
                    if !self.append(ino, *gap, *bytes) {
                        break;
                    }
                }
            }
            Op::Each(_, count, bytes) => {
                for step in 0..usize::from(*count).min(self.files.len()) {
                    // In an order that is not the catalog's.
                    let ino = self.files[(at + step * 7919) % self.files.len()].1;
                    if !self.append(ino, 0, *bytes) {
                        break;
                    }
                }
            }
            Op::Attribute(_, bytes) => self.attribute(ino, *bytes),
            Op::Batches(_, count) => {
                (0..*count).for_each(|_| self.attribute(ino, 3900));
                self.fs.fsync(ino).expect("what was accepted fits");
            }
            Op::Rename(_) => self.rename(at),
            Op::Open(_, count) => {
                for step in 0..usize::from(*count).min(self.files.len()) {
                    let ino = self.files[(at + step) % self.files.len()].1;
                    self.fs.open(ino).expect("it is there");
                }
            }
            Op::Release(_) => {
                self.fs.release(ino).expect("releasing works");
                for ino in std::mem::take(&mut self.gone) {
                    self.fs.release(ino).expect("deleting works");
                }
            }
            Op::Fsync(_) => self.fs.fsync(ino).expect("what was accepted fits"),
            Op::Truncate(_) => self.fs.truncate(ino, 0).expect("deleting works"),
            Op::Unlink(_, count) => {
                for step in 0..usize::from(*count).min(self.files.len()) {
                    self.unlink((at + step * 7919) % self.files.len());
                }
            }
            _ => {}
        }
    }

    fn attribute(&mut self, ino: Ino, bytes: usize) {
        let value = vec![1; bytes];
        let set = self
            .fs
            .set_xattr(ino, b"user.value", &value, XattrMode::Any);
        self.may_fill(set);
    }

    fn rename(&mut self, at: usize) {
        let name = self.files[at].0.clone();
        let new = [name.as_slice(), b"r"].concat();
        let mode = crate::RenameMode::Replace;
        match self.fs.rename(ROOT_INO, &name, ROOT_INO, &new, mode) {
            Ok(()) => self.files[at].0 = new,
            Err(Error::NameTooLong) => {}
            full => drop(self.may_fill(full)),
        }
    }

    fn unlink(&mut self, at: usize) {
        let (name, ino) = self.files.swap_remove(at);
        for _ in 1..self
            .fs
            .staged
            .files
            .get(&ino)
            .map_or(0, |open| open.handles)
        {
            self.fs.release(ino).expect("releasing works");
        }
        if self.fs.staged.is_open(ino) {
            self.gone.push(ino);
        }
        let done = self.fs.unlink(ROOT_INO, &name);
        done.unwrap_or_else(|error| panic!("deleting works: {error}, {}", slots(&self.fs)));
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
            self.unlink(self.files.len() / 2);
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

/// Of nodes' slots: how many are free, and why no more.
fn slots(fs: &FileSystem<Sim>) -> String {
    let nodes = &fs.catalog.nodes;
    format!(
        "{} slots are in use of {}, {} are free, the tree may have {} more, the next root record may take {}",
        nodes.in_use(),
        nodes.slots(),
        nodes.free(),
        nodes.room(),
        fs.catalog.nodes_needed()
    )
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

/// A number from the environment.
fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Tells histories of each of these loads on each of these devices; proptest makes the one that fails short.
fn tell(sizes: &[Size], loads: &[usize], steps: usize) -> Reach {
    let seed = number("SEED", 1);
    let reach = std::cell::Cell::new(Reach::default());
    for (size, load) in sizes
        .iter()
        .flat_map(|size| loads.iter().map(move |load| (*size, *load)))
    {
        let config = ProptestConfig {
            max_shrink_iters: 30,
            failure_persistence: None,
            ..ProptestConfig::with_cases(number("HISTORIES", 1))
        };
        let story = (
            prop_oneof![Just(Placement::Log), Just(Placement::Auto)],
            any::<bool>(),
            proptest::collection::vec((op(load), any::<u16>()), steps / 2..steps),
        );
        let mut bytes = [load as u8; 32];
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        let numbers = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let told =
            TestRunner::new_with_rng(config, numbers).run(&story, |(placement, is_small, ops)| {
                tell_one(State::new(size, placement, is_small), &ops, &reach);
                Ok(())
            });
        told.unwrap_or_else(|failure| {
            panic!(
                "a history of {} on {size:?}: SEED={seed} cargo test --release -p safs --lib budget:: says {failure}",
                LOADS[load]
            )
        });
    }
    println!("SEED={seed}: {:?}", reach.get());
    reach.get()
}

fn tell_one(mut state: State, ops: &[(Op, u16)], reach: &std::cell::Cell<Reach>) {
    state.act(&Op::Create(12, 20));
    for (op, number) in ops {
        state.stops_at_brim = number % 2 == 0;
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
}

#[test]
fn what_was_accepted_fits_and_deleting_and_unmounting_work_on_small_devices() {
    let reach = tell(&SMALL, &[0, 1, 2, 3, 4, 5], 30);
    assert!(reach.refused.0 > 0, "slots were never short: {reach:?}");
    assert!(reach.refused.1 > 0, "zones were never short: {reach:?}");
    assert!(reach.compacted > 0, "nothing was compacted: {reach:?}");
}

#[test]
fn what_was_accepted_fits_and_deleting_and_unmounting_work_up_to_20_tb() {
    let reach = tell(&LARGE, &[0], 8);
    assert!(reach.roots > 0, "{reach:?}");
}

#[test]
fn the_smallest_devices_are_the_smallest_that_can_be_made() {
    for (zone_blocks, conventional, sequential, free) in [SMALLEST, SMALLEST_IN_ORDER] {
        let with = |zone_blocks, sequential| made((zone_blocks, conventional, sequential, free));
        assert!(with(zone_blocks, sequential).is_ok());
        assert!(with(zone_blocks - 1, sequential).is_err());
        assert!(with(zone_blocks, sequential - 1).is_err());
    }
}
