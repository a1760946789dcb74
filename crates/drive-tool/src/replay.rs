// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace to a new drive: the model with no kernel. Requests arrive when they did, or as soon as the queue has
//! room. Their data are not known, so all are zero.

use crate::trace_file::{Event, Row};
use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::request::{Class, Refusal, FLAG_FAILED, FLAG_META};
use smr_drive::state::State;
use smr_drive::Drive;
use zoned::BlockRange;

/// What came of it.
pub struct Replayed {
    /// The drive afterwards.
    pub drive: Drive,
    /// When the last request was done.
    pub end_ns: u64,
    /// Requests that the drive refused: beyond its end, mostly.
    pub refused: u64,
    /// The new trace.
    pub trace: Vec<u8>,
}

/// Plays all requests of `events`.
pub fn replay(profile: Profile, seed: u64, events: &[Event]) -> Replayed {
    let opened = Opened {
        state: Box::new(State::new(profile, seed)),
        contents: Contents::new(),
    };
    let mut replay = Replayed {
        drive: Drive::new(opened, seed),
        end_ns: 0,
        refused: 0,
        trace: Vec::new(),
    };
    // Journals and superblocks are known by their requests.
    for class in [Class::Journal, Class::Superblock] {
        let ranges = rows(events)
            .filter(|r| r.class == class as u8)
            .map(|r| r.request.blocks());
        replay.drive.set_class(class, union(ranges.collect()));
    }
    replay.take_trace();
    for row in rows(events) {
        replay.play(row);
    }
    while !replay.drive.is_clean() || replay.drive.next_event().is_some() {
        let Some(next_ns) = replay.drive.next_event() else {
            break;
        };
        replay.advance(next_ns);
    }
    replay
}

fn rows(events: &[Event]) -> impl Iterator<Item = &Row> {
    events.iter().filter_map(|event| match event {
        Event::Request(row) => Some(row),
        Event::Marker(..) | Event::Drive(_) => None,
    })
}

fn union(mut ranges: Vec<BlockRange>) -> Vec<BlockRange> {
    ranges.sort_unstable();
    let mut all: Vec<BlockRange> = Vec::new();
    for range in ranges {
        match all.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => all.push(range),
        }
    }
    all
}

impl Replayed {
    fn take_trace(&mut self) {
        let mut buf = [0; 1 << 16];
        loop {
            let n = self.drive.trace_take(&mut buf);
            self.trace.extend_from_slice(&buf[..n]);
            if n == 0 {
                return;
            }
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let mut done = 0;
        self.drive.advance(now_ns, usize::MAX, |_| done += 1);
        if done > 0 {
            self.end_ns = now_ns;
            self.take_trace();
        }
    }

    fn play(&mut self, row: &Row) {
        let mut request = row.request;
        request.flags &= !FLAG_FAILED;
        if row.class == Class::Metadata as u8 {
            request.flags |= FLAG_META;
        }
        let mut now_ns = row.arrival_ns;
        while let Some(next_ns) = self.drive.next_event().filter(|next| *next <= now_ns) {
            self.advance(next_ns);
        }
        while let Err(why) = self.drive.submit(now_ns, request) {
            match (why, self.drive.next_event()) {
                (Refusal::QueueFull, Some(next_ns)) => {
                    now_ns = now_ns.max(next_ns);
                    self.advance(now_ns);
                }
                _ => {
                    self.refused += 1;
                    return;
                }
            }
        }
    }
}
