// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
use super::*;
use crate::profile::{sample, Translation};
use crate::request::FLAG_FUA;
use alloc::string::String;
use alloc::vec;
use zoned::Lba;

/// Of 64 GiB: random places are far from each other.
const BYTES: u64 = 1 << 36;

fn drive() -> Drive {
    let state = State::new(sample::conventional(BYTES), 1);
    Drive::new(
        Opened {
            state: Box::new(state),
            contents: Contents::new(),
        },
        1,
    )
}

fn request(tag: u64, op: Op, sector: u64, sectors: u32) -> Request {
    Request {
        tag,
        op,
        flags: 0,
        lba: Lba(sector),
        sectors,
    }
}

fn finish_all(drive: &mut Drive) -> u64 {
    let mut now_ns = 0;
    while let Some(next_ns) = drive.next_event() {
        now_ns = next_ns;
        drive.advance(now_ns, 100, |_| {});
    }
    now_ns
}

fn read(drive: &mut Drive, sector: u64, sectors: usize) -> Vec<u8> {
    let mut data = vec![0xee; sectors * 512];
    drive.get(sector, &mut data).unwrap();
    data
}

#[test]
fn sectors_within_blocks_are_written_and_the_rest_is_kept() {
    let mut drive = drive();
    drive.put(1, 0, &[1; 8192]).unwrap();
    drive.submit(0, request(1, Op::Write, 8, 16)).unwrap();
    // Across a block's end, handed over in pieces that are no sectors.
    drive.put(2, 0, &[2; 700]).unwrap();
    drive.put(2, 700, &[2; 836]).unwrap();
    drive.submit(0, request(2, Op::Write, 14, 3)).unwrap();
    drive.submit(0, request(3, Op::WriteZeroes, 17, 1)).unwrap();
    finish_all(&mut drive);
    let expected = [
        [1; 512 * 6].as_slice(),
        &[2; 512 * 3],
        &[0; 512],
        &[1; 512 * 6],
    ]
    .concat();
    assert!(read(&mut drive, 8, 16) == expected);
}

#[test]
fn zeros_over_part_of_two_blocks_and_all_of_those_between() {
    let mut drive = drive();
    drive.put(1, 0, &[1; 4096 * 4]).unwrap();
    drive.submit(0, request(1, Op::Write, 0, 32)).unwrap();
    drive.submit(0, request(2, Op::WriteZeroes, 3, 26)).unwrap();
    finish_all(&mut drive);
    let expected = [[1; 512 * 3].as_slice(), &[0; 512 * 26], &[1; 512 * 3]].concat();
    assert!(read(&mut drive, 0, 32) == expected);
}

#[test]
fn what_makes_no_sense_is_refused_and_its_data_forgotten() {
    let mut drive = drive();
    let end = BYTES / 512;
    drive.put(1, 0, &[1; 512]).unwrap();
    assert_eq!(
        drive.submit(0, request(1, Op::Write, end, 1)),
        Err(Refusal::Invalid)
    );
    assert_eq!(
        drive.submit(0, request(1, Op::Read, u64::MAX, 1)),
        Err(Refusal::Invalid)
    );
    assert_eq!(
        drive.submit(0, request(1, Op::Read, 0, 0)),
        Err(Refusal::Invalid)
    );
    assert_eq!(
        drive.submit(0, request(1, Op::Read, 0, 4096)),
        Err(Refusal::Invalid)
    );
    assert_eq!(
        drive.submit(0, request(1, Op::Discard, 0, 8)),
        Err(Refusal::Unsupported)
    );
    assert_eq!(drive.put(1, 1 << 20, &[1]), Err(Refusal::Invalid));
    drive.submit(0, request(1, Op::Write, 0, 1)).unwrap();
    finish_all(&mut drive);
    assert_eq!(read(&mut drive, 0, 1), [0; 512]);
    assert_eq!(drive.counters().written[0].requests, 1);
}

