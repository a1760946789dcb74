// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the drives with dynamic mapping do, next to the Seagates, and what TRIM changes.
//!
//! `cargo test -p drive-tool --test s_blocks -- --nocapture` prints the figures of docs/design/drive-model.md.

mod common;

use common::{at, fully_used_host, host, write_run, Random, GIB_BLOCKS, MIB_BLOCKS, S};
use drive_tool::host::Host;
use smr_drive::profile::Translation;
use smr_drive::request::{Op, Refusal};
use zoned::BlockRange;

const PASSPORT: &str = "wd40nmzw";
const WITH_TRIM: &str = "wd40efax";
const SEAGATE: &str = "st8000as0002";
const S_BLOCK: u64 = 20 * MIB_BLOCKS;

fn flush(host: &mut Host) {
    host.request(Op::Flush, at(0, 0), 0).unwrap();
}

/// Writes per second in each of the next minutes, one 4 KiB write at a time at the places that `place` gives.
fn rates(host: &mut Host, minutes: u64, mut place: impl FnMut(u64) -> u64) -> Vec<f64> {
    let blocks = host.drive.profile().capacity_blocks();
    let mut rates = Vec::new();
    for _ in 0..minutes {
        let start_ns = host.now_ns;
        let mut writes = 0u32;
        while host.now_ns < start_ns + 60_000_000_000 {
            host.request(Op::Write, at(place(blocks), 1), 0).unwrap();
            writes += 1;
        }
        rates.push(f64::from(writes) / ((host.now_ns - start_ns) as f64 / S));
    }
    rates
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// The largest factor between two minutes that follow each other.
fn steepest(rates: &[f64]) -> f64 {
    let falls = rates.windows(2).map(|pair| pair[0] / pair[1]);
    falls.fold(0.0, f64::max)
}

#[test]
fn random_writes_begin_lower_than_on_a_seagate_drop_by_degrees_and_end_higher() {
    let run = |name| {
        let mut random = Random(3);
        rates(&mut fully_used_host(name), 30, |blocks| {
            random.below(blocks)
        })
    };
    let (seagate, passport) = (run(SEAGATE), run(PASSPORT));
    println!("T1c, 4 KiB over the whole disk, writes/s by minute: {SEAGATE} {seagate:.1?}");
    println!("{PASSPORT} {passport:.1?}");
    // The Seagate's knee is in its second minute.
    assert!(passport[0] < seagate[0] / 2.0, "a lower plateau");
    assert!(
        steepest(&passport) < steepest(&seagate) / 10.0,
        "a milder drop: {:.1} {:.1}",
        steepest(&passport),
        steepest(&seagate)
    );
    let tail = mean(&passport[24..]) / mean(&seagate[24..]);
    println!("tail: {tail:.2} times the Seagate's");
    assert!(tail > 1.5, "a higher tail");
}

/// What a baseline Postmark over the full disk leaves to the drive is metadata near the beginning of each flex_bg (2 GiB).
#[test]
fn metadata_spread_over_the_whole_disk_are_written_twice_as_fast_as_on_a_seagate() {
    let run = |name, minutes| {
        let mut random = Random(5);
        rates(&mut fully_used_host(name), minutes, |blocks| {
            random.below(blocks / (2 * GIB_BLOCKS)) * 2 * GIB_BLOCKS + random.below(32 * MIB_BLOCKS)
        })
    };
    let (seagate, passport) = (run(SEAGATE, 10), run(PASSPORT, 30));
    let ratio = mean(&passport[26..]) / mean(&seagate[6..]);
    println!(
        "T14 in the small: {PASSPORT} {:.0}/s, {SEAGATE} {:.0}/s, {ratio:.2} times",
        mean(&passport[26..]),
        mean(&seagate[6..])
    );
    assert!(ratio >= 2.0, "{ratio}");
}

#[test]
fn a_change_of_section_costs_a_seek() {
    let profile = common::profile(PASSPORT);
    let Translation::SBlocks(s_blocks) = &profile.translation else {
        unreachable!("the profile says s_blocks")
    };
    let section = s_blocks.s_block_blocks * u64::from(s_blocks.section_s_blocks);
    let run = |sections: u64| {
        let (mut host, mut random) = (fully_used_host(PASSPORT), Random(9));
        for _ in 0..400 {
            let place = random.below(sections) * section * 3 + random.below(section);
            host.request(Op::Write, at(place, 1), 0).unwrap();
        }
        flush(&mut host);
        host.now_ns as f64 / S
    };
    let (one, many) = (run(1), run(13));
    println!("400 writes to one section {one:.2} s, to 13 sections {many:.2} s");
    assert!(many > one + 10.0 * 0.005, "{one} {many}");
}

#[test]
fn whole_s_blocks_go_to_fresh_slots_at_once() {
    for mut host in [host(PASSPORT), fully_used_host(PASSPORT)] {
        for _ in 0..2 {
            let (before, start_ns) = (host.drive.counters().clone(), host.now_ns);
            write_run(&mut host, 100 * S_BLOCK, 50 * S_BLOCK, 256);
            flush(&mut host);
            let (c, s) = (host.drive.counters(), host.drive.snapshot());
            let rate = 50.0 * 20.0 * 1.048576 / ((host.now_ns - start_ns) as f64 / S);
            println!("1000 MiB of whole s-blocks: {rate:.0} MB/s");
            assert_eq!(c.streamed_bytes - before.streamed_bytes, 1000 << 20);
            assert_eq!((c.cached_bytes, c.cleaning_ns, s.bands_dirty), (0, 0, 0));
            assert!(host.drive.is_clean());
            assert!((100.0..=120.0).contains(&rate), "no read, no second write");
        }
    }
}

#[test]
fn a_run_that_ends_inside_an_s_block_leaves_its_rest_to_be_copied_when_idle() {
    let mut host = fully_used_host(PASSPORT);
    write_run(&mut host, 100 * S_BLOCK, S_BLOCK + S_BLOCK / 2, 256);
    flush(&mut host);
    assert_eq!(host.drive.snapshot().bands_dirty, 1);
    host.wait_clean(60_000_000_000)
        .expect("clean within a minute");
    let c = host.drive.counters();
    assert_eq!((c.tails_closed, c.bands_cleaned_idle), (1, 1));
    assert_eq!(c.cached_bytes, 0);
}

#[test]
fn an_idle_drive_cleans_until_the_buffers_are_empty_with_one_read_and_one_write() {
    let mut host = fully_used_host(PASSPORT);
    for i in 0..50 {
        host.request(Op::Write, at(i * S_BLOCK + 1000, 1), 0)
            .unwrap();
    }
    flush(&mut host);
    assert_eq!(host.drive.snapshot().bands_dirty, 50);
    host.wait_clean(120_000_000_000)
        .expect("clean in two minutes");
    let c = host.drive.counters();
    let seconds = c.cleaning_ns as f64 / S / 50.0;
    let transfer = 20.0 * 1.048576 / 119.0;
    println!(
        "an s-block with one exception: {seconds:.2} s, {transfer:.2} s for each pass over it"
    );
    assert_eq!(c.bands_cleaned_idle, 50);
    assert_eq!(c.rewritten_bytes, 50 * (20 << 20));
    assert!(seconds > 2.0 * transfer && seconds < 2.0 * transfer + 0.1);
}

/// Random writes over 100 s-blocks; then `discard`, if any.
fn dirty_and_discard(discard: Option<BlockRange>) -> Host {
    let (mut host, mut random) = (fully_used_host(WITH_TRIM), Random(4));
    for _ in 0..5000 {
        host.request(Op::Write, at(random.below(100 * S_BLOCK), 1), 0)
            .unwrap();
    }
    flush(&mut host);
    if let Some(range) = discard {
        host.request(Op::Discard, range, 0).unwrap();
    }
    host
}

#[test]
fn discarded_s_blocks_need_no_cleaning_and_hold_no_slot() {
    let cleaning = |discard| {
        let mut host = dirty_and_discard(discard);
        let (s, c) = (host.drive.snapshot(), host.drive.counters().clone());
        host.wait_clean(1_000_000_000_000).expect("it ends");
        let seconds = (host.drive.counters().cleaning_ns - c.cleaning_ns) as f64 / S;
        println!(
            "discard {discard:?}: {} dirty s-blocks, {} entries, {seconds:.1} s to clean",
            s.bands_dirty, s.cache_entries
        );
        (s, seconds)
    };
    let (all, all_s) = cleaning(None);
    let (half, half_s) = cleaning(Some(at(0, 50 * S_BLOCK)));
    let (none, none_s) = cleaning(Some(at(0, 100 * S_BLOCK)));
    assert!(half.bands_dirty < all.bands_dirty && half_s < 0.6 * all_s);
    assert_eq!(all.written_blocks - half.written_blocks, 50 * S_BLOCK);
    assert_eq!((none.bands_dirty, none.cache_entries), (0, 0));
    assert!(none.clean && none_s == 0.0);
}

#[test]
fn an_s_block_whose_end_was_discarded_is_cleaned_faster() {
    let cleaning = |discard| {
        let mut host = fully_used_host(WITH_TRIM);
        if discard {
            host.request(Op::Discard, at(S_BLOCK / 4, S_BLOCK * 3 / 4), 0)
                .unwrap();
        }
        host.request(Op::Write, at(7, 1), 0).unwrap();
        flush(&mut host);
        host.wait_clean(60_000_000_000).expect("it ends");
        host.drive.counters().cleaning_ns
    };
    let (whole_ns, quarter_ns) = (cleaning(false), cleaning(true));
    println!(
        "one s-block: {:.2} s, with a quarter in use {:.2} s",
        whole_ns as f64 / S,
        quarter_ns as f64 / S
    );
    assert!(quarter_ns * 2 < whole_ns);
}

#[test]
fn what_was_discarded_reads_as_zeros() {
    let mut host = host(WITH_TRIM);
    // The host's next tag.
    host.drive.put(2, 0, &[7; 4096 * 4]).unwrap();
    host.request(Op::Write, at(10, 4), 0).unwrap();
    host.request(Op::Discard, at(11, 2), 0).unwrap();
    let mut data = vec![0xee; 4096 * 4];
    host.drive.get(80, &mut data).unwrap();
    let expected = [[7; 4096].as_slice(), &[0; 8192], &[7; 4096]].concat();
    assert!(data == expected);
}

#[test]
fn the_passport_has_no_discard() {
    assert_eq!(
        host(PASSPORT).request(Op::Discard, at(0, 256), 0),
        Err(Refusal::Unsupported)
    );
    assert!(host(WITH_TRIM).drive.has_discard());
}

/// A RAID-Z resilver writes what was allocated: mostly ascending, in pieces of some 32 KiB, with gaps. A RAID-6 rebuild
/// writes everything.
#[test]
fn ascending_writes_with_gaps_are_much_slower_than_without() {
    let rate = |gap: u64| {
        let mut host = fully_used_host(WITH_TRIM);
        let (start_ns, pieces) = (host.now_ns, 300_000);
        let (mut random, mut place) = (Random(8), 0);
        let mut running = 0;
        for _ in 0..pieces {
            while running >= 8 {
                host.step();
                running -= host.completions();
            }
            host.submit(Op::Write, at(place, 8), 0).unwrap();
            running += 1;
            running -= host.completions();
            place += 8 + if random.below(4) == 0 { gap } else { 0 };
        }
        while running > 0 {
            host.step();
            running -= host.completions();
        }
        flush(&mut host);
        let seconds = (host.now_ns - start_ns) as f64 / S;
        println!(
            "32 KiB, a gap of {gap} blocks behind one in four: {:.1} MB/s, {} s-blocks dirty, {} entries",
            f64::from(pieces) * 0.032768 / seconds,
            host.drive.snapshot().bands_dirty,
            host.drive.snapshot().cache_entries,
        );
        f64::from(pieces) * 0.032768 / seconds
    };
    let (without, with) = (rate(0), rate(8));
    assert!(without > 130.0, "a rebuild is fine: {without:.0} MB/s");
    assert!(with * 3.0 < without, "a resilver is not: {with:.0} MB/s");
}
