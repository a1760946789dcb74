// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file system as anyone would write it who has no disk: maps, and of each file how far it goes. What its bytes are
//! follows from its number (`Text`).

use super::random::{Grain, Text};
use std::collections::BTreeMap;

/// Numbers of the model's own; the root is 1, as there.
pub type Id = u64;

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Bytes below this are written.
    pub written: u64,
    /// What a truncation set the size to; 0 if none did. The size is the larger of the two.
    pub extended: u64,
    /// Bytes below this were given up, if the file system had a reason to.
    pub head: u64,
    /// What was skipped, in order: it may still be written, until the file is synced or closed.
    pub holes: Vec<(u64, u64)>,
    /// How often it was truncated to nothing.
    pub generation: u64,
    pub grain: Grain,
}

impl File {
    pub fn new(grain: Grain) -> Self {
        File {
            written: 0,
            extended: 0,
            head: 0,
            holes: Vec::new(),
            generation: 0,
            grain,
        }
    }

    pub fn size(&self) -> u64 {
        self.written.max(self.extended)
    }

    /// What is to be read from `at` on, up to the file's end.
    pub fn expected(&self, text: &Text, at: u64, count: usize) -> Vec<u8> {
        let end = (at + count as u64).min(self.size()).max(at);
        let mut bytes = vec![0; (end - at) as usize];
        let from = at.max(self.head);
        let to = end.min(self.written);
        if from < to {
            text.fill(from, &mut bytes[(from - at) as usize..(to - at) as usize]);
        }
        for (from, to) in &self.holes {
            let (from, to) = ((*from).max(at), (*to).min(end));
            if from < to {
                bytes[(from - at) as usize..(to - at) as usize].fill(0);
            }
        }
        bytes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Directory(BTreeMap<Vec<u8>, Id>),
    File(File),
    Link(Vec<u8>),
    Fifo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub nlink: u32,
    pub permissions: u32,
    pub owner: (u32, u32),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How often it is open.
    pub handles: u32,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Id, Node>,
    pub next: Id,
    pub seed: u64,
}

/// Why the model refuses; the names are those of `safs::Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    Overwrite,
    NoAttribute,
    NoSpace,
    /// The device could not, or nothing is written any more.
    Trouble,
}

/// Owner and group of all that is made.
pub const OWNER: (u32, u32) = (5, 6);

impl Model {
    pub fn new(seed: u64) -> Self {
        let root = Node {
            content: Content::Directory(BTreeMap::new()),
            nlink: 2,
            permissions: 0o755,
            owner: (0, 0),
            xattrs: BTreeMap::new(),
            handles: 0,
        };
        Model {
            nodes: BTreeMap::from([(1, root)]),
            next: 2,
            seed,
        }
    }

    pub fn text(&self, id: Id, file: &File) -> Text {
        Text::new(self.seed, id, file.generation, file.grain)
    }

    pub fn file(&self, id: Id) -> Option<&File> {
        match &self.nodes.get(&id)?.content {
            Content::File(file) => Some(file),
            _ => None,
        }
    }

    pub fn file_mut(&mut self, id: Id) -> Option<&mut File> {
        match &mut self.nodes.get_mut(&id)?.content {
            Content::File(file) => Some(file),
            _ => None,
        }
    }

    fn need_file(&mut self, id: Id) -> Result<&mut File, Refused> {
        match &mut self.nodes.get_mut(&id).unwrap().content {
            Content::File(file) => Ok(file),
            Content::Directory(_) => Err(Refused::IsDirectory),
            _ => Err(Refused::Invalid),
        }
    }

