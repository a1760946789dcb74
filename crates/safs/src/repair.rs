// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repairing what the check finds. What contradicts itself is brought to what the more basic record says: a zone's account
//! to the extents, a directory's to its names, an inode's to what belongs to it. What cannot be read goes; an inode that is
//! not there is made anew if data, names or a target belong to it; what has no name any more gets one in `lost+found`. Bad copies are written anew from the good ones;
//! where nothing can be written again, the next root record has the node elsewhere.

use crate::check::{Fix, Report};
use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use crate::namespace::{new_inode, Owner};
use crate::roots::{lost_record, roots};
use zoned::{Block, ZoneId, ZonedDevice};

/// A repair can uncover what is behind it; more rounds than this do not end.
const ROUNDS_MAX: usize = 8;
/// Keys removed at a time.
const REMOVE_MAX: usize = 256;
/// Names that are tried for it.
const PLACES_MAX: u32 = 100;
/// The directory in the root for what has lost its name.
const FOUND: &[u8] = b"lost+found";

impl<D: ZonedDevice> FileSystem<D> {
    /// Repairs what a check finds; the answer is what was wrong, and what is still.
    pub fn repair(
        &mut self,
        data: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<(Report, Report)> {
        self.writable()?;
        let salvaged = std::mem::take(&mut self.salvaged);
        let mut first = None;
        for _ in 0..ROUNDS_MAX {
            let (report, fixes) = self.check_all(data, &mut progress)?;
            let before = first.get_or_insert_with(|| Report {
                problems: [salvaged.as_slice(), &report.problems].concat(),
                ..report.clone()
            });
            if fixes.is_empty() {
                let before = before.clone();
                self.outgrow_lost_records()?;
                return Ok((before, report));
            }
            // The map of nodes first: what the others write must not go over nodes in use.
            let (maps, others): (Vec<Fix>, Vec<Fix>) = fixes
                .into_iter()
                .partition(|fix| matches!(fix, Fix::Nodes(_)));
            for fix in maps.into_iter().chain(others) {
                self.fix(fix)?;
            }
            self.root_commit(false)?;
        }
        self.outgrow_lost_records()?;
        let (report, _) = self.check_all(data, &mut progress)?;
        Ok((first.unwrap_or_else(|| report.clone()), report))
    }

    /// Goes on with root records until nothing is left of lost ones behind the newest: the next mount would doubt it (R26).
    fn outgrow_lost_records(&mut self) -> Result {
        for _ in 0..ROOT_SLOTS {
            let found = roots(&mut self.disk, &self.superblock)?;
            if lost_record(&mut self.disk, self.layout, &found)?.is_none() {
                break;
            }
            self.root_commit(false)?;
        }
        Ok(())
    }

    fn fix(&mut self, fix: Fix) -> Result {
        match fix {
            Fix::Batch(batch) => self.change(batch),
            Fix::Live(zone, live_bytes) => self.zones.change(zone, |entry| {
                entry.live_bytes = live_bytes;
                let is_free = matches!(entry.stage, ZoneStage::Free | ZoneStage::Dying);
                if is_free && live_bytes > 0 {
                    entry.stage = ZoneStage::Sealed;
                }
            }),
            Fix::Superblock(at) => {
                let block = self.superblock.encode();
                self.layout.write(&mut self.disk, at, &block)?;
                // Nothing else comes into its zone.
                self.layout.close(&mut self.disk, Block(0))
            }
            Fix::Written(zone, end) => self.zone_is_written(zone, end),
            Fix::Hole(ino, from, to) => {
                let mut at = from;
                while at < to {
                    let bytes = (to - at).min(HOLE_BYTES);
                    let hole = Extent::hole(u32::try_from(bytes).unwrap_or(u32::MAX));
                    let key = Key::extent(ino, at / BLOCK as u64);
                    self.change(vec![Change::Put(key, hole.encode())])?;
                    at += bytes;
                }
                Ok(())
            }
            Fix::Adopt(ino) => match self.adopted(ino)? {
                Some(inode) => self.change(vec![Change::Put(Key::inode(ino), inode.encode())]),
                None => self.remove_keys(ino),
            },
            Fix::Name(ino) => self.name_lost(ino),
            Fix::Inodes(inodes) => {
                self.inodes = inodes;
                Ok(())
            }
            Fix::Copy(pointer, distance, key) => {
                let other = self.catalog.nodes.mirror_blocks() - distance;
                self.catalog.nodes.copy(&mut self.disk, pointer, other)?;
                if self.layout.in_order.is_some() {
                    self.catalog.touch(key);
                    return Ok(());
                }
                let mut bytes = vec![0; NODE_BYTES];
                self.disk.read(pointer.at + other, &mut bytes)?;
                self.disk.write_random(pointer.at + distance, &bytes)
            }
            Fix::Nodes(nodes) => {
                self.catalog.nodes.set_used(&nodes);
                Ok(())
            }
        }
    }

    /// An inode for what belongs to a number that has none: a file if data do, a directory if names do, a link if a target
    /// does. It is root's and nobody else's.
    pub(crate) fn adopted(&mut self, ino: Ino) -> Result<Option<Inode>> {
        let mut has = |kind| -> Result<bool> {
            let (first, behind) = (Key::first(ino, kind), Key::behind(ino, kind));
            let cells = self.catalog.scan(&mut self.disk, &first, &behind, 1)?;
            Ok(!cells.is_empty())
        };
        let file_type = if ino == ROOT_INO || has(Kind::Name)? {
            FileType::Directory
        } else if has(Kind::Extent)? {
            FileType::Regular
        } else if has(Kind::Link)? {
            FileType::Symlink
        } else {
            return Ok(None);
        };
        let owner = Owner {
            permissions: if ino == ROOT_INO { 0o755 } else { 0o600 },
            ..Owner::default()
        };
        let mut inode = new_inode(file_type, owner, self.now_ns);
        match file_type {
            FileType::Directory => {
                inode.permissions |= 0o100;
                (inode.nlink, inode.parent) = (2, ROOT_INO);
                let last = self.last_of(ino, Kind::Order)?;
                inode.next_dirent = last.and_then(|key| key.number()).unwrap_or(0);
            }
            FileType::Symlink => {
                let target = self.get(&Key::link(ino))?.unwrap_or_default();
                (inode.permissions, inode.size) = (0o777, target.len() as u64);
            }
            _ => {
                let first = self.extents(ino, 0, 1)?;
                let start = first
                    .first()
                    .map_or(0, |(logical, _)| logical * BLOCK as u64);
                (inode.head, inode.written, inode.size) = (start, start, start);
            }
        }
        Ok(Some(inode))
    }

    fn last_of(&mut self, ino: Ino, kind: Kind) -> Result<Option<Key>> {
        let (low, high) = (Key::first(ino, kind), Key::behind(ino, kind));
        let last = self.catalog.floor(&mut self.disk, &low, &high)?;
        Ok(last
            .map(|cell| cell.key)
            .filter(|key| key.kind() == Some(kind as u8)))
    }

    /// Nothing more is written to the zone, unless the log goes on in it.
    fn zone_is_written(&mut self, zone: ZoneId, end: u32) -> Result {
        let is_log = zone == self.log.at.zone;
        let end = if is_log {
            end.max(self.log.at.block)
        } else {
            end
        };
        if is_log {
            self.log.at.block = end;
        } else {
            self.zones.left.retain(|left| *left != zone);
        }
        self.zones.change(zone, |entry| {
            entry.write_blocks = entry.write_blocks.max(end);
            if entry.stage == ZoneStage::Open && !is_log {
                entry.stage = ZoneStage::Sealed;
            }
        })?;
        let entry = *self.zones.get(zone)?;
        self.set_known_pointer(zone, &entry)
    }

    fn remove_keys(&mut self, ino: Ino) -> Result {
        let (first, behind) = (Key::inode(ino), Key::behind_all(ino));
        loop {
            let cells = self
                .catalog
                .scan(&mut self.disk, &first, &behind, REMOVE_MAX)?;
            if cells.is_empty() {
                return self.change(vec![Change::Delete(Key::orphan(ino))]);
            }
            let keys = cells.into_iter().map(|cell| Change::Delete(cell.key));
            self.change(keys.collect())?;
        }
    }

    fn name_lost(&mut self, ino: Ino) -> Result {
        let owner = Owner {
            permissions: 0o700,
            ..Owner::default()
        };
        let name = format!("inode{}", ino.0);
        // Somebody may have made something else of that name.
        for number in 0..PLACES_MAX {
            let mut place = FOUND.to_vec();
            if number > 0 {
                place.extend(format!(".{number}").bytes());
            }
            let found = match self.lookup(ROOT_INO, &place) {
                Ok(found) => found,
                Err(_) => self.create(ROOT_INO, &place, FileType::Directory, owner, 0)?,
            };
            if found == ino {
                return Ok(());
            }
            match self.give_name(ino, found, name.as_bytes()) {
                Err(Error::NotDirectory | Error::Exists | Error::NotFound) => {}
                other => return other,
            }
        }
        Err(Error::Exists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{made, made_in_order};
    use crate::Options;
    use zoned::RamDevice;

    type Fs = FileSystem<RamDevice>;

    fn mounted(device: RamDevice) -> Fs {
        let options = Options {
            repair: true,
            ..Options::default()
        };
        FileSystem::mount(device, options, 5).unwrap()
    }

    /// A directory with three files of two blocks and some bytes each.
    fn filled(device: RamDevice) -> (Fs, Ino, Vec<Ino>) {
        let mut fs = mounted(device);
        let owner = Owner::default();
        let directory = fs.create(ROOT_INO, b"directory", FileType::Directory, owner, 0);
        let directory = directory.unwrap();
        let mut files = Vec::new();
        for number in 0..3u8 {
            let name = format!("file{number}");
            let file = fs.create(directory, name.as_bytes(), FileType::Regular, owner, 0);
            let file = file.unwrap();
            for part in 0..3 {
                fs.write(file, part * 3000, &[number; 3000]).unwrap();
                fs.fsync(file).unwrap();
            }
            files.push(file);
        }
        fs.root_commit(false).unwrap();
        (fs, directory, files)
    }

    /// Damages, repairs, and looks again after another mount.
    fn repaired(damage: impl FnOnce(&mut Fs, Ino, &[Ino])) -> (Fs, Ino, Vec<Ino>) {
        repaired_on(made(), damage)
    }

    fn repaired_on(
        device: RamDevice,
        damage: impl FnOnce(&mut Fs, Ino, &[Ino]),
    ) -> (Fs, Ino, Vec<Ino>) {
        let (mut fs, directory, files) = filled(device);
        damage(&mut fs, directory, &files);
        let (found, left) = fs.repair(true, |_| ()).unwrap();
        assert_ne!(found.problems, Vec::<String>::new(), "the damage shows");
        assert_eq!(left.problems, Vec::<String>::new());
        let mut fs = mounted(fs.unmount().unwrap());
        assert_eq!(
            fs.check(true, |_| ()).unwrap().problems,
            Vec::<String>::new()
        );
        (fs, directory, files)
    }

    fn delete(key: Key) -> Vec<Change> {
        vec![Change::Delete(key)]
    }

    #[test]
    fn a_sound_file_system_is_left_alone() {
        let (mut fs, _, _) = filled(made());
        let (found, left) = fs.repair(true, |_| ()).unwrap();
        assert_eq!((found.problems.len(), left.problems.len()), (0, 0));
        assert_eq!(fs.lookup(ROOT_INO, FOUND), Err(crate::Error::NotFound));
    }

    #[test]
    fn a_zone_s_account_is_counted_anew() {
        repaired(|fs, _, _| fs.zones.live(fs.log.at.zone, 4096).unwrap());
        repaired(|fs, _, _| fs.zones.live(fs.log.at.zone, -100).unwrap());
    }

    /// Data that are there, with their checksums, are not given up for an account that says they cannot be.
    #[test]
    fn a_zone_that_is_written_further_than_its_account_says_keeps_its_data() {
        let (mut fs, _, files) = repaired(|fs, _, _| {
            let zone = fs.log.at.zone;
            fs.zones
                .change(zone, |entry| entry.write_blocks = 2)
                .unwrap();
        });
        for (number, file) in (0..).zip(files) {
            assert_eq!(fs.read(file, 0, 10_000).unwrap(), [number; 9000]);
        }
    }

    /// The same of a sealed zone, of which a root record says so: with data that fit their checksums, and with others. The
    /// account is found by a mount, as fsck(8) finds it.
    #[test]
    fn a_root_record_that_calls_a_zone_shorter_than_it_is_costs_only_what_is_bad() {
        for bad in [false, true] {
            let (mut fs, _, files) = filled(made());
            let zone = fs.log.at.zone;
            fs.move_log().unwrap();
            let extents = fs.extents(files[2], 0, 10).unwrap();
            assert!(extents.iter().all(|(_, extent)| extent.zone == zone));
            let short = |entry: &mut ZoneEntry| entry.write_blocks = 2;
            fs.zones.change(zone, short).unwrap();
            fs.root_commit(false).unwrap();
            if bad {
                let blocks = fs.disk.write_pointer(zone).unwrap();
                let mut bytes = fs.disk.read_zone(zone, 0, blocks).unwrap();
                bytes[extents[1].1.offset as usize] ^= 1;
                fs.disk.reset(zone).unwrap();
                fs.disk.append(zone, 0, &bytes).unwrap();
            }
            let device = fs.device().clone();
            let mut fs = mounted(device);
            let (found, left) = fs.repair(true, |_| ()).unwrap();
            assert_ne!(found.problems, Vec::<String>::new(), "the damage shows");
            assert_eq!(left.problems, Vec::<String>::new());
            let mut fs = mounted(fs.unmount().unwrap());
            assert_eq!(
                fs.check(true, |_| ()).unwrap().problems,
                Vec::<String>::new()
            );
            for (number, file) in (0..).zip(&files[..2]) {
                assert_eq!(fs.read(*file, 0, 10_000).unwrap(), [number; 9000]);
            }
            let last = fs.read(files[2], 0, 10_000).unwrap();
            assert_eq!(last == [2; 9000], !bad, "{} bytes", last.len());
        }
    }

    #[test]
    fn what_has_lost_its_name_is_found() {
        let (mut fs, _, files) = repaired(|fs, directory, _| {
            fs.change(delete(Key::name(directory, b"file1"))).unwrap();
        });
        let found = fs.lookup(ROOT_INO, FOUND).unwrap();
        let name = format!("inode{}", files[1].0);
        assert_eq!(fs.lookup(found, name.as_bytes()), Ok(files[1]));
        assert_eq!(fs.read(files[1], 0, 10_000).unwrap(), [1; 9000]);
    }

    #[test]
    fn a_directory_that_has_lost_its_name_is_found_with_what_is_in_it() {
        let (mut fs, directory, files) = repaired(|fs, _, _| {
            fs.change(delete(Key::name(ROOT_INO, b"directory")))
                .unwrap();
        });
        let found = fs.lookup(ROOT_INO, FOUND).unwrap();
        let name = format!("inode{}", directory.0);
        assert_eq!(fs.lookup(found, name.as_bytes()), Ok(directory));
        assert_eq!(fs.lookup(directory, b"file2"), Ok(files[2]));
    }

    #[test]
    fn a_name_for_nothing_goes_and_so_does_what_belongs_to_nobody() {
        let (mut fs, directory, _) = repaired(|fs, _, files| {
            let extents = fs.extents(files[0], 0, 10).unwrap().into_iter();
            let extents =
                extents.map(|(logical, _)| Change::Delete(Key::extent(files[0], logical)));
            let inode = [Change::Delete(Key::inode(files[0]))];
            let left = Change::Put(Key::xattr(files[0], b"user.a"), vec![1]);
            fs.change(extents.chain(inode).chain([left]).collect())
                .unwrap();
        });
        assert_eq!(fs.entries(directory, 0, 10).unwrap().len(), 2);
        assert_eq!(fs.space().inodes, 4);
    }

    #[test]
    fn data_whose_inode_is_lost_keep_their_name_and_are_root_s() {
        let (mut fs, directory, files) = repaired(|fs, _, files| {
            fs.change(delete(Key::inode(files[0]))).unwrap();
        });
        assert_eq!(fs.lookup(directory, b"file0"), Ok(files[0]));
        assert_eq!(fs.read(files[0], 0, 10_000).unwrap(), [0; 9000]);
        let inode = fs.attributes(files[0]).unwrap();
        assert_eq!((inode.uid, inode.permissions, inode.nlink), (0, 0o600, 1));
    }

    #[test]
    fn a_directory_whose_inode_is_lost_keeps_its_names() {
        let (mut fs, directory, files) = repaired(|fs, directory, _| {
            fs.change(delete(Key::inode(directory))).unwrap();
        });
        assert_eq!(fs.lookup(ROOT_INO, b"directory"), Ok(directory));
        assert_eq!(fs.lookup(directory, b"file2"), Ok(files[2]));
        let file = fs.create(directory, b"new", FileType::Regular, Owner::default(), 0);
        assert!(file.is_ok_and(|file| !files.contains(&file)));
        assert_eq!(fs.entries(directory, 0, 10).unwrap().len(), 4);
    }

    /// `..` leads to the directory that has the name, also where all counts are right.
    #[test]
    fn directories_that_say_each_other_s_parent_get_their_own() {
        let (mut fs, directory, _) = repaired(|fs, directory, _| {
            let mut make = |parent, name| {
                let owner = Owner::default();
                fs.create(parent, name, FileType::Directory, owner, 0)
            };
            let other = make(ROOT_INO, b"other").unwrap();
            let inner = make(other, b"inner").unwrap();
            let (mut first, mut second) = (fs.inode(directory).unwrap(), fs.inode(inner).unwrap());
            std::mem::swap(&mut first.parent, &mut second.parent);
            let puts = [(directory, first), (inner, second)]
                .map(|(ino, inode)| Change::Put(Key::inode(ino), inode.encode()));
            fs.change(puts.into()).unwrap();
        });
        let other = fs.lookup(ROOT_INO, b"other").unwrap();
        let inner = fs.lookup(other, b"inner").unwrap();
        let mut parent = |ino| fs.inode(ino).unwrap().parent;
        assert_eq!((parent(directory), parent(inner)), (ROOT_INO, other));
    }

    #[test]
    fn an_extent_that_is_missing_is_a_hole() {
        let (mut fs, _, files) = repaired(|fs, _, files| {
            fs.change(delete(Key::extent(files[2], 0))).unwrap();
        });
        let read = fs.read(files[2], 0, 10_000).unwrap();
        assert_eq!(read.len(), 9000);
        assert_eq!(read[8999], 2);
    }

    #[test]
    fn counts_and_keys_that_make_no_sense_are_put_right() {
        repaired(|fs, directory, files| {
            let mut inode = fs.inode(files[0]).unwrap();
            (inode.nlink, inode.stored) = (7, 1);
            let mut parent = fs.inode(directory).unwrap();
            parent.children = 50;
            fs.inodes += 3;
            let unknown = Key([files[1].0.to_be_bytes().as_slice(), &[77]].concat().into());
            fs.change(vec![
                Change::Put(Key::inode(files[0]), inode.encode()),
                Change::Put(Key::inode(directory), parent.encode()),
                Change::Put(unknown, vec![1]),
                Change::Put(Key::order(directory, 99), vec![1]),
            ])
            .unwrap();
        });
    }

    #[test]
    fn a_bad_superblock_is_written_anew() {
        for is_mirror in [false, true] {
            let (fs, _, _) = repaired(|fs, _, _| {
                let at = if is_mirror {
                    fs.superblock.mirror_blocks
                } else {
                    0
                };
                fs.disk.write_random(Block(at), &[9; BLOCK]).unwrap();
            });
            assert!(fs.refusal().is_none());
            repaired_on(made_in_order(), |fs, _, _| {
                let at = if is_mirror {
                    fs.superblock.mirror_blocks
                } else {
                    0
                };
                let (zone, _) = fs.disk.zone_at(Block(at));
                fs.disk.reset(zone).unwrap();
                fs.disk.append(zone, 0, &[9; BLOCK]).unwrap();
            });
        }
    }

    #[test]
    fn a_node_s_bad_copy_is_written_anew() {
        for distance in [0, 1] {
            repaired(|fs, _, _| {
                let pointer = fs.catalog.root().unwrap();
                let at = pointer.at + distance * fs.catalog.nodes.mirror_blocks();
                fs.disk.write_random(at, &[9; NODE_BYTES]).unwrap();
            });
        }
    }

    /// Where it cannot be, the node is elsewhere with the next root record.
    #[test]
    fn a_node_s_bad_copy_in_a_zone_that_is_written_in_order_is_left() {
        for distance in [0, 1] {
            repaired_on(made_in_order(), |fs, _, _| {
                let pointer = fs.catalog.root().unwrap();
                let at = pointer.at + distance * fs.catalog.nodes.mirror_blocks();
                let (zone, blocks) = fs.disk.zone_at(at);
                // A zone's beginning is written again, with a bad byte in this node.
                let mut bytes = fs.disk.read_zone(zone, 0, blocks + 4).unwrap();
                bytes[blocks as usize * BLOCK + 100] ^= 1;
                fs.disk.reset(zone).unwrap();
                fs.disk.append(zone, 0, &bytes).unwrap();
            });
        }
    }
}
