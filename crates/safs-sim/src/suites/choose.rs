// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which step comes next: chosen with knowledge of the model, so that most of them do something. Names are few, so that
//! they meet.

use super::config::Load;
use super::model::{Content, Id, Model, Node};
use super::random::{Grain, Random};
use super::steps::{Pair, Step};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Nobody sets the wall clock.
pub static STEADY: AtomicBool = AtomicBool::new(false);

/// How often, of a hundred steps: new files, writes, deletions, syncs; the rest is everything else.
fn weights(load: Load, was_refused: bool) -> [u64; 4] {
    match load {
        Load::Full if was_refused => [5, 25, 50, 5],
        Load::Full => [12, 52, 6, 8],
        Load::Extents => [1, 88, 1, 4],
        Load::Rings => [22, 50, 3, 5],
        Load::Large => [5, 65, 3, 6],
        Load::Giga => [2, 80, 2, 4],
        Load::Mixed | Load::Errors => [10, 38, 6, 8],
    }
}

struct Choice<'a> {
    random: &'a mut Random,
    pair: &'a Pair,
    load: Load,
    /// With a name, the root included.
    named: Vec<Id>,
    directories: Vec<Id>,
    /// Files that can be written: with a name, or open.
    files: Vec<Id>,
}

pub fn choose(random: &mut Random, pair: &Pair, load: Load, was_refused: bool) -> Step {
    let is_ring = |id: &Id| pair.rings.iter().any(|ring| ring.id == *id);
    let in_ring = |id: &Id| {
        let mut rings = pair.rings.iter().filter(|ring| ring.is_directory);
        rings.any(|ring| {
            pair.model
                .directory(ring.id)
                .is_ok_and(|entries| entries.values().any(|child| child == id))
        })
    };
    let pick = |suits: &dyn Fn(&Node) -> bool| -> Vec<Id> {
        let nodes = pair.model.nodes.iter().filter(|(_, node)| suits(node));
        let ids = nodes.map(|(id, _)| *id);
        ids.filter(|id| !is_ring(id) && !in_ring(id)).collect()
    };
    let is_directory = |node: &Node| matches!(node.content, Content::Directory(_));
    let is_file = |node: &Node| matches!(node.content, Content::File(_));
    let mut choice = Choice {
        named: pick(&|node| node.nlink > 0),
        directories: pick(&|node| is_directory(node) && node.nlink > 0),
        files: pick(&|node| is_file(node)),
        random,
        pair,
        load,
    };
    if load == Load::Rings && choice.random.below(10) < 7 {
        return choice.ring();
    }
    let [create, write, delete, sync] = weights(load, was_refused);
    let roll = choice.random.below(100);
    if roll < create || choice.files.is_empty() {
        choice.create()
    } else if roll < create + write {
        choice.write()
    } else if roll < create + write + delete {
        choice.delete()
    } else if roll < create + write + delete + sync {
        choice.sync()
    } else {
        choice.other()
    }
}

