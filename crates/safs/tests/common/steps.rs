// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations, done by both, with answers compared.

use super::model::{Content, Id, Model, Refused};
use super::Random;
use safs::format::{FileType, Ino};
use safs::{Error, FileSystem, Owner, RenameMode, SetAttributes, XattrMode};
use std::collections::BTreeMap;
use zoned::ZonedDevice;

/// A step, chosen with knowledge of the model.
#[derive(Clone, Debug)]
pub enum Step {
    Create(Id, Vec<u8>),
    MakeDirectory(Id, Vec<u8>),
    Symlink(Id, Vec<u8>, Vec<u8>),
    Link(Id, Id, Vec<u8>),
    Unlink(Id, Vec<u8>),
    RemoveDirectory(Id, Vec<u8>),
    Rename(Id, Vec<u8>, Id, Vec<u8>),
    Write(Id, usize, Vec<u8>),
    Truncate(Id, usize),
    Xattr(Id, Vec<u8>, Vec<u8>),
    RemoveXattr(Id, Vec<u8>),
    Permissions(Id, u32),
    Head(Id, usize),
    Read(Id, usize, usize),
    Fsync(Id),
    Sync,
    Compact,
    Root,
}

/// Both, side by side.
pub struct Pair<D: ZonedDevice> {
    pub fs: FileSystem<D>,
    pub model: Model,
    pub inos: BTreeMap<Id, Ino>,
    pub now_ns: i64,
}

fn answer(error: &Error) -> Refused {
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
        other => panic!("no step may end with: {other}"),
    }
}

impl Step {
    /// Chooses a step. Names are few, so that they meet.
    pub fn choose(random: &mut Random, model: &Model) -> Step {
        let ids: Vec<Id> = model.nodes.keys().copied().collect();
        let kind = |wanted: fn(&Content) -> bool| -> Vec<Id> {
            let nodes = model.nodes.iter().filter(|(_, node)| wanted(&node.content));
            nodes.map(|(id, _)| *id).collect()
        };
        let directories = kind(|content| matches!(content, Content::Directory(_)));
        let files = kind(|content| matches!(content, Content::File { .. }));
        let name = |random: &mut Random| format!("name{}", random.below(7)).into_bytes();
        let directory = *random.pick(&directories);
        let file = if files.is_empty() {
            directory
        } else {
            *random.pick(&files)
        };
        let any = *random.pick(&ids);
        match random.below(100) {
            0..=9 => Step::Create(directory, name(random)),
            10..=13 => Step::MakeDirectory(directory, name(random)),
            14..=15 => {
                let length = 1 + random.below(300) as usize;
                Step::Symlink(directory, name(random), random.bytes(length))
            }
            16..=18 => Step::Link(any, directory, name(random)),
            19..=23 => Step::Unlink(directory, name(random)),
            24..=25 => Step::RemoveDirectory(directory, name(random)),
            26..=31 => Step::Rename(
                directory,
                name(random),
                *random.pick(&directories),
                name(random),
            ),
            32..=69 => Step::choose_write(random, model, file),
            70..=71 => Step::Truncate(file, 0),
            72..=73 => {
                let size = Step::size(model, file);
                Step::Truncate(
                    file,
                    (size + random.below(20000) as usize).saturating_sub(2000),
                )
            }
            74..=76 => {
                let length = random.below(3000) as usize;
                Step::Xattr(any, name(random), random.bytes(length))
            }
            77 => Step::RemoveXattr(any, name(random)),
            78..=79 => Step::Permissions(any, random.below(0o10000) as u32),
            80 => Step::Head(
                file,
                random.below(1 + Step::written(model, file) as u64) as usize,
            ),
            81..=87 => {
                let size = Step::size(model, file) as u64 + 100;
                Step::Read(
                    file,
                    random.below(size) as usize,
                    1 + random.below(70000) as usize,
                )
            }
            88..=95 => Step::Fsync(any),
            96..=97 => Step::Sync,
            98 => Step::Root,
            _ => Step::Compact,
        }
    }

