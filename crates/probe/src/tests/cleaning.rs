// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the drive cleans: the first read after a pause is late if cleaning has begun meanwhile.

use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::{Session, MARKER_BYTES};
use crate::statistics::{mean, quantile, share_interval};

const DIRTY_BLOCKS: u64 = 3000;
const LOOKS: u32 = 8;
const LATE: u32 = 3;
const SHORTEST_MS: f64 = 10.0;
/// The longest pause.
pub const LONGEST_MS: f64 = 60_000.0;
/// Reads that come during cleaning.
const SLICES: usize = 200;
const SLICE_PHASES_MS: f64 = 250.0;
const BUSY_MS: f64 = 20_000.0;
const SAMPLE: usize = 60;
const AGAIN: usize = 1000;
/// Neither a marker nor what is read around one.
const BESIDE_BYTES: u64 = 10 * BLOCK_BYTES;

/// See the module's head.
pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    s.tell("waiting until the disk has nothing left to clean");
    s.wait_quiet(6000.0)?;
    let markers = dirty(s, 0.7)?;
    constant(s, &markers)?;
    idle_delay(s)?;
    slice(s)
}

/// Small writes all over some gibibytes: work for a cleaner.
fn dirty(s: &mut Session<'_>, place: f64) -> Result<Vec<u64>, Stop> {
    let range = s.scattered(6 * GIB).min(s.capacity() / 8);
    let from = s.offset(place, MIB, 2 * range);
    let mut markers: Vec<u64> = (1..range / MARKER_BYTES)
        .map(|i| from + i * MARKER_BYTES)
        .collect();
    s.shuffle(&mut markers);
    markers.truncate(DIRTY_BLOCKS as usize);
    for at in &markers {
        s.write(*at, BLOCK_BYTES)?;
    }
    s.flush()?;
    Ok(markers)
}

/// Keeps the disk busy, first with reads, then with writes, and looks whether it cleaned all the same. What has been
/// dirty for longest is looked at.
fn constant(s: &mut Session<'_>, markers: &[u64]) -> Result<(), Stop> {
    let seconds = BUSY_MS / 1e3;
    let until_s = s.now_s() + seconds;
    let blocks = s.capacity() / BLOCK_BYTES - 1;
    while s.now_s() < until_s {
        let at = s.below(blocks) * BLOCK_BYTES;
        s.read(at, BLOCK_BYTES)?;
    }
    let home = |s: &mut Session<'_>| -> Result<usize, Stop> {
        // What an earlier look left in DRAM would seem to be at home.
        s.evict()?;
        let mut home = 0;
        for at in markers.iter().take(SAMPLE) {
            home += usize::from(s.is_home(*at)?);
        }
        Ok(home)
    };
    let read = home(s)?;
    // The same few blocks again and again: they fill no cache.
    let again = &markers[markers.len().saturating_sub(AGAIN)..];
    let until_s = s.now_s() + 3.0 * seconds;
    while s.now_s() < until_s {
        for at in again {
            s.write(*at + BESIDE_BYTES, BLOCK_BYTES)?;
        }
    }
    s.flush()?;
    let written = home(s)?;
    let how = format!(
        "of {SAMPLE} cached blocks {read} were at home after {seconds:.0} s of reads without a pause, and {written} after \
         three times as long of writes"
    );
    let (key, what) = ("cleaning.busy", "cleaning while the disk is busy");
    // A look errs now and then: more than one in twenty, with 95 %, is no error.
    let seen = |home: usize| share_interval(home, SAMPLE).0 > 0.05;
    let none = |home: usize| share_interval(home, SAMPLE).1 < 0.15;
    s.found(match (read, written.saturating_sub(read)) {
        (r, _) if seen(r) => Finding::word(key, what, "yes", Confidence::High, how),
        (_, w) if seen(w) => Finding::word(key, what, "while it writes", Confidence::High, how),
        (r, w) if none(r + w) => Finding::word(key, what, "no", Confidence::High, how),
        _ => Finding::open(key, what, how),
    });
    Ok(())
}

