// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the decision table of docs/design/safs-design.md that a power cut alone does not make: damage, one row at a time.

mod common;

use common::{append, device, device_in_order, made, mounted, options, Random};
use safs::format::{FileType, Ino, Root};
use safs::{recovery, Disk, Error, FileSystem, Layout, Options, Owner, Placement};
use std::collections::{BTreeMap, BTreeSet};
use zoned::{DeviceError, Lba, RamDevice, Sense, Zone, ZoneId, ZonedDevice};

/// Blocks of this device read as something else, or not at all.
#[derive(Clone)]
struct Damaged {
    device: RamDevice,
    wrong: BTreeMap<u64, u8>,
    unreadable: BTreeSet<u64>,
}

impl Damaged {
    fn new(device: &RamDevice, wrong: impl IntoIterator<Item = u64>) -> Self {
        Damaged {
            device: device.clone(),
            wrong: wrong.into_iter().map(|block| (block, 0xff)).collect(),
            unreadable: BTreeSet::new(),
        }
    }
}

impl ZonedDevice for Damaged {
    fn zones(&self) -> u32 {
        self.device.zones()
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.device.zone(zone)
    }
    fn open_max(&self) -> Option<u32> {
        self.device.open_max()
    }
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, data)?;
        for (i, block) in data.chunks_mut(4096).enumerate() {
            let number = at.0 / 8 + i as u64;
            if self.unreadable.contains(&number) {
                return Err(DeviceError::Failed(Sense {
                    key: 3,
                    asc: 0x11,
                    ascq: 0,
                }));
            }
            if let Some(mask) = self.wrong.get(&number) {
                block.iter_mut().for_each(|byte| *byte ^= mask);
            }
        }
        Ok(())
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, data)?;
        for i in 0..data.len() as u64 / 4096 {
            self.wrong.remove(&(at.0 / 8 + i));
            self.unreadable.remove(&(at.0 / 8 + i));
        }
        Ok(())
    }
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.open_zone(zone)
    }
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.close_zone(zone)
    }
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.finish_zone(zone)
    }
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.reset_zone(zone)
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}

/// A device on which the power failed after two segments: a file of three blocks, and one of some bytes.
/// Once with conventional zones, once without.
fn crashed() -> [RamDevice; 2] {
    [device(40), device_in_order(40)].map(|device| {
        let mut fs = mounted(made(device));
        append(&mut fs, "blocks", &[7; 12288]);
        append(&mut fs, "bytes", b"some bytes");
        fs.device().clone()
    })
}

/// Distance of second copies.
fn mirror(device: &RamDevice) -> u64 {
    let mut disk = Disk::new(device.clone()).unwrap();
    recovery::superblock(&mut disk).unwrap().mirror_blocks
}

fn newest_root(device: &RamDevice) -> Root {
    let mut disk = Disk::new(device.clone()).unwrap();
    let superblock = recovery::superblock(&mut disk).unwrap();
    recovery::roots(&mut disk, &superblock).unwrap().remove(0).0
}

/// Blocks of the first segment behind the newest root record: its header, its payload, its second header.
fn first_segment(device: &RamDevice) -> [u64; 3] {
    let log = newest_root(device).log;
    let at = u64::from(log.zone.0) * 64 + u64::from(log.block);
    [at, at + 1, at + 4]
}

fn assert_whole<D: ZonedDevice>(fs: &mut FileSystem<D>) {
    let blocks = fs.lookup(Ino(1), b"blocks").unwrap();
    let bytes = fs.lookup(Ino(1), b"bytes").unwrap();
    assert_eq!(fs.read(blocks, 0, 20_000).unwrap(), [7; 12288]);
    assert_eq!(fs.read(bytes, 0, 100).unwrap(), b"some bytes");
}

#[test]
fn r1_the_mirror_of_a_bad_superblock_is_used() {
    for device in crashed() {
        let mut fs = mounted(Damaged::new(&device, [0]));
        assert_whole(&mut fs);
        let both = Damaged::new(&device, [0, mirror(&device)]);
        let refused = FileSystem::mount(both, Options::default(), 5)
            .err()
            .unwrap();
        assert_eq!(
            refused.to_string(),
            "the superblock is damaged: no SAFS superblock"
        );
    }
}

#[test]
fn r2_without_its_image_a_root_record_gives_way_to_the_one_before_and_nothing_is_written() {
    for device in crashed() {
        let image = newest_root(&device).image.at.0;
        let mut fs = mounted(Damaged::new(&device, [image, image + mirror(&device)]));
        assert!(fs.refusal().unwrap().contains("both copies are bad"));
        assert_eq!(
            fs.create(Ino(1), b"x", FileType::Regular, Owner::default(), 0),
            Err(Error::ReadOnly)
        );
        let mut fs = mounted(Damaged::new(&device, [image]));
        assert_whole(&mut fs);
    }
}

