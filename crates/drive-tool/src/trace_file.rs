// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads request traces; the format is in `smr_drive::trace`, its grammar in docs/reference/trace-format.md.

use hdrhistogram::Histogram;
use smr_drive::activity;
use smr_drive::request::{Op, Request, FLAG_FAILED};
use smr_drive::trace::{MAGIC, RECORD_BYTES};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use zoned::{Lba, SECTOR_BYTES};

/// Names of operations, by number.
pub const OPS: [&str; 10] = [
    "read",
    "write",
    "flush",
    "discard",
    "write_zeroes",
    "zone_open",
    "zone_close",
    "zone_finish",
    "zone_reset",
    "zone_reset_all",
];
/// Names of classes, by number.
pub const CLASSES: [&str; 4] = ["data", "metadata", "journal", "superblock"];
const PLACES: [&str; 4] = ["", "volatile", "persistent_cache", "in_place"];
const MARKER: u8 = 0xff;
/// Names of the drive's events, by number.
pub const EVENTS: [&str; 8] = [
    "",
    "cleaning_began",
    "cleaning_ended",
    "stream_began",
    "stream_ended",
    "forced_began",
    "forced_ended",
    "fault",
];
/// Names of what the arm does, by number, as in the drive's report.
pub const ACTIVITIES: [&str; activity::ACTIVITIES] = activity::NAMES;
/// Latest arrival that is believed: 73 years, so that sums of times fit.
pub const ARRIVAL_MAX_NS: u64 = 1 << 61;
/// Last sector that is believed: 16 EiB less what a request may be long.
pub const SECTOR_MAX: u64 = 1 << 54;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When it arrived.
    pub arrival_ns: u64,
    /// When it was done.
    pub completion_ns: u64,
    /// What was asked; its tag is its sequence number.
    pub request: Request,
    /// Number of its class.
    pub class: u8,
    /// Number of the place its data were in.
    pub place: u8,
    /// How long the arm worked for it alone.
    pub service_ns: u64,
}

/// What a trace is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request.
    Request(Row),
    /// A marker of the host.
    Marker(u64, String),
    /// Something that the drive did by itself.
    Drive(DriveEvent),
}

/// Something that the drive did by itself; `smr_drive::trace::EventKind` says what the values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveEvent {
    /// When.
    pub at_ns: u64,
    /// When what ended had begun.
    pub begin_ns: u64,
    /// Number of its kind.
    pub kind: u8,
    /// Number of the arm's activity that explains it.
    pub reason: u8,
    /// Classes concerned, a bit each.
    pub classes: u8,
    /// First sector concerned.
    pub sector: u64,
    /// Depends on the kind.
    pub value: u64,
}

impl DriveEvent {
    /// The name of its kind.
    pub fn name(&self) -> &'static str {
        EVENTS.get(usize::from(self.kind)).unwrap_or(&"unknown")
    }
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    record[at..at + 8]
        .iter()
        .rev()
        .fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Reads a whole trace. Errors count records from 0, those of a marker's text included.
pub fn read(bytes: &[u8]) -> Result<Vec<Event>, String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("not a trace: it does not begin with SHGLTRC1")?;
    if rest.len() % RECORD_BYTES != 0 {
        return Err(format!(
            "the trace is cut off in its record {}: expected {RECORD_BYTES} bytes, found {}",
            rest.len() / RECORD_BYTES,
            rest.len() % RECORD_BYTES
        ));
    }
    let mut events = Vec::new();
    let mut records = rest.chunks_exact(RECORD_BYTES).enumerate();
    while let Some((number, record)) = records.next() {
        if record[31] == MARKER && u64_at(record, 24) as u32 == 0 && record[28] != 0 {
            events.push(Event::Drive(DriveEvent {
                at_ns: u64_at(record, 0),
                begin_ns: u64_at(record, 8),
                kind: record[28],
                classes: record[29],
                reason: record[30],
                sector: u64_at(record, 16),
                value: u64_at(record, 32),
            }));
            continue;
        }
        if record[31] == MARKER {
            let len = u64_at(record, 24) as u32 as usize;
            let text: Vec<u8> = records
                .by_ref()
                .take(len.div_ceil(RECORD_BYTES))
                .flat_map(|(_, record)| record)
                .copied()
                .take(len)
                .collect();
            if text.len() < len {
                return Err(format!(
                    "record {number}: a marker of {len} bytes: expected them in the records behind it, found {}",
                    text.len()
                ));
            }
            events.push(Event::Marker(
                u64_at(record, 0),
                String::from_utf8_lossy(&text).into_owned(),
            ));
            continue;
        }
        let row = row(record).map_err(|why| format!("record {number}: {why}"))?;
        events.push(Event::Request(row));
    }
    Ok(events)
}

