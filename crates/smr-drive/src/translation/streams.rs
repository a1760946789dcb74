// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The stream detector: it remembers where sequential runs ended.
//!
//! A run begins as a *candidate*: what was appended to the persistent cache of it is also kept in the DRAM, and once
//! the run is long enough, all of it is written in place. From then on it *streams*: whatever goes on where it ended is
//! written in place too, after a pause as well, until it is forgotten.

use crate::trace::{Event, EventKind};
use alloc::vec::Vec;
use zoned::{Block, BlockRange};

/// A piece as long as this that grew lately is probably the beginning of a run: 1 MiB.
pub const GROWING_BLOCKS: u64 = 256;

/// A sequential run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block; of a candidate, everything from here on is in the DRAM.
    pub start: Block,
    /// Where it would go on.
    pub end: Block,
    /// When it last grew.
    pub last_ns: u64,
}

/// The runs a drive remembers.
pub struct Streams {
    candidates: Vec<Run>,
    streaming: Vec<Run>,
    runs_max: usize,
    memory_ns: u64,
    /// For the trace.
    pub events: Vec<Event>,
}

impl Streams {
    /// Remembers `runs_max` candidates and as many streams, each for `memory_ns` after its last write.
    pub fn new(runs_max: u32, memory_ns: u64) -> Self {
        Streams {
            candidates: Vec::new(),
            streaming: Vec::new(),
            runs_max: runs_max as usize,
            memory_ns,
            events: Vec::new(),
        }
    }

    /// Forgets what has not grown for long.
    pub fn expire(&mut self, now_ns: u64) {
        let memory_ns = self.memory_ns;
        self.candidates.retain(|r| r.last_ns + memory_ns >= now_ns);
        let Streams {
            streaming, events, ..
        } = self;
        streaming.retain(|r| {
            let remembered = r.last_ns + memory_ns >= now_ns;
            if !remembered {
                events.push(ended(r));
            }
            remembered
        });
    }

    /// Runs that stream.
    pub fn streaming(&self) -> &[Run] {
        &self.streaming
    }

    /// Runs that are not long enough.
    pub fn candidates(&self) -> &[Run] {
        &self.candidates
    }

    /// Whether a run ends at `block`.
    pub fn ends_at(&self, block: Block) -> bool {
        self.streaming
            .iter()
            .chain(&self.candidates)
            .any(|r| r.end == block)
    }

    /// `range` went to the persistent cache.
    pub fn cached(&mut self, range: BlockRange, now_ns: u64) {
        match self.candidates.iter_mut().find(|r| r.end == range.start) {
            Some(run) => (run.end, run.last_ns) = (range.end, now_ns),
            None => {
                let run = Run {
                    start: range.start,
                    end: range.end,
                    last_ns: now_ns,
                };
                remember(&mut self.candidates, self.runs_max, run);
            }
        }
    }

    /// `range` is being written in place.
    pub fn streamed(&mut self, range: BlockRange, now_ns: u64) {
        self.candidates
            .retain(|r| r.end <= range.start || r.start >= range.end);
        match self.streaming.iter_mut().find(|r| r.end == range.start) {
            Some(run) => (run.end, run.last_ns) = (range.end, now_ns),
            None => {
                let run = Run {
                    start: range.start,
                    end: range.end,
                    last_ns: now_ns,
                };
                let forgotten = remember(&mut self.streaming, self.runs_max, run);
                self.events.extend(forgotten.as_ref().map(ended));
                self.events.push(Event {
                    kind: EventKind::StreamBegan,
                    start: run.start,
                    classes: 0,
                    value: 0,
                });
            }
        }
    }

    /// Forgets everything: power was cut.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.streaming.clear();
    }
}

fn ended(run: &Run) -> Event {
    Event {
        kind: EventKind::StreamEnded,
        start: run.start,
        classes: 0,
        value: run.end.0 - run.start.0,
    }
}

/// Adds a run; the one that has not grown for longest makes room, and is returned.
fn remember(runs: &mut Vec<Run>, runs_max: usize, run: Run) -> Option<Run> {
    if runs_max == 0 {
        return None;
    }
    let mut forgotten = None;
    if runs.len() >= runs_max {
        let oldest = runs
            .iter()
            .enumerate()
            .min_by_key(|(_, r)| r.last_ns)
            .map_or(0, |(i, _)| i);
        forgotten = Some(runs.remove(oldest));
    }
    runs.push(run);
    forgotten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> BlockRange {
        BlockRange::new(Block(start), Block(end))
    }

    #[test]
    fn a_candidate_grows_and_becomes_a_stream() {
        let mut streams = Streams::new(2, 100);
        streams.cached(range(0, 10), 1);
        streams.cached(range(10, 20), 2);
        assert_eq!(
            streams.candidates(),
            [Run {
                start: Block(0),
                end: Block(20),
                last_ns: 2
            }]
        );
        streams.streamed(range(0, 30), 3);
        assert!(streams.candidates().is_empty() && streams.ends_at(Block(30)));
    }

    #[test]
    fn random_writes_push_candidates_out_but_not_streams() {
        let mut streams = Streams::new(2, 100);
        streams.streamed(range(0, 10), 1);
        for i in 1..50 {
            streams.cached(range(1000 * i, 1000 * i + 1), i);
        }
        assert!(streams.ends_at(Block(10)));
        streams.expire(102);
        assert!(!streams.ends_at(Block(10)));
    }
}
