// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `stat` shows, and extended attributes.

use crate::budget::Claim;
use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use crate::retain::RETAIN_ATTRIBUTE;
use zoned::ZonedDevice;

/// The attribute that gives a file's beginning up when it is set: a number of bytes.
pub const HEAD_ATTRIBUTE: &[u8] = b"user.safs.head";

/// Capabilities that a program's file gives to whoever runs it.
const CAPABILITY_ATTRIBUTE: &[u8] = b"security.capability";
/// Bits of permissions.
const SET_USER: u32 = 0o4000;
pub(crate) const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

/// Changes of attributes; none where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime_ns: Option<i64>,
    /// Last change of contents.
    pub mtime_ns: Option<i64>,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Whether it was there or not.
    Any,
    /// Only if it was not.
    Create,
    /// Only if it was.
    Replace,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// An inode as programs see it: with what is only in memory.
    pub fn attributes(&mut self, ino: Ino) -> Result<Inode> {
        self.verify_end(ino)?;
        let mut inode = self.inode(ino)?;
        if let Some(staging) = self.staged.of(ino) {
            inode.size = inode.size.max(staging.visible());
            inode.written = staging.end();
            inode.stored += staging.held();
            inode.mtime_ns = staging.mtime_ns;
            inode.ctime_ns = inode.ctime_ns.max(staging.ctime_ns);
        }
        Ok(inode)
    }

    /// Changes attributes; size is `truncate`'s.
    pub fn set_attributes(&mut self, ino: Ino, set: SetAttributes) -> Result {
        self.afford(Claim::Change)?;
        let mut inode = self.inode(ino)?;
        inode.permissions = set
            .permissions
            .map_or(inode.permissions, |bits| bits & 0o7777);
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        inode.atime_ns = set.atime_ns.unwrap_or(inode.atime_ns);
        inode.mtime_ns = set.mtime_ns.unwrap_or(inode.mtime_ns);
        inode.ctime_ns = self.now_ns;
        if let (Some(mtime_ns), Some(open)) = (set.mtime_ns, self.staged.files.get_mut(&ino)) {
            open.staging
                .iter_mut()
                .for_each(|staging| staging.mtime_ns = mtime_ns);
        }
        self.change(vec![Change::Put(Key::inode(ino), inode.encode())])
    }

    /// A file is about to be changed: what lends its owner's rights to others goes, capabilities always, the set-user-ID and
    /// set-group-ID bits unless root writes.
    pub fn end_privileges(&mut self, ino: Ino, is_root: bool) -> Result {
        let inode = self.inode(ino)?;
        let mut kept = inode.permissions;
        if !is_root {
            kept &= !SET_USER;
            // Without execution by the group the bit is no privilege.
            if kept & GROUP_EXECUTES != 0 {
                kept &= !SET_GROUP;
            }
        }
        if kept != inode.permissions {
            let set = SetAttributes {
                permissions: Some(kept),
                ..SetAttributes::default()
            };
            self.set_attributes(ino, set)?;
        }
        match self.get(&Key::xattr(ino, CAPABILITY_ATTRIBUTE))? {
            None => Ok(()),
            Some(_) => self.remove_xattr(ino, CAPABILITY_ATTRIBUTE),
        }
    }

    /// An extended attribute.
    pub fn xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if name == HEAD_ATTRIBUTE {
            let inode = self.inode(ino)?;
            return match inode.head {
                0 => Err(Error::NoAttribute),
                head => Ok(head.to_string().into_bytes()),
            };
        }
        self.inode(ino)?;
        self.get(&Key::xattr(ino, name))?.ok_or(Error::NoAttribute)
    }

    /// Names of extended attributes.
    pub fn xattrs(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.inode(ino)?;
        let (first, behind) = (Key::first(ino, Kind::Xattr), Key::behind(ino, Kind::Xattr));
        let cells = self
            .catalog
            .scan(&mut self.disk, &first, &behind, usize::MAX)?;
        Ok(cells
            .into_iter()
            .map(|cell| cell.key.rest().to_vec())
            .collect())
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result {
        check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::TooBig);
        }
        if name == HEAD_ATTRIBUTE {
            let number = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            let head = number.ok_or(Error::Invalid("the head is a number of bytes"))?;
            return self.truncate_head(ino, head);
        }
        self.afford(Claim::Change)?;
        let mut inode = self.inode(ino)?;
        let was_there = self.get(&Key::xattr(ino, name))?.is_some();
        match mode {
            XattrMode::Create if was_there => return Err(Error::Exists),
            XattrMode::Replace if !was_there => return Err(Error::NoAttribute),
            _ => {}
        }
        inode.ctime_ns = self.now_ns;
        let mut batch = vec![
            Change::Put(Key::xattr(ino, name), value.to_vec()),
            Change::Put(Key::inode(ino), inode.encode()),
        ];
        if name == RETAIN_ATTRIBUTE {
            batch.extend(self.set_retention(ino, value)?);
        }
        self.change(batch)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result {
        self.afford(Claim::Deletion)?;
        let mut inode = self.inode(ino)?;
        self.get(&Key::xattr(ino, name))?
            .ok_or(Error::NoAttribute)?;
        inode.ctime_ns = self.now_ns;
        let mut batch = vec![
            Change::Delete(Key::xattr(ino, name)),
            Change::Put(Key::inode(ino), inode.encode()),
        ];
        if name == RETAIN_ATTRIBUTE {
            batch.extend(self.end_retention(ino));
        }
        self.change(batch)
    }
}

/// A name of a file or an attribute.
pub(crate) fn check_name(name: &[u8]) -> Result {
    match name.len() {
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Owner;
    use crate::testing::made;
    use crate::Options;
    use zoned::RamDevice;

    fn with_file() -> (FileSystem<RamDevice>, Ino) {
        let device = made();
        let mut fs = FileSystem::mount(device, Options::default(), 1).unwrap();
        let file = fs.create(ROOT_INO, b"file", FileType::Regular, Owner::default(), 0);
        (fs, file.unwrap())
    }

    fn times(fs: &mut FileSystem<RamDevice>, file: Ino) -> (i64, i64) {
        let inode = fs.attributes(file).unwrap();
        (inode.mtime_ns, inode.ctime_ns)
    }

    #[test]
    fn times_are_the_same_before_and_after_bytes_are_logged() {
        for mtime_ns in [20, 20_000] {
            let (mut fs, file) = with_file();
            fs.set_time(100);
            fs.write(file, 0, b"written").unwrap();
            assert_eq!(times(&mut fs, file), (100, 100));
            fs.set_time(200);
            let set = SetAttributes {
                mtime_ns: Some(mtime_ns),
                ..SetAttributes::default()
            };
            fs.set_attributes(file, set).unwrap();
            assert_eq!(times(&mut fs, file), (mtime_ns, 200));
            fs.fsync(file).unwrap();
            assert_eq!(times(&mut fs, file), (mtime_ns, 200));
            fs.set_time(300);
            fs.write(file, 7, b"again").unwrap();
            assert_eq!(times(&mut fs, file), (300, 300));
            fs.set_time(400);
            fs.truncate(file, 5000).unwrap();
            assert_eq!(times(&mut fs, file), (400, 400));
            let device = fs.unmount().unwrap();
            let mut fs = FileSystem::mount(device, Options::default(), 500).unwrap();
            assert_eq!(times(&mut fs, file), (400, 400));
        }
    }
}
