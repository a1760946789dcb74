// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk without conventional zones, for long: the ring of root records and the zones of nodes are written again and
//! again, and a full catalog refuses but lets go.

mod common;

use common::power::{Action, Actions, Cuts, Recorder};
use common::{assert_sound, device_in_order, made, options, seeds, Random};
use safs::format::{FileType, Ino, Superblock};
use safs::{recovery, Disk, Error, FileSystem, Owner, Placement, XattrMode};
use std::collections::BTreeMap;
use std::rc::Rc;
use zoned::{RamDevice, ZoneId, ZoneState, ZonedDevice};

/// Zones of a half: the superblock's, two of root records, five of nodes.
const HALF: u32 = 8;

fn create<D: ZonedDevice>(fs: &mut FileSystem<D>, name: &str) -> safs::Result<Ino> {
    let owner = Owner::default();
    fs.create(Ino(1), name.as_bytes(), FileType::Regular, owner, 0)
}

fn mounted<D: ZonedDevice>(device: D) -> FileSystem<D> {
    FileSystem::mount(device, options(Placement::Log), 1).unwrap()
}

fn superblock(device: &RamDevice) -> Superblock {
    recovery::superblock(&mut Disk::new(device.clone()).unwrap()).unwrap()
}

#[test]
fn what_is_written_again_and_again_wraps() {
    let device = made(device_in_order(40));
    assert!(superblock(&device).is_in_order());
    let actions = Actions::default();
    let mut fs = mounted(Recorder::new(device, Rc::clone(&actions)));
    let mut random = Random::new(4);
    let files: Vec<Ino> = (0..100)
        .map(|number| create(&mut fs, &format!("file{number}")).unwrap())
        .collect();
    let mut values: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
    for round in 0..600 {
        let file = *random.pick(&files);
        let length = 200 + random.below(3000) as usize;
        let value = random.bytes(length);
        match fs.set_xattr(file, b"user.value", &value, XattrMode::Any) {
            Ok(()) => drop(values.insert(file, value)),
            Err(error) => panic!("round {round}: {error}"),
        }
        fs.root_commit(false).unwrap();
        if round % 20 == 0 {
            assert_sound(&mut fs, false);
        }
    }
    let check = |fs: &mut FileSystem<_>| {
        assert_sound(fs, true);
        for (file, value) in &values {
            assert_eq!(&fs.xattr(*file, b"user.value").unwrap(), value);
        }
    };
    check(&mut fs);
    let mut resets = BTreeMap::new();
    for action in actions.borrow().iter() {
        if let Action::Reset(zone) = action {
            *resets.entry(zone.0).or_insert(0) += 1;
        }
    }
    assert_eq!(resets.get(&0), None, "the superblock stays");
    for zone in 1..HALF {
        let copies = [zone, zone + HALF].map(|zone| resets.get(&zone).copied().unwrap_or(0));
        assert_eq!(copies[0], copies[1], "zone {zone} and its mirror");
        assert!(copies[0] >= 5, "zone {zone} was reset {} times", copies[0]);
    }
    // As a power cut after the last flush leaves it, and once more unmounted.
    let fs = mounted(fs.unmount().unwrap());
    let mut fs = mounted(fs.unmount().unwrap());
    check(&mut fs);
}

#[test]
fn a_full_catalog_refuses_and_deletions_find_room() {
    let mut device = made(device_in_order(40));
    let mut random = Random::new(5);
    for round in 0..6 {
        let mut fs = mounted(device);
        let mut names = Vec::new();
        let refused = loop {
            let name = format!("file{round}.{}", names.len());
            let file = match create(&mut fs, &name) {
                Ok(file) => file,
                Err(error) => break error,
            };
            names.push(name);
            match fs.set_xattr(file, b"user.value", &random.bytes(2500), XattrMode::Any) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Error::NoSpace);
        assert!(
            names.len() > 100,
            "round {round}: only {} files",
            names.len()
        );
        assert_sound(&mut fs, false);
        if round % 2 == 0 {
            fs = mounted(fs.device().clone());
            assert_sound(&mut fs, false);
        }
        // In any order, with what waits committed now and then.
        while !names.is_empty() {
            let at = random.below(names.len() as u64) as usize;
            match fs.unlink(Ino(1), names.swap_remove(at).as_bytes()) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => panic!("round {round}, {} files are left: {error}", names.len()),
            }
            if random.below(10) == 0 {
                fs.root_commit(false).unwrap();
            }
        }
        assert_sound(&mut fs, false);
        fs.sync().unwrap();
        device = match round % 3 {
            0 => fs.device().clone(),
            _ => fs.unmount().unwrap(),
        };
    }
}

