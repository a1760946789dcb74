// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace to a drive: the model with no kernel. Requests arrive when they did, or as soon as the queue has room;
//! a latency counts from when they did. Their data are not known, so all are zero.

use crate::host::Host;
use crate::meter::Meter;
use crate::trace_file::{Event, Row};
use smr_drive::profile::Profile;
use smr_drive::request::{Class, Refusal, FLAG_FAILED, FLAG_META};
use smr_drive::Drive;
use zoned::BlockRange;

/// What a replay is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of the drive and the run.
    pub seed: u64,
    /// Every band was written before.
    pub used: bool,
    /// Keep a new trace.
    pub keep_trace: bool,
}

/// What came of it.
pub struct Replayed {
    /// The drive afterwards.
    pub drive: Drive,
    /// When the last request was done.
    pub end_ns: u64,
    /// Requests that the drive refused: beyond its end, mostly.
    pub refused: u64,
    /// The new trace, if it was to be kept.
    pub trace: Vec<u8>,
    keep_trace: bool,
    meter: Meter,
    /// What time the drive was told last.
    now_ns: u64,
}

/// Plays all requests of `events`, and then lets the drive clean. Latencies go to `meter`.
pub fn replay(profile: Profile, options: Options, events: &[Event], meter: Meter) -> Replayed {
    let host = if options.used {
        Host::used(profile, options.seed)
    } else {
        Host::new(profile, options.seed)
    };
    let mut replay = Replayed {
        drive: host.drive,
        end_ns: 0,
        refused: 0,
        trace: Vec::new(),
        keep_trace: options.keep_trace,
        meter,
        now_ns: 0,
    };
    let mut rows: Vec<Row> = events
        .iter()
        .filter_map(|event| match event {
            Event::Request(row) => Some(*row),
            Event::Marker(..) | Event::Drive(_) => None,
        })
        .collect();
    // Traces are in order of completion.
    rows.sort_by_key(|row| (row.arrival_ns, row.request.tag));
    // Journals and superblocks are known by their requests.
    for class in [Class::Journal, Class::Superblock] {
        let ranges = rows
            .iter()
            .filter(|r| r.class == class as u8)
            .map(|r| r.request.blocks());
        replay.drive.set_class(class, union(ranges.collect()));
    }
    replay.take_trace();
    for i in 0..rows.len() {
        replay.play(&rows, i);
    }
    while let Some(next_ns) = replay.drive.next_event() {
        replay.advance(&rows, next_ns);
    }
    replay.meter.finish(&replay.drive);
    replay
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
    /// The latencies.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    fn take_trace(&mut self) {
        if !self.keep_trace {
            return;
        }
        let mut buf = [0; 1 << 16];
        loop {
            let n = self.drive.trace_take(&mut buf);
            self.trace.extend_from_slice(&buf[..n]);
            if n == 0 {
                return;
            }
        }
    }

    fn advance(&mut self, rows: &[Row], now_ns: u64) {
        debug_assert!(now_ns >= self.now_ns, "time runs forwards");
        self.now_ns = now_ns;
        let mut done = Vec::new();
        self.drive
            .advance(now_ns, usize::MAX, |completion| done.push(completion.tag));
        for tag in &done {
            let row = &rows[*tag as usize];
            self.meter
                .done(&self.drive, &row.request, row.arrival_ns, now_ns);
        }
        if !done.is_empty() {
            self.end_ns = now_ns;
            self.take_trace();
        }
    }

    /// Plays the i-th request, under the tag i.
    fn play(&mut self, rows: &[Row], i: usize) {
        let row = &rows[i];
        let mut request = row.request;
        request.flags &= !FLAG_FAILED;
        request.tag = i as u64;
        if row.class == Class::Metadata as u8 {
            request.flags |= FLAG_META;
        }
        // The queue may have kept the request before waiting until later than this one's arrival.
        let mut now_ns = row.arrival_ns.max(self.now_ns);
        while let Some(next_ns) = self.drive.next_event().filter(|next| *next <= now_ns) {
            self.advance(rows, next_ns);
        }
        while let Err(why) = self.drive.submit(now_ns, request) {
            match (why, self.drive.next_event()) {
                (Refusal::QueueFull, Some(next_ns)) => {
                    now_ns = now_ns.max(next_ns);
                    self.advance(rows, now_ns);
                }
                _ => {
                    self.refused += 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_file;
    use smr_drive::profile::sample;
    use smr_drive::request::Op;

    fn meter() -> Meter {
        Meter::new(80_000_000, 1_000_000_000)
    }

    #[test]
    fn a_trace_of_a_replay_replays_to_the_same_trace() {
        let profile = || sample::shingled(1 << 30, 20_000, 500);
        let mut host = Host::new(profile(), 1);
        host.drive.trace_take(&mut []);
        let mut random = crate::random::Random(5);
        for _ in 0..300 {
            let range = crate::host::at(random.below(10_000), 1);
            host.request(Op::Write, range, 0).unwrap();
        }
        let mut bytes = vec![0; 1 << 16];
        let n = host.drive.trace_take(&mut bytes);
        let events = trace_file::read(&bytes[..n]).unwrap();
        let options = Options {
            seed: 1,
            used: false,
            keep_trace: true,
        };
        let first = replay(profile(), options, &events, meter());
        assert_eq!(
            (
                first.refused,
                first.meter().records()[0]["operations"]["write"]["requests"].as_u64()
            ),
            (0, Some(300))
        );
        let again = trace_file::read(&first.trace).unwrap();
        let second = replay(profile(), options, &again, meter());
        assert!(first.trace == second.trace && !first.trace.is_empty());
    }

    #[test]
    fn a_trace_that_asks_for_too_much_makes_requests_wait_and_time_runs_forwards() {
        let mut random = crate::random::Random(5);
        let events: Vec<Event> = (0..3_000u64)
            .map(|i| {
                let op = [Op::Write, Op::Read, Op::Read, Op::Flush][(i % 4) as usize];
                Event::Request(Row {
                    // All at once, then again after a pause in which the queue runs empty or not.
                    arrival_ns: i / 300 * 2_000_000_000,
                    completion_ns: 0,
                    request: smr_drive::request::Request {
                        tag: i,
                        op,
                        flags: u32::from(i % 7 == 0),
                        lba: zoned::Lba(random.below(200_000) * 8),
                        sectors: if op == Op::Flush { 0 } else { 8 },
                    },
                    class: 0,
                    place: 0,
                    service_ns: 0,
                })
            })
            .collect();
        let options = Options {
            seed: 1,
            used: true,
            keep_trace: true,
        };
        let profile = sample::shingled(1 << 30, 20_000, 100);
        let replayed = replay(profile, options, &events, meter());
        assert_eq!(replayed.refused, 0);
        let rows = trace_file::read(&replayed.trace).unwrap();
        let requests = rows.iter().filter_map(|event| match event {
            Event::Request(row) => Some(row),
            _ => None,
        });
        assert_eq!(requests.clone().count(), 3_000);
        assert!(
            requests
                .clone()
                .any(|row| row.arrival_ns % 2_000_000_000 != 0),
            "some waited"
        );
        assert!(requests
            .clone()
            .all(|row| row.arrival_ns <= row.completion_ns));
    }
}
