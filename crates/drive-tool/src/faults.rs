// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fault plans as people write them: TOML; docs/reference/faults.md describes every key. A wrong plan is refused with its line, the
//! key, and what was expected.

use crate::nearest::nearest;
use crate::profile::ProfileError;
use clap::Subcommand;
use smr_drive::faults::{
    Effect, FaultPlan, Rule, Torn, Trigger, Unreadable, ZoneFault, ALWAYS_Q32, EVERYWHERE, FLUSHES,
    READS, WRITES,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml_edit::{ImDocument, Item, Table};
use zoned::{BlockRange, Lba, ZoneId, ZoneState};

const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;
/// Longest time that a plan may name: a day.
const SECONDS_MAX: f64 = 86400.0;
/// Numbers in TOML have a sign, and doubles 53 bits.
const COUNT_MAX: f64 = 9007199254740992.0;

/// `shingle-drive faults …`
#[derive(Subcommand)]
pub enum FaultsCommand {
    /// Reads a fault plan and says what is wrong with it
    Check {
        /// The plan
        plan: PathBuf,
        /// Where to write it as the machine reads it
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
}

/// Does what was asked; the error is a sentence.
pub fn run(command: FaultsCommand) -> Result<(), String> {
    let FaultsCommand::Check { plan, output } = command;
    let read = load(&plan).map_err(|why| why.to_string())?;
    match output {
        Some(path) => std::fs::write(&path, read.to_bytes())
            .map_err(|why| format!("{}: {why}", path.display())),
        None => {
            println!("{}: {}", plan.display(), describe(&read));
            Ok(())
        }
    }
}

fn describe(plan: &FaultPlan) -> String {
    let cut = match (plan.torn, plan.reorder) {
        (Torn::Nothing, false) => "",
        (Torn::Nothing, true) => ", power cuts keep a part of the buffer",
        (_, false) => ", power cuts tear transfers",
        (_, true) => ", power cuts tear transfers and keep a part of the buffer",
    };
    let lies = match (plan.flush_lies, plan.fua_lies) {
        (false, false) => "",
        (true, false) => ", FLUSH lies",
        (false, true) => ", FUA lies",
        (true, true) => ", FLUSH and FUA lie",
    };
    let (unreadable, rules, zones) = (plan.unreadable.len(), plan.rules.len(), plan.zones.len());
    format!("{unreadable} unreadable ranges, {rules} rules, {zones} zones{cut}{lies}")
}

/// Reads and checks a plan.
pub fn load(path: &Path) -> Result<FaultPlan, ProfileError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|why| ProfileError {
        file: file.clone(),
        line: 0,
        message: why.to_string(),
    })?;
    parse(&file, &text)
}

const RANGE: &[&str] = &["first_sector", "sectors"];
const TRIGGER: &[&str] = &["first_sector", "sectors", "after", "probability", "times"];
/// Sections and the keys that each has.
const SECTIONS: [(&str, &[&str], &[&str]); 9] = [
    ("unreadable", RANGE, &["retry_ms"]),
    ("transient_read", TRIGGER, &["retry_ms"]),
    ("failed_write", TRIGGER, &[]),
    ("lost_write", TRIGGER, &[]),
    ("slow", TRIGGER, &["requests", "latency_ms"]),
    ("timeout", TRIGGER, &["requests", "timeout_s"]),
    ("power_cut", &[], &["torn", "reorder"]),
    ("lies", &[], &["flush", "fua"]),
    ("zone", &[], &["zone", "condition", "at_s"]),
];
/// Sections of which there may be several.
const LISTS: usize = 6;

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

/// A table of the plan and its name.
struct Section<'a> {
    reader: &'a Reader<'a>,
    name: &'static str,
    table: &'a Table,
}

impl Reader<'_> {
    fn error(&self, span: Option<Range<usize>>, message: String) -> ProfileError {
        let line = span.map_or(0, |span| {
            let before = &self.text[..span.start.min(self.text.len())];
            before.matches('\n').count() + 1
        });
        ProfileError {
            file: self.file.to_string(),
            line,
            message,
        }
    }
}