#[test]
fn a_disk_with_one_conventional_zone_is_one_without() {
    let one = RamDevice::new(1, 55, 512).with_open_max(14);
    let device = made(one);
    assert!(superblock(&device).is_in_order());
    let mut fs = mounted(device);
    for number in 0..50 {
        create(&mut fs, &format!("file{number}")).unwrap();
        fs.root_commit(false).unwrap();
    }
    assert_sound(&mut mounted(fs.device().clone()), true);
}

#[test]
fn no_zone_but_the_two_that_are_written_stays_open() {
    let mut fs = mounted(made(device_in_order(40)));
    for number in 0..200 {
        let file = create(&mut fs, &format!("file{number}")).unwrap();
        fs.set_xattr(file, b"user.value", &[7; 400], XattrMode::Any)
            .unwrap();
        fs.root_commit(false).unwrap();
        let is_open = |zone: &u32| {
            let state = fs.device().zone(ZoneId(*zone)).unwrap().state;
            matches!(state, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen)
        };
        let open = (0..2 * HALF).filter(is_open).count();
        assert!(open <= 4, "{open} reserved zones are open");
    }
}

/// Values of the files' attributes.
type Values = BTreeMap<Ino, Vec<u8>>;

fn values<D: ZonedDevice>(fs: &mut FileSystem<D>, files: &[Ino]) -> Values {
    let mut found = Values::new();
    for file in files {
        if let Ok(value) = fs.xattr(*file, b"user.value") {
            found.insert(*file, value);
        }
    }
    found
}

/// Some changes, in one root record, or more if the catalog is full. Then some are refused. `after` is told of each.
fn step<D: ZonedDevice>(
    fs: &mut FileSystem<D>,
    files: &[Ino],
    random: &mut Random,
    mut after: impl FnMut(&mut FileSystem<D>),
) {
    for _ in 0..1 + random.below(4) {
        let length = 500 + random.below(3500) as usize;
        let value = random.bytes(length);
        match fs.set_xattr(*random.pick(files), b"user.value", &value, XattrMode::Any) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        after(fs);
    }
    fs.root_commit(false).unwrap();
}

/// The power fails anywhere while root records are written and zones of nodes are cleaned, with a catalog that is as good
/// as full, and then again and again. `SEED=n` replays one seed, `SEEDS=n` does the first n.
fn cut(seed: u64) {
    let mut random = Random::new(seed);
    let mut fs = mounted(made(device_in_order(24)));
    let count = 150 + random.below(120);
    let files: Vec<Ino> = (0..count)
        .map_while(|number| create(&mut fs, &format!("file{number}")).ok())
        .collect();
    for _ in 0..60 {
        step(&mut fs, &files, &mut random, |_| ());
    }
    let blank = fs.unmount().unwrap();
    let actions = Actions::default();
    let mut fs = mounted(Recorder::new(blank.clone(), Rc::clone(&actions)));
    let mut states = vec![(0, values(&mut fs, &files))];
    // States that a root record made durable.
    let mut durable = vec![0];
    for _ in 0..40 {
        step(&mut fs, &files, &mut random, |fs| {
            states.push((actions.borrow().len(), values(fs, &files)));
        });
        states.last_mut().unwrap().0 = actions.borrow().len();
        durable.push(states.len() - 1);
    }
    drop(fs);
    let actions = Rc::try_unwrap(actions).ok().unwrap().into_inner();
    let mut cuts = Cuts::new(blank, &actions);
    let every = actions.len().div_ceil(20);
    let mut at = random.below(every as u64) as usize;
    while at <= actions.len() {
        println!("cut after {at} of {} actions", actions.len());
        let mut device = cuts.at(at, &mut random);
        let is_before = |state: &&usize| states[**state].0 <= at;
        let kept = *durable.iter().rfind(is_before).unwrap();
        // What the root record of the next step was to hold may be there.
        let reached = durable
            .iter()
            .find(|state| **state > kept)
            .map_or(kept, |state| *state);
        let mut fs = mounted(device.clone());
        let found = values(&mut fs, &files);
        let mut known = states[kept..=reached].iter();
        assert!(
            known.any(|(_, values)| *values == found),
            "the values are as after no step from {kept} to {reached}"
        );
        for _ in 0..6 {
            let actions = Actions::default();
            let mut fs = mounted(Recorder::new(device.clone(), Rc::clone(&actions)));
            assert_eq!(fs.refusal(), None);
            assert_sound(&mut fs, false);
            for _ in 0..random.below(3) {
                step(&mut fs, &files, &mut random, |_| ());
            }
            drop(fs);
            let actions = Rc::try_unwrap(actions).ok().unwrap().into_inner();
            let again = random.below(1 + actions.len() as u64) as usize;
            device = Cuts::new(device, &actions).at(again, &mut random);
        }
        let mut fs = mounted(device);
        assert_sound(&mut fs, true);
        at += every;
    }
}

#[test]
fn a_power_cut_at_every_action_leaves_the_values_of_some_step() {
    seeds(2).for_each(cut);
}
