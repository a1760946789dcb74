// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential writes of different lengths: a run that is written in place is found at home at once, a shorter one in
//! the cache (FAST'17, section 4.3.1).

use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::Finding;
use crate::session::Session;

const LEAST: u64 = 64 << 10;
const MOST: u64 = 128 * MIB;
/// Each run has a place of its own: nothing may follow on another one.
const PITCH: u64 = 2 * MOST + 5 * MIB;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.stream_min",
        "smallest sequential write that goes in place",
    );
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