#[test]
fn r5_the_second_header_stands_in_for_the_first() {
    for device in crashed() {
        let [first, _, second] = first_segment(&device);
        for bad in [first, second] {
            let mut fs = mounted(Damaged::new(&device, [bad]));
            assert_eq!(fs.refusal(), None);
            assert_whole(&mut fs);
            // What only the copy names moves, too, and its zone becomes free.
            fs.compact(false, |_| ()).unwrap();
            let zone = ZoneId(u32::try_from(first / 64).unwrap());
            assert_eq!(fs.zones().get(zone).unwrap().live_bytes, 0);
            assert_whole(&mut fs);
        }
        assert!(
            mounted(Damaged::new(&device, [first]))
                .counters()
                .copies_lost
                > 0
        );
    }
}

#[test]
fn r7_a_durable_segment_that_is_lost_is_said_and_nothing_is_written() {
    for device in crashed() {
        let [first, _, second] = first_segment(&device);
        let fs = mounted(Damaged::new(&device, [first, second]));
        assert!(fs
            .refusal()
            .unwrap()
            .contains("was durable and cannot be read; safs fsck"));
    }
}

#[test]
fn r9_bad_data_are_eio_for_those_bytes_alone() {
    for device in crashed() {
        let [_, payload, _] = first_segment(&device);
        let mut unreadable = Damaged::new(&device, []);
        unreadable.unreadable.insert(payload + 1);
        for device in [Damaged::new(&device, [payload + 1]), unreadable] {
            let mut fs = mounted(device);
            let ino = fs.lookup(Ino(1), b"blocks").unwrap();
            assert_eq!(fs.read(ino, 0, 4096).unwrap(), [7; 4096]);
            assert!(matches!(
                fs.read(ino, 4096, 4096),
                Err(Error::Corrupt { .. } | Error::Device { .. })
            ));
            assert_eq!(fs.read(ino, 8192, 4096).unwrap(), [7; 4096]);
            assert_eq!(fs.refusal(), None, "reading never takes the right to write");
        }
    }
}

#[test]
fn r22_a_node_is_read_from_its_mirror_and_without_it_is_eio() {
    for device in crashed() {
        let device = mounted(device).unmount().unwrap();
        let node = newest_root(&device).catalog.unwrap().at.0;
        let mut fs = mounted(Damaged::new(&device, [node]));
        assert_whole(&mut fs);
        assert!(fs.counters().copies_lost > 0);
        let mut unreadable = Damaged::new(&device, []);
        unreadable.unreadable.insert(node + 1);
        assert_whole(&mut mounted(unreadable));
        let both = Damaged::new(&device, [node, node + mirror(&device)]);
        assert!(matches!(
            FileSystem::mount(both, options(Placement::Log), 5),
            Err(Error::Corrupt { .. })
        ));
    }
}

/// Nothing that reads may panic, whatever is bad.
#[test]
fn damage_anywhere_is_an_error_or_nothing() {
    for device in [device(40), device_in_order(40)] {
        damage_anywhere(device);
    }
}

fn damage_anywhere(device: RamDevice) {
    let mut fs = mounted(made(device));
    for i in 0..30 {
        append(
            &mut fs,
            &format!("file{}", i % 7),
            &vec![i; 100 + 3000 * usize::from(i)],
        );
    }
    let device = fs.device().clone();
    let mut random = Random::new(9);
    for _ in 0..120 {
        let mut damaged = Damaged::new(&device, []);
        for _ in 0..1 + random.below(6) {
            damaged
                .wrong
                .insert(random.below(20 * 64), 1 << random.below(8));
            damaged.unreadable.insert(random.below(20 * 64));
        }
        let options = Options {
            read_only: random.below(2) == 0,
            ..options(Placement::Log)
        };
        let Ok(mut fs) = FileSystem::mount(damaged, options, 5) else {
            continue;
        };
        let _ = fs.check(true, |_| ());
        for entry in fs.entries(Ino(1), 0, 100).unwrap_or_default() {
            let _ = fs.read(entry.ino, 0, 1 << 20);
        }
        if fs.refusal().is_none() {
            if let Ok(ino) = fs.create(Ino(1), b"new", FileType::Regular, Owner::default(), 0) {
                let _ = fs.write(ino, 0, &[1; 5000]);
                let _ = fs.fsync(ino);
            }
            let _ = fs.compact(true, |_| ());
            let _ = fs.unmount();
        }
    }
}

