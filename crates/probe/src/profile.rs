// SPDX-License-Identifier: MIT OR Apache-2.0
//! From findings to a drive profile that the lab can run. What was not measured is taken over from a drive of the same
//! kind, and says so (confidence G).

use crate::disk::Facts;
use crate::finding::Findings;
use crate::session::{Mechanics, Session};
use drive_tool::profile::{parse, read, ProfileText};
use std::collections::BTreeMap;
use std::fmt::Write;

const SHINGLED: (&str, &str) = (
    "st8000as0002",
    include_str!("../../../drives/st8000as0002.toml"),
);
const CONVENTIONAL: (&str, &str) = ("wd5000ys", include_str!("../../../drives/wd5000ys.toml"));
const MOVING: (&str, &str) = ("wd40nmzw", include_str!("../../../drives/wd40nmzw.toml"));
const HOST_AWARE: (&str, &str) = (
    "safs5000ha",
    include_str!("../../../drives/safs5000ha.toml"),
);
const ENFORCING: (&str, &str) = (
    "wd30ezr-smr",
    include_str!("../../../drives/wd30ezr-smr.toml"),
);
const SECTIONS: [&str; 7] = [
    "host",
    "platters",
    "seek",
    "interface",
    "read_ahead",
    "buffer",
    "translation",
];
/// Findings whose keys and units are those of a profile.
const AS_FOUND: [&str; 15] = [
    "translation.sections",
    "translation.zone",
    "translation.conventional_first",
    "translation.non_sequential_optimal",
    "platters.spindle",
    "platters.outer_rate",
    "platters.inner_rate",
    "interface.command",
    "interface.link_rate",
    "translation.cache",
    "translation.cache_entries",
    "translation.entry_time",
    "translation.idle",
    "translation.clean_slice",
    "translation.stream_min",
];

/// The profile of a disk as TOML. `when` is the day of the measurement. Refused if it is not known what kind of drive it
/// is, or if the lab has no model of that kind.
pub fn write(session: &Session<'_>, when: &str) -> Result<String, String> {
    let findings = &session.findings;
    let (default_name, default_text) = match findings.word("kind") {
        Some("conventional") => CONVENTIONAL,
        Some("drive-managed SMR") if findings.word("mapping") == Some("dynamic") => MOVING,
        Some("drive-managed SMR") => SHINGLED,
        Some("host-aware SMR") => HOST_AWARE,
        Some("sequential writes enforced") => ENFORCING,
        _ => return Err("no profile: it is not known what kind of drive this is".into()),
    };
    let defaults = read(default_name, default_text).map_err(|why| why.to_string())?;
    let measured = measured(
        session.facts(),
        findings,
        &session.known.mechanics,
        &session.known.bands,
        &defaults,
    );
    let text = toml(session.facts(), &defaults, default_name, &measured, when);
    parse("the profile", &text)
        .map_err(|why| format!("no profile: what was found makes no drive: {why}"))?;
    Ok(text)
}

fn measured(
    facts: &Facts,
    findings: &Findings,
    mechanics: &Mechanics,
    bands: &[(f64, f64, f64)],
    defaults: &ProfileText,
) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = AS_FOUND
        .iter()
        .filter_map(|key| Some((key.to_string(), findings.number(key)?)))
        .collect();
    all.insert("host.capacity".into(), facts.capacity_bytes as f64);
    all.insert(
        "host.logical_block".into(),
        f64::from(facts.logical_block_bytes),
    );
    all.insert(
        "host.physical_block".into(),
        f64::from(facts.physical_block_bytes),
    );
    all.insert(
        "interface.max_request".into(),
        facts.max_request_bytes as f64 / 1024.0,
    );
    // What is counted is whole.
    for key in [
        "translation.sections",
        "translation.zone",
        "translation.conventional_first",
        "translation.cache_entries",
    ] {
        if let Some(value) = all.get_mut(key) {
            *value = value.round();
        }
    }
    if let Some(law) = mechanics.seek {
        let law = [
            ("short_base", law.a),
            ("short_root", law.b),
            ("long_base", law.c),
            ("long_slope", law.d),
            ("knee", law.knee),
        ];
        all.extend(law.map(|(key, value)| (format!("seek.{key}"), value)));
    }
    if !bands.is_empty() {
        // A profile counts tracks, and a track is what passes in a revolution and a step.
        let turn_ms = mechanics.revolution_ms + defaults.get("seek.track_to_track");
        let tracks = bands
            .iter()
            .map(|(place, size, _)| size / 1e3 / (mechanics.rate(*place) * turn_ms));
        all.insert(
            "translation.band".into(),
            (tracks.sum::<f64>() / bands.len() as f64).round().max(1.0),
        );
        let bytes = bands.iter().map(|band| band.1).sum::<f64>() / bands.len() as f64;
        for key in ["translation.s_block", "translation.zone"] {
            all.insert(key.into(), (bytes / f64::from(1 << 20)).round().max(1.0));
        }
    }
    all
}

fn toml(
    facts: &Facts,
    defaults: &ProfileText,
    default_name: &str,
    measured: &BTreeMap<String, f64>,
    when: &str,
) -> String {
    let plain = |text: &str| -> String {
        text.chars()
            .filter(|c| c.is_ascii_alphanumeric() || " -_./()".contains(*c))
            .collect()
    };
    let (model, when) = (plain(&facts.model), plain(when));
    let name: String = plain(&facts.model)
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let mut text = format!(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n\
         # Written by `shingle probe`. confidence P: measured; G: not measured, taken over from {default_name}.\n\
         name = \"{}\"\nmodel = \"{model}\"\n",
        if name.is_empty() { "probed" } else { &name }
    );
    for section in SECTIONS {
        let mut lines = String::new();
        if section == "translation" {
            let _ = writeln!(lines, "kind = \"{}\"", defaults.kind);
        }
        for (key, parameter) in defaults
            .parameters
            .iter()
            .filter(|(key, _)| key.split('.').next() == Some(section))
        {
            let short = key.rsplit('.').next().unwrap_or(key);
            let (value, source, confidence) = match measured.get(key) {
                Some(value) => (
                    *value,
                    format!("measured by shingle probe on {when}, {model}"),
                    "P",
                ),
                None => (
                    parameter.value,
                    format!("not measured, as {default_name}"),
                    "G",
                ),
            };
            let value = if value.fract() == 0.0 {
                format!("{value:.0}")
            } else {
                format!("{value:.6}")
            };
            let unit = &parameter.unit;
            let _ = writeln!(
                lines,
                "{short} = {{ value = {value}, unit = \"{unit}\", source = \"{source}\", confidence = \"{confidence}\" }}"
            );
        }
        if !lines.is_empty() {
            let _ = write!(text, "\n[{section}]\n{lines}");
        }
    }
    text
}
