// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers from a seed, and what every byte of every file is.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// A number that looks like chance and is always the same (splitmix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Random numbers from a seed.
pub struct Random(Pcg64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Pcg64::seed_from_u64(seed))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    /// True once in `of` times.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// How a file's bytes follow from its number and their places: nobody has to keep them to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Each eight bytes are others.
    Fine,
    /// Each 4 KiB are one word again and again: what takes no room on the simulated device.
    Coarse,
}

/// What a file holds, if it was never truncated to nothing, or so often.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub base: u64,
    pub grain: Grain,
}

impl Text {
    pub fn new(seed: u64, file: u64, generation: u64, grain: Grain) -> Self {
        Text {
            base: mix(mix(mix(seed) ^ file) ^ generation),
            grain,
        }
    }

    fn word(&self, at: u64) -> u64 {
        let number = match self.grain {
            Grain::Fine => at / 8,
            Grain::Coarse => at / 4096,
        };
        // Never zero: zeros mean that nothing was written.
        mix(self.base ^ number) | 1
    }

    /// The bytes from `at` on.
    pub fn fill(&self, at: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let count = rest.len().min(8 - skip);
            let word = self.word(at).to_le_bytes();
            let (part, others) = rest.split_at_mut(count);
            part.copy_from_slice(&word[skip..skip + count]);
            at += count as u64;
            rest = others;
            if self.grain == Grain::Coarse && at % 8 == 0 && rest.len() >= 8 {
                let whole = (4096 - at % 4096).min(rest.len() as u64) as usize / 8 * 8;
                let (words, others) = rest.split_at_mut(whole);
                if whole > 0 {
                    let word = self.word(at).to_le_bytes();
                    words
                        .chunks_exact_mut(8)
                        .for_each(|part| part.copy_from_slice(&word));
                }
                at += whole as u64;
                rest = others;
            }
        }
    }

    pub fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(at, &mut bytes);
        bytes
    }
}
