// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sequence of random numbers (xorshift64*, Vigna 2016): the same in every run and on every host.

/// The sequence; its seed must not be zero.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A sequence for any seed, zero included.
    pub fn from_seed(seed: u64) -> Self {
        // Neighbouring seeds must not begin alike (splitmix64's finaliser).
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((z ^ z >> 31).max(1))
    }

    /// A number below `n`, which must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}
