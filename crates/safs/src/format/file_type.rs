// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of inodes.

use super::Damage;

/// What an inode is. The numbers are those of `S_IFMT >> 12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileType {
    /// A pipe with a name.
    Fifo = 1,
    /// A character device.
    Character = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// Reads its number.
    pub fn decode(number: u8) -> Result<Self, Damage> {
        Ok(match number {
            1 => FileType::Fifo,
            2 => FileType::Character,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return Err(Damage("an inode is of no known type")),
        })
    }

    /// The bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }
}
