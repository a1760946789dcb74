// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be there after a power cut: what was promised is; names are as after some later step; each file is the
//! beginning of what it became; and what was recovered goes on working.

use super::config::{Config, Load};
use super::model::{File, Id};
use super::power::Cuts;
use super::random::{Random, Text};
use super::reach::Reach;
use super::rings::first_kept;
use super::sim::{Actions, Sim};
use super::steps::assert_same;
use super::story::{number_of, Named, Promise, Story, What};
use safs::format::{FileType, Ino, Inode};
use safs::{Error, FileSystem, Owner};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes read at a time.
const PIECE: u64 = 4 << 20;
/// Of a larger file only the beginning, what came last, and some pieces between are read.
const WHOLE: u64 = 256 << 20;
const LAST: u64 = 80 << 20;

/// What a story says of a cut.
pub struct Verdict<'a> {
    pub story: &'a Story,
    kept: Vec<Promise>,
    reached: usize,
}

impl<'a> Verdict<'a> {
    pub fn new(story: &'a Story, cut: usize) -> Self {
        let kept = story
            .promises
            .iter()
            .filter(|promise| promise.actions <= cut);
        // The step that was interrupted may have been done.
        let begun = story.ends.partition_point(|(actions, _)| *actions <= cut);
        Verdict {
            story,
            kept: kept.copied().collect(),
            reached: begun.min(story.ends.len() - 1),
        }
    }

    pub fn verify(&self, fs: &mut FileSystem<Sim>, random: &mut Random, reach: &mut Reach) {
        reach.promises += self.kept.len() as u64;
        let (names, files) = self.walk(fs);
        let last = self
            .kept
            .iter()
            .map(|promise| promise.step)
            .max()
            .unwrap_or(0);
        let mut candidates = self.story.ends[last..=self.reached].iter();
        let is_there = candidates.any(|(_, known)| known.is_none_or(|known| known == names));
        assert!(
            is_there,
            "names are as after no step from {last} to {}",
            self.reached
        );
        for ino in files {
            self.verify_file(fs, ino, random, reach);
        }
        for ring in self.story.rings.iter().filter(|ring| ring.is_directory) {
            self.verify_ring(fs, ring.id, ring.kept, random, reach);
        }
    }

    /// A number for all names and attributes, and the regular files that have names.
    fn walk(&self, fs: &mut FileSystem<Sim>) -> (u64, BTreeSet<Ino>) {
        let mut files = BTreeSet::new();
        let mut sum = 0u64;
        let mut waiting = vec![Ino(1)];
        while let Some(directory) = waiting.pop() {
            if self.is_ring_directory(directory) {
                continue;
            }
            for entry in fs.entries(directory, 0, usize::MAX).unwrap() {
                // What was written to see whether it works.
                if entry.name.starts_with(b"new ") {
                    continue;
                }
                let inode = fs.attributes(entry.ino).unwrap();
                sum = sum.wrapping_add(self.number(fs, directory, &entry.name, entry.ino, &inode));
                match entry.file_type {
                    FileType::Directory => waiting.push(entry.ino),
                    FileType::Regular => drop(files.insert(entry.ino)),
                    _ => {}
                }
            }
        }
        (sum, files)
    }

    fn is_ring_directory(&self, ino: Ino) -> bool {
        let mut rings = self.story.rings.iter().filter(|ring| ring.is_directory);
        rings.any(|ring| self.story.inos[&ring.id] == ino)
    }

    fn number(
        &self,
        fs: &mut FileSystem<Sim>,
        directory: Ino,
        name: &[u8],
        ino: Ino,
        inode: &Inode,
    ) -> u64 {
        let names = fs.xattrs(ino).unwrap();
        let names = names
            .into_iter()
            .filter(|name| !name.starts_with(b"user.safs."));
        let xattrs: Vec<(Vec<u8>, Vec<u8>)> = names
            .map(|name| {
                let value = fs.xattr(ino, &name).unwrap();
                (name, value)
            })
            .collect();
        let link = match inode.file_type {
            FileType::Symlink => fs.read_link(ino).unwrap(),
            _ => Vec::new(),
        };
        number_of(&Named {
            directory: directory.0,
            name,
            ino: ino.0,
            kind: inode.file_type as u8,
            permissions: inode.permissions,
            owner: (inode.uid, inode.gid),
            nlink: inode.nlink,
            xattrs: xattrs
                .iter()
                .map(|(name, value)| (&name[..], &value[..]))
                .collect(),
            link: &link,
        })
    }

