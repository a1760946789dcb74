// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers: PCG-64, seeded from the run's seed and a stream number. The
//! mapping to ranges is written out here, so that the numbers of a seed do not
//! change with the version of a library, nor with the processor.

use rand_core::Rng as _;
use rand_pcg::Pcg64;

pub struct Rng(Pcg64);

impl Rng {
    /// Stream `stream` of `seed`: streams do not overlap in practice.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg64::new(
            u128::from(mix64(seed)) << 64 | u128::from(seed),
            u128::from(stream),
        ))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index of a slice of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Uniform in (0, 1], 53 bits.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Gamma distribution of shape 1.5 (Filebench's `dirgamma=1500`): an
    /// exponential plus half the square of a normal (Box-Muller). `libm` is
    /// plain Rust, so the values are the same on every processor.
    pub fn gamma_1_5(&mut self, mean: f64) -> f64 {
        let exponential = -libm::log(self.unit());
        let radius = -libm::log(self.unit());
        let cosine = libm::cos(2.0 * std::f64::consts::PI * self.unit());
        (exponential + radius * cosine * cosine) * mean / 1.5
    }
}

/// The finaliser of SplitMix64: a bijection of 64-bit words.
pub fn mix64(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_are_fixed() {
        let mut a = Rng::new(1, 2);
        let mut b = Rng::new(1, 2);
        let mut other = Rng::new(1, 3);
        let first: Vec<u64> = (0..8).map(|_| a.next_u64()).collect();
        assert_eq!(first, (0..8).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(first, (0..8).map(|_| other.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn below_stays_in_range_and_reaches_both_ends() {
        let mut rng = Rng::new(7, 0);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(3, 0);
        let draws: Vec<f64> = (0..200_000).map(|_| rng.gamma_1_5(4.0)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 4.0).abs() < 0.05, "mean {mean}");
        // mean^2 / shape
        assert!((variance - 16.0 / 1.5).abs() < 0.4, "variance {variance}");
    }
}
