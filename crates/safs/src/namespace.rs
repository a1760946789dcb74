// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names: one batch for each operation, so that a crash finds it done or not begun.

use crate::attributes::{check_name, SET_GROUP};
use crate::budget::Claim;
use crate::error::{At, Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::ZonedDevice;

/// Keys that one batch removes at most when an inode is deleted.
const REMOVE_MAX: usize = 256;

/// Whose a new inode is, and what others may do with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What a rename does with a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// The two change places.
    Exchange,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// What a name leads to.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Ino> {
        Ok(self.entry(parent, name)?.ino)
    }

    fn entry(&mut self, parent: Ino, name: &[u8]) -> Result<Dirent> {
        self.find(parent, name)?.ok_or(Error::NotFound)
    }

    fn find(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        check_name(name)?;
        let key = Key::name(parent, name);
        let value = self.get(&key)?;
        let entry = value.map(|value| Dirent::decode_name(&key, &value));
        entry.transpose().at(|| format!("directory {}", parent.0))
    }

    /// Entries of a directory whose ids are greater than `after`, in order of creation.
    pub fn entries(&mut self, parent: Ino, after: u64, limit: usize) -> Result<Vec<Dirent>> {
        self.directory(parent)?;
        let from = Key::order(parent, after.saturating_add(1));
        let behind = Key::behind(parent, Kind::Order);
        let cells = self.catalog.scan(&mut self.disk, &from, &behind, limit)?;
        let entries = cells
            .iter()
            .map(|cell| Dirent::decode_order(&cell.key, &cell.value));
        let entries: std::result::Result<_, _> = entries.collect();
        entries.at(|| format!("directory {}", parent.0))
    }

    /// Makes an inode with a name. `rdev` is a device's number.
    pub fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        file_type: FileType,
        owner: Owner,
        rdev: u32,
    ) -> Result<Ino> {
        let (batch, ino, _) = self.creation(parent, name, file_type, owner, rdev)?;
        self.change(batch)?;
        Ok(ino)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &mut self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        owner: Owner,
    ) -> Result<Ino> {
        if target.is_empty() || target.len() >= VALUE_MAX {
            return Err(Error::NameTooLong);
        }
        let (mut batch, ino, mut inode) =
            self.creation(parent, name, FileType::Symlink, owner, 0)?;
        batch.push(Change::Put(Key::link(ino), target.to_vec()));
        (inode.size, inode.written) = (target.len() as u64, 0);
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        self.change(batch)?;
        Ok(ino)
    }

    fn creation(
        &mut self,
        parent: Ino,
        name: &[u8],
        file_type: FileType,
        owner: Owner,
        rdev: u32,
    ) -> Result<(Vec<Change>, Ino, Inode)> {
        self.afford(Claim::Change)?;
        let mut directory = self.live_directory(parent)?;
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        // Numbers are never used again. Only a damaged batch of the log brings them to an end; behind it, 1 is the root.
        if self.next_ino >= crate::format::COUNT_MAX {
            return Err(Error::NoSpace);
        }
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.inodes += 1;
        let mut inode = new_inode(file_type, owner, self.now_ns);
        inode.rdev = rdev;
        // A directory with this bit hands its group down, and the bit to directories.
        if directory.permissions & SET_GROUP != 0 {
            inode.gid = directory.gid;
            if file_type == FileType::Directory {
                inode.permissions |= SET_GROUP;
            }
        }
        if file_type == FileType::Directory {
            inode.parent = parent;
            inode.nlink = 2;
            directory.nlink += 1;
        }
        let mut batch = Vec::with_capacity(4);
        self.add_entry(&mut batch, parent, &mut directory, name, ino, file_type);
        batch.push(Change::Put(Key::inode(parent), directory.encode()));
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        Ok((batch, ino, inode))
    }

    /// A directory that still has a name.
    fn live_directory(&mut self, ino: Ino) -> Result<Inode> {
        let directory = self.directory(ino)?;
        match directory.nlink {
            0 => Err(Error::NotFound),
            _ => Ok(directory),
        }
    }

    /// Adds an entry; the caller writes the directory's inode.
    fn add_entry(
        &self,
        batch: &mut Vec<Change>,
        parent: Ino,
        directory: &mut Inode,
        name: &[u8],
        ino: Ino,
        file_type: FileType,
    ) {
        directory.next_dirent += 1;
        directory.children += 1;
        (directory.mtime_ns, directory.ctime_ns) = (self.now_ns, self.now_ns);
        let entry = Dirent {
            ino,
            id: directory.next_dirent,
            file_type,
            name: name.to_vec(),
        };
        batch.push(Change::Put(Key::name(parent, name), entry.encode_name()));
        batch.push(Change::Put(
            Key::order(parent, entry.id),
            entry.encode_order(),
        ));
    }

    /// Removes an entry; the caller writes the directory's inode.
    fn remove_entry(
        &self,
        batch: &mut Vec<Change>,
        parent: Ino,
        directory: &mut Inode,
        entry: &Dirent,
    ) {
        directory.children = directory.children.saturating_sub(1);
        (directory.mtime_ns, directory.ctime_ns) = (self.now_ns, self.now_ns);
        batch.push(Change::Delete(Key::name(parent, &entry.name)));
        batch.push(Change::Delete(Key::order(parent, entry.id)));
    }

    /// Where a symbolic link leads.
    pub fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>> {
        if self.inode(ino)?.file_type != FileType::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let target = self.get(&Key::link(ino))?;
        target.ok_or_else(|| Error::corrupt(format!("inode {}", ino.0), "its target is missing"))
    }

    /// Gives an inode one more name.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result {
        self.afford(Claim::Change)?;
        let mut inode = self.inode(ino)?;
        let mut directory = self.live_directory(parent)?;
        if inode.file_type == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        if inode.nlink == 0 {
            return Err(Error::NotFound);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        inode.nlink = inode.nlink.checked_add(1).ok_or(Error::TooBig)?;
        inode.ctime_ns = self.now_ns;
        let mut batch = Vec::with_capacity(4);
        self.add_entry(
            &mut batch,
            parent,
            &mut directory,
            name,
            ino,
            inode.file_type,
        );
        batch.push(Change::Put(Key::inode(parent), directory.encode()));
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        self.change(batch)
    }

    /// Gives a name to an inode that has none.
    pub(crate) fn give_name(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result {
        let mut inode = self.inode(ino)?;
        let mut directory = self.directory(parent)?;
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let mut batch = Vec::with_capacity(4);
        let file_type = inode.file_type;
        self.add_entry(&mut batch, parent, &mut directory, name, ino, file_type);
        if file_type == FileType::Directory {
            (inode.parent, inode.nlink) = (parent, inode.nlink.max(2));
            directory.nlink += 1;
        } else {
            inode.nlink = 1;
        }
        batch.push(Change::Put(Key::inode(parent), directory.encode()));
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        self.change(batch)
    }

    /// Removes a name of something that is no directory.
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result {
        self.afford(Claim::Deletion)?;
        let mut directory = self.directory(parent)?;
        let entry = self.entry(parent, name)?;
        if entry.file_type == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        let mut batch = Vec::with_capacity(5);
        self.remove_entry(&mut batch, parent, &mut directory, &entry);
        batch.push(Change::Put(Key::inode(parent), directory.encode()));
        let is_last = self.drop_link(&mut batch, entry.ino)?;
        self.change(batch)?;
        self.finish_removal(entry.ino, is_last)
    }

    /// One name less. Says whether it was the last.
    fn drop_link(&mut self, batch: &mut Vec<Change>, ino: Ino) -> Result<bool> {
        let mut inode = self.inode(ino)?;
        inode.nlink = if inode.file_type == FileType::Directory {
            0
        } else {
            inode.nlink.saturating_sub(1)
        };
        inode.ctime_ns = self.now_ns;
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        if inode.nlink == 0 {
            batch.push(Change::Put(Key::orphan(ino), Vec::new()));
        }
        Ok(inode.nlink == 0)
    }

    /// Deletes what has no name any more, unless it is in use.
    fn finish_removal(&mut self, ino: Ino, is_last: bool) -> Result {
        let is_used = self.staged.is_open(ino);
        if is_last && !is_used {
            self.delete_inode(ino)?;
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, parent: Ino, name: &[u8]) -> Result {
        self.afford(Claim::Deletion)?;
        let mut directory = self.directory(parent)?;
        let entry = self.entry(parent, name)?;
        if self.directory(entry.ino)?.children > 0 {
            return Err(Error::NotEmpty);
        }
        let mut batch = Vec::with_capacity(5);
        self.remove_entry(&mut batch, parent, &mut directory, &entry);
        directory.nlink = directory.nlink.saturating_sub(1);
        batch.push(Change::Put(Key::inode(parent), directory.encode()));
        let is_last = self.drop_link(&mut batch, entry.ino)?;
        self.change(batch)?;
        self.finish_removal(entry.ino, is_last)
    }

    /// Deletes an inode that has no name: its data, its attributes, itself. A crash in between leaves its mark (`orphan`).
    pub(crate) fn delete_inode(&mut self, ino: Ino) -> Result {
        self.discard_staging(ino)?;
        if self.inode(ino)?.file_type == FileType::Regular {
            self.remove_extents(ino)?;
        }
        let (first, behind) = (Key::inode(ino), Key::behind_all(ino));
        loop {
            let cells = self
                .catalog
                .scan(&mut self.disk, &first, &behind, REMOVE_MAX)?;
            let is_rest = cells.len() < REMOVE_MAX;
            let keys = cells.into_iter().map(|cell| cell.key);
            let mut batch: Vec<Change> = keys
                .filter(|key| is_rest || *key != first)
                .map(Change::Delete)
                .collect();
            if is_rest {
                batch.push(Change::Delete(Key::orphan(ino)));
                batch.extend(self.end_retention(ino));
                if self.unverified.remove(&ino) {
                    batch.push(Change::Delete(Key::unverified(ino)));
                }
                self.inodes = self.inodes.saturating_sub(1);
                self.staged.files.remove(&ino);
            }
            self.change(batch)?;
            if is_rest {
                return Ok(());
            }
            self.afford(Claim::Deletion)?;
        }
    }

    /// Moves a name, replacing what has the new one.
    pub fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result {
        self.afford(Claim::Change)?;
        let mut source = self.directory(from)?;
        let entry = self.entry(from, name)?;
        self.live_directory(to)?;
        let other = self.find(to, new_name)?;
        match (&other, mode) {
            (None, RenameMode::Exchange) => return Err(Error::NotFound),
            (Some(_), RenameMode::NoReplace) => return Err(Error::Exists),
            (Some(other), _) if other.ino == entry.ino => return Ok(()),
            _ => {}
        }
        self.check_cycle(&entry, to)?;
        if let (Some(other), RenameMode::Exchange) = (&other, mode) {
            self.check_cycle(other, from)?;
        }
        let mut batch = Vec::with_capacity(10);
        let mut target = if from == to {
            source.clone()
        } else {
            self.directory(to)?
        };
        // With one directory, its inode is `target`, and `source` is not written.
        let in_source =
            |source: &mut Inode, target: &mut Inode, act: &mut dyn FnMut(&mut Inode)| {
                act(if from == to { target } else { source });
            };
        in_source(&mut source, &mut target, &mut |directory| {
            self.remove_entry(&mut batch, from, directory, &entry)
        });
        let mut removed = None;
        if let Some(other) = &other {
            self.remove_entry(&mut batch, to, &mut target, other);
            if other.file_type == FileType::Directory {
                target.nlink = target.nlink.saturating_sub(1);
            }
            if mode == RenameMode::Exchange {
                in_source(&mut source, &mut target, &mut |directory| {
                    self.add_entry(
                        &mut batch,
                        from,
                        directory,
                        name,
                        other.ino,
                        other.file_type,
                    );
                    directory.nlink += u32::from(other.file_type == FileType::Directory);
                });
                self.move_inode(&mut batch, other, from)?;
            } else {
                self.check_replaced(&entry, other)?;
                removed = Some((other.ino, self.drop_link(&mut batch, other.ino)?));
            }
        }
        if entry.file_type == FileType::Directory {
            in_source(&mut source, &mut target, &mut |directory| {
                directory.nlink = directory.nlink.saturating_sub(1);
            });
            target.nlink += 1;
        }
        self.add_entry(
            &mut batch,
            to,
            &mut target,
            new_name,
            entry.ino,
            entry.file_type,
        );
        self.move_inode(&mut batch, &entry, to)?;
        if from != to {
            batch.push(Change::Put(Key::inode(from), source.encode()));
        }
        batch.push(Change::Put(Key::inode(to), target.encode()));
        self.change(batch)?;
        match removed {
            Some((ino, is_last)) => self.finish_removal(ino, is_last),
            None => Ok(()),
        }
    }

    /// Something may replace only its own kind, and no directory with entries.
    fn check_replaced(&mut self, entry: &Dirent, other: &Dirent) -> Result {
        let is_directory = |entry: &Dirent| entry.file_type == FileType::Directory;
        match (is_directory(entry), is_directory(other)) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if self.directory(other.ino)?.children > 0 => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// A directory cannot become its own descendant.
    fn check_cycle(&mut self, entry: &Dirent, mut to: Ino) -> Result {
        if entry.file_type != FileType::Directory {
            return Ok(());
        }
        // Damage could make a circle: no path is longer than there are inodes.
        for _ in 0..=self.inodes {
            if to == entry.ino {
                return Err(Error::Invalid("a directory cannot be moved into itself"));
            }
            if to == ROOT_INO {
                return Ok(());
            }
            to = self.directory(to)?.parent;
        }
        Err(Error::corrupt(
            format!("directory {}", to.0),
            "its parents form a circle",
        ))
    }

    /// The inode of a moved name: its time, and a directory's parent.
    fn move_inode(&mut self, batch: &mut Vec<Change>, entry: &Dirent, to: Ino) -> Result {
        let mut inode = self.inode(entry.ino)?;
        inode.ctime_ns = self.now_ns;
        if inode.file_type == FileType::Directory {
            inode.parent = to;
        }
        batch.push(Change::Put(Key::inode(entry.ino), inode.encode()));
        Ok(())
    }
}

/// An inode that nothing was done with.
pub(crate) fn new_inode(file_type: FileType, owner: Owner, now_ns: i64) -> Inode {
    Inode {
        file_type,
        permissions: owner.permissions & 0o7777,
        uid: owner.uid,
        gid: owner.gid,
        nlink: 1,
        written: 0,
        size: 0,
        head: 0,
        stored: 0,
        atime_ns: now_ns,
        mtime_ns: now_ns,
        ctime_ns: now_ns,
        btime_ns: now_ns,
        parent: Ino(0),
        children: 0,
        flags: 0,
        rdev: 0,
        next_dirent: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made;
    use crate::Options;

    /// A damaged batch may name an inode of any number: behind the last one comes the root's.
    #[test]
    fn numbers_of_inodes_do_not_begin_again() {
        let mut fs = FileSystem::mount(made(), Options::default(), 1).unwrap();
        let create = |fs: &mut FileSystem<_>, name: &[u8]| {
            fs.create(ROOT_INO, name, FileType::Regular, Owner::default(), 0)
        };
        fs.next_ino = crate::format::COUNT_MAX - 1;
        create(&mut fs, b"last").unwrap();
        assert!(matches!(create(&mut fs, b"more"), Err(Error::NoSpace)));
        fs.sync().unwrap();
        fs.root_commit(false).unwrap();
        // From its root record, and from a batch behind it, the same is known.
        let mut fs = FileSystem::mount(fs.device().clone(), Options::default(), 2).unwrap();
        assert!(matches!(create(&mut fs, b"more"), Err(Error::NoSpace)));
        assert!(fs.lookup(ROOT_INO, b"last").is_ok());
    }

    #[test]
    fn a_directory_with_the_set_group_bit_hands_its_group_down() {
        let device = made();
        let mut fs = FileSystem::mount(device, Options::default(), 1).unwrap();
        let owner = |permissions, gid| Owner {
            permissions,
            uid: 5,
            gid,
        };
        let shared = fs.create(
            ROOT_INO,
            b"shared",
            FileType::Directory,
            owner(0o2775, 50),
            0,
        );
        let shared = shared.unwrap();
        let below = fs.create(shared, b"below", FileType::Directory, owner(0o755, 60), 0);
        let file = fs.create(shared, b"file", FileType::Regular, owner(0o644, 60), 0);
        let link = fs.symlink(shared, b"link", b"file", owner(0o777, 60));
        let plain = fs.create(ROOT_INO, b"plain", FileType::Regular, owner(0o644, 60), 0);
        let mut of = |ino: Result<Ino>| {
            let inode = fs.attributes(ino.unwrap()).unwrap();
            (inode.gid, inode.permissions)
        };
        assert_eq!(of(below), (50, 0o2755));
        assert_eq!(of(file), (50, 0o644));
        assert_eq!(of(link), (50, 0o777));
        assert_eq!(of(plain), (60, 0o644));
    }
}
