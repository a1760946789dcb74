// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the shingled drive does with streams, journals and idle time, as the papers observed it.

mod common;

use common::{at, host, path, used_host, write_run, Random, GIB_BLOCKS, MIB_BLOCKS, S};
use drive_tool::host::Host;
use smr_drive::profile::{Profile, Translation};
use smr_drive::request::{Op, Request, FLAG_FUA};

const DRIVE: &str = "st8000as0002";
const BAND_BLOCKS: u64 = 10_240;

/// One commit as jbd2 does it: the blocks, a flush, the commit block with FUA. Returns where the next one goes on.
fn commit(host: &mut Host, from: u64, blocks: u64, request: u64) -> u64 {
    write_run(host, from, blocks, request);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    host.request(Op::Write, at(from + blocks, 1), FLAG_FUA)
        .unwrap();
    from + blocks + 1
}

#[test]
fn eight_mib_stream_and_one_mib_goes_to_the_cache() {
    let mut host = host(DRIVE);
    write_run(&mut host, 0, 8 * MIB_BLOCKS, 64);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    let c = host.drive.counters();
    assert_eq!((c.streamed_bytes, c.cached_bytes), (8 << 20, 0));
    write_run(&mut host, GIB_BLOCKS, MIB_BLOCKS, 64);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    assert_eq!(host.drive.counters().cached_bytes, 1 << 20);
    assert_eq!(host.drive.snapshot().bands_dirty, 1);
}

#[test]
fn a_streamed_run_leaves_no_dirty_band_on_a_fresh_drive_and_one_tail_on_a_used_one() {
    for (mut host, tails) in [(host(DRIVE), 0), (used_host(DRIVE, 10 * GIB_BLOCKS), 1)] {
        write_run(&mut host, 1000, 1024 * MIB_BLOCKS, 256);
        host.request(Op::Flush, at(0, 0), 0).unwrap();
        let c = host.drive.counters();
        assert_eq!((c.streamed_bytes, c.cached_bytes), (1 << 30, 0));
        assert_eq!(host.drive.snapshot().bands_dirty, tails);
    }
}

#[test]
fn a_journal_of_large_commits_is_streamed_through_its_pauses() {
    for (mib, request) in [(200, 256), (20, 1), (3, 64)] {
        // The journal was zeroed by mkfs.
        let mut host = used_host(DRIVE, 10 * GIB_BLOCKS);
        let mut next = 5000;
        next = commit(&mut host, next, 10 * MIB_BLOCKS, request);
        let seeks = host.drive.snapshot().seeks;
        for _ in 0..10 {
            next = commit(&mut host, next, mib * MIB_BLOCKS, request);
            // Slept through, as the machine does: cleaning happens in between.
            host.sleep(5_000_000_000);
        }
        let (c, s) = (host.drive.counters().clone(), host.drive.snapshot());
        println!("{mib} MiB: {c:?}");
        assert_eq!(c.cached_bytes, 0, "the head stays at the journal");
        assert!(s.bands_dirty <= 1);
        assert!(s.seeks - seeks < 10 * 8, "{}", s.seeks - seeks);
        let waited_ns = host.wait_clean(5_000_000_000).expect("clean within 5 s");
        println!("clean after {:.1} s", waited_ns as f64 / S);
    }
}

#[test]
fn commits_that_start_small_join_the_stream_when_the_run_is_long_enough() {
    let mut host = used_host(DRIVE, 10 * GIB_BLOCKS);
    let mut next = 5000;
    for _ in 0..10 {
        next = commit(&mut host, next, 3 * MIB_BLOCKS, 64);
        host.sleep(500_000_000);
    }
    let c = host.drive.counters();
    assert!(c.cached_bytes < 8 << 20, "{}", c.cached_bytes);
    // What was in the cache has been written in place from the DRAM and dropped.
    assert_eq!(host.drive.snapshot().cache_entries, 0);
    assert_eq!(host.drive.snapshot().bands_dirty, 1);
}

