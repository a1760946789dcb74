// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forger: says something else in every structure, and makes the checksums right again.

use super::random::Random;
use super::sim::{Piece, Sim, BLOCK};
use safs::format::{
    Cell, Change, DataRecord, Header, Ino, Key, Kind, Node, Pointer, Records, Root, Short,
    Superblock, ZoneEntry, NODE_BYTES, ZONE_ENTRY_BYTES,
};
use safs::{recovery, Disk, Layout};
use zoned::{ZoneId, ZonedDevice};

/// What is forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Superblock,
    Root,
    ZoneEntry,
    NodeMap,
    Node,
    Header,
    Batch,
    /// The device has fewer zones than the superblock says, or more.
    Device,
}

/// Each with how often it is chosen.
pub const STRUCTURES: [(Structure, &str, u64); 8] = [
    (Structure::Superblock, "superblock", 1),
    (Structure::Root, "root_record", 2),
    (Structure::ZoneEntry, "zone_entry", 2),
    (Structure::NodeMap, "node_map", 1),
    (Structure::Node, "node", 4),
    (Structure::Header, "segment_header", 2),
    (Structure::Batch, "batch", 4),
    (Structure::Device, "device", 1),
];

/// An image to begin with, and where its structures are.
#[derive(Clone)]
pub struct Original {
    pub disk: Sim,
    root: Root,
    slot: u64,
    superblock: Superblock,
    /// First blocks of segments' headers.
    headers: Vec<u64>,
}

impl Original {
    pub fn new(device: &Sim) -> Self {
        let mut disk = Disk::new(device.clone()).unwrap();
        let superblock = recovery::superblock(&mut disk).unwrap();
        let root = recovery::roots(&mut disk, &superblock).unwrap().remove(0).0;
        let layout = Layout::of(&superblock, disk.geometry().capacity_blocks).unwrap();
        let slot = layout.root(root.root_seq).0;
        let zone_blocks = u64::from(superblock.zone_blocks);
        let first = u64::from(superblock.random_zones) * zone_blocks;
        let is_header = |block: &u64| match device.piece(*block) {
            Piece::Bytes(bytes) => bytes.1.starts_with(b"SAFSSG01"),
            Piece::Word(_) => false,
        };
        let headers = (first..device.blocks()).filter(is_header).collect();
        Original {
            disk: device.clone(),
            root,
            slot,
            superblock,
            headers,
        }
    }
}

pub struct Forger<'a> {
    pub disk: Sim,
    of: &'a Original,
    root: Root,
    random: &'a mut Random,
}

/// Writes something else into a field, wherever it begins.
pub fn change_field(bytes: &mut [u8], random: &mut Random) {
    let width = (1usize << random.below(4)).min(bytes.len());
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
    let new = other_number(old, 8 * width as u64, random);
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

fn other_number(old: u64, bits: u64, random: &mut Random) -> u64 {
    match random.below(9) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.below(bits),
        5 => 1 << random.below(bits),
        6 => random.below(1 << 16),
        7 => random.below(40),
        _ => random.below(u64::MAX),
    }
}

