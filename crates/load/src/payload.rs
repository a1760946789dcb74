// SPDX-License-Identifier: MIT OR Apache-2.0
//! File contents that can be checked from three numbers: file, block within the
//! file (4 KiB), generation. By default a block is one 8-byte word repeated,
//! which the simulated drive keeps as a tag; `random` fills it with noise, which
//! costs the drive its whole size in host memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rng::{mix64, Rng};

pub const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// Each 4 KiB block is one 8-byte word, repeated.
    #[default]
    Word,
    /// Each 4 KiB block is pseudo-random: it does not compress.
    Random,
}

/// What identifies the contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    pub payload: Payload,
    pub file: u64,
    pub generation: u64,
}

impl Contents {
    /// The word of a block; never 0, so that a lost block is not taken for a hole.
    fn word(&self, block: u64) -> u64 {
        mix64(mix64(mix64(self.file) ^ block) ^ self.generation).max(1)
    }

    /// The bytes of the file from `offset`, as many as `out` takes.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut offset = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let within = (offset % BLOCK_BYTES) as usize;
            let length = rest.len().min(BLOCK_BYTES as usize - within);
            let (piece, tail) = rest.split_at_mut(length);
            self.fill_block(offset / BLOCK_BYTES, within, piece);
            offset += length as u64;
            rest = tail;
        }
    }

    fn fill_block(&self, block: u64, within: usize, out: &mut [u8]) {
        match self.payload {
            Payload::Word => fill_word(self.word(block), within, out),
            Payload::Random => fill_noise(self.word(block), within, out),
        }
    }

    /// Offset of the first byte that differs from what should be there.
    pub fn first_difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0u8; BLOCK_BYTES as usize];
        for (i, piece) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let at = offset + i as u64 * BLOCK_BYTES;
            let expected = &mut expected[..piece.len()];
            self.fill(at, expected);
            if piece != expected {
                let byte = piece.iter().zip(expected.iter()).position(|(a, b)| a != b);
                return byte.map(|b| at + b as u64);
            }
        }
        None
    }
}

fn fill_word(word: u64, within: usize, out: &mut [u8]) {
    let bytes = word.to_le_bytes();
    if within % 8 == 0 && out.len() % 8 == 0 {
        for chunk in out.chunks_exact_mut(8) {
            chunk.copy_from_slice(&bytes);
        }
        return;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = bytes[(within + i) % 8];
    }
}

fn fill_noise(word: u64, within: usize, out: &mut [u8]) {
    let mut rng = Rng::new(word, 0);
    let mut block = [0u8; BLOCK_BYTES as usize];
    for chunk in block.chunks_exact_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.copy_from_slice(&block[within..within + out.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_agree_with_the_whole() {
        for payload in [Payload::Word, Payload::Random] {
            let contents = Contents {
                payload,
                file: 5,
                generation: 2,
            };
            let mut whole = vec![0; 20_000];
            contents.fill(0, &mut whole);
            for (offset, length) in [(0, 20_000), (1, 9000), (4095, 2), (8192, 4096), (13, 1)] {
                let mut piece = vec![0; length];
                contents.fill(offset as u64, &mut piece);
                assert_eq!(piece, whole[offset..offset + length]);
                assert_eq!(contents.first_difference(offset as u64, &piece), None);
            }
        }
    }

    #[test]
    fn a_block_is_one_word_and_blocks_differ() {
        let contents = Contents {
            payload: Payload::Word,
            file: 1,
            generation: 0,
        };
        let mut two = vec![0; 8192];
        contents.fill(0, &mut two);
        assert!(two[..4096].chunks(8).all(|c| c == &two[..8]));
        assert!(two[4096..].chunks(8).all(|c| c == &two[4096..4104]));
        assert_ne!(two[..8], two[4096..4104]);
    }

    #[test]
    fn a_flipped_byte_is_found_where_it_is() {
        let contents = Contents {
            payload: Payload::Word,
            file: 1,
            generation: 9,
        };
        let mut bytes = vec![0; 10_000];
        contents.fill(100, &mut bytes);
        bytes[5000] ^= 1;
        assert_eq!(contents.first_difference(100, &bytes), Some(5100));
    }
}