#[test]
fn one_small_write_disrupts_a_stream_but_it_goes_on() {
    let mut host = host(DRIVE);
    write_run(&mut host, 0, 256 * MIB_BLOCKS, 256);
    host.request(Op::Write, at(1000 * GIB_BLOCKS, 1), FLAG_FUA)
        .unwrap();
    let start_ns = host.now_ns;
    write_run(&mut host, 256 * MIB_BLOCKS, 256 * MIB_BLOCKS, 256);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    let seconds = (host.now_ns - start_ns) as f64 / S;
    let c = host.drive.counters();
    assert_eq!((c.streamed_bytes, c.cached_bytes), (512 << 20, 4096));
    assert!(
        seconds < 256.0 * 1.048 / 190.0 + 0.1,
        "{seconds:.2} s: the excursion is short"
    );
}

#[test]
fn a_band_is_cleaned_in_about_a_second_when_the_drive_is_idle() {
    let mut host = used_host(DRIVE, 100 * GIB_BLOCKS);
    let mut random = Random(3);
    for band in 0..50 {
        for _ in 0..60 {
            host.request(
                Op::Write,
                at(band * BAND_BLOCKS + random.below(BAND_BLOCKS - 10), 1),
                0,
            )
            .unwrap();
        }
    }
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    let waited_ns = host.wait_clean(1_000_000_000_000).unwrap();
    let c = host.drive.counters();
    let per_band = c.cleaning_ns as f64 / S / c.bands_cleaned_idle as f64;
    println!(
        "{} bands, {per_band:.2} s each, clean after {:.1} s",
        c.bands_cleaned_idle,
        waited_ns as f64 / S
    );
    assert!((49..=52).contains(&c.bands_cleaned_idle));
    // Each to the scratch band, and to its place.
    let once = c.rewritten_bytes / 2 / c.bands_cleaned_idle;
    assert!((38 << 20..=40 << 20).contains(&once), "{once}");
    assert!((0.6..1.6).contains(&per_band));
}

