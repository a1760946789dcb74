// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file system as anyone would write it who has no disk: maps, and files as vectors of bytes.

use std::collections::BTreeMap;

/// Numbers of the model's own; the root is 1, as there.
pub type Id = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Directory(BTreeMap<Vec<u8>, Id>),
    File {
        bytes: Vec<u8>,
        /// Bytes below this are written; the rest of `bytes` is zeros that a truncation added.
        written: usize,
        /// Bytes below this were given up, if the file system had a reason to.
        head: usize,
        /// What was skipped: it may still be written, until the file is synced or closed.
        holes: Vec<(usize, usize)>,
        /// How often it was truncated to nothing.
        generation: u64,
    },
    Link(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub nlink: u32,
    pub permissions: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Id, Node>,
    pub next: Id,
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
    Other,
}

impl Default for Model {
    fn default() -> Self {
        let root = Node {
            content: Content::Directory(BTreeMap::new()),
            nlink: 2,
            permissions: 0o755,
            xattrs: BTreeMap::new(),
        };
        Model {
            nodes: BTreeMap::from([(1, root)]),
            next: 2,
        }
    }
}

impl Model {
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

    fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[&id].content, Content::Directory(_))
    }

    pub fn create(
        &mut self,
        parent: Id,
        name: &[u8],
        content: Content,
        permissions: u32,
    ) -> Result<Id, Refused> {
        if self.directory(parent)?.contains_key(name) {
            return Err(Refused::Exists);
        }
        let id = self.next;
        self.next += 1;
        let is_directory = matches!(content, Content::Directory(_));
        let nlink = if is_directory { 2 } else { 1 };
        // Set-group-ID goes on to directories.
        let handed_down = if is_directory {
            self.nodes[&parent].permissions & 0o2000
        } else {
            0
        };
        let node = Node {
            content,
            nlink,
            permissions: permissions | handed_down,
            xattrs: BTreeMap::new(),
        };
        self.nodes.insert(id, node);
        self.directory_mut(parent).insert(name.to_vec(), id);
        self.nodes.get_mut(&parent).unwrap().nlink += u32::from(is_directory);
        Ok(id)
    }

    pub fn link(&mut self, id: Id, parent: Id, name: &[u8]) -> Result<(), Refused> {
        let entries = self.directory(parent)?;
        if self.is_directory(id) {
            return Err(Refused::IsDirectory);
        }
        if entries.contains_key(name) {
            return Err(Refused::Exists);
        }
        self.directory_mut(parent).insert(name.to_vec(), id);
        self.nodes.get_mut(&id).unwrap().nlink += 1;
        Ok(())
    }

    fn drop_link(&mut self, id: Id) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.nlink -= 1;
        if node.nlink == 0 {
            self.nodes.remove(&id);
        }
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
        self.nodes.remove(&id);
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
        let other = self.directory(to)?.get(new_name).copied();
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
                (true, true) => {
                    self.nodes.remove(&other);
                    self.nodes.get_mut(&to).unwrap().nlink -= 1;
                }
                (false, false) => self.drop_link(other),
            }
        }
        self.directory_mut(from).remove(name);
        self.directory_mut(to).insert(new_name.to_vec(), id);
        if moves_directory {
            self.nodes.get_mut(&from).unwrap().nlink -= 1;
            self.nodes.get_mut(&to).unwrap().nlink += 1;
        }
        Ok(())
    }

    pub fn write(&mut self, id: Id, offset: usize, data: &[u8]) -> Result<(), Refused> {
        match &mut self.nodes.get_mut(&id).unwrap().content {
            Content::File {
                bytes,
                written,
                holes,
                ..
            } => {
                if offset < *written {
                    return Err(Refused::Overwrite);
                }
                if offset > *written {
                    holes.push((*written, offset));
                }
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[offset..offset + data.len()].copy_from_slice(data);
                *written = offset + data.len();
                Ok(())
            }
            Content::Directory(_) => Err(Refused::IsDirectory),
            Content::Link(_) => Err(Refused::Invalid),
        }
    }

    /// Writes into a hole. Says whether there is one.
    pub fn fill(&mut self, id: Id, offset: usize, data: &[u8]) -> bool {
        let Some(Content::File { bytes, holes, .. }) =
            self.nodes.get_mut(&id).map(|node| &mut node.content)
        else {
            return false;
        };
        let end = offset + data.len();
        let Some(at) = holes
            .iter()
            .position(|(from, to)| *from <= offset && end <= *to)
        else {
            return false;
        };
        let (from, to) = holes.swap_remove(at);
        holes.extend([(from, offset), (end, to)]);
        bytes[offset..end].copy_from_slice(data);
        true
    }

    pub fn truncate(&mut self, id: Id, size: usize) -> Result<(), Refused> {
        match &mut self.nodes.get_mut(&id).unwrap().content {
            Content::File {
                bytes,
                written,
                head,
                holes,
                generation,
            } => {
                if size == 0 {
                    holes.clear();
                    bytes.clear();
                    (*written, *head) = (0, 0);
                    *generation += 1;
                } else if size < *written {
                    return Err(Refused::Overwrite);
                } else {
                    bytes.resize(size, 0);
                }
                Ok(())
            }
            Content::Directory(_) => Err(Refused::IsDirectory),
            Content::Link(_) => Err(Refused::Invalid),
        }
    }
}
