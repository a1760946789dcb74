// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one thread's part of the file system should look like: its own
//! directory, and its own names in the shared ones. It depends on the seed alone,
//! never on what the file system does, so it can be made again later and held
//! against another mount of the same image.

use std::collections::BTreeMap;

use super::extents::Extents;
use crate::rng::{mix64, Rng};

pub type DirId = usize;
pub type FileId = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Dir(DirId),
    File(FileId),
    Symlink(String),
}

#[derive(Clone, Debug)]
pub struct Dir {
    pub parent: DirId,
    pub name: String,
    pub entries: BTreeMap<String, Entry>,
    /// Other threads have names in it; it is neither moved nor removed.
    pub shared: bool,
}

/// An inode of a file.
#[derive(Clone, Debug)]
pub struct File {
    pub extents: Extents,
    pub links: u64,
}

/// Longest name, so that directories grow to several blocks.
const NAME_BYTES_MAX: u64 = 120;

pub struct Model {
    pub thread: u32,
    dirs: Vec<Option<Dir>>,
    files: Vec<Option<File>>,
    live_files: usize,
    live_dirs: usize,
}

/// A name in a directory, and where it leads.
#[derive(Clone, Debug)]
pub struct Place {
    pub dir: DirId,
    pub name: String,
}

impl Model {
    /// Directory 0 is the thread's own, the next `shared` ones are everybody's.
    pub fn new(thread: u32, shared: u32) -> Self {
        let dir = |name, shared| {
            Some(Dir {
                parent: 0,
                name,
                entries: BTreeMap::new(),
                shared,
            })
        };
        let mut dirs = vec![dir(own_dir(thread), false)];
        dirs.extend((0..shared).map(|number| dir(shared_dir(number), true)));
        Self {
            thread,
            live_dirs: dirs.len(),
            dirs,
            files: Vec::new(),
            live_files: 0,
        }
    }

    pub fn dir(&self, id: DirId) -> &Dir {
        self.dirs[id].as_ref().expect("a live directory")
    }

    fn dir_mut(&mut self, id: DirId) -> &mut Dir {
        self.dirs[id].as_mut().expect("a live directory")
    }

    pub fn file(&self, id: FileId) -> &File {
        self.files[id].as_ref().expect("a live file")
    }

    pub fn extents_mut(&mut self, id: FileId) -> &mut Extents {
        &mut self.files[id].as_mut().expect("a live file").extents
    }

    pub fn file_count(&self) -> usize {
        self.live_files
    }

    pub fn dir_count(&self) -> usize {
        self.live_dirs
    }

