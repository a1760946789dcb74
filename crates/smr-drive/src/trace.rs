// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The request trace: 48 bytes a request, in order of completion, and markers of the host in between.
//!
//! ```text
//!  0  u64  arrival, ns          28  u8   operation             32  u64  service, ns: the arm worked for it
//!  8  u64  completion, ns       29  u8   class                 40  u64  sequence, from 0
//! 16  u64  first sector         30  u8   flags
//! 24  u32  sectors              31  u8   where (0xff: marker)
//! ```
//! A marker has its time in the first two fields and the length of its text in `sectors`; the text follows in whole
//! records, padded with zeros, which have no sequence number.
//!
//! An event of the drive is a marker without text whose `operation` is not 0 but one of [`EventKind`]: time, begin,
//! first sector, 0, kind, classes, reason, 0xff, value, sequence of the next request. Readers that do not know events
//! skip them as markers.

use crate::request::{Class, Request};
use alloc::vec::Vec;
use zoned::Block;

/// First bytes of a trace.
pub const MAGIC: &[u8; 8] = b"SHGLTRC1";
/// Bytes of a record.
pub const RECORD_BYTES: usize = 48;
/// Records that wait for somebody to take them.
const RECORDS_MAX: usize = 16 * 1024;
/// Bytes of a marker's text.
pub const MARKER_MAX: usize = 4096;

/// Where a request's data were when it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// A read, or a request without data.
    None = 0,
    /// In the DRAM buffer.
    Volatile = 1,
    /// In the persistent cache.
    PersistentCache = 2,
    /// In place.
    InPlace = 3,
}

/// One request's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The request.
    pub request: Request,
    /// Its class.
    pub class: Class,
    /// When it arrived.
    pub arrival_ns: u64,
    /// When it was done.
    pub completion_ns: u64,
    /// How long the arm worked for it alone.
    pub service_ns: u64,
    /// Where its data were then.
    pub place: Where,
}

/// Kinds of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A band's cleaning began; `value` is the number of pieces to collect.
    CleaningBegan = 1,
    /// It ended, at `begin_ns` it had begun; `value` is 1 if the band is clean now, 0 if it was given up.
    CleaningEnded = 2,
    /// A sequential run is written in place from now on.
    StreamBegan = 3,
    /// It is forgotten; `value` is its length in blocks.
    StreamEnded = 4,
    /// Writes wait for room in the persistent cache.
    ForcedBegan = 5,
    /// They no longer do. Noted when that is certain, after events that came later.
    ForcedEnded = 6,
    /// A fault of the plan; `value` is the number of faults so far.
    Fault = 7,
}

/// Something that the drive did by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Where; block 0 if that means nothing.
    pub start: Block,
    /// Classes concerned, a bit each.
    pub classes: u8,
    /// See [`EventKind`].
    pub value: u64,
}

/// Collects records until somebody takes them.
#[derive(Default)]
pub struct Trace {
    bytes: Vec<u8>,
    taken: usize,
    on: bool,
    sequence: u64,
    /// Records lost because nobody took them in time.
    pub lost: u64,
}

impl Trace {
    /// Fills `buf` with as many bytes as there are. The trace begins with the first call.
    pub fn take(&mut self, buf: &mut [u8]) -> usize {
        if !self.on {
            self.on = true;
            self.bytes.extend_from_slice(MAGIC);
        }
        let n = buf.len().min(self.bytes.len() - self.taken);
        buf[..n].copy_from_slice(&self.bytes[self.taken..self.taken + n]);
        self.taken += n;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        n
    }

    fn has_room(&mut self, records: usize) -> bool {
        let fits = self.bytes.len() + records * RECORD_BYTES <= RECORDS_MAX * RECORD_BYTES;
        self.lost += u64::from(self.on && !fits);
        self.on && fits
    }

    /// Adds a request.
    pub fn request(&mut self, r: &Record) {
        self.sequence += 1;
        if self.has_room(1) {
            let numbers = [r.arrival_ns, r.completion_ns, r.request.lba.0];
            let bytes = [
                r.request.op as u8,
                r.class as u8,
                r.request.flags as u8,
                r.place as u8,
            ];
            self.record(
                numbers,
                r.request.sectors,
                bytes,
                [r.service_ns, self.sequence - 1],
            );
        }
    }

    /// Adds a marker.
    pub fn marker(&mut self, now_ns: u64, text: &[u8]) {
        let text = &text[..text.len().min(MARKER_MAX)];
        let records = text.len().div_ceil(RECORD_BYTES);
        if self.has_room(1 + records) {
            self.record(
                [now_ns, now_ns, 0],
                text.len() as u32,
                [0, 0, 0, 0xff],
                [0, self.sequence],
            );
            self.bytes.extend_from_slice(text);
            let padding = records * RECORD_BYTES - text.len();
            self.bytes.resize(self.bytes.len() + padding, 0);
        }
    }

    /// Adds an event at `now_ns` of something that began at `begin_ns`. `reason` is the number of the arm's activity.
    pub fn event(&mut self, now_ns: u64, begin_ns: u64, reason: u8, event: &Event) {
        if self.has_room(1) {
            self.record(
                [now_ns, begin_ns, event.start.first_sector().0],
                0,
                [event.kind as u8, event.classes, reason, 0xff],
                [event.value, self.sequence],
            );
        }
    }

    fn record(&mut self, first: [u64; 3], sectors: u32, bytes: [u8; 4], last: [u64; 2]) {
        first
            .iter()
            .for_each(|n| self.bytes.extend_from_slice(&n.to_le_bytes()));
        self.bytes.extend_from_slice(&sectors.to_le_bytes());
        self.bytes.extend_from_slice(&bytes);
        last.iter()
            .for_each(|n| self.bytes.extend_from_slice(&n.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use zoned::Lba;

    fn record() -> Record {
        Record {
            request: Request {
                tag: 1,
                op: Op::Write,
                flags: 2,
                lba: Lba(8),
                sectors: 16,
            },
            class: Class::Journal,
            arrival_ns: 10,
            completion_ns: 20,
            service_ns: 5,
            place: Where::Volatile,
        }
    }

    #[test]
    fn a_record_has_its_fields_where_the_format_says() {
        let mut trace = Trace::default();
        trace.take(&mut []);
        trace.request(&record());
        let mut buf = [0; 100];
        assert_eq!(trace.take(&mut buf), 56);
        assert_eq!(&buf[..8], MAGIC);
        assert_eq!((buf[8], buf[16], buf[24], buf[32]), (10, 20, 8, 16));
        assert_eq!(buf[36..40], [1, 2, 2, 1]);
        assert_eq!((buf[40], buf[48]), (5, 0));
    }

    #[test]
    fn nothing_is_kept_before_the_first_take_and_a_marker_fills_whole_records() {
        let mut trace = Trace::default();
        trace.request(&record());
        let mut buf = [0; 200];
        assert_eq!(trace.take(&mut buf), 8);
        trace.marker(7, &[b'x'; 50]);
        assert_eq!(trace.take(&mut buf), 3 * 48);
        assert_eq!(
            (buf[0], buf[24], buf[31], buf[48], buf[97], buf[98]),
            (7, 50, 0xff, b'x', b'x', 0)
        );
    }
}
