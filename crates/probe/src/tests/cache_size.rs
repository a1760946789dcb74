// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much fits into the persistent cache: writes are fast until it is full. Small writes fill its map, large ones its
//! log.

use super::knee::{until_slow, Knee, PART_BATCH, PART_SKIPPED, PART_STEEP};
use super::parts::Places;
use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::{mean, median, quantile};

/// A stall is longer than any seek.
const STALL_MS: f64 = 40.0;
const ENTRIES_RANGE: u64 = 4 * GIB;
const ENTRIES_BATCH: usize = 500;
/// In a cache in parts.
const PART_RANGE: u64 = 32 * GIB;
/// A full cache makes writes so much slower.
const STEEP: f64 = 2.5;
/// Writes that show what is usual.
const AROUND_FIRST: usize = 256;
/// So many late ones of the last: a cleaner is at work, and stays there.
const AROUND_LATE: usize = 3;
const AROUND_LAST: usize = 32;
const BURSTS: usize = 7;
const BURST_SHORT: usize = 40;
const BURST_LONG: usize = 200;
const BYTES_WRITE: u64 = MIB;
const BYTES_PITCH: u64 = MIB + (MIB >> 2);
const BYTES_MOST: u64 = 96 * GIB;
const BYTES_BATCH: usize = 128;
/// A part is thought to have room for fewer pieces of 1 MiB.
const PIECES_LEAST: f64 = 8192.0;
/// All of them are rewritten afterwards.
const BANDS_MOST: f64 = 2048.0;
const PART_BYTES_BATCH: usize = 16;
const PART_BYTES_SKIPPED: usize = 8;
/// Batches that fill a DRAM.
const SKIPPED: usize = 2;
/// Slots are filled in random order within groups of so many, so that only what was touched has to be rewritten.
const BYTES_GROUP: usize = 512;

/// Distinct 4 KiB blocks that do not adjoin.
pub fn entries(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.cache_entries",
        "small writes that the persistent cache takes",
    );
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    let (from, range) = match s.known.part {
        // As wide as it may be: what a cleaner finishes meanwhile gives back little.
        Some((first, end)) => {
            let range = PART_RANGE.min((end - first) / 2) / MIB * MIB;
            ((first + (end - first) / 4) / MIB * MIB, range)
        }
        None => {
            let range = s.scattered(ENTRIES_RANGE).min(s.capacity() / 8) / MIB * MIB;
            (s.offset(0.22, MIB, range), range)
        }
    };
    let mut places = Places::new(s, from, range);
    s.tell(what);
    let (batch, knee) = match s.known.part {
        Some(_) => (PART_BATCH, (PART_SKIPPED, PART_STEEP)),
        None => (ENTRIES_BATCH, (SKIPPED, STEEP)),
    };
    let knee = until_slow(s, batch, BLOCK_BYTES, knee, |s| places.next(s))?;
    match knee {
        Ok(knee) => {
            s.known.entries = Some(knee.writes as f64);
            let (parts, in_parts) = in_all(s);
            let count = knee.writes as f64 * parts;
            let blur = knee.batch as f64 * parts;
            let how = format!(
                "distinct blocks of 4 KiB until a write took {:.1} instead of {:.2} ms{in_parts}",
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
            if !s.known.spread {
                append_time(s, &knee);
            }
            forced(s, &knee);
        }
        Err(count) => {
            let why = format!("{count} writes of 4 KiB did not fill it; this test makes no more");
            s.found(Finding::open(key, what, why));
        }
    }
    s.tell("rewriting what was written, in order, so that the cache is empty again");
    s.write_run(from, range)?;
    if s.known.spread {
        bursts(s, from, range)?;
    }
    Ok(())
}

/// How many parts the cache has, and a word on that.
fn in_all(s: &Session<'_>) -> (f64, String) {
    match s.known.part {
        None => (1.0, String::new()),
        Some((first, end)) => {
            let parts = s.capacity() as f64 / (end - first) as f64;
            (parts, format!("; this was one of {parts:.1} parts"))
        }
    }
}

