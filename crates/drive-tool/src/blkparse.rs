// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the text that `blkparse` prints by default. docs/reference/trace-format.md says what is taken from it.

use crate::trace_file::{Event, Row, ARRIVAL_MAX_NS, SECTOR_MAX};
use smr_drive::request::{Class, Op, Request, FLAG_FUA, FLAG_META, FLAG_SYNC};
use zoned::Lba;

const EXPECTED: &str =
    "expected 'major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors', as blkparse prints it";

/// One line.
struct Line<'a> {
    number: usize,
    device: &'a str,
    ns: u64,
    action: &'a str,
    rwbs: &'a str,
    place: Option<(u64, u32)>,
}

/// Whether a text looks like blkparse's.
pub fn is_blkparse(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.split_whitespace().next().is_some_and(is_device))
}

fn is_device(word: &str) -> bool {
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    word.split_once(',')
        .is_some_and(|(major, minor)| number(major) && number(minor))
}

/// Reads a text: requests as they were given to the driver (action D), or, if there is none, as they were queued (Q).
pub fn read(text: &str) -> Result<Vec<Event>, String> {
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let first = line.split_whitespace().next();
        // The summary comes last, and everything in it is counted from the lines before.
        if first.is_some_and(|w| w.starts_with("CPU") || w == "Total") {
            break;
        }
        if first.is_some() {
            lines.push(parse(i + 1, line)?);
        }
    }
    let device = lines.first().map_or("", |l| l.device);
    if let Some(other) = lines.iter().find(|l| l.device != device) {
        return Err(format!(
            "line {}: device {} after {device}: expected the lines of one device, as `blkparse -i DEVICE` prints them",
            other.number, other.device
        ));
    }
    let action = if lines.iter().any(|l| l.action == "D") {
        "D"
    } else {
        "Q"
    };
    let mut events = Vec::new();
    for line in lines.iter().filter(|l| l.action == action) {
        requests(line, &mut events)?;
    }
    if events.is_empty() {
        return Err("no line has action D or Q: expected at least one request".to_string());
    }
    Ok(events)
}

fn parse(number: usize, line: &str) -> Result<Line<'_>, String> {
    let wrong = |what: &str| format!("line {number}: {what}: {EXPECTED}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, _cpu, _sequence, time, _pid, action, ..] = words[..] else {
        return Err(wrong("too few fields"));
    };
    if !is_device(device) {
        return Err(wrong(&format!("'{device}' is no device")));
    }
    let ns = nanoseconds(time).ok_or_else(|| wrong(&format!("'{time}' is no time")))?;
    let rwbs = words.get(6).copied().unwrap_or("");
    let place = match words.get(7..10) {
        Some([sector, "+", sectors]) => {
            let sector = sector.parse().ok().filter(|s| *s <= SECTOR_MAX);
            let sectors = sectors.parse().ok();
            Some(
                sector
                    .zip(sectors)
                    .ok_or_else(|| wrong("no sector and number of sectors"))?,
            )
        }
        _ => None,
    };
    Ok(Line {
        number,
        device,
        ns,
        action,
        rwbs,
        place,
    })
}

/// From seconds with up to nine digits behind the point.
fn nanoseconds(time: &str) -> Option<u64> {
    let (seconds, fraction) = time.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction_ns: u64 = format!("{fraction:0<9}").parse().ok()?;
    let ns = seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction_ns)?;
    (ns <= ARRIVAL_MAX_NS).then_some(ns)
}

/// A flush before the data is a request of its own, as the drive sees it.
fn requests(line: &Line<'_>, events: &mut Vec<Event>) -> Result<(), String> {
    let wrong = |what: &str| format!("line {}: {what}: {EXPECTED}", line.number);
    // R, W or D, with F for a flush in front; behind it flags: F (FUA), S (sync), M (metadata), A (read-ahead).
    let flush = line.rwbs.starts_with('F');
    let rest = line.rwbs.strip_prefix('F').unwrap_or(line.rwbs);
    let mut push = |op: Op, flags: u32, sector: u64, sectors: u32| {
        let class = if flags & FLAG_META != 0 {
            Class::Metadata
        } else {
            Class::Data
        };
        events.push(Event::Request(Row {
            arrival_ns: line.ns,
            completion_ns: line.ns,
            request: Request {
                tag: events.len() as u64,
                op,
                flags,
                lba: Lba(sector),
                sectors,
            },
            class: class as u8,
            place: 0,
            service_ns: 0,
        }));
    };
    if flush {
        push(Op::Flush, 0, 0, 0);
    }
    let op = match rest.chars().next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        Some('D') => Op::Discard,
        _ if flush => return Ok(()),
        // Commands that pass through the block layer (N) are no requests for data.
        Some('N') => return Ok(()),
        _ => return Err(wrong(&format!("rwbs is '{}'", line.rwbs))),
    };
    let (sector, sectors) = line.place.ok_or_else(|| wrong("no sector"))?;
    if sectors == 0 {
        // A flush on its way down is written as a write of nothing.
        return Ok(());
    }
    let flag = |letter: char, flag: u32| if rest[1..].contains(letter) { flag } else { 0 };
    let flags = flag('F', FLAG_FUA) | flag('S', FLAG_SYNC) | flag('M', FLAG_META);
    push(op, flags, sector, sectors);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000104567   697  D  WS 223490 + 8 [kjournald]
  8,0    1        4     0.000204567   697  D  FN [kworker]
  8,0    1        5     0.000304567   697  D FWFSM 800 + 16 [jbd2]
  8,0    1        6     0.000404567   697  D  RM 99 + 8 [ls]
  8,0    1        7     0.000504567     0  C  RM 99 + 8 [0]
CPU0 (8,0):
 Reads Queued:           1,        4KiB
Total (8,0):
";

    fn rows(text: &str) -> Vec<(Op, u32, u64, u32)> {
        let events = read(text).unwrap();
        let of = |e: &Event| match e {
            Event::Request(r) => (
                r.request.op,
                r.request.flags,
                r.request.lba.0,
                r.request.sectors,
            ),
            Event::Marker(..) | Event::Drive(_) => unreachable!(),
        };
        events.iter().map(of).collect()
    }

    #[test]
    fn what_the_driver_was_given_is_replayed() {
        assert_eq!(
            rows(TEXT),
            [
                (Op::Write, FLAG_SYNC, 223_490, 8),
                (Op::Flush, 0, 0, 0),
                (Op::Flush, 0, 0, 0),
                (Op::Write, FLAG_FUA | FLAG_SYNC | FLAG_META, 800, 16),
                (Op::Read, FLAG_META, 99, 8),
            ]
        );
    }

    #[test]
    fn without_issues_what_was_queued_is() {
        let queued: String = TEXT.lines().take(2).map(|l| format!("{l}\n")).collect();
        assert_eq!(rows(&queued), [(Op::Write, 0, 223_490, 8)]);
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (from, to, number, what) in [
            ("0.000104567", "0.0001o4567", 3, "time"),
            ("8,0    1        4", "8;0    1        4", 4, "device"),
            ("99 + 8 [ls]", "x9 + 8 [ls]", 6, "sector"),
            ("D  RM", "D  XM", 6, "rwbs"),
            ("8,0    3        2", "8,1    3        2", 2, "one device"),
        ] {
            let why = read(&TEXT.replace(from, to)).unwrap_err();
            assert!(
                why.starts_with(&format!("line {number}:")) && why.contains(what),
                "{why}"
            );
        }
        assert!(read("CPU0 (8,0):\n").unwrap_err().contains("at least one"));
    }
}
