// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model against measurements: `shingle-drive validate`.
//!
//! `targets.rs` reads what was measured, `experiments.rs` does to a simulated drive what was done to the real one, and
//! this module puts the two side by side. A row that is off is shown as off; the tolerances are the same for all rows.

pub mod experiments;
mod filling;
pub mod readings;
pub mod targets;

use crate::profile;
use experiments::Experiment;
use readings::Readings;
use serde_json::{json, Value};
use smr_drive::profile::{Profile, Translation};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use targets::{Expected, Kind, Target};

/// What came of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within tolerance.
    Pass,
    /// Not.
    Fail,
    /// Nobody has published a number.
    NoTarget,
}

/// A target and what the model gives.
pub struct Row {
    /// The drive.
    pub drive: String,
    /// The target.
    pub target: Target,
    /// What the model gives.
    pub simulated: f64,
}

impl Row {
    /// How far off, as a share.
    pub fn error(&self) -> Option<f64> {
        self.target.expected.map(|e| e.error(self.simulated))
    }

    /// Whether that is within tolerance.
    pub fn verdict(&self) -> Verdict {
        match self.error() {
            None => Verdict::NoTarget,
            // The last digit of a sum of floats is nobody's fault.
            Some(error) if error.abs() <= self.target.tolerance.share() + 1e-9 => Verdict::Pass,
            Some(_) => Verdict::Fail,
        }
    }

    /// As a record.
    pub fn json(&self, profile_crc32: u32) -> Value {
        let t = &self.target;
        json!({
            "event": "row",
            "drive": self.drive,
            "profile_crc32": format!("{profile_crc32:08x}"),
            "seed": experiments::SEED,
            "id": t.id,
            "what": t.what,
            "experiment": t.experiment,
            "reading": t.reading,
            "relative_to": t.relative_to,
            "source": t.source,
            "expected": t.expected,
            "tolerance": t.tolerance.share(),
            "simulated": round(self.simulated),
            "error": self.error().filter(|e| e.is_finite()).map(round),
            "unit": t.unit,
            "verdict": self.verdict().to_string(),
            "kind": t.kind,
        })
    }
}

/// Six digits: more would be noise in a diff.
fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::NoTarget => "no target",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Input => "input",
            Kind::Fitted => "fitted",
            Kind::Predicted => "predicted",
        })
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Expected::Value(v) => short(*v),
            Expected::Range([least, most]) => format!("{} to {}", short(*least), short(*most)),
            Expected::AtMost { at_most } => format!("at most {}", short(*at_most)),
            Expected::AtLeast { at_least } => format!("at least {}", short(*at_least)),
        };
        f.pad(&text)
    }
}

/// Four digits, or all of a whole number.
pub fn short(value: f64) -> String {
    if value == value.trunc() || value.abs() >= 1000.0 {
        return format!("{value:.0}");
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

/// One drive's rows.
pub struct Validated {
    /// Its name.
    pub name: String,
    /// CRC-32 of the profile's file: its version.
    pub profile_crc32: u32,
    /// The rows.
    pub rows: Vec<Row>,
    /// Its targets ask for the sensitivity of the headline figures.
    pub sensitivity: bool,
}

/// Names of the drives of a folder, in order: those with a profile, and those with targets only.
pub fn names(drives: &Path) -> Result<(Vec<String>, Vec<String>), String> {
    let stems = |folder: &Path| -> Result<Vec<String>, String> {
        let entries =
            std::fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "toml"))
            .filter_map(|path| path.file_stem()?.to_str().map(str::to_string))
            .collect();
        names.sort();
        Ok(names)
    };
    let profiles = stems(drives)?;
    let mut only_targets = stems(&drives.join("targets"))?;
    only_targets.retain(|name| !profiles.contains(name));
    Ok((profiles, only_targets))
}

