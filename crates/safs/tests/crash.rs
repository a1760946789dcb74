// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts after every action of the device. What was made durable is there; of the rest names are as after some later
//! step, and every file is the beginning of what it became; the check finds nothing; and what was recovered goes on
//! working. `SEED=n` replays one seed, `SEEDS=n` does the first n; `STATES` says how many cuts there are a seed.

mod common;

use common::model::{Content, Id, Model};
use common::power::{Action, Actions, Cuts, Recorder};
use common::steps::{Pair, Step};
use common::{assert_sound, device_of, made, number, options, seeds, Random};
use safs::format::{FileType, Ino};
use safs::{FileSystem, Owner, Placement};
use std::collections::BTreeMap;
use std::rc::Rc;
use zoned::{RamDevice, ZonedDevice};

const STEPS: usize = 100;

/// A run without a power cut: what was done to the device, and what was promised when.
struct Story {
    actions: Vec<Action>,
    /// The model after each step, and how many actions there were then.
    models: Vec<(usize, Model)>,
    /// By step: what had been made durable when it ended: a file, or everything.
    promises: Vec<(usize, Promise)>,
    inos: BTreeMap<Id, Ino>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// All names, and this one's contents.
    One(Id),
    All,
}

fn story(seed: u64, blank: &RamDevice, placement: Placement) -> Story {
    let mut random = Random::new(seed);
    let actions = Actions::default();
    let recorder = Recorder::new(blank.clone(), Rc::clone(&actions));
    let fs = FileSystem::mount(recorder, options(placement), 1).unwrap();
    let mut pair = Pair::new(fs);
    let mut models = vec![(actions.borrow().len(), pair.model.clone())];
    let mut promises = vec![(0, Promise::All)];
    for number in 1..=STEPS {
        let mut step = Step::choose(&mut random, &pair.model);
        if random.below(4) == 0 {
            let ids: Vec<Id> = pair.model.nodes.keys().copied().collect();
            step = Step::Fsync(*random.pick(&ids));
        }
        // The head of a file is given up in steps of its own, which the model does not know.
        if matches!(step, Step::Head(..)) {
            models.push((actions.borrow().len(), pair.model.clone()));
            continue;
        }
        pair.step(&step);
        models.push((actions.borrow().len(), pair.model.clone()));
        match step {
            Step::Fsync(id) => promises.push((number, Promise::One(id))),
            Step::Sync | Step::Compact => promises.push((number, Promise::All)),
            _ => {}
        }
    }
    let inos = pair.inos.clone();
    drop(pair);
    let actions = Rc::try_unwrap(actions)
        .expect("the file system is gone")
        .into_inner();
    Story {
        actions,
        models,
        promises,
        inos,
    }
}

/// Names as both sides know them: directory, name, inode.
type Names = Vec<(u64, Vec<u8>, u64)>;

impl Story {
    fn names(&self, model: &Model) -> Names {
        let mut names = Names::new();
        for (id, node) in &model.nodes {
            if let Content::Directory(entries) = &node.content {
                let ino = |id: &Id| self.inos[id].0;
                names.extend(
                    entries
                        .iter()
                        .map(|(name, child)| (ino(id), name.clone(), ino(child))),
                );
            }
        }
        names.sort();
        names
    }

    fn verify<D: ZonedDevice>(&self, cut: usize, fs: &mut FileSystem<D>) {
        let kept = self
            .promises
            .iter()
            .filter(|(step, _)| self.models[*step].0 <= cut);
        let kept: Vec<(usize, Promise)> = kept.copied().collect();
        let last = kept.last().map_or(0, |(step, _)| *step);
        // The step that was interrupted may have been done.
        let begun = self
            .models
            .iter()
            .filter(|(actions, _)| *actions <= cut)
            .count();
        let reached = begun.min(self.models.len() - 1);
        let found = names(fs);
        let candidates = (last..=reached).filter(|step| self.names(&self.models[*step].1) == found);
        let candidates: Vec<usize> = candidates.collect();
        assert!(
            !candidates.is_empty(),
            "names are as after no step from {last} to {reached}"
        );
        let mut files: Vec<Ino> = found.iter().map(|(_, _, ino)| Ino(*ino)).collect();
        files.sort();
        files.dedup();
        for ino in files {
            self.verify_file(&kept, reached, fs, ino);
        }
    }

