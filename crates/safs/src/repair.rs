// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repairing what the check finds. What contradicts itself is brought to what the more basic record says: a zone's account
//! to the extents, a directory's to its names, an inode's to what belongs to it. What cannot be read goes; what has no name
//! any more gets one in `lost+found`. Bad copies are written anew from the good ones;
//! where nothing can be written again, the next root record has the node elsewhere.

use crate::check::Report;
use crate::error::Result;
use crate::format::*;
use crate::fs::FileSystem;
use crate::namespace::Owner;
use zoned::{Block, ZoneId, ZonedDevice};

/// A repair can uncover what is behind it; more rounds than this do not end.
const ROUNDS_MAX: usize = 8;
/// Keys removed at a time.
const REMOVE_MAX: usize = 256;
/// The directory in the root for what has lost its name.
const FOUND: &[u8] = b"lost+found";

/// What repairs one thing.
#[derive(Clone, Debug)]
pub(crate) enum Fix {
    /// Keys are wrong.
    Batch(Vec<Change>),
    /// So much lives in a zone.
    Live(ZoneId, u32),
    /// A file has no extent between two places.
    Hole(Ino, u64, u64),
    /// Everything that belongs to an inode that is not there.
    Remove(Ino),
    /// An inode has no name.
    Name(Ino),
    /// So many inodes are there.
    Inodes(u64),
    /// A node's copy at this distance is bad; the key leads to the node.
    Copy(Pointer, u64, Key),
    /// These are the tree's nodes.
    Nodes(Vec<Block>),
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Repairs what a check finds; the answer is what was wrong, and what is still.
    pub fn repair(
        &mut self,
        data: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<(Report, Report)> {
        self.writable()?;
        let mut first = None;
        for _ in 0..ROUNDS_MAX {
            let (report, fixes) = self.check_all(data, &mut progress)?;
            let before = first.get_or_insert_with(|| report.clone());
            if fixes.is_empty() {
                return Ok((before.clone(), report));
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
        let (report, _) = self.check_all(data, &mut progress)?;
        Ok((first.unwrap_or_else(|| report.clone()), report))
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
            Fix::Remove(ino) => self.remove_keys(ino),
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
        let found = match self.lookup(ROOT_INO, FOUND) {
            Ok(found) => found,
            Err(_) => self.create(ROOT_INO, FOUND, FileType::Directory, owner, 0)?,
        };
        if found == ino {
            return Ok(());
        }
        let name = format!("inode{}", ino.0);
        self.give_name(ino, found, name.as_bytes())
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
            fs.change(delete(Key::inode(files[0]))).unwrap();
        });
        assert_eq!(fs.entries(directory, 0, 10).unwrap().len(), 2);
        assert_eq!(fs.space().inodes, 4);
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
            let unknown = Key([files[1].0.to_be_bytes().as_slice(), &[77]].concat());
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
