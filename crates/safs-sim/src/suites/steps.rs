// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations, done by the file system and by the model, with answers compared.

use super::model::{Content, File, Id, Model, Refused, OWNER};
use super::random::Grain;
use super::reach::Reach;
use super::sim::{Sim, Trouble};
use safs::format::{FileType, Ino};
use safs::{Error, FileSystem, Options, Owner, RenameMode, SetAttributes, XattrMode};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub const SECOND_NS: i64 = 1_000_000_000;
/// A full disk is one of which so many hundredths are in use.
const FULL_PERCENT: u64 = 90;
/// Bytes of one request: what the kernel hands a FUSE server at a time.
const REQUEST_BYTES: u64 = 1 << 20;

/// A step.
#[derive(Clone, Debug)]
pub enum Step {
    Create(Id, Vec<u8>, Grain),
    MakeDirectory(Id, Vec<u8>),
    Symlink(Id, Vec<u8>, Vec<u8>),
    Fifo(Id, Vec<u8>),
    Link(Id, Id, Vec<u8>),
    Unlink(Id, Vec<u8>),
    RemoveDirectory(Id, Vec<u8>),
    Rename(Id, Vec<u8>, Id, Vec<u8>),
    /// Refused if the new name is taken.
    RenameNew(Id, Vec<u8>, Id, Vec<u8>),
    Exchange(Id, Vec<u8>, Id, Vec<u8>),
    /// File, offset, bytes.
    Write(Id, u64, u64),
    /// The same with O_SYNC.
    WriteSync(Id, u64, u64),
    Truncate(Id, u64),
    Xattr(Id, Vec<u8>, Vec<u8>),
    RemoveXattr(Id, Vec<u8>),
    Permissions(Id, u32),
    Owner(Id, u32, u32),
    Head(Id, u64),
    Read(Id, u64, usize),
    Open(Id),
    Release(Id),
    Fsync(Id),
    Sync,
    Compact,
    Root,
    /// What a server does once a second.
    Tick,
    /// The wall clock is set: so many seconds forward or back.
    Clock(i64),
    Remount,
}

impl Step {
    /// Steps that a full disk never refuses.
    fn always_works(&self) -> bool {
        match self {
            Step::Truncate(_, size) => *size == 0,
            Step::Unlink(..)
            | Step::RemoveDirectory(..)
            | Step::RemoveXattr(..)
            | Step::Head(..)
            | Step::Read(..)
            | Step::Open(_)
            | Step::Release(_)
            | Step::Fsync(_)
            | Step::Sync
            | Step::Root
            | Step::Tick
            | Step::Clock(_)
            | Step::Remount => true,
            _ => false,
        }
    }

    fn added_bytes(&self) -> u64 {
        match self {
            Step::Write(_, _, bytes) | Step::WriteSync(_, _, bytes) => *bytes,
            _ => 0,
        }
    }
}

/// A ring file or a ring directory that keeps so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub id: Id,
    pub kept: u64,
    pub is_directory: bool,
}

/// Both, side by side.
pub struct Pair {
    fs: Option<FileSystem<Sim>>,
    pub options: Options,
    pub model: Model,
    pub inos: BTreeMap<Id, Ino>,
    pub rings: Vec<Ring>,
    pub reach: Reach,
    /// Time that only goes forward, and how far the wall clock is from it.
    pub steady_ns: i64,
    pub wall_ns: i64,
    pub trouble: Option<Rc<RefCell<Trouble>>>,
    /// Of a write that a full disk ended, so many bytes were accepted before.
    short: u64,
    /// The device failed, or nothing is written any more: nothing else is done.
    pub is_over: bool,
    zone_bytes: u64,
}

impl Pair {
    pub fn new(device: Sim, options: Options, seed: u64) -> Self {
        let zone_bytes = u64::from(device.shape().capacity_blocks) * 4096;
        let fs = FileSystem::mount(device, options.clone(), 1).unwrap();
        Pair {
            fs: Some(fs),
            options,
            model: Model::new(seed),
            inos: BTreeMap::from([(1, Ino(1))]),
            rings: Vec::new(),
            reach: Reach::default(),
            steady_ns: 1_000,
            wall_ns: 0,
            trouble: None,
            is_over: false,
            short: 0,
            zone_bytes,
        }
    }