fn row(record: &[u8]) -> Result<Row, String> {
    let (op, class, place) = (record[28], record[29], record[31]);
    let (arrival_ns, completion_ns, sector) =
        (u64_at(record, 0), u64_at(record, 8), u64_at(record, 16));
    let op = Op::from_number(u32::from(op))
        .ok_or_else(|| format!("operation {op}: expected 0 to {}", OPS.len() - 1))?;
    if usize::from(class) >= CLASSES.len() {
        return Err(format!(
            "class {class}: expected 0 to {}",
            CLASSES.len() - 1
        ));
    }
    if usize::from(place) >= PLACES.len() {
        return Err(format!(
            "place {place}: expected 0 to {}, or 255 for a marker",
            PLACES.len() - 1
        ));
    }
    if arrival_ns > ARRIVAL_MAX_NS || completion_ns < arrival_ns {
        return Err(format!(
            "arrival at {arrival_ns} ns and completion at {completion_ns} ns: expected an arrival up to {ARRIVAL_MAX_NS} and no completion before it"
        ));
    }
    if sector > SECTOR_MAX {
        return Err(format!("sector {sector}: expected at most {SECTOR_MAX}"));
    }
    Ok(Row {
        arrival_ns,
        completion_ns,
        request: Request {
            tag: u64_at(record, 40),
            op,
            flags: u32::from(record[30]),
            lba: Lba(sector),
            sectors: u64_at(record, 24) as u32,
        },
        class,
        place,
        service_ns: u64_at(record, 32),
    })
}

/// One line for each request; markers and events as comments.
pub fn write_csv(events: &[Event], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    writeln!(
        out,
        "sequence,arrival_ns,completion_ns,op,class,sector,sectors,flags,where,service_ns"
    )?;
    for event in events {
        match event {
            Event::Marker(ns, text) => writeln!(out, "# {ns} {}", text.replace('\n', " "))?,
            Event::Drive(e) => writeln!(
                out,
                "# {} {} sector {} classes {} value {} since {} for {}",
                e.at_ns,
                e.name(),
                e.sector,
                e.classes,
                e.value,
                e.begin_ns,
                ACTIVITIES.get(usize::from(e.reason)).unwrap_or(&"unknown")
            )?,
            Event::Request(r) => writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{}",
                r.request.tag,
                r.arrival_ns,
                r.completion_ns,
                OPS[r.request.op as usize],
                CLASSES[usize::from(r.class)],
                r.request.lba.0,
                r.request.sectors,
                r.request.flags,
                PLACES.get(usize::from(r.place)).unwrap_or(&""),
                r.service_ns
            )?,
        }
    }
    Ok(())
}

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// Counts of one kind of request.
#[derive(Default)]
struct Kind {
    requests: u64,
    bytes: u64,
    latencies_ns: Option<Histogram<u64>>,
}

