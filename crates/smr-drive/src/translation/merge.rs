// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Collecting scattered pieces of the cache's log, for a band or an s-block that is cleaned.

/// Time to collect `pieces` scattered pieces, from a table for powers of two.
pub fn merge_ns(by_log2: &[u64], pieces: u64) -> u64 {
    if pieces == 0 {
        return 0;
    }
    let power = pieces.ilog2() as usize;
    let last = by_log2.last().copied().unwrap_or(0);
    let low = by_log2.get(power).copied().unwrap_or(last);
    let high = by_log2.get(power + 1).copied().unwrap_or(low * 2);
    low + (high - low) * (pieces - (1 << power)) / (1 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_powers_the_merge_law_is_a_straight_line() {
        let table = [10, 20, 60, 200];
        assert_eq!(
            [0, 1, 2, 3, 4, 6, 8].map(|n| merge_ns(&table, n)),
            [0, 10, 20, 40, 60, 130, 200]
        );
    }
}
