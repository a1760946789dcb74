// SPDX-License-Identifier: MIT OR Apache-2.0
//! The TOML side: which keys there are, in which unit and range, and errors that say where and what.

use crate::nearest::nearest;
use std::collections::BTreeMap;
use std::fmt;
use toml_edit::{ImDocument, Item, Value};

/// What a key means to the reader: (key, unit, least, most).
type Rule = (&'static str, &'static str, f64, f64);

const COMMON: &[Rule] = &[
    ("host.capacity", "B", 1048576.0, 1e15),
    ("host.logical_block", "B", 512.0, 4096.0),
    ("host.physical_block", "B", 512.0, 4096.0),
    // Half a revolution is also what a solid-state disk takes to find a page.
    ("platters.spindle", "rpm", 1000.0, 1e6),
    ("platters.heads", "1", 1.0, 64.0),
    ("platters.outer_rate", "MB/s", 1.0, 1000.0),
    ("platters.inner_rate", "MB/s", 1.0, 1000.0),
    ("platters.recording_zones", "1", 1.0, 256.0),
    ("platters.serpentine_run", "GiB", 0.0, 1000.0),
    ("seek.track_to_track", "ms", 0.0, 100.0),
    ("seek.short_base", "ms", 0.0, 100.0),
    ("seek.short_root", "ms", 0.0, 100.0),
    ("seek.long_base", "ms", 0.0, 100.0),
    ("seek.long_slope", "ms", 0.0, 100.0),
    ("seek.knee", "stroke", 0.0, 1.0),
    ("seek.head_switch", "ms", 0.0, 100.0),
    ("seek.write_settle", "ms", 0.0, 100.0),
    ("interface.command", "ms", 0.0, 100.0),
    ("interface.command_gap", "ms", 0.0, 100.0),
    ("interface.link_rate", "MB/s", 1.0, 100000.0),
    ("interface.queue_depth", "commands", 1.0, 1024.0),
    ("interface.max_request", "KiB", 4.0, 65536.0),
    ("read_ahead.segment", "KiB", 0.0, 65536.0),
    ("read_ahead.segments", "1", 0.0, 1024.0),
    ("buffer.dirty_max", "MiB", 1.0, 65536.0),
    ("buffer.dirty_extents_max", "1", 1.0, 1e6),
    ("buffer.hold", "ms", 0.0, 60000.0),
    ("buffer.destage_max", "KiB", 4.0, 65536.0),
    ("buffer.elevator_window", "1", 1.0, 10000.0),
    ("buffer.write_cache", "boolean", 0.0, 1.0),
];

const STATIC_MAPPING: &[Rule] = &[
    ("translation.band", "tracks", 1.0, 10000.0),
    ("translation.stream_min", "MiB", 0.01, 65536.0),
    ("translation.stream_memory", "s", 0.0, 3600.0),
    ("translation.stream_runs", "1", 1.0, 1000.0),
    ("translation.writes_pass", "boolean", 0.0, 1.0),
];

const PERSISTENT_CACHE: &[Rule] = &[
    ("translation.cache", "GiB", 0.0001, 10000.0),
    ("translation.cache_entries", "1", 1.0, 1e8),
    ("translation.entry_time", "ms", 0.0, 100.0),
    ("translation.entry_max", "KiB", 4.0, 65536.0),
    ("translation.entry_header", "KiB", 0.0, 1024.0),
    ("translation.append_max", "1", 1.0, 10000.0),
    ("translation.idle", "s", 0.0, f64::INFINITY),
    ("translation.clean_slice", "ms", 1.0, 60000.0),
    ("translation.merge_base", "ms", 0.0, 1000.0),
    ("translation.merge_exponent", "1", 0.1, 3.0),
    ("translation.clean_max_per_block", "ms", 0.0, 1000.0),
    ("translation.cache_overwritten", "boolean", 0.0, 1.0),
    ("translation.cache_at", "TB", 0.0, 1000.0),
];

const HOST_AWARE: &[Rule] = &[
    ("translation.zone", "MiB", 0.0625, 65536.0),
    ("translation.conventional_first", "zones", 0.0, 1e6),
    ("translation.conventional_last", "zones", 0.0, 1e6),
    ("translation.open_optimal", "zones", 1.0, 1e6),
    ("translation.non_sequential_optimal", "zones", 1.0, 1e6),
    ("translation.zone_command", "ms", 0.0, 10000.0),
    ("translation.zone_close", "ms", 0.0, 10000.0),
    ("translation.zone_bands", "1", 1.0, 1024.0),
];

const HOST_MANAGED: &[Rule] = &[
    ("translation.zone", "MiB", 0.0625, 65536.0),
    ("translation.zone_capacity", "MiB", 0.0625, 65536.0),
    ("translation.conventional_first", "zones", 0.0, 1e6),
    ("translation.conventional_last", "zones", 0.0, 1e6),
    ("translation.open_max", "zones", 1.0, 1e6),
    ("translation.zone_command", "ms", 0.0, 10000.0),
    ("translation.read_restricted", "boolean", 0.0, 1.0),
    ("translation.discard_resets", "boolean", 0.0, 1.0),
];