/// A profile of which the idle delay is another, as in a file with this `idle`.
fn with_idle(name: &str, idle: &str) -> Profile {
    let text = std::fs::read_to_string(path(name)).unwrap();
    let line = |line: &str| match line.starts_with("idle = ") {
        true => {
            format!("idle = {{ value = {idle}, unit = \"s\", source = \"x\", confidence = \"G\" }}")
        }
        false => line.to_string(),
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    drive_tool::profile::parse("x.toml", &lines.join("\n")).unwrap()
}

#[test]
fn a_drive_may_clean_after_hours_or_only_when_its_cache_is_full() {
    for name in [DRIVE, "wd40nmzw", "st5000as0011"] {
        let dirty = |idle: &str| {
            let mut host = Host::used(with_idle(name, idle), 7);
            for band in 0..5 {
                host.request(Op::Write, at(band * BAND_BLOCKS + 5, 1), 0)
                    .unwrap();
            }
            host.request(Op::Flush, at(0, 0), 0).unwrap();
            assert_eq!(host.drive.snapshot().bands_dirty, 5, "{name}");
            host
        };
        let mut hours = dirty("10000");
        let waited_ns = hours.wait_clean(11_000_000_000_000).unwrap();
        assert!(waited_ns > 9_999_000_000_000, "{name}: {waited_ns}");
        assert_eq!(hours.drive.snapshot().bands_dirty, 0, "{name}");
        let mut never = dirty("inf");
        assert_eq!(never.wait_clean(1_000_000_000), Some(0), "{name}");
        never.sleep(100_000_000_000_000);
        assert_eq!(never.drive.snapshot().bands_dirty, 5, "{name}");
    }
    // A full cache makes room all the same.
    let mut never = with_idle(DRIVE, "inf");
    let Translation::StaticMapping(mapping) = &mut never.translation else {
        panic!("{DRIVE} has bands");
    };
    mapping.cache_entries_max = 100;
    let (mut host, mut random) = (Host::used(never, 7), Random(3));
    for _ in 0..300 {
        host.request(Op::Write, at(random.below(GIB_BLOCKS), 1), 0)
            .unwrap();
    }
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    assert!(host.drive.counters().bands_cleaned_forced > 0);
    assert_eq!(host.drive.counters().bands_cleaned_idle, 0);
}

#[test]
fn a_host_that_comes_back_waits_for_a_slice_and_no_longer() {
    let mut host = used_host(DRIVE, 100 * GIB_BLOCKS);
    for band in 0..20 {
        host.request(Op::Write, at(band * BAND_BLOCKS + 5, 1), 0)
            .unwrap();
    }
    host.sleep(3_000_000_000);
    let ns = host.request(Op::Read, at(50 * GIB_BLOCKS, 1), 0).unwrap();
    assert!((1_000_000..170_000_000).contains(&ns), "{ns}");
    assert!(!host.drive.is_clean());
}

#[test]
fn writing_a_range_sequentially_empties_the_cache_of_it() {
    let mut host = host(DRIVE);
    let mut random = Random(3);
    for _ in 0..20_000 {
        host.request(Op::Write, at(random.below(GIB_BLOCKS), 1), 0)
            .unwrap();
    }
    assert!(host.drive.snapshot().cache_entries > 15_000);
    write_run(&mut host, 0, GIB_BLOCKS, 256);
    host.request(Op::Flush, at(0, 0), 0).unwrap();
    assert_eq!(host.drive.snapshot().cache_entries, 0);
    assert!(host.drive.is_clean());
}

#[test]
fn a_flush_ends_though_the_stream_behind_it_does_not() {
    let mut host = host("wd5000ys");
    let mut next = 0;
    for _ in 0..16 {
        host.submit(Op::Write, at(next, 256), 0).unwrap();
        next += 256;
    }
    host.submit(Op::Flush, at(0, 0), 0).unwrap();
    let start_ns = host.now_ns;
    // One new request for each completion; the flush is among them when the flushes counted as done.
    let mut completed = 0;
    while host.now_ns < start_ns + 2_000_000_000 {
        host.step();
        for _ in 0..host.completions() {
            completed += 1;
            host.submit(Op::Write, at(next, 256), 0).unwrap();
            next += 256;
        }
        if host.last_flush_ns().is_some() {
            break;
        }
    }
    let flushed_ns = host.last_flush_ns().expect("the flush ends") - start_ns;
    assert!(
        flushed_ns < 800_000_000,
        "16 MiB and the buffer take a quarter of a second: {flushed_ns} ns, {completed}"
    );
}

/// How long a request waits that is made while one stream keeps the drive as busy as it can be.
fn waits_beside_a_stream_ns(profile: Profile, op: Op, flags: u32) -> u64 {
    const AT_ONCE: usize = 24;
    let limit = 20 * GIB_BLOCKS;
    // A zone's begin on drives with zones, and nowhere near the stream.
    let far = (profile.capacity_blocks() / 2) & !(MIB_BLOCKS * 256 - 1);
    let mut drive = Host::new(profile, 7).drive;
    let request = |tag, op, range: zoned::BlockRange, flags| Request {
        tag,
        op,
        flags,
        lba: range.start.first_sector(),
        sectors: (range.blocks() * 8) as u32,
    };
    let (mut now_ns, mut next, mut running) = (0, 0, 0);
    let (mut asked_ns, mut done) = (None, false);
    while !done && next < limit {
        while running < AT_ONCE {
            let write = request(1 + next, Op::Write, at(next, 256), 0);
            drive.submit(now_ns, write).unwrap();
            next += 256;
            running += 1;
        }
        if asked_ns.is_none() && next > 4 * GIB_BLOCKS {
            let range = if op == Op::Flush {
                at(0, 0)
            } else {
                at(far, 1)
            };
            drive.submit(now_ns, request(0, op, range, flags)).unwrap();
            asked_ns = Some(now_ns);
        }
        drive.advance(now_ns, usize::MAX, |completion| {
            done |= completion.tag == 0;
            running -= usize::from(completion.tag != 0);
        });
        now_ns = drive.next_event().unwrap().max(now_ns);
    }
    assert!(done, "it waits as long as the stream goes on");
    now_ns - asked_ns.unwrap()
}

/// `dd` of a large file once starved the commit block of the journal for 30 s, six times, and ext4 gave up.
#[test]
fn no_flush_and_no_forced_write_waits_for_the_end_of_a_stream() {
    let drives = path(DRIVE).parent().unwrap().to_owned();
    let mut tried = 0;
    for file in std::fs::read_dir(drives).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        for (op, flags) in [(Op::Flush, 0), (Op::Write, FLAG_FUA), (Op::Read, 0)] {
            let profile = drive_tool::profile::load(&file).unwrap();
            println!("{}, {op:?}", file.display());
            let ns = waits_beside_a_stream_ns(profile, op, flags);
            println!("  {:.3} s", ns as f64 / S);
            assert!(ns < 2_000_000_000, "{} ns", ns);
            tried += 1;
        }
    }
    assert!(tried > 30);
}
