// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distinct blocks, each once, and contents of disks as tables into them.

use crash_drive::states::{Disk, States};
use crash_drive::{BLOCK_BYTES, SECTOR_BYTES};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Contents of a disk: the blocks that are not zero, by number.
pub type Contents = BTreeMap<u32, u32>;

/// Distinct blocks.
#[derive(Default)]
pub struct Pool {
    blocks: Vec<[u8; BLOCK_BYTES]>,
    hashes: Vec<u128>,
    numbers: BTreeMap<u128, u32>,
    /// What a piece of a write makes of a block: by write, piece, and the block before where that matters. A cut deep in a
    /// record writes the same thousands of pieces as the cut before.
    made: BTreeMap<(u64, u32, Option<u32>), Option<u32>>,
}

fn hash(parts: &[&[u8]]) -> u128 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    let digest = digest.finalize();
    let mut word = [0; 16];
    word.copy_from_slice(&digest[..16]);
    u128::from_le_bytes(word)
}

impl Pool {
    /// The number of a block; `None`: it is zero.
    pub fn number(&mut self, block: &[u8; BLOCK_BYTES]) -> Option<u32> {
        if block.iter().all(|byte| *byte == 0) {
            return None;
        }
        let hash = hash(&[block]);
        Some(*self.numbers.entry(hash).or_insert_with(|| {
            self.blocks.push(*block);
            self.hashes.push(hash);
            (self.blocks.len() - 1) as u32
        }))
    }

    /// A block of contents.
    pub fn block(&self, contents: &Contents, block: u32) -> [u8; BLOCK_BYTES] {
        contents
            .get(&block)
            .map_or([0; BLOCK_BYTES], |number| self.blocks[*number as usize])
    }

    /// Makes a block of the contents this one.
    pub fn set(&mut self, contents: &mut Contents, block: u32, data: &[u8; BLOCK_BYTES]) {
        match self.number(data) {
            Some(number) => contents.insert(block, number),
            None => contents.remove(&block),
        };
    }

    /// Writes sectors, of which each block of 4 KiB is written only if `wanted` says so of its index in the write. `id`
    /// names the write among all that this pool ever sees.
    pub fn write(
        &mut self,
        contents: &mut Contents,
        id: u64,
        sector: u64,
        data: &[u8],
        mut wanted: impl FnMut(u32) -> bool,
    ) {
        let mut at = sector as usize * SECTOR_BYTES;
        let (mut rest, mut index) = (data, 0);
        while !rest.is_empty() {
            let (block, offset) = ((at / BLOCK_BYTES) as u32, at % BLOCK_BYTES);
            let length = rest.len().min(BLOCK_BYTES - offset);
            let (piece, tail) = rest.split_at(length);
            if wanted(index) {
                let before = contents.get(&block).copied();
                let key = (id, index, before.filter(|_| length < BLOCK_BYTES));
                let number = match self.made.get(&key) {
                    Some(number) => *number,
                    None => {
                        let mut whole = self.block(contents, block);
                        whole[offset..offset + length].copy_from_slice(piece);
                        let number = self.number(&whole);
                        self.made.insert(key, number);
                        number
                    }
                };
                match number {
                    Some(number) => contents.insert(block, number),
                    None => contents.remove(&block),
                };
            }
            (rest, at, index) = (tail, at + length, index + 1);
        }
    }

    /// A state of a file of states.
    pub fn state(&mut self, states: &States, state: u32) -> Contents {
        let mut contents = Contents::new();
        for (block, number) in states.entries(state) {
            let mut data = [0; BLOCK_BYTES];
            data.copy_from_slice(states.block(number));
            self.set(&mut contents, block, &data);
        }
        contents
    }

    /// A hash that is equal for equal contents only.
    pub fn hash(&self, disk: Disk, contents: &Contents) -> u128 {
        let mut digest = Sha256::new();
        digest.update(disk.blocks.to_le_bytes());
        for (block, number) in contents {
            digest.update(block.to_le_bytes());
            digest.update(self.hashes[*number as usize].to_le_bytes());
        }
        let mut word = [0; 16];
        word.copy_from_slice(&digest.finalize()[..16]);
        u128::from_le_bytes(word)
    }

    /// All blocks, in the order of their numbers.
    pub fn blocks(&self) -> &[[u8; BLOCK_BYTES]] {
        &self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_change_what_they_cover_and_nothing_else() {
        let mut pool = Pool::default();
        let mut contents = Contents::new();
        pool.write(&mut contents, 1, 7, &[1; 2 * SECTOR_BYTES], |_| true);
        assert_eq!(contents.keys().copied().collect::<Vec<_>>(), [0, 1]);
        let first = pool.block(&contents, 0);
        assert!(
            first[..7 * 512].iter().all(|b| *b == 0) && first[7 * 512..].iter().all(|b| *b == 1)
        );
        assert_eq!(
            pool.block(&contents, 1)[..513],
            [[1u8; 512].as_slice(), &[0]].concat()
        );
        pool.write(&mut contents, 2, 0, &[2; 3 * BLOCK_BYTES], |index| {
            index == 1
        });
        assert_eq!(pool.block(&contents, 1), [2; BLOCK_BYTES]);
        assert_eq!(pool.block(&contents, 0), first);
        // The same write again, over something else: what was kept of it is not used.
        let mut other = Contents::new();
        pool.set(&mut other, 0, &[8; BLOCK_BYTES]);
        pool.write(&mut other, 1, 7, &[1; 2 * SECTOR_BYTES], |_| true);
        assert_eq!(pool.block(&other, 0)[..7 * 512], [8; 7 * 512]);
        // Zeroes are the same as nothing.
        pool.write(&mut contents, 3, 0, &[0; 2 * BLOCK_BYTES], |_| true);
        assert!(contents.is_empty());
    }

    #[test]
    fn the_same_block_is_kept_once() {
        let mut pool = Pool::default();
        let (mut a, mut b) = (Contents::new(), Contents::new());
        pool.set(&mut a, 3, &[9; BLOCK_BYTES]);
        pool.set(&mut b, 4, &[9; BLOCK_BYTES]);
        assert_eq!(pool.blocks().len(), 1);
        let disk = Disk {
            blocks: 8,
            delay_us: 0,
            fua: true,
        };
        assert_ne!(pool.hash(disk, &a), pool.hash(disk, &b));
        pool.set(&mut b, 3, &[9; BLOCK_BYTES]);
        pool.set(&mut b, 4, &[0; BLOCK_BYTES]);
        assert_eq!(pool.hash(disk, &a), pool.hash(disk, &b));
    }
}