    /// What a file was after the last step at which it, or everything, was made durable.
    fn promised(&self, id: Id) -> Option<&'a File> {
        let covers =
            |promise: &&Promise| promise.what == What::All || promise.what == What::One(id);
        let step = self
            .kept
            .iter()
            .filter(covers)
            .map(|promise| promise.step)
            .max()?;
        let known = &self.story.files[&id];
        let behind = known.partition_point(|(at, _)| *at <= step);
        known[..behind].last().map(|(_, file)| file)
    }

    fn verify_file(
        &self,
        fs: &mut FileSystem<Sim>,
        ino: Ino,
        random: &mut Random,
        reach: &mut Reach,
    ) {
        let Some(id) = self.story.ids.get(&ino).copied() else {
            let is_last = self.reached + 1 == self.story.ends.len();
            assert!(is_last, "inode {} was never made", ino.0);
            return;
        };
        let inode = fs.attributes(ino).unwrap();
        let known = &self.story.files[&id];
        let behind = known.partition_point(|(at, _)| *at <= self.reached);
        let known: Vec<&File> = known[..behind].iter().map(|(_, file)| file).collect();
        let empty = File::new(known[0].grain);
        let promised = self.promised(id).unwrap_or(&empty);
        let newest = known.iter().map(|file| file.generation).max().unwrap_or(0);
        let is_enough = |file: &&&File| {
            let is_cut = newest > promised.generation;
            file.generation >= promised.generation
                && file.written >= inode.written
                && (file.generation > promised.generation
                    || is_cut
                    || inode.written >= promised.written)
        };
        let candidates: Vec<&File> = known.iter().filter(is_enough).copied().collect();
        assert!(
            !candidates.is_empty(),
            "inode {}: {} bytes are there, {} were promised",
            ino.0,
            inode.written,
            promised.written
        );
        self.verify_head(id, &inode, &candidates, promised);
        self.verify_bytes(fs, (ino, id), &inode, &candidates, random, reach);
        let sizes = known
            .iter()
            .filter(|file| file.generation >= promised.generation);
        let mut sizes = sizes.map(|file| file.extended.max(inode.written));
        assert!(
            inode.size == inode.written || sizes.any(|size| size == inode.size),
            "inode {}: a size of {} was never set",
            ino.0,
            inode.size
        );
    }

    fn verify_head(&self, id: Id, inode: &Inode, candidates: &[&File], promised: &File) {
        let ring = self.story.rings.iter().find(|ring| ring.id == id);
        let most = candidates.iter().map(|file| file.head).max().unwrap_or(0);
        // A ring may have turned since, too.
        let most = ring.map_or(most, |ring| {
            most.max(inode.written.saturating_sub(ring.kept))
        });
        assert!(
            inode.head <= most,
            "{} bytes are given up, not {most}",
            inode.head
        );
        if candidates
            .iter()
            .all(|file| file.generation == promised.generation)
        {
            assert!(
                inode.head >= promised.head,
                "what was given up is there again"
            );
        }
    }

    /// What is there has to be the beginning of one and the same of the candidates.
    fn verify_bytes(
        &self,
        fs: &mut FileSystem<Sim>,
        (ino, id): (Ino, Id),
        inode: &Inode,
        candidates: &[&File],
        random: &mut Random,
        reach: &mut Reach,
    ) {
        let mut left: Vec<(File, Text)> = Vec::new();
        for file in candidates {
            let text = Text::new(self.story.seed, id, file.generation, file.grain);
            let mut file = File {
                written: inode.written,
                extended: inode.size,
                head: inode.head,
                ..(*file).clone()
            };
            file.holes.retain(|(from, _)| *from < inode.written);
            if !left.iter().any(|(other, _)| *other == file) {
                left.push((file, text));
            }
        }
        let mut at = 0;
        while at < inode.size {
            let count = (inode.size - at).min(PIECE);
            let is_between = inode.size > WHOLE && at > PIECE && at + LAST < inode.size;
            if !(is_between && random.below(16) > 0) {
                let read = fs.read(ino, at, count as usize).unwrap();
                reach.bytes_compared += count;
                if left.len() > 1 {
                    left.retain(|(file, text)| file.expected(text, at, count as usize) == read);
                    assert!(
                        !left.is_empty(),
                        "inode {}: bytes at {at} are the beginning of nothing",
                        ino.0
                    );
                } else {
                    let (file, text) = &left[0];
                    assert_same(&read, &file.expected(text, at, count as usize), at);
                }
            }
            at += count;
        }
    }

    /// Of a ring directory the youngest files are there, and of these all that have to be.
    fn verify_ring(
        &self,
        fs: &mut FileSystem<Sim>,
        ring: Id,
        kept: u64,
        random: &mut Random,
        reach: &mut Reach,
    ) {
        let Some(ino) = self.story.inos.get(&ring) else {
            return;
        };
        let Ok(found) = fs.entries(*ino, 0, usize::MAX) else {
            return;
        };
        let made = &self.story.ring_files[&ring];
        let made = &made[..made.partition_point(|(step, _)| *step <= self.reached)];
        let found: Vec<Ino> = found.into_iter().map(|entry| entry.ino).collect();
        let last = self
            .kept
            .iter()
            .map(|promise| promise.step)
            .max()
            .unwrap_or(0);
        // Found are some that follow each other; the last that was promised, or a later one, ends them.
        let of = |ino: &Ino| {
            made.iter()
                .position(|(_, id)| self.story.inos.get(id) == Some(ino))
        };
        let places: Vec<usize> = found
            .iter()
            .map(|ino| of(ino).expect("a file of the ring"))
            .collect();
        assert!(
            places.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{places:?}: some are missing"
        );
        let promised = made.partition_point(|(step, _)| *step <= last);
        assert!(
            places.last().map_or(0, |last| last + 1) >= promised,
            "the newest files of a ring are missing"
        );
        let sizes = made.iter().map(|(_, id)| {
            let known = &self.story.files[id];
            let behind = known.partition_point(|(at, _)| *at <= self.reached);
            // What was forgotten and is still open may have been truncated since.
            known[..behind]
                .iter()
                .map(|(_, file)| file.written)
                .max()
                .unwrap_or(0)
        });
        let sizes: Vec<u64> = sizes.collect();
        if let Some(first) = places.first() {
            let most = first_kept(&sizes, kept);
            assert!(
                *first <= most,
                "{first} of {sizes:?} are gone, of which {most} may be: {kept} bytes are kept"
            );
        }
        for ino in found {
            self.verify_file(fs, ino, random, reach);
        }
    }
}

