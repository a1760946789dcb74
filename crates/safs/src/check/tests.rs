// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a zone was written, as a forged root record says it on a device that keeps no write pointers: nothing else knows.

use crate::format::*;
use crate::testing::sim::{Shape, Sim};
use crate::{make, FileSystem, MakeOptions, Options, Owner, Placement};
use zoned::ZoneId;

type Fs = FileSystem<Sim>;

fn mounted(device: Sim, repair: bool) -> Fs {
    let options = Options {
        repair,
        placement: Placement::Auto,
        stream_after_bytes: 64 << 10,
        turn_bytes: 64 << 10,
        ..Options::default()
    };
    FileSystem::mount(device, options, 5).unwrap()
}

fn create(fs: &mut Fs, name: &[u8]) -> Ino {
    let made = fs.create(ROOT_INO, name, FileType::Regular, Owner::default(), 0);
    made.unwrap()
}

/// One file in a sealed zone of the log, one in the log's zone, one in a zone of its own that goes on.
fn filled() -> (Fs, Vec<Ino>) {
    let device = Sim::new(Shape {
        conventional: 4,
        sequential: 20,
        zone_blocks: 256,
        capacity_blocks: 256,
        open_max: None,
        keeps_pointers: false,
        discards: true,
    });
    let options = MakeOptions {
        uuid: [7; 16],
        label: [0; 64],
        now_ns: 0,
    };
    let mut fs = mounted(make(device, options, |_| ()).unwrap(), false);
    let mut files = Vec::new();
    for (name, blocks) in [(b"sealed", 10), (b"in log", 10), (b"stream", 40)] {
        let file = create(&mut fs, name);
        fs.open(file).unwrap();
        fs.write(file, 0, &vec![name[0]; blocks * BLOCK]).unwrap();
        fs.fsync(file).unwrap();
        fs.release(file).unwrap();
        if name == b"sealed" {
            fs.move_log().unwrap();
        }
        files.push(file);
    }
    fs.sync().unwrap();
    (fs, files)
}

/// What is wrong, as fsck(8) says it; then the file system is used.
fn found_and_used(number: usize, by: i64) -> usize {
    let (mut fs, files) = filled();
    let (_, extent) = fs.extents(files[number], 0, 1).unwrap()[0];
    let forge = |entry: &mut ZoneEntry| {
        entry.write_blocks = u32::try_from(i64::from(entry.write_blocks) + by).unwrap();
    };
    fs.zones.change(extent.zone, forge).unwrap();
    fs.root_commit(true).unwrap();
    let mut device = fs.device().clone();
    device.power_on();
    let mut fs = mounted(device, true);
    let (found, left) = fs.repair(true, |_| ()).unwrap();
    assert_eq!(left.problems, Vec::<String>::new());
    println!("file {number}, {by} blocks: {:?}", found.problems);
    let mut device = fs.unmount().unwrap();
    device.power_on();
    let mut fs = mounted(device, false);
    let new = create(&mut fs, b"new");
    for file in files.iter().chain([&new]) {
        let end = fs.attributes(*file).unwrap().size;
        fs.write(*file, end, &[1; 5 * BLOCK]).unwrap();
        fs.fsync(*file).unwrap();
    }
    let log: ZoneId = fs.log.at.zone;
    fs.compact(true, |_| ()).unwrap();
    assert_eq!(fs.zones.get(log).map_or(0, |entry| entry.live_bytes), 0);
    let report = fs.check(true, |_| ()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    for (file, (byte, blocks)) in files.iter().zip([(b's', 10), (b'i', 10), (b's', 40)]) {
        let expected = [vec![byte; blocks * BLOCK], vec![1; 5 * BLOCK]].concat();
        assert!(fs.read(*file, 0, 1 << 20).unwrap() == expected);
    }
    found.problems.len()
}

#[test]
fn too_little_written_is_found_and_costs_nothing() {
    for number in 0..3 {
        assert!(found_and_used(number, -3) > 0, "file {number}");
    }
}

/// Blocks that nothing was written to, and that nobody misses.
#[test]
fn too_much_written_is_found_where_the_log_goes_on_and_costs_nothing_elsewhere() {
    for number in 0..3 {
        assert_eq!(found_and_used(number, 3) > 0, number == 1, "file {number}");
    }
}