impl Section<'_> {
    fn wrong(&self, key: &str, what: &str, expected: &str) -> ProfileError {
        let span = self.table.get(key).and_then(Item::span);
        let span = span.or_else(|| self.table.span());
        let name = self.name;
        self.reader
            .error(span, format!("{name}.{key}: {what}: expected {expected}"))
    }

    fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, ProfileError> {
        let Some(item) = self.table.get(key) else {
            return Ok(None);
        };
        let expected = format!("a number from {least} to {most}");
        let number = item
            .as_float()
            .or_else(|| item.as_integer().map(|i| i as f64));
        let number = number.ok_or_else(|| self.wrong(key, "not a number", &expected))?;
        if (least..=most).contains(&number) {
            Ok(Some(number))
        } else {
            Err(self.wrong(key, &format!("{number} is out of range"), &expected))
        }
    }

    fn count(&self, key: &str, least: f64) -> Result<Option<u64>, ProfileError> {
        let number = self.number(key, least, COUNT_MAX)?;
        match number.filter(|n| n.fract() != 0.0) {
            Some(n) => Err(self.wrong(key, &format!("{n} is no whole number"), "a whole number")),
            None => Ok(number.map(|n| n as u64)),
        }
    }

    fn needed<T>(&self, key: &str, value: Option<T>, expected: &str) -> Result<T, ProfileError> {
        value.ok_or_else(|| self.wrong(key, "missing", expected))
    }

    fn flag(&self, key: &str) -> Result<bool, ProfileError> {
        let Some(item) = self.table.get(key) else {
            return Ok(false);
        };
        item.as_bool()
            .ok_or_else(|| self.wrong(key, "not a boolean", "true or false"))
    }

    fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, ProfileError> {
        let Some(item) = self.table.get(key) else {
            return Ok(None);
        };
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", names.join(", "));
        let name = item
            .as_str()
            .ok_or_else(|| self.wrong(key, "not a text", &expected))?;
        let found = choices.iter().find(|(choice, _)| *choice == name);
        match found {
            Some((_, value)) => Ok(Some(*value)),
            None => Err(self.wrong(key, &format!("'{name}' is unknown"), &expected)),
        }
    }

    /// Both keys or neither: without them, the whole drive.
    fn range(&self) -> Result<Option<BlockRange>, ProfileError> {
        let first = self.count("first_sector", 0.0)?;
        let sectors = self.count("sectors", 1.0)?;
        match (first, sectors) {
            (None, None) => Ok(None),
            (Some(first), Some(sectors)) => Ok(Some(BlockRange::covering(Lba(first), sectors))),
            (Some(_), None) => Err(self.wrong("sectors", "missing", "the number of sectors")),
            (None, Some(_)) => Err(self.wrong("first_sector", "missing", "the first sector")),
        }
    }

    fn trigger(&self) -> Result<Trigger, ProfileError> {
        let probability = self.number("probability", 0.0, 1.0)?;
        Ok(Trigger {
            range: self.range()?.unwrap_or(EVERYWHERE),
            after: self.count("after", 0.0)?.unwrap_or(0),
            probability_q32: probability.map_or(ALWAYS_Q32, |p| (p * ALWAYS_Q32 as f64) as u64),
            times: self.count("times", 1.0)?.unwrap_or(u64::MAX),
        })
    }

    fn requests(&self) -> Result<u8, ProfileError> {
        let choices = [
            ("read", READS),
            ("write", WRITES),
            ("flush", FLUSHES),
            ("any", READS | WRITES | FLUSHES),
        ];
        Ok(self
            .choice("requests", &choices)?
            .unwrap_or(READS | WRITES | FLUSHES))
    }

    fn ms(&self, key: &str) -> Result<Option<u64>, ProfileError> {
        let ms = self.number(key, 0.0, SECONDS_MAX * 1e3)?;
        Ok(ms.map(|ms| (ms * NS_PER_MS).round() as u64))
    }

    fn s(&self, key: &str) -> Result<Option<u64>, ProfileError> {
        let s = self.number(key, 0.0, SECONDS_MAX)?;
        Ok(s.map(|s| (s * NS_PER_S).round() as u64))
    }

    fn add_to(&self, plan: &mut FaultPlan) -> Result<(), ProfileError> {
        let rule = |effect| -> Result<Rule, ProfileError> {
            Ok(Rule {
                trigger: self.trigger()?,
                effect,
            })
        };
        match self.name {
            "unreadable" => plan.unreadable.push(Unreadable {
                range: self.needed("first_sector", self.range()?, "the first sector")?,
                retry_ns: self.ms("retry_ms")?.unwrap_or(0),
            }),
            "transient_read" => {
                let retry_ns = self.ms("retry_ms")?.unwrap_or(0);
                plan.rules.push(rule(Effect::FailRead { retry_ns })?);
            }
            "failed_write" => plan.rules.push(rule(Effect::FailWrite)?),
            "lost_write" => plan.rules.push(rule(Effect::FailDestage)?),
            "slow" => {
                let extra_ns = self.needed("latency_ms", self.ms("latency_ms")?, "milliseconds")?;
                let ops = self.requests()?;
                plan.rules.push(rule(Effect::Slow { ops, extra_ns })?);
            }
            "timeout" => {
                let ns = self.needed("timeout_s", self.s("timeout_s")?, "seconds")?;
                let ops = self.requests()?;
                plan.rules.push(rule(Effect::Timeout { ops, ns })?);
            }
            "power_cut" => {
                let choices = [
                    ("nothing", Torn::Nothing),
                    ("prefix", Torn::Prefix),
                    ("subset", Torn::Subset),
                ];
                plan.torn = self.choice("torn", &choices)?.unwrap_or_default();
                plan.reorder = self.flag("reorder")?;
            }
            "lies" => {
                plan.flush_lies = self.flag("flush")?;
                plan.fua_lies = self.flag("fua")?;
            }
            _ => {
                let choices = [
                    ("read_only", ZoneState::ReadOnly),
                    ("offline", ZoneState::Offline),
                ];
                let zone = self.needed("zone", self.count("zone", 0.0)?, "the zone's number")?;
                let zone = u32::try_from(zone)
                    .map_err(|_| self.wrong("zone", "too large", "the zone's number"))?;
                let state = self.choice("condition", &choices)?;
                plan.zones.push(ZoneFault {
                    zone: ZoneId(zone),
                    state: self.needed("condition", state, "one of read_only, offline")?,
                    at_ns: self.s("at_s")?.unwrap_or(0),
                });
            }
        }
        Ok(())
    }

    fn refuse_unknown(&self, known: &[&str]) -> Result<(), ProfileError> {
        for (key, item) in self.table {
            if !known.contains(&key) {
                let near = nearest(key, known);
                let near = near.map_or(String::new(), |n| format!("; nearest known key: {n}"));
                let message = format!(
                    "{}.{key}: no such key: expected one of {}{near}",
                    self.name,
                    known.join(", ")
                );
                return Err(self.reader.error(item.span(), message));
            }
        }
        Ok(())
    }
}

