// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring files and ring directories: random appends for several times the disk's size, against what a model says must still
//! be there. `SEED=n` replays one seed, `SEEDS=n` does the first n.

mod common;

use common::{assert_sound, device, made, options, seeds, Random};
use safs::format::{FileType, Ino};
use safs::{Error, FileSystem, Owner, Placement, Retention, XattrMode, RETAIN_ATTRIBUTE};
use zoned::RamDevice;

/// Sequential zones of the disk, 256 KiB each.
const ZONES: u32 = 24;
const ZONE_BYTES: u64 = 256 << 10;
const DISK_BYTES: u64 = ZONES as u64 * ZONE_BYTES;
const SECOND_NS: i64 = 1_000_000_000;

struct Ring {
    fs: FileSystem<RamDevice>,
    random: Random,
    now_ns: i64,
    placement: Placement,
}

impl Ring {
    fn new(seed: u64) -> Self {
        let placement = if seed % 2 == 0 {
            Placement::Log
        } else {
            Placement::Auto
        };
        Ring {
            fs: FileSystem::mount(made(device(ZONES)), options(placement), 0).unwrap(),
            random: Random::new(seed),
            now_ns: 0,
            placement,
        }
    }

    fn create(&mut self, parent: Ino, name: &str, file_type: FileType) -> Ino {
        self.fs
            .create(parent, name.as_bytes(), file_type, Owner::default(), 0)
            .unwrap()
    }

    fn retain(&mut self, ino: Ino, value: &str) {
        self.fs
            .set_xattr(ino, RETAIN_ATTRIBUTE, value.as_bytes(), XattrMode::Any)
            .unwrap();
    }

    fn pass(&mut self, ns: i64) {
        self.now_ns += ns;
        self.fs.tick(self.now_ns).unwrap();
    }

    /// The power fails now and then, or somebody unmounts.
    fn interrupt(&mut self) {
        let device = match self.random.below(3) {
            0 => {
                self.fs.sync().unwrap();
                self.fs.device().clone()
            }
            1 => {
                let blank = made(device(ZONES));
                let blank = FileSystem::mount(blank, options(self.placement), 0).unwrap();
                std::mem::replace(&mut self.fs, blank).unmount().unwrap()
            }
            _ => return,
        };
        self.fs = FileSystem::mount(device, options(self.placement), self.now_ns).unwrap();
        assert_sound(&mut self.fs, true);
    }
}

/// What byte `at` of a file is.
fn byte(at: u64) -> u8 {
    (at / 13 % 251) as u8
}