#[test]
fn the_queue_has_an_end() {
    let mut drive = drive();
    let depth = u64::from(drive.profile().interface.queue_depth);
    for tag in 0..depth {
        drive
            .submit(0, request(tag, Op::Read, 100_000 * tag, 8))
            .unwrap();
    }
    assert_eq!(
        drive.submit(0, request(99, Op::Read, 0, 8)),
        Err(Refusal::QueueFull)
    );
    let mut tags = Vec::new();
    while let Some(next_ns) = drive.next_event() {
        drive.advance(next_ns, 1, |done| tags.push(done.tag));
    }
    tags.sort_unstable();
    assert_eq!(tags, (0..depth).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_of_reads_is_served_faster_than_one_by_one() {
    let place = |i: u64| (i * 7_919_017) % (BYTES / 4096) * 8;
    let (mut queued, mut alone) = (drive(), drive());
    for i in 0..31 {
        queued.submit(0, request(i, Op::Read, place(i), 8)).unwrap();
    }
    let queued_ns = finish_all(&mut queued);
    let mut alone_ns = 0;
    for i in 0..31 {
        alone
            .submit(alone_ns, request(i, Op::Read, place(i), 8))
            .unwrap();
        alone_ns = finish_all(&mut alone);
    }
    assert!(queued_ns * 3 < alone_ns * 2, "{queued_ns} {alone_ns}");
}

#[test]
fn requests_are_counted_by_where_they_go() {
    let mut drive = drive();
    let extent = |first, sectors| vec![BlockRange::covering(Lba(first), sectors)];
    drive.set_class(Class::Journal, extent(800, 80));
    drive.set_class(Class::Superblock, extent(0, 8));
    let meta = |r: Request| Request {
        flags: FLAG_META,
        ..r
    };
    drive
        .submit(0, meta(request(1, Op::Write, 800, 8)))
        .unwrap();
    drive.submit(0, meta(request(2, Op::Write, 0, 8))).unwrap();
    drive.submit(0, meta(request(3, Op::Write, 80, 8))).unwrap();
    drive.submit(0, request(4, Op::Write, 160, 8)).unwrap();
    drive.submit(0, request(5, Op::Flush, 0, 0)).unwrap();
    finish_all(&mut drive);
    let written = drive.counters().written;
    assert!(written.iter().all(|t| *t
        == crate::counters::Traffic {
            bytes: 4096,
            requests: 1
        }));
    assert_eq!(drive.counters().flushes, 1);
    let mut report = String::new();
    drive.report(1 << 40, &mut report).unwrap();
    assert!(
        report.contains("\"journal_written_bytes\":4096,"),
        "{report}"
    );
}

#[test]
fn a_forced_unit_access_is_durable_when_it_ends_and_its_record_says_where() {
    let mut drive = drive();
    drive.trace_take(&mut []);
    drive.put(1, 0, &[7; 4096]).unwrap();
    let fua = Request {
        flags: FLAG_FUA,
        ..request(1, Op::Write, 8, 8)
    };
    drive.submit(0, fua).unwrap();
    let mut now_ns = 0;
    while drive.advance(now_ns, 1, |_| {}) == 0 {
        now_ns = drive.next_event().unwrap();
    }
    drive.power_cut(now_ns);
    assert_eq!(read(&mut drive, 8, 8), [7; 4096]);
    let mut trace = [0; 56];
    assert_eq!(drive.trace_take(&mut trace), 56);
    assert_eq!(trace[8 + 31], Where::InPlace as u8);
}

#[test]
fn an_acknowledged_write_is_lost_by_a_power_cut_at_once() {
    let mut drive = drive();
    drive.put(1, 0, &[7; 4096]).unwrap();
    drive.submit(0, request(1, Op::Write, 8, 8)).unwrap();
    assert_eq!(drive.advance(150_000, 1, |_| {}), 1);
    assert_eq!(read(&mut drive, 8, 8), [7; 4096]);
    drive.power_cut(150_000);
    assert_eq!(read(&mut drive, 8, 8), [0; 4096]);
}

#[test]
fn sequential_reads_one_at_a_time_come_at_the_rate_of_the_medium() {
    let mut drive = drive();
    let mut now_ns = 0;
    for i in 0..500 {
        drive
            .submit(now_ns, request(i, Op::Read, i * 64, 64))
            .unwrap();
        while drive.advance(now_ns, 1, |_| {}) == 0 {
            now_ns = drive.next_event().unwrap();
        }
        // The host thinks for a while: read-ahead goes on.
        now_ns += 100_000;
    }
    let tracks = 500 * 8 / 160;
    assert!(now_ns < (tracks + 3) * 9_800_000, "{now_ns}");
}

fn used(profile: Profile) -> Drive {
    let state = Box::new(State::used(profile, 1));
    let contents = Contents::new();
    Drive::new(Opened { state, contents }, 1)
}

fn shingled(cache_blocks: u64, entries: u64) -> Drive {
    used(sample::shingled(1 << 30, cache_blocks, entries))
}

fn overwritten(cache_blocks: u64, entries: u64) -> Drive {
    used(sample::overwritten(BYTES, cache_blocks, entries))
}

/// Submits a request and waits for it: when it was done.
fn perform(drive: &mut Drive, mut now_ns: u64, request: Request) -> u64 {
    drive.submit(now_ns, request).unwrap();
    while drive.advance(now_ns, 1, |_| {}) == 0 {
        now_ns = now_ns.max(drive.next_event().expect("the request ends"));
        drive.check_invariants();
    }
    now_ns
}

#[test]
fn read_ahead_ends_where_the_cache_has_the_next_block() {
    let mut drive = shingled(100_000, 1_000);
    let mut now_ns = perform(&mut drive, 0, request(1, Op::Write, 120 * 8, 8));
    now_ns = perform(&mut drive, now_ns, request(2, Op::Flush, 0, 0));
    now_ns = perform(&mut drive, now_ns, request(3, Op::Read, 100 * 8, 80));
    // Twice the time in which the head passes over all that follows.
    now_ns += 10_000_000;
    let ahead_ns = perform(&mut drive, now_ns, request(4, Op::Read, 110 * 8, 80)) - now_ns;
    assert!(
        ahead_ns < 1_000_000,
        "{ahead_ns} ns for what was read ahead"
    );
    now_ns += ahead_ns;
    let cached_ns = perform(&mut drive, now_ns, request(5, Op::Read, 120 * 8, 8)) - now_ns;
    assert!(
        cached_ns > 1_000_000,
        "{cached_ns} ns for a block that is in the log, behind a seek"
    );
}

#[test]
fn what_is_written_again_takes_no_more_of_a_cache_that_is_overwritten() {
    let cleaned = |mut drive: Drive| {
        let mut now_ns = 0;
        // The first one once, the others again and again.
        for i in 0..4_000u64 {
            let place = if i == 0 { 0 } else { 1 + i % 20 };
            let write = Request {
                flags: FLAG_FUA,
                ..request(i + 1, Op::Write, place * 997 * 8, 8)
            };
            now_ns = perform(&mut drive, now_ns, write);
        }
        let bytes = drive.snapshot().cache_bytes;
        (drive.counters().bands_cleaned_forced > 0, bytes / 4096)
    };
    // A log of as many blocks is full of what is no longer valid.
    assert!(cleaned(shingled(3_000, 1_000)).0);
    assert_eq!(cleaned(overwritten(3_000, 1_000)), (false, 21));
}

#[test]
fn an_overwritten_cache_is_full_by_its_blocks_and_by_its_entries() {
    let places_before_a_wait = |cache_blocks, entries, blocks: u64| {
        let mut drive = overwritten(cache_blocks, entries);
        let mut now_ns = 0;
        for i in 0..10_000u64 {
            let before_ns = now_ns;
            let sector = (i * 7_919) % 2_000_000 * 8;
            let write = request(i + 1, Op::Write, sector, 8 * blocks as u32);
            now_ns = perform(&mut drive, now_ns, write);
            if now_ns - before_ns > 100_000_000 {
                return i;
            }
        }
        0
    };
    assert_eq!(places_before_a_wait(20_000, 1_000, 1), 1_000);
    assert_eq!(places_before_a_wait(20_000, 1_000, 50), 400);
}

#[test]
fn a_run_that_grows_needs_places_in_an_overwritten_cache_too() {
    // A host-aware drive streams nothing that is not in order: here a run of five times the buffer, over blocks that are.
    let mut profile = sample::overwritten(BYTES, 1_000, 1_000);
    if let Translation::StaticMapping(mapping) = &mut profile.translation {
        mapping.stream_min_blocks = u64::MAX;
    }
    let mut drive = used(profile);
    let mut now_ns = 0;
    for i in 0..160u64 {
        now_ns = perform(
            &mut drive,
            now_ns,
            request(i + 1, Op::Write, i * 256 * 8, 256 * 8),
        );
    }
    finish_all(&mut drive);
    assert_eq!(drive.snapshot().cache_entries, 0);
    assert!(drive.counters().bands_cleaned_forced > 0);
}

#[test]
fn writes_pass_one_that_waits_for_the_cache_but_not_over_its_blocks() {
    // A full map, a small write that must wait, and one at `lba` that is large enough to stream.
    let order = |writes_pass: bool, lba: u64| {
        let mut profile = sample::shingled(1 << 30, 3_000, 10);
        profile.buffer.writes_pass = writes_pass;
        if let Translation::StaticMapping(mapping) = &mut profile.translation {
            mapping.stream_min_blocks = 256;
        }
        let mut drive = used(profile);
        let mut now_ns = 0;
        for i in 0..10u64 {
            let write = Request {
                flags: FLAG_FUA,
                ..request(i + 1, Op::Write, i * 160_000, 8)
            };
            now_ns = perform(&mut drive, now_ns, write);
        }
        for (tag, byte, sector, sectors) in [(11, 1, 80_000, 8), (12, 2, lba, 2_048)] {
            drive.put(tag, 0, &vec![byte; sectors * 512]).unwrap();
            let write = request(tag, Op::Write, sector, sectors as u32);
            drive.submit(now_ns, write).unwrap();
        }
        let mut tags = Vec::new();
        while tags.len() < 2 {
            drive.advance(now_ns, 2, |done| tags.push(done.tag));
            drive.check_invariants();
            now_ns = drive.next_event().unwrap_or(now_ns);
        }
        finish_all(&mut drive);
        (tags, read(&mut drive, 80_000, 1)[0])
    };
    assert_eq!(order(false, 400_000), (vec![11, 12], 1));
    assert_eq!(order(true, 400_000), (vec![12, 11], 1));
    assert_eq!(order(true, 79_000), (vec![11, 12], 2));
}

#[test]
fn what_comes_while_its_band_is_cleaned_stays_in_the_cache() {
    for mut drive in [shingled(3_000, 1_000), overwritten(3_000, 1_000)] {
        let write = |tag| Request {
            flags: FLAG_FUA,
            ..request(tag, Op::Write, 80_000, 8)
        };
        let mut now_ns = perform(&mut drive, 0, write(1));
        while drive.snapshot().cleaning.is_none() {
            now_ns = drive.next_event().unwrap();
            drive.advance(now_ns, 1, |_| {});
        }
        now_ns = perform(&mut drive, now_ns, write(2));
        while drive.counters().bands_cleaned_idle == 0 {
            assert_eq!(drive.snapshot().cache_entries, 1);
            now_ns = drive.next_event().unwrap().max(now_ns);
            drive.advance(now_ns, 1, |_| {});
        }
        // The image that was written home is the old one.
        assert_eq!(drive.snapshot().cache_entries, 1);
        finish_all(&mut drive);
        assert_eq!(drive.snapshot().cache_entries, 0);
        assert_eq!(drive.counters().bands_cleaned_idle, 2);
    }
}

#[test]
fn a_band_takes_as_long_to_clean_however_much_of_it_was_ever_written() {
    let cleaning_ns = |state: State| {
        let (state, contents) = (Box::new(state), Contents::new());
        let mut drive = Drive::new(Opened { state, contents }, 1);
        perform(&mut drive, 0, request(1, Op::Write, 80_000, 8));
        finish_all(&mut drive);
        drive.counters().cleaning_ns
    };
    let of = |profile: Profile| {
        let new = cleaning_ns(State::new(profile.clone(), 1));
        (new, cleaning_ns(State::used(profile, 1)))
    };
    let (new, used) = of(sample::overwritten(BYTES, 3_000, 1_000));
    assert_eq!(new, used);
    let (new, used) = of(sample::shingled(BYTES, 3_000, 1_000));
    assert!(new < used);
}

#[test]
fn a_half_cleaned_band_makes_no_room_in_the_ring() {
    // The ring is full long before the map is, and much of it is of the band that is being cleaned.
    let mut profile = sample::shingled(1 << 30, 6_000, 100_000);
    if let crate::profile::Translation::StaticMapping(mapping) = &mut profile.translation {
        mapping.entry_blocks_max = 16;
    }
    let state = Box::new(State::used(profile, 1));
    let contents = Contents::new();
    let mut drive = Drive::new(Opened { state, contents }, 1);
    let mut now_ns = 0;
    for tag in 1..1_000 {
        let place = crate::mechanics::arm::splitmix(tag) % 12_800;
        let write = request(tag, Op::Write, place * 8, 8 * 16);
        now_ns = perform(&mut drive, now_ns, write);
    }
    assert!(drive.counters().bands_cleaned_forced > 10);
}

#[test]
fn a_reset_forgets_requests_and_keeps_the_buffer() {
    let mut drive = shingled(100_000, 1_000);
    let write = Request {
        flags: FLAG_FUA,
        ..request(1, Op::Write, 80_000, 8)
    };
    // The arm is on its way to the first read; the other requests wait.
    for tag in 2..6 {
        let read = request(tag, Op::Read, tag * 160_000, 8);
        drive.submit(0, read).unwrap();
    }
    drive.put(1, 0, &[7; 4096]).unwrap();
    drive.submit(0, write).unwrap();
    drive.submit(0, request(6, Op::Flush, 0, 0)).unwrap();
    assert!(drive.reset(1_000));
    // All tags are free again, whatever the arm is still at.
    let depth = u64::from(drive.profile().interface.queue_depth);
    for tag in 0..depth {
        let read = request(tag, Op::Read, tag * 50_000, 8);
        drive.submit(1_000, read).unwrap();
    }
    let (mut ended, mut now_ns) = (Vec::new(), 1_000);
    while ended.len() < depth as usize {
        now_ns = now_ns.max(drive.next_event().expect("each read ends"));
        drive.advance(now_ns, 64, |done| ended.push(done.tag));
        drive.check_invariants();
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..depth).collect::<Vec<_>>(), "each once");
    let mut data = [0; 4096];
    drive.get(80_000, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
    perform(&mut drive, now_ns, request(1, Op::Flush, 0, 0));
    drive.power_cut(now_ns + 1_000_000_000);
    drive.get(80_000, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
}

#[test]
fn a_drive_with_zones_knows_no_reset() {
    let zone = sample::host_managed(BYTES, 4096);
    for profile in [zone, sample::enforcing(BYTES, 4096)] {
        let mut drive = used(profile);
        drive.submit(0, request(1, Op::Read, 0, 8)).unwrap();
        assert!(!drive.reset(1_000));
        assert_eq!(drive.counters().resets, 0);
        let mut ended = 0;
        while let Some(now_ns) = drive.next_event().filter(|_| ended == 0) {
            ended = drive.advance(now_ns, 1, |done| assert_eq!(done.tag, 1));
        }
        assert_eq!(ended, 1, "the request goes on");
    }
}
