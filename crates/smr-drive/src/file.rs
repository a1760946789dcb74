// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The drive file: what a drive knows and holds while it is switched off.
//!
//! ```text
//!   0  u8[8]  magic "SHGLDRV1"
//!   8  u32    version, 2
//!  12  u32    CRC-32 of the 48 bytes that follow
//!  16  3 × { u64 bytes, u32 CRC-32, u32 0 }      state, index, contents
//!  64         state (postcard), index, contents; each starts at a multiple of 8
//! ```
//! The contents have no checksum of their own but one for each leaf, in the index: a file of gigabytes opens at once.

use crate::contents::{Contents, Value, INDEX_ENTRY_BYTES};
use crate::state::State;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use zoned::Block;

const MAGIC: &[u8; 8] = b"SHGLDRV1";
const VERSION: u32 = 2;
const TABLE: usize = 16;
const TABLE_BYTES: usize = 3 * 16;
const HEADER_BYTES: usize = TABLE + TABLE_BYTES;

/// Why a drive file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// Not enough memory to begin with.
    NoMemory,
    /// Not a drive file.
    Magic,
    /// Written by another version.
    Version(u32),
    /// The file ends before this section does.
    Truncated(&'static str),
    /// This section's checksum is wrong, or what it says makes no sense.
    Damaged(&'static str, String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::NoMemory => write!(f, "no memory for the drive"),
            FileError::Magic => write!(f, "not a drive file: it does not begin with SHGLDRV1"),
            FileError::Version(v) => write!(
                f,
                "drive file of version {v}; this program knows version {VERSION}"
            ),
            FileError::Truncated(section) => {
                write!(f, "drive file is cut off in its section '{section}'")
            }
            FileError::Damaged(section, why) => {
                write!(f, "drive file is damaged in its section '{section}': {why}")
            }
        }
    }
}

/// A file's parts, verified.
pub struct Opened {
    /// Everything but the contents.
    pub state: Box<State>,
    /// The contents.
    pub contents: Contents,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(8) - len
}

/// Opens a drive file. It stays mapped as long as the program runs: contents are read from it in place.
pub fn open(file: &'static [u8]) -> Result<Opened, FileError> {
    if file.get(..8) != Some(MAGIC) {
        return Err(FileError::Magic);
    }
    if file.len() < HEADER_BYTES {
        return Err(FileError::Truncated("header"));
    }
    let version = u32_at(file, 8);
    if version != VERSION {
        return Err(FileError::Version(version));
    }
    if crc32fast::hash(&file[TABLE..HEADER_BYTES]) != u32_at(file, 12) {
        return Err(FileError::Damaged("header", "wrong checksum".into()));
    }
    let mut start = HEADER_BYTES;
    let mut sections: [&'static [u8]; 3] = [&[]; 3];
    for (i, name) in ["state", "index", "contents"].into_iter().enumerate() {
        let len = usize::try_from(u64_at(file, TABLE + 16 * i)).unwrap_or(usize::MAX);
        let end = start.checked_add(len).ok_or(FileError::Truncated(name))?;
        sections[i] = file.get(start..end).ok_or(FileError::Truncated(name))?;
        if i < 2 && crc32fast::hash(sections[i]) != u32_at(file, TABLE + 16 * i + 8) {
            return Err(FileError::Damaged(name, "wrong checksum".into()));
        }
        start = end + padding(len);
    }
    if sections[1].len() % INDEX_ENTRY_BYTES != 0 {
        return Err(FileError::Damaged(
            "index",
            "not a whole number of entries".into(),
        ));
    }
    let state = State::from_bytes(sections[0]).map_err(|why| FileError::Damaged("state", why))?;
    Ok(Opened {
        state,
        contents: Contents::from_file(sections[1], sections[2]),
    })
}

/// Writes a drive file, from beginning to end, through `write`. `instead` holds other values for some blocks (see
/// [`Contents::pack`]).
pub fn save<E>(
    state: &State,
    contents: &Contents,
    instead: &BTreeMap<Block, Value>,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let state = state.to_bytes();
    let mut index = Vec::new();
    let mut contents_bytes = 0u64;
    contents.pack(instead, |entry, _| {
        index.extend_from_slice(&entry.to_bytes());
        contents_bytes += u64::from(entry.len);
        Ok(())
    })?;
    write(&header(&state, &index, contents_bytes))?;
    for section in [&state, &index] {
        write(section)?;
        write(&[0; 8][..padding(section.len())])?;
    }
    contents.pack(instead, |_, bytes| write(bytes))
}

fn header(state: &[u8], index: &[u8], contents_bytes: u64) -> Vec<u8> {
    let mut table = Vec::with_capacity(TABLE_BYTES);
    let sections = [
        (state.len() as u64, crc32fast::hash(state)),
        (index.len() as u64, crc32fast::hash(index)),
        (contents_bytes, 0),
    ];
    for (len, crc) in sections {
        table.extend_from_slice(&len.to_le_bytes());
        table.extend_from_slice(&crc.to_le_bytes());
        table.extend_from_slice(&[0; 4]);
    }
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&table).to_le_bytes());
    header.extend_from_slice(&table);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    fn file() -> Vec<u8> {
        let mut contents = Contents::new();
        contents.write(Block(3), &[7; 4096]).unwrap();
        let mut bytes = Vec::new();
        save(
            &State::new(sample::conventional(1 << 30), 5),
            &contents,
            &BTreeMap::new(),
            |b| {
                bytes.extend_from_slice(b);
                Ok::<(), ()>(())
            },
        )
        .unwrap();
        bytes
    }

    fn refusal(bytes: Vec<u8>) -> String {
        alloc::format!("{}", open(bytes.leak()).err().expect("refused"))
    }

    #[test]
    fn a_saved_drive_opens_again() {
        let mut opened = open(file().leak()).expect("opens");
        let mut block = [0; 4096];
        opened.contents.read(Block(3), &mut block).unwrap();
        assert_eq!((opened.state.seed, block), (5, [7; 4096]));
    }

    #[test]
    fn damage_is_refused_by_the_name_of_the_section() {
        let good = file();
        for (at, section) in [(0, "SHGLDRV1"), (20, "'header'"), (70, "'state'")] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(refusal(bad).contains(section), "byte {at}");
        }
        assert!(refusal(good[..good.len() - 1].to_vec()).contains("'contents'"));
        assert!(refusal(good[..100].to_vec()).contains("'state'"));
        assert!(refusal(good[..40].to_vec()).contains("'header'"));
    }
}
