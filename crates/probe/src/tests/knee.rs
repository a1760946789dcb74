// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where writes become slow for good: a cache, or a part of one, is full.

use crate::disk::Stop;
use crate::session::Session;
use crate::statistics::{mean, median, step_at};

/// Writes of a batch, in a cache in parts.
pub const PART_BATCH: usize = 250;
/// Batches that fill a DRAM.
pub const PART_SKIPPED: usize = 4;
/// A cleaner that takes its share of the time makes them slower by degrees, four times at three quarters; a full part
/// waits for a whole band.
pub const PART_STEEP: f64 = 6.0;

/// What was seen until the cache was full.
pub struct Knee {
    /// Writes before it.
    pub writes: usize,
    pub fast_ms: f64,
    pub slow_ms: f64,
    /// Writes after it.
    pub after: Vec<f64>,
    pub batch: usize,
}

/// Batches after a slow one that show whether it is slow for good.
const LOOK_ON: usize = 12;

/// Writes what `next` says until writes have become slow for good, and some more; the first `skipped` batches go to the
/// DRAM. Slow: `steep` times as slow as before. `Err`: how many there were, and none did.
pub fn until_slow(
    s: &mut Session<'_>,
    batch: usize,
    bytes: u64,
    (skipped, steep): (usize, f64),
    mut next: impl FnMut(&mut Session<'_>) -> Option<u64>,
) -> Result<Result<Knee, usize>, Stop> {
    let mut times: Vec<f64> = Vec::new();
    let mut means: Vec<f64> = Vec::new();
    // The batch that was slow.
    let mut slow = None;
    loop {
        for _ in 0..batch {
            let Some(at) = next(s) else {
                return Ok(Err(times.len()));
            };
            times.push(s.write(at, bytes)?);
        }
        means.push(mean(&times[times.len() - batch..]));
        let n = means.len();
        if n < skipped + 6 {
            continue;
        }
        let first = *slow.get_or_insert(n - 1);
        let fast_ms = median(&means[skipped..first]);
        if means[first] < steep * fast_ms {
            slow = None;
        } else if n > first + LOOK_ON {
            // A cleaner that frees much at a time lets some batches pass fast between two slow ones.
            let slow_ms = mean(&means[first..]);
            if slow_ms < 0.8 * steep * fast_ms {
                slow = None;
                continue;
            }
            let from = skipped * batch;
            let longest_fast_ms = times[from..first * batch]
                .iter()
                .copied()
                .fold(0.0, f64::max);
            let late = |ms: &f64| *ms > 2.0 * longest_fast_ms;
            let within = &times[first * batch..(first + 1) * batch];
            let step = within
                .iter()
                .position(late)
                .unwrap_or(step_at(within, fast_ms, slow_ms));
            let writes = first * batch + step;
            let after = times.split_off(writes);
            return Ok(Ok(Knee {
                writes,
                fast_ms,
                slow_ms,
                after,
                batch,
            }));
        }
    }
}