    pub fn fs(&mut self) -> &mut FileSystem<Sim> {
        self.fs.as_mut().expect("it is mounted")
    }

    pub fn now_ns(&self) -> i64 {
        self.steady_ns + self.wall_ns
    }

    fn ino(&self, id: Id) -> Ino {
        self.inos[&id]
    }

    /// Why the file system did not do it, in the model's words.
    fn answer(&mut self, error: &Error) -> Refused {
        match error {
            Error::NotFound => Refused::NotFound,
            Error::Exists => Refused::Exists,
            Error::NotDirectory => Refused::NotDirectory,
            Error::IsDirectory => Refused::IsDirectory,
            Error::NotEmpty => Refused::NotEmpty,
            Error::Invalid(_) => Refused::Invalid,
            Error::Overwrite { .. } => Refused::Overwrite,
            Error::NoAttribute => Refused::NoAttribute,
            Error::NoSpace => Refused::NoSpace,
            other => {
                let trouble = self.trouble.as_ref();
                let was_to_be = trouble.is_some_and(|trouble| trouble.borrow().has_failed);
                assert!(was_to_be, "no step may end with: {other}");
                Refused::Trouble
            }
        }
    }

    /// Does a step in both. Says whether both did it.
    pub fn step(&mut self, step: &Step) -> bool {
        self.reach.steps += 1;
        if let Step::Clock(seconds) = step {
            self.wall_ns += seconds * SECOND_NS;
            self.reach.clock_sets += 1;
        }
        let now_ns = self.now_ns();
        self.fs().set_time(now_ns);
        let counted = self.fs().counters().compacted;
        let before = self.model.clone();
        let expected = self.step_model(step);
        let found = self.step_fs(step);
        let found = found.map_err(|error| self.answer(&error));
        if self.fs.is_some() && !matches!(step, Step::Compact | Step::Remount) {
            self.reach.compactions += self.fs().counters().compacted - counted;
        }
        let is_done = match (&expected, &found) {
            (_, Err(Refused::Trouble)) => {
                self.is_over = true;
                return false;
            }
            (Ok(()), Err(Refused::NoSpace)) => {
                self.model = before;
                self.assert_full(step);
                self.reach.refusals += 1;
                if let (Step::Write(id, offset, _) | Step::WriteSync(id, offset, _), 1..) =
                    (step, self.short)
                {
                    self.model
                        .write(*id, *offset, self.short)
                        .expect("it was accepted");
                }
                false
            }
            // Whether a gap is still open is the file system's business.
            (Err(Refused::Overwrite), Ok(())) => {
                let (Step::Write(id, offset, bytes) | Step::WriteSync(id, offset, bytes)) = step
                else {
                    panic!("{step:?} was to be refused");
                };
                let filled = self.model.fill(*id, *offset, *bytes);
                assert!(filled, "byte {offset} of {id} is written");
                true
            }
            _ => {
                assert_eq!(expected, found, "{step:?}");
                found.is_ok()
            }
        };
        if !self.is_over {
            self.follow_rings();
        }
        is_done
    }

    /// Whether "no space left" was right: nearly all that `statfs` calls usable is in use, by data or by names.
    fn assert_full(&mut self, step: &Step) {
        assert!(!step.always_works(), "{step:?}: no space left");
        let space = self.fs().space();
        let held = self.model.bytes() + step.added_bytes();
        // Besides the data each file may need a block more, and the last zone cannot be had by halves.
        let slack = self.zone_bytes + 8192 * self.model.nodes.len() as u64;
        let is_full = (held + slack) * 100 >= space.blocks * 4096 * FULL_PERCENT;
        let inodes = space.inodes + space.inodes_free;
        let has_no_nodes = space.inodes_free * 100 <= inodes * (100 - FULL_PERCENT);
        assert!(
            is_full || has_no_nodes,
            "{step:?}: no space left, with {held} of {} bytes in use, {} inodes of {inodes}",
            space.blocks * 4096,
            space.inodes
        );
    }

