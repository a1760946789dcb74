// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes of the catalog that are lost in both copies, and what of their keys is found elsewhere: in leaves that nothing leads
//! to any more, and in the headers of segments. Only a repair does this, before it reads the log forward.
//!
//! Leaves are exact. Headers know where data lie for as long as they lie there; of names, inodes and attributes they know
//! what was logged since the zones that hold the headers were written. What was deleted may be found again.

use crate::catalog::LostNode;
use crate::error::Result;
use crate::format::*;
use crate::fs::FileSystem;
use std::collections::{BTreeMap, BTreeSet};
use zoned::{Block, ZoneId, ZonedDevice};

/// What was found of the keys that are looked for: the newest segment that says something of each, and what it says.
struct Found<'a> {
    lost: &'a [LostNode],
    values: BTreeMap<Key, (u64, Option<Vec<u8>>)>,
}

impl Found<'_> {
    fn add(&mut self, seq: u64, key: Key, value: Option<Vec<u8>>) {
        if !self.lost.iter().any(|lost| lost.holds(&key)) {
            return;
        }
        let known = self.values.entry(key).or_insert((0, None));
        if seq >= known.0 {
            *known = (seq, value);
        }
    }
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Looks for lost nodes, and puts what of their keys is found into the overlay. `progress` is told each zone that is read.
    pub(crate) fn salvage(&mut self, progress: &mut dyn FnMut(ZoneId)) -> Result {
        let (lost, reached) = self.catalog.look(&mut self.disk);
        if lost.is_empty() {
            return Ok(());
        }
        let mut found = Found {
            lost: &lost,
            values: BTreeMap::new(),
        };
        let is_complete = self.find_leaves(&lost, &reached, &mut found);
        let in_leaves = found.values.len();
        if !is_complete {
            self.find_in_segments(&mut found, progress)?;
        }
        let values = found.values.into_iter();
        let kept: Vec<(Key, Vec<u8>)> = values
            .filter_map(|(key, (_, value))| Some((key, value?)))
            .collect();
        for node in &lost {
            self.salvaged.push(format!(
                "the catalog's node at block {} is lost in both copies",
                node.pointer.at.0
            ));
        }
        self.salvaged.push(format!(
            "of their keys {in_leaves} are in leaves that were left, {} in segment headers",
            kept.len().saturating_sub(in_leaves)
        ));
        for (key, value) in kept {
            self.catalog.put(key, value);
        }
        self.catalog.lose(&lost, &reached);
        Ok(())
    }

    /// Leaves that are marked as used, and that nothing leads to: their parents are lost. They have no checksum then, so both
    /// copies have to be the same. Says whether nothing else can be missing.
    fn find_leaves(
        &mut self,
        lost: &[LostNode],
        reached: &BTreeSet<Block>,
        found: &mut Found,
    ) -> bool {
        // Of a lost leaf nothing can be found in leaves.
        let mut is_complete = lost.iter().all(|lost| lost.pointer.level > 0);
        let is_lost = |at: &Block| lost.iter().any(|lost| lost.pointer.at == *at);
        let nodes = &self.catalog.nodes;
        let unled = nodes
            .used()
            .filter(|at| !reached.contains(at) && !is_lost(at));
        for at in unled {
            match nodes.unled(&mut self.disk, at) {
                Some(node) if node.level == 0 => {
                    for cell in node.cells {
                        found.add(0, cell.key, Some(cell.value.into_vec()));
                    }
                }
                Some(_) => {}
                None => is_complete = false,
            }
        }
        is_complete
    }

    /// What headers say, in all zones in which something lives or the log is.
    fn find_in_segments(&mut self, found: &mut Found, progress: &mut dyn FnMut(ZoneId)) -> Result {
        let zones = self.zones.iter();
        let kept = zones.filter(|(_, entry)| {
            let is_data = !matches!(entry.kind, ZoneKind::None | ZoneKind::Random);
            is_data
                && !matches!(
                    entry.stage,
                    ZoneStage::Free | ZoneStage::Dying | ZoneStage::Offline
                )
        });
        let kept: Vec<(ZoneId, ZoneEntry)> = kept.map(|(zone, entry)| (zone, *entry)).collect();
        for (zone, entry) in kept {
            progress(zone);
            let mut block = 0;
            while block < entry.write_blocks {
                let header = self.read_header(zone, block).ok();
                let ours = header.filter(|header| {
                    let is_here = (header.zone, header.epoch) == (zone, entry.epoch);
                    is_here && header.block <= block
                });
                let Some(header) = ours else {
                    // On to the next that is a header, perhaps the copy of this one.
                    block += 1;
                    continue;
                };
                self.find_in_header(&header, entry.live_bytes > 0, found);
                block += match header.block == block {
                    true => header.segment_blocks(),
                    false => header.blocks(),
                };
            }
        }
        Ok(())
    }

    fn find_in_header(&self, header: &Header, holds_data: bool, found: &mut Found) {
        // What comes behind the root record is applied when the log is read forward.
        if header.seq > self.log.seq {
            return;
        }
        let mut data = Pieces::of(header);
        for change in header.records.batches().unwrap_or_default().concat() {
            match change {
                Change::Put(key, value) if key.kind() == Some(Kind::Extent as u8) => {
                    // Extents elsewhere are known to the segments that hold them, if these are there still.
                    let extent = Extent::decode(&value);
                    let is_here = extent.is_ok_and(|extent| {
                        let place = (extent.zone, extent.header);
                        extent.is_hole || place == (header.zone, header.block)
                    });
                    if is_here && holds_data {
                        found.add(header.seq, key, Some(value));
                    }
                }
                Change::Put(key, value) => found.add(header.seq, key, Some(value)),
                Change::Delete(key) => found.add(header.seq, key, None),
                Change::Data(record) => {
                    let extent = data.next(&record);
                    if let Some(extent) = extent.filter(|_| holds_data) {
                        let key = Key::extent(record.ino, record.logical);
                        found.add(header.seq, key, Some(extent.encode()));
                    }
                }
                Change::Zone(..) | Change::Live(..) => {}
            }
        }
    }
}