/// Mounts, and expects that nothing is written, with a sentence that says what to do.
fn assert_doubted<D: ZonedDevice>(device: D) -> FileSystem<D> {
    let mut fs = mounted(device);
    let why = fs.refusal().expect("something newer was there").to_string();
    assert!(
        why.contains("root record") && why.contains("safs fsck"),
        "{why}"
    );
    let made = fs.create(Ino(1), b"x", FileType::Regular, Owner::default(), 0);
    assert_eq!(made, Err(Error::ReadOnly));
    fs
}

/// Repairs; that something was lost is a problem, and none is left.
fn repaired<D: ZonedDevice>(device: D) -> D {
    let repair = Options {
        repair: true,
        ..options(Placement::Log)
    };
    let mut fs = FileSystem::mount(device, repair, 5).unwrap();
    assert_eq!(fs.refusal(), None);
    let (before, after) = fs.repair(true, |_| ()).unwrap();
    let said = before
        .problems
        .iter()
        .any(|problem| problem.contains("root record"));
    assert!(said, "{:?}", before.problems);
    assert_eq!(after.problems, Vec::<String>::new());
    fs.unmount().unwrap()
}

/// Both copies of the newest root record lost: that was a silent rollback, and the file system was writable.
#[test]
fn r26_a_newest_root_record_that_is_lost_is_said_and_nothing_is_written() {
    for records in [1, 2, 3, 20, 40] {
        for device in crashed() {
            let mut fs = mounted(device);
            for number in 0..records {
                append(&mut fs, &format!("file{number}"), &[number; 5000]);
                fs.root_commit(false).unwrap();
            }
            let device = fs.device().clone();
            let mut disk = Disk::new(device.clone()).unwrap();
            let superblock = recovery::superblock(&mut disk).unwrap();
            let (root, _) = recovery::roots(&mut disk, &superblock).unwrap().remove(0);
            let layout = Layout::of(&superblock, disk.geometry().capacity_blocks).unwrap();
            let at = layout.root(root.root_seq).0;
            // One copy is enough.
            let one = Damaged::new(&device, [at]);
            assert_eq!(mounted(one).refusal(), None, "{records} records");
            let both = Damaged::new(&device, [at, at + mirror(&device)]);
            assert_whole(&mut assert_doubted(both.clone()));
            let mut fs = mounted(repaired(both));
            assert_eq!(fs.refusal(), None, "{records} records");
            assert_whole(&mut fs);
            append(&mut fs, "after", b"goes on");
        }
    }
}

/// Several newest root records lost in both copies: one repair is enough, and what lies behind its own record makes no mount
/// doubt it. With conventional zones there are two places for images: if both were used since, nothing is left to go on from.
#[test]
fn r26_several_lost_root_records_take_one_repair() {
    for (lost, changes) in (2..12).flat_map(|lost| [(lost, false), (lost, true)]) {
        for device in crashed() {
            let mut fs = mounted(device);
            for number in 0..14 {
                if changes {
                    append(&mut fs, &format!("file{number}"), &[number; 5000]);
                }
                fs.root_commit(false).unwrap();
            }
            let device = fs.device().clone();
            let mut disk = Disk::new(device.clone()).unwrap();
            let superblock = recovery::superblock(&mut disk).unwrap();
            let layout = Layout::of(&superblock, disk.geometry().capacity_blocks).unwrap();
            let newest = newest_root(&device).root_seq;
            let records = (0..lost).map(|back| layout.root(newest - back).0);
            let wrong = records.flat_map(|at| [at, at + mirror(&device)]);
            let damaged = Damaged::new(&device, wrong);
            if changes && layout.in_order.is_none() {
                let refused = FileSystem::mount(damaged, options(Placement::Log), 5);
                let why = refused.map(drop).unwrap_err().to_string();
                assert!(why.contains("image of root record"), "{why}");
                continue;
            }
            assert_whole(&mut assert_doubted(damaged.clone()));
            let mut fs = mounted(repaired(damaged));
            assert_eq!(fs.refusal(), None, "{lost} records lost");
            assert_whole(&mut fs);
        }
    }
}

/// The disk lost two writes: the newest root record's slots hold what was in them before. The log behind it says so.
#[test]
fn r26_a_segment_that_names_a_newer_root_record_is_believed() {
    let mut fs = mounted(made(device(40)));
    append(&mut fs, "file", &[1; 5000]);
    for _ in 0..20 {
        fs.root_commit(false).unwrap();
    }
    let before = fs.device().clone();
    fs.root_commit(false).unwrap();
    append(&mut fs, "file", &[2; 5000]);
    let mut device = fs.device().clone();
    let at = 1 + newest_root(&device).root_seq % 16;
    for at in [at, at + mirror(&device)] {
        let mut block = vec![0; 4096];
        before.clone().read(Lba(at * 8), &mut block).unwrap();
        device.write(Lba(at * 8), &block).unwrap();
    }
    assert_doubted(device.clone());
    assert_eq!(mounted(repaired(device)).refusal(), None);
}
