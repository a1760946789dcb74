// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that works: prints a line of JSON for each piece of work, and one for a panic.

use crate::suites::config::{self, Config, On};
use crate::suites::forge::Original;
use crate::suites::{self, cuts, fuzz, history};
use crate::{Arguments, Suite, MEMORY};
use serde_json::{json, Value};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is being done: the seed, and the cut.
static SEED: AtomicU64 = AtomicU64::new(0);
static CUT: AtomicU64 = AtomicU64::new(u64::MAX);
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Longer than this nothing takes, on any host: then it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// Memory that a forged image of 6 MB may take.
const IMAGE_BYTES: usize = 1 << 30;

fn at(seed: u64, cut: u64) {
    SEED.store(seed, Relaxed);
    CUT.store(cut, Relaxed);
    STEPS.fetch_add(1, Relaxed);
}

fn failed(message: &str, place: &str) {
    let cut = CUT.load(Relaxed);
    let failed = json!({
        "failed": SEED.load(Relaxed),
        "cut": (cut != u64::MAX).then_some(cut),
        "message": message,
        "place": place,
    });
    println!("{failed}");
}

/// Says where it was before the process ends.
fn watch() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_string());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let place = info.location().map(ToString::to_string);
        failed(&text.unwrap_or_default(), &place.unwrap_or_default());
    }));
    std::thread::spawn(|| loop {
        let before = STEPS.load(Relaxed);
        std::thread::sleep(HANGS_AFTER);
        if STEPS.load(Relaxed) == before {
            failed("it hangs", "");
            std::process::abort();
        }
    });
}

/// If this process is to work, or to do one case again.
pub fn act(arguments: &Arguments) -> Option<Result<bool, String>> {
    suites::choose::STEADY.store(arguments.steady, Relaxed);
    if let Some(replay) = &arguments.replay {
        return Some(again(arguments.suite, replay));
    }
    let range = arguments.work.as_ref()?;
    watch();
    let config = &arguments.config;
    let seeds = range[0]..range[1];
    Some(
        match arguments.suite {
            Suite::Cuts => {
                named(config).map(|config| seeds.for_each(|seed| cut(config, seed, None)))
            }
            Suite::Model | Suite::Room => {
                named(config).map(|config| seeds.for_each(|seed| tell(config, seed)))
            }
            Suite::Fuzz => device(config).map(|on| forge(on, seeds)),
        }
        .map(|()| true),
    )
}

/// The configuration of this name.
fn named(name: &str) -> Result<Config, String> {
    let mut all = config::all().into_iter();
    let found = all.find(|config| config.to_string() == name);
    found.ok_or_else(|| format!("{name}: no such configuration; one is image/default/full"))
}

/// The device of this name.
pub fn device(name: &str) -> Result<On, String> {
    let found = config::ONS.iter().find(|(_, other)| *other == name);
    let found = found.map(|(on, _)| *on);
    found
        .ok_or_else(|| format!("{name}: no such device; expected managed, in-order, image or disk"))
}

fn cut(config: Config, seed: u64, only: Option<usize>) {
    at(seed, u64::MAX);
    let found = cuts::run(config, seed, config.states(), only, |cut| {
        at(seed, cut as u64)
    });
    print(seed, 1, json!(found.reach), &found.states);
}

fn tell(config: Config, seed: u64) {
    at(seed, u64::MAX);
    let reach = history::run(config, seed);
    print(seed, 1, json!(reach), &[]);
}

fn forge(on: On, seeds: std::ops::Range<u64>) {
    let _ = MEMORY.set_limit(IMAGE_BYTES);
    let originals: Vec<Original> = fuzz::originals(on);
    let mut counts = fuzz::Counts::new();
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    for seed in seeds {
        at(seed, u64::MAX);
        fuzz::run(seed, &originals, &mut counts);
    }
    print(first, count, json!(counts), &[]);
}

fn print(seed: u64, seeds: u64, reach: Value, states: &[u64]) {
    println!(
        "{}",
        json!({"seed": seed, "seeds": seeds, "reach": reach, "states": states})
    );
}

/// One case, with all that is known of it.
fn again(suite: Suite, case: &str) -> Result<bool, String> {
    let wrong = || format!("{case}: expected CONFIGURATION:SEED, or CONFIGURATION:SEED:CUT");
    let mut words = case.split(':');
    let name = words.next().ok_or_else(wrong)?;
    let seed: u64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(wrong)?;
    let only = match words.next() {
        Some(word) => Some(word.parse().map_err(|_| wrong())?),
        None => None,
    };
    match suite {
        Suite::Cuts => {
            suites::story::VERBOSE.store(true, Relaxed);
            cut(named(name)?, seed, only);
        }
        Suite::Model | Suite::Room => tell(named(name)?, seed),
        Suite::Fuzz => forge(device(name)?, seed..seed + 1),
    }
    Ok(true)
}
