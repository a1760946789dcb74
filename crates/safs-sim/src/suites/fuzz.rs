// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forged images, used as the tools and a mount use them: whatever is read, nothing panics, hangs, reads outside the device
//! or takes memory without bound.

use super::config::{made, small, On};
use super::forge::{Forger, Original, STRUCTURES};
use super::random::Random;
use super::sim::{Shape, Sim, Trouble};
use safs::format::{FileType, Ino, Key, ROOT_INO};
use safs::{
    recovery, Disk, FileSystem, Options, Owner, Placement, RenameMode, XattrMode, RETAIN_ATTRIBUTE,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use zoned::ZoneId;

/// Requests that one image may cost.
const REQUESTS_MAX: u64 = 100_000;

/// How often what was reached.
pub type Counts = BTreeMap<String, u64>;

pub fn shape(on: On) -> Shape {
    let plain = Shape {
        conventional: 8,
        sequential: 14,
        zone_blocks: 64,
        capacity_blocks: 64,
        open_max: Some(10),
        keeps_pointers: true,
        discards: true,
    };
    match on {
        On::Managed => plain,
        On::InOrder => Shape {
            conventional: 0,
            sequential: 30,
            capacity_blocks: 62,
            open_max: Some(14),
            ..plain
        },
        On::Image | On::Disk => Shape {
            open_max: None,
            keeps_pointers: false,
            discards: on == On::Image,
            ..plain
        },
    }
}

/// File systems to begin with: unmounted, and as a power cut leaves them.
pub fn originals(on: On) -> Vec<Original> {
    let forms = [
        (Placement::Log, true),
        (Placement::Auto, true),
        (Placement::Log, false),
        (Placement::Auto, false),
    ];
    forms
        .map(|(placement, is_clean)| Original::new(&original(on, placement, is_clean)))
        .to_vec()
}

fn original(on: On, placement: Placement, is_clean: bool) -> Sim {
    let device = made(Sim::new(shape(on)));
    let mut fs = FileSystem::mount(device, small(placement), 5).unwrap();
    let make = |fs: &mut FileSystem<Sim>, parent, name: &str, file_type| {
        let made = fs.create(parent, name.as_bytes(), file_type, Owner::default(), 0);
        made.unwrap()
    };
    let directory = make(&mut fs, ROOT_INO, "directory", FileType::Directory);
    let ring = make(&mut fs, ROOT_INO, "ring", FileType::Directory);
    fs.set_xattr(ring, RETAIN_ATTRIBUTE, b"bytes=30000", XattrMode::Any)
        .unwrap();
    for number in 0..24u8 {
        let parent = if number % 4 == 0 { ring } else { directory };
        let file = make(&mut fs, parent, &format!("file{number}"), FileType::Regular);
        let count = 50 + 700 * usize::from(number);
        fs.write(file, 0, &vec![number; count]).unwrap();
        if number % 5 == 0 {
            fs.write(file, 80_000, &[number; 300]).unwrap();
        }
        fs.set_xattr(file, b"user.number", &[number; 200], XattrMode::Any)
            .unwrap();
        if number % 9 == 8 {
            fs.fsync(file).unwrap();
            fs.root_commit(false).unwrap();
        }
    }
    fs.symlink(ROOT_INO, b"link", b"directory/file1", Owner::default())
        .unwrap();
    let unnamed = make(&mut fs, ROOT_INO, "unnamed", FileType::Regular);
    fs.open(unnamed).unwrap();
    fs.write(unnamed, 0, &[1; 9000]).unwrap();
    fs.sync().unwrap();
    fs.unlink(ROOT_INO, b"unnamed").unwrap();
    // What the log's end holds.
    for number in 1..6u8 {
        let name = format!("file{number}");
        if number == 4 {
            continue;
        }
        let file = fs.lookup(directory, name.as_bytes()).unwrap();
        let end = fs.attributes(file).unwrap().size;
        fs.write(file, end, &[number; 5000]).unwrap();
        fs.fsync(file).unwrap();
    }
    fs.unlink(directory, b"file6").unwrap();
    fs.fsync(ROOT_INO).unwrap();
    let mut device = match is_clean {
        true => fs.unmount().unwrap(),
        false => fs.device().clone(),
    };
    device.power_on();
    device
}

/// Everything that tools and users do with an image; some of it with each.
fn use_it(disk: Sim, random: &mut Random, counts: &mut Counts) {
    let mut count = |what: &str| *counts.entry(what.into()).or_default() += 1;
    let read_only = random.one_in(3);
    let options = Options {
        read_only,
        repair: random.one_in(3),
        ..small(*random.pick(&[Placement::Log, Placement::Auto]))
    };
    if random.one_in(8) {
        if let Ok(mut disk) = Disk::new(disk.clone()) {
            if let Ok(superblock) = recovery::superblock(&mut disk) {
                let _ = recovery::roots(&mut disk, &superblock);
            }
        }
    }
    let Ok(mut fs) = FileSystem::mount(disk, options, 9) else {
        return count("refused");
    };
    count("mounted");
    if fs.refusal().is_some() && !read_only {
        count("read_only");
    }
    let has_problems = match random.below(3) {
        0 => fs
            .check(true, |_| ())
            .map(|report| !report.problems.is_empty()),
        1 => fs
            .check(false, |_| ())
            .map(|report| !report.problems.is_empty()),
        _ => Ok(false),
    };
    if has_problems != Ok(false) {
        count("problems");
    }
    look(&mut fs, random);
    if fs.refusal().is_none() {
        if random.one_in(3) {
            if let Ok((_, left)) = fs.repair(random.one_in(2), |_| ()) {
                count(if left.problems.is_empty() {
                    "repaired"
                } else {
                    "not_repaired"
                });
            }
        }
        change(&mut fs, random);
        count("written");
        if random.one_in(4) {
            let _ = fs.compact(true, |_| ());
            count("compacted");
        }
        let _ = fs.tick(9 + 20_000_000_000);
    }
    if random.one_in(2) {
        let _ = fs.unmount();
    }
}

/// Reads.
fn look(fs: &mut FileSystem<Sim>, random: &mut Random) {
    let mut keys: Vec<Key> = Vec::new();
    let _ = fs.each_key(|key: &Key, _| keys.push(key.clone()));
    for _ in 0..3 {
        let zone = random.below(u64::from(fs.zones().count()) + 2) as u32;
        let _ = fs.segment(ZoneId(zone), random.below(70) as u32);
    }
    let mut inos: Vec<Ino> = keys.iter().filter_map(Key::ino).collect();
    inos.dedup();
    let _ = fs.spent();
    let _ = fs.space();
    for ino in inos {
        let inode = fs.attributes(ino);
        let _ = fs.entries(ino, 0, 100);
        if random.one_in(2) {
            let _ = fs.read(ino, 0, 1 << 15);
        }
        if let (Ok(inode), true) = (inode, random.one_in(4)) {
            let _ = fs.read(ino, inode.size.saturating_sub(1 << 14), 1 << 15);
        }
        let _ = fs.read_link(ino);
        for name in fs.xattrs(ino).unwrap_or_default() {
            let _ = fs.xattr(ino, &name);
        }
    }
}

/// Changes things.
fn change(fs: &mut FileSystem<Sim>, random: &mut Random) {
    for ino in (1..32).map(Ino) {
        let end = fs.attributes(ino).map_or(0, |inode| inode.size);
        match random.below(16) {
            0 => drop(fs.write(ino, end, &[1; 3000])),
            1 => drop(fs.truncate(ino, 0)),
            2 => drop(fs.truncate(ino, end.saturating_add(5000))),
            3 => drop(fs.truncate_head(ino, end / 2)),
            4 => drop(fs.set_xattr(ino, b"user.new", &[3; 100], XattrMode::Any)),
            5 => drop(fs.open(ino).and_then(|()| fs.release(ino))),
            6 => drop(fs.create(ino, b"below", FileType::Directory, Owner::default(), 0)),
            7 => drop(fs.link(ino, ROOT_INO, b"linked")),
            _ => {}
        }
    }
    for name in ["directory", "ring", "link"] {
        match random.below(6) {
            0 => drop(fs.unlink(ROOT_INO, name.as_bytes())),
            1 => drop(fs.remove_directory(ROOT_INO, name.as_bytes())),
            2 => drop(fs.rename(
                ROOT_INO,
                name.as_bytes(),
                ROOT_INO,
                b"moved",
                RenameMode::Replace,
            )),
            3 => drop(fs.rename(
                ROOT_INO,
                name.as_bytes(),
                Ino(2),
                b"moved",
                RenameMode::Exchange,
            )),
            _ => {}
        }
    }
    if let Ok(ino) = fs.create(ROOT_INO, b"new", FileType::Regular, Owner::default(), 0) {
        let _ = fs.write(ino, 0, &[1; 9000]);
        let _ = fs.fsync(ino);
    }
}

/// Forges an image and uses it.
pub fn run(seed: u64, originals: &[Original], counts: &mut Counts) {
    let mut random = Random::new(seed);
    let original = &originals[random.below(originals.len() as u64) as usize];
    let mut forger = Forger::new(original, &mut random);
    let weights = STRUCTURES.iter().map(|(_, _, weight)| weight).sum::<u64>();
    let times = 1 + Random::new(seed ^ 1).below(3);
    for time in 0..times {
        let mut roll = Random::new(seed ^ (2 + time) << 40).below(weights);
        for (structure, name, weight) in STRUCTURES {
            if roll < weight {
                forger.forge(structure);
                *counts.entry(format!("forged_{name}")).or_default() += 1;
                break;
            }
            roll -= weight;
        }
    }
    let trouble = Rc::new(RefCell::new(Trouble {
        requests_max: REQUESTS_MAX,
        ..Trouble::default()
    }));
    let disk = forger.disk.troubled(&trouble);
    use_it(disk, &mut random, counts);
    let requests = trouble.borrow().requests;
    let most = counts.entry("requests_max".into()).or_default();
    *most = requests.max(*most);
}

/// What a run has to have reached.
pub fn missing(counts: &Counts) -> Vec<String> {
    let outcomes = [
        "refused",
        "mounted",
        "read_only",
        "problems",
        "repaired",
        "written",
        "compacted",
    ];
    let forged = STRUCTURES.map(|(_, name, _)| format!("forged_{name}"));
    let wanted = outcomes.map(String::from).into_iter().chain(forged);
    wanted
        .filter(|name| counts.get(name).copied().unwrap_or(0) == 0)
        .collect()
}