/// What one write to the log takes on a drive that cleans while it is written to: bursts that end before it begins. A
/// long burst less a short one is nothing but writes.
fn bursts(s: &mut Session<'_>, from: u64, range: u64) -> Result<(), Stop> {
    let (key, what) = ("translation.entry_time", "one small write to the log");
    let mut each = Vec::new();
    let mut places = Places::new(s, from, range);
    for _ in 0..BURSTS {
        s.wait_quiet(600.0)?;
        let mut took = |s: &mut Session<'_>, writes: usize| -> Result<(f64, f64), Stop> {
            // The arm is at the log, and stays there.
            let Some(at) = places.next(s) else {
                return Err(Stop::OutOfTime);
            };
            s.write(at, BLOCK_BYTES)?;
            s.flush()?;
            let mut ms = 0.0;
            for _ in 0..writes {
                let Some(at) = places.next(s) else {
                    return Err(Stop::OutOfTime);
                };
                ms += s.write(at, BLOCK_BYTES)?;
            }
            Ok((ms, s.flush()?))
        };
        let (short, long) = (took(s, BURST_SHORT)?, took(s, BURST_LONG)?);
        let more = (BURST_LONG - BURST_SHORT) as f64;
        let (writes_ms, flush_ms) = ((long.0 - short.0) / more, (long.1 - short.1) / more);
        // Either all of it waited for the flush, or the log kept up with the writes.
        each.push(match flush_ms > writes_ms {
            true => flush_ms,
            false => writes_ms + flush_ms,
        });
    }
    let ms = median(&each);
    let command_ms = s.known.mechanics.command_ms;
    if ms < 1.2 * command_ms {
        let why =
            format!("a write took {ms:.2} ms, hardly longer than a command ({command_ms:.2} ms)");
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    let how = format!(
        "{BURST_LONG} writes with a flush less {BURST_SHORT}, {BURSTS} times with pauses: too short for a cleaner to begin"
    );
    let interval = (quantile(&each, 0.25), quantile(&each, 0.75));
    s.found(Finding::number(key, what, ms, "ms", interval, how));
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
    if s.known.scattered_most.is_some() {
        return around(s, key, what);
    }
    let (from, bands, each, pitch) = pieces(s);
    let at = |slot: u64| (from + slot as f64 * pitch) as u64 / BLOCK_BYTES * BLOCK_BYTES;
    let (batch, knee) = match s.known.part {
        Some(_) => (PART_BYTES_BATCH, (PART_BYTES_SKIPPED, PART_STEEP)),
        None => (BYTES_BATCH, (SKIPPED, STEEP)),
    };
    // Without bands, only what was touched has to be rewritten.
    let group = s.known.part.map_or(BYTES_GROUP as u64, |_| bands);
    let (mut mixed, mut made) = (Vec::new(), 0);
    s.tell(what);
    let knee = until_slow(s, batch, BYTES_WRITE, knee, |s| {
        if mixed.is_empty() && made < bands * each {
            let (pass, done) = (made / bands, made % bands);
            let end = (done + group).min(bands);
            mixed.extend((done..end).map(|band| band * each + pass));
            made += end - done;
            s.shuffle(&mut mixed);
        }
        mixed.pop().map(at)
    })?;
    match knee {
        Ok(knee) => {
            let (parts, in_parts) = in_all(s);
            let gib = |writes: f64| parts * writes * BYTES_WRITE as f64 / GIB as f64;
            let count = knee.writes as f64;
            let full_map = s.known.entries.is_some_and(|entries| count > 0.8 * entries);
            let how = format!(
                "scattered writes of 1 MiB until one took {:.0} instead of {:.1} ms{in_parts}",
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
    s.write_run(at(0), at(made.min(bands) * each) - at(0))?;
    Ok(())
}

/// Pieces lie `pitch` from each other from a byte on, `each` in a band; they come in passes, one in each band.
fn pieces(s: &mut Session<'_>) -> (f64, u64, u64, f64) {
    match (s.known.part, s.known.bands.first()) {
        // In the middle of their share of a band, since a run over its beginning may go in place. In as many bands as
        // there are: what a cleaner finishes meanwhile gives back little.
        (Some((first, end)), Some(&(_, band, tooth))) => {
            let room = (end - first) as f64 * 0.9;
            let bands = (room / band).floor().clamp(1.0, BANDS_MOST);
            let most = (band / BYTES_PITCH as f64).floor().max(1.0);
            let each = (PIECES_LEAST / bands).ceil().min(most);
            let pitch = band / each;
            let from = first as f64 + room / 18.0;
            let from = tooth + ((from - tooth) / band).ceil() * band;
            let from = from + (pitch - BYTES_WRITE as f64) / 2.0;
            (from, bands as u64, each as u64, pitch)
        }
        _ => {
            let room = BYTES_MOST.min(s.capacity() / 3) / MIB * MIB;
            let from = s.offset(0.1, MIB, room) as f64;
            (from, room / BYTES_PITCH, 1, BYTES_PITCH as f64)
        }
    }
}

/// The bytes of a log where only a few zones may be written to: the same pieces again and again, but one. A log is a ring,
/// and what was overwritten is free again only when everything before it is: the head goes round until it meets the one.
fn around(s: &mut Session<'_>, key: &str, what: &str) -> Result<(), Stop> {
    let range = s.scattered(ENTRIES_RANGE).min(s.capacity() / 8) / MIB * MIB;
    let from = s.offset(0.3, MIB, range);
    s.tell(what);
    let mut pieces: Vec<u64> = (1..range / BYTES_PITCH).collect();
    s.write(from, BYTES_WRITE)?;
    s.flush()?;
    let mut times = vec![0.0; 1];
    let mut usual_ms = STALL_MS;
    // Reading a band: to clean one takes longer.
    let bands = s.known.bands.first();
    let band_ms = bands.map(|(place, band, _)| band / 1000.0 / s.known.mechanics.rate(*place));
    let mut full = None;
    while full.is_none() && (times.len() as u64) * BYTES_WRITE < BYTES_MOST {
        s.shuffle(&mut pieces);
        for piece in &pieces {
            times.push(s.write(from + piece * BYTES_PITCH, BYTES_WRITE)?);
            let n = times.len();
            if n == AROUND_FIRST {
                usual_ms = quantile(&times, 0.99).max(STALL_MS / 2.0);
            }
            if n > AROUND_FIRST {
                let late = |ms: &&f64| **ms > 2.0 * usual_ms;
                let last = &times[n - AROUND_LAST..];
                // It frees the way slice by slice, or waits for all of a band.
                let whole =
                    band_ms.is_some_and(|band_ms| times[n - 1] > band_ms.max(2.0 * usual_ms));
                if whole || last.iter().filter(late).count() >= AROUND_LATE {
                    let first = last.iter().position(|ms| late(&ms)).unwrap_or(0);
                    full = Some(n - AROUND_LAST + first);
                    break;
                }
            }
        }
    }
    s.tell("rewriting what was written, in order, so that the cache is empty again");
    s.write_run(from, range)?;
    let gib = |writes: f64| writes * BYTES_WRITE as f64 / GIB as f64;
    let Some(writes) = full else {
        let why = format!(
            "{:.0} GiB did not fill it; this test writes no more",
            gib(times.len() as f64)
        );
        s.found(Finding::open(key, what, why));
        return Ok(());
    };
    let how = format!(
        "a piece of 1 MiB, then {} others again and again, until some had to wait for more than {:.0} ms, or one for a band: a \
         ring, whose oldest entry was still of use",
        pieces.len(),
        2.0 * usual_ms
    );
    let count = writes as f64;
    let interval = (
        gib(count - AROUND_LAST as f64),
        gib(count + AROUND_LAST as f64),
    );
    s.found(Finding::number(key, what, gib(count), "GiB", interval, how));
    Ok(())
}
