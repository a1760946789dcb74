// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full disks: what was accepted can be committed, deleting and unmounting always work, and room that was given back can be
//! used again. `SEED=n` repeats one history.

#[path = "../../safs/tests/common/mod.rs"]
mod common;

use common::{assert_sound, device_of, made, seeds, Random};
use safs::format::{FileType, Ino, BLOCK, ROOT_INO};
use safs::{Error, FileSystem, Options, Owner, Placement};
use safs_sim::suites::room::{run, Case};
use zoned::{RamDevice, ZonedDevice};

fn name(number: usize) -> Vec<u8> {
    format!("a file with a name of usual length {number:06}").into_bytes()
}

/// Makes a file of so many bytes, or says that the disk is full.
fn file<D: ZonedDevice>(fs: &mut FileSystem<D>, number: usize, bytes: usize) -> Option<Ino> {
    let ino = match fs.create(
        ROOT_INO,
        &name(number),
        FileType::Regular,
        Owner::default(),
        0,
    ) {
        Ok(ino) => ino,
        Err(Error::NoSpace) => return None,
        Err(error) => panic!("{error}"),
    };
    fs.open(ino).expect("it was made");
    let piece = vec![number as u8; bytes.min(256 << 10)];
    let mut at = 0;
    while at < bytes {
        let piece = &piece[..piece.len().min(bytes - at)];
        match fs.write(ino, at as u64, piece) {
            Ok(()) => at += piece.len(),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    fs.release(ino).expect("it was opened");
    if at < bytes {
        fs.unlink(ROOT_INO, &name(number))
            .expect("deleting works on a full disk");
        return None;
    }
    Some(ino)
}

/// Small writes to files all over the catalog wait for their place. Each of them costs nodes, which were not counted: the
/// next root record did not fit, and from then on nothing could be deleted or unmounted.
#[test]
fn what_was_accepted_can_be_committed_and_deleting_and_unmounting_always_work() {
    let mut full = [0, 0];
    for seed in seeds(6) {
        let mut random = Random::new(seed);
        let sequential = 40 + random.below(60) as u32;
        let mut fs = FileSystem::mount(made(device_of(seed, sequential)), Options::default(), 1)
            .expect("it was made");
        let mut files: Vec<(usize, Ino)> = (0..)
            .map_while(|at| Some((at, file(&mut fs, at, 0)?)))
            .collect();
        assert!(files.len() > 300, "only {} files", files.len());
        full[0] += 1;
        for _ in 0..files.len() / 3 {
            let (number, _) = files.swap_remove(random.below(files.len() as u64) as usize);
            fs.unlink(ROOT_INO, &name(number)).expect("deleting works");
        }
        // In an order that has nothing to do with the catalog's.
        let mut rest = files.clone();
        while !rest.is_empty() {
            let (_, ino) = rest.swap_remove(random.below(rest.len() as u64) as usize);
            match fs.write(ino, 0, &[7; 2 * BLOCK]) {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    full[1] += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        if seed % 3 > 0 {
            fs.sync().expect("what was accepted can be written");
            fs.root_commit(false).expect("and can be committed");
        }
        let gone = files.len() / 2;
        for (number, _) in files.drain(..gone) {
            fs.unlink(ROOT_INO, &name(number)).expect("deleting works");
        }
        let device = fs.unmount().expect("unmounting works");
        let mut fs = FileSystem::mount(device, Options::default(), 2).expect("it was unmounted");
        for (number, _) in files {
            fs.unlink(ROOT_INO, &name(number))
                .expect("deleting works after a mount");
        }
        assert_sound(&mut fs, false);
        fs.unmount().expect("unmounting works");
    }
    assert!(full[0] > 0 && full[1] > 0, "no disk was full: {full:?}");
}

/// A sample of `suites room`. Files that have a quarter of a zone in a victim got zones of their own, which were sealed all but
/// empty; and one call emptied up to 64 zones.
#[test]
fn room_that_was_given_back_can_be_used_again_and_nobody_waits_for_more_than_a_zone() {
    for placement in [Placement::Auto, Placement::Log] {
        for file_bytes in [64 << 10, 1_150_000, 9 << 20] {
            let case = Case {
                file_bytes,
                zone_mib: 4,
                placement,
            };
            let found = run(&case, 3, |_| ());
            println!("{found:?}");
            assert_eq!(found.problem(), None);
            assert!(found.cleaned > 0, "nothing was cleaned");
        }
    }
}

/// Deletions paid for no cleaning: the first write after many of them emptied a whole zone, and looked up all that lives there.
#[test]
fn the_first_write_after_deletions_on_a_full_disk_waits_for_no_zone() {
    for seed in seeds(4) {
        let mut random = Random::new(seed);
        let mut fs = FileSystem::mount(made(RamDevice::new(8, 40, 2048)), Options::default(), 1)
            .expect("it was made");
        let mut files: Vec<usize> = (0..)
            .take_while(|at| file(&mut fs, *at, 20 << 10).is_some())
            .collect();
        for _ in 0..files.len() / 2 {
            let number = files.swap_remove(random.below(files.len() as u64) as usize);
            fs.unlink(ROOT_INO, &name(number)).expect("deleting works");
        }
        let before = fs.counters();
        file(&mut fs, 1_000_000, BLOCK).expect("half of all is free");
        let after = fs.counters();
        assert!(before.compacted > 0, "nothing was cleaned");
        assert_eq!(after.compacted, before.compacted);
        assert_eq!(after.moved_bytes, before.moved_bytes);
    }
}

/// What was written behind gaps counted for nothing: 6 GB waited where 320 MiB are allowed.
#[test]
fn what_waits_behind_gaps_has_a_limit_for_all_files_together() {
    let options = Options {
        buffer_bytes: 1 << 20,
        gap_bytes: 256 << 10,
        ..Options::default()
    };
    let limit = options.buffer_bytes + options.gap_bytes;
    let mut fs =
        FileSystem::mount(made(RamDevice::new(8, 60, 8192)), options, 1).expect("it was made");
    let files: Vec<Ino> = (0..100)
        .filter_map(|number| file(&mut fs, number, 0))
        .collect();
    let mut most = 0;
    for (ino, at) in files.iter().zip(0u64..) {
        fs.open(*ino).expect("it was made");
        fs.write(*ino, 64 << 10, &vec![at as u8; 150_000])
            .expect("room");
        most = most.max(fs.held_bytes());
    }
    assert!(most > limit / 2, "only {most} bytes waited");
    assert!(most <= limit, "{most} bytes waited, {limit} may");
    // Who fills a gap is refused if it became a hole meanwhile, and loses nothing.
    let mut refused = 0;
    for ino in &files {
        match fs.write(*ino, 0, &[1; 64 << 10]) {
            Ok(()) => {}
            Err(Error::Overwrite { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "no gap became a hole");
    for (ino, at) in files.iter().zip(0u64..) {
        let found = fs.read(*ino, 64 << 10, 150_001).expect("it was written");
        assert_eq!(found, vec![at as u8; 150_000]);
    }
}
