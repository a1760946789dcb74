// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skylight's fourth test. Blocks all over a region are put into the cache; then the drive may clean for a moment at a
//! time. A band is cleaned as a whole, so what came home lately begins and ends where bands do.

use super::mapping::{jumps, read_through, rewrite_and_wait, READ_BYTES};
use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::{Session, MARKER_BYTES};
use crate::statistics::{comb, median, rank_correlation};

const PLACES: [(f64, &str, &str); 3] = [
    (0.03, "outer", "band size, outer diameter"),
    (0.5, "middle", "band size, middle"),
    (0.97, "inner", "band size, inner diameter"),
];
/// (bytes, coarse): what is written to, and how many markers lie between two of the first look; the edges are found by
/// halving. First as most drives want it, then for wide bands, then for narrow ones.
const REGIONS: [(u64, usize); 3] = [(512 * MIB, 8), (2048 * MIB, 16), (256 * MIB, 2)];
/// For zones: as many as may be written out of order.
const ZONE_REGIONS: [(u64, usize); 4] = [(4096 * MIB, 32); 4];
/// For bands that move.
const MOVING_BYTES: u64 = 1024 * MIB;
/// Bands for the order of cleaning are so far behind the region.
const BEYOND_BYTES: u64 = 8192 * MIB;
/// A buffer sorts what it writes: flushed so often, neighbours do not become dirty, and are not cleaned, one after the
/// other.
const WRITTEN_TOGETHER: usize = 4;
const EDGES_WANTED: usize = 16;
const EDGES_LEAST: usize = 8;
const ROUNDS_MAX: usize = 60;
/// If nothing was cleaned in so much time, nothing will be.
const PATIENCE_MS: f64 = 300_000.0;
/// Bands whose order of cleaning is watched.
const ORDERED: usize = 10;

/// See the module's head.
pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    for (i, (place, key, what)) in PLACES.into_iter().enumerate() {
        s.tell("waiting until the disk has nothing left to clean");
        s.wait_quiet(6000.0)?;
        s.tell(what);
        let key = format!("band.{key}");
        let measured = match s.known.moves {
            Some(true) => measure_moving(s, place)?,
            _ => measure(s, place)?,
        };
        match measured {
            Ok((size, range, first, how)) => {
                s.known.bands.push((place, size, first));
                let mib = |bytes: f64| bytes / MIB as f64;
                let interval = (mib(range.0), mib(range.1));
                s.found(Finding::number(&key, what, mib(size), "MiB", interval, how));
                // Not in the middle of the disk: a log in parts may well have a border there.
                if i == 0 {
                    order(s, size, first)?;
                }
            }
            Err(why) => s.found(Finding::open(&key, what, why)),
        }
    }
    Ok(())
}

/// Where the first region near a place begins, in bytes.
pub fn region_start(capacity: u64, place: f64) -> u64 {
    let last = capacity.saturating_sub(2 * BEYOND_BYTES).max(capacity / 2);
    (place * last as f64) as u64 / MIB * MIB
}

/// Markers in the cache, and which of them have come home.
struct Region {
    from: u64,
    home: Vec<bool>,
    coarse: usize,
    pause_ms: f64,
}

impl Region {
    fn offset(&self, marker: usize) -> u64 {
        self.from + marker as u64 * MARKER_BYTES
    }

    fn look(&self, s: &mut Session<'_>, marker: usize) -> Result<bool, Stop> {
        Ok(self.home[marker] || s.is_home(self.offset(marker))?)
    }

