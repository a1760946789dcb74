// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that two mounts of one image must agree on: names, types, modes, owners,
//! link counts, sizes, contents, extended attributes.
//!
//! Made for the crash explorer, which lists small trees tens of thousands of
//! times: few system calls, short hashes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::{pread, Errno};
use sha2::{Digest, Sha256};

use crate::error::{IoContext, LoadError, Result};
use crate::file::with_buffer;
use crate::meter::Meter;
use crate::walk::{Order, Walker};

/// Bytes of a hash that are shown.
const HASH_BYTES: usize = 8;
/// The kernel's limits for names and values of attributes.
const XATTR_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 1 << 20;

/// A tree: what [`entry`] says of each path below its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// By path, relative and escaped.
    pub entries: BTreeMap<String, String>,
}

impl Listing {
    /// Lists everything below a directory but `lost+found`.
    pub fn of(root: &Path) -> Result<Self> {
        Self::walked(root, Err)
    }

    /// The same of a damaged file system: what cannot be read is listed with the error.
    pub fn of_what_is_left(root: &Path) -> Self {
        Self::walked(root, |error| Ok(format!("error {}", error.status())))
            .expect("no error is passed on")
    }

    fn walked(root: &Path, refused: impl Fn(LoadError) -> Result<String>) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let mut walker = Walker::new(Order::Name);
        let mut meter = Meter::new(false);
        let mut waiting = vec![root.to_owned()];
        while let Some(dir) = waiting.pop() {
            let read = match walker.read_dir(&dir, &mut meter) {
                Ok(read) => read,
                Err(error) => {
                    let path = dir.strip_prefix(root).unwrap_or(&dir);
                    entries.insert(format!("{}/", name(path)), refused(error)?);
                    continue;
                }
            };
            for found in read {
                let path = found.path.strip_prefix(root).unwrap_or(&found.path);
                if path.as_os_str() == "lost+found" {
                    continue;
                }
                entries.insert(name(path), entry(&found.path).or_else(&refused)?);
                if found.is_dir {
                    waiting.push(found.path);
                }
            }
        }
        Ok(Self { entries })
    }

    /// The same for equal trees only.
    pub fn hash(&self) -> String {
        let mut digest = Sha256::new();
        for (path, entry) in &self.entries {
            digest.update(format!("{path}\t{entry}\n"));
        }
        short(digest)
    }
}

/// A path as listings and marks have it: without bytes that would end a line or a field.
pub fn name(path: &Path) -> String {
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

/// `type mode uid:gid links size contents attributes`, separated by spaces.
pub fn entry(path: &Path) -> Result<String> {
    let stat = fs::lstat(path).on("lstat", path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let (letter, contents) = match kind {
        FileType::RegularFile => ('f', contents(path, stat.st_size as u64)?),
        FileType::Symlink => {
            let target = fs::readlink(path, Vec::new()).on("readlink", path)?;
            ('l', target.as_bytes().escape_ascii().to_string())
        }
        FileType::Directory => ('d', "-".to_owned()),
        _ => ('o', format!("{:x}", stat.st_rdev)),
    };
    let mode = stat.st_mode & 0o7777;
    let attributes = attributes(path)?;
    let (uid, gid, links, size) = (stat.st_uid, stat.st_gid, stat.st_nlink, stat.st_size);
    Ok(format!(
        "{letter} {mode:o} {uid}:{gid} {links} {size} {contents} {attributes}"
    ))
}

fn contents(path: &Path, size: u64) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME;
    let fd = fs::open(path, flags, Mode::empty()).on("open", path)?;
    let mut digest = Sha256::new();
    let mut at = 0;
    while at < size {
        let length = with_buffer(READ_BYTES.min((size - at) as usize), |buffer| {
            let length = pread(&fd, &mut *buffer, at)?;
            digest.update(&buffer[..length]);
            Ok::<_, Errno>(length)
        });
        match length.on("read", path)? {
            0 => return Ok(format!("ends-at-{at}")),
            length => at += length as u64,
        }
    }
    Ok(short(digest))
}

fn attributes(path: &Path) -> Result<String> {
    let mut names = [0; 4096];
    let length = match fs::llistxattr(path, &mut names[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok("-".into()),
        length => length.on("llistxattr", path)?,
    };
    let mut names: Vec<&[u8]> = names[..length].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    let mut digest = Sha256::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES];
        let length = fs::lgetxattr(path, *name, &mut value[..]).on("lgetxattr", path)?;
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update((length as u64).to_le_bytes());
        digest.update(&value[..length]);
    }
    Ok(short(digest))
}

fn short(digest: Sha256) -> String {
    let mut text = String::new();
    for byte in &digest.finalize()[..HASH_BYTES] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    #[test]
    fn every_difference_shows() {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::create_dir(dir.path().join("lost+found")).unwrap();
        let file = dir.path().join("d/f");
        std::fs::write(&file, "1").unwrap();
        let mut seen = vec![Listing::of(dir.path()).unwrap()];
        let mut see = || {
            let now = Listing::of(dir.path()).unwrap();
            assert!(seen.iter().all(|before| before.hash() != now.hash()));
            seen.push(now);
        };
        std::fs::write(&file, "2").unwrap();
        see();
        std::fs::hard_link(&file, dir.path().join("g")).unwrap();
        see();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        see();
        std::os::unix::fs::symlink("d/f", dir.path().join("l")).unwrap();
        see();
        if fs::lsetxattr(&file, "user.x", b"1", fs::XattrFlags::empty()).is_ok() {
            see();
        }
        let entries: Vec<&str> = seen[0].entries.keys().map(String::as_str).collect();
        assert_eq!(entries, ["d", "d/f"]);
    }
}