const ENFORCING: &[Rule] = &[
    ("translation.zone", "MiB", 0.0625, 65536.0),
    ("translation.conventional_first", "zones", 0.0, 1e6),
    ("translation.conventional_last", "zones", 0.0, 1e6),
    ("translation.reject_violations", "boolean", 0.0, 1.0),
    ("translation.implicit_reset", "boolean", 0.0, 1.0),
    ("translation.write_overhead", "%", 0.0, 100.0),
];

const S_BLOCKS: &[Rule] = &[
    // Smaller ones would make the map of a large drive larger than 100 MiB.
    ("translation.s_block", "MiB", 4.0, 128.0),
    ("translation.sections", "1", 1.0, 10000.0),
    ("translation.spare", "%", 0.0, 50.0),
    ("translation.cache", "GiB", 0.0001, 10000.0),
    ("translation.cache_entries", "1", 1.0, 1e8),
    ("translation.entry_time", "ms", 0.0, 100.0),
    ("translation.entry_max", "KiB", 4.0, 4096.0),
    ("translation.entry_header", "KiB", 0.0, 1024.0),
    ("translation.append_max", "1", 1.0, 10000.0),
    ("translation.low_water", "%", 0.1, 99.0),
    ("translation.low_share", "%", 0.0, 100.0),
    ("translation.high_water", "%", 0.1, 99.9),
    ("translation.high_share", "%", 0.0, 100.0),
    ("translation.idle", "s", 0.0, f64::INFINITY),
    ("translation.clean_slice", "ms", 1.0, 60000.0),
    ("translation.merge_base", "ms", 0.0, 1000.0),
    ("translation.merge_exponent", "1", 0.1, 3.0),
    ("translation.stream_min", "MiB", 0.01, 65536.0),
    ("translation.stream_memory", "s", 0.0, 3600.0),
    ("translation.stream_runs", "1", 1.0, 1000.0),
    ("translation.discard", "boolean", 0.0, 1.0),
    ("translation.discard_zeros", "boolean", 0.0, 1.0),
];

/// Keys that need not be there.
const OPTIONAL: [&str; 6] = [
    "buffer.write_cache",
    "translation.writes_pass",
    "translation.zone_capacity",
    "translation.zone_bands",
    "translation.cache_overwritten",
    "translation.cache_at",
];

/// Kinds of translation, by name, with the keys each of them has.
const KINDS: [(&str, &[&[Rule]]); 6] = [
    ("conventional", &[]),
    ("static_mapping", &[STATIC_MAPPING, PERSISTENT_CACHE]),
    ("host_managed", &[HOST_MANAGED]),
    ("host_aware", &[HOST_AWARE, PERSISTENT_CACHE]),
    ("enforcing", &[ENFORCING]),
    ("s_blocks", &[S_BLOCKS]),
];
/// Least and most of a key's values.
pub fn range_of(key: &str) -> Option<(f64, f64)> {
    let of_kinds = KINDS.iter().flat_map(|(_, rules)| rules.iter());
    let all = of_kinds.copied().chain([COMMON]).flatten();
    all.copied().find(|r| r.0 == key).map(|r| (r.2, r.3))
}

const CONFIDENCES: [&str; 6] = ["S", "P", "2", "D", "R", "G"];

/// Why a profile is refused.
#[derive(Debug)]
pub struct ProfileError {
    /// Name of the file.
    pub file: String,
    /// Line, counted from 1; 0 if the trouble is with the whole file.
    pub line: usize,
    /// Key, what was found, what was expected.
    pub message: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{}: {}", self.file, line, self.message),
        }
    }
}

impl std::error::Error for ProfileError {}

/// One value with what is known about it.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// In the unit.
    pub value: f64,
    /// Unit.
    pub unit: String,
    /// Where the value is from.
    pub source: String,
    /// How far to trust it.
    pub confidence: String,
}

/// A profile as written.
#[derive(Clone, Debug)]
pub struct ProfileText {
    /// Name of the file.
    pub file: String,
    /// Short name.
    pub name: String,
    /// What the label says.
    pub model: String,
    /// Kind of translation.
    pub kind: String,
    /// All parameters by key.
    pub parameters: BTreeMap<String, Parameter>,
}

impl ProfileText {
    /// A parameter that the reader has checked to be there.
    pub fn get(&self, key: &str) -> f64 {
        self.parameters[key].value
    }

    /// A parameter that need not be there.
    pub fn get_or(&self, key: &str, default: f64) -> f64 {
        self.parameters.get(key).map_or(default, |p| p.value)
    }
}

