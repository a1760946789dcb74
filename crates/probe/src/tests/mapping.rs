// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skylight's sixth test: a band that may move is elsewhere after it was cleaned, and reading on into it costs a seek.

use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;

const BANDS: usize = 12;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("mapping", "places of bands");
    let Some(&(_, size, first)) = s.known.bands.get(1).or(s.known.bands.first()) else {
        s.found(Finding::open(
            key,
            what,
            "the band size is not known".into(),
        ));
        return Ok(());
    };
    let band = |i: usize| (first + (100.0 + i as f64) * size) as u64 / BLOCK_BYTES * BLOCK_BYTES;
    let (from, end) = (band(0), band(BANDS));
    if end + 16 * MIB > s.capacity() {
        s.found(Finding::open(
            key,
            what,
            "the disk is too small for this test".into(),
        ));
        return Ok(());
    }
    s.write_run(from, end - from)?;
    s.wait_quiet(600.0)?;
    let before_ms = read_through(s, from, end)?;
    let mut order: Vec<usize> = (0..BANDS).collect();
    s.shuffle(&mut order);
    for i in order {
        s.write(
            (band(i) + band(i + 1)) / 2 / BLOCK_BYTES * BLOCK_BYTES,
            BLOCK_BYTES,
        )?;
        s.flush()?;
    }
    let waited = s.wait_quiet(3600.0)?;
    s.evict()?;
    let mut home = 0;
    for i in 0..BANDS {
        home += usize::from(s.is_home((band(i) + band(i + 1)) / 2 / BLOCK_BYTES * BLOCK_BYTES)?);
    }
    if home < BANDS * 3 / 4 || waited.is_none() {
        let why = format!("{home} of {BANDS} bands were cleaned while the test waited");
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    let after_ms = read_through(s, from, end)?;
    let each_ms = (after_ms - before_ms) / BANDS as f64;
    let short_ms = s.known.mechanics.revolution_ms / 2.0;
    let how = format!(
        "reading through {BANDS} bands took {before_ms:.0} ms before and {after_ms:.0} ms after each was cleaned: \
         {each_ms:.1} ms more a band, where a seek with half a revolution takes {short_ms:.1} ms or more"
    );
    s.found(match each_ms / short_ms {
        r if r < 0.25 => Finding::word(key, what, "static", Confidence::High, how),
        r if r > 0.75 => Finding::word(key, what, "dynamic", Confidence::High, how),
        _ => Finding::open(key, what, how),
    });
    Ok(())
}

fn read_through(s: &mut Session<'_>, from: u64, end: u64) -> Result<f64, Stop> {
    s.evict()?;
    let start = from / MIB * MIB;
    s.read(start - 4 * MIB, MIB)?;
    let mut ms = 0.0;
    for at in (start..end).step_by(MIB as usize) {
        ms += s.read(at, MIB)?;
    }
    Ok(ms)
}