/// Makes a checksum right that lies at byte 8 of its structure.
pub fn seal(bytes: &mut [u8]) {
    bytes[8..12].fill(0);
    let crc = crc32c::crc32c(bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
}

fn change_bytes(bytes: &mut Short, random: &mut Random) {
    match random.below(6) {
        0 => bytes.truncate(random.below(1 + bytes.len() as u64) as usize),
        1 => bytes.extend([0xff; 9]),
        _ if bytes.is_empty() => bytes.push(7),
        _ => change_field(bytes, random),
    }
}

/// A key that nobody expects here.
fn other_key(key: &Key, random: &mut Random) -> Key {
    let ino = match random.below(4) {
        0 => Ino(0),
        1 => Ino(random.below(30)),
        2 => Ino(other_number(key.ino().map_or(0, |ino| ino.0), 64, random)),
        _ => key.ino().unwrap_or(Ino(1)),
    };
    let kinds = [
        Kind::Inode,
        Kind::Xattr,
        Kind::Name,
        Kind::Order,
        Kind::Extent,
        Kind::Link,
        Kind::Orphan,
    ];
    let kinds = kinds.into_iter().chain([Kind::Retain, Kind::Unverified]);
    let kinds: Vec<Kind> = kinds.collect();
    let mut forged = match random.below(3) {
        0 => key.clone(),
        _ => Key::first(ino, *random.pick(&kinds)),
    };
    match random.below(4) {
        0 => forged.0.extend(random.below(200).to_be_bytes()),
        1 => forged.0.extend(other_number(0, 64, random).to_be_bytes()),
        2 => change_bytes(&mut forged.0, random),
        _ => {}
    }
    forged
}

impl<'a> Forger<'a> {
    pub fn new(of: &'a Original, random: &'a mut Random) -> Self {
        Forger {
            disk: of.disk.clone(),
            of,
            root: of.root.clone(),
            random,
        }
    }

    pub fn forge(&mut self, structure: Structure) {
        match structure {
            Structure::Superblock => self.superblock(),
            Structure::Root => self.root_record(),
            Structure::ZoneEntry => self.image(true),
            Structure::NodeMap => self.image(false),
            Structure::Node => self.node(),
            Structure::Header => self.header(),
            Structure::Batch => self.batch(),
            Structure::Device => {
                let zones = self.disk.zones();
                let least = self.disk.shape().conventional + 1;
                let zones = least + self.random.below(u64::from(zones + 8 - least)) as u32;
                self.disk = self.disk.clone().resized(zones);
            }
        }
    }

    fn bytes(&self, block: u64, blocks: u64) -> Vec<u8> {
        let mut bytes = vec![0; blocks as usize * BLOCK];
        for (block, into) in (block..).zip(bytes.chunks_exact_mut(BLOCK)) {
            // The device may have been made smaller.
            if block < self.disk.blocks() {
                self.disk.piece(block).read(into);
            }
        }
        bytes
    }

    fn put(&mut self, block: u64, bytes: &[u8]) {
        for (block, piece) in (block..).zip(bytes.chunks_exact(BLOCK)) {
            if block < self.disk.blocks() {
                self.disk.put(block, Piece::of(piece));
            }
        }
    }

    fn put_twice(&mut self, block: u64, bytes: &[u8]) {
        self.put(block, bytes);
        if self.random.below(8) > 0 {
            self.put(block + self.of.superblock.mirror_blocks, bytes);
        }
    }

    fn put_root(&mut self) {
        let bytes = self.root.encode();
        self.put_twice(self.of.slot, &bytes);
    }

    fn superblock(&mut self) {
        let mut forged = self.of.superblock.clone();
        let other = |old: u32, random: &mut Random| other_number(u64::from(old), 32, random) as u32;
        match self.random.below(6) {
            0 => forged.zones = other(forged.zones, self.random),
            1 => forged.zone_blocks = other(forged.zone_blocks, self.random),
            2 => forged.random_zones = other(forged.random_zones, self.random),
            3 => forged.mirror_blocks = other_number(forged.mirror_blocks, 64, self.random),
            _ => {
                let mut bytes = self.bytes(0, 1);
                change_field(&mut bytes[..256], self.random);
                seal(&mut bytes);
                return self.put_twice(0, &bytes);
            }
        }
        let bytes = forged.encode();
        self.put_twice(0, &bytes);
    }

    fn root_record(&mut self) {
        let mut bytes = self.bytes(self.of.slot, 1);
        change_field(&mut bytes[..160], self.random);
        seal(&mut bytes);
        self.put_twice(self.of.slot, &bytes);
        if let Ok(root) = Root::decode(&bytes, &self.of.superblock.uuid) {
            self.root = root;
        }
    }

    /// An entry of the zone table, or the map of nodes.
    fn image(&mut self, is_table: bool) {
        let image = self.of.root.image;
        let mut bytes = self.bytes(image.at.0, u64::from(image.blocks));
        let table = self.of.superblock.zones as usize * ZONE_ENTRY_BYTES;
        match is_table {
            true => {
                let zone = self.random.below(u64::from(self.of.superblock.zones)) as usize;
                let at = zone * ZONE_ENTRY_BYTES;
                change_field(&mut bytes[at..at + ZONE_ENTRY_BYTES], self.random);
            }
            false => change_field(&mut bytes[table..], self.random),
        }
        self.put_twice(image.at.0, &bytes);
        self.root.image.crc = crc32c::crc32c(&bytes);
        self.put_root();
    }

    /// A byte of a node, or a cell; the way down to it gets right checksums.
    fn node(&mut self) {
        let Some(mut pointer) = self.root.catalog else {
            return;
        };
        let mut way: Vec<(u64, Vec<u8>, usize)> = Vec::new();
        loop {
            if pointer.at.0 >= self.disk.blocks() {
                return;
            }
            let bytes = self.bytes(pointer.at.0, (NODE_BYTES / BLOCK) as u64);
            let Ok(node) = Node::decode(&bytes, &self.of.root.uuid, pointer) else {
                return;
            };
            if node.level == 0 || self.random.one_in(4) {
                return self.change_node(pointer, node, bytes, &way);
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
        let number = self.random.below(node.cells.len().max(1) as u64) as usize;
        match self.random.below(5) {
            _ if node.cells.is_empty() => return,
            0 => change_field(&mut bytes, self.random),
            kind => {
                let Cell { key, value } = &mut node.cells[number];
                match kind {
                    1 => *key = other_key(key, self.random),
                    _ => change_bytes(value, self.random),
                }
                node.cells.sort_by(|a, b| a.key.cmp(&b.key));
                let held: usize = node.cells.iter().map(Cell::bytes).sum();
                if held + 40 > NODE_BYTES {
                    return;
                }
                bytes = node
                    .encode(&self.of.root.uuid, self.of.root.root_seq, pointer.at)
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

    /// A segment's header as it is, and where its copy is.
    fn header_at(&self, at: u64) -> Option<(Header, u64)> {
        let first = self.bytes(at, 1);
        let uuid = self.of.superblock.uuid;
        let (blocks, _) = Header::length(&first, &uuid).ok()?;
        let header = Header::decode(&self.bytes(at, u64::from(blocks)), &uuid).ok()?;
        let copy = at + u64::from(blocks) + u64::from(header.payload_blocks);
        Some((header, copy))
    }

    /// One of them, and where it is.
    fn some_header(&mut self) -> Option<(u64, Header, u64)> {
        if self.of.headers.is_empty() {
            return None;
        }
        let at = *self.random.pick(&self.of.headers);
        let (header, copy) = self.header_at(at)?;
        Some((at, header, copy))
    }

    /// A field of a segment's header, in one of its two places or in both.
    fn header(&mut self) {
        let Some((at, header, copy)) = self.some_header() else {
            return;
        };
        let blocks = u64::from(header.blocks());
        let places = match self.random.below(4) {
            0 => vec![at],
            1 => vec![copy],
            _ => vec![at, copy],
        };
        let field = self.random.below(u64::MAX);
        for place in places {
            let mut bytes = self.bytes(place, blocks);
            if bytes.len() < 160 {
                continue;
            }
            let mut same = Random::new(field);
            let end = if same.one_in(3) { bytes.len() } else { 136 };
            change_field(&mut bytes[..end], &mut same);
            seal(&mut bytes);
            self.put(place, &bytes);
        }
    }

    /// Every segment of the log says that the log goes on in this zone, in a life of it that has number `epoch`.
    pub fn name_next(&mut self, zone: ZoneId, epoch: u64) {
        let uuid = self.of.superblock.uuid;
        for at in &self.of.headers {
            let Some((mut header, copy)) = self.header_at(*at) else {
                continue;
            };
            (header.next_zone, header.next_epoch) = (zone, epoch);
            let (first, second) = header.encode(&uuid);
            self.put(*at, &first);
            self.put(copy, &second);
        }
    }

    /// A record of a batch.
    fn batch(&mut self) {
        let Some((at, mut header, copy)) = self.some_header() else {
            return;
        };
        let blocks = header.blocks();
        let Ok(mut batches) = header.records.batches() else {
            return;
        };
        if batches.is_empty() {
            batches.push(Vec::new());
        }
        let number = self.random.below(batches.len() as u64) as usize;
        let batch = &mut batches[number];
        match self.random.below(6) {
            0 if !batch.is_empty() => {
                batch.remove(self.random.below(batch.len() as u64) as usize);
            }
            1 | 2 => {
                let change = new_change(self.random, self.disk.zones());
                batch.push(change);
            }
            _ if !batch.is_empty() => {
                let place = self.random.below(batch.len() as u64) as usize;
                batch[place] = other_change(&batch[place], self.random, self.disk.zones());
            }
            _ => {}
        }
        header.records = Records::default();
        batches.iter().for_each(|batch| header.records.push(batch));
        if header.blocks() != blocks {
            return;
        }
        let (first, second) = header.encode(&self.of.superblock.uuid);
        self.put(at, &first);
        if self.random.below(4) > 0 {
            self.put(copy, &second);
        }
    }
}

fn some_zone(random: &mut Random, zones: u32) -> ZoneId {
    match random.below(4) {
        0 => ZoneId(other_number(0, 32, random) as u32),
        _ => ZoneId(random.below(u64::from(zones)) as u32),
    }
}

fn some_entry(random: &mut Random) -> ZoneEntry {
    let mut bytes = ZoneEntry::FREE.encode();
    bytes[28] = random.below(6) as u8;
    bytes[29] = random.below(5) as u8;
    for _ in 0..2 {
        change_field(&mut bytes[..], random);
    }
    ZoneEntry::decode(&bytes).unwrap_or(ZoneEntry::FREE)
}

fn new_change(random: &mut Random, zones: u32) -> Change {
    let key = other_key(&Key::inode(Ino(1 + random.below(20))), random);
    match random.below(5) {
        0 => {
            let count = [0, 8, 17, 24, 128, 300][random.below(6) as usize];
            Change::Put(key, random.bytes(count))
        }
        1 => Change::Delete(key),
        2 => Change::Zone(some_zone(random, zones), some_entry(random)),
        3 => Change::Live(some_zone(random, zones), other_number(0, 64, random) as i64),
        _ => Change::Data(DataRecord {
            ino: Ino(random.below(30)),
            logical: other_number(0, 64, random),
            bytes: other_number(0, 32, random) as u32,
        }),
    }
}

fn other_change(change: &Change, random: &mut Random, zones: u32) -> Change {
    match change.clone() {
        Change::Put(key, value) => match random.below(3) {
            0 => Change::Put(other_key(&key, random), value),
            _ => {
                let mut value = value.into();
                change_bytes(&mut value, random);
                Change::Put(key, value.into_vec())
            }
        },
        Change::Delete(key) => Change::Delete(other_key(&key, random)),
        Change::Zone(zone, entry) => match random.below(2) {
            0 => Change::Zone(some_zone(random, zones), entry),
            _ => {
                let mut bytes = entry.encode();
                change_field(&mut bytes[..], random);
                Change::Zone(zone, ZoneEntry::decode(&bytes).unwrap_or(entry))
            }
        },
        Change::Live(zone, delta) => match random.below(2) {
            0 => Change::Live(some_zone(random, zones), delta),
            _ => Change::Live(zone, other_number(delta as u64, 64, random) as i64),
        },
        Change::Data(data) => Change::Data(DataRecord {
            logical: other_number(data.logical, 64, random),
            ..data
        }),
    }
}

/// Where in a node a cell's value begins.
fn value_place(cells: &[Cell], number: usize) -> usize {
    let before: usize = cells[..number].iter().map(Cell::bytes).sum();
    40 + before + 4 + cells[number].key.0.len()
}
