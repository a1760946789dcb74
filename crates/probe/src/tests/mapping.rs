// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skylight's sixth test: what may move is elsewhere after it was cleaned, and reading on into it costs a seek.

use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;

/// One block in each is rewritten: no unit that moves is smaller.
const TOUCHED_BYTES: u64 = MIB;
/// A block is read every so often: an edge is known as well. Nearer, some host and cable would not keep up with the
/// platters, and lose a revolution where nothing has moved.
pub const READ_BYTES: u64 = 128 << 10;
const LEAD_BYTES: u64 = 4 * MIB;
/// Steps between tracks stay below, and two seeks with their turns hardly ever do: in revolutions.
const LATE_TURNS: f64 = 0.3;
/// Of late reads where none was before, so many are not a disk that moves something, so many are.
const STATIC_MOST: usize = 2;
const DYNAMIC_LEAST: usize = 8;
const SAMPLE: u64 = 24;
const REGION_BYTES: u64 = GIB;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("mapping", "places of bands");
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    s.tell(what);
    let bytes = REGION_BYTES.min(s.capacity() / 32) / MIB * MIB;
    let from = s.offset(0.48, MIB, bytes);
    s.write_run(from, bytes)?;
    s.wait_quiet(600.0)?;
    let before = read_through(s, from, bytes)?;
    let cleaned = rewrite_and_wait(s, from, bytes)?;
    if let Err(why) = cleaned {
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    let after = read_through(s, from, bytes)?;
    let fresh = jumps(s, from, &after, |i| before[i]).len();
    let sum = |times: &[f64]| times.iter().sum::<f64>();
    let how = format!(
        "reading {} MiB in order took {:.0} ms before and {:.0} ms after every part was cleaned: {fresh} seeks more \
         on the way",
        bytes / MIB,
        sum(&before),
        sum(&after)
    );
    s.found(match fresh {
        n if n <= STATIC_MOST => Finding::word(key, what, "static", Confidence::High, how),
        n if n >= DYNAMIC_LEAST => Finding::word(key, what, "dynamic", Confidence::High, how),
        _ => Finding::open(key, what, how),
    });
    s.known.moves = (fresh >= DYNAMIC_LEAST).then_some(true);
    Ok(())
}

/// A block in each part of a region goes to the cache, in random order, and comes home with whatever is cleaned with it.
/// `Err`: why that was not so.
pub fn rewrite_and_wait(
    s: &mut Session<'_>,
    from: u64,
    bytes: u64,
) -> Result<Result<(), String>, Stop> {
    let mut order: Vec<u64> = (0..bytes / TOUCHED_BYTES).collect();
    s.shuffle(&mut order);
    let block = |part: u64| from + part * TOUCHED_BYTES + TOUCHED_BYTES / 2;
    for part in &order {
        // One by one: a buffer that sorts would make them dirty, and clean, in order.
        s.write(block(*part), BLOCK_BYTES)?;
        s.flush()?;
    }
    if s.wait_quiet(3600.0)?.is_none() {
        return Ok(Err(
            "the disk was still cleaning after an hour without work".into(),
        ));
    }
    s.evict()?;
    let mut home = 0;
    for part in order.iter().take(SAMPLE as usize) {
        home += u64::from(s.is_home(block(*part))?);
    }
    if home * 4 < SAMPLE * 3 {
        return Ok(Err(format!(
            "only {home} of {SAMPLE} blocks came home while the test waited"
        )));
    }
    Ok(Ok(()))
}

/// Times of reads on the way through a region.
pub fn read_through(s: &mut Session<'_>, from: u64, bytes: u64) -> Result<Vec<f64>, Stop> {
    s.evict()?;
    let mut times = Vec::new();
    for at in (from - LEAD_BYTES..from + bytes).step_by(READ_BYTES as usize) {
        let ms = s.read(at, BLOCK_BYTES)?;
        if at >= from {
            times.push(ms);
        }
    }
    Ok(times)
}

/// Middles of the ways to reads of a region that were late, in bytes: there the head had to go elsewhere. `usual_ms`: what each
/// takes without.
pub fn jumps(
    s: &Session<'_>,
    from: u64,
    times: &[f64],
    usual_ms: impl Fn(usize) -> f64,
) -> Vec<f64> {
    let late_ms = LATE_TURNS * s.known.mechanics.revolution_ms;
    let late: Vec<bool> = times
        .iter()
        .enumerate()
        .map(|(i, ms)| *ms > usual_ms(i) + late_ms)
        .collect();
    // A drive that does not read ahead across such a place is late all the way to it.
    let last_of_some = |i: &usize| late[*i] && !late.get(i + 1).copied().unwrap_or(false);
    (0..late.len())
        .filter(last_of_some)
        .map(|i| (from + i as u64 * READ_BYTES - READ_BYTES / 2) as f64)
        .collect()
}
