// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a journal, as far as whoever damages it has to know it: where its blocks lie, what each of them is, and
//! how to make a checksum right again.

use crate::pool::{Contents, Pool};
use crash_drive::{BLOCK_BYTES, SECTOR_BYTES};

/// First word of every block of the log that is no copy.
pub const MAGIC: u32 = 0xc03b_3998;
/// First word behind the header of a block that belongs to a snapshot of the map.
const SNAPSHOT: u32 = 0x4c5a_5953;
const SAME_UUID: u32 = 2;
const LAST_TAG: u32 = 8;
/// Of the journal superblock, what its checksum covers.
const SUPER_BYTES: usize = 1024;
const SUPER_CSUM: usize = 0xfc;
/// Where the marker of journal_lazy is in it.
pub const MARKER: usize = 0xbc;
const COMMIT_CSUM: usize = 16;

/// What a block of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The journal superblock.
    Super,
    /// A descriptor, and how many copies it describes.
    Descriptor(u32),
    /// A copy of a metadata block.
    Copy,
    /// A block of revokes.
    Revoke,
    /// A block of a snapshot of the map.
    Snapshot,
    /// A commit block.
    Commit,
}

/// The big-endian word at an offset.
pub fn word(block: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

/// Sets the big-endian word at an offset.
pub fn put_word(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The kernel's CRC-32C, which is inverted neither before nor after.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Where the log lies, and what its superblock says.
#[derive(Clone, Debug)]
pub struct Log {
    /// First sector and sectors, in the order of the log.
    extents: Vec<(u64, u64)>,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks, the superblock included.
    pub blocks: u32,
    seed: u32,
    /// Where the oldest transaction that is needed begins.
    pub tail: u32,
    /// Which one that is.
    pub sequence: u32,
}

/// What is in a log, from its tail to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Blocks in the order of the log; the superblock is not among them.
    pub blocks: Vec<(u32, Kind)>,
    /// The block behind them.
    pub end: u32,
    /// The transaction that would begin there.
    pub next: u32,
}

impl Log {
    /// Reads the journal superblock.
    pub fn open(
        extents: &[(u64, u64)],
        block_bytes: usize,
        contents: &Contents,
        pool: &Pool,
    ) -> Result<Self, String> {
        let sectors: u64 = extents.iter().map(|(_, sectors)| sectors).sum();
        let mut log = Self {
            extents: extents.to_vec(),
            block_bytes,
            blocks: (sectors * SECTOR_BYTES as u64 / block_bytes as u64) as u32,
            seed: 0,
            tail: 0,
            sequence: 0,
        };
        let head = log.read(contents, pool, 0);
        if word(&head, 0) != MAGIC || word(&head, 4) != 4 {
            return Err("expected a journal superblock of version 2 at the first extent".into());
        }
        if word(&head, 12) as usize != block_bytes || word(&head, 16) > log.blocks {
            return Err(format!(
                "the journal superblock says {} blocks of {} bytes, expected at most {} of {block_bytes}",
                word(&head, 16),
                word(&head, 12),
                log.blocks
            ));
        }
        log.blocks = word(&head, 16);
        log.seed = crc(!0, &head[0x30..0x40]);
        log.sequence = word(&head, 24);
        log.tail = word(&head, 28);
        Ok(log)
    }

    fn place(&self, block: u32) -> usize {
        let mut left = u64::from(block) * (self.block_bytes / SECTOR_BYTES) as u64;
        for (first, sectors) in &self.extents {
            if left < *sectors {
                return (first + left) as usize * SECTOR_BYTES;
            }
            left -= sectors;
        }
        panic!("log block {block} is behind the log");
    }

    /// A block of the log.
    pub fn read(&self, contents: &Contents, pool: &Pool, block: u32) -> Vec<u8> {
        let place = self.place(block);
        let whole = pool.block(contents, (place / BLOCK_BYTES) as u32);
        let offset = place % BLOCK_BYTES;
        whole[offset..offset + self.block_bytes].to_vec()
    }

    /// Makes a block of the log this one.
    pub fn write(&self, contents: &mut Contents, pool: &mut Pool, block: u32, data: &[u8]) {
        let place = self.place(block);
        let (number, offset) = ((place / BLOCK_BYTES) as u32, place % BLOCK_BYTES);
        let mut whole = pool.block(contents, number);
        whole[offset..offset + self.block_bytes].copy_from_slice(data);
        pool.set(contents, number, &whole);
    }

    /// The block behind another.
    pub fn after(&self, block: u32) -> u32 {
        if block + 1 >= self.blocks {
            1
        } else {
            block + 1
        }
    }

    /// What a block is that is no copy.
    pub fn kind(&self, data: &[u8]) -> Option<Kind> {
        if word(data, 0) != MAGIC {
            return None;
        }
        match word(data, 4) {
            1 => Some(Kind::Descriptor(self.tags(data))),
            2 => Some(Kind::Commit),
            3 | 4 => Some(Kind::Super),
            5 if word(data, 16) == SNAPSHOT && word(data, 12) == 16 => Some(Kind::Snapshot),
            5 => Some(Kind::Revoke),
            _ => None,
        }
    }

    /// How many tags a descriptor has.
    fn tags(&self, data: &[u8]) -> u32 {
        let (mut at, mut count) = (12, 0);
        while at + 16 <= self.block_bytes - 4 {
            let flags = word(data, at + 4);
            count += 1;
            at += if flags & SAME_UUID != 0 { 16 } else { 32 };
            if flags & LAST_TAG != 0 {
                break;
            }
        }
        count
    }

    /// How many bytes of a block mean something, its checksum left out.
    pub fn used(&self, data: &[u8]) -> usize {
        let most = self.block_bytes - 4;
        match self.kind(data) {
            Some(Kind::Descriptor(tags)) => (12 + 16 + tags as usize * 16).min(most),
            Some(Kind::Revoke) => (word(data, 12) as usize).clamp(16, most),
            Some(Kind::Snapshot) => {
                let records = usize::from(u16::from_be_bytes([data[30], data[31]]));
                let chain = usize::from(u16::from_be_bytes([data[28], data[29]]));
                (52 + chain * 16 + records * 8).min(most)
            }
            Some(Kind::Commit) => 60,
            Some(Kind::Super) => SUPER_CSUM,
            _ => self.block_bytes,
        }
    }

    /// Makes the checksum of a block right; what has none stays as it is.
    pub fn seal(&self, data: &mut [u8]) {
        let (at, covered, seed) = match self.kind(data) {
            Some(Kind::Descriptor(_) | Kind::Revoke | Kind::Snapshot) => {
                (self.block_bytes - 4, self.block_bytes, self.seed)
            }
            Some(Kind::Commit) => (COMMIT_CSUM, self.block_bytes, self.seed),
            Some(Kind::Super) => (SUPER_CSUM, SUPER_BYTES, !0),
            _ => return,
        };
        put_word(data, at, 0);
        let sum = crc(seed, &data[..covered]);
        put_word(data, at, sum);
    }

    /// Whether the checksum of a block is right.
    pub fn is_whole(&self, data: &[u8]) -> bool {
        let mut sealed = data.to_vec();
        self.seal(&mut sealed);
        self.kind(data).is_some() && sealed == data
    }

    /// Goes through the log from its tail to its end.
    pub fn walk(&self, contents: &Contents, pool: &Pool) -> Found {
        let (mut block, mut next) = (self.tail, self.sequence);
        let mut blocks = Vec::new();
        let mut complete = (0, self.tail, next);
        while self.tail != 0 && blocks.len() < self.blocks as usize {
            let data = self.read(contents, pool, block);
            let Some(kind) = self.kind(&data) else { break };
            if word(&data, 8) != next || !self.is_whole(&data) {
                break;
            }
            blocks.push((block, kind));
            block = self.after(block);
            match kind {
                Kind::Descriptor(tags) => {
                    for _ in 0..tags {
                        blocks.push((block, Kind::Copy));
                        block = self.after(block);
                    }
                }
                Kind::Commit => {
                    next = next.wrapping_add(1);
                    complete = (blocks.len(), block, next);
                }
                _ => (),
            }
        }
        // A transaction without its commit block is none.
        blocks.truncate(complete.0);
        Found {
            blocks,
            end: complete.1,
            next: complete.2,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";

    /// A log of 64 blocks of 1 KiB in two pieces, that goes round: its tail is at block 60, and it ends at block 5.
    pub(crate) fn example() -> (Log, Pool, Contents) {
        let (mut pool, mut contents) = (Pool::default(), Contents::new());
        let extents = [(16, 64), (104, 64)];
        let mut log = Log {
            extents: extents.to_vec(),
            block_bytes: 1024,
            blocks: 64,
            seed: crc(!0, &UUID),
            tail: 60,
            sequence: 7,
        };
        let mut put = |log: &Log, block: u32, words: &[(usize, u32)]| {
            let mut data = vec![0; 1024];
            for (at, value) in words {
                put_word(&mut data, *at, *value);
            }
            if block == 0 {
                data[0x30..0x40].copy_from_slice(&UUID);
            }
            log.seal(&mut data);
            log.write(&mut contents, &mut pool, block, &data);
        };
        put(
            &log,
            0,
            &[(0, MAGIC), (4, 4), (12, 1024), (16, 64), (24, 7), (28, 60)],
        );
        // Two tags, the first with a UUID behind it.
        put(
            &log,
            60,
            &[(0, MAGIC), (4, 1), (8, 7), (12, 100), (44, 101), (48, 10)],
        );
        put(&log, 61, &[(0, 0x1111)]);
        put(&log, 62, &[(0, 0x2222)]);
        put(&log, 63, &[(0, MAGIC), (4, 2), (8, 7)]);
        put(&log, 1, &[(0, MAGIC), (4, 5), (8, 8), (12, 24), (20, 100)]);
        put(
            &log,
            2,
            &[(0, MAGIC), (4, 5), (8, 8), (12, 16), (16, SNAPSHOT)],
        );
        put(&log, 3, &[(0, MAGIC), (4, 2), (8, 8)]);
        put(&log, 4, &[(0, MAGIC), (4, 1), (8, 9), (16, 10)]);
        log = Log::open(&extents, 1024, &contents, &pool).unwrap();
        (log, pool, contents)
    }

    #[test]
    fn a_log_is_walked_round_its_end() {
        let (log, pool, contents) = example();
        let found = log.walk(&contents, &pool);
        let kinds = [
            (60, Kind::Descriptor(2)),
            (61, Kind::Copy),
            (62, Kind::Copy),
            (63, Kind::Commit),
            (1, Kind::Revoke),
            (2, Kind::Snapshot),
            (3, Kind::Commit),
        ];
        assert_eq!(found.blocks, kinds);
        assert_eq!((found.end, found.next), (4, 9));
    }

    #[test]
    fn the_checksum_is_the_kernels() {
        // CRC-32C of "123456789" is 0xe3069283 when it is inverted on both ends.
        assert_eq!(!crc(!0, b"123456789"), 0xe306_9283);
        let (log, pool, contents) = example();
        let mut data = log.read(&contents, &pool, 60);
        assert!(log.is_whole(&data));
        put_word(&mut data, 12, 102);
        assert!(!log.is_whole(&data));
        log.seal(&mut data);
        assert!(log.is_whole(&data));
    }
}