    /// Markers that have come home since the last look, as runs `first..end`.
    fn came_home(&mut self, s: &mut Session<'_>) -> Result<Vec<(usize, usize)>, Stop> {
        let n = self.home.len();
        let mut now = self.home.clone();
        let mut seen: Vec<usize> = (0..n).step_by(self.coarse).collect();
        seen.push(n - 1);
        for m in &seen {
            now[*m] = self.look(s, *m)?;
        }
        for pair in seen.windows(2) {
            let (mut low, mut high) = (pair[0], pair[1]);
            let (was, is) = (now[low], now[high]);
            if was == is {
                // All between came home before, or the band that holds both ends came home now.
                (low + 1..high).for_each(|m| now[m] |= is);
                continue;
            }
            while high - low > 1 {
                let middle = (low + high) / 2;
                if self.look(s, middle)? == was {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            (pair[0]..=low).for_each(|m| now[m] |= was);
            (high..=pair[1]).for_each(|m| now[m] |= is);
        }
        let fresh: Vec<bool> = now.iter().zip(&self.home).map(|(n, h)| *n && !*h).collect();
        self.home = now;
        let mut runs = Vec::new();
        let mut start = None;
        for (m, new) in fresh.iter().chain([&false]).enumerate() {
            match (new, start) {
                (true, None) => start = Some(m),
                (false, Some(first)) => {
                    runs.push((first, m));
                    start = None;
                }
                _ => {}
            }
        }
        Ok(runs)
    }
}

type Size = (f64, (f64, f64), f64, String);

/// Band size near `place`, the sizes that fit as well, and the first byte of a band; or why not.
fn measure(s: &mut Session<'_>, place: f64) -> Result<Result<Size, String>, Stop> {
    let mut why = String::new();
    let (mut all_edges, mut all_runs): Edges = (Vec::new(), Vec::new());
    let regions: &[(u64, usize)] = if s.known.scattered_most.is_some() {
        &ZONE_REGIONS
    } else {
        &REGIONS
    };
    for (attempt, (bytes, coarse)) in regions.iter().copied().enumerate() {
        let bytes = s.scattered(bytes).min(s.capacity() / 32) / MIB * MIB;
        // Behind one another: a region is not used twice.
        let from = region_start(s.capacity(), place) + attempt as u64 * 4096 * MIB;
        let mut region = Region {
            from,
            home: vec![false; (bytes / MARKER_BYTES) as usize],
            coarse,
            pause_ms: s.known.idle_ms.map_or(1000.0, |ms| ms * 1.1 + 50.0),
        };
        let (fresh_edges, fresh_runs) = edges(s, &mut region)?;
        let (edges, runs) = if s.known.scattered_most.is_some() {
            // Few zones at a time: edges of one region after another.
            all_edges.extend(fresh_edges);
            all_runs.extend(fresh_runs);
            (all_edges.clone(), all_runs.clone())
        } else {
            (fresh_edges, fresh_runs)
        };
        let home = region.home.iter().filter(|h| **h).count();
        // What is still in the cache need not be cleaned if it is written again, in order.
        s.write_run(from, bytes)?;
        if home == 0 {
            return Ok(Err(format!(
                "none of {} blocks that were put into the cache came home",
                region.home.len()
            )));
        }
        // A look may err by a marker; then one comes home alone.
        let narrowest = runs
            .iter()
            .map(|(first, end)| end - first)
            .filter(|n| *n > 1)
            .min()
            .unwrap_or(0);
        // What comes home at once is a band, or a few of them; it spans some coarse looks, or some were overlooked.
        let fits = |pitch: f64| {
            let narrowest = narrowest as f64 * MARKER_BYTES as f64;
            narrowest > 2.0 * (coarse as u64 * MARKER_BYTES) as f64
                && (0.3 * narrowest..4.0 * narrowest).contains(&pitch)
        };
        let found = comb(&edges, MARKER_BYTES as f64)
            .filter(|c| edges.len() >= EDGES_LEAST && fits(c.pitch));
        if let Some(found) = found {
            let how = format!(
                "{} edges of what came home in {} pieces lie at regular distances, those of bands",
                edges.len(),
                runs.len()
            );
            return Ok(Ok((found.pitch, found.pitch_range, found.first, how)));
        }
        why = format!(
            "{} edges of what came home together do not lie at regular distances",
            edges.len()
        );
        s.wait_quiet(3600.0)?;
    }
    Ok(Err(why))
}

/// Band size near `place` of a disk that moves its bands: after each was cleaned, in random order, no two neighbours lie
/// one behind the other, and reading on from one into the next costs a seek.
fn measure_moving(s: &mut Session<'_>, place: f64) -> Result<Result<Size, String>, Stop> {
    let bytes = MOVING_BYTES.min(s.capacity() / 32) / MIB * MIB;
    let from = region_start(s.capacity(), place);
    if let Err(why) = rewrite_and_wait(s, from, bytes)? {
        return Ok(Err(why));
    }
    let times = read_through(s, from, bytes)?;
    let usual_ms = median(&times);
    let edges = jumps(s, from, &times, |_| usual_ms);
    let found = comb(&edges, READ_BYTES as f64).filter(|_| edges.len() >= EDGES_LEAST);
    Ok(found.map_or_else(
        || Err(format!("{} seeks on the way through {} MiB do not lie at regular distances", edges.len(), bytes / MIB)),
        |found| {
            let how = format!(
                "{} seeks on the way through {} MiB lie at regular distances, those of bands that moved",
                edges.len(),
                bytes / MIB
            );
            Ok((found.pitch, found.pitch_range, found.first, how))
        },
    ))
}

type Edges = (Vec<f64>, Vec<(usize, usize)>);

/// Edges of what came home in one go, in bytes, and the pieces that came home, in markers; those that begin or end with
/// the region are left out.
fn edges(s: &mut Session<'_>, region: &mut Region) -> Result<Edges, Stop> {
    let n = region.home.len();
    let mut order: Vec<usize> = (0..n).collect();
    s.shuffle(&mut order);
    for few in order.chunks(WRITTEN_TOGETHER) {
        for m in few {
            s.write(region.offset(*m), BLOCK_BYTES)?;
        }
        s.flush()?;
    }
    s.evict()?;
    let (mut edges, mut runs): Edges = (Vec::new(), Vec::new());
    let mut waited_ms = 0.0;
    for _ in 0..ROUNDS_MAX {
        s.pause(region.from, region.pause_ms)?;
        waited_ms += region.pause_ms;
        let fresh = region.came_home(s)?;
        if fresh.is_empty() {
            if waited_ms > PATIENCE_MS {
                break;
            }
            region.pause_ms *= 1.25;
            continue;
        }
        waited_ms = 0.0;
        for (first, end) in &fresh {
            let edge = |m: usize| region.offset(m) as f64 - MARKER_BYTES as f64 / 2.0;
            edges.extend(
                [*first, *end]
                    .iter()
                    .filter(|m| (1..n).contains(*m))
                    .map(|m| edge(*m)),
            );
        }
        runs.extend(fresh.iter().filter(|(first, end)| *first > 0 && *end < n));
        edges.sort_by(f64::total_cmp);
        edges.dedup_by(|a, b| (*a - *b).abs() < MARKER_BYTES as f64 * 2.5);
        let home = region.home.iter().filter(|h| **h).count();
        if edges.len() >= EDGES_WANTED || home * 10 > n * 8 {
            break;
        }
    }
    Ok((edges, runs))
}

/// One block in each of some bands, in random order, durable one by one; then who comes home first.
fn order(s: &mut Session<'_>, size: f64, first: f64) -> Result<(), Stop> {
    let (key, what) = ("cleaning.order", "order in which bands are cleaned");
    s.tell(what);
    s.wait_quiet(3600.0)?;
    let bands_on = (BEYOND_BYTES as f64 / size).ceil();
    let mut order: Vec<usize> = (0..ORDERED).collect();
    s.shuffle(&mut order);
    let offset = |band: usize| {
        let start = first + (bands_on + 2.0 * band as f64 + 0.5) * size;
        start as u64 / BLOCK_BYTES * BLOCK_BYTES
    };
    for band in &order {
        s.write(offset(*band), BLOCK_BYTES)?;
        s.flush()?;
    }
    let mut rounds: Vec<Option<usize>> = vec![None; ORDERED];
    let mut pause_ms = s.known.idle_ms.map_or(1000.0, |ms| ms * 1.05 + 20.0);
    for round in 0..ROUNDS_MAX {
        // What a look read is in the disk's DRAM, and would seem to be at home in the next one.
        s.evict()?;
        s.pause(offset(0), pause_ms)?;
        let mut any = false;
        for (band, came_home) in rounds.iter_mut().enumerate() {
            if came_home.is_none() && s.is_home(offset(band))? {
                *came_home = Some(round);
                any = true;
            }
        }
        pause_ms *= if any { 1.0 } else { 1.1 };
        if rounds.iter().all(Option::is_some) {
            break;
        }
    }
    let seen = rounds.iter().flatten().count();
    let by = |rank: &dyn Fn(usize) -> usize| -> f64 {
        let pairs: Vec<(f64, f64)> = (0..ORDERED)
            .filter_map(|band| Some((rank(band) as f64, rounds[band]? as f64)))
            .collect();
        rank_correlation(&pairs)
    };
    let written = by(&|band| order.iter().position(|b| *b == band).unwrap_or(0));
    let address = by(&|band| band);
    let how = format!(
        "{seen} of {ORDERED} bands came home; rank correlation {written:.2} with the order of writing, \
         {address:.2} with the address"
    );
    let word = match (written, address) {
        _ if seen < 6 => None,
        (w, _) if w > 0.75 => Some("oldest first"),
        (w, _) if w < -0.75 => Some("newest first"),
        (_, a) if a > 0.75 => Some("by address, upwards"),
        (_, a) if a < -0.75 => Some("by address, downwards"),
        _ => None,
    };
    s.found(match word {
        Some(word) => Finding::word(key, what, word, Confidence::High, how),
        None => Finding::open(key, what, how),
    });
    Ok(())
}
