// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model: random operations, done by the file system and by a trivial one in memory: same answers, same contents, and
//! the invariants hold after every step.

use super::choose::choose;
use super::config::{Config, Load};
use super::random::{mix, Random};
use super::reach::Reach;
use super::steps::{Pair, Step, SECOND_NS};
use super::story::rings;

/// Zones that one step may empty.
const COMPACTED_MAX: u64 = 16;

pub fn run(config: Config, seed: u64) -> Reach {
    let mut random = Random::new(mix(seed) ^ config.number());
    let mut pair = Pair::new(config.made(), config.options(seed), seed);
    let mut last_tick_ns = 0;
    let mut was_refused = false;
    if config.load == Load::Rings {
        rings(&mut pair, &mut random, config);
    }
    let is_large = matches!(config.load, Load::Large | Load::Giga);
    for number in 0..config.steps() {
        pair.steady_ns += 1_000_000 + random.below(800_000_000) as i64;
        let is_due = pair.steady_ns - last_tick_ns >= SECOND_NS;
        let step = match is_due {
            true => Step::Tick,
            false => choose(&mut random, &pair, config.load, was_refused),
        };
        if is_due {
            last_tick_ns = pair.steady_ns;
        }
        let before = pair.fs().counters().compacted;
        let is_done = pair.step(&step);
        let compacted = pair.fs().counters().compacted.saturating_sub(before);
        let is_asked = matches!(step, Step::Compact);
        assert!(
            is_asked || compacted <= COMPACTED_MAX,
            "{step:?}: {compacted} zones"
        );
        was_refused = !is_done && matches!(step, Step::Write(..) | Step::WriteSync(..));
        match step {
            Step::WriteSync(..) if is_done => pair.reach.sync_writes += 1,
            Step::Exchange(..) if is_done => pair.reach.exchanges += 1,
            _ => {}
        }
        pair.reach.bytes_max = pair.reach.bytes_max.max(pair.model.bytes());
        pair.assert_sound(false);
        if number % 40 == 39 && !is_large {
            pair.compare();
        }
    }
    pair.step(&Step::Remount);
    pair.assert_sound(true);
    pair.compare();
    pair.end();
    pair.reach.stories += 1;
    pair.reach.clone()
}