    fn size(model: &Model, id: Id) -> usize {
        match &model.nodes[&id].content {
            Content::File { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    fn written(model: &Model, id: Id) -> usize {
        match &model.nodes[&id].content {
            Content::File { written, .. } => *written,
            _ => 0,
        }
    }

    fn choose_write(random: &mut Random, model: &Model, file: Id) -> Step {
        let (written, size) = (Step::written(model, file), Step::size(model, file));
        let length = match random.below(8) {
            0..=2 => 1 + random.below(300),
            3..=5 => 4096 * (1 + random.below(6)),
            6 => 1 + random.below(40_000),
            _ => 1 + random.below(120_000),
        };
        let offset = match random.below(20) {
            0 => written.saturating_sub(1 + random.below(5000) as usize),
            1 => size + random.below(200_000) as usize,
            2..=4 => size,
            _ => written,
        };
        Step::Write(file, offset, random.bytes(length as usize))
    }
}

const OWNER: Owner = Owner {
    permissions: 0o644,
    uid: 5,
    gid: 6,
};

impl<D: ZonedDevice> Pair<D> {
    pub fn new(fs: FileSystem<D>) -> Self {
        Pair {
            fs,
            model: Model::default(),
            inos: BTreeMap::from([(1, Ino(1))]),
            now_ns: 1_000,
        }
    }

    fn ino(&self, id: Id) -> Ino {
        self.inos[&id]
    }

    /// Does a step in both. A full disk is an answer; then the model did nothing.
    pub fn step(&mut self, step: &Step) {
        self.now_ns += 1_000_000;
        self.fs.set_time(self.now_ns);
        let before = self.model.clone();
        let expected = self.step_model(step);
        let found = self.step_fs(step).map_err(|error| answer(&error));
        match (&expected, &found) {
            (Ok(()), Err(Refused::NoSpace)) => {
                self.model = before;
                return;
            }
            // Whether a gap is still open is the file system's business.
            (Err(Refused::Overwrite), Ok(())) => {
                let Step::Write(id, offset, data) = step else {
                    panic!("{step:?} was to be refused");
                };
                assert!(
                    self.model.fill(*id, *offset, data),
                    "byte {offset} of {id} is written"
                );
            }
            _ => assert_eq!(expected, found, "{step:?}"),
        }
        self.model
            .nodes
            .keys()
            .for_each(|id| assert!(self.inos.contains_key(id)));
    }

    fn step_model(&mut self, step: &Step) -> Result<(), Refused> {
        let model = &mut self.model;
        let file = || Content::File {
            bytes: Vec::new(),
            written: 0,
            head: 0,
            holes: Vec::new(),
            generation: 0,
        };
        match step {
            Step::Create(parent, name) => model.create(*parent, name, file(), 0o644).map(drop),
            Step::MakeDirectory(parent, name) => {
                let content = Content::Directory(BTreeMap::new());
                model.create(*parent, name, content, 0o644).map(drop)
            }
            Step::Symlink(parent, name, target) => {
                let content = Content::Link(target.clone());
                model.create(*parent, name, content, 0o644).map(drop)
            }
            Step::Link(id, parent, name) => model.link(*id, *parent, name),
            Step::Unlink(parent, name) => model.unlink(*parent, name),
            Step::RemoveDirectory(parent, name) => model.remove_directory(*parent, name),
            Step::Rename(from, name, to, new) => model.rename(*from, name, *to, new),
            Step::Write(id, offset, data) => model.write(*id, *offset, data),
            Step::Truncate(id, size) => model.truncate(*id, *size),
            Step::Xattr(id, name, value) => {
                let node = model.nodes.get_mut(id).unwrap();
                node.xattrs.insert(name.clone(), value.clone());
                Ok(())
            }
            Step::RemoveXattr(id, name) => {
                let node = model.nodes.get_mut(id).unwrap();
                node.xattrs
                    .remove(name)
                    .map(drop)
                    .ok_or(Refused::NoAttribute)
            }
            Step::Permissions(id, bits) => {
                model.nodes.get_mut(id).unwrap().permissions = *bits;
                Ok(())
            }
            Step::Head(..)
            | Step::Read(..)
            | Step::Fsync(_)
            | Step::Sync
            | Step::Compact
            | Step::Root => Ok(()),
        }
    }

    fn made(&mut self, parent: Id, name: &[u8], ino: Ino) {
        let id = self.model.directory(parent).unwrap()[name];
        self.inos.insert(id, ino);
    }

    fn step_fs(&mut self, step: &Step) -> safs::Result {
        match step {
            Step::Create(parent, name) => {
                let ino = self
                    .fs
                    .create(self.ino(*parent), name, FileType::Regular, OWNER, 0)?;
                self.made(*parent, name, ino);
            }
            Step::MakeDirectory(parent, name) => {
                let ino = self
                    .fs
                    .create(self.ino(*parent), name, FileType::Directory, OWNER, 0)?;
                self.made(*parent, name, ino);
            }
            Step::Symlink(parent, name, target) => {
                let ino = self.fs.symlink(self.ino(*parent), name, target, OWNER)?;
                self.made(*parent, name, ino);
            }
            Step::Link(id, parent, name) => self.fs.link(self.ino(*id), self.ino(*parent), name)?,
            Step::Unlink(parent, name) => self.fs.unlink(self.ino(*parent), name)?,
            Step::RemoveDirectory(parent, name) => {
                self.fs.remove_directory(self.ino(*parent), name)?
            }
            Step::Rename(from, name, to, new) => {
                let (from, to) = (self.ino(*from), self.ino(*to));
                self.fs.rename(from, name, to, new, RenameMode::Replace)?;
            }
            Step::Write(id, offset, data) => self.fs.write(self.ino(*id), *offset as u64, data)?,
            Step::Truncate(id, size) => self.fs.truncate(self.ino(*id), *size as u64)?,
            Step::Xattr(id, name, value) => {
                self.fs
                    .set_xattr(self.ino(*id), name, value, XattrMode::Any)?
            }
            Step::RemoveXattr(id, name) => self.fs.remove_xattr(self.ino(*id), name)?,
            Step::Permissions(id, bits) => {
                let permissions = Some(*bits);
                let set = SetAttributes {
                    permissions,
                    ..SetAttributes::default()
                };
                self.fs.set_attributes(self.ino(*id), set)?;
            }
            Step::Head(id, head) => self.give_up_head(*id, *head)?,
            Step::Read(id, offset, length) => {
                if let Content::File { bytes, head, .. } = &self.model.nodes[id].content {
                    let read = self.fs.read(self.inos[id], *offset as u64, *length)?;
                    assert_same(
                        &read,
                        bytes,
                        *head,
                        *offset,
                        (offset + length).min(bytes.len()),
                    );
                }
            }
            Step::Fsync(id) => self.fs.fsync(self.ino(*id))?,
            Step::Sync => self.fs.sync()?,
            Step::Compact => self.fs.compact(false, |_| ()).map(drop)?,
            Step::Root => self.fs.root_commit(false)?,
        }
        Ok(())
    }

    /// How much of the head goes depends on where extents end; the model asks.
    fn give_up_head(&mut self, id: Id, head: usize) -> safs::Result {
        let ino = self.ino(id);
        if !matches!(self.model.nodes[&id].content, Content::File { .. }) {
            return Ok(());
        }
        self.fs.fsync(ino)?;
        self.fs.truncate_head(ino, head as u64)?;
        let found = self.fs.attributes(ino)?.head as usize;
        assert!(
            found <= head.max(self.known_head(id)),
            "less than asked for is given up, or as much"
        );
        if let Content::File { head, .. } = &mut self.model.nodes.get_mut(&id).unwrap().content {
            *head = found;
        }
        Ok(())
    }

    fn known_head(&self, id: Id) -> usize {
        match &self.model.nodes[&id].content {
            Content::File { head, .. } => *head,
            _ => 0,
        }
    }

    /// Compares everything that can be seen.
    pub fn compare(&mut self) {
        for (id, node) in self.model.nodes.clone() {
            let ino = self.inos[&id];
            let inode = self.fs.attributes(ino).unwrap();
            assert_eq!(
                (inode.nlink, inode.permissions),
                (node.nlink, node.permissions),
                "inode {}",
                ino.0
            );
            let names = self.fs.xattrs(ino).unwrap();
            assert_eq!(names, node.xattrs.keys().cloned().collect::<Vec<_>>());
            for (name, value) in &node.xattrs {
                assert_eq!(&self.fs.xattr(ino, name).unwrap(), value);
            }
            match &node.content {
                Content::Directory(entries) => self.compare_entries(ino, entries),
                Content::Link(target) => assert_eq!(&self.fs.read_link(ino).unwrap(), target),
                Content::File { bytes, head, .. } => {
                    assert_eq!(inode.size, bytes.len() as u64, "inode {}", ino.0);
                    let read = self.fs.read(ino, 0, bytes.len() + 10).unwrap();
                    assert_same(&read, bytes, *head, 0, bytes.len());
                }
            }
        }
        assert_eq!(self.fs.space().inodes, self.model.nodes.len() as u64);
    }

    fn compare_entries(&mut self, ino: Ino, entries: &BTreeMap<Vec<u8>, Id>) {
        let found = self.fs.entries(ino, 0, usize::MAX).unwrap();
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
            assert_eq!(self.fs.lookup(ino, name), Ok(self.inos[id]));
        }
    }
}

/// Bytes of a file from `offset` to `end`; those before its head are zeros.
pub fn assert_same(read: &[u8], bytes: &[u8], head: usize, offset: usize, end: usize) {
    let mut expected = bytes.get(offset..end).unwrap_or(&[]).to_vec();
    let gone = head.saturating_sub(offset).min(expected.len());
    expected[..gone].fill(0);
    assert_eq!(
        read.len(),
        expected.len(),
        "the length of what was read at {offset}"
    );
    if let Some(at) = read.iter().zip(&expected).position(|(a, b)| a != b) {
        panic!(
            "byte {} is {:#x}, not {:#x}",
            offset + at,
            read[at],
            expected[at]
        );
    }
}
