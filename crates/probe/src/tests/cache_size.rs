// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much fits into the persistent cache: writes are fast until it is full. Small writes fill its map, large ones its
//! log.

use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::{mean, median, step_at};

/// A stall is longer than any seek.
const STALL_MS: f64 = 40.0;
const ENTRIES_RANGE: u64 = 4 * GIB;
const ENTRIES_BATCH: usize = 500;
const BYTES_WRITE: u64 = MIB;
const BYTES_PITCH: u64 = MIB + (MIB >> 2);
const BYTES_MOST: u64 = 96 * GIB;
const BYTES_BATCH: usize = 128;
/// Slots are filled in random order within groups of so many, so that only what was touched has to be rewritten.
const BYTES_GROUP: usize = 512;

/// What was seen until the cache was full.
struct Knee {
    /// Writes before it.
    writes: usize,
    fast_ms: f64,
    slow_ms: f64,
    /// Writes after it.
    after: Vec<f64>,
    batch: usize,
}

/// Batches after a slow one that show whether it is slow for good.
const LOOK_ON: usize = 12;

/// Writes what `next` says until writes have become slow for good, and some more. `Err`: how many there were, and none
/// did.
fn until_slow(
    s: &mut Session<'_>,
    batch: usize,
    bytes: u64,
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
        // The first go to the DRAM.
        if n < 8 {
            continue;
        }
        let first = *slow.get_or_insert(n - 1);
        let fast_ms = median(&means[2..first]);
        if means[first] < 2.5 * fast_ms {
            slow = None;
        } else if n > first + LOOK_ON {
            // A cleaner that frees much at a time lets some batches pass fast between two slow ones.
            let slow_ms = mean(&means[first..]);
            if slow_ms < 2.0 * fast_ms {
                slow = None;
                continue;
            }
            let from = 2 * batch;
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

/// Distinct 4 KiB blocks that do not adjoin.
pub fn entries(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.cache_entries",
        "small writes that the persistent cache takes",
    );
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    let range = ENTRIES_RANGE.min(s.capacity() / 8) / MIB * MIB;
    let from = s.offset(0.22, MIB, range);
    // Every number below a power of two once: an odd step walks through all of them.
    let places = 1u64 << (range / BLOCK_BYTES / 2).max(1).ilog2();
    let (step, mut at) = (2 * s.below(places / 2) + 1, s.below(places));
    let (mut mixed, mut made) = (Vec::new(), 0);
    s.tell(what);
    let knee = until_slow(s, ENTRIES_BATCH, BLOCK_BYTES, |s| {
        // A walk with one step is regular: shuffled by the thousand it is not.
        if mixed.is_empty() && made < places {
            for _ in 0..1024.min(places - made) {
                at = (at + step) % places;
                mixed.push(at);
                made += 1;
            }
            s.shuffle(&mut mixed);
        }
        mixed.pop().map(|place| from + place * 2 * BLOCK_BYTES)
    })?;
    match knee {
        Ok(knee) => {
            let count = knee.writes as f64;
            s.known.entries = Some(count);
            let blur = knee.batch as f64;
            let how = format!(
                "distinct blocks of 4 KiB until a write took {:.1} instead of {:.2} ms",
                knee.slow_ms, knee.fast_ms
            );
            s.found(Finding::number(
                key,
                what,
                count,
                "1",
                (count - blur, count + blur),
                how,
            ));
            append_time(s, &knee);
            forced(s, &knee);
        }
        Err(count) => {
            let why = format!("{count} writes of 4 KiB did not fill it; this test makes no more");
            s.found(Finding::open(key, what, why));
        }
    }
    s.tell("rewriting what was written, in order, so that the cache is empty again");
    s.write_run(from, range)?;
    Ok(())
}

/// What one write to the log takes, if it is longer than the command.
fn append_time(s: &mut Session<'_>, knee: &Knee) {
    let (key, what) = ("translation.entry_time", "one small write to the log");
    let command_ms = s.known.mechanics.command_ms;
    if knee.fast_ms < 1.2 * command_ms {
        let why = format!(
            "a write took {:.2} ms before the cache was full, hardly longer than a command ({command_ms:.2} ms)",
            knee.fast_ms
        );
        return s.found(Finding::open(key, what, why));
    }
    let how = "mean acknowledged write before the cache was full".to_string();
    let interval = (knee.fast_ms * 0.97, knee.fast_ms * 1.03);
    s.found(Finding::number(
        key,
        what,
        knee.fast_ms,
        "ms",
        interval,
        how,
    ));
}

/// What writes are like when the cache is full.
fn forced(s: &mut Session<'_>, knee: &Knee) {
    let (key, what) = ("cleaning.forced", "cleaning when the cache is full");
    let stalls: Vec<f64> = knee
        .after
        .iter()
        .copied()
        .filter(|ms| *ms > STALL_MS)
        .collect();
    let between = knee.after.len() as f64 / stalls.len().max(1) as f64;
    let how = format!(
        "{} of {} writes took more than {STALL_MS:.0} ms; {:.1} ms a write in the mean",
        stalls.len(),
        knee.after.len(),
        mean(&knee.after)
    );
    if stalls.len() < 20 {
        s.found(Finding::open(key, what, how));
        return;
    }
    let word = if between > 1.5 {
        "in slices between writes"
    } else {
        "before each write"
    };
    s.found(Finding::word(
        key,
        what,
        word,
        Confidence::High,
        format!("{how}, one in {between:.1}"),
    ));
}

/// Pieces of 1 MiB that do not adjoin.
pub fn bytes(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("translation.cache", "bytes that the persistent cache takes");
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    let room = BYTES_MOST.min(s.capacity() / 3) / MIB * MIB;
    let from = s.offset(0.1, MIB, room);
    let slots = room / BYTES_PITCH;
    let (mut mixed, mut made) = (Vec::new(), 0);
    s.tell(what);
    let knee = until_slow(s, BYTES_BATCH, BYTES_WRITE, |s| {
        if mixed.is_empty() && made < slots {
            let end = (made + BYTES_GROUP as u64).min(slots);
            mixed.extend(made..end);
            made = end;
            s.shuffle(&mut mixed);
        }
        mixed.pop().map(|slot| from + slot * BYTES_PITCH)
    })?;
    match knee {
        Ok(knee) => {
            let gib = |writes: f64| writes * BYTES_WRITE as f64 / GIB as f64;
            let count = knee.writes as f64;
            let full_map = s.known.entries.is_some_and(|entries| count > 0.8 * entries);
            let how = format!(
                "scattered writes of 1 MiB until one took {:.0} instead of {:.1} ms",
                knee.slow_ms, knee.fast_ms
            );
            if full_map {
                let why = format!(
                    "{how}: but that were {count:.0} writes, so it was the map that was full"
                );
                s.found(Finding::open(key, what, why));
            } else {
                let blur = knee.batch as f64;
                let interval = (gib(count - blur), gib(count + blur));
                s.found(Finding::number(key, what, gib(count), "GiB", interval, how));
            }
        }
        Err(count) => {
            let why = format!(
                "{} GiB did not fill it; this test writes no more",
                count as u64 * BYTES_WRITE / GIB
            );
            s.found(Finding::open(key, what, why));
        }
    }
    s.tell("rewriting what was written, in order, so that the cache is empty again");
    s.write_run(from, made * BYTES_PITCH / MIB * MIB)?;
    Ok(())
}
