// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side: calls of FUSE become calls of the core, errors become numbers. Nothing is decided here.
//!
//! Files open for writing bypass the page cache (FOPEN_DIRECT_IO): with the kernel's writeback cache, ENOSPC and EPERM would
//! come after the data were accepted. One lock guards the core; no call sleeps with it but for the device.

use crate::say::say;
use fuser::{
    Errno, FileAttr, FileHandle, FileType as Kind, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use safs::format::{FileType, Ino, Inode, BLOCK, VALUE_MAX};
use safs::{Error, FileSystem, Owner, RenameMode, Result, SetAttributes, XattrMode};
use safs::{Retention, RETAIN_ATTRIBUTE};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zoned::ZonedDevice;

/// How long the kernel may believe what it was told. Only this program changes the file system.
const VALID: Duration = Duration::from_secs(1);
/// The set-user-ID and set-group-ID bits.
const SET_IDS: u32 = 0o6000;
/// Largest request in bytes: 256 pages.
const REQUEST_BYTES: u32 = 1 << 20;
/// Entries of a directory looked up at a time.
const ENTRIES_AT_ONCE: usize = 256;
/// Ids of "." and ".." in a listing; entries' own follow.
const DOTS: u64 = 2;
/// What a writer asks for with `O_DSYNC`; `O_SYNC` has this bit, too, and the kernel sets it for `RWF_DSYNC`.
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;

/// The file system that several threads share; gone after the unmount.
pub type Shared<D> = Arc<Mutex<Option<FileSystem<D>>>>;

/// See the module's head.
pub struct Adapter<D> {
    fs: Shared<D>,
    listings: Mutex<Listings>,
}

/// Directories that are open. A rename gives an entry a new id behind all others, so a listing ends where the directory
/// ended when it began; else who renames what he is shown would never be done.
#[derive(Default)]
struct Listings {
    last: u64,
    /// The last id of each listing's beginning.
    ends: BTreeMap<u64, u64>,
}

/// The host's time, in nanoseconds since 1970.
pub fn now_ns() -> i64 {
    // The host's clock: times of files are people's times.
    #[allow(clippy::disallowed_methods)]
    let now = SystemTime::now();
    ns_of(now)
}

fn ns_of(time: SystemTime) -> i64 {
    let ns = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    }
}

fn time_of(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    match ns < 0 {
        true => UNIX_EPOCH - distance,
        false => UNIX_EPOCH + distance,
    }
}

/// Locks, also after another thread's panic: the core is left as its last call left it.
pub fn locked<D>(fs: &Shared<D>) -> MutexGuard<'_, Option<FileSystem<D>>> {
    fs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::Exists => Errno::EEXIST,
        Error::NotDirectory => Errno::ENOTDIR,
        Error::IsDirectory => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::Invalid(_) => Errno::EINVAL,
        Error::Overwrite { .. } => Errno::EPERM,
        Error::NoSpace => Errno::ENOSPC,
        Error::TooBig => Errno::EFBIG,
        Error::NoAttribute => Errno::from_i32(rustix::io::Errno::NODATA.raw_os_error()),
        Error::ReadOnly => Errno::EROFS,
        Error::Corrupt { .. } | Error::Device { .. } => Errno::EIO,
    }
}

/// How long attributes may be believed. A write can take privileges away, and who runs the file must not see them then.
fn valid(inode: &Inode) -> &'static Duration {
    match inode.permissions & SET_IDS {
        0 => &VALID,
        _ => &Duration::ZERO,
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Fifo => Kind::NamedPipe,
        FileType::Character => Kind::CharDevice,
        FileType::Directory => Kind::Directory,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Regular => Kind::RegularFile,
        FileType::Symlink => Kind::Symlink,
        FileType::Socket => Kind::Socket,
    }
}

