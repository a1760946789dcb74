// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread does next. A choice changes the model at once; doing it to the
//! file system is another matter (`perform.rs`), and may be left out.

use super::extents::Extents;
use super::model::{DirId, Entry, FileId, Model, Place};
use super::Mix;
use crate::rng::Rng;

/// Bytes of one write, and what identifies its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: FileId,
    pub start: u64,
    pub end: u64,
    pub generation: u64,
}

/// One thing to do. Paths are below the load's directory.
#[derive(Clone, Debug)]
pub enum Act {
    Create {
        path: String,
        piece: Piece,
    },
    Write {
        path: String,
        piece: Piece,
    },
    Append {
        path: String,
        piece: Piece,
    },
    Truncate {
        path: String,
        bytes: u64,
    },
    Unlink {
        path: String,
    },
    /// The file is opened, loses its name, is written and read, and closed.
    UnlinkOpen {
        path: String,
        piece: Piece,
        file: FileId,
        extents: Extents,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// A directory with all that is in it: path, and whether it is a directory.
    RemoveTree {
        paths: Vec<(String, bool)>,
    },
    Fsync {
        path: String,
        data_only: bool,
    },
    /// Compare one directory, or one file, with the model.
    CheckDir(DirId),
    CheckFile {
        place: Place,
    },
}

/// How often each kind is tried, out of the sum.
const WEIGHTS: [(Kind, u64); 17] = [
    (Kind::Create, 20),
    (Kind::Write, 12),
    (Kind::Append, 12),
    (Kind::Truncate, 6),
    (Kind::Unlink, 12),
    (Kind::UnlinkOpen, 2),
    (Kind::Rename, 8),
    (Kind::RenameOver, 3),
    (Kind::RenameDir, 2),
    (Kind::Link, 4),
    (Kind::Symlink, 3),
    (Kind::Mkdir, 6),
    (Kind::Rmdir, 5),
    (Kind::RemoveTree, 1),
    (Kind::Fsync, 3),
    (Kind::CheckDir, 4),
    (Kind::CheckFile, 6),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Write,
    Append,
    Truncate,
    Unlink,
    UnlinkOpen,
    Rename,
    RenameOver,
    RenameDir,
    Link,
    Symlink,
    Mkdir,
    Rmdir,
    RemoveTree,
    Fsync,
    CheckDir,
    CheckFile,
}

/// A thread's model and the random numbers that drive it.
pub struct Planner<'a> {
    pub model: Model,
    mix: &'a Mix,
    rng: Rng,
    generation: u64,
}

impl<'a> Planner<'a> {
    pub fn new(mix: &'a Mix, thread: u32) -> Self {
        let model = Model::new(thread, mix.shared_dirs);
        Self {
            model,
            mix,
            rng: Rng::new(mix.seed, u64::from(thread)),
            generation: 0,
        }
    }

    /// The next thing to do; a kind that does not fit now is drawn again.
    pub fn next_act(&mut self) -> Act {
        loop {
            let kind = self.kind();
            if let Some(act) = self.choose(kind) {
                return act;
            }
        }
    }

