// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probe under way: the disk with a stop-watch, random numbers, and what was found out so far.

use crate::disk::{Disk, Stop, BLOCK_BYTES, MIB};
use crate::finding::Findings;
use crate::statistics::least_squares;
use rand_core::Rng as _;
use rand_pcg::Pcg64;

/// Nanoseconds of a millisecond.
pub const NS_PER_MS: f64 = 1e6;
/// Nanoseconds of a second.
pub const NS_PER_S: f64 = 1e9;

/// So many blocks before another one, or some more, the head is brought to the track: farther than what passes while a
/// drive turns around, nearer than [`MARKER_BYTES`].
const NEIGHBOUR_BLOCKS: u64 = 36;
/// Blocks with data in the persistent cache are at least so far from each other, so that their neighbours are at home.
pub const MARKER_BYTES: u64 = 256 << 10;
/// More than any drive's DRAM has room for: reading it elsewhere drives out what was written.
const EVICTION_BYTES: u64 = 192 * MIB;

/// What the mechanics test knows, in milliseconds and fractions of the capacity.
#[derive(Clone, Debug, Default)]
pub struct Mechanics {
    /// A 4 KiB request that needs no medium.
    pub command_ms: f64,
    /// One revolution.
    pub revolution_ms: f64,
    /// (place, MB/s).
    pub rates: Vec<(f64, f64)>,
    /// Seek law over the distance in strokes, if it was found.
    pub seek: Option<SeekLaw>,
    /// Mean random read of 4 KiB.
    pub random_read_ms: f64,
}

/// `a + b·√x` below the knee, `c + d·x` above, in ms (Ruemmler and Wilkes, IEEE Computer, March 1994).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeekLaw {
    /// See above.
    pub a: f64,
    /// See above.
    pub b: f64,
    /// See above.
    pub c: f64,
    /// See above.
    pub d: f64,
    /// As a fraction of the stroke.
    pub knee: f64,
}

impl SeekLaw {
    /// Time of a seek over `x` strokes.
    pub fn ms(&self, x: f64) -> f64 {
        if x < self.knee {
            self.a + self.b * x.max(0.0).sqrt()
        } else {
            self.c + self.d * x
        }
    }

    /// Mean over two random places.
    pub fn mean_ms(&self) -> f64 {
        let steps = 1000;
        (0..steps)
            .map(|i| (f64::from(i) + 0.5) / f64::from(steps))
            .map(|x| 2.0 * (1.0 - x) * self.ms(x) / f64::from(steps))
            .sum()
    }

    /// The law nearest to (distance, ms): the knee by trial, the rest by least squares, without a step at the knee.
    pub fn fit(points: &[(f64, f64)]) -> Option<SeekLaw> {
        let wanted: Vec<f64> = points.iter().map(|p| p.1).collect();
        let candidates = (5..=60).step_by(1).filter_map(|percent| {
            let knee = f64::from(percent) / 100.0;
            let rows: Vec<[f64; 3]> = points
                .iter()
                .map(|(x, _)| [1.0, x.min(knee).sqrt(), (x - knee).max(0.0)])
                .collect();
            let [a, b, d] = least_squares(&rows, &wanted)?;
            let law = SeekLaw {
                a,
                b,
                c: a + b * knee.sqrt() - d * knee,
                d,
                knee,
            };
            let error: f64 = points.iter().map(|(x, ms)| (law.ms(*x) - ms).powi(2)).sum();
            (a > 0.0 && b >= 0.0 && d >= 0.0 && law.c >= 0.0).then_some((error, law))
        });
        candidates
            .min_by(|p, q| p.0.total_cmp(&q.0))
            .map(|(_, law)| law)
    }
}

impl Mechanics {
    /// Sequential rate at a place, MB/s.
    pub fn rate(&self, place: f64) -> f64 {
        let after = self.rates.partition_point(|(x, _)| *x < place);
        let Some(&(x1, r1)) = self.rates.get(after).or(self.rates.last()) else {
            return 100.0;
        };
        let (x0, r0) = self.rates[after.saturating_sub(1)];
        if x1 > x0 {
            r0 + (r1 - r0) * ((place - x0) / (x1 - x0)).clamp(0.0, 1.0)
        } else {
            r1
        }
    }