    pub fn dir_ids(&self) -> impl Iterator<Item = DirId> + '_ {
        (0..self.dirs.len()).filter(|id| self.dirs[*id].is_some())
    }

    /// Names of this thread begin with it wherever they are.
    pub fn prefix(&self) -> String {
        prefix(self.thread)
    }

    /// Path of a directory below the load's own.
    pub fn dir_path(&self, id: DirId) -> String {
        let dir = self.dir(id);
        match self.is_root(id) {
            true => dir.name.clone(),
            false => format!("{}/{}", self.dir_path(dir.parent), dir.name),
        }
    }

    pub fn path(&self, place: &Place) -> String {
        format!("{}/{}", self.dir_path(place.dir), place.name)
    }

    /// The thread's own directory, and the shared ones, have no parent here.
    fn is_root(&self, id: DirId) -> bool {
        id == 0 || self.dir(id).shared
    }

    /// Whether `id` is `above` or lies below it.
    pub fn is_within(&self, id: DirId, above: DirId) -> bool {
        id == above || (!self.is_root(id) && self.is_within(self.dir(id).parent, above))
    }

    pub fn any_dir(&self, rng: &mut Rng) -> DirId {
        let nth = rng.index(self.live_dirs);
        self.dir_ids().nth(nth).expect("there are that many")
    }

    /// Some directory that can be moved or removed.
    pub fn any_movable_dir(&self, rng: &mut Rng) -> Option<DirId> {
        self.any_dir_that(rng, |_| true)
    }

    pub fn any_empty_dir(&self, rng: &mut Rng) -> Option<DirId> {
        self.any_dir_that(rng, |dir| dir.entries.is_empty())
    }

    fn any_dir_that(&self, rng: &mut Rng, fits: impl Fn(&Dir) -> bool) -> Option<DirId> {
        let movable = self
            .dir_ids()
            .filter(|id| !self.is_root(*id) && fits(self.dir(*id)));
        let movable: Vec<DirId> = movable.collect();
        movable.get(rng.index(movable.len())).copied()
    }

    /// Some name that leads to a file.
    pub fn any_file(&self, rng: &mut Rng) -> Option<(Place, FileId)> {
        // A few tries: directories without files are met too.
        (0..8).find_map(|_| {
            let dir = self.any_dir(rng);
            let files = self
                .dir(dir)
                .entries
                .iter()
                .filter_map(|(name, entry)| match entry {
                    Entry::File(id) => Some((name, *id)),
                    _ => None,
                });
            let files: Vec<(&String, FileId)> = files.collect();
            let (name, id) = *files.get(rng.index(files.len()))?;
            Some((
                Place {
                    dir,
                    name: name.clone(),
                },
                id,
            ))
        })
    }

    /// A name that is not yet used in some directory. Names come from a small
    /// set, so that they are used again after they have been removed.
    pub fn new_place(&self, rng: &mut Rng) -> Place {
        let dir = self.any_dir(rng);
        loop {
            let number = rng.below(1000);
            let padding = "x".repeat((mix64(number) % NAME_BYTES_MAX) as usize);
            let name = format!("{}{number}{padding}", self.prefix());
            if !self.dir(dir).entries.contains_key(&name) {
                return Place { dir, name };
            }
        }
    }

    pub fn add_file(&mut self, place: &Place) -> FileId {
        let id = self.files.len();
        self.files.push(Some(File {
            extents: Extents::default(),
            links: 0,
        }));
        self.live_files += 1;
        self.link(place, id);
        id
    }

    pub fn link(&mut self, place: &Place, id: FileId) {
        self.files[id].as_mut().expect("a live file").links += 1;
        self.insert(place, Entry::File(id));
    }

    pub fn add_symlink(&mut self, place: &Place, target: String) {
        self.insert(place, Entry::Symlink(target));
    }

    pub fn add_dir(&mut self, place: &Place) {
        let id = self.dirs.len();
        let Place { dir: parent, name } = place.clone();
        let new = Dir {
            parent,
            name,
            entries: BTreeMap::new(),
            shared: false,
        };
        self.dirs.push(Some(new));
        self.live_dirs += 1;
        self.insert(place, Entry::Dir(id));
    }

    fn insert(&mut self, place: &Place, entry: Entry) {
        let old = self
            .dir_mut(place.dir)
            .entries
            .insert(place.name.clone(), entry);
        assert!(old.is_none(), "the place was free");
    }

    /// Takes a name away, and the file with its last name.
    pub fn remove(&mut self, place: &Place) -> Entry {
        let entry = self
            .dir_mut(place.dir)
            .entries
            .remove(&place.name)
            .expect("it was there");
        if let Entry::File(id) = entry {
            let file = self.files[id].as_mut().expect("a live file");
            file.links -= 1;
            if file.links == 0 {
                self.files[id] = None;
                self.live_files -= 1;
            }
        }
        entry
    }

    pub fn remove_dir(&mut self, id: DirId) {
        let Dir {
            parent,
            name,
            entries,
            ..
        } = self.dirs[id].take().expect("a live directory");
        assert!(entries.is_empty());
        self.live_dirs -= 1;
        self.dir_mut(parent)
            .entries
            .remove(&name)
            .expect("it had a name");
    }

    /// Removes a directory with all that is in it; `out` gets the paths in the
    /// order in which they can be removed, and whether each is a directory.
    pub fn remove_tree(&mut self, id: DirId, out: &mut Vec<(String, bool)>) {
        let entries = self.dir(id).entries.clone();
        for (name, entry) in entries {
            let place = Place { dir: id, name };
            if let Entry::Dir(below) = entry {
                self.remove_tree(below, out);
            } else {
                out.push((self.path(&place), false));
                self.remove(&place);
            }
        }
        out.push((self.dir_path(id), true));
        self.remove_dir(id);
    }

    /// rename(2), over a file or link that may be there.
    pub fn rename(&mut self, from: &Place, to: &Place) {
        let entry = self
            .dir_mut(from.dir)
            .entries
            .remove(&from.name)
            .expect("it was there");
        if self.dir(to.dir).entries.contains_key(&to.name) {
            self.remove(to);
        }
        if let Entry::Dir(id) = entry {
            let dir = self.dir_mut(id);
            dir.parent = to.dir;
            dir.name.clone_from(&to.name);
        }
        self.insert(to, entry);
    }

    /// Where a directory hangs.
    pub fn place_of(&self, id: DirId) -> Place {
        let dir = self.dir(id);
        Place {
            dir: dir.parent,
            name: dir.name.clone(),
        }
    }
}

pub fn own_dir(thread: u32) -> String {
    format!("own-{thread}")
}

pub fn shared_dir(number: u32) -> String {
    format!("shared-{number}")
}

/// `-` ends it, so that thread 1's names are not taken for thread 12's.
pub fn prefix(thread: u32) -> String {
    format!("t{thread}-")
}