/// Runs the experiments of a drive's rows that `wanted` picks, each once. A drive without targets has no rows.
pub fn validate(
    drives: &Path,
    name: &str,
    wanted: impl Fn(&Target) -> bool,
) -> Result<Validated, String> {
    let path = drives.join(format!("{name}.toml"));
    let bytes = std::fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let mut done: BTreeMap<(String, Experiment), Readings> = BTreeMap::new();
    let mut rows = Vec::new();
    let (all, sensitivity) = targets::load(drives, name)?;
    for target in all.into_iter().filter(wanted) {
        let mut reading_of = |drive: &str| -> Result<f64, String> {
            let key = (drive.to_string(), target.experiment);
            if !done.contains_key(&key) {
                let profile = profile::load(&drives.join(format!("{drive}.toml")))
                    .map_err(|why| why.to_string())?;
                done.insert(key.clone(), experiments::run(&profile, target.experiment));
            }
            let readings = &done[&key];
            readings.get(target.reading.as_str()).copied().ok_or_else(|| {
                let known: Vec<&str> = readings.keys().copied().collect();
                format!(
                    "drives/targets/{name}.toml: '{}' has no reading '{}' on {drive}: expected one of {}",
                    target.experiment,
                    target.reading,
                    known.join(", ")
                )
            })
        };
        let simulated = match &target.relative_to {
            None => reading_of(name)?,
            Some(other) => reading_of(name)? / reading_of(other)?,
        };
        rows.push(Row {
            drive: name.to_string(),
            target,
            simulated,
        });
    }
    Ok(Validated {
        name: name.to_string(),
        profile_crc32: crc32fast::hash(&bytes),
        rows,
        sensitivity,
    })
}

/// Rows that take no more than a moment: what `./shingle test` repeats.
pub fn is_quick(target: &Target) -> bool {
    match target.experiment {
        Experiment::RandomWrites { gib } => gib == 8,
        Experiment::CacheFill { kib } => kib == 1024,
        Experiment::Stalls { .. } => true,
        Experiment::RandomWritesMib { .. }
        | Experiment::CacheReset
        | Experiment::CacheRest { .. }
        | Experiment::Skewed { .. }
        | Experiment::First64GiB => false,
        _ => true,
    }
}

/// The sentence that sums it up.
pub fn headline(rows: &[&Row]) -> String {
    let of = |kind: Kind| {
        let judged: Vec<Verdict> = rows
            .iter()
            .filter(|r| r.target.kind == kind)
            .map(|r| r.verdict())
            .filter(|v| *v != Verdict::NoTarget)
            .collect();
        let passed = judged.iter().filter(|v| **v == Verdict::Pass).count();
        (passed, judged.len())
    };
    let (predicted, fitted, input) = (of(Kind::Predicted), of(Kind::Fitted), of(Kind::Input));
    let open = rows
        .iter()
        .filter(|r| r.verdict() == Verdict::NoTarget)
        .count();
    format!(
        "{} of {} predicted rows within tolerance (fitted: {} of {}, input: {} of {}; {open} predictions have no published number)",
        predicted.0, predicted.1, fitted.0, fitted.1, input.0, input.1
    )
}

/// A figure with the limits of what is not known.
pub struct Band {
    /// What.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// The parameter that is varied, and its value.
    pub parameter: String,
    /// What the model gives.
    pub value: f64,
}

/// The headline figures of a drive with static mapping, over what the literature leaves open: 180,000 or 250,000 entries,
/// and 0.3 to 5 s before idle cleaning begins.
pub fn sensitivity(profile: &Profile) -> Vec<Band> {
    let Translation::StaticMapping(given) = &profile.translation else {
        return Vec::new();
    };
    let with = |change: &dyn Fn(&mut smr_drive::profile::StaticMapping)| {
        let mut mapping = given.clone();
        change(&mut mapping);
        Profile {
            translation: Translation::StaticMapping(mapping),
            ..profile.clone()
        }
    };
    let mut bands = Vec::new();
    for entries in [180_000, 215_000, 250_000] {
        let varied = with(&|m| m.cache_entries_max = entries);
        let readings = experiments::run(&varied, Experiment::RandomWrites { gib: 512 });
        for (what, unit, reading) in [
            ("the knee, random writes over 512 GiB", "s", "knee_s"),
            ("a write early after the knee", "ms", "early_ms"),
            ("a write late after the knee", "ms", "late_ms"),
        ] {
            bands.push(Band {
                what,
                unit,
                parameter: format!("{entries} entries"),
                value: readings.get(reading).copied().unwrap_or(f64::NAN),
            });
        }
    }
    for idle_ms in [300, 1000, 5000] {
        let varied = with(&|m| m.idle_ns = idle_ms * 1_000_000);
        let readings = experiments::run(
            &varied,
            Experiment::Touch {
                places: 250,
                share: 16,
            },
        );
        bands.push(Band {
            what: "until 250 dirty bands are clean",
            unit: "s",
            parameter: format!("{} s idle", idle_ms as f64 / 1e3),
            value: readings.get("clean_after_s").copied().unwrap_or(f64::NAN),
        });
        bands.push(Band {
            what: "bands cleaned in ten pauses of 3 s",
            unit: "bands",
            parameter: format!("{} s idle", idle_ms as f64 / 1e3),
            value: experiments::cleaned_in_pauses(&varied),
        });
    }
    bands
}