fn bytes(from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

fn ring_file(seed: u64) {
    let mut ring = Ring::new(seed);
    let kept = ZONE_BYTES * (2 + ring.random.below(6));
    let file = ring.create(Ino(1), "ring", FileType::Regular);
    ring.retain(file, &format!("bytes={kept}"));
    let mut written = 0;
    while written < 3 * DISK_BYTES {
        let count = 1 + ring.random.below(100_000);
        ring.fs
            .write(file, written, &bytes(written, count))
            .unwrap();
        written += count;
        ring.pass(300_000_000);
        let inode = ring.fs.attributes(file).unwrap();
        assert!(
            inode.head <= written.saturating_sub(kept),
            "the newest {kept} bytes stay"
        );
        // A step, and what is larger than one: an extent of the largest turn.
        let most = kept + ZONE_BYTES + count + (512 << 10);
        assert!(
            inode.stored <= most,
            "{} bytes of {most} are stored",
            inode.stored
        );
        if ring.random.below(30) == 0 {
            let head = inode.head;
            let from = head + ring.random.below(written - head);
            let count = (written - from).min(50_000);
            assert_eq!(
                ring.fs.read(file, from, count as usize).unwrap(),
                bytes(from, count)
            );
        }
        if ring.random.below(60) == 0 {
            ring.interrupt();
            assert_eq!(ring.fs.attributes(file).unwrap().written, written);
        }
    }
    assert_sound(&mut ring.fs, true);
}

fn ring_directory(seed: u64) {
    let mut ring = Ring::new(seed);
    let kept = ZONE_BYTES * (3 + ring.random.below(5));
    let directory = ring.create(Ino(1), "ring", FileType::Directory);
    let below = ring.create(directory, "below", FileType::Directory);
    ring.retain(directory, &format!("bytes={kept}"));
    let mut sizes: Vec<u64> = Vec::new();
    let mut total = 0;
    while total < 3 * DISK_BYTES {
        let name = format!("part{}", sizes.len());
        let file = ring.create(directory, &name, FileType::Regular);
        let size = 1 + ring.random.below(200_000);
        ring.fs.write(file, 0, &bytes(0, size)).unwrap();
        sizes.push(size);
        total += size;
        ring.pass(SECOND_NS);
        let entries = ring.fs.entries(directory, 0, 10_000).unwrap();
        let mut left = entries.iter().filter(|entry| entry.ino != below);
        // The newest that fit into what is kept, and no others.
        let mut sum = 0;
        let fits = |size: &&u64| {
            sum += **size;
            sum <= kept
        };
        let expected = sizes.iter().rev().take_while(fits).count().max(1);
        for number in sizes.len() - expected..sizes.len() {
            let entry = left.next().unwrap();
            assert_eq!(entry.name, format!("part{number}").into_bytes());
        }
        assert_eq!(left.next(), None);
        if ring.random.below(40) == 0 {
            ring.interrupt();
            let read = ring.fs.read(file, 0, size as usize).unwrap();
            assert_eq!(read, bytes(0, size));
        }
    }
    assert!(ring.fs.lookup(directory, b"below").is_ok());
    assert_sound(&mut ring.fs, true);
}

#[test]
fn a_ring_file_takes_three_times_the_disk_and_keeps_the_newest() {
    seeds(6).for_each(ring_file);
}

#[test]
fn a_ring_directory_takes_three_times_the_disk_and_keeps_the_newest_files() {
    seeds(6).for_each(ring_directory);
}

#[test]
fn what_is_older_than_said_goes() {
    let mut ring = Ring::new(1);
    let file = ring.create(Ino(1), "ring", FileType::Regular);
    ring.retain(file, "seconds=60");
    for number in 0..10u64 {
        ring.fs
            .write(file, number * 65536, &bytes(number * 65536, 65536))
            .unwrap();
        ring.fs.fsync(file).unwrap();
        ring.pass(10 * SECOND_NS);
    }
    let head = ring.fs.attributes(file).unwrap().head;
    // Written at 0, 10, … 90 s; it is 100 s: those before 40 s are gone.
    assert_eq!(head, 4 * 65536);
    assert_eq!(ring.fs.read(file, head, 65536).unwrap(), bytes(head, 65536));
}

#[test]
fn a_retention_is_kept_with_the_disk_ends_with_its_attribute_and_is_refused_if_it_says_nothing() {
    let mut ring = Ring::new(0);
    let directory = ring.create(Ino(1), "ring", FileType::Directory);
    for wrong in ["", "bytes=", "bytes=1 hours=2", "to=/x"] {
        let set = ring.fs.set_xattr(
            directory,
            RETAIN_ATTRIBUTE,
            wrong.as_bytes(),
            XattrMode::Any,
        );
        assert!(matches!(set, Err(Error::Invalid(_))), "{wrong}");
    }
    let said = "bytes=1000 seconds=5 copy";
    ring.retain(directory, said);
    assert_eq!(Retention::parse(said.as_bytes()).unwrap().encode(), said);
    for name in ["a", "b"] {
        let file = ring.create(directory, name, FileType::Regular);
        ring.fs.write(file, 0, &[1; 5000]).unwrap();
    }
    let device = ring.fs.unmount().unwrap();
    let mut fs = FileSystem::mount(device, options(Placement::Log), 5).unwrap();
    // What is to be copied does not go by itself.
    fs.tick(100 * SECOND_NS).unwrap();
    let spent = fs.spent().unwrap();
    assert_eq!(spent.len(), 1);
    assert!(spent[0].is_copied);
    assert!(fs.lookup(directory, b"a").is_ok());
    fs.forget(&spent[0]).unwrap();
    assert_eq!(fs.lookup(directory, b"a"), Err(Error::NotFound));
    fs.remove_xattr(directory, RETAIN_ATTRIBUTE).unwrap();
    assert_eq!(fs.spent().unwrap(), []);
    assert_sound(&mut fs, true);
}

/// H4: a ring may have more files than one look takes, and is exact when names come and go.
#[test]
fn a_ring_of_many_files_forgets_the_oldest_and_no_others() {
    const BYTES: u64 = 100;
    // The catalog of so many takes some room.
    let disk = RamDevice::new(64, 60, common::ZONE_SECTORS).with_open_max(10);
    let fs = FileSystem::mount(made(disk), options(Placement::Log), 0).unwrap();
    let (random, placement) = (Random::new(0), Placement::Log);
    let mut ring = Ring {
        fs,
        random,
        now_ns: 0,
        placement,
    };
    let directory = ring.create(Ino(1), "ring", FileType::Directory);
    let mut made = 0..;
    let mut add = |ring: &mut Ring, files: usize| {
        for number in made.by_ref().take(files) {
            let file = ring.create(directory, &format!("file{number:05}"), FileType::Regular);
            ring.fs.write(file, 0, &[1; BYTES as usize]).unwrap();
            // What waits has a block reserved for each file.
            if number % 100 == 0 {
                ring.fs.sync().unwrap();
            }
        }
        ring.fs.sync().unwrap();
        // Looks until all are counted.
        (0..4).for_each(|_| ring.pass(SECOND_NS));
    };
    let left = |ring: &mut Ring| {
        let entries = ring.fs.entries(directory, 0, usize::MAX).unwrap();
        let first = String::from_utf8(entries[0].name.clone()).unwrap();
        (entries.len(), first)
    };
    add(&mut ring, 6000);
    ring.retain(directory, &format!("bytes={}", 5000 * BYTES));
    add(&mut ring, 0);
    assert_eq!(left(&mut ring), (5000, "file01000".into()));
    // What somebody deletes, in the middle and moved elsewhere, makes room for others.
    for number in 3000..3300 {
        ring.fs
            .unlink(directory, format!("file{number:05}").as_bytes())
            .unwrap();
        let name = format!("file{:05}", number + 1000);
        let mode = safs::RenameMode::Replace;
        ring.fs
            .rename(directory, name.as_bytes(), Ino(1), name.as_bytes(), mode)
            .unwrap();
    }
    add(&mut ring, 600);
    assert_eq!(left(&mut ring), (5000, "file01000".into()));
    add(&mut ring, 10);
    assert_eq!(left(&mut ring), (5000, "file01010".into()));
    // A file that grows.
    let newest = ring.fs.lookup(directory, b"file06609").unwrap();
    ring.fs
        .write(newest, BYTES, &[2; 5 * BYTES as usize])
        .unwrap();
    add(&mut ring, 0);
    assert_eq!(left(&mut ring), (4995, "file01015".into()));
    let device = ring.fs.unmount().unwrap();
    ring.fs = FileSystem::mount(device, options(Placement::Log), ring.now_ns).unwrap();
    add(&mut ring, 1);
    assert_eq!(left(&mut ring), (4995, "file01016".into()));
}
