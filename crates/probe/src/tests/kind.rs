// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where small writes go. What was written in place is found there at once; what went to a log is elsewhere, until a
//! cleaner brings it home. And Skylight's first test: the time of a durable write depends on where the platters stand if
//! it goes in place, but a log is written wherever its head is.

use super::enforced;
use super::write_cache::write_cache_found;
use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::{mean, median, quantile, share_interval};

/// Not wider: a shingled drive has to clean every band that this touches, and may follow but a few zones.
const RANGE: u64 = 512 * MIB;
const DURABLE_WRITES: u64 = 240;
const LOOKS: usize = 60;
const CACHED_WRITES: usize = 4000;
const UNFLUSHED: u64 = 32;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    match small_writes(s) {
        Err(Stop::Refused(why)) => enforced::run(s, &why),
        other => other,
    }
}

fn small_writes(s: &mut Session<'_>) -> Result<(), Stop> {
    let what = "small durable writes";
    let range = RANGE.min(s.capacity() / 32);
    let from = s.offset(0.2, BLOCK_BYTES, range);
    // One somewhere in each part, so that the neighbours of each stay where they are.
    let part = range / DURABLE_WRITES;
    let mut places: Vec<u64> = (0..DURABLE_WRITES)
        .map(|i| i * part + s.below(part / 2 / BLOCK_BYTES) * BLOCK_BYTES)
        .map(|at| from + at / BLOCK_BYTES * BLOCK_BYTES)
        .collect();
    s.shuffle(&mut places);
    let mut times = Vec::new();
    for at in &places {
        times.push(s.write(*at, BLOCK_BYTES)? + s.flush()?);
    }
    s.evict()?;
    // Those written last: a drive that cleans all the time has not come to them.
    let mut home = 0;
    for at in places.iter().rev().take(LOOKS) {
        home += usize::from(s.is_home(*at)?);
    }
    let share = share_interval(home, LOOKS);
    // The first are still those of a drive that wakes up.
    let times = &times[DURABLE_WRITES as usize / 6..];
    let turn_ms = s.known.mechanics.revolution_ms;
    let spread = (quantile(times, 0.75) - quantile(times, 0.25)) / turn_ms;
    let durable_ms = median(times);
    write_cache(s, from, part)?;
    let sustained_ms = sustained(s)?;
    let read_ms = s.known.mechanics.random_read_ms;
    let how = format!(
        "{home} of {LOOKS} blocks were at home at once (in place: all, log: none); durable in {durable_ms:.2} ms in the \
         median, middle half within {spread:.2} revolutions (in place: about 0.5); without flushes {sustained_ms:.2} ms a \
         write over 512 MiB, where a read over the whole disk takes {read_ms:.1} ms"
    );
    let (logs, confidence) = match share {
        (least, _) if least > 0.8 && spread > 0.35 => (Some(false), Confidence::High),
        (least, _) if least > 0.8 => (Some(false), Confidence::Medium),
        (_, most) if most < 0.2 => (Some(true), Confidence::High),
        (_, most) if most < 0.5 => (Some(true), Confidence::Medium),
        _ => (None, Confidence::Low),
    };
    s.known.logs = logs;
    s.found(match logs {
        Some(true) => Finding::word("kind.writes", what, "to a log", confidence, how),
        Some(false) => Finding::word("kind.writes", what, "in place", confidence, how),
        None => Finding::open("kind.writes", what, how),
    });
    Ok(())
}

/// Whether a write is acknowledged before the platters have turned to it.
fn write_cache(s: &mut Session<'_>, from: u64, part: u64) -> Result<(), Stop> {
    s.flush()?;
    let mut times = Vec::new();
    for i in 0..UNFLUSHED {
        // Where a block was written already.
        let at = from + i * part / BLOCK_BYTES * BLOCK_BYTES;
        times.push(s.write(at, BLOCK_BYTES)?);
    }
    s.flush()?;
    let how = format!("{UNFLUSHED} blocks written here and there, without a flush");
    write_cache_found(s, &times, how);
    Ok(())
}

/// Mean time of a write when there are many without a flush.
fn sustained(s: &mut Session<'_>) -> Result<f64, Stop> {
    let mut cached = Vec::new();
    let range = RANGE.min(s.capacity() / 32) / MIB * MIB;
    let from = s.offset(0.3, BLOCK_BYTES, range);
    for _ in 0..CACHED_WRITES {
        let at = from + s.below(range / BLOCK_BYTES) * BLOCK_BYTES;
        cached.push(s.write(at, BLOCK_BYTES)?);
    }
    s.flush()?;
    let sustained_ms = mean(&cached[CACHED_WRITES / 2..]);
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
    Ok(sustained_ms)
}
