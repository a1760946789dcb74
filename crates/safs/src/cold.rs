// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a retention sends to a target directory: copied, flushed, read again and compared, and only then forgotten.

use crate::fuse::{locked, now_ns, Shared};
use safs::{FileSystem, Spent};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use zoned::ZonedDevice;

/// Bytes copied at a time: so long others wait for the lock.
const PIECE_BYTES: usize = 1 << 20;

/// Sends everything that is spent and has a target. A sentence for each that failed; it stays.
pub fn send_all<D: ZonedDevice>(shared: &Shared<D>) -> Vec<String> {
    let spent = locked(shared).as_mut().map_or_else(
        || Ok(Vec::new()),
        |fs| {
            fs.set_time(now_ns());
            fs.spent()
        },
    );
    let spent = match spent {
        Ok(spent) => spent,
        Err(error) => return vec![error.to_string()],
    };
    let with_target = spent
        .iter()
        .filter_map(|one| Some((one, one.target.as_ref()?)));
    let sent = with_target.map(|(one, target)| {
        send(shared, one, Path::new(target)).map_err(|why| format!("{target}: {why}"))
    });
    sent.filter_map(Result::err).collect()
}

fn send<D: ZonedDevice>(shared: &Shared<D>, spent: &Spent, target: &Path) -> Result<(), String> {
    let to = target.join(name(spent));
    let part = to.with_extension("part");
    let failed = |why: std::io::Error| why.to_string();
    let mut file = File::create(&part).map_err(failed)?;
    each_piece(shared, spent, |piece| file.write_all(piece).map_err(failed))?;
    file.sync_all().map_err(failed)?;
    let mut copy = File::open(&part).map_err(failed)?;
    let mut found = Vec::new();
    each_piece(shared, spent, |piece| {
        found.resize(piece.len(), 0);
        copy.read_exact(&mut found).map_err(failed)?;
        match found == piece {
            true => Ok(()),
            false => Err(format!("{} is not what was copied", part.display())),
        }
    })?;
    fs::rename(&part, &to).map_err(failed)?;
    File::open(target)
        .and_then(|directory| directory.sync_all())
        .map_err(failed)?;
    with(shared, |fs| fs.forget(spent))
}

/// A file of a ring directory keeps its name; of a ring file the name says which bytes they are.
fn name(spent: &Spent) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    match &spent.entry {
        Some((_, name)) => std::ffi::OsStr::from_bytes(name).into(),
        None => format!("inode{}-{:020}-{:020}", spent.ino.0, spent.from, spent.to).into(),
    }
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
            return Err(format!("inode {} ends at byte {at}", spent.ino.0));
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
    use std::sync::{Arc, Mutex};
    use zoned::RamDevice;

    #[test]
    fn what_is_sent_is_there_before_it_is_forgotten_and_stays_if_it_cannot_be_sent() {
        let target = tempfile::tempdir().unwrap();
        let make_options = MakeOptions {
            uuid: [1; 16],
            label: [0; 64],
            now_ns: 0,
        };
        let device = make(RamDevice::new(8, 30, 2048), make_options, |_| ()).unwrap();
        let mut fs = FileSystem::mount(device, Options::default(), 0).unwrap();
        let owner = Owner::default();
        let ring = fs
            .create(Ino(1), b"ring", FileType::Directory, owner, 0)
            .unwrap();
        for number in 0..4u8 {
            let name = format!("part{number}");
            let ino = fs
                .create(ring, name.as_bytes(), FileType::Regular, owner, 0)
                .unwrap();
            fs.write(ino, 0, &vec![number; 50_000]).unwrap();
            fs.fsync(ino).unwrap();
        }
        let set = |fs: &mut FileSystem<RamDevice>, to: &Path| {
            let value = format!("bytes=100000 to={}", to.display());
            fs.set_xattr(ring, RETAIN_ATTRIBUTE, value.as_bytes(), XattrMode::Any)
        };
        set(&mut fs, &target.path().join("missing")).unwrap();
        let shared = Arc::new(Mutex::new(Some(fs)));
        assert_eq!(send_all(&shared).len(), 2);
        let count =
            |shared: &Shared<RamDevice>| with(shared, |fs| fs.entries(ring, 0, 10)).unwrap().len();
        assert_eq!(count(&shared), 4);
        with(&shared, |fs| set(fs, target.path())).unwrap();
        assert_eq!(send_all(&shared), Vec::<String>::new());
        assert_eq!(count(&shared), 2);
        assert_eq!(
            fs::read(target.path().join("part1")).unwrap(),
            vec![1; 50_000]
        );
        assert!(!target.path().join("part2").exists());
    }
}