fn attributes(ino: Ino, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: inode.size,
        blocks: inode.stored.div_ceil(512),
        atime: time_of(inode.atime_ns),
        mtime: time_of(inode.mtime_ns),
        ctime: time_of(inode.ctime_ns),
        crtime: time_of(inode.btime_ns),
        kind: kind(inode.file_type),
        perm: inode.permissions as u16,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

impl<D: ZonedDevice> Adapter<D> {
    /// Serves this file system.
    pub fn new(fs: Shared<D>) -> Self {
        Adapter {
            fs,
            listings: Mutex::default(),
        }
    }

    fn listings(&self) -> MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut FileSystem<D>) -> Result<T>,
    ) -> std::result::Result<T, Errno> {
        let mut guard = locked(&self.fs);
        let fs = guard.as_mut().ok_or(Errno::EIO)?;
        fs.set_time(now_ns());
        act(fs).map_err(|error| {
            if matches!(
                error,
                Error::Overwrite { .. } | Error::Corrupt { .. } | Error::Device { .. }
            ) {
                say(&error);
            }
            errno(&error)
        })
    }

    fn enter(&self, reply: ReplyEntry, act: impl FnOnce(&mut FileSystem<D>) -> Result<Ino>) {
        match self.with(|fs| act(fs).and_then(|ino| Ok((ino, fs.attributes(ino)?)))) {
            Ok((ino, inode)) => reply.entry(valid(&inode), &attributes(ino, &inode), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn done(&self, reply: ReplyEmpty, act: impl FnOnce(&mut FileSystem<D>) -> Result) {
        match self.with(act) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

fn owner(request: &Request, mode: u32, umask: u32) -> Owner {
    Owner {
        permissions: mode & !umask & 0o7777,
        uid: request.uid(),
        gid: request.gid(),
    }
}

fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// Attributes with a meaning that is not kept: access lists would be ignored, so they are refused.
fn is_refused(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"system.posix_acl_")
}

/// What is asked for a size of 0 is the length.
fn reply_bytes(reply: ReplyXattr, bytes: std::result::Result<Vec<u8>, Errno>, size: u32) {
    match bytes {
        Err(error) => reply.error(error),
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

impl<D: ZonedDevice + Send + 'static> Filesystem for Adapter<D> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Smaller ones are the kernel's wish; then it has its way.
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_readahead(REQUEST_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(reply, |fs| fs.lookup(ino(parent), name.as_bytes()));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.with(|fs| fs.attributes(ino(number))) {
            Ok(inode) => reply.attr(valid(&inode), &attributes(ino(number), &inode)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ns = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => ns_of(time),
            TimeOrNow::Now => now_ns(),
        };
        let set = SetAttributes {
            permissions: mode,
            uid,
            gid,
            atime_ns: atime.map(ns),
            mtime_ns: mtime.map(ns),
        };
        let result = self.with(|fs| {
            if let Some(size) = size {
                fs.truncate(ino(number), size)?;
            }
            if set != SetAttributes::default() {
                fs.set_attributes(ino(number), set)?;
            }
            fs.attributes(ino(number))
        });
        match result {
            Ok(inode) => reply.attr(valid(&inode), &attributes(ino(number), &inode)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.with(|fs| fs.read_link(ino(number))) {
            // Whoever reads it would see its beginning only, or the kernel nothing.
            Ok(target) if target.contains(&0) || target.len() >= VALUE_MAX => {
                say(format_args!("inode {}: its target is no path", number.0));
                reply.error(Errno::EIO);
            }
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let owner = owner(request, mode, umask);
        self.enter(reply, |fs| {
            let file_type = u8::try_from(mode >> 12 & 0xf).unwrap_or(0);
            let file_type =
                FileType::decode(file_type).map_err(|_| Error::Invalid("no such type of file"))?;
            fs.create(ino(parent), name.as_bytes(), file_type, owner, rdev)
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = owner(request, mode, umask);
        self.enter(reply, |fs| {
            fs.create(ino(parent), name.as_bytes(), FileType::Directory, owner, 0)
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, |fs| fs.unlink(ino(parent), name.as_bytes()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, |fs| {
            fs.remove_directory(ino(parent), name.as_bytes())
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let owner = owner(request, 0o777, 0);
        let target = target.as_os_str().as_bytes();
        self.enter(reply, |fs| {
            fs.symlink(ino(parent), name.as_bytes(), target, owner)
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        self.done(reply, |fs| {
            fs.rename(
                ino(parent),
                name.as_bytes(),
                ino(new_parent),
                new_name.as_bytes(),
                mode,
            )
        });
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(reply, |fs| {
            fs.link(ino(number), ino(parent), name.as_bytes())?;
            Ok(ino(number))
        });
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => FopenFlags::empty(),
            _ => FopenFlags::FOPEN_DIRECT_IO,
        };
        match self.with(|fs| fs.open(ino(number))) {
            Ok(()) => reply.opened(FileHandle(0), opened),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let owner = owner(request, mode, umask);
        let result = self.with(|fs| {
            let made = fs.create(ino(parent), name.as_bytes(), FileType::Regular, owner, 0)?;
            fs.open(made)?;
            Ok((made, fs.attributes(made)?))
        });
        match result {
            Ok((made, inode)) => {
                let attributes = attributes(made, &inode);
                reply.created(
                    valid(&inode),
                    &attributes,
                    Generation(0),
                    FileHandle(0),
                    FopenFlags::FOPEN_DIRECT_IO,
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.with(|fs| fs.read(ino(number), offset, size as usize)) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = self.with(|fs| {
            // Past the page cache the kernel does not do this.
            fs.end_privileges(ino(number), request.uid() == 0)?;
            fs.write(ino(number), offset, data)?;
            match flags.0 & DSYNC {
                0 => Ok(()),
                _ => fs.fsync(ino(number)),
            }
        });
        match result {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.done(reply, |fs| fs.release(ino(number)));
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(reply, |fs| fs.fsync(ino(number)));
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(reply, |fs| fs.fsync(ino(number)));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.with(|fs| fs.attributes(ino(number))) {
            Ok(inode) => {
                let mut listings = self.listings();
                listings.last += 1;
                let handle = listings.last;
                listings.ends.insert(handle, inode.next_dirent);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().ends.remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let directory = match self.with(|fs| fs.attributes(ino(number))) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let parent = INodeNo(directory.parent.0);
        let end = match offset {
            // It begins, perhaps again.
            0 => directory.next_dirent,
            _ => self.listings().ends.get(&handle.0).copied().unwrap_or(0),
        };
        self.listings().ends.insert(handle.0, end);
        for (at, target, name) in [(1, number, "."), (2, parent, "..")] {
            if offset < at && reply.add(target, at, Kind::Directory, name) {
                return reply.ok();
            }
        }
        let mut after = offset.saturating_sub(DOTS);
        loop {
            let entries = match self.with(|fs| fs.entries(ino(number), after, ENTRIES_AT_ONCE)) {
                Ok(entries) => entries,
                Err(error) => return reply.error(error),
            };
            let is_last = entries.len() < ENTRIES_AT_ONCE;
            for entry in entries {
                if entry.id > end {
                    return reply.ok();
                }
                after = entry.id;
                let name = OsStr::from_bytes(&entry.name);
                if reply.add(
                    INodeNo(entry.ino.0),
                    entry.id + DOTS,
                    kind(entry.file_type),
                    name,
                ) {
                    return reply.ok();
                }
            }
            if is_last {
                return reply.ok();
            }
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.with(|fs| Ok(fs.space())) {
            Ok(space) => {
                let files = space.inodes + space.inodes_free;
                let block = BLOCK as u32;
                reply.statfs(
                    space.blocks,
                    space.free,
                    space.free,
                    files,
                    space.inodes_free,
                    block,
                    255,
                    block,
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if is_refused(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        // Copies leave the file system, to where only root has anything to say.
        let is_copied = || Retention::parse(value).is_ok_and(|retention| retention.is_copied);
        if name.as_bytes() == RETAIN_ATTRIBUTE && request.uid() != 0 && is_copied() {
            return reply.error(Errno::EPERM);
        }
        let mode = match flags {
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        self.done(reply, |fs| {
            fs.set_xattr(ino(number), name.as_bytes(), value, mode)
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_refused(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        reply_bytes(
            reply,
            self.with(|fs| fs.xattr(ino(number), name.as_bytes())),
            size,
        );
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.with(|fs| fs.xattrs(ino(number)));
        let joined = names.map(|names| {
            // A name with a zero in it would be read as two.
            let shown = names
                .into_iter()
                .filter(|name| !is_refused(OsStr::from_bytes(name)) && !name.contains(&0));
            let ended = shown.map(|mut name| {
                name.push(0);
                name
            });
            ended.flatten().collect()
        });
        reply_bytes(reply, joined, size);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, |fs| fs.remove_xattr(ino(number), name.as_bytes()));
    }
}
