// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images with fields that say something else, and checksums that are right again: whatever is read, nothing panics, hangs
//! or takes memory without bound. `SEED=n` replays one, `SEEDS=n` does the first n; a million of them:
//! `SEEDS=1000000 cargo test --release -p safs --test fuzz`.

mod common;

use cap::Cap;
use common::{device_of, made, options, seeds, Random};
use safs::format::{Cell, FileType, Ino, Key, Node, Pointer, Root, Superblock, BLOCK, NODE_BYTES};
use safs::{recovery, Disk, FileSystem, Layout, Options, Owner, Placement, XattrMode};
use std::alloc::System;
use std::collections::BTreeMap;
use zoned::{Block, DeviceError, Lba, RamDevice, Zone, ZoneId, ZonedDevice};

/// Ends the program if more is asked for than any image of this size is worth.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, 1 << 30);

/// Blocks of a zone of the test's device.
const ZONE_BLOCKS: u64 = 64;
/// Requests that one image may cost.
const REQUESTS_MAX: u64 = 400_000;

/// A device of which some blocks read as something else.
#[derive(Clone)]
struct Forged {
    device: RamDevice,
    blocks: BTreeMap<u64, Vec<u8>>,
    requests: u64,
}

impl Forged {
    fn new(device: &RamDevice) -> Self {
        Forged {
            device: device.clone(),
            blocks: BTreeMap::new(),
            requests: 0,
        }
    }

    /// Blocks as they read now; zeros where nothing can be read.
    fn bytes(&mut self, block: u64, blocks: u64) -> Vec<u8> {
        let mut bytes = vec![0; blocks as usize * BLOCK];
        for (i, piece) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            let _ = self.read(Lba((block + i as u64) * 8), piece);
        }
        bytes
    }

    fn put(&mut self, block: u64, bytes: &[u8]) {
        for (i, piece) in bytes.chunks_exact(BLOCK).enumerate() {
            self.blocks.insert(block + i as u64, piece.to_vec());
        }
    }

    fn count(&mut self) {
        self.requests += 1;
        assert!(self.requests < REQUESTS_MAX, "this does not end");
    }
}