    /// Where the arm is for a place, in strokes: tracks hold as many bytes as pass in a revolution.
    pub fn stroke(&self, place: f64) -> f64 {
        let steps = 200;
        let share = |to: f64| -> f64 {
            (0..steps)
                .map(|i| to * (f64::from(i) + 0.5) / f64::from(steps))
                .map(|x| to / f64::from(steps) / self.rate(x))
                .sum()
        };
        share(place.clamp(0.0, 1.0)) / share(1.0)
    }

    /// The place for a stroke: the inverse.
    pub fn place(&self, stroke: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..30 {
            let middle = (low + high) / 2.0;
            if self.stroke(middle) < stroke {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// A read that comes later than this after one nearby was kept waiting: a revolution, a short seek, and some.
    pub fn undisturbed_ms(&self) -> f64 {
        let short_seek = self.seek.map_or(4.0, |law| law.ms(0.01));
        self.revolution_ms + short_seek + self.command_ms + 3.0
    }
}

/// What the tests tell each other.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// From the mechanics test.
    pub mechanics: Mechanics,
    /// Whether small writes go to a log.
    pub logs: Option<bool>,
    /// The disk ends writes out of order with an error.
    pub refuses: bool,
    /// So many places can be written out of order at a time.
    pub scattered_most: Option<u64>,
    /// What is written where the last write of its zone ended goes in place.
    pub pointers: bool,
    /// The cache is in several places.
    pub spread: bool,
    /// The piece of the disk, in bytes, that one of them belongs to.
    pub part: Option<(u64, u64)>,
    /// What is cleaned comes to lie elsewhere.
    pub moves: Option<bool>,
    /// Idle time before cleaning.
    pub idle_ms: Option<f64>,
    /// (place, band size, first byte of a band nearby), in bytes.
    pub bands: Vec<(f64, f64, f64)>,
    /// Entries at the knee.
    pub entries: Option<f64>,
}

/// See the module's head.
pub struct Session<'d> {
    disk: &'d mut dyn Disk,
    rng: Pcg64,
    /// The test in hand may go on until then.
    deadline_ns: u64,
    /// For tests that need what others found.
    pub known: Known,
    /// So far.
    pub findings: Findings,
    tell: Box<dyn FnMut(&str) + 'd>,
}

impl<'d> Session<'d> {
    /// A probe of `disk`; the same `seed` makes the same requests. `tell` hears what is being done.
    pub fn new(disk: &'d mut dyn Disk, seed: u64, tell: impl FnMut(&str) + 'd) -> Self {
        Session {
            disk,
            rng: Pcg64::new(
                u128::from(seed) << 64 | 0x5368_696e_676c_6521,
                0x70_726f_6265,
            ),
            deadline_ns: u64::MAX,
            known: Known::default(),
            findings: Findings::default(),
            tell: Box::new(tell),
        }
    }

    /// The disk's public facts.
    pub fn facts(&self) -> &crate::disk::Facts {
        self.disk.facts()
    }

    /// Bytes of the disk.
    pub fn capacity(&self) -> u64 {
        self.disk.facts().capacity_bytes
    }

    /// Says what is being done.
    pub fn tell(&mut self, text: &str) {
        (self.tell)(text);
    }

    /// The next test may take so long.
    pub fn limit(&mut self, seconds: f64) {
        self.deadline_ns = self
            .disk
            .now_ns()
            .saturating_add((seconds * NS_PER_S) as u64);
    }