    pub fn directory(&self, id: Id) -> Result<&BTreeMap<Vec<u8>, Id>, Refused> {
        match &self.nodes.get(&id).ok_or(Refused::NotFound)?.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(Refused::NotDirectory),
        }
    }

    fn directory_mut(&mut self, id: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match self.nodes.get_mut(&id).map(|node| &mut node.content) {
            Some(Content::Directory(entries)) => entries,
            _ => panic!("looked at before"),
        }
    }

    pub fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[&id].content, Content::Directory(_))
    }

    /// A directory that still has a name.
    fn live(&self, id: Id) -> Result<&BTreeMap<Vec<u8>, Id>, Refused> {
        let entries = self.directory(id)?;
        match self.nodes[&id].nlink {
            0 => Err(Refused::NotFound),
            _ => Ok(entries),
        }
    }

    pub fn create(
        &mut self,
        parent: Id,
        name: &[u8],
        content: Content,
        permissions: u32,
    ) -> Result<Id, Refused> {
        if self.live(parent)?.contains_key(name) {
            return Err(Refused::Exists);
        }
        let id = self.next;
        self.next += 1;
        let is_directory = matches!(content, Content::Directory(_));
        let nlink = if is_directory { 2 } else { 1 };
        let above = &self.nodes[&parent];
        let mut owner = OWNER;
        let mut permissions = permissions;
        // Set-group-ID hands the group down, and goes on to directories.
        if above.permissions & 0o2000 != 0 {
            owner.1 = above.owner.1;
            permissions |= if is_directory { 0o2000 } else { 0 };
        }
        let node = Node {
            content,
            nlink,
            permissions,
            owner,
            xattrs: BTreeMap::new(),
            handles: 0,
        };
        self.nodes.insert(id, node);
        self.directory_mut(parent).insert(name.to_vec(), id);
        self.nodes.get_mut(&parent).unwrap().nlink += u32::from(is_directory);
        Ok(id)
    }

    pub fn link(&mut self, id: Id, parent: Id, name: &[u8]) -> Result<(), Refused> {
        let entries = self.live(parent)?;
        if self.is_directory(id) {
            return Err(Refused::IsDirectory);
        }
        if self.nodes[&id].nlink == 0 {
            return Err(Refused::NotFound);
        }
        if entries.contains_key(name) {
            return Err(Refused::Exists);
        }
        self.directory_mut(parent).insert(name.to_vec(), id);
        self.nodes.get_mut(&id).unwrap().nlink += 1;
        Ok(())
    }

    /// What has neither a name nor a user is gone.
    fn drop_idle(&mut self, id: Id) {
        let node = &self.nodes[&id];
        if node.nlink == 0 && node.handles == 0 {
            self.nodes.remove(&id);
        }
    }

    fn drop_link(&mut self, id: Id) {
        let is_directory = self.is_directory(id);
        let node = self.nodes.get_mut(&id).unwrap();
        node.nlink = if is_directory { 0 } else { node.nlink - 1 };
        self.drop_idle(id);
    }

    pub fn unlink(&mut self, parent: Id, name: &[u8]) -> Result<(), Refused> {
        let id = *self.directory(parent)?.get(name).ok_or(Refused::NotFound)?;
        if self.is_directory(id) {
            return Err(Refused::IsDirectory);
        }
        self.directory_mut(parent).remove(name);
        self.drop_link(id);
        Ok(())
    }

    pub fn remove_directory(&mut self, parent: Id, name: &[u8]) -> Result<(), Refused> {
        let id = *self.directory(parent)?.get(name).ok_or(Refused::NotFound)?;
        if !self.directory(id)?.is_empty() {
            return Err(Refused::NotEmpty);
        }
        self.directory_mut(parent).remove(name);
        self.drop_link(id);
        self.nodes.get_mut(&parent).unwrap().nlink -= 1;
        Ok(())
    }

    /// Whether `id` is `below` or holds it.
    fn holds(&self, id: Id, below: Id) -> bool {
        id == below
            || match &self.nodes[&id].content {
                Content::Directory(entries) => {
                    entries.values().any(|child| self.holds(*child, below))
                }
                _ => false,
            }
    }

    pub fn rename(
        &mut self,
        from: Id,
        name: &[u8],
        to: Id,
        new_name: &[u8],
    ) -> Result<(), Refused> {
        let id = *self.directory(from)?.get(name).ok_or(Refused::NotFound)?;
        let other = self.live(to)?.get(new_name).copied();
        if other == Some(id) {
            return Ok(());
        }
        let moves_directory = self.is_directory(id);
        if moves_directory && self.holds(id, to) {
            return Err(Refused::Invalid);
        }
        if let Some(other) = other {
            match (moves_directory, self.is_directory(other)) {
                (true, false) => return Err(Refused::NotDirectory),
                (false, true) => return Err(Refused::IsDirectory),
                (true, true) if !self.directory(other)?.is_empty() => {
                    return Err(Refused::NotEmpty)
                }
                _ => {}
            }
            if moves_directory {
                self.nodes.get_mut(&to).unwrap().nlink -= 1;
            }
            self.directory_mut(to).remove(new_name);
            self.drop_link(other);
        }
        self.directory_mut(from).remove(name);
        self.directory_mut(to).insert(new_name.to_vec(), id);
        if moves_directory {
            self.nodes.get_mut(&from).unwrap().nlink -= 1;
            self.nodes.get_mut(&to).unwrap().nlink += 1;
        }
        Ok(())
    }

    pub fn exchange(
        &mut self,
        from: Id,
        name: &[u8],
        to: Id,
        other_name: &[u8],
    ) -> Result<(), Refused> {
        let id = *self.directory(from)?.get(name).ok_or(Refused::NotFound)?;
        let other = *self.live(to)?.get(other_name).ok_or(Refused::NotFound)?;
        if other == id {
            return Ok(());
        }
        let is = |id| self.is_directory(id);
        if is(id) && self.holds(id, to) || is(other) && self.holds(other, from) {
            return Err(Refused::Invalid);
        }
        let (moved, came) = (u32::from(is(id)), u32::from(is(other)));
        self.directory_mut(from).insert(name.to_vec(), other);
        self.directory_mut(to).insert(other_name.to_vec(), id);
        let mut count = |id: Id, more: u32, less: u32| {
            let node = self.nodes.get_mut(&id).unwrap();
            node.nlink = node.nlink + more - less;
        };
        count(from, came, moved);
        count(to, moved, came);
        Ok(())
    }

    pub fn write(&mut self, id: Id, offset: u64, bytes: u64) -> Result<(), Refused> {
        let file = self.need_file(id)?;
        if offset < file.written {
            return Err(Refused::Overwrite);
        }
        if offset > file.written {
            file.holes.push((file.written, offset));
        }
        file.written = offset + bytes;
        Ok(())
    }

    /// Writes into a hole. Says whether there is one.
    pub fn fill(&mut self, id: Id, offset: u64, bytes: u64) -> bool {
        let Some(file) = self.file_mut(id) else {
            return false;
        };
        let end = offset + bytes;
        let mut holes = file.holes.iter();
        let Some(at) = holes.position(|(from, to)| *from <= offset && end <= *to) else {
            return false;
        };
        let (from, to) = file.holes.remove(at);
        file.holes.extend([(from, offset), (end, to)]);
        file.holes.retain(|(from, to)| from < to);
        file.holes.sort_unstable();
        true
    }

    pub fn truncate(&mut self, id: Id, size: u64) -> Result<(), Refused> {
        let file = self.need_file(id)?;
        if size == 0 {
            let generation = file.generation + 1;
            *file = File {
                generation,
                ..File::new(file.grain)
            };
        } else if size < file.written {
            return Err(Refused::Overwrite);
        } else {
            file.extended = size;
        }
        Ok(())
    }

    pub fn release(&mut self, id: Id) {
        self.nodes.get_mut(&id).unwrap().handles -= 1;
        self.drop_idle(id);
    }

    /// Bytes that all files hold, each in whole blocks.
    pub fn bytes(&self) -> u64 {
        let held = |node: &Node| match &node.content {
            Content::File(file) => {
                let from = |hole: &(u64, u64)| hole.0.max(file.head);
                let holes: u64 = file
                    .holes
                    .iter()
                    .map(|hole| hole.1.saturating_sub(from(hole)))
                    .sum();
                (file.written - file.head - holes).next_multiple_of(4096)
            }
            _ => 0,
        };
        self.nodes.values().map(held).sum()
    }
}
