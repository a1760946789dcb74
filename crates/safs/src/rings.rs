// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ring directories hold, kept in memory.

use crate::format::*;
use std::collections::BTreeMap;

/// What ring directories hold, so that nobody has to add it up: kept by every change of a name and of an inode.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Rings(pub BTreeMap<Ino, Ring>);

/// The regular files of a ring directory.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Ring {
    pub files: BTreeMap<u64, Ino>,
    pub stored: BTreeMap<Ino, u64>,
    pub bytes: u64,
    /// Until all have been counted: those up to this id are.
    pub counted_to: Option<u64>,
}

impl Ring {
    pub fn add(&mut self, id: u64, ino: Ino, stored: u64) {
        self.files.insert(id, ino);
        self.stored.entry(ino).or_insert(0);
        self.set(ino, stored);
    }

    pub fn set(&mut self, ino: Ino, stored: u64) {
        if let Some(known) = self.stored.get_mut(&ino) {
            self.bytes = self.bytes - *known + stored;
            *known = stored;
        }
    }

    pub fn remove(&mut self, id: u64) {
        let ino = self.files.remove(&id);
        let stored = ino.and_then(|ino| self.stored.remove(&ino));
        self.bytes -= stored.unwrap_or(0);
    }
}

impl Rings {
    /// A change was made.
    pub fn note(&mut self, change: &Change) {
        let (key, value) = match change {
            Change::Put(key, value) if !self.0.is_empty() => (key, Some(value)),
            Change::Delete(key) if !self.0.is_empty() => (key, None),
            _ => return,
        };
        let Some(ino) = key.ino() else {
            return;
        };
        let is = |kind: Kind| key.kind() == Some(kind as u8);
        if is(Kind::Order) {
            let (ring, id) = (self.0.get_mut(&ino), key.number());
            let (Some(ring), Some(id)) = (ring, id) else {
                return;
            };
            let entry = value.and_then(|value| Dirent::decode_order(key, value).ok());
            match entry {
                None => ring.remove(id),
                Some(entry) if entry.file_type == FileType::Regular => {
                    // Who counts will come to it. Its inode's record follows.
                    if ring.counted_to.is_none() {
                        ring.add(id, entry.ino, 0);
                    }
                }
                Some(_) => {}
            }
        } else if is(Kind::Inode) {
            let inode = value.and_then(|value| Inode::decode(value).ok());
            for ring in self
                .0
                .values_mut()
                .filter(|ring| ring.stored.contains_key(&ino))
            {
                ring.set(ino, inode.as_ref().map_or(0, |inode| inode.stored));
            }
        }
    }
}
