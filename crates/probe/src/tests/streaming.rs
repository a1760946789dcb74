// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential writes of different lengths: a run that is written in place is found at home at once, a shorter one in
//! the cache (FAST'17, section 4.3.1).

use super::mapping::READ_BYTES;
use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;

const LEAST: u64 = 64 << 10;
const MOST: u64 = 128 * MIB;
/// Each run has a place of its own: nothing may follow on another one.
const PITCH: u64 = 2 * MOST + 5 * MIB;
/// Places where blocks are written one behind another, in different zones.
const POINTERS: usize = 8;
const POINTER_PITCH: u64 = 320 * MIB;
const BEHIND: u64 = 40;
const MOVING_LEAST: u64 = 512 << 10;
const LOGGED_LOOKS: u32 = 7;
const LOGGED_LEAST: u32 = 5;
/// What is logged before a run.
const MARKED_BYTES: u64 = 32 << 10;
/// A run begins so far before a border, and is looked at so far behind it: more than the border's error.
const BEFORE_BYTES: u64 = READ_BYTES;
const INSIDE_BYTES: u64 = 3 * READ_BYTES / 2;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.stream_min",
        "smallest sequential write that goes in place",
    );
    if s.known.moves == Some(true) {
        return moving(s, key, what);
    }
    if pointer(s)? {
        let why = "where the last write of its zone ended, even one block goes in place".into();
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    let mut runs = 0;
    let (mut cached, mut in_place) = (LEAST, MOST.min(s.capacity() / 64 / MIB * MIB));
    let (least_home, most_home) = (
        goes_home(s, &mut runs, cached)?,
        goes_home(s, &mut runs, in_place)?,
    );
    if least_home || !most_home {
        let why = match (least_home, most_home) {
            (true, _) => format!("even {} KiB are at home at once", LEAST >> 10),
            _ => format!(
                "even {} MiB are not at home after they were written",
                in_place / MIB
            ),
        };
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    while in_place - cached > (in_place / 128).max(BLOCK_BYTES) {
        let middle = (cached + in_place) / 2 / BLOCK_BYTES * BLOCK_BYTES;
        if goes_home(s, &mut runs, middle)? {
            in_place = middle;
        } else {
            cached = middle;
        }
    }
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let how = format!(
        "{runs} runs written and flushed, halving the difference; where each was, by reading it"
    );
    let interval = (mib(cached), mib(in_place));
    s.found(Finding::number(
        key,
        what,
        mib(in_place),
        "MiB",
        interval,
        how,
    ));
    Ok(())
}

/// A block somewhere, then small writes right behind it, each flushed. They go in place on a disk whose zones have write
/// pointers, to the cache where only the length counts.
fn pointer(s: &mut Session<'_>) -> Result<bool, Stop> {
    let (key, what) = ("stream.rule", "what makes a write go in place");
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    s.tell(what);
    let pitch = POINTER_PITCH.min(s.capacity() / 128) / MIB * MIB;
    let from = s.offset(0.62, MIB, POINTERS as u64 * pitch);
    let first: Vec<u64> = (0..POINTERS as u64)
        .map(|i| from + i * pitch + s.below(pitch / 2 / BLOCK_BYTES) * BLOCK_BYTES)
        .collect();
    for at in &first {
        for i in 0..=BEHIND {
            s.write(at + i * BLOCK_BYTES, BLOCK_BYTES)?;
            s.flush()?;
        }
    }
    s.evict()?;
    let mut home = 0;
    for at in first {
        home += usize::from(s.run_is_home(at + BLOCK_BYTES)?);
    }
    let how = format!("{home} of {POINTERS} times, single blocks that were written one behind another were at home");
    s.known.pointers = home + 1 >= POINTERS;
    let finding = match home {
        0..=1 => Finding::word(key, what, "its length", Confidence::High, how),
        n if n + 1 >= POINTERS => Finding::word(
            key,
            what,
            "the end of the last write",
            Confidence::High,
            how,
        ),
        _ => Finding::open(key, what, how),
    };
    s.found(finding);
    Ok(s.known.pointers)
}

/// The same on a disk whose bands move: a run that is written in place is in a fresh one, a shorter one in the log, right
/// behind what went there last. Runs begin a little before a band, since its border is not known to the block.
fn moving(s: &mut Session<'_>, key: &str, what: &str) -> Result<(), Stop> {
    let Some(&(_, size, first)) = s.known.bands.first() else {
        s.found(Finding::open(
            key,
            what,
            "the band size is not known".into(),
        ));
        return Ok(());
    };
    s.wait_quiet(6000.0)?;
    let mut bands = 100;
    let (mut logged, mut streamed) = (
        MOVING_LEAST,
        MOST.min(size as u64) / BLOCK_BYTES * BLOCK_BYTES,
    );
    let at_ends = (
        is_logged(s, size, first, &mut bands, logged)?,
        is_logged(s, size, first, &mut bands, streamed)?,
    );
    if at_ends != (true, false) {
        let why = match at_ends.0 {
            false => format!("even {} KiB are not in the log", logged >> 10),
            true => format!("even {} MiB are in the log", streamed / MIB),
        };
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    while streamed - logged > (streamed / 64).max(BLOCK_BYTES) {
        let middle = (logged + streamed) / 2 / BLOCK_BYTES * BLOCK_BYTES;
        if is_logged(s, size, first, &mut bands, middle)? {
            logged = middle;
        } else {
            streamed = middle;
        }
    }
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let how = "runs over the beginning of a band, halving the difference; whether they were in the log, by reading them \
               right behind what was logged before"
        .to_string();
    let blur = READ_BYTES / 2;
    let interval = (mib(logged - blur), mib(streamed + blur));
    s.found(Finding::number(
        key,
        what,
        mib(streamed),
        "MiB",
        interval,
        how,
    ));
    Ok(())
}

/// Whether `bytes` from a band's beginning on are in the log: most of some looks, because a seek ends in time by chance
/// now and then.
fn is_logged(
    s: &mut Session<'_>,
    size: f64,
    first: f64,
    bands: &mut u64,
    bytes: u64,
) -> Result<bool, Stop> {
    let mut in_time = 0;
    for _ in 0..LOGGED_LOOKS {
        *bands += 2;
        let border = (first + *bands as f64 * size) as u64 / BLOCK_BYTES * BLOCK_BYTES;
        let marker = (border as f64 + 1.5 * size) as u64 / BLOCK_BYTES * BLOCK_BYTES;
        s.write_run(marker, MARKED_BYTES)?;
        s.write_run(border - BEFORE_BYTES, BEFORE_BYTES + bytes)?;
        s.evict()?;
        s.read(marker, MARKED_BYTES)?;
        let ms = s.read(border + INSIDE_BYTES, BLOCK_BYTES)?;
        let passing_ms =
            (BEFORE_BYTES + INSIDE_BYTES) as f64 / s.known.mechanics.rate(s.place_of(border)) / 1e3;
        // As in `run_is_home`: one step to the next track at most.
        let most_ms = passing_ms + 2.0 * s.known.mechanics.command_ms + 1.8;
        in_time += u32::from((0.5 * passing_ms..most_ms).contains(&ms));
    }
    Ok(in_time >= LOGGED_LEAST)
}

/// Writes a run of `bytes` where nothing was written, and looks where it is.
fn goes_home(s: &mut Session<'_>, runs: &mut u64, bytes: u64) -> Result<bool, Stop> {
    let room = 40 * PITCH.min(s.capacity() / 128);
    let start = s.offset(0.35, MIB, room) + *runs * PITCH.min(s.capacity() / 128) / MIB * MIB;
    *runs += 1;
    s.write_run(start, bytes)?;
    s.evict()?;
    // The first block's neighbours before it were not written.
    s.run_is_home(start)
}