/// A table of what is in a trace.
pub fn summary(events: &[Event]) -> Result<String, fmt::Error> {
    let mut kinds: BTreeMap<(usize, u8), Kind> = BTreeMap::new();
    let (mut first_ns, mut last_ns, mut markers, mut failed) = (u64::MAX, 0, 0, 0);
    let mut of_drive: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for event in events {
        let row = match event {
            Event::Request(row) => row,
            Event::Marker(..) => {
                markers += 1;
                continue;
            }
            Event::Drive(event) => {
                let (count, ns) = of_drive.entry(event.name()).or_default();
                *count += 1;
                *ns += event.at_ns - event.begin_ns;
                continue;
            }
        };
        failed += u64::from(row.request.flags & FLAG_FAILED != 0);
        let kind = kinds
            .entry((row.request.op as usize, row.class))
            .or_default();
        kind.requests += 1;
        kind.bytes += u64::from(row.request.sectors) * SECTOR_BYTES;
        let latencies = kind
            .latencies_ns
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("three digits are possible"));
        let ns = row.completion_ns - row.arrival_ns;
        latencies.record(ns).expect("it grows by itself");
        first_ns = first_ns.min(row.arrival_ns);
        last_ns = last_ns.max(row.completion_ns);
    }
    let mut text = String::new();
    let seconds = last_ns.saturating_sub(first_ns) as f64 / 1e9;
    writeln!(
        text,
        "{} records, {markers} markers, {failed} requests failed, {seconds:.3} s",
        events.len()
    )?;
    writeln!(
        text,
        "op            class       requests        MiB     p50 ms     p99 ms   p99.9 ms     max ms"
    )?;
    for ((op, class), kind) in kinds {
        let ms = |share: f64| {
            let ns = kind
                .latencies_ns
                .as_ref()
                .map(|h| h.value_at_quantile(share));
            ns.unwrap_or(0) as f64 / 1e6
        };
        writeln!(
            text,
            "{:<13} {:<10} {:>9} {:>10.1} {:>10.3} {:>10.3} {:>10.3} {:>10.3}",
            OPS[op],
            CLASSES[usize::from(class)],
            kind.requests,
            kind.bytes as f64 / 1048576.0,
            ms(0.5),
            ms(0.99),
            ms(0.999),
            ms(1.0)
        )?;
    }
    for (name, (count, ns)) in of_drive {
        writeln!(text, "{name:<24} {count:>9} {:>10.3} s", ns as f64 / 1e9)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use smr_drive::profile::sample;
    use zoned::{Block, BlockRange};

    fn trace() -> Vec<u8> {
        let mut host = Host::new(sample::conventional(1 << 30), 1);
        host.drive.trace_take(&mut []);
        let range = BlockRange::new(Block(5), Block(7));
        host.request(Op::Write, range, 2).unwrap();
        host.drive.mark(host.now_ns, b"a phase");
        host.request(Op::Read, range, 0).unwrap();
        let mut bytes = vec![0; 4096];
        let n = host.drive.trace_take(&mut bytes);
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn what_the_drive_writes_reads_back() {
        let events = read(&trace()).unwrap();
        assert_eq!(events.len(), 3);
        assert!(
            matches!(&events[0], Event::Request(r) if r.request.op == Op::Write && r.request.sectors == 16)
        );
        assert!(matches!(&events[1], Event::Marker(_, text) if text == "a phase"));
        let mut csv = Vec::new();
        write_csv(&events, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert!(
            csv.contains(",write,metadata,40,16,2,volatile,0\n"),
            "{csv}"
        );
        let summary = summary(&events).unwrap();
        let read = summary.lines().find(|l| l.starts_with("read")).unwrap();
        let longest = read.split_whitespace().last().unwrap();
        assert_ne!(longest, "0.000", "{summary}");
    }

    #[test]
    fn what_the_drive_does_by_itself_reads_back() {
        let mut host = Host::new(sample::shingled(1 << 36, 1 << 20, 1000), 1);
        host.drive.trace_take(&mut []);
        host.request(Op::Write, BlockRange::new(Block(5), Block(7)), 0)
            .unwrap();
        host.wait_clean(1 << 40).unwrap();
        let mut bytes = vec![0; 4096];
        let n = host.drive.trace_take(&mut bytes);
        let events = read(&bytes[..n]).unwrap();
        let own: Vec<&DriveEvent> = events
            .iter()
            .filter_map(|event| match event {
                Event::Drive(event) => Some(event),
                _ => None,
            })
            .collect();
        let names: Vec<&str> = own.iter().map(|e| e.name()).collect();
        assert_eq!(names, ["cleaning_began", "cleaning_ended"]);
        let idle = ACTIVITIES.iter().position(|n| *n == "cleaning_idle_ns");
        assert_eq!(Some(usize::from(own[1].reason)), idle);
        assert_eq!((own[1].begin_ns, own[1].value), (own[0].at_ns, 1));
        assert!(own[1].at_ns > own[0].at_ns && own[0].classes == 1);
        assert!(summary(&events).unwrap().contains("cleaning_ended"));
    }

    #[test]
    fn a_cut_or_foreign_file_is_refused() {
        let bytes = trace();
        assert!(read(&bytes[..bytes.len() - 1])
            .unwrap_err()
            .contains("cut off"));
        assert!(read(b"something").unwrap_err().contains("SHGLTRC1"));
    }

    #[test]
    fn a_record_that_makes_no_sense_is_refused_with_its_number() {
        // Record 0 is a write, 1 and 2 a marker and its text, 3 a read.
        for (record, byte, value, what) in [
            (0, 28, 10, "record 0: operation 10"),
            (3, 29, 4, "record 3: class 4"),
            (3, 31, 4, "record 3: place 4"),
            (3, 7, 0x40, "record 3: arrival"),
            (0, 15, 0, "record 0: arrival"),
            (3, 23, 1, "record 3: sector"),
            (1, 24, 200, "record 1: a marker of 200 bytes"),
        ] {
            let mut bytes = trace();
            if byte == 15 {
                // Completion at 0.
                bytes[8 + 8..8 + 16].fill(0);
                bytes[8] = 1;
            } else {
                bytes[8 + record * RECORD_BYTES + byte] = value;
            }
            let why = read(&bytes).unwrap_err();
            assert!(why.starts_with(what) && why.contains("expected"), "{why}");
        }
    }
}
