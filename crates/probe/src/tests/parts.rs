// SPDX-License-Identifier: MIT OR Apache-2.0
//! A persistent cache in parts, each for its own piece of the disk: while one is full, writes that belong to another are
//! still fast.

use super::knee::{until_slow, PART_BATCH, PART_SKIPPED, PART_STEEP};
use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::Finding;
use crate::session::Session;

const FILLED_AT: f64 = 0.37;
/// Wide, so that what a cleaner finishes meanwhile gives back little.
const FILLED_BYTES: u64 = 32 * GIB;
/// Writes that are timed together, with a flush: whatever the DRAM does, the cleaner's share is in it.
const BURST: usize = 300;
/// Where they go.
const WINDOW_BYTES: u64 = GIB;
const ASKED_BYTES: u64 = 8 * MIB;
/// Far from what is filled.
const FRESH_AT: f64 = 0.87;
/// The two must differ by so much.
const CLEAR: f64 = 2.5;
/// Reads in a row that nothing delays: the cleaner has had its share of what was written.
const SETTLED: u32 = 6;
/// The border of a part is found so exactly.
const BLUR_BYTES: u64 = GIB;

/// See the module's head.
pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("translation.sections", "parts of the persistent cache");
    if !s.known.spread {
        return Ok(());
    }
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    s.tell(what);
    let range = FILLED_BYTES.min(s.capacity() / 100) / MIB * MIB;
    let from = s.offset(FILLED_AT, MIB, range);
    // What was filled at first may have been two parts, a half of each. The second time it is within one.
    let (first, end) = match search(s, from, range)? {
        Ok((first, end, _)) => (first, end),
        Err(why) => {
            s.found(Finding::open(key, what, why));
            return Ok(());
        }
    };
    s.wait_quiet(6000.0)?;
    let within = |share: f64| (first as f64 + share * (end - first) as f64) as u64 / MIB * MIB;
    let found = search(s, within(0.15), range.min(within(0.4) - within(0.15)))?;
    let (first, end, how) = match found {
        Ok(found) => found,
        Err(why) => {
            s.found(Finding::open(key, what, why));
            return Ok(());
        }
    };
    let size = (end - first) as f64;
    let capacity = s.capacity() as f64;
    s.known.part = Some((first, end));
    let blur = BLUR_BYTES as f64;
    let interval = (capacity / (size + blur), capacity / (size - blur));
    s.found(Finding::number(
        key,
        what,
        capacity / size,
        "1",
        interval,
        how,
    ));
    Ok(())
}

type Part = (u64, u64, String);

/// Fills what `range` bytes from `from` on belong to, and looks how far that reaches: first byte, end, and how it was
/// found.
fn search(s: &mut Session<'_>, from: u64, range: u64) -> Result<Result<Part, String>, Stop> {
    let mut full = Places::new(s, from, range);
    let filled = until_slow(
        s,
        PART_BATCH,
        BLOCK_BYTES,
        (PART_SKIPPED, PART_STEEP),
        |s| full.next(s),
    )?;
    if let Err(count) = filled {
        let why = format!("{count} small writes did not fill the part that they belong to");
        return Ok(Err(why));
    }
    // The region may reach into another part: the end where a burst takes longer is in the full one.
    let fresh = s.offset(FRESH_AT, MIB, WINDOW_BYTES);
    let mut fresh = Places::new(s, fresh, WINDOW_BYTES);
    let fresh_ms = burst(s, &mut fresh)?;
    let mut ends = Vec::new();
    for at in [from, from + range - WINDOW_BYTES] {
        let mut places = Places::new(s, at, WINDOW_BYTES);
        ends.push((burst(s, &mut places)?, at + WINDOW_BYTES / 2, places));
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((full_ms, anchor, mut full)) = ends.pop() else {
        return Ok(Err("no burst was timed".into()));
    };
    if full_ms < CLEAR * fresh_ms {
        let why = format!(
            "{BURST} small writes took {full_ms:.0} ms where many had been, and {fresh_ms:.0} ms where none had: too alike"
        );
        return Ok(Err(why));
    }
    // Whether what lies at a byte belongs to the full part. Each byte is asked for once.
    let mut asked = 0;
    let mut belongs = |s: &mut Session<'_>, at: u64| -> Result<bool, Stop> {
        asked += 1;
        // Filled up again, so that it stays full.
        let here_ms = burst(s, &mut full)?;
        let mut places = Places::new(s, at / MIB * MIB, ASKED_BYTES);
        // Nearer to the full part, in proportion, than to one where nothing was written.
        Ok(burst(s, &mut places)? > (here_ms * fresh_ms).sqrt())
    };
    let [lower, upper] = edges(s, anchor, &mut belongs)?;
    let middle = |range: (u64, u64)| (range.0 + range.1) / 2;
    let (first, end) = (middle(lower), middle(upper));
    let how = format!(
        "while small writes at {:.0} GiB were slowed down by cleaning, so were those from {:.0} to {:.0} GiB, and no others \
         ({asked} places tried)",
        anchor as f64 / GIB as f64,
        first as f64 / GIB as f64,
        end as f64 / GIB as f64,
    );
    s.tell("rewriting what was written, in order, so that the cache is empty again");
    s.write_run(from, range)?;
    Ok(Ok((first, end, how)))
}

