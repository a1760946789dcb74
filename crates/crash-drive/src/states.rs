// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The file that a crash drive is made from: states of one disk, as tables into a pool of blocks.
//!
//! ```text
//! file   = header table entries padding pool
//! header = "SHGLCRS1" blocks:u32 states:u32 pool_blocks:u32 delay_us:u32 fua:u32 0:u32 pool_offset:u64
//! table  = (first:u32 count:u32) for each state: its entries
//! entry  = block:u32 pool:u32             what is not listed is zero
//! ```
//! Little-endian; `pool_offset` is a multiple of 4096.

use crate::BLOCK_BYTES;
use alloc::vec::Vec;
use core::fmt;

/// First bytes of the file.
pub const MAGIC: &[u8; 8] = b"SHGLCRS1";
const HEADER_BYTES: usize = 40;

/// What the disk is, apart from its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its capacity.
    pub blocks: u32,
    /// Requests end after at most so long; 0: at once.
    pub delay_us: u32,
    /// Whether it takes FUA; without, the kernel sends a FLUSH after such a write.
    pub fua: bool,
}

/// A file that was checked.
#[derive(Clone, Copy)]
pub struct States<'a> {
    /// The disk.
    pub disk: Disk,
    table: &'a [u8],
    entries: &'a [u8],
    pool: &'a [u8],
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatesError {
    /// Another kind of file.
    Magic,
    /// It ends before what its header names.
    Truncated,
    /// An entry of a state leads out of the disk or of the pool.
    Entry(u32),
}

impl fmt::Display for StatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "expected SHGLCRS1 at its beginning"),
            Self::Truncated => write!(f, "it ends before what its header names"),
            Self::Entry(state) => write!(
                f,
                "state {state} has a block beyond the end of the disk or of the pool"
            ),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn pairs(bytes: &[u8]) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
    bytes
        .chunks_exact(8)
        .map(|pair| (u32_at(pair, 0), u32_at(pair, 4)))
}

impl<'a> States<'a> {
    /// Whether a file looks like one of these.
    pub fn is_one(file: &[u8]) -> bool {
        file.starts_with(MAGIC)
    }

    /// Checks a file.
    pub fn open(file: &'a [u8]) -> Result<Self, StatesError> {
        if !Self::is_one(file) {
            return Err(StatesError::Magic);
        }
        if file.len() < HEADER_BYTES {
            return Err(StatesError::Truncated);
        }
        let word = |number: usize| u32_at(file, 8 + 4 * number);
        let disk = Disk {
            blocks: word(0),
            delay_us: word(3),
            fua: word(4) != 0,
        };
        let pool_offset = u64::from(word(6)) | u64::from(word(7)) << 32;
        let table_end = HEADER_BYTES + word(1) as usize * 8;
        let pool_offset = usize::try_from(pool_offset).map_err(|_| StatesError::Truncated)?;
        let pool_end = pool_offset.checked_add(word(2) as usize * BLOCK_BYTES);
        let (Some(table), Some(entries), Some(pool)) = (
            file.get(HEADER_BYTES..table_end),
            file.get(table_end..pool_offset),
            pool_end.and_then(|end| file.get(pool_offset..end)),
        ) else {
            return Err(StatesError::Truncated);
        };
        let states = Self {
            disk,
            table,
            entries,
            pool,
        };
        for state in 0..states.count() {
            let whole = states.entry_bytes(state).ok_or(StatesError::Entry(state))?;
            if pairs(whole)
                .any(|(block, pool)| block >= disk.blocks || pool >= states.pool_blocks())
            {
                return Err(StatesError::Entry(state));
            }
        }
        Ok(states)
    }

    /// How many states there are.
    pub fn count(&self) -> u32 {
        (self.table.len() / 8) as u32
    }

    /// How many blocks the pool has.
    pub fn pool_blocks(&self) -> u32 {
        (self.pool.len() / BLOCK_BYTES) as u32
    }

