// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Single requests and commands for zones, and what the drive answers.

mod common;

use common::small::{drive, small_host_managed, ZONE_BLOCKS};
use smr_drive::profile::{sample, Translation};
use smr_drive::request::{Op, Outcome, Refusal, Request};
use smr_drive::{Drive, ZonedDisk};
use std::collections::BTreeMap;
use zoned::{Lba, ZoneId, ZoneState, ZonedDevice};

/// Key, code and qualifier (ZBC).
type Sense = Option<(u8, u8, u8)>;
const NOT_AT_THE_POINTER: Sense = Some((5, 0x21, 0x04));
const WRITE_BOUNDARY: Sense = Some((5, 0x21, 0x05));
const READ_BEYOND: Sense = Some((5, 0x21, 0x06));
const READ_BOUNDARY: Sense = Some((5, 0x21, 0x07));
const INVALID_FIELD: Sense = Some((5, 0x24, 0x00));
const TOO_MANY_OPEN: Sense = Some((7, 0x55, 0x0e));

/// The sense of a request, as key, code and qualifier.
fn sense_of(drive: &mut Drive, now_ns: &mut u64, op: Op, lba: u64, sectors: u32) -> Sense {
    let request = Request {
        tag: 1,
        op,
        flags: 0,
        lba: Lba(lba),
        sectors,
    };
    drive.submit(*now_ns, request).unwrap();
    let mut outcome = None;
    while outcome.is_none() {
        drive.advance(*now_ns, 1, |done| outcome = Some(done.outcome));
        if outcome.is_none() {
            *now_ns = drive.next_event().unwrap();
        }
    }
    outcome
        .and_then(Outcome::sense)
        .map(|s| (s.key, s.asc, s.ascq))
}

#[test]
fn every_refusal_has_its_sense_at_the_drive() {
    let mut drive = drive(small_host_managed());
    let mut now_ns = 0;
    let zone = |id: u64| id * ZONE_BLOCKS * 8;
    let cases = [
        ("in order", Op::Write, zone(1), 64, None),
        ("conventional", Op::Write, 800, 3, None),
        (
            "not at the pointer",
            Op::Write,
            zone(1),
            8,
            NOT_AT_THE_POINTER,
        ),
        (
            "half a block",
            Op::Write,
            zone(1) + 64,
            4,
            NOT_AT_THE_POINTER,
        ),
        (
            "out of its zone",
            Op::Write,
            zone(1) - 8,
            16,
            WRITE_BOUNDARY,
        ),
        ("beyond it", Op::Read, zone(1) + 56, 16, READ_BEYOND),
        ("across types", Op::Read, zone(1) - 8, 16, READ_BOUNDARY),
        ("conventional zone", Op::ZoneReset, 0, 0, INVALID_FIELD),
        ("not a start", Op::ZoneOpen, zone(2) + 8, 0, INVALID_FIELD),
        ("open", Op::ZoneOpen, zone(1), 0, None),
        ("open", Op::ZoneOpen, zone(2), 0, None),
        ("open", Op::ZoneOpen, zone(3), 0, None),
        ("one too many", Op::ZoneOpen, zone(4), 0, TOO_MANY_OPEN),
        ("one too many", Op::Write, zone(4), 8, TOO_MANY_OPEN),
        ("room", Op::ZoneFinish, zone(2), 0, None),
        ("in order", Op::Write, zone(4), 8, None),
        ("full", Op::Write, zone(2), 8, NOT_AT_THE_POINTER),
        ("all", Op::ZoneResetAll, 0, 0, None),
    ];
    for (what, op, lba, sectors, expected) in cases {
        assert_eq!(
            sense_of(&mut drive, &mut now_ns, op, lba, sectors),
            expected,
            "{what}"
        );
        drive.check_invariants();
    }
    for sectors in [2048, 2048, 2048, 1848] {
        let at = drive.zone(ZoneId(1)).unwrap().write_pointer.0;
        assert_eq!(
            sense_of(&mut drive, &mut now_ns, Op::Write, at, sectors),
            None
        );
    }
    let beyond = sense_of(&mut drive, &mut now_ns, Op::Write, zone(1) + 7992, 16);
    assert_eq!(beyond, WRITE_BOUNDARY, "beyond the capacity");
}

#[test]
fn zone_commands_are_executed_in_their_order() {
    let mut drive = drive(small_host_managed());
    let start = ZONE_BLOCKS * 8;
    let mut submit = |tag, op, lba, sectors| {
        let request = Request {
            tag,
            op,
            flags: 0,
            lba: Lba(lba),
            sectors,
        };
        drive.submit(0, request).unwrap();
    };
    submit(0, Op::Write, start, 64);
    submit(1, Op::ZoneReset, start, 0);
    submit(2, Op::Write, start, 8);
    submit(3, Op::Read, start, 8);
    submit(4, Op::ZoneReset, start, 0);
    let mut outcomes = BTreeMap::new();
    while let Some(next_ns) = drive.next_event() {
        drive.advance(next_ns, 9, |done| {
            outcomes.insert(done.tag, done.outcome);
        });
    }
    assert_eq!(
        outcomes.into_values().collect::<Vec<_>>(),
        [Outcome::Done; 5]
    );
    assert_eq!(drive.zone(ZoneId(1)).unwrap().state, ZoneState::Empty);
}

#[test]
fn without_a_write_cache_a_write_waits_for_the_platter_and_the_firmware() {
    let write_ns = |permille| {
        let mut profile = sample::enforcing(64 << 20, ZONE_BLOCKS);
        if let Translation::Enforcing(enforcing) = &mut profile.translation {
            enforcing.overhead_permille = permille;
        }
        let mut disk = ZonedDisk::new(drive(profile));
        disk.write(Lba(ZONE_BLOCKS * 8), &[1; 4096]).unwrap();
        let first_ns = disk.now_ns();
        // The platters have turned on meanwhile: a revolution is missed.
        disk.write(Lba(ZONE_BLOCKS * 8 + 8), &[1; 4096]).unwrap();
        (first_ns, disk.now_ns() - first_ns)
    };
    let (plain, slow) = (write_ns(0), write_ns(40));
    assert!(plain.0 > 1_000_000 && plain.1 > 8_000_000, "{plain:?}");
    assert_eq!(slow.0 - plain.0, (plain.0 - 107_450) * 40 / 1000);
    let no_zones = Request {
        tag: 9,
        op: Op::ZoneReset,
        flags: 0,
        lba: Lba(0),
        sectors: 0,
    };
    let mut drive = drive(sample::enforcing(64 << 20, ZONE_BLOCKS));
    assert_eq!(drive.submit(0, no_zones), Err(Refusal::Unsupported));
}
