// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inodes and extents: values of the catalog.

use super::{Damage, FileType, Ino, Reader, Writer, BLOCK};
use zoned::ZoneId;

/// Bytes of an inode.
pub const INODE_BYTES: usize = 128;
/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 24;

/// Bytes of the largest hole in one extent.
pub const HOLE_BYTES: u64 = 1 << 31;
/// No file is longer: a gap before what is appended takes an extent for each 2 GiB, and these go through memory.
pub const FILE_BYTES_MAX: u64 = 1 << 46;

const FRAGMENT: u32 = 1;
const HOLE: u32 = 2;

/// See docs/reference/safs-format.md, 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub file_type: FileType,
    /// Permission bits, the twelve lower ones of `st_mode`.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here.
    pub nlink: u32,
    /// Bytes below this never change (INV-S9).
    pub written: u64,
    /// What `stat` shows; at least `written`.
    pub size: u64,
    /// Bytes below this were given up and read as zeros.
    pub head: u64,
    /// Bytes that extents hold.
    pub stored: u64,
    /// Last access, nanoseconds since 1970; only set explicitly.
    pub atime_ns: i64,
    /// Last change of contents.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Creation.
    pub btime_ns: i64,
    /// A directory's parent; else 0.
    pub parent: Ino,
    /// Entries of a directory.
    pub children: u64,
    /// Reserved.
    pub flags: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// A directory's next entry id.
    pub next_dirent: u64,
}

impl Inode {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        Writer::new()
            .u32(self.file_type.mode_bits() | self.permissions)
            .u32(self.uid)
            .u32(self.gid)
            .u32(self.nlink)
            .u64(self.written)
            .u64(self.size)
            .u64(self.head)
            .u64(self.stored)
            .i64(self.atime_ns)
            .i64(self.mtime_ns)
            .i64(self.ctime_ns)
            .i64(self.btime_ns)
            .u64(self.parent.0)
            .u64(self.children)
            .u32(self.flags)
            .u32(self.rdev)
            .u64(self.next_dirent)
            .padded(INODE_BYTES)
    }

    /// Reads an inode.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() != INODE_BYTES {
            return Err(Damage("an inode does not have 128 bytes"));
        }
        let mut from = Reader::new(bytes);
        let mode = from.u32()?;
        let kind = u8::try_from(mode >> 12).map_err(|_| Damage("an inode is of no known type"))?;
        let inode = Inode {
            file_type: FileType::decode(kind)?,
            permissions: mode & 0o7777,
            uid: from.u32()?,
            gid: from.u32()?,
            nlink: from.u32()?,
            written: from.u64()?,
            size: from.u64()?,
            head: from.u64()?,
            stored: from.u64()?,
            atime_ns: from.i64()?,
            mtime_ns: from.i64()?,
            ctime_ns: from.i64()?,
            btime_ns: from.i64()?,
            parent: Ino(from.u64()?),
            children: from.u64()?,
            flags: from.u32()?,
            rdev: from.u32()?,
            next_dirent: from.u64()?,
        };
        if inode.written > inode.size || inode.head > inode.written || inode.size > FILE_BYTES_MAX {
            return Err(Damage("an inode's sizes contradict each other"));
        }
        Ok(inode)
    }
}

/// Where a piece of a file is: whole blocks of a segment's payload, a fragment in a segment's header, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its zone.
    pub zone: ZoneId,
    /// Its first byte in the zone; a multiple of 8.
    pub offset: u64,
    /// Bytes; whole blocks unless it is a fragment.
    pub bytes: u32,
    /// CRC-32C of a fragment; of blocks it is in the segment's header.
    pub crc: u32,
    /// The block, in the zone, where that header starts.
    pub header: u32,
    /// It is inside a header.
    pub is_fragment: bool,
    /// Nothing was ever written here: zeros.
    pub is_hole: bool,
}

impl Extent {
    /// Zeros that are stored nowhere.
    pub fn hole(bytes: u32) -> Extent {
        Extent {
            zone: ZoneId(0),
            offset: 0,
            bytes,
            crc: 0,
            header: 0,
            is_fragment: false,
            is_hole: true,
        }
    }

    /// Logical blocks that it covers, a fragment's as a whole one.
    pub fn blocks(&self) -> u64 {
        u64::from(self.bytes).div_ceil(BLOCK as u64)
    }

    /// Bytes that it holds in a zone.
    pub fn stored(&self) -> u64 {
        if self.is_hole {
            0
        } else {
            u64::from(self.bytes)
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let flags =
            if self.is_fragment { FRAGMENT } else { 0 } | if self.is_hole { HOLE } else { 0 };
        Writer::new()
            .u32(self.zone.0)
            .u32(u32::try_from(self.offset / 8).expect("a zone has at most 32 GiB"))
            .u32(self.bytes)
            .u32(self.crc)
            .u32(self.header)
            .u32(flags)
            .finish()
    }

    /// Reads an extent.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() != EXTENT_BYTES {
            return Err(Damage("an extent does not have 24 bytes"));
        }
        let mut from = Reader::new(bytes);
        let extent = Extent {
            zone: ZoneId(from.u32()?),
            offset: u64::from(from.u32()?) * 8,
            bytes: from.u32()?,
            crc: from.u32()?,
            header: from.u32()?,
            is_fragment: false,
            is_hole: false,
        };
        let flags = from.u32()?;
        let extent = Extent {
            is_fragment: flags & FRAGMENT != 0,
            is_hole: flags & HOLE != 0,
            ..extent
        };
        let whole = extent.bytes as usize % BLOCK == 0 && extent.offset as usize % BLOCK == 0;
        let fits = if extent.is_fragment {
            (extent.bytes as usize) < BLOCK && !extent.is_hole
        } else {
            whole
        };
        if extent.bytes == 0 || !fits {
            return Err(Damage("an extent has an impossible length"));
        }
        Ok(extent)
    }
}
