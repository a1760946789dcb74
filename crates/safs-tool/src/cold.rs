// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of what a retention gives up, in a directory of the host that the mount's option names, and nothing else does:
//! copied, flushed, read again and compared, and only then forgotten.
//!
//! Nobody but root gets at the copies. Below the directory, which is opened before the mount, no symbolic link is followed,
//! and nothing is written over but the beginning of the same copy: it is `UUID/ring-INODE/INODE-NAME`.

use crate::fuse::{locked, now_ns, Shared};
use rustix::fs::{
    fadvise, fsync, mkdirat, openat, renameat, renameat_with, unlinkat, Advice, AtFlags, Mode,
    OFlags, RenameFlags, Timespec, Timestamps, CWD,
};
use rustix::io::Errno;
use safs::{FileSystem, Spent};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use zoned::ZonedDevice;

/// Bytes copied at a time: so long others wait for the lock.
const PIECE_BYTES: usize = 1 << 20;
/// Longest name of a copy in bytes, without what tells several of one name apart.
const NAME_MAX: usize = 250;
/// Copies of one name.
const NAMES_MAX: u32 = 999;
/// What is being copied.
const PART: &str = "part";

/// Where copies go.
pub struct Cold {
    directory: OwnedFd,
}

impl Cold {
    /// Opens the directory.
    pub fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty());
        let directory = directory.map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Cold { directory })
    }

    /// The directory, for those who confine the program to it.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Sends everything that is spent and is to be copied first. A sentence for each that failed; it stays.
pub fn send_all<D: ZonedDevice>(shared: &Shared<D>, cold: Option<&Cold>) -> Vec<String> {
    let spent = with(shared, |fs| {
        fs.set_time(now_ns());
        match fs.refusal() {
            Some(_) => Ok(Vec::new()),
            None => fs.spent(),
        }
    });
    let spent = match spent {
        Ok(spent) => spent.into_iter().filter(|one| one.is_copied),
        Err(why) => return vec![why],
    };
    let Some(cold) = cold else {
        let waiting = spent.count();
        let sentence =
            format!("{waiting} pieces are to be copied before they go: mount with cold=DIRECTORY");
        return if waiting > 0 {
            vec![sentence]
        } else {
            Vec::new()
        };
    };
    let sent = spent.map(|one| {
        send(shared, &one, cold).map_err(|why| format!("a copy of inode {}: {why}", one.ino.0))
    });
    sent.filter_map(Result::err).collect()
}

fn send<D: ZonedDevice>(shared: &Shared<D>, spent: &Spent, cold: &Cold) -> Result<(), String> {
    let failed = |why: Errno| why.to_string();
    // What is still being written is not complete.
    if spent.entry.is_some() && with(shared, |fs| Ok(fs.is_open(spent.ino)))? {
        return Ok(());
    }
    let uuid = with(shared, |fs| Ok(u128::from_be_bytes(fs.superblock().uuid)))?;
    let ring = spent
        .entry
        .as_ref()
        .map_or(spent.ino, |(parent, _)| *parent);
    let volume = below(cold.directory(), &format!("{uuid:032x}")).map_err(failed)?;
    let ring = below(volume.as_fd(), &format!("ring-{}", ring.0)).map_err(failed)?;
    let copy = copy(shared, spent, ring.as_fd())?;
    compare(shared, spent, copy)?;
    publish(shared, spent, ring.as_fd())?;
    fsync(&ring).map_err(failed)?;
    with(shared, |fs| fs.forget(spent))
}

/// Gives a copy its name, or the next one that is not taken.
fn publish<D: ZonedDevice>(
    shared: &Shared<D>,
    spent: &Spent,
    ring: BorrowedFd,
) -> Result<(), String> {
    let failed = |why: Errno| why.to_string();
    let plain = name(spent);
    for number in 1..=NAMES_MAX {
        let mut to = plain.clone();
        if number > 1 {
            to.extend(format!(".{number}").bytes());
        }
        match renameat_with(ring, PART, ring, &to, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            renamed => return renamed.map_err(failed),
        }
        // It is ours, if the power failed before the file was forgotten. The file may have grown since.
        let earlier = open(ring, &to, OFlags::RDONLY);
        if earlier.is_ok_and(|earlier| is_start(shared, spent, earlier)) {
            return renameat(ring, PART, ring, &to).map_err(failed);
        }
    }
    Err("all of its names are taken".into())
}

