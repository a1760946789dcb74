// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of the host, or a disk. Disks are read and written past the page cache: SAFS has its own caches, and a
//! host-managed disk must get its writes in the order in which they were made.

use rustix::fs::{flock, major, minor, FlockOperation, OFlags};
use safs::format::{Superblock, BLOCK};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a disk wants its buffers, places and lengths to be multiples of, at most.
const ALIGNMENT: usize = 4096;
/// Bytes of one request to the kernel, at most.
const REQUEST_BYTES: usize = 8 << 20;

/// See the module's head.
pub(crate) struct HostFile {
    file: File,
    bytes: u64,
    /// For disks: data on their way, from a place that is aligned on.
    bounce: Option<Vec<u8>>,
    /// `/sys/dev/block/8:16`, of disks.
    sys: Option<PathBuf>,
}

impl HostFile {
    /// Opens it and locks it against others.
    pub fn open(path: &Path, writable: bool) -> Result<Self, String> {
        HostFile::open_sized(path, writable, None)
    }

    /// Opens what will be formatted, and locks it. A file will have `bytes` bytes, and is made if need be, for nobody but its
    /// owner; before `prepare` nothing of what is there changes.
    pub fn create(path: &Path, bytes: Option<u64>) -> Result<Self, String> {
        HostFile::open_sized(path, true, bytes)
    }

    fn open_sized(path: &Path, writable: bool, sized: Option<u64>) -> Result<Self, String> {
        let failed = |why: io::Error| format!("{}: {why}", path.display());
        let is_disk = match std::fs::metadata(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound && sized.is_some() => false,
            found => found.map_err(failed)?.file_type().is_block_device(),
        };
        if is_disk && sized.is_some() {
            return Err(format!(
                "{}: a disk has the size that it has",
                path.display()
            ));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(writable);
        options.create(sized.is_some()).mode(0o600);
        if is_disk {
            // On a disk O_EXCL is the kernel's own lock against mounted file systems.
            let flags = OFlags::DIRECT
                | if writable {
                    OFlags::EXCL
                } else {
                    OFlags::empty()
                };
            options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        }
        let mut file = options.open(path).map_err(failed)?;
        let lock = match writable {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        flock(&file, lock).map_err(|_| format!("{}: in use by another program", path.display()))?;
        let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let bytes = sized.unwrap_or(end);
        let number = file.metadata().map_err(failed)?.rdev();
        let sys = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        Ok(HostFile {
            file,
            bytes,
            bounce: is_disk.then(Vec::new),
            sys: is_disk.then(|| sys.into()),
        })
    }

    /// Gives it its length, and takes the second superblock of an earlier file system away: with another division into zones
    /// it would stay, and be found where the new first one is damaged.
    pub fn prepare(&mut self) -> io::Result<()> {
        let mut block = vec![0; BLOCK];
        let old = self.read(0, &mut block).ok();
        let old = old.and_then(|()| Superblock::decode(&block).ok());
        if self.bounce.is_none() {
            self.file.set_len(self.bytes)?;
        }
        let mirror = old.and_then(|old| old.mirror_blocks.checked_mul(BLOCK as u64));
        if let Some(at) = mirror.filter(|at| *at < self.bytes) {
            // A zone that is written in order takes no such write; it is reset.
            let _ = self.write(at, &vec![0; BLOCK]);
        }
        Ok(())
    }

    /// How long it is, or will be.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file itself, for calls that know disks.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// An attribute of a disk in sysfs, without the newline.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.sys.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_string())
    }

    /// Reads all of `data` from byte `at`.
    pub fn read(&mut self, at: u64, data: &mut [u8]) -> io::Result<()> {
        let Some(bounce) = &mut self.bounce else {
            return self.file.read_exact_at(data, at);
        };
        for (i, piece) in data.chunks_mut(REQUEST_BYTES).enumerate() {
            let buffer = aligned(bounce, piece.len());
            self.file
                .read_exact_at(buffer, at + (i * REQUEST_BYTES) as u64)?;
            piece.copy_from_slice(buffer);
        }
        Ok(())
    }

    /// Writes all of `data` at byte `at`.
    pub fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        let Some(bounce) = &mut self.bounce else {
            return self.file.write_all_at(data, at);
        };
        for (i, piece) in data.chunks(REQUEST_BYTES).enumerate() {
            let buffer = aligned(bounce, piece.len());
            buffer.copy_from_slice(piece);
            self.file
                .write_all_at(buffer, at + (i * REQUEST_BYTES) as u64)?;
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A buffer of `bytes` bytes at a multiple of the alignment.
fn aligned(bounce: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if bounce.len() < bytes + ALIGNMENT {
        bounce.resize(bytes + ALIGNMENT, 0);
    }
    let skip = bounce.as_ptr().align_offset(ALIGNMENT);
    &mut bounce[skip..skip + bytes]
}
