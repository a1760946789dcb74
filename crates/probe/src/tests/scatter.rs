// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host-aware disk follows only so many zones that are written out of order. One more has to wait until another was
//! cleaned; a cache without such a limit takes a block wherever it belongs.

use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::median;

/// Optimal numbers that disks report are 8 to 128.
const PLACES: usize = 160;
/// So many late writes in a row: a cleaner that takes a share of the time delays one now and then.
const IN_A_ROW: usize = 8;
const FIRST: usize = 4;

/// See the module's head.
pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.non_sequential_optimal",
        "zones that can be written out of order at a time",
    );
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    s.tell(what);
    let mut places: Vec<u64> = (0..PLACES)
        .map(|i| 0.05 + 0.9 * i as f64 / PLACES as f64)
        .map(|place| s.offset(place, BLOCK_BYTES, MIB))
        .collect();
    s.shuffle(&mut places);
    // A write to another part of a log that is in parts costs a seek, and that is not late.
    let limit_ms = 2.0 * s.known.mechanics.undisturbed_ms()
        + s.known.mechanics.seek.map_or(20.0, |law| law.ms(1.0));
    let mut times = Vec::new();
    let mut late = 0;
    for at in places {
        times.push(s.write(at, BLOCK_BYTES)? + s.flush()?);
        late = if times.last().is_some_and(|ms| *ms > limit_ms) {
            late + 1
        } else {
            0
        };
        if late == IN_A_ROW {
            break;
        }
    }
    let taken = times.len() - late;
    let before_ms = median(&times[..taken]);
    if late < IN_A_ROW || taken < FIRST {
        let how = format!(
            "{PLACES} blocks all over the disk, each flushed: {before_ms:.1} ms in the median"
        );
        let word = if late < IN_A_ROW { "no limit" } else { "none" };
        s.found(Finding::word(key, what, word, Confidence::Medium, how));
        return Ok(());
    }
    let number = taken as f64;
    s.known.scattered_most = Some(taken as u64);
    let how = format!(
        "blocks all over the disk, each flushed: {taken} took {before_ms:.1} ms in the median, all behind them more than \
         {limit_ms:.0} ms"
    );
    let interval = (number, number + 0.5);
    s.found(Finding::number(key, what, number, "zones", interval, how));
    Ok(())
}
