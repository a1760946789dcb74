// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many files on a disk of 8 TB: what is in memory does not grow with them. `FILES=n` says how many, and ten million are
//! meant: `FILES=10000000 cargo test --release -p safs-tool --test many_files -- --nocapture`. `TMPDIR` wants 100 GB
//! then, since nodes go round all random-write zones.
//!
//! The limit is the budget of the caches and 64 MiB. Counted is what the program asked the allocator for.

#[path = "../../safs/tests/common/mod.rs"]
mod common;

use cap::Cap;
use common::{made, number, Random};
use safs::format::{FileType, Ino};
use safs::{FileSystem, Options, Owner, SetAttributes};
use safs_tool::image::ImageDevice;
use std::alloc::System;
use std::fs::File;
use std::path::Path;

const LIMIT_BYTES: usize = 64 << 20;
const DISK_BYTES: u64 = 8_000_000_000_000;
const ZONE_BYTES: u64 = 256 << 20;
const PER_DIRECTORY: u64 = 10_000;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// The caches' part of the memory.
fn caches(options: &Options) -> usize {
    options.overlay_bytes + options.node_cache_bytes + options.header_cache_bytes
}

/// Says how much is held and was held at most, and holds it to the limit.
fn check(what: &str, since: usize, most: usize) {
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    let held = MEMORY.allocated().saturating_sub(since);
    let peak = MEMORY.max_allocated().saturating_sub(since);
    println!("{what}: {:.1} MiB, at most {:.1}", mib(held), mib(peak));
    assert!(
        peak <= most,
        "{what}: {peak} bytes at most, expected {most}"
    );
}

fn mounted(path: &Path, options: &Options) -> FileSystem<ImageDevice> {
    let device = ImageDevice::open(path, true).expect("it was made");
    FileSystem::mount(device, options.clone(), 1).expect("it is sound")
}

fn name(number: u64) -> Vec<u8> {
    format!("a file with a name of usual length {number:09}").into_bytes()
}

/// Entries of all directories.
fn listed(fs: &mut FileSystem<ImageDevice>, directories: &[Ino]) -> u64 {
    let mut seen = 0;
    for directory in directories {
        let mut after = 0;
        loop {
            let entries = fs.entries(*directory, after, 1000).expect("a listing");
            let Some(last) = entries.last() else {
                break;
            };
            after = last.id;
            seen += entries.len() as u64;
        }
    }
    seen
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let files = number("FILES").unwrap_or(20_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("image");
    let file = File::create(&path).expect("a temporary file");
    file.set_len(DISK_BYTES).expect("a sparse file of 8 TB");
    drop(made(
        ImageDevice::create(&path, ZONE_BYTES, None).expect("it is large enough"),
    ));
    let options = Options::default();
    let before = MEMORY.allocated();
    let check = |what: &str| check(what, before, LIMIT_BYTES + caches(&options));

    let mut fs = mounted(&path, &options);
    let mut directories = Vec::new();
    for at in 0..files {
        if at % PER_DIRECTORY == 0 {
            let name = format!("d{at}").into_bytes();
            let made = fs.create(Ino(1), &name, FileType::Directory, Owner::default(), 0);
            directories.push(made.expect("a directory"));
        }
        let parent = *directories.last().expect("one was made");
        let ino = fs.create(parent, &name(at), FileType::Regular, Owner::default(), 0);
        let ino = ino.expect("a file");
        // One in a hundred has some bytes.
        if at % 100 == 0 {
            fs.open(ino).expect("it was made");
            fs.write(ino, 0, b"a line of a log\n").expect("room");
            fs.release(ino).expect("it was opened");
        }
        if at % 1_000_000 == 999_999 {
            check(&format!("{} made", at + 1));
        }
    }
    fs.sync().expect("sync");
    check("made");

    // Changes all over the tree.
    let mut random = Random::new(1);
    for _ in 0..files / 10 {
        let at = random.below(files);
        let parent = directories[(at / PER_DIRECTORY) as usize];
        let ino = fs.lookup(parent, &name(at)).expect("it was made");
        let set = SetAttributes {
            mtime_ns: Some(7),
            ..SetAttributes::default()
        };
        fs.set_attributes(ino, set).expect("an attribute");
    }
    fs.sync().expect("sync");
    check("changed");

    // Nothing was unmounted: recovery.
    drop(fs);
    let mut fs = mounted(&path, &options);
    check("recovered");
    assert_eq!(listed(&mut fs, &directories), files);
    check("listed");
    fs.unmount().expect("unmount");
}