/// The pieces of a segment outside the log, one after the other.
struct Pieces<'a> {
    header: &'a Header,
    blocks: u32,
    fragments: usize,
}

impl<'a> Pieces<'a> {
    fn of(header: &'a Header) -> Self {
        Pieces {
            header,
            blocks: 0,
            fragments: 0,
        }
    }

    fn next(&mut self, record: &DataRecord) -> Option<Extent> {
        let header = self.header;
        let bytes = record.bytes as usize;
        let whole = Extent {
            zone: header.zone,
            offset: u64::from(header.block + header.blocks() + self.blocks) * BLOCK as u64,
            bytes: record.bytes,
            crc: 0,
            header: header.block,
            is_fragment: false,
            is_hole: false,
        };
        if bytes % BLOCK == 0 {
            self.blocks += record.bytes / BLOCK as u32;
            return (self.blocks <= header.payload_blocks).then_some(whole);
        }
        let at = self.fragments;
        self.fragments += bytes.next_multiple_of(8);
        let held = header.fragments.get(at..at + bytes)?;
        Some(Extent {
            offset: u64::from(header.block) * BLOCK as u64 + header.fragment_offset(at),
            crc: crc32c::crc32c(held),
            is_fragment: true,
            ..whole
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Owner;
    use crate::testing::{made, made_in_order};
    use crate::{Options, XattrMode};
    use zoned::RamDevice;

    type Fs = FileSystem<RamDevice>;
    /// Path, whose it is, and what is in it.
    type Tree = BTreeMap<String, (u32, Vec<u8>)>;

    const FILES: u32 = 400;

    fn content(number: u32) -> Vec<u8> {
        let bytes = 100 + number as usize * 37;
        (0..bytes)
            .map(|at| (at as u32 / 7 + number) as u8)
            .collect()
    }

    fn mounted(device: RamDevice, repair: bool) -> Result<Fs> {
        let options = Options {
            repair,
            ..Options::default()
        };
        FileSystem::mount(device, options, 5)
    }

    /// Directories with files, links and attributes, in several leaves.
    fn filled(device: RamDevice) -> Fs {
        let mut fs = mounted(device, false).unwrap();
        let owner = |uid| Owner {
            permissions: 0o640,
            uid,
            gid: 7,
        };
        let mut directory = ROOT_INO;
        for number in 0..FILES {
            if number % 50 == 0 {
                let name = format!("directory{number}");
                let made = fs.create(ROOT_INO, name.as_bytes(), FileType::Directory, owner(1), 0);
                directory = made.unwrap();
                fs.symlink(directory, b"link", b"../elsewhere", owner(2))
                    .unwrap();
            }
            let name = format!("file{number:04}");
            let file = fs.create(
                directory,
                name.as_bytes(),
                FileType::Regular,
                owner(number),
                0,
            );
            let file = file.unwrap();
            fs.set_xattr(file, b"user.number", &[number as u8], XattrMode::Any)
                .unwrap();
            fs.write(file, 0, &content(number)).unwrap();
            fs.fsync(file).unwrap();
        }
        fs.root_commit(false).unwrap();
        assert_eq!(
            fs.check(true, |_| ()).unwrap().problems,
            Vec::<String>::new()
        );
        fs
    }

    fn tree(fs: &mut Fs) -> Tree {
        let mut found = Tree::new();
        let mut waiting = vec![(ROOT_INO, String::new())];
        while let Some((directory, path)) = waiting.pop() {
            for entry in fs.entries(directory, 0, usize::MAX).unwrap() {
                let path = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
                let inode = fs.attributes(entry.ino).unwrap();
                let content = match inode.file_type {
                    FileType::Directory => {
                        waiting.push((entry.ino, path.clone()));
                        Vec::new()
                    }
                    FileType::Symlink => fs.read_link(entry.ino).unwrap(),
                    _ => fs.read(entry.ino, 0, 1 << 20).unwrap(),
                };
                found.insert(path, (inode.uid, content));
            }
        }
        found
    }

    fn contents(tree: Tree) -> BTreeSet<Vec<u8>> {
        let files = tree.into_values().map(|(_, content)| content);
        files.filter(|content| content.len() >= 100).collect()
    }

    /// All nodes, leaves and others.
    fn nodes(fs: &mut Fs) -> Vec<Pointer> {
        let mut found = Vec::new();
        let mut waiting: Vec<Pointer> = fs.catalog.root().into_iter().collect();
        while let Some(pointer) = waiting.pop() {
            let node = fs.catalog.nodes.read(&mut fs.disk, pointer).unwrap();
            if node.level > 0 {
                waiting.extend(node.cells.iter().map(|cell| cell.pointer().unwrap()));
            }
            found.push(pointer);
        }
        found
    }

    /// Breaks both copies of nodes and gives the device, as after a power cut.
    fn broken(fs: &mut Fs, nodes: &[Pointer]) -> RamDevice {
        for pointer in nodes {
            for distance in [0, fs.catalog.nodes.mirror_blocks()] {
                let at = pointer.at + distance;
                if fs.layout.in_order.is_none() {
                    fs.disk.write_random(at, &[9; NODE_BYTES]).unwrap();
                    continue;
                }
                let (zone, block) = fs.disk.zone_at(at);
                let end = fs.disk.write_pointer(zone).unwrap();
                let mut bytes = fs.disk.read_zone(zone, 0, end).unwrap();
                // Two accidents are not the same.
                bytes[block as usize * BLOCK + 100] ^= if distance == 0 { 1 } else { 2 };
                fs.disk.reset(zone).unwrap();
                fs.disk.append(zone, 0, &bytes).unwrap();
            }
        }
        fs.device().clone()
    }

    /// Repairs, and looks again after another mount.
    fn repaired(device: RamDevice) -> (Fs, Vec<String>) {
        let mut fs = mounted(device, true).unwrap();
        let (found, left) = fs.repair(true, |_| ()).unwrap();
        assert_eq!(left.problems, Vec::<String>::new());
        let mut fs = mounted(fs.unmount().unwrap(), false).unwrap();
        let problems = fs.check(true, |_| ()).unwrap().problems;
        assert_eq!(problems, Vec::<String>::new());
        (fs, found.problems)
    }

    /// H6: everything was logged, and the log is there still, so everything is found.
    #[test]
    fn a_leaf_that_is_lost_in_both_copies_is_made_of_segment_headers() {
        for device in [made(), made_in_order()] {
            let mut fs = filled(device);
            let expected = tree(&mut fs);
            let all = nodes(&mut fs);
            let leaves: Vec<Pointer> = all.into_iter().filter(|node| node.level == 0).collect();
            assert!(leaves.len() >= 4, "{} leaves", leaves.len());
            for leaf in leaves {
                let mut copy = mounted(fs.device().clone(), false).unwrap();
                // The mount has made a new root record; this leaf may be elsewhere.
                if !nodes(&mut copy).contains(&leaf) {
                    continue;
                }
                let (mut fs, problems) = repaired(broken(&mut copy, &[leaf]));
                assert!(tree(&mut fs) == expected, "the leaf at {:?}", leaf.at);
                assert!(
                    problems[0].contains("is lost in both copies"),
                    "{problems:?}"
                );
            }
        }
    }

    #[test]
    fn a_whole_catalog_is_made_of_segment_headers() {
        for device in [made(), made_in_order()] {
            let mut fs = filled(device);
            let expected = tree(&mut fs);
            let all = nodes(&mut fs);
            let (mut fs, _) = repaired(broken(&mut fs, &all));
            assert!(tree(&mut fs) == expected);
        }
    }

    /// Leaves know also what was never logged, or is not in the log any more.
    #[test]
    fn leaves_whose_parents_are_lost_are_found() {
        let mut fs = filled(made());
        let set = crate::SetAttributes {
            uid: Some(4711),
            ..Default::default()
        };
        fs.set_attributes(ROOT_INO, set).unwrap();
        fs.root_commit(false).unwrap();
        let expected = tree(&mut fs);
        let inner: Vec<Pointer> = nodes(&mut fs)
            .into_iter()
            .filter(|node| node.level > 0)
            .collect();
        let (mut fs, problems) = repaired(broken(&mut fs, &inner));
        assert!(tree(&mut fs) == expected);
        assert_eq!(fs.attributes(ROOT_INO).unwrap().uid, 4711);
        assert!(
            problems
                .iter()
                .any(|line| line.ends_with(" 0 in segment headers")),
            "{problems:?}"
        );
    }

    /// When the log's zones are gone, data are found without names.
    #[test]
    fn data_without_a_name_come_to_lost_and_found() {
        let mut fs = filled(made());
        fs.compact(true, |_| ()).unwrap();
        let expected = contents(tree(&mut fs));
        let all = nodes(&mut fs);
        let (mut fs, _) = repaired(broken(&mut fs, &all));
        let found = tree(&mut fs);
        assert!(found.contains_key("/lost+found"), "{:?}", found.keys());
        assert_eq!(contents(found).len(), expected.len());
        assert!(contents(tree(&mut fs)) == expected);
    }

    /// Who only looks writes nothing.
    #[test]
    fn a_check_that_only_looks_says_what_is_lost() {
        let mut fs = filled(made());
        let all = nodes(&mut fs);
        let device = broken(&mut fs, &all);
        let options = Options {
            repair: true,
            read_only: true,
            ..Options::default()
        };
        let mut fs = FileSystem::mount(device.clone(), options, 5).unwrap();
        let problems = fs.check(false, |_| ()).unwrap().problems;
        assert!(
            problems[0].contains("is lost in both copies"),
            "{problems:?}"
        );
        assert_eq!(fs.counters().roots, 0);
        assert!(mounted(device, false).is_err(), "nobody else mounts it");
    }
}