    fn entry_bytes(&self, state: u32) -> Option<&'a [u8]> {
        let (first, count) = pairs(self.table).nth(state as usize)?;
        let start = first as usize * 8;
        self.entries.get(start..start + count as usize * 8)
    }

    /// The blocks of a state that are not zero, and where they are in the pool.
    pub fn entries(&self, state: u32) -> impl ExactSizeIterator<Item = (u32, u32)> + 'a {
        pairs(self.entry_bytes(state).unwrap_or_default())
    }

    /// A block of the pool.
    pub fn block(&self, pool: u32) -> &'a [u8] {
        &self.pool[pool as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

/// Writes such a file.
pub struct Builder {
    disk: Disk,
    table: Vec<u8>,
    entries: Vec<u8>,
}

impl Builder {
    /// A file without states.
    pub fn new(disk: Disk) -> Self {
        Self {
            disk,
            table: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Adds a state; returns its number.
    pub fn state(&mut self, entries: impl IntoIterator<Item = (u32, u32)>) -> u32 {
        let number = (self.table.len() / 8) as u32;
        let first = (self.entries.len() / 8) as u32;
        for (block, pool) in entries {
            self.entries.extend(block.to_le_bytes());
            self.entries.extend(pool.to_le_bytes());
        }
        let count = (self.entries.len() / 8) as u32 - first;
        self.table.extend(first.to_le_bytes());
        self.table.extend(count.to_le_bytes());
        number
    }

    /// Everything before the pool, which the caller puts behind it: `pool_blocks` blocks.
    pub fn head(&self, pool_blocks: u32) -> Vec<u8> {
        let used = HEADER_BYTES + self.table.len() + self.entries.len();
        let pool_offset = used.next_multiple_of(BLOCK_BYTES);
        let mut head = Vec::with_capacity(pool_offset);
        head.extend(MAGIC);
        let states = (self.table.len() / 8) as u32;
        let words = [
            self.disk.blocks,
            states,
            pool_blocks,
            self.disk.delay_us,
            self.disk.fua.into(),
            0,
        ];
        for word in words {
            head.extend(word.to_le_bytes());
        }
        head.extend((pool_offset as u64).to_le_bytes());
        head.extend(&self.table);
        head.extend(&self.entries);
        head.resize(pool_offset, 0);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const DISK: Disk = Disk {
        blocks: 10,
        delay_us: 7,
        fua: true,
    };

    fn file() -> Vec<u8> {
        let mut builder = Builder::new(DISK);
        assert_eq!(builder.state([(0, 1), (9, 0)]), 0);
        assert_eq!(builder.state([]), 1);
        assert_eq!(builder.state([(3, 1)]), 2);
        let mut file = builder.head(2);
        file.extend(vec![5; BLOCK_BYTES]);
        file.extend(vec![6; BLOCK_BYTES]);
        file
    }

    #[test]
    fn what_was_built_is_read() {
        let file = file();
        let states = States::open(&file).unwrap();
        assert_eq!(
            (states.disk, states.count(), states.pool_blocks()),
            (DISK, 3, 2)
        );
        let entries = |state| states.entries(state).collect::<Vec<_>>();
        assert_eq!(entries(0), [(0, 1), (9, 0)]);
        assert_eq!(entries(1), []);
        assert_eq!(entries(2), [(3, 1)]);
        assert_eq!(states.block(1), [6; BLOCK_BYTES]);
    }

    #[test]
    fn damage_is_refused() {
        let whole = file();
        assert_eq!(
            States::open(&whole[..whole.len() - 1]).err(),
            Some(StatesError::Truncated)
        );
        assert_eq!(
            States::open(&whole[..20]).err(),
            Some(StatesError::Truncated)
        );
        assert_eq!(States::open(b"SHGLDRV1").err(), Some(StatesError::Magic));
        let mut wrong = whole.clone();
        // The block of the last entry: beyond the disk.
        wrong[HEADER_BYTES + 24 + 16] = 10;
        assert_eq!(States::open(&wrong).err(), Some(StatesError::Entry(2)));
    }
}
