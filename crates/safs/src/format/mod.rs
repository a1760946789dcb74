// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on the disk, byte by byte (docs/reference/safs-format.md). Encoding and decoding only: nothing here reads a device.
//!
//! All integers are little-endian except inside catalog keys, which are big-endian so that the order of bytes is the order
//! of keys. Decoders take any bytes and answer with what is wrong; they never panic.

mod bytes;
mod file_type;
mod inode;
mod key;
mod node;
mod root;
mod segment;
mod superblock;
mod zone_entry;

pub use bytes::{Damage, Reader, Short, Writer};
pub use file_type::FileType;
pub use inode::{Extent, Inode, EXTENT_BYTES, FILE_BYTES_MAX, HOLE_BYTES, INODE_BYTES};
pub use key::{Dirent, Ino, Key, Kind, NAME_MAX, ROOT_INO, VALUE_MAX};
pub use node::{Cell, Node, Pointer, NODE_BYTES, NODE_CELLS_BYTES, POINTER_BYTES};
pub use root::{Image, LogPosition, Root, ROOT_SLOTS};
pub use segment::{
    record_bytes, Change, DataRecord, Header, Records, HEADER_FIXED_BYTES, NO_ZONE,
    SEGMENT_BLOCKS_MAX,
};
pub use superblock::Superblock;
pub use zone_entry::{ZoneEntry, ZoneKind, ZoneStage, ZONE_ENTRY_BYTES};

/// What counts upwards from 1 is never more: a larger number is damage.
pub(crate) const COUNT_MAX: u64 = u64::MAX >> 2;
/// Bytes of a block, as an index.
pub const BLOCK: usize = 4096;

/// Names one file system; in every structure, so that those of another are never taken for ours.
pub type Uuid = [u8; 16];

/// CRC-32C of a structure whose own field of four bytes at `at` counts as zero.
pub(crate) fn checksum(bytes: &[u8], at: usize) -> u32 {
    let head = crc32c::crc32c(&bytes[..at]);
    let head = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(head, &bytes[at + 4..])
}

/// Writes a structure's checksum into its field.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    let crc = checksum(bytes, at);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the checksum in the field is that of the bytes.
pub(crate) fn is_sealed(bytes: &[u8], at: usize) -> bool {
    bytes.len() >= at + 4 && bytes[at..at + 4] == checksum(bytes, at).to_le_bytes()
}