    /// Seconds on the disk's clock.
    pub fn now_s(&self) -> f64 {
        self.disk.now_ns() as f64 / NS_PER_S
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// `values` in random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Byte of a place (0 first, 1 last), a multiple of `unit`, with `room` bytes behind it.
    pub fn offset(&self, place: f64, unit: u64, room: u64) -> u64 {
        let last = self.capacity().saturating_sub(room);
        ((place * last as f64) as u64).min(last) / unit * unit
    }

    /// The place of a byte.
    pub fn place_of(&self, offset: u64) -> f64 {
        offset as f64 / self.capacity() as f64
    }

    fn timed(
        &mut self,
        request: impl FnOnce(&mut dyn Disk) -> Result<(), Stop>,
    ) -> Result<f64, Stop> {
        let start_ns = self.disk.now_ns();
        if start_ns > self.deadline_ns {
            return Err(Stop::OutOfTime);
        }
        request(self.disk)?;
        Ok((self.disk.now_ns() - start_ns) as f64 / NS_PER_MS)
    }

    /// Reads; milliseconds.
    pub fn read(&mut self, offset: u64, bytes: u64) -> Result<f64, Stop> {
        self.timed(|disk| disk.read(offset, bytes))
    }

    /// Writes; milliseconds until it is acknowledged.
    pub fn write(&mut self, offset: u64, bytes: u64) -> Result<f64, Stop> {
        self.timed(|disk| disk.write(offset, bytes))
    }

    /// Writes and says whether the disk took it, or refused.
    pub fn takes(&mut self, offset: u64, bytes: u64) -> Result<bool, Stop> {
        match self.write(offset, bytes) {
            Ok(_) => Ok(true),
            Err(Stop::Refused(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Flushes; milliseconds.
    pub fn flush(&mut self) -> Result<f64, Stop> {
        self.timed(|disk| disk.flush())
    }

    /// Does nothing.
    pub fn idle(&mut self, ms: f64) -> Result<(), Stop> {
        let ns = (ms * NS_PER_MS) as u64;
        self.timed(|disk| disk.idle(ns)).map(|_| ())
    }

    /// Reads so much elsewhere that nothing written before is in the disk's DRAM.
    pub fn evict(&mut self) -> Result<(), Stop> {
        let bytes = EVICTION_BYTES.min(self.capacity() / 16);
        let from = self.offset(0.75, MIB, bytes);
        for i in 0..bytes / MIB {
            self.read(from + i * MIB, MIB)?;
        }
        Ok(())
    }

    /// Writes `bytes` from `offset` on in order, in requests of 1 MiB, and flushes.
    pub fn write_run(&mut self, offset: u64, bytes: u64) -> Result<(), Stop> {
        let mut at = offset;
        while at < offset + bytes {
            let piece = MIB.min(offset + bytes - at);
            self.write(at, piece)?;
            at += piece;
        }
        self.flush().map(|_| ())
    }

    /// Bytes that a test may write to out of order, of `wanted`: a disk that follows a few zones only waits for its
    /// cleaner beyond. Two zones are cut by the region's ends. Until the size of zones is known, 128 MiB: few are smaller.
    pub fn scattered(&self, wanted: u64) -> u64 {
        let zone = self.known.bands.first().map_or(128 * MIB, |b| b.1 as u64);
        let most = self.known.scattered_most.unwrap_or(u64::MAX);
        wanted.min(most.saturating_sub(2).max(1).saturating_mul(zone))
    }

    /// Whether the single block at `offset` is in its band, not in a persistent cache. Its neighbours must be at home.
    ///
    /// The head is brought before the block, reads it, and reads a block behind it. If the block is in between, the
    /// three pass one after the other. If it is elsewhere, the head leaves and comes back, and the platters have
    /// turned at least once meanwhile, wherever the block is.
    pub fn is_home(&mut self, offset: u64) -> Result<bool, Stop> {
        // Never quite the same blocks, so that a second look does not find them in DRAM.
        let before = (NEIGHBOUR_BLOCKS + self.below(12)) * BLOCK_BYTES;
        let behind = (1 + self.below(8)) * BLOCK_BYTES;
        self.read(offset.saturating_sub(before), BLOCK_BYTES)?;
        let ms = self.read(offset, BLOCK_BYTES)? + self.read(offset + behind, BLOCK_BYTES)?;
        let passing_ms = (before + behind) as f64 / self.rate_at(offset) / 1e3;
        let mechanics = &self.known.mechanics;
        Ok(ms < passing_ms + 2.0 * mechanics.command_ms + 0.45 * mechanics.revolution_ms)
    }

    /// Whether a run that begins at `offset` is in its bands. The blocks before it must be at home.
    ///
    /// What is behind the run's first block may be wherever that is, so only the way to it counts; a block elsewhere
    /// may come in time by chance if it is less than 2 ms away.
    pub fn run_is_home(&mut self, offset: u64) -> Result<bool, Stop> {
        for blocks in [48, 56, 64] {
            let distance = blocks * BLOCK_BYTES;
            self.read(offset.saturating_sub(distance), BLOCK_BYTES)?;
            let ms = self.read(offset, BLOCK_BYTES)?;
            // The way there, the turn-around, at most one step to the next track.
            let passing_ms = distance as f64 / self.rate_at(offset) / 1e3;
            if ms > passing_ms + 2.0 * self.known.mechanics.command_ms + 1.8 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rate_at(&self, offset: u64) -> f64 {
        self.known.mechanics.rate(self.place_of(offset))
    }

    /// Leaves the head where nothing of interest is read ahead, and idles. Milliseconds.
    pub fn pause(&mut self, near: u64, ms: f64) -> Result<(), Stop> {
        self.read(
            near.saturating_sub(64 * MIB) / BLOCK_BYTES * BLOCK_BYTES,
            BLOCK_BYTES,
        )?;
        self.idle(ms)
    }

    /// Waits until reads are no longer disturbed after a pause. `None`: they still were after `limit_s`.
    pub fn wait_quiet(&mut self, limit_s: f64) -> Result<Option<f64>, Stop> {
        let start_s = self.now_s();
        let (mut quiet, mut pause_ms) = (0, 2_000.0_f64);
        let from = self.offset(0.6, MIB, 1 << 30);
        while quiet < 5 {
            let mut disturbed = false;
            // The first brings the head here.
            for i in 0..2 {
                // Somewhere new each time, so that nothing comes from DRAM.
                let at = from + self.below((1 << 30) / BLOCK_BYTES) * BLOCK_BYTES;
                let ms = self.read(at, BLOCK_BYTES)?;
                disturbed |= i > 0 && ms > self.known.mechanics.undisturbed_ms();
                if i == 0 {
                    self.idle(pause_ms)?;
                }
            }
            quiet = if disturbed { 0 } else { quiet + 1 };
            // Each look costs a drive its idle delay: longer and longer pauses, so that it gets on.
            pause_ms = if disturbed {
                (pause_ms * 1.5).min(120_000.0)
            } else {
                pause_ms.max(6_000.0)
            };
            if self.now_s() - start_s > limit_s {
                return Ok(None);
            }
        }
        Ok(Some(self.now_s() - start_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_law_is_found_again() {
        let law = SeekLaw {
            a: 1.2,
            b: 13.48,
            c: 4.29,
            d: 14.71,
            knee: 0.21,
        };
        let points: Vec<(f64, f64)> = [0.01, 0.03, 0.07, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0]
            .iter()
            .map(|x| (*x, law.ms(*x)))
            .collect();
        let found = SeekLaw::fit(&points).unwrap();
        assert!(
            (found.mean_ms() / law.mean_ms() - 1.0).abs() < 0.01,
            "{found:?}"
        );
        assert!(
            (found.ms(1.0) / law.ms(1.0) - 1.0).abs() < 0.01,
            "{found:?}"
        );
    }

    #[test]
    fn the_stroke_of_a_place_has_an_inverse_and_runs_ahead_at_the_outer_diameter() {
        let rates = vec![(0.0, 190.0), (1.0, 85.0)];
        let mechanics = Mechanics {
            rates,
            ..Mechanics::default()
        };
        assert!(mechanics.stroke(0.5) < 0.5);
        for place in [0.1, 0.4, 0.9] {
            assert!((mechanics.place(mechanics.stroke(place)) - place).abs() < 1e-3);
        }
    }
}
