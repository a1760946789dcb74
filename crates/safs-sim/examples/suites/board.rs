// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be done, what was done, and what it reached.

use crate::suites::config::{self, Load};
use crate::suites::fuzz;
use crate::{Arguments, Suite};
use serde_json::{json, Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::time::Instant;

/// Seeds of forged images that a process does.
const IMAGES: u64 = 4000;
/// Stories that a process tells.
const STORIES: u64 = 4;

/// With so many each configuration has to have been everywhere, with fewer each load.
const WHOLE: u64 = 20_000;
/// What only the record of a device tells, or only stories with cuts have.
const OF_RECORDS: [&str; 5] = [
    "log_wraps",
    "extents_max",
    "segment_blocks_max",
    "unnamed",
    "failed_commands",
];

/// Some seeds of a configuration.
#[derive(Clone, Debug)]
pub struct Piece {
    pub config: String,
    pub seeds: Range<u64>,
}

/// A configuration's part of a run.
struct Part {
    load: Option<Load>,
    share: u64,
    next_seed: u64,
    /// What was given to a process, about in the unit of the count.
    begun: u64,
    states: BTreeSet<u64>,
    seeds: u64,
    reach: Map<String, Value>,
    failures: Vec<Value>,
}

pub struct Board {
    suite: Suite,
    count: u64,
    parts: BTreeMap<String, Part>,
    /// Pieces of which a failure left a rest.
    rest: Vec<Piece>,
    failures: usize,
    failures_max: usize,
    is_steady: bool,
    commit: Option<String>,
    started: Instant,
}

impl Board {
    // How long it takes is said and recorded; nothing of a case depends on it.
    #[allow(clippy::disallowed_methods)]
    pub fn new(arguments: &Arguments) -> Result<Self, String> {
        let part = |load, share| Part {
            load,
            share,
            next_seed: arguments.seed,
            begun: 0,
            states: BTreeSet::new(),
            seeds: 0,
            reach: Map::new(),
            failures: Vec::new(),
        };
        let mut parts = BTreeMap::new();
        if arguments.suite == Suite::Fuzz {
            let suits = |name: &&str| name.starts_with(arguments.config.as_str());
            let names = config::ONS.iter().map(|(_, name)| *name).filter(suits);
            parts.extend(names.map(|name| (name.to_string(), part(None, 1))));
            // No two devices have an image of the same seed.
            let share = arguments.count.div_ceil(parts.len().max(1) as u64);
            for (number, part) in (0..).zip(parts.values_mut()) {
                part.next_seed += number * share;
            }
        } else {
            let configs = config::named(&arguments.config).into_iter();
            parts.extend(
                configs.map(|config| (config.to_string(), part(Some(config.load), config.share()))),
            );
        }
        if parts.is_empty() {
            return Err(format!(
                "{}: no configuration has this name",
                arguments.config
            ));
        }
        Ok(Board {
            suite: arguments.suite,
            count: arguments.count,
            parts,
            rest: Vec::new(),
            failures: 0,
            failures_max: arguments.failures,
            is_steady: arguments.steady,
            commit: crate::source::commit(),
            started: Instant::now(),
        })
    }

    /// What of the count is done.
    pub fn done(&self) -> u64 {
        self.parts.values().map(|part| self.done_of(part)).sum()
    }

    fn done_of(&self, part: &Part) -> u64 {
        match self.suite {
            Suite::Cuts => part.states.len() as u64,
            _ => part.seeds,
        }
    }

    /// The next piece: of the configuration that is farthest behind its share.
    pub fn next(&mut self) -> Option<Piece> {
        if self.failures >= self.failures_max {
            return None;
        }
        if let Some(piece) = self.rest.pop() {
            return Some(piece);
        }
        let shares: u64 = self.parts.values().map(|part| part.share).sum();
        let (suite, count) = (self.suite, self.count);
        let wanted = |part: &Part| (count * part.share).div_ceil(shares);
        let missing = |part: &Part| {
            let done = match suite {
                Suite::Cuts => part.begun.max(part.states.len() as u64),
                _ => part.begun,
            };
            wanted(part).saturating_sub(done)
        };
        let behind = |part: &Part| missing(part) * 1_000_000 / wanted(part).max(1);
        let (name, part) = self.parts.iter_mut().max_by_key(|(_, part)| behind(part))?;
        let left = missing(part);
        if left == 0 {
            return self.again();
        }
        let seeds = match suite {
            Suite::Cuts => match part.load {
                Some(Load::Large | Load::Giga) => 1,
                _ => left.div_ceil(150).min(STORIES),
            },
            Suite::Model | Suite::Room => left.min(STORIES),
            Suite::Fuzz => left.min(IMAGES),
        };
        // A story gives about so many states; what it does not give, later ones do.
        part.begun += match suite {
            Suite::Cuts => seeds * 100,
            _ => seeds,
        };
        let first = part.next_seed;
        part.next_seed += seeds;
        Some(Piece {
            config: name.clone(),
            seeds: first..first + seeds,
        })
    }

    /// Where stories gave fewer states than was thought, there are more of them.
    fn again(&mut self) -> Option<Piece> {
        if self.suite != Suite::Cuts || self.done() >= self.count {
            return None;
        }
        let behind = |part: &Part| part.begun.saturating_sub(part.states.len() as u64);
        for part in self.parts.values_mut() {
            if behind(part) > 0 {
                part.begun = part.states.len() as u64;
            }
        }
        let shares: u64 = self.parts.values().map(|part| part.share).sum();
        let count = self.count;
        let is_behind =
            |part: &Part| (part.states.len() as u64) < (count * part.share).div_ceil(shares);
        let (name, part) = self.parts.iter_mut().find(|(_, part)| is_behind(part))?;
        let first = part.next_seed;
        part.next_seed += 1;
        part.begun += 100;
        Some(Piece {
            config: name.clone(),
            seeds: first..first + 1,
        })
    }

    /// A line of a process.
    pub fn add(&mut self, piece: &Piece, line: &Value) {
        let Some(part) = self.parts.get_mut(&piece.config) else {
            return;
        };
        part.seeds += line["seeds"].as_u64().unwrap_or(0);
        let states = line["states"].as_array().into_iter().flatten();
        part.states.extend(states.filter_map(Value::as_u64));
        if let Some(reach) = line["reach"].as_object() {
            add_to(&mut part.reach, reach);
        }
    }

    /// A process panicked; what it did not come to is done by others.
    pub fn fail(&mut self, piece: &Piece, line: &Value) -> String {
        let seed = line["failed"].as_u64().unwrap_or(0);
        self.failures += 1;
        if self.suite == Suite::Fuzz && seed > piece.seeds.start {
            self.rest.push(Piece {
                seeds: piece.seeds.start..seed,
                ..piece.clone()
            });
        }
        if seed + 1 < piece.seeds.end {
            self.rest.push(Piece {
                seeds: seed + 1..piece.seeds.end,
                ..piece.clone()
            });
        }
        let case = match line["cut"].as_u64() {
            Some(cut) => format!("{}:{seed}:{cut}", piece.config),
            None => format!("{}:{seed}", piece.config),
        };
        let said = line["message"].as_str().unwrap_or("");
        let place = line["place"].as_str().unwrap_or("");
        let replay = format!(
            "{} --replay {case}{}",
            command(self.suite),
            if self.is_steady { " --steady" } else { "" }
        );
        if let Some(part) = self.parts.get_mut(&piece.config) {
            part.failures
                .push(json!({"case": case, "message": said, "place": place}));
        }
        format!("{case}: {said} ({place})\n    {replay}")
    }

    /// A process ended without a word.
    pub fn end_silently(&mut self, piece: &Piece, status: &str) -> String {
        let is_one = piece.seeds.end - piece.seeds.start == 1;
        if !is_one {
            // One of them did it: each by itself.
            let one = |seed| Piece {
                seeds: seed..seed + 1,
                ..piece.clone()
            };
            self.rest.extend(piece.seeds.clone().map(one));
            return format!("{}: {status}; its seeds are done one by one", piece.config);
        }
        let line = json!({"failed": piece.seeds.start, "message": status});
        self.fail(piece, &line)
    }

    /// Prints the table, writes the record, and says whether all is well.
    pub fn finish(self, arguments: &Arguments, is_interrupted: bool) -> Result<bool, String> {
        let mut all = Map::new();
        let mut lines = Vec::new();
        let mut missed_all = self.missing_of_loads();
        for (name, part) in &self.parts {
            if part.seeds == 0 && part.failures.is_empty() {
                continue;
            }
            add_to(&mut all, &part.reach);
            if self.count >= WHOLE {
                let missed = self.missing(part.load, &part.reach).into_iter();
                missed_all.extend(missed.map(|what| format!("{name}: {what}")));
            }
            lines.push(self.line(
                arguments,
                name,
                [part].into_iter(),
                &part.reach,
                is_interrupted,
            ));
        }
        lines.push(self.line(arguments, "all", self.parts.values(), &all, is_interrupted));
        self.table(&lines);
        if let Some(path) = &arguments.record {
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path);
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|why| format!("{}: {why}", path.display()))?;
        }
        // A part of a run need not have been everywhere.
        let is_whole = !is_interrupted && self.failures < self.failures_max;
        if is_whole {
            missed_all
                .iter()
                .for_each(|what| println!("never reached: {what}"));
        }
        Ok(self.failures == 0 && is_whole && missed_all.is_empty())
    }

    /// What loads are about and never came to, on whatever device.
    fn missing_of_loads(&self) -> Vec<String> {
        let mut loads: BTreeMap<String, (Option<Load>, Map<String, Value>)> = BTreeMap::new();
        for (name, part) in &self.parts {
            let load = name.rsplit('/').next().filter(|_| part.load.is_some());
            let (_, reach) = loads
                .entry(load.unwrap_or("").into())
                .or_insert((part.load, Map::new()));
            add_to(reach, &part.reach);
        }
        let missed = loads.iter().flat_map(|(name, (load, reach))| {
            let missed = self.missing(*load, reach).into_iter();
            missed.map(move |what| format!("{name} {what}"))
        });
        missed.collect()
    }

    /// What a load is about and never came to.
    fn missing(&self, load: Option<Load>, reach: &Map<String, Value>) -> Vec<String> {
        let reached = |name: &str| reach.get(name).and_then(Value::as_u64).unwrap_or(0);
        let Some(load) = load else {
            let counts = reach.keys().map(|name| (name.clone(), reached(name)));
            return fuzz::missing(&counts.collect());
        };
        let mut wanted = crate::suites::reach::wanted(load);
        match self.suite {
            Suite::Cuts => wanted.extend([("states", 1), ("nested", 1), ("promises", 1)]),
            _ => wanted.retain(|(name, _)| !OF_RECORDS.contains(name)),
        }
        wanted.retain(|(name, _)| !(self.is_steady && *name == "clock_sets"));
        let missed = wanted
            .into_iter()
            .filter(|(name, least)| reached(name) < *least);
        missed
            .map(|(name, least)| format!("{name}: {}, expected {least}", reached(name)))
            .collect()
    }

    fn table(&self, lines: &[Value]) {
        let columns: &[&str] = match self.suite {
            Suite::Fuzz => &[
                "refused",
                "mounted",
                "read_only",
                "problems",
                "repaired",
                "written",
                "compacted",
            ],
            _ => &[
                "states",
                "root_records",
                "resets",
                "compactions",
                "node_splits",
                "log_wraps",
                "ring_turns",
                "refusals",
                "failed_commands",
                "extents_max",
                "segment_blocks_max",
            ],
        };
        println!(
            "{:22} {:>8} {:>8} {:>4} {}",
            "",
            "seeds",
            "distinct",
            "lost",
            columns.join(" ")
        );
        for line in lines {
            let reach = columns.iter().map(|name| {
                let value = line["reach"][*name].as_u64().unwrap_or(0);
                format!("{value:>width$}", width = name.len())
            });
            println!(
                "{:22} {:>8} {:>8} {:>4} {}",
                line["config"].as_str().unwrap_or(""),
                line["seeds"],
                line["distinct"].as_u64().unwrap_or(0),
                line["failures"],
                reach.collect::<Vec<_>>().join(" ")
            );
        }
    }

    fn line<'a>(
        &self,
        arguments: &Arguments,
        name: &str,
        parts: impl Iterator<Item = &'a Part>,
        reach: &Map<String, Value>,
        is_interrupted: bool,
    ) -> Value {
        let (mut seeds, mut distinct, mut failures) = (0, 0, Vec::new());
        for part in parts {
            seeds += part.seeds;
            distinct += part.states.len();
            failures.extend(part.failures.iter().cloned());
        }
        let mut line = json!({
            "schema": 1,
            "commit": self.commit,
            "suite": format!("{:?}", self.suite).to_lowercase(),
            "config": name,
            "seed": arguments.seed,
            "seeds": seeds,
            "failures": failures.len(),
            "failed": failures,
            "reach": reach,
            "build": build(),
            "host": {"seconds": (self.started.elapsed().as_secs_f64() * 10.0).round() / 10.0, "jobs": arguments.jobs},
        });
        if self.suite == Suite::Cuts {
            line["distinct"] = json!(distinct);
        }
        if arguments.steady {
            line["clock"] = json!("steady");
        }
        if is_interrupted {
            line["interrupted"] = json!(true);
        }
        line
    }
}

/// How this program was built: as the shipped one, or with checks.
fn build() -> Value {
    let is_set = |text: Option<&str>| text.is_some_and(|text| text == "true");
    json!({
        "panic": if cfg!(panic = "abort") { "abort" } else { "unwind" },
        "overflow_checks": is_set(option_env!("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS")) || cfg!(debug_assertions),
        "debug_assertions": cfg!(debug_assertions),
    })
}

fn command(suite: Suite) -> String {
    let suite = format!("{suite:?}").to_lowercase();
    format!("cargo run --release -p safs-sim --example suites -- {suite}")
}

/// Sums; of what is called a maximum the larger.
fn add_to(sums: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        let value = value.as_u64().unwrap_or(0);
        let before = sums.get(name).and_then(Value::as_u64).unwrap_or(0);
        let after = if name.ends_with("_max") {
            before.max(value)
        } else {
            before + value
        };
        sums.insert(name.clone(), json!(after));
    }
}