/// A directory, made if need be, that is no symbolic link.
fn below(parent: BorrowedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => fsync(parent)?,
        Err(Errno::EXIST) => {}
        Err(why) => return Err(why),
    }
    open(parent, name.as_bytes(), OFlags::DIRECTORY)
}

fn open(parent: BorrowedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
}

/// Copies to a new file, which is durable then.
fn copy<D: ZonedDevice>(
    shared: &Shared<D>,
    spent: &Spent,
    ring: BorrowedFd,
) -> Result<File, String> {
    let failed = |why: std::io::Error| why.to_string();
    match unlinkat(ring, PART, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(why) => return Err(why.to_string()),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let mut file = File::from(open(ring, PART.as_bytes(), flags).map_err(|why| why.to_string())?);
    each_piece(shared, spent, |piece| file.write_all(piece).map_err(failed))?;
    let ns = with(shared, |fs| Ok(fs.attributes(spent.ino)?.mtime_ns))?;
    let time = Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::futimens(&file, &times).map_err(|why| why.to_string())?;
    file.sync_all().map_err(failed)?;
    Ok(file)
}

/// Compares a copy, from its medium, with what it is to be a copy of.
fn compare<D: ZonedDevice>(
    shared: &Shared<D>,
    spent: &Spent,
    mut copy: File,
) -> Result<(), String> {
    // Only advice: without it the comparison may be with the host's memory.
    let _ = fadvise(&copy, 0, None, Advice::DontNeed);
    std::io::Seek::rewind(&mut copy).map_err(|why| why.to_string())?;
    let mut found = Vec::new();
    each_piece(shared, spent, |piece| {
        found.resize(piece.len(), 0);
        copy.read_exact(&mut found).map_err(|why| why.to_string())?;
        match found == piece {
            true => Ok(()),
            false => Err("it is not what was copied".into()),
        }
    })
}

/// Whether what is there under a copy's name is the beginning of what is copied.
fn is_start<D: ZonedDevice>(shared: &Shared<D>, spent: &Spent, earlier: OwnedFd) -> bool {
    let earlier = File::from(earlier);
    let bytes = earlier.metadata().map_or(u64::MAX, |found| found.len());
    let mut start = spent.clone();
    start.to = spent.from.saturating_add(bytes);
    start.to <= spent.to && compare(shared, &start, earlier).is_ok()
}

/// A copy's name: of a file of a ring directory its number and its name, of a ring file which bytes they are.
fn name(spent: &Spent) -> Vec<u8> {
    let mut name = match &spent.entry {
        Some((_, name)) => [format!("{:012}-", spent.ino.0).as_bytes(), name].concat(),
        None => format!("{:020}-{:020}", spent.from, spent.to).into(),
    };
    name.truncate(NAME_MAX);
    name
}

fn each_piece<D: ZonedDevice>(
    shared: &Shared<D>,
    spent: &Spent,
    mut act: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut at = spent.from;
    while at < spent.to {
        let bytes =
            usize::try_from(spent.to - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let piece = with(shared, |fs| fs.read(spent.ino, at, bytes))?;
        if piece.is_empty() {
            return Err(format!("it ends at byte {at}"));
        }
        act(&piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn with<D: ZonedDevice, T>(
    shared: &Shared<D>,
    act: impl FnOnce(&mut FileSystem<D>) -> safs::Result<T>,
) -> Result<T, String> {
    let mut guard = locked(shared);
    let fs = guard.as_mut().ok_or("it was unmounted")?;
    act(fs).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use safs::format::{FileType, Ino};
    use safs::{make, MakeOptions, Options, Owner, XattrMode, RETAIN_ATTRIBUTE};
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};
    use tempfile::TempDir;
    use zoned::RamDevice;

    type Fs = Shared<RamDevice>;

    fn mounted() -> Fs {
        let make_options = MakeOptions {
            uuid: [1; 16],
            label: [0; 64],
            now_ns: 0,
        };
        let device = make(RamDevice::new(8, 30, 2048), make_options, |_| ()).unwrap();
        let fs = FileSystem::mount(device, Options::default(), 0).unwrap();
        Arc::new(Mutex::new(Some(fs)))
    }

    /// A directory that keeps 100 kB and copies first, with these files of 50 kB.
    fn ring(shared: &Fs, name: &str, names: &[&str]) -> Ino {
        with(shared, |fs| {
            let root = Ino(1);
            let owner = Owner::default();
            let ring = fs.create(root, name.as_bytes(), FileType::Directory, owner, 0)?;
            for (number, name) in (0u8..).zip(names) {
                let file = fs.create(ring, name.as_bytes(), FileType::Regular, owner, 0)?;
                fs.write(file, 0, &content(ring, number))?;
                fs.fsync(file)?;
            }
            let value = b"bytes=100000 copy";
            fs.set_xattr(ring, RETAIN_ATTRIBUTE, value, XattrMode::Any)?;
            Ok(ring)
        })
        .unwrap()
    }

    fn content(ring: Ino, number: u8) -> Vec<u8> {
        vec![number ^ ring.0 as u8; 50_000]
    }

    fn names(shared: &Fs, ring: Ino) -> Vec<String> {
        let entries = with(shared, |fs| fs.entries(ring, 0, 10)).unwrap();
        let name = |entry: safs::format::Dirent| String::from_utf8(entry.name).unwrap();
        entries.into_iter().map(name).collect()
    }

    fn target() -> (TempDir, Cold) {
        let folder = tempfile::tempdir().unwrap();
        let cold = Cold::open(folder.path()).unwrap();
        (folder, cold)
    }

    /// Where a ring's copies are.
    fn copies(folder: &TempDir, ring: Ino) -> PathBuf {
        let volume = folder.path().join("01".repeat(16));
        volume.join(format!("ring-{}", ring.0))
    }

    fn listed(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_sent_is_there_before_it_is_forgotten_and_stays_if_it_cannot_be_sent() {
        let (folder, cold) = target();
        let shared = mounted();
        let four = ["part0", "part1", "part2", "part3"];
        let ring = ring(&shared, "ring", &four);
        assert_eq!(send_all(&shared, None).len(), 1, "nobody said where to");
        assert_eq!(names(&shared, ring), four);
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        assert_eq!(names(&shared, ring), ["part2", "part3"]);
        let at = copies(&folder, ring);
        assert_eq!(listed(&at), ["000000000003-part0", "000000000004-part1"]);
        let copy = at.join("000000000004-part1");
        assert!(fs::read(&copy).unwrap() == content(ring, 1));
        assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
    }

    /// H2.
    #[test]
    fn files_of_one_name_in_two_rings_have_two_copies() {
        let (folder, cold) = target();
        let shared = mounted();
        let same = ["a.ts", "b.ts", "c.ts"];
        let rings = ["left", "right"].map(|name| ring(&shared, name, &same));
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        for ring in rings {
            let at = copies(&folder, ring);
            let [copy] = &listed(&at)[..] else {
                panic!("{:?}", listed(&at));
            };
            assert!(fs::read(at.join(copy)).unwrap() == content(ring, 0));
        }
    }

    /// H3.
    #[test]
    fn what_grows_after_it_was_found_spent_is_not_forgotten() {
        let (folder, cold) = target();
        let shared = mounted();
        let ring = ring(&shared, "ring", &["a", "b", "c"]);
        let spent = with(&shared, FileSystem::spent).unwrap();
        with(&shared, |fs| fs.write(spent[0].ino, 50_000, b"more")).unwrap();
        send(&shared, &spent[0], &cold).unwrap();
        assert_eq!(names(&shared, ring), ["a", "b", "c"]);
        // The next time all of it is copied, over the beginning that is there.
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        assert_eq!(names(&shared, ring), ["b", "c"]);
        let at = copies(&folder, ring);
        assert_eq!(listed(&at), ["000000000003-a"]);
        let expected = [content(ring, 0), b"more".to_vec()].concat();
        assert!(fs::read(at.join("000000000003-a")).unwrap() == expected);
    }

    #[test]
    fn a_file_that_is_open_waits() {
        let (_folder, cold) = target();
        let shared = mounted();
        let ring = ring(&shared, "ring", &["a", "b", "c"]);
        let first = with(&shared, |fs| fs.lookup(ring, b"a")).unwrap();
        with(&shared, |fs| fs.open(first)).unwrap();
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        assert_eq!(names(&shared, ring), ["a", "b", "c"]);
        with(&shared, |fs| fs.release(first)).unwrap();
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        assert_eq!(names(&shared, ring), ["b", "c"]);
    }

    /// A ring file that was emptied and filled again has other bytes than those that were copied.
    #[test]
    fn the_beginning_of_a_file_that_was_written_anew_is_not_forgotten() {
        let (_folder, cold) = target();
        let shared = mounted();
        let file = with(&shared, |fs| {
            let file = fs.create(Ino(1), b"file", FileType::Regular, Owner::default(), 0)?;
            let value = b"bytes=100000 copy";
            fs.set_xattr(file, RETAIN_ATTRIBUTE, value, XattrMode::Any)?;
            for part in 0..4 {
                fs.write(file, part * 81_920, &vec![1; 81_920])?;
                fs.fsync(file)?;
            }
            Ok(file)
        })
        .unwrap();
        let spent = with(&shared, FileSystem::spent).unwrap();
        assert_eq!(spent.len(), 1);
        with(&shared, |fs| {
            fs.truncate(file, 0)?;
            for part in 0..4 {
                fs.write(file, part * 81_920, &vec![2; 81_920])?;
                fs.fsync(file)?;
            }
            Ok(())
        })
        .unwrap();
        with(&shared, |fs| fs.forget(&spent[0])).unwrap();
        let head = with(&shared, |fs| Ok(fs.attributes(file)?.head)).unwrap();
        assert_eq!(head, 0);
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        let head = with(&shared, |fs| Ok(fs.attributes(file)?.head)).unwrap();
        assert!(head > 0, "what is spent now goes");
    }

    /// C3: whoever can write where copies go leads nobody elsewhere.
    #[test]
    fn nothing_is_written_through_symbolic_links_or_over_what_is_there() {
        let (folder, cold) = target();
        let elsewhere = tempfile::tempdir().unwrap();
        let shared = mounted();
        let ring = ring(&shared, "ring", &["a", "b", "c"]);
        let at = copies(&folder, ring);
        let link = |name: &Path| std::os::unix::fs::symlink(elsewhere.path(), name).unwrap();
        fs::create_dir(at.parent().unwrap()).unwrap();
        link(&at);
        assert_eq!(send_all(&shared, Some(&cold)).len(), 1);
        fs::remove_file(&at).unwrap();
        fs::create_dir(&at).unwrap();
        // A link at the part's name goes; what it leads to does not.
        link(&at.join(PART));
        fs::write(at.join("000000000003-a"), "precious").unwrap();
        link(&at.join("000000000003-a.2"));
        assert_eq!(send_all(&shared, Some(&cold)), Vec::<String>::new());
        assert_eq!(fs::read(at.join("000000000003-a")).unwrap(), b"precious");
        assert!(fs::read(at.join("000000000003-a.3")).unwrap() == content(ring, 0));
        assert_eq!(names(&shared, ring), ["b", "c"]);
        assert_eq!(listed(elsewhere.path()), Vec::<String>::new());
    }
}