    fn kind(&mut self) -> Kind {
        let sum = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = self.rng.below(sum);
        for (kind, weight) in WEIGHTS {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        unreachable!("the weights add up")
    }

    fn choose(&mut self, kind: Kind) -> Option<Act> {
        match kind {
            Kind::Create => self.create(),
            Kind::Write | Kind::Append => self.write(kind == Kind::Append),
            Kind::Truncate => self.truncate(),
            Kind::Unlink => self.unlink(),
            Kind::UnlinkOpen => self.unlink_open(),
            Kind::Rename => self.rename(),
            Kind::RenameOver => self.rename_over(),
            Kind::RenameDir => self.rename_dir(),
            Kind::Link => self.link(),
            Kind::Symlink => self.symlink(),
            Kind::Mkdir => self.mkdir(),
            Kind::Rmdir => self.rmdir(),
            Kind::RemoveTree => self.remove_tree(),
            Kind::Fsync => self.fsync(),
            Kind::CheckDir => Some(Act::CheckDir(self.model.any_dir(&mut self.rng))),
            Kind::CheckFile => {
                let (place, _) = self.model.any_file(&mut self.rng)?;
                Some(Act::CheckFile { place })
            }
        }
    }

    fn create(&mut self) -> Option<Act> {
        if self.model.file_count() >= self.mix.files_max as usize {
            return None;
        }
        let place = self.model.new_place(&mut self.rng);
        let file = self.model.add_file(&place);
        let length = self.length();
        let piece = self.piece(file, 0, length);
        Some(Act::Create {
            path: self.model.path(&place),
            piece,
        })
    }

    fn write(&mut self, append: bool) -> Option<Act> {
        let (place, file) = self.model.any_file(&mut self.rng)?;
        let size = self.model.file(file).extents.bytes();
        // A little past the end now and then, which leaves a hole.
        let start = if append {
            size
        } else {
            self.rng.below(size + size / 4 + 1)
        };
        let end = (start + self.length()).min(self.mix.file_bytes_max);
        if start >= end {
            return None;
        }
        let piece = self.piece(file, start, end);
        let path = self.model.path(&place);
        Some(if append {
            Act::Append { path, piece }
        } else {
            Act::Write { path, piece }
        })
    }

    fn truncate(&mut self) -> Option<Act> {
        let (place, file) = self.model.any_file(&mut self.rng)?;
        let size = self.model.file(file).extents.bytes();
        let bytes = self
            .rng
            .below(size + size / 4 + 1)
            .min(self.mix.file_bytes_max);
        self.model.extents_mut(file).truncate(bytes);
        Some(Act::Truncate {
            path: self.model.path(&place),
            bytes,
        })
    }

    fn unlink(&mut self) -> Option<Act> {
        let dir = self.model.any_dir(&mut self.rng);
        let entries = self.model.dir(dir).entries.iter();
        let names = entries.filter(|(_, entry)| !matches!(entry, Entry::Dir(_)));
        let names: Vec<&String> = names.map(|(name, _)| name).collect();
        let name = (*names.get(self.rng.index(names.len()))?).clone();
        let place = Place { dir, name };
        let path = self.model.path(&place);
        self.model.remove(&place);
        Some(Act::Unlink { path })
    }

    fn unlink_open(&mut self) -> Option<Act> {
        let (place, file) = self.model.any_file(&mut self.rng)?;
        if self.model.file(file).links != 1 {
            return None;
        }
        let start = self.rng.below(self.model.file(file).extents.bytes() + 1);
        let end = (start + self.length())
            .min(self.mix.file_bytes_max)
            .max(start);
        let piece = self.piece(file, start, end);
        let extents = self.model.file(file).extents.clone();
        let path = self.model.path(&place);
        self.model.remove(&place);
        Some(Act::UnlinkOpen {
            path,
            piece,
            file,
            extents,
        })
    }

    fn rename(&mut self) -> Option<Act> {
        let (from, _) = self.model.any_file(&mut self.rng)?;
        let to = self.model.new_place(&mut self.rng);
        Some(self.rename_act(&from, &to))
    }

    fn rename_over(&mut self) -> Option<Act> {
        let (from, one) = self.model.any_file(&mut self.rng)?;
        let (to, other) = self.model.any_file(&mut self.rng)?;
        // Two names of one file: rename(2) then does nothing, which is no test.
        (one != other).then(|| self.rename_act(&from, &to))
    }

    fn rename_dir(&mut self) -> Option<Act> {
        let id = self.model.any_movable_dir(&mut self.rng)?;
        let to = self.model.new_place(&mut self.rng);
        if self.model.is_within(to.dir, id) {
            return None;
        }
        let from = self.model.place_of(id);
        Some(self.rename_act(&from, &to))
    }

    fn rename_act(&mut self, from: &Place, to: &Place) -> Act {
        let act = Act::Rename {
            from: self.model.path(from),
            to: self.model.path(to),
        };
        self.model.rename(from, to);
        act
    }

    fn link(&mut self) -> Option<Act> {
        let (from, file) = self.model.any_file(&mut self.rng)?;
        let to = self.model.new_place(&mut self.rng);
        self.model.link(&to, file);
        Some(Act::Link {
            from: self.model.path(&from),
            to: self.model.path(&to),
        })
    }

    fn symlink(&mut self) -> Option<Act> {
        let place = self.model.new_place(&mut self.rng);
        // Short targets are kept in the inode, long ones in a block.
        let target = format!("target-{}", "y".repeat(self.rng.index(200)));
        self.model.add_symlink(&place, target.clone());
        Some(Act::Symlink {
            path: self.model.path(&place),
            target,
        })
    }

    fn mkdir(&mut self) -> Option<Act> {
        if self.model.dir_count() >= self.mix.dirs_max as usize {
            return None;
        }
        let place = self.model.new_place(&mut self.rng);
        self.model.add_dir(&place);
        Some(Act::Mkdir {
            path: self.model.path(&place),
        })
    }

    fn rmdir(&mut self) -> Option<Act> {
        let id = self.model.any_empty_dir(&mut self.rng)?;
        let path = self.model.dir_path(id);
        self.model.remove_dir(id);
        Some(Act::Rmdir { path })
    }

    fn remove_tree(&mut self) -> Option<Act> {
        let id = self.model.any_movable_dir(&mut self.rng)?;
        let mut paths = Vec::new();
        self.model.remove_tree(id, &mut paths);
        Some(Act::RemoveTree { paths })
    }

    fn fsync(&mut self) -> Option<Act> {
        let (place, _) = self.model.any_file(&mut self.rng)?;
        let data_only = self.rng.below(2) == 0;
        Some(Act::Fsync {
            path: self.model.path(&place),
            data_only,
        })
    }

    /// Length of a write: mostly short, sometimes as long as allowed.
    fn length(&mut self) -> u64 {
        let max = match self.rng.below(8) {
            0 => self.mix.write_bytes_max,
            1..=3 => 16 << 10,
            _ => 4096,
        };
        1 + self.rng.below(max.min(self.mix.write_bytes_max))
    }

    fn piece(&mut self, file: FileId, start: u64, end: u64) -> Piece {
        self.generation += 1;
        self.model
            .extents_mut(file)
            .write(start, end, self.generation);
        Piece {
            file,
            start,
            end,
            generation: self.generation,
        }
    }
}