/// Whether a pause of `ms` is long enough for cleaning to begin.
fn begins_within(s: &mut Session<'_>, at: &mut u64, ms: f64) -> Result<bool, Stop> {
    let mut late = 0;
    for look in 0..LOOKS {
        // Again, from DRAM: it takes no time, so the pause begins when it comes and when it ends.
        s.read(*at, BLOCK_BYTES)?;
        s.idle(ms)?;
        // A little further each time, so that nothing else comes from DRAM.
        *at += 5 * MIB;
        let limit_ms = s.known.mechanics.undisturbed_ms();
        late += u32::from(s.read(*at, BLOCK_BYTES)? > limit_ms);
        if late >= LATE || late + LOOKS - look <= LATE {
            break;
        }
    }
    Ok(late >= LATE)
}

/// How long a read waits that comes while the drive cleans: up to a slice, and the way there.
fn slice(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = (
        "translation.clean_slice",
        "slice of cleaning that a request waits for",
    );
    let Some(idle_ms) = s.known.idle_ms else {
        s.found(Finding::open(key, what, "no cleaning was seen".into()));
        return Ok(());
    };
    // What was dirty may be clean by now.
    dirty(s, 0.55)?;
    let mut at = s.offset(0.45, MIB, 32 * GIB.min(s.capacity() / 64));
    s.read(at, BLOCK_BYTES)?;
    let mut times = Vec::new();
    for _ in 0..SLICES {
        // A slice may begin at any time before the read.
        let more_ms = s.below(1000) as f64 / 1000.0 * SLICE_PHASES_MS;
        s.read(at, BLOCK_BYTES)?;
        s.idle(idle_ms * 1.04 + more_ms)?;
        at += 5 * MIB;
        times.push(s.read(at, BLOCK_BYTES)?);
    }
    let mechanics = &s.known.mechanics;
    // From a band or the cache, wherever they are: a mean seek.
    let way_ms = mechanics.command_ms
        + mechanics.revolution_ms / 2.0
        + mechanics.seek.map_or(9.0, |law| law.mean_ms());
    // Waits lie evenly between none and a slice. The last slice of a band is shorter: that moves their upper end least.
    let slice_ms = (quantile(&times, 0.9) - way_ms) / 0.9;
    let error_ms = 2.0 * (0.3 * slice_ms / (SLICES as f64).sqrt() / 0.9 + 1.5);
    if slice_ms < 2.0 * error_ms {
        let why = format!(
            "reads that came while the drive cleaned took {:.0} ms in the mean: hardly late",
            mean(&times)
        );
        s.found(Finding::open(key, what, why));
        return Ok(());
    }
    let how = format!(
        "of {SLICES} reads that came during idle cleaning, 90 % waited no longer than nine tenths of it and {way_ms:.0} ms for the way there"
    );
    let interval = (slice_ms - error_ms, slice_ms + error_ms);
    s.found(Finding::number(key, what, slice_ms, "ms", interval, how));
    Ok(())
}

fn idle_delay(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("translation.idle", "idle time before cleaning");
    let mut at = s.offset(0.4, MIB, 32 * GIB.min(s.capacity() / 64));
    s.read(at, BLOCK_BYTES)?;
    let (mut quiet_ms, mut late_ms) = (0.0, SHORTEST_MS);
    while !begins_within(s, &mut at, late_ms)? {
        quiet_ms = late_ms;
        late_ms *= 2.0;
        if late_ms > LONGEST_MS {
            let why = format!(
                "no read was late after pauses of up to {:.0} s",
                quiet_ms / 1e3
            );
            s.found(Finding::word(
                "cleaning.idle",
                "cleaning in idle time",
                "not seen",
                Confidence::Medium,
                why.clone(),
            ));
            s.found(Finding::open(key, what, why));
            return Ok(());
        }
    }
    let how = format!("reads after pauses of {late_ms:.0} ms were late");
    s.found(Finding::word(
        "cleaning.idle",
        "cleaning in idle time",
        "yes",
        Confidence::High,
        how,
    ));
    while late_ms - quiet_ms > 0.03 * late_ms && late_ms > SHORTEST_MS {
        let middle = (quiet_ms + late_ms) / 2.0;
        if begins_within(s, &mut at, middle)? {
            late_ms = middle;
        } else {
            quiet_ms = middle;
        }
    }
    s.known.idle_ms = Some(late_ms);
    let how = format!(
        "the shortest pause after which {LATE} of {LOOKS} reads were late, halving the difference"
    );
    s.found(Finding::number(
        key,
        what,
        late_ms / 1e3,
        "s",
        (quiet_ms / 1e3, late_ms / 1e3),
        how,
    ));
    Ok(())
}