impl Choice<'_> {
    fn name(&mut self) -> Vec<u8> {
        let most = match self.load {
            Load::Full => 24,
            Load::Extents | Load::Large | Load::Giga => 4,
            _ => 8,
        };
        format!("name{}", self.random.below(most)).into_bytes()
    }

    fn directory(&mut self) -> Id {
        *self.random.pick(&self.directories)
    }

    fn file(&mut self) -> Id {
        // The oldest grows the most.
        if self.load == Load::Extents && self.random.below(3) > 0 {
            return self.files[0];
        }
        *self.random.pick(&self.files)
    }

    fn any(&mut self) -> Id {
        *self.random.pick(&self.named)
    }

    fn model(&self) -> &Model {
        &self.pair.model
    }

    fn create(&mut self) -> Step {
        let grain = match self.load {
            Load::Large | Load::Giga => Grain::Coarse,
            _ => Grain::Fine,
        };
        Step::Create(self.directory(), self.name(), grain)
    }

    fn length(&mut self) -> u64 {
        let random = &mut *self.random;
        match self.load {
            Load::Extents => 4096 * (1 + random.below(2)),
            Load::Large => {
                [4096, 1 << 20, 4 << 20, 16 << 20][random.below(4) as usize] + random.below(2) * 100
            }
            Load::Giga => (16 << 20) + random.below(80 << 20),
            _ => match random.below(9) {
                0..=2 => 1 + random.below(300),
                3..=5 => 4096 * (1 + random.below(6)),
                6 => 1 + random.below(40_000),
                7 => 1 + random.below(120_000),
                _ => {
                    1 + random.below(if self.load == Load::Full {
                        600_000
                    } else {
                        200_000
                    })
                }
            },
        }
    }

    fn write(&mut self) -> Step {
        let id = self.file();
        if self.load == Load::Extents && self.random.one_in(30) {
            return self.delete();
        }
        let node = &self.model().nodes[&id];
        // Whoever writes has opened it; what is not open is written now and then by tools.
        if node.handles == 0 && self.random.below(4) > 0 {
            return Step::Open(id);
        }
        let file = self.model().file(id).unwrap();
        let (written, size) = (file.written, file.size());
        let hole = file.holes.last().copied();
        let bytes = self.length();
        let offset = match self.random.below(24) {
            0 => written.saturating_sub(1 + self.random.below(5000)),
            1 => size + self.random.below(200_000),
            2 => written.next_multiple_of(4096) + 4096 * self.random.below(4),
            3 | 4 => size,
            5 => match hole {
                // Into what was skipped, from its start on.
                Some((from, to)) => return Step::Write(id, from, bytes.min(to - from)),
                None => written,
            },
            _ => written,
        };
        let is_sync = match self.load {
            Load::Extents => self.random.below(10) < 9,
            _ => self.random.one_in(8),
        };
        match is_sync {
            true => Step::WriteSync(id, offset, bytes),
            false => Step::Write(id, offset, bytes),
        }
    }

    /// A name that is there, mostly.
    fn some_name(&mut self) -> (Id, Vec<u8>) {
        let parent = self.directory();
        let rings: Vec<Id> = self.pair.rings.iter().map(|ring| ring.id).collect();
        let entries = self.model().directory(parent).unwrap();
        let names = entries.iter().filter(|(_, id)| !rings.contains(id));
        let names: Vec<Vec<u8>> = names.map(|(name, _)| name.clone()).collect();
        match names.is_empty() || self.random.one_in(10) {
            true => (parent, self.name()),
            false => (parent, self.random.pick(&names).clone()),
        }
    }

    fn delete(&mut self) -> Step {
        let file = self.file();
        if !matches!(self.load, Load::Extents | Load::Giga) && self.random.one_in(5) {
            return Step::Truncate(file, 0);
        }
        // What has many extents goes now and then, too, and is cut meanwhile.
        if self.load == Load::Extents
            && self
                .model()
                .file(file)
                .is_some_and(|file| file.written > 480 * 4096)
        {
            return Step::Truncate(file, 0);
        }
        let (parent, name) = self.some_name();
        let entries = self.model().directory(parent).unwrap();
        let child = entries.get(&name).copied();
        let is_directory = child.is_some_and(|id| self.model().is_directory(id));
        // Until then nothing deletes it: whether a story has a file of many extents is not left to chance.
        if self.load == Load::Extents && child.is_some() && child == self.files.first().copied() {
            return self.sync();
        }
        match is_directory && self.random.below(4) > 0 {
            true => Step::RemoveDirectory(parent, name),
            false => Step::Unlink(parent, name),
        }
    }

    fn sync(&mut self) -> Step {
        match self.random.below(8) {
            0 => Step::Sync,
            1 => Step::Fsync(1),
            _ => Step::Fsync(self.any()),
        }
    }

    fn other(&mut self) -> Step {
        match self.random.below(30) {
            0 | 1 => Step::MakeDirectory(self.directory(), self.name()),
            2 => {
                let count = 1 + self.random.below(300) as usize;
                Step::Symlink(self.directory(), self.name(), self.random.bytes(count))
            }
            3 => Step::Fifo(self.directory(), self.name()),
            4 | 5 => {
                let id = self.any();
                Step::Link(id, self.directory(), self.name())
            }
            6..=11 => self.rename(),
            12..=14 => {
                let count = self.random.below(3000) as usize;
                Step::Xattr(self.any(), self.name(), self.random.bytes(count))
            }
            15 => Step::RemoveXattr(self.any(), self.name()),
            16 => Step::Permissions(self.any(), self.random.below(0o10000) as u32),
            17 => Step::Owner(
                self.any(),
                self.random.below(9) as u32,
                self.random.below(9) as u32,
            ),
            18 => {
                let id = self.file();
                let written = self.model().file(id).unwrap().written;
                Step::Head(id, self.random.below(1 + written))
            }
            19 | 20 => {
                let id = self.file();
                let size = self.model().file(id).unwrap().size();
                let count = 1 + self.random.below(70_000) as usize;
                Step::Read(id, self.random.below(size + 100), count)
            }
            21 => {
                let id = self.file();
                let size = self.model().file(id).unwrap().size();
                Step::Truncate(id, (size + self.random.below(20_000)).saturating_sub(2000))
            }
            22 => Step::Open(self.file()),
            23 | 24 => self.release(),
            25 => Step::Root,
            26 => Step::Compact,
            27 => match self.random.below(4) {
                0 => Step::Remount,
                _ if STEADY.load(Relaxed) => Step::Sync,
                _ => Step::Clock([3600, -3600, 7, -7][self.random.below(4) as usize]),
            },
            _ => self.delete(),
        }
    }

    fn rename(&mut self) -> Step {
        let (from, name) = self.some_name();
        let (to, taken) = self.some_name();
        match self.random.below(6) {
            0 | 1 => Step::Exchange(from, name, to, taken),
            2 => Step::RenameNew(from, name, to, self.name()),
            3 => Step::Rename(from, name, to, taken),
            _ => Step::Rename(from, name, to, self.name()),
        }
    }

    fn release(&mut self) -> Step {
        let open = |id: &&Id| self.model().nodes[*id].handles > 0;
        let open: Vec<Id> = self.files.iter().filter(open).copied().collect();
        match open.is_empty() {
            true => Step::Sync,
            false => Step::Release(*self.random.pick(&open)),
        }
    }

    /// Grows a ring, as a recorder does.
    fn ring(&mut self) -> Step {
        let ring = *self.random.pick(&self.pair.rings);
        let bytes = 1 + self.random.below(90_000);
        if !ring.is_directory {
            let written = self.model().file(ring.id).unwrap().written;
            return match self.random.one_in(12) {
                true => Step::Fsync(ring.id),
                false => Step::Write(ring.id, written, bytes),
            };
        }
        let newest = self
            .model()
            .directory(ring.id)
            .unwrap()
            .values()
            .max()
            .copied();
        match newest {
            Some(id) if self.random.below(3) > 0 => {
                let node = &self.model().nodes[&id];
                let written = self.model().file(id).unwrap().written;
                match (node.handles, self.random.below(6)) {
                    (0, 0..=3) => Step::Open(id),
                    (1.., 0) => Step::Release(id),
                    (_, 5) => Step::WriteSync(id, written, bytes),
                    _ => Step::Write(id, written, bytes),
                }
            }
            _ => {
                let name = format!("part{}", self.model().next).into_bytes();
                Step::Create(ring.id, name, Grain::Fine)
            }
        }
    }
}
