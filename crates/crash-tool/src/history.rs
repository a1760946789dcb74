// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a record is durable when, and what a cut at some place can leave of the rest.
//!
//! A cut has a place: the number of events before it. There, a write is *durable* if it has FUA and is complete, or if a
//! flush was submitted after it had completed, and is complete. The other writes that were submitted are *volatile*: the
//! disk may have any of them, or any block of 4 KiB of one, on its medium.

use crash_drive::record::Event;
use std::collections::BTreeMap;

/// Never.
const NEVER: usize = usize::MAX;

/// A write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Number of the event.
    pub at: usize,
    /// From this place on it is durable.
    pub durable_from: usize,
    /// First sector.
    pub sector: u64,
    /// What it writes.
    pub data: &'a [u8],
}

/// A record, understood.
pub struct History<'a> {
    /// Number among the records that one pool sees.
    pub id: u64,
    /// How many events there are.
    pub events: usize,
    /// In the order of their submission.
    pub writes: Vec<Write<'a>>,
    /// Places right after a flush, or a write with FUA, was complete.
    pub boundaries: Vec<usize>,
    /// Markers, and the events' numbers.
    pub marks: Vec<(usize, &'a [u8])>,
}

impl<'a> History<'a> {
    /// Understands a record. With `flush_ignored` the disk lies: nothing ever becomes durable by a flush or FUA.
    pub fn new(events: &[Event<'a>], flush_ignored: bool) -> Self {
        let completed: BTreeMap<u64, usize> = events
            .iter()
            .enumerate()
            .filter_map(|(at, event)| match event {
                Event::Complete { sequence } => Some((*sequence, at)),
                _ => None,
            })
            .collect();
        let completion = |sequence: &u64| completed.get(sequence).copied().unwrap_or(NEVER);
        // For each place, the earliest end of a flush that is submitted there or later.
        let mut flushed_by = vec![NEVER; events.len() + 1];
        for (at, event) in events.iter().enumerate().rev() {
            flushed_by[at] = flushed_by[at + 1];
            if let Event::Flush { sequence } = event {
                flushed_by[at] = flushed_by[at].min(completion(sequence));
            }
        }
        let (mut writes, mut marks, mut boundaries) = (Vec::new(), Vec::new(), Vec::new());
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Write {
                    sequence,
                    sector,
                    fua,
                    data,
                } => {
                    let complete = completion(sequence);
                    let by_flush = flushed_by
                        .get(complete.saturating_add(1))
                        .copied()
                        .unwrap_or(NEVER);
                    let durable = if *fua {
                        complete.min(by_flush)
                    } else {
                        by_flush
                    };
                    let durable = if flush_ignored { NEVER } else { durable };
                    let write = Write {
                        at,
                        durable_from: durable.saturating_add(1),
                        sector: *sector,
                        data,
                    };
                    if *fua && complete != NEVER {
                        boundaries.push(complete + 1);
                    }
                    writes.push(write);
                }
                Event::Flush { sequence } if completion(sequence) != NEVER => {
                    boundaries.push(completion(sequence) + 1);
                }
                Event::Mark(text) => marks.push((at, *text)),
                _ => (),
            }
        }
        boundaries.sort_unstable();
        boundaries.dedup();
        Self {
            id: 0,
            events: events.len(),
            writes,
            boundaries,
            marks,
        }
    }

    /// The writes that a cut at `place` finds on the medium for certain, in order.
    pub fn durable(&self, place: usize) -> impl Iterator<Item = &Write<'a>> {
        self.before(place)
            .filter(move |write| write.durable_from <= place)
    }

    /// The writes that it may find there, in order.
    pub fn volatile(&self, place: usize) -> impl Iterator<Item = &Write<'a>> {
        self.before(place)
            .filter(move |write| write.durable_from > place)
    }

    fn before(&self, place: usize) -> impl Iterator<Item = &Write<'a>> {
        let count = self.writes.partition_point(|write| write.at < place);
        self.writes[..count].iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a disk does, by somebody who thinks of nothing but a cache and a medium.
    fn trivially_durable(events: &[Event], place: usize) -> Vec<u64> {
        let (mut cached, mut on_medium) = (Vec::new(), Vec::new());
        let mut flushing: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut fua = BTreeMap::new();
        for event in &events[..place] {
            match event {
                Event::Write {
                    sequence, fua: yes, ..
                } => {
                    fua.insert(*sequence, *yes);
                }
                // A flush takes what is in the cache when it comes.
                Event::Flush { sequence } => {
                    flushing.insert(*sequence, cached.clone());
                }
                Event::Complete { sequence } => match flushing.get(sequence) {
                    Some(what) => on_medium.extend(what),
                    None if fua[sequence] => on_medium.push(*sequence),
                    None => cached.push(*sequence),
                },
                Event::Mark(_) => (),
            }
        }
        on_medium.sort_unstable();
        on_medium.dedup();
        on_medium
    }

    /// Requests that overlap as they like; each is complete, if ever, after it was submitted.
    fn records() -> impl Strategy<Value = Vec<Event<'static>>> {
        let request = (0..4u8, 0..8u64, any::<bool>(), 0..10usize);
        prop::collection::vec(request, 1..30).prop_map(|requests| {
            let (mut events, mut open) = (Vec::new(), Vec::new());
            for (number, (kind, sector, fua, end)) in requests.into_iter().enumerate() {
                let sequence = number as u64;
                match kind {
                    0 => events.push(Event::Flush { sequence }),
                    1 => {
                        events.push(Event::Mark(b"m"));
                        continue;
                    }
                    _ => events.push(Event::Write {
                        sequence,
                        sector,
                        fua,
                        data: &[1; 512],
                    }),
                }
                open.push(sequence);
                // Some of the open ones end now, in no order.
                if end < open.len() {
                    events.push(Event::Complete {
                        sequence: open.swap_remove(end),
                    });
                }
            }
            events
        })
    }

    proptest! {
        #[test]
        fn durable_is_what_a_trivial_disk_has_on_its_medium(events in records()) {
            let history = History::new(&events, false);
            for place in 0..=events.len() {
                let sequence = |write: &Write| match events[write.at] {
                    Event::Write { sequence, .. } => sequence,
                    _ => unreachable!(),
                };
                let durable: Vec<u64> = history.durable(place).map(sequence).collect();
                prop_assert_eq!(&durable, &trivially_durable(&events, place));
                let submitted = events[..place].iter().filter(|e| matches!(e, Event::Write { .. })).count();
                prop_assert_eq!(durable.len() + history.volatile(place).count(), submitted);
            }
        }

        #[test]
        fn a_disk_that_lies_keeps_nothing_for_certain(events in records()) {
            let history = History::new(&events, true);
            prop_assert_eq!(history.durable(events.len()).count(), 0);
        }
    }
}