    fn step_model(&mut self, step: &Step) -> Result<(), Refused> {
        let model = &mut self.model;
        match step {
            Step::Create(parent, name, grain) => {
                let content = Content::File(File::new(*grain));
                model.create(*parent, name, content, 0o644).map(drop)
            }
            Step::MakeDirectory(parent, name) => {
                let content = Content::Directory(BTreeMap::new());
                model.create(*parent, name, content, 0o755).map(drop)
            }
            Step::Symlink(parent, name, target) => {
                let content = Content::Link(target.clone());
                model.create(*parent, name, content, 0o777).map(drop)
            }
            Step::Fifo(parent, name) => model.create(*parent, name, Content::Fifo, 0o600).map(drop),
            Step::Link(id, parent, name) => model.link(*id, *parent, name),
            Step::Unlink(parent, name) => model.unlink(*parent, name),
            Step::RemoveDirectory(parent, name) => model.remove_directory(*parent, name),
            Step::Rename(from, name, to, new) => model.rename(*from, name, *to, new),
            Step::RenameNew(from, name, to, new) => {
                model.directory(*from)?.get(name).ok_or(Refused::NotFound)?;
                match model.directory(*to)?.contains_key(new) {
                    true => Err(Refused::Exists),
                    false => model.rename(*from, name, *to, new),
                }
            }
            Step::Exchange(from, name, to, other) => model.exchange(*from, name, *to, other),
            Step::Write(id, offset, bytes) | Step::WriteSync(id, offset, bytes) => {
                model.write(*id, *offset, *bytes)
            }
            Step::Truncate(id, size) => model.truncate(*id, *size),
            Step::Xattr(id, name, value) => {
                let node = model.nodes.get_mut(id).unwrap();
                node.xattrs.insert(name.clone(), value.clone());
                Ok(())
            }
            Step::RemoveXattr(id, name) => {
                let node = model.nodes.get_mut(id).unwrap();
                let removed = node.xattrs.remove(name);
                removed.map(drop).ok_or(Refused::NoAttribute)
            }
            Step::Permissions(id, bits) => {
                model.nodes.get_mut(id).unwrap().permissions = *bits;
                Ok(())
            }
            Step::Owner(id, uid, gid) => {
                model.nodes.get_mut(id).unwrap().owner = (*uid, *gid);
                Ok(())
            }
            Step::Open(id) => {
                model.nodes.get_mut(id).unwrap().handles += 1;
                Ok(())
            }
            Step::Release(id) => {
                model.release(*id);
                Ok(())
            }
            Step::Remount => {
                // Whoever had files open has closed them.
                let open: Vec<Id> = model.nodes.keys().copied().collect();
                for id in open {
                    while model.nodes.get(&id).is_some_and(|node| node.handles > 0) {
                        model.release(id);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn made(
        &mut self,
        parent: Id,
        name: &[u8],
        file_type: FileType,
        permissions: u32,
    ) -> safs::Result {
        let owner = Owner {
            permissions,
            uid: OWNER.0,
            gid: OWNER.1,
        };
        let above = self.ino(parent);
        let ino = self.fs().create(above, name, file_type, owner, 0)?;
        self.learn(parent, name, ino);
        Ok(())
    }

    fn learn(&mut self, parent: Id, name: &[u8], ino: Ino) {
        let id = self.model.directory(parent).unwrap()[name];
        self.inos.insert(id, ino);
    }

    fn step_fs(&mut self, step: &Step) -> safs::Result {
        match step {
            Step::Create(parent, name, _) => self.made(*parent, name, FileType::Regular, 0o644),
            Step::MakeDirectory(parent, name) => {
                self.made(*parent, name, FileType::Directory, 0o755)
            }
            Step::Fifo(parent, name) => self.made(*parent, name, FileType::Fifo, 0o600),
            Step::Symlink(parent, name, target) => {
                let owner = Owner {
                    permissions: 0o777,
                    uid: OWNER.0,
                    gid: OWNER.1,
                };
                let above = self.ino(*parent);
                let ino = self.fs().symlink(above, name, target, owner)?;
                self.learn(*parent, name, ino);
                Ok(())
            }
            Step::Link(id, parent, name) => {
                let (ino, above) = (self.ino(*id), self.ino(*parent));
                self.fs().link(ino, above, name)
            }
            Step::Unlink(parent, name) => {
                let above = self.ino(*parent);
                self.fs().unlink(above, name)
            }
            Step::RemoveDirectory(parent, name) => {
                let above = self.ino(*parent);
                self.fs().remove_directory(above, name)
            }
            Step::Rename(from, name, to, new) => {
                let (from, to) = (self.ino(*from), self.ino(*to));
                self.fs().rename(from, name, to, new, RenameMode::Replace)
            }
            Step::RenameNew(from, name, to, new) => {
                let (from, to) = (self.ino(*from), self.ino(*to));
                self.fs().rename(from, name, to, new, RenameMode::NoReplace)
            }
            Step::Exchange(from, name, to, other) => {
                let (from, to) = (self.ino(*from), self.ino(*to));
                self.fs()
                    .rename(from, name, to, other, RenameMode::Exchange)
            }
            Step::Write(id, offset, bytes) => self.write(*id, *offset, *bytes, false),
            Step::WriteSync(id, offset, bytes) => self.write(*id, *offset, *bytes, true),
            other => self.step_inode(other),
        }
    }

    fn step_inode(&mut self, step: &Step) -> safs::Result {
        match step {
            Step::Truncate(id, size) => {
                let ino = self.ino(*id);
                self.fs().truncate(ino, *size)
            }
            Step::Xattr(id, name, value) => {
                let ino = self.ino(*id);
                self.fs().set_xattr(ino, name, value, XattrMode::Any)
            }
            Step::RemoveXattr(id, name) => {
                let ino = self.ino(*id);
                self.fs().remove_xattr(ino, name)
            }
            Step::Permissions(id, bits) => {
                let permissions = Some(*bits);
                let set = SetAttributes {
                    permissions,
                    ..SetAttributes::default()
                };
                let ino = self.ino(*id);
                self.fs().set_attributes(ino, set)
            }
            Step::Owner(id, uid, gid) => {
                let set = SetAttributes {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    ..SetAttributes::default()
                };
                let ino = self.ino(*id);
                self.fs().set_attributes(ino, set)
            }
            Step::Head(id, head) => self.give_up_head(*id, *head),
            Step::Read(id, offset, count) => self.read(*id, *offset, *count),
            Step::Open(id) => {
                let ino = self.ino(*id);
                self.fs().open(ino)
            }
            Step::Release(id) => {
                let ino = self.ino(*id);
                self.fs().release(ino)
            }
            Step::Fsync(id) => {
                let ino = self.ino(*id);
                self.fs().fsync(ino)
            }
            Step::Sync => self.fs().sync(),
            Step::Compact => self.fs().compact(false, |_| ()).map(drop),
            Step::Root => self.fs().root_commit(false),
            Step::Tick => {
                let now_ns = self.now_ns();
                self.fs().tick(now_ns)
            }
            Step::Remount => self.remount(),
            _ => Ok(()),
        }
    }

    fn remount(&mut self) -> safs::Result {
        let fs = self.fs.take().expect("it is mounted");
        self.reach.take(&fs.counters());
        let device = fs.unmount()?;
        self.fs = Some(FileSystem::mount(
            device,
            self.options.clone(),
            self.now_ns(),
        )?);
        Ok(())
    }

    fn write(&mut self, id: Id, offset: u64, bytes: u64, is_sync: bool) -> safs::Result {
        let ino = self.ino(id);
        let text = match self.model.file(id) {
            Some(file) => self.model.text(id, file),
            // Refused anyway.
            None => return self.fs().write(ino, offset, b"no file"),
        };
        self.short = 0;
        while self.short < bytes {
            let at = offset + self.short;
            let count = (bytes - self.short).min(REQUEST_BYTES);
            let data = text.bytes(at, count as usize);
            self.fs().write(ino, at, &data)?;
            self.short += count;
        }
        match is_sync {
            true => self.fs().fsync(ino),
            false => Ok(()),
        }
    }

    fn read(&mut self, id: Id, offset: u64, count: usize) -> safs::Result {
        let Some(file) = self.model.file(id) else {
            return Ok(());
        };
        let expected = file.expected(&self.model.text(id, file), offset, count);
        let ino = self.ino(id);
        let read = self.fs().read(ino, offset, count)?;
        assert_same(&read, &expected, offset);
        Ok(())
    }

    /// How much of the head goes depends on where extents end; the model asks.
    fn give_up_head(&mut self, id: Id, head: u64) -> safs::Result {
        let Some(known) = self.model.file(id).map(|file| file.head) else {
            return Ok(());
        };
        let ino = self.ino(id);
        self.fs().fsync(ino)?;
        self.fs().truncate_head(ino, head)?;
        let found = self.fs().attributes(ino)?.head;
        assert!(
            found <= head.max(known),
            "less than asked for is given up, or as much"
        );
        self.model.file_mut(id).unwrap().head = found;
        Ok(())
    }

    /// The server ends without an unmount.
    pub fn end(&mut self) {
        if let Some(fs) = self.fs.take() {
            self.reach.take(&fs.counters());
        }
    }

    /// Compares everything that can be seen.
    pub fn compare(&mut self) {
        let nodes: Vec<Id> = self.model.nodes.keys().copied().collect();
        for id in nodes {
            let ino = self.ino(id);
            let node = self.model.nodes[&id].clone();
            let inode = self.fs().attributes(ino).unwrap();
            assert_eq!(
                (inode.nlink, inode.permissions, (inode.uid, inode.gid)),
                (node.nlink, node.permissions, node.owner),
                "inode {}",
                ino.0
            );
            let names = self.fs().xattrs(ino).unwrap();
            let visible = |name: &Vec<u8>| !name.starts_with(b"user.safs.");
            let names: Vec<Vec<u8>> = names.into_iter().filter(visible).collect();
            assert_eq!(names, node.xattrs.keys().cloned().collect::<Vec<_>>());
            for (name, value) in &node.xattrs {
                assert_eq!(&self.fs().xattr(ino, name).unwrap(), value);
            }
            match &node.content {
                Content::Directory(entries) => self.compare_entries(ino, entries),
                Content::Link(target) => assert_eq!(&self.fs().read_link(ino).unwrap(), target),
                Content::File(file) => {
                    assert_eq!(inode.size, file.size(), "inode {}", ino.0);
                    let mut at = 0;
                    while at < file.size() {
                        let count = (file.size() - at).min(8 << 20) as usize;
                        self.read(id, at, count).unwrap();
                        at += count as u64;
                    }
                }
                Content::Fifo => assert_eq!(inode.file_type, FileType::Fifo),
            }
        }
        assert_eq!(self.fs().space().inodes, self.model.nodes.len() as u64);
    }

    fn compare_entries(&mut self, ino: Ino, entries: &BTreeMap<Vec<u8>, Id>) {
        let found = self.fs().entries(ino, 0, usize::MAX).unwrap();
        assert!(found.windows(2).all(|pair| pair[0].id < pair[1].id));
        let found: BTreeMap<_, _> = found
            .into_iter()
            .map(|entry| (entry.name, entry.ino))
            .collect();
        let expected = entries
            .iter()
            .map(|(name, id)| (name.clone(), self.inos[id]));
        assert_eq!(found, expected.collect());
        for (name, id) in entries {
            let expected = self.inos[id];
            assert_eq!(self.fs().lookup(ino, name), Ok(expected));
        }
    }

    /// Everything that the check finds is a failure.
    pub fn assert_sound(&mut self, data: bool) {
        let report = self
            .fs()
            .check(data, |_| ())
            .expect("the catalog can be read");
        assert_eq!(report.problems, Vec::<String>::new());
        self.reach.see_nodes(report.nodes);
    }
}

/// Bytes that were read at `offset`, and those expected there.
pub fn assert_same(read: &[u8], expected: &[u8], offset: u64) {
    assert_eq!(
        read.len(),
        expected.len(),
        "the length of what was read at {offset}"
    );
    if read == expected {
        return;
    }
    let at = read.iter().zip(expected).position(|(a, b)| a != b).unwrap();
    panic!(
        "byte {} is {:#x}, not {:#x}",
        offset + at as u64,
        read[at],
        expected[at]
    );
}