impl ZonedDevice for Forged {
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
        self.count();
        self.device.read(at, data)?;
        for (i, piece) in data.chunks_mut(BLOCK).enumerate() {
            if let Some(block) = self.blocks.get(&(at.0 / 8 + i as u64)) {
                piece.copy_from_slice(&block[..piece.len()]);
            }
        }
        Ok(())
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.count();
        self.device.write(at, data)?;
        for i in 0..data.len() as u64 / BLOCK as u64 {
            self.blocks.remove(&(at.0 / 8 + i));
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

/// File systems to begin with: unmounted, and as a power cut leaves them.
fn originals() -> Vec<RamDevice> {
    let mut originals = Vec::new();
    let forms = [(Placement::Log, true), (Placement::Auto, false)];
    let forms = [0, 1]
        .into_iter()
        .flat_map(|form| forms.map(|(a, b)| (form, a, b)));
    for (form, placement, is_clean) in forms {
        let device = made(device_of(form, 14));
        let mut fs = FileSystem::mount(device, options(placement), 5).unwrap();
        let directory = make(&mut fs, Ino(1), "directory", FileType::Directory);
        for number in 0..40 {
            let file = make(
                &mut fs,
                directory,
                &format!("file{number}"),
                FileType::Regular,
            );
            fs.write(file, 0, &vec![number; 50 + 1500 * usize::from(number)])
                .unwrap();
            fs.set_xattr(file, b"user.number", &[number; 20], XattrMode::Any)
                .unwrap();
            if number % 7 == 0 {
                fs.fsync(file).unwrap();
                fs.root_commit(false).unwrap();
            }
        }
        fs.symlink(Ino(1), b"link", b"directory/file1", Owner::default())
            .unwrap();
        fs.unlink(directory, b"file3").unwrap();
        fs.fsync(Ino(1)).unwrap();
        originals.push(match is_clean {
            true => fs.unmount().unwrap(),
            false => fs.device().clone(),
        });
    }
    originals
}

fn make<D: ZonedDevice>(
    fs: &mut FileSystem<D>,
    parent: Ino,
    name: &str,
    file_type: FileType,
) -> Ino {
    fs.create(parent, name.as_bytes(), file_type, Owner::default(), 0)
        .unwrap()
}

/// Writes something else into a field, wherever it begins.
fn change_field(bytes: &mut [u8], random: &mut Random) {
    let width = 1 << random.below(4);
    // Fields are dense where a structure begins.
    let end = match random.below(3) {
        0 => bytes.len().min(160),
        1 => bytes.len().min(1024),
        _ => bytes.len(),
    };
    let at = random.below((end / width) as u64) as usize * width;
    let mut field = [0; 8];
    field[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(field);
    let new = match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.below(8 * width as u64),
        5 => 1 << random.below(8 * width as u64),
        6 => random.below(1 << 16),
        _ => random.below(u64::MAX),
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Makes a checksum right that lies at byte 8 of its structure.
fn seal(bytes: &mut [u8]) {
    bytes[8..12].fill(0);
    let crc = crc32c::crc32c(bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
}

/// The newest root record, the block where it is, and the superblock.
fn newest_root(device: &RamDevice) -> (Root, u64, Superblock) {
    let mut disk = Disk::new(device.clone()).unwrap();
    let superblock = recovery::superblock(&mut disk).unwrap();
    let root = recovery::roots(&mut disk, &superblock).unwrap().remove(0).0;
    let layout = Layout::of(&superblock, disk.geometry().capacity_blocks).unwrap();
    let slot = layout.root(root.root_seq).0;
    (root, slot, superblock)
}

struct Forger<'a> {
    disk: Forged,
    root: Root,
    slot: u64,
    superblock: Superblock,
    random: &'a mut Random,
}

impl Forger<'_> {
    fn put_twice(&mut self, block: u64, bytes: &[u8]) {
        self.disk.put(block, bytes);
        if self.random.below(8) > 0 {
            self.disk.put(block + self.superblock.mirror_blocks, bytes);
        }
    }

    fn put_root(&mut self) {
        let bytes = self.root.encode();
        self.put_twice(self.slot, &bytes);
    }

    /// A field of the superblock or of the root record.
    fn forge_block(&mut self, block: u64) {
        let mut bytes = self.disk.bytes(block, 1);
        change_field(&mut bytes[..256], self.random);
        seal(&mut bytes);
        self.put_twice(block, &bytes);
    }

    /// A field of the zone table or of the map of nodes.
    fn forge_image(&mut self) {
        let image = self.root.image;
        let mut bytes = self.disk.bytes(image.at.0, u64::from(image.blocks));
        change_field(&mut bytes, self.random);
        self.put_twice(image.at.0, &bytes);
        self.root.image.crc = crc32c::crc32c(&bytes);
        self.put_root();
    }

    /// A byte of a node, or a cell; the way down to it gets right checksums.
    fn forge_node(&mut self) {
        let Some(mut pointer) = self.root.catalog else {
            return;
        };
        let mut way: Vec<(u64, Vec<u8>, usize)> = Vec::new();
        loop {
            let bytes = self.disk.bytes(pointer.at.0, (NODE_BYTES / BLOCK) as u64);
            let Ok(node) = Node::decode(&bytes, &self.root.uuid, pointer) else {
                return;
            };
            if node.level == 0 || self.random.below(4) == 0 {
                self.change_node(pointer, node, bytes, &way);
                return;
            }
            let number = self.random.below(node.cells.len() as u64) as usize;
            let value_at = value_place(&node.cells, number);
            way.push((pointer.at.0, bytes, value_at));
            match node.cells[number].pointer() {
                Ok(below) => pointer = below,
                Err(_) => return,
            }
        }
    }

    fn change_node(
        &mut self,
        pointer: Pointer,
        mut node: Node,
        mut bytes: Vec<u8>,
        way: &[(u64, Vec<u8>, usize)],
    ) {
        let number = self.random.below(node.cells.len() as u64) as usize;
        match self.random.below(4) {
            0 => change_field(&mut bytes, self.random),
            kind => {
                let Cell { key, value } = &mut node.cells[number];
                match kind {
                    1 if !key.0.is_empty() => change_field_of(&mut key.0, self.random),
                    _ if !value.is_empty() => change_field_of(value, self.random),
                    _ => value.push(7),
                }
                node.cells.sort_by(|a, b| a.key.cmp(&b.key));
                bytes = node
                    .encode(&self.root.uuid, self.root.root_seq, pointer.at)
                    .0;
            }
        }
        self.put_twice(pointer.at.0, &bytes);
        let mut crc = crc32c::crc32c(&bytes);
        for (block, parent, value_at) in way.iter().rev() {
            let mut parent = parent.clone();
            parent[value_at + 8..value_at + 12].copy_from_slice(&crc.to_le_bytes());
            crc = crc32c::crc32c(&parent);
            self.put_twice(*block, &parent);
        }
        if let Some(catalog) = &mut self.root.catalog {
            catalog.crc = crc;
        }
        self.put_root();
    }

    /// A field of a segment's header, of one of the two or of both.
    fn forge_header(&mut self) {
        let first = u64::from(self.superblock.random_zones);
        let zone = first + self.random.below(u64::from(self.disk.zones()) - first);
        let mut places = Vec::new();
        for block in 0..ZONE_BLOCKS {
            let first = self.disk.bytes(zone * ZONE_BLOCKS + block, 1);
            if first.starts_with(b"SAFSSG") {
                places.push((zone * ZONE_BLOCKS + block, u64::from(first[12])));
            }
        }
        if places.is_empty() {
            return;
        }
        for _ in 0..1 + self.random.below(2) {
            let (block, blocks) = *self.random.pick(&places);
            let mut bytes = self.disk.bytes(block, blocks.max(1));
            change_field(&mut bytes, self.random);
            seal(&mut bytes);
            self.disk.put(block, &bytes);
        }
    }
}

fn change_field_of(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(6) {
        0 => bytes.truncate(random.below(1 + bytes.len() as u64) as usize),
        1 => bytes.extend([0xff; 9]),
        _ => {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            change_field(bytes, random);
        }
    }
}

/// Where in a node a cell's value begins.
fn value_place(cells: &[Cell], number: usize) -> usize {
    let before: usize = cells[..number].iter().map(Cell::bytes).sum();
    40 + before + 4 + cells[number].key.0.len()
}

/// Everything that the tools do with an image.
fn use_it(disk: Forged, random: &mut Random) {
    let read_only = random.below(2) == 0;
    let options = Options {
        read_only,
        repair: random.below(2) == 0,
        ..options(*random.pick(&[Placement::Log, Placement::Auto]))
    };
    if let Ok(mut disk) = Disk::new(disk.clone()) {
        if let Ok(superblock) = recovery::superblock(&mut disk) {
            let _ = recovery::roots(&mut disk, &superblock);
        }
    }
    let Ok(mut fs) = FileSystem::mount(disk, options, 9) else {
        return;
    };
    let _ = fs.check(true, |_| ());
    let mut keys = Vec::new();
    let _ = fs.each_key(|key: &Key, _| keys.push(key.clone()));
    for zone in 0..fs.zones().count().min(30) {
        let _ = fs.segment(ZoneId(zone), 0);
    }
    let mut inos: Vec<Ino> = keys.iter().filter_map(Key::ino).collect();
    inos.dedup();
    for ino in inos {
        let _ = fs.attributes(ino);
        let _ = fs.entries(ino, 0, 100);
        let _ = fs.read(ino, 0, 1 << 16);
        let _ = fs.read_link(ino);
        let _ = fs.xattrs(ino);
        if fs.refusal().is_none() && random.below(3) == 0 {
            let end = fs.attributes(ino).map_or(0, |inode| inode.size);
            let _ = fs.write(ino, end, &[1; 3000]);
            let _ = fs.truncate(ino, 0);
        }
    }
    if fs.refusal().is_none() {
        if random.below(2) == 0 {
            let _ = fs.repair(false, |_| ());
        }
        let made = fs.create(Ino(1), b"new", FileType::Regular, Owner::default(), 0);
        if let Ok(ino) = made {
            let _ = fs.write(ino, 0, &[1; 9000]);
            let _ = fs.fsync(ino);
        }
        let _ = fs.unlink(Ino(1), b"link");
        let _ = fs.compact(true, |_| ());
    }
    let _ = fs.unmount();
}

fn run(seed: u64, originals: &[RamDevice]) {
    let mut random = Random::new(seed);
    let original = random.pick(originals);
    let (root, slot, superblock) = newest_root(original);
    let mut forger = Forger {
        disk: Forged::new(original),
        root,
        slot,
        superblock,
        random: &mut random,
    };
    for _ in 0..1 + forger.random.below(3) {
        match forger.random.below(10) {
            0 => forger.forge_block(0),
            1 | 2 => forger.forge_block(slot),
            3 | 4 => forger.forge_image(),
            5 | 6 => forger.forge_header(),
            _ => forger.forge_node(),
        }
    }
    let disk = forger.disk;
    use_it(disk, &mut random);
}

#[test]
fn no_image_makes_it_panic_hang_or_take_all_memory() {
    let originals = originals();
    seeds(300).for_each(|seed| run(seed, &originals));
}

/// What the forger writes is what the file system reads: without a change nothing is wrong.
#[test]
fn what_is_forged_has_right_checksums() {
    let originals = originals();
    let (root, ..) = newest_root(&originals[0]);
    let pointer = root.catalog.unwrap();
    let mut disk = Forged::new(&originals[0]);
    let bytes = disk.bytes(pointer.at.0, (NODE_BYTES / BLOCK) as u64);
    let node = Node::decode(&bytes, &root.uuid, pointer).unwrap();
    assert_eq!(
        node.encode(&root.uuid, root.root_seq, Block(pointer.at.0))
            .0
            .len(),
        NODE_BYTES
    );
    let mut block = disk.bytes(0, 1);
    let before = block.clone();
    seal(&mut block);
    assert_eq!(block, before);
}