pub fn mounted(device: Sim, story: &Story, now_ns: i64) -> FileSystem<Sim> {
    FileSystem::mount(device, story.options.clone(), now_ns)
        .expect("what a power cut left can be mounted")
}

pub fn assert_sound(fs: &mut FileSystem<Sim>, data: bool) {
    let report = fs.check(data, |_| ()).expect("the catalog can be read");
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Mounts what a cut left, looks at it, works on, cuts that, and looks again.
pub fn survive(
    config: Config,
    story: &Story,
    cut: usize,
    device: &Sim,
    random: &mut Random,
    reach: &mut Reach,
) -> Option<u64> {
    let is_large = matches!(config.load, Load::Giga | Load::Large);
    let verdict = Verdict::new(story, cut);
    let actions = Actions::default();
    let mut fs = mounted(device.clone().recorded(&actions), story, 2);
    assert_eq!(fs.refusal(), None);
    assert_sound(&mut fs, !is_large);
    verdict.verify(&mut fs, random, reach);
    work_on(&mut fs, story.seed);
    reach.take(&fs.counters());
    drop(fs);
    let actions = Rc::try_unwrap(actions)
        .ok()
        .expect("the file system is gone")
        .into_inner();
    reach.states += 1;
    if is_large && random.below(4) > 0 {
        return None;
    }
    // The power fails again, anywhere in recovery and what came after.
    let again = random.below(1 + actions.len() as u64) as usize;
    let device = Cuts::new(device, &actions).at(again, random);
    let number = device.digest();
    let mut fs = mounted(device, story, 3);
    assert_sound(&mut fs, !is_large);
    verdict.verify(&mut fs, random, reach);
    reach.states += 1;
    reach.nested += 1;
    if random.one_in(16) {
        delete_all(&mut fs);
    }
    work_on(&mut fs, story.seed);
    if random.one_in(2) {
        let device = fs.unmount().expect("unmounting always works");
        let mut fs = mounted(device, story, 4);
        assert_sound(&mut fs, !is_large);
    }
    Some(number)
}

/// Appends, and reads it back; if nothing fits, something can be deleted and made durable.
fn work_on(fs: &mut FileSystem<Sim>, seed: u64) {
    let name = format!("new {}", fs.counters().segments);
    let name = name.as_bytes();
    let ino = match fs.create(Ino(1), name, FileType::Regular, Owner::default(), 0) {
        Err(Error::Exists) => fs.lookup(Ino(1), name).unwrap(),
        Err(Error::NoSpace) => return fs.sync().unwrap(),
        other => other.unwrap(),
    };
    let end = fs.attributes(ino).unwrap().size;
    let data = Text::new(seed, ino.0, end, super::random::Grain::Fine).bytes(end, 9000);
    match fs.write(ino, end, &data) {
        Err(Error::NoSpace) => {
            fs.unlink(Ino(1), name).expect("deleting always works");
            return fs.sync().expect("what was accepted can be made durable");
        }
        other => other.unwrap(),
    }
    fs.fsync(ino).unwrap();
    assert_eq!(fs.read(ino, end, 10_000).unwrap(), data);
    assert_sound(fs, false);
}

/// Everything can be deleted, and then there is room.
fn delete_all(fs: &mut FileSystem<Sim>) {
    let mut waiting = vec![Ino(1)];
    let mut directories = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs.entries(directory, 0, usize::MAX).unwrap() {
            match entry.file_type {
                FileType::Directory => {
                    waiting.push(entry.ino);
                    directories.push((directory, entry.name));
                }
                _ => fs
                    .unlink(directory, &entry.name)
                    .expect("deleting always works"),
            }
        }
    }
    for (parent, name) in directories.iter().rev() {
        fs.remove_directory(*parent, name)
            .expect("deleting always works");
    }
    fs.sync().unwrap();
    let made = fs.create(
        Ino(1),
        b"new after all",
        FileType::Regular,
        Owner::default(),
        0,
    );
    let ino = made.expect("there is room when everything is deleted");
    fs.write(ino, 0, &vec![7; 100_000])
        .expect("there is room when everything is deleted");
    fs.fsync(ino).unwrap();
    assert_sound(fs, true);
}