/// Where what `belongs` ends on both sides of `anchor`: the last byte known to belong and the first known not to, in order.
fn edges(
    s: &mut Session<'_>,
    anchor: u64,
    belongs: &mut dyn FnMut(&mut Session<'_>, u64) -> Result<bool, Stop>,
) -> Result<[(u64, u64); 2], Stop> {
    let last = s.capacity() - ASKED_BYTES;
    let mut upper = (anchor, last);
    let mut step = 4 * GIB;
    while upper.0 + step < last {
        if !belongs(s, upper.0 + step)? {
            upper.1 = upper.0 + step;
            break;
        }
        upper.0 += step;
        step *= 2;
    }
    let mut lower = (0, anchor);
    step = 4 * GIB;
    while lower.1 > step {
        if !belongs(s, lower.1 - step)? {
            lower.0 = lower.1 - step;
            break;
        }
        lower.1 -= step;
        step *= 2;
    }
    while upper.1 - upper.0 > BLUR_BYTES {
        let middle = (upper.0 + upper.1) / 2;
        if belongs(s, middle)? {
            upper.0 = middle;
        } else {
            upper.1 = middle;
        }
    }
    while lower.1 - lower.0 > BLUR_BYTES {
        let middle = (lower.0 + lower.1) / 2;
        if belongs(s, middle)? {
            lower.1 = middle;
        } else {
            lower.0 = middle;
        }
    }
    Ok([lower, upper])
}

/// How long small writes and a flush take, when nothing is left of the cleaner's share of earlier ones.
fn burst(s: &mut Session<'_>, places: &mut Places) -> Result<f64, Stop> {
    let limit_ms = s.known.mechanics.undisturbed_ms();
    let mut settled = 0;
    let near = s.offset(0.6, MIB, GIB);
    while settled < SETTLED {
        let at = near + s.below(GIB / BLOCK_BYTES) * BLOCK_BYTES;
        let undisturbed = s.read(at, BLOCK_BYTES)? < limit_ms;
        settled = if undisturbed { settled + 1 } else { 0 };
    }
    let mut ms = 0.0;
    for _ in 0..BURST {
        let at = places.next(s).ok_or(Stop::OutOfTime)?;
        ms += s.write(at, BLOCK_BYTES)?;
    }
    Ok(ms + s.flush()?)
}

/// Distinct blocks of a region that do not adjoin, in random order.
pub struct Places {
    from: u64,
    count: u64,
    step: u64,
    at: u64,
    made: u64,
    mixed: Vec<u64>,
}

impl Places {
    /// Of the region of `bytes` from `from` on.
    pub fn new(s: &mut Session<'_>, from: u64, bytes: u64) -> Self {
        // Every number below a power of two once: an odd step walks through all of them.
        let count = 1u64 << (bytes / BLOCK_BYTES / 2).max(1).ilog2();
        Places {
            from,
            count,
            step: 2 * s.below(count / 2) + 1,
            at: s.below(count),
            made: 0,
            mixed: Vec::new(),
        }
    }

    /// The next one, until there are no more.
    pub fn next(&mut self, s: &mut Session<'_>) -> Option<u64> {
        // A walk with one step is regular: shuffled by the thousand it is not.
        if self.mixed.is_empty() && self.made < self.count {
            for _ in 0..1024.min(self.count - self.made) {
                self.at = (self.at + self.step) % self.count;
                self.mixed.push(self.at);
                self.made += 1;
            }
            s.shuffle(&mut self.mixed);
        }
        self.mixed
            .pop()
            .map(|place| self.from + place * 2 * BLOCK_BYTES)
    }
}
