// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What can be seen of a drive from outside is what it does.

mod common;

use common::{small_conventional, small_s_blocks, small_shingled, World};
use smr_drive::activity::{Activity, NAMES};
use smr_drive::trace::EventKind;

const S: u64 = 1_000_000_000;

/// Kind, time, begin, reason and value of the events of a trace.
fn events(trace: &[u8]) -> Vec<(u8, u64, u64, u8, u64)> {
    let number = |record: &[u8], at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&record[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let records = trace[8..].chunks_exact(48);
    let events = records.filter(|r| r[31] == 0xff && r[28] != 0);
    events
        .map(|r| (r[28], number(r, 0), number(r, 8), r[30], number(r, 32)))
        .collect()
}

fn counter(report: &str, name: &str) -> u64 {
    let from = report.find(&format!("\"{name}\":")).expect("is there") + name.len() + 3;
    let rest = &report[from..];
    let end = rest.find([',', '}']).expect("goes on");
    rest[..end].parse().expect("is a number")
}

fn report(world: &mut World) -> String {
    let mut text = String::new();
    world.drive.report(world.now_ns, &mut text).unwrap();
    text
}

/// Scattered writes until the cache is full, a long run, reads, and idle time.
fn busy(world: &mut World) {
    for i in 0..120 {
        world.write(i * 37 % 15_000, 1, false);
        if i % 20 == 0 {
            world.read(i * 91 % 15_000, 4);
            world.flush();
        }
    }
    world.wait_all();
    for i in 0..40 {
        world.write(9000 + i * 32, 32, false);
    }
    world.wait_all();
    world.wait_clean();
    world.sleep(20 * S);
}

#[test]
fn times_by_activity_add_up_to_the_time_that_passed() {
    for profile in [small_shingled(), small_conventional(), small_s_blocks()] {
        let mut world = World::new(profile, 5);
        world.sleep(3 * S);
        let mut told = 0;
        for step in 0..6 {
            if step == 2 {
                busy(&mut world);
            }
            // At any moment, in the middle of something, too.
            world.write(step * 100, 4, false);
            world.sleep(step * 7_000_001);
            let text = report(&mut world);
            let sum: u64 = NAMES.iter().map(|name| counter(&text, name)).sum();
            assert_eq!(sum, world.now_ns, "{text}");
            told = counter(&text, "seeking_ns");
        }
        assert!(told > 0);
    }
}

#[test]
fn a_full_cache_is_seen_as_forced_cleaning_and_its_end_as_idle_cleaning() {
    let mut world = World::new(small_shingled(), 5);
    busy(&mut world);
    let text = report(&mut world);
    for name in [
        "reading_ns",
        "caching_ns",
        "streaming_ns",
        "cleaning_idle_ns",
        "cleaning_forced_ns",
    ] {
        assert!(counter(&text, name) > 0, "{name}: {text}");
    }
    let cleaning = counter(&text, "cleaning_idle_ns") + counter(&text, "cleaning_forced_ns");
    assert_eq!(cleaning, counter(&text, "cleaning_ns"));
    assert!(text.contains("\"cleaning\":[]"), "{text}");

    let events = events(&world.trace);
    let count = |kind: EventKind| events.iter().filter(|e| e.0 == kind as u8).count() as u64;
    assert_eq!(
        count(EventKind::CleaningBegan),
        count(EventKind::CleaningEnded)
    );
    let cleaned = events
        .iter()
        .filter(|e| e.0 == EventKind::CleaningEnded as u8 && e.4 == 1);
    assert_eq!(
        cleaned.clone().count() as u64,
        counter(&text, "bands_cleaned")
    );
    let forced = cleaned.filter(|e| e.3 == Activity::CleaningForced as u8);
    assert_eq!(
        forced.count() as u64,
        counter(&text, "bands_cleaned_forced")
    );
    assert!(count(EventKind::ForcedBegan) > 0);
    assert_eq!(count(EventKind::ForcedBegan), count(EventKind::ForcedEnded));
    let slices: u64 = events
        .iter()
        .filter(|e| e.0 == EventKind::ForcedEnded as u8)
        .map(|e| e.1 - e.2)
        .sum();
    assert!(slices >= counter(&text, "cleaning_forced_ns"));
    assert!(count(EventKind::StreamBegan) > 0);
    // The last stream is forgotten after 8 s, when the drive next has something to write.
    world.write(1, 1, false);
    world.wait_clean();
    let all = self::events(&world.trace);
    let ended = all
        .iter()
        .filter(|e| e.0 == EventKind::StreamEnded as u8)
        .count() as u64;
    assert_eq!(ended, count(EventKind::StreamBegan));
}

#[test]
fn a_drive_that_cleans_all_the_time_tells_of_each_cleaning() {
    let mut world = World::new(small_s_blocks(), 5);
    busy(&mut world);
    let (text, events) = (report(&mut world), events(&world.trace));
    let of = |kind: EventKind| events.iter().filter(move |e| e.0 == kind as u8);
    let cleaned = of(EventKind::CleaningEnded).filter(|e| e.4 == 1);
    assert_eq!(cleaned.count() as u64, counter(&text, "bands_cleaned"));
    assert_eq!(
        of(EventKind::CleaningBegan).count(),
        of(EventKind::CleaningEnded).count()
    );
    for why in [Activity::CleaningIdle, Activity::CleaningDue] {
        assert!(of(EventKind::CleaningBegan).any(|e| e.3 == why as u8));
        assert!(counter(&text, NAMES[why as usize]) > 0, "{text}");
    }
    assert!(of(EventKind::StreamBegan).count() > 0);
}

#[test]
fn a_band_that_is_being_cleaned_is_named_with_its_reason() {
    for profile in [small_shingled(), small_s_blocks()] {
        is_named_with_its_reason(World::new(profile, 5));
    }
}

fn is_named_with_its_reason(mut world: World) {
    world.write(3000, 1, false);
    world.wait_all();
    let mut seen = false;
    while !world.drive.is_clean() {
        world.sleep(10_000_000);
        let text = report(&mut world);
        let why = Activity::CleaningIdle as u8;
        seen |= text.contains("\"cleaning\":[") && text.contains(&format!(",{why},1,"));
    }
    assert!(seen);
}