    fn verify_file<D: ZonedDevice>(
        &self,
        kept: &[(usize, Promise)],
        reached: usize,
        fs: &mut FileSystem<D>,
        ino: Ino,
    ) {
        if fs.attributes(ino).unwrap().file_type != FileType::Regular {
            return;
        }
        let id = self
            .inos
            .iter()
            .find(|(_, other)| **other == ino)
            .map(|(id, _)| *id)
            .unwrap();
        let file = |step: usize| match self.models[step].1.nodes.get(&id).map(|node| &node.content)
        {
            Some(Content::File {
                bytes,
                written,
                generation,
                ..
            }) => Some((*generation, bytes, *written)),
            _ => None,
        };
        let inode = fs.attributes(ino).unwrap();
        let size = inode.size as usize;
        let mut found = fs.read(ino, 0, size).unwrap();
        assert_eq!(found.len(), size);
        // What a truncation added is zeros.
        let added = found.split_off(inode.written as usize);
        assert!(added.iter().all(|byte| *byte == 0));
        let mut newest_first = kept.iter().rev();
        let promised = newest_first
            .find(|(_, promise)| *promise == Promise::All || *promise == Promise::One(id));
        let promised = promised.and_then(|(step, _)| file(*step));
        let (generation, least) =
            promised.map_or((0, 0), |(generation, _, written)| (generation, written));
        let is_beginning = |(of, bytes, _): (u64, &Vec<u8>, usize)| {
            of >= generation
                && bytes.starts_with(&found)
                && (of > generation || found.len() >= least)
        };
        assert!(
            (0..=reached).filter_map(file).any(is_beginning),
            "inode {}: {} bytes are the beginning of nothing, {least} were promised",
            ino.0,
            found.len()
        );
    }
}

fn names<D: ZonedDevice>(fs: &mut FileSystem<D>) -> Names {
    let mut names = Names::new();
    let mut waiting = vec![Ino(1)];
    while let Some(directory) = waiting.pop() {
        for entry in fs.entries(directory, 0, usize::MAX).unwrap() {
            names.push((directory.0, entry.name.clone(), entry.ino.0));
            if entry.file_type == FileType::Directory {
                waiting.push(entry.ino);
            }
        }
    }
    names.sort();
    names
}

/// Recovers, verifies, and works on. Returns the device as the check after that left it.
fn survive(
    story: &Story,
    cut: usize,
    device: RamDevice,
    placement: Placement,
    random: &mut Random,
) {
    // The power fails again, anywhere in recovery.
    let actions = Actions::default();
    let recorder = Recorder::new(device.clone(), Rc::clone(&actions));
    let mut fs = FileSystem::mount(recorder, options(placement), 2).unwrap();
    assert_eq!(fs.refusal(), None);
    assert_sound(&mut fs, true);
    story.verify(cut, &mut fs);
    work_on(&mut fs);
    drop(fs);
    let actions = Rc::try_unwrap(actions)
        .expect("the file system is gone")
        .into_inner();
    let again = random.below(actions.len() as u64) as usize;
    let device = Cuts::new(device, &actions).at(again, random);
    let mut fs = FileSystem::mount(device, options(placement), 3).unwrap();
    assert_sound(&mut fs, true);
    work_on(&mut fs);
    let device = fs.unmount().unwrap();
    let mut fs = FileSystem::mount(device, options(placement), 4).unwrap();
    assert_sound(&mut fs, true);
}

fn work_on<D: ZonedDevice>(fs: &mut FileSystem<D>) {
    let name = format!("new {}", fs.counters().segments);
    let ino = match fs.create(
        Ino(1),
        name.as_bytes(),
        FileType::Regular,
        Owner::default(),
        0,
    ) {
        Err(safs::Error::Exists) => fs.lookup(Ino(1), name.as_bytes()).unwrap(),
        other => other.unwrap(),
    };
    let end = fs.attributes(ino).unwrap().size;
    fs.write(ino, end, &[7; 9000]).unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(fs.read(ino, end, 10_000).unwrap(), vec![7; 9000]);
    assert_sound(fs, true);
}

fn run(seed: u64) {
    let placement = if seed % 2 == 0 {
        Placement::Log
    } else {
        Placement::Auto
    };
    let blank = made(device_of(seed / 2, 40));
    let story = story(seed, &blank, placement);
    let mut random = Random::new(seed ^ 0x5afe);
    let mut cuts = Cuts::new(blank, &story.actions);
    let states = number("STATES").unwrap_or(120) as usize;
    let every = story.actions.len().div_ceil(states).max(1);
    // Every action has its turn with some seed.
    let mut cut = random.below(every as u64) as usize;
    while cut <= story.actions.len() {
        println!("cut after {cut} of {} actions", story.actions.len());
        let device = cuts.at(cut, &mut random);
        survive(&story, cut, device, placement, &mut random);
        cut += every;
    }
}

#[test]
fn what_was_made_durable_survives_a_power_cut_at_every_action() {
    seeds(8).for_each(run);
}