/// Where in the text we are, for errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn error(&self, item: Option<std::ops::Range<usize>>, message: String) -> ProfileError {
        let line = item.map_or(0, |span| {
            self.text[..span.start.min(self.text.len())]
                .matches('\n')
                .count()
                + 1
        });
        ProfileError {
            file: self.file.to_string(),
            line,
            message,
        }
    }
}

/// Reads and checks a profile.
pub fn read(file: &str, text: &str) -> Result<ProfileText, ProfileError> {
    let place = Place { file, text };
    let document = ImDocument::parse(text.to_string())
        .map_err(|why| place.error(why.span(), format!("not TOML: {}", why.message())))?;
    let string = |table: &Item, key: &str, full: &str| {
        let item = table
            .get(key)
            .ok_or_else(|| place.error(None, format!("{full} is missing: expected a text")))?;
        let text = item.as_str().filter(|s| !s.is_empty());
        text.map(str::to_string)
            .ok_or_else(|| place.error(item.span(), format!("{full}: expected a text")))
    };
    let root = document.as_item();
    let name = string(root, "name", "name")?;
    let model = string(root, "model", "model")?;
    let kind = string(
        root.get("translation").unwrap_or(&Item::None),
        "kind",
        "translation.kind",
    )?;
    let Some((_, rules_of_kind)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        let item = root.get("translation").and_then(|t| t.get("kind"));
        let message = format!(
            "translation.kind is '{kind}': expected {}",
            KINDS.map(|(name, _)| name).join(" or ")
        );
        return Err(place.error(item.and_then(Item::span), message));
    };
    let rules = [&[COMMON], *rules_of_kind].concat().concat();
    refuse_unknown(&place, root, &rules)?;
    let mut parameters = BTreeMap::new();
    for rule in &rules {
        let (section, name) = rule.0.split_once('.').unwrap_or(("", rule.0));
        let given = root.get(section).and_then(|s| s.get(name)).is_some();
        if !given && OPTIONAL.contains(&rule.0) {
            continue;
        }
        parameters.insert(rule.0.to_string(), parameter(&place, root, rule)?);
    }
    Ok(ProfileText {
        file: file.to_string(),
        name,
        model,
        kind,
        parameters,
    })
}

fn refuse_unknown(place: &Place<'_>, root: &Item, rules: &[Rule]) -> Result<(), ProfileError> {
    let known: Vec<&str> = rules
        .iter()
        .map(|r| r.0)
        .chain(["name", "model", "translation.kind"])
        .collect();
    let top = root.as_table().into_iter().flat_map(|t| t.iter());
    for (section, item) in top {
        let keys: Vec<(String, Option<std::ops::Range<usize>>)> = match item.as_table() {
            Some(table) => table
                .iter()
                .map(|(key, item)| (format!("{section}.{key}"), item.span()))
                .collect(),
            None => vec![(section.to_string(), item.span())],
        };
        for (key, span) in keys {
            if !known.contains(&key.as_str()) {
                let near = nearest(&key, &known)
                    .map_or(String::new(), |n| format!("; nearest known key: {n}"));
                return Err(place.error(span, format!("{key}: no such key{near}")));
            }
        }
    }
    Ok(())
}

fn parameter(place: &Place<'_>, root: &Item, rule: &Rule) -> Result<Parameter, ProfileError> {
    let (key, unit, least, most) = *rule;
    let expected = format!(
        "expected {{ value = …, unit = \"{unit}\", source = \"…\", confidence = \"…\" }} with a value from {least} to {most}"
    );
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    let section = root.get(section);
    // What is not there has no line of its own: its section has.
    let missing = || {
        place.error(
            section.and_then(Item::span),
            format!("{key} is missing: {expected}"),
        )
    };
    let item = section.and_then(|s| s.get(name)).ok_or_else(missing)?;
    let wrong = |what: String| place.error(item.span(), format!("{key}: {what}: {expected}"));
    let table = item
        .as_inline_table()
        .ok_or_else(|| wrong("not a table".into()))?;
    let text = |field: &str| {
        let text = table
            .get(field)
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty());
        text.map(str::to_string)
            .ok_or_else(|| wrong(format!("no {field}")))
    };
    let value = table
        .get("value")
        .and_then(|v| v.as_float().or_else(|| v.as_integer().map(|i| i as f64)));
    let value = value.ok_or_else(|| wrong("no value".into()))?;
    if !(least..=most).contains(&value) {
        return Err(wrong(format!("value {value} is out of range")));
    }
    let parameter = Parameter {
        value,
        unit: text("unit")?,
        source: text("source")?,
        confidence: text("confidence")?,
    };
    if parameter.unit != unit {
        return Err(wrong(format!("unit is '{}'", parameter.unit)));
    }
    if !CONFIDENCES.contains(&parameter.confidence.as_str()) {
        return Err(wrong(format!(
            "confidence is '{}', not one of {}",
            parameter.confidence,
            CONFIDENCES.join(", ")
        )));
    }
    Ok(parameter)
}
