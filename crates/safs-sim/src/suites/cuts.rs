// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts: a story, a cut after each of its actions in turn, and what is left.

use super::config::Config;
use super::power::Cuts;
use super::random::{mix, Random};
use super::reach::Reach;
use super::story::Story;
use super::verify::survive;

/// What a story's cuts came to.
#[derive(Default)]
pub struct Found {
    pub reach: Reach,
    /// A number for each state that was looked at.
    pub states: Vec<u64>,
}

/// Tells a story and cuts it so often; with `only`, after that action.
pub fn run(
    config: Config,
    seed: u64,
    states: usize,
    only: Option<usize>,
    mut say: impl FnMut(usize),
) -> Found {
    let story = Story::tell(config, seed);
    let mut found = Found {
        reach: story.reach.clone(),
        ..Found::default()
    };
    let mut random = Random::new(mix(seed) ^ 0x5afe);
    let mut cuts = Cuts::new(&story.blank, &story.actions);
    let every = (2 * story.actions.len()).div_ceil(states).max(1);
    // Every action has its turn with some seed.
    let mut cut = random.below(every as u64) as usize;
    while cut <= story.actions.len() {
        say(cut);
        // Each cut has numbers of its own, so that one can be had without the others.
        let mut random = Random::new(mix(seed) ^ mix(cut as u64));
        let is_wanted = only.is_none_or(|only| only == cut);
        let device = cuts.at(cut, &mut random);
        if is_wanted {
            found.states.push(device.digest());
            let nested = survive(config, &story, cut, &device, &mut random, &mut found.reach);
            found.states.extend(nested);
        }
        cut += every;
    }
    found
}