/// Reads and checks a plan's text; `file` is its name in errors.
pub fn parse(file: &str, text: &str) -> Result<FaultPlan, ProfileError> {
    let reader = Reader { file, text };
    let document = ImDocument::parse(text.to_string())
        .map_err(|why| reader.error(why.span(), format!("not TOML: {}", why.message())))?;
    let mut plan = FaultPlan::default();
    for (key, item) in document.as_table() {
        let Some(index) = SECTIONS.iter().position(|(name, ..)| *name == key) else {
            let known = SECTIONS.map(|(name, ..)| name);
            let near = nearest(key, &known);
            let near = near.map_or(String::new(), |n| format!("; nearest: {n}"));
            let message = format!(
                "{key}: no such section: expected one of {}{near}",
                known.join(", ")
            );
            return Err(reader.error(item.span(), message));
        };
        let (name, common, own) = SECTIONS[index];
        let is_list = index < LISTS || name == "zone";
        let tables: Vec<&Table> = match (item.as_table(), item.as_array_of_tables()) {
            (Some(table), _) if !is_list => vec![table],
            (_, Some(tables)) if is_list => tables.iter().collect(),
            _ => {
                let form = if is_list {
                    format!("[[{name}]]")
                } else {
                    format!("[{name}]")
                };
                let span = item.span();
                return Err(reader.error(span, format!("{name}: expected a section {form}")));
            }
        };
        for table in tables {
            let section = Section {
                reader: &reader,
                name,
                table,
            };
            section.refuse_unknown(&[common, own].concat())?;
            section.add_to(&mut plan)?;
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoned::Block;

    const EVERYTHING: &str = include_str!("../tests/faults/everything.toml");

    fn refusal(text: &str) -> String {
        parse("x.toml", text).expect_err("refused").to_string()
    }

    #[test]
    fn every_kind_of_fault_is_read() {
        let plan = parse("everything.toml", EVERYTHING).unwrap();
        let range = BlockRange::new(Block(256), Block(257));
        assert_eq!(plan.unreadable[0].range, range);
        assert_eq!(plan.unreadable[0].retry_ns, 1_500_000_000);
        let effects: Vec<Effect> = plan.rules.iter().map(|r| r.effect).collect();
        assert_eq!(
            effects,
            [
                Effect::FailRead { retry_ns: 0 },
                Effect::FailWrite,
                Effect::FailDestage,
                Effect::Slow {
                    ops: READS | WRITES | FLUSHES,
                    extra_ns: 250_000_000
                },
                Effect::Timeout {
                    ops: FLUSHES,
                    ns: 30_000_000_000
                },
            ]
        );
        assert_eq!(plan.rules[0].trigger.times, 3);
        assert_eq!(plan.rules[3].trigger.probability_q32, ALWAYS_Q32 / 4);
        assert_eq!((plan.torn, plan.reorder), (Torn::Subset, true));
        assert!(plan.flush_lies && !plan.fua_lies);
        assert_eq!(plan.zones[0].state, ZoneState::ReadOnly);
        assert_eq!(FaultPlan::from_bytes(&plan.to_bytes()), Ok(plan));
    }

    #[test]
    fn an_empty_plan_is_no_fault() {
        assert_eq!(
            parse("x.toml", "# nothing\n").unwrap(),
            FaultPlan::default()
        );
    }

    #[test]
    fn a_wrong_plan_is_refused_with_line_key_and_what_was_expected() {
        for (text, parts) in [
            ("[[slo]]\n", ["x.toml:1", "slo", "nearest: slow"]),
            (
                "\n[[slow]]\nlatency = 5\n",
                ["x.toml:3", "slow.latency", "nearest known key: latency_ms"],
            ),
            (
                "[[slow]]\n",
                ["x.toml:1", "slow.latency_ms", "expected milliseconds"],
            ),
            ("[slow]\nlatency_ms = 5\n", ["x.toml:1", "slow", "[[slow]]"]),
            (
                "[[timeout]]\ntimeout_s = 1e9\n",
                ["x.toml:2", "timeout.timeout_s", "to 86400"],
            ),
            (
                "[[slow]]\nlatency_ms = 1\nprobability = 1.5\n",
                ["x.toml:3", "slow.probability", "from 0 to 1"],
            ),
            (
                "[[unreadable]]\nfirst_sector = 1\n",
                ["x.toml:1", "unreadable.sectors", "number of sectors"],
            ),
            (
                "[[unreadable]]\n",
                ["x.toml:1", "unreadable.first_sector", "the first sector"],
            ),
            (
                "[power_cut]\ntorn = \"half\"\n",
                ["x.toml:2", "power_cut.torn", "prefix"],
            ),
            (
                "[lies]\nflush = 1\n",
                ["x.toml:2", "lies.flush", "true or false"],
            ),
            (
                "[[zone]]\nzone = 1.5\n",
                ["x.toml:2", "zone.zone", "whole number"],
            ),
            ("[[slow]\n", ["x.toml:1", "not TOML", ""]),
        ] {
            let why = refusal(text);
            assert!(parts.iter().all(|part| why.contains(part)), "{text}: {why}");
        }
    }
}
