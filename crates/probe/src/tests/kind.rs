// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skylight's first test: the time of a durable write depends on where the platters stand, if it goes in place; a log
//! is written wherever its head is.

use crate::disk::{Stop, BLOCK_BYTES, GIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::{mean, median, quantile};

const DURABLE_WRITES: usize = 240;
const CACHED_WRITES: usize = 4000;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let what = "small durable writes";
    let range = GIB.min(s.capacity() / 4);
    let from = s.offset(0.2, BLOCK_BYTES, range);
    let mut times = Vec::new();
    for _ in 0..DURABLE_WRITES {
        let at = from + s.below(range / BLOCK_BYTES) * BLOCK_BYTES;
        times.push(s.write(at, BLOCK_BYTES)? + s.flush()?);
    }
    // The first are still those of a drive that wakes up.
    let times = &times[DURABLE_WRITES / 6..];
    let turn_ms = s.known.mechanics.revolution_ms;
    let spread = (quantile(times, 0.75) - quantile(times, 0.25)) / turn_ms;
    let durable_ms = median(times);
    let mut cached = Vec::new();
    // Not wider: a shingled drive has to clean every band that this touches.
    let range = (4 * GIB).min(s.capacity() / 4);
    let from = s.offset(0.3, BLOCK_BYTES, range);
    for _ in 0..CACHED_WRITES {
        let at = from + s.below(range / BLOCK_BYTES) * BLOCK_BYTES;
        cached.push(s.write(at, BLOCK_BYTES)?);
    }
    s.flush()?;
    let sustained_ms = mean(&cached[CACHED_WRITES / 2..]);
    let read_ms = s.known.mechanics.random_read_ms;
    let how = format!(
        "median {durable_ms:.2} ms, middle half within {spread:.2} revolutions (in place: about 0.5, log: about 0); \
         without flushes {sustained_ms:.2} ms a write over 4 GiB, where a read over the whole disk takes {read_ms:.1} ms"
    );
    let (logs, confidence) = match (spread, sustained_ms / read_ms) {
        (spread, ratio) if spread < 0.25 && ratio < 0.2 => (Some(true), Confidence::High),
        (spread, ratio) if spread > 0.35 && ratio > 0.2 => (Some(false), Confidence::High),
        (spread, _) if spread < 0.25 => (Some(true), Confidence::Medium),
        (_, ratio) if ratio < 0.1 => (Some(true), Confidence::Low),
        _ => (None, Confidence::Low),
    };
    s.known.logs = logs;
    s.found(match logs {
        Some(true) => Finding::word("kind.writes", what, "to a log", confidence, how),
        Some(false) => Finding::word("kind.writes", what, "in place", confidence, how),
        None => Finding::open("kind.writes", what, how),
    });
    let interval = (sustained_ms * 0.95, sustained_ms * 1.05);
    let how = format!("the second half of {CACHED_WRITES} writes");
    s.found(Finding::number(
        "kind.random_write",
        "random 4 KiB write",
        sustained_ms,
        "ms",
        interval,
        how,
    ));
    Ok(())
}
