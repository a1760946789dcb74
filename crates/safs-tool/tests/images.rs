// SPDX-License-Identifier: MIT OR Apache-2.0
//! Image files: they keep no write pointers, so recovery has to find them.

#[path = "../../safs/tests/common/mod.rs"]
mod common;

use common::{append, assert_sound, made, mounted, options};
use safs::format::{FileType, Ino};
use safs::{make, recovery, Disk, Error, FileSystem, MakeOptions, Options, Owner, Placement};
use safs_tool::image::ImageDevice;
use zoned::{Block, ZonedDevice};

#[test]
fn r11_r17_r23_an_image_goes_on_after_each_crash() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(40 << 20).unwrap();
    made(ImageDevice::create(file.path(), 1 << 20, Some(4)).unwrap());
    let mut expected = Vec::new();
    for round in 0..12u8 {
        let image = ImageDevice::open(file.path(), true).unwrap();
        let mut fs = FileSystem::mount(image, options(Placement::Auto), 5).unwrap();
        assert_eq!(fs.refusal(), None);
        assert_sound(&mut fs, true);
        let data = vec![round; 70_000 + usize::from(round)];
        append(&mut fs, "file", &data);
        expected.extend(data);
        let ino = fs.lookup(Ino(1), b"file").unwrap();
        assert_eq!(fs.read(ino, 0, expected.len() + 1).unwrap(), expected);
        // Not durable: this may be there after the crash or not, but never more than its beginning.
        fs.create(
            Ino(1),
            format!("lost{round}").as_bytes(),
            FileType::Regular,
            Owner::default(),
            0,
        )
        .unwrap();
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

#[test]
fn a_device_that_keeps_no_write_pointers_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let image = ImageDevice::create(file.path(), 1 << 20, Some(0)).unwrap();
    let options = MakeOptions {
        uuid: [7; 16],
        label: [0; 64],
        now_ns: 0,
    };
    let refused = make(image, options, |_| ()).err().unwrap().to_string();
    assert!(refused.ends_with("keeps no write pointers"), "{refused}");
}

/// INV-S3: a repair goes on from the mount before the last. What the last one logged lies behind what is logged now, with
/// numbers that would fit.
#[test]
fn s3_what_a_lost_mount_logged_is_never_read_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(40 << 20).unwrap();
    let image = || ImageDevice::open(file.path(), true).unwrap();
    made(ImageDevice::create(file.path(), 1 << 20, Some(4)).unwrap());
    mounted(image()).unmount().unwrap();
    let mut fs = mounted(image());
    for _ in 0..3 {
        append(&mut fs, "file", &[1; 4096]);
    }
    drop(fs);
    let mut disk = Disk::new(image()).unwrap();
    let superblock = recovery::superblock(&mut disk).unwrap();
    let (lost, _) = recovery::roots(&mut disk, &superblock).unwrap().remove(0);
    for at in [
        1 + lost.root_seq % 16,
        1 + lost.root_seq % 16 + superblock.mirror_blocks,
    ] {
        disk.write_random(Block(at), &[0xff; 4096]).unwrap();
    }
    drop(disk);
    assert_doubted(image());
    let repair = Options {
        repair: true,
        ..options(Placement::Log)
    };
    let mut fs = FileSystem::mount(image(), repair, 5).unwrap();
    append(&mut fs, "file", &[2; 4096]);
    drop(fs);
    let mut fs = mounted(image());
    assert_eq!(fs.refusal(), None);
    let ino = fs.lookup(Ino(1), b"file").unwrap();
    assert_eq!(fs.read(ino, 0, 20_000).unwrap(), [2; 4096]);
}
