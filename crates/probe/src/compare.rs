// SPDX-License-Identifier: MIT OR Apache-2.0
//! For simulated drives, whose parameters are known: what was configured against what a probe found. The tests
//! themselves see none of this.

use crate::finding::{Findings, Value};
use crate::plan::Plan;
use crate::session::{SeekLaw, Session};
use crate::simulated::SimulatedDisk;
use crate::statistics::median;
use crate::tests::bands::region_start;
use crate::tests::cleaning::LONGEST_MS;
use drive_tool::profile::{convert, ProfileText};
use smr_drive::mechanics::layout::Layout;
use smr_drive::profile::{Profile, StaticMapping, Translation};
use smr_drive::translation::static_mapping::bands::Bands;
use std::fmt::Write;
use zoned::{Block, Pba, BLOCK_BYTES};

/// What the probe learns only from a disk that cleans while it rests.
const OF_IDLE_CLEANING: [&str; 7] = [
    "band.outer",
    "band.middle",
    "band.inner",
    "mapping",
    "translation.idle",
    "translation.clean_slice",
    "cleaning.order",
];

/// A found number may be so far from the configured one.
pub const TOLERANCE: f64 = 0.15;

/// 48 MiB.
const BANDS_APART_BLOCKS: u64 = 12_288;

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key of the finding.
    pub key: String,
    /// Unit.
    pub unit: String,
    /// What the profile says.
    pub configured: Value,
    /// What was found.
    pub found: Option<Value>,
    /// Of a number, relative.
    pub error: Option<f64>,
}

impl Row {
    /// Whether the same word, or a number near enough, was found.
    pub fn agrees(&self) -> bool {
        match self.error {
            Some(error) => error.abs() <= TOLERANCE,
            None => self.found.as_ref() == Some(&self.configured),
        }
    }
}

/// Whether the disk rests longer than the probe waits before it cleans.
fn rests_long(text: &ProfileText) -> bool {
    text.get_or("translation.idle", 0.0) * 1e3 > LONGEST_MS
}

/// What a perfect probe would find.
fn configured(text: &ProfileText, profile: &Profile) -> Vec<(&'static str, Value, &'static str)> {
    let number = |key: &str| Value::Number(text.get(key));
    let word = |word: &str| Value::Word(word.into());
    let law = SeekLaw {
        a: text.get("seek.short_base"),
        b: text.get("seek.short_root"),
        c: text.get("seek.long_base"),
        d: text.get("seek.long_slope"),
        knee: text.get("seek.knee"),
    };
    let mut all = vec![
        ("platters.spindle", number("platters.spindle"), "rpm"),
        ("platters.outer_rate", number("platters.outer_rate"), "MB/s"),
        ("platters.inner_rate", number("platters.inner_rate"), "MB/s"),
        ("interface.command", number("interface.command"), "ms"),
        ("interface.link_rate", number("interface.link_rate"), "MB/s"),
        ("seek.mean", Value::Number(law.mean_ms()), "ms"),
        ("seek.full", Value::Number(law.ms(1.0)), "ms"),
    ];
    let cached = profile.buffer.write_cache;
    all.push((
        "buffer.write_cache",
        word(if cached { "yes" } else { "no" }),
        "",
    ));
    all.extend(match &profile.translation {
        Translation::Conventional => vec![("kind", word("conventional"), "")],
        Translation::StaticMapping(mapping) => shingled(text, profile, mapping),
        Translation::SBlocks(_) => moving(text),
        Translation::HostAware(_) => host_aware(text, profile),
        Translation::Enforcing(_) | Translation::HostManaged(_) => vec![
            ("kind", word("sequential writes enforced"), ""),
            ("translation.zone", number("translation.zone"), "MiB"),
            (
                "translation.conventional_first",
                number("translation.conventional_first"),
                "zones",
            ),
        ],
    });
    if rests_long(text) {
        all.retain(|(key, ..)| !OF_IDLE_CLEANING.contains(key));
        for (key, value, _) in &mut all {
            if *key == "cleaning.idle" {
                *value = word("not seen");
            }
        }
    }
    all
}

type Wanted = (&'static str, Value, &'static str);

/// What every drive with a persistent cache has.
fn cached(text: &ProfileText) -> Vec<Wanted> {
    let number = |key: &str| Value::Number(text.get(key));
    let word = |word: &str| Value::Word(word.into());
    vec![
        (
            "translation.cache_entries",
            number("translation.cache_entries"),
            "1",
        ),
        ("translation.cache", number("translation.cache"), "GiB"),
        (
            "translation.entry_time",
            number("translation.entry_time"),
            "ms",
        ),
        ("translation.idle", number("translation.idle"), "s"),
        (
            "translation.clean_slice",
            number("translation.clean_slice"),
            "ms",
        ),
        ("cleaning.order", word("oldest first"), ""),
        ("cleaning.idle", word("yes"), ""),
        ("cleaning.forced", word("in slices between writes"), ""),
    ]
}

/// Where the profile has the cache, in the probe's words: by cylinders, as an arm sees it.
fn cache_place(text: &ProfileText, layout: &Layout) -> &'static str {
    let block = text.get_or("translation.cache_at", 0.0) * 1e12 / BLOCK_BYTES as f64;
    let cylinder = layout.spot(Pba(block as u64)).cylinder;
    match cylinder as f64 / layout.cylinders() as f64 {
        at if at < 0.2 => "outer diameter",
        at if at > 0.8 => "inner diameter",
        _ => "middle",
    }
}

/// Bands of the same size all over the disk.
fn equal_bands(mib: f64) -> Vec<Wanted> {
    ["band.outer", "band.middle", "band.inner"]
        .map(|key| (key, Value::Number(mib), "MiB"))
        .into()
}

fn shingled(text: &ProfileText, profile: &Profile, mapping: &StaticMapping) -> Vec<Wanted> {
    let word = |word: &str| Value::Word(word.into());
    let layout = Layout::new(&profile.mechanics);
    let bands = Bands::new(&layout, mapping, profile);
    // Where tracks change their size, a band is cut short: the median of some.
    let band = |place: f64| {
        let first = region_start(profile.capacity_bytes, place) / BLOCK_BYTES;
        let sizes: Vec<f64> = (0..9)
            .map(|i| {
                bands
                    .range_of(Block(first + i * BANDS_APART_BLOCKS))
                    .blocks()
            })
            .map(|blocks| (blocks * BLOCK_BYTES) as f64 / f64::from(1 << 20))
            .collect();
        Value::Number(median(&sizes))
    };
    let mut all = vec![
        ("kind", word("drive-managed SMR"), ""),
        ("band.outer", band(0.03), "MiB"),
        ("band.middle", band(0.5), "MiB"),
        ("band.inner", band(0.97), "MiB"),
        ("mapping", word("static"), ""),
        ("cache.place", word(cache_place(text, &layout)), ""),
        ("cleaning.busy", word("no"), ""),
        ("stream.rule", word("its length"), ""),
        (
            "translation.stream_min",
            Value::Number(text.get("translation.stream_min")),
            "MiB",
        ),
    ];
    all.extend(cached(text));
    all
}

fn moving(text: &ProfileText) -> Vec<Wanted> {
    let word = |word: &str| Value::Word(word.into());
    let mut all = vec![("kind", word("drive-managed SMR"), "")];
    all.extend(equal_bands(text.get("translation.s_block")));
    all.extend([
        ("mapping", word("dynamic"), ""),
        ("cache.place", word("spread over the disk"), ""),
        (
            "translation.sections",
            Value::Number(text.get("translation.sections")),
            "1",
        ),
        ("cleaning.busy", word("while it writes"), ""),
        (
            "translation.stream_min",
            Value::Number(text.get("translation.stream_min")),
            "MiB",
        ),
    ]);
    all.extend(cached(text));
    all
}

fn host_aware(text: &ProfileText, profile: &Profile) -> Vec<Wanted> {
    let word = |word: &str| Value::Word(word.into());
    let layout = Layout::new(&profile.mechanics);
    let zones = text.get("host.capacity") / (text.get("translation.zone") * f64::from(1 << 20));
    let most = text.get("translation.non_sequential_optimal")
        + text.get_or("translation.conventional_first", 0.0);
    let most = if most >= zones.floor() {
        word("no limit")
    } else {
        Value::Number(text.get("translation.non_sequential_optimal"))
    };
    let mut all = vec![("kind", word("host-aware SMR"), "")];
    let bands = text.get_or("translation.zone_bands", 1.0);
    all.extend(equal_bands(text.get("translation.zone") / bands));
    all.extend([
        ("mapping", word("static"), ""),
        ("cache.place", word(cache_place(text, &layout)), ""),
        ("translation.non_sequential_optimal", most, "zones"),
        ("cleaning.busy", word("no"), ""),
        ("stream.rule", word("the end of the last write"), ""),
    ]);
    all.extend(cached(text));
    all
}

/// All parameters of a profile that a probe looks for.
pub fn compare(text: &ProfileText, profile: &Profile, findings: &Findings) -> Vec<Row> {
    let row = |(key, configured, unit): (&str, Value, &str)| {
        let found = findings.get(key).and_then(|f| f.value.clone());
        let error = match (&configured, &found) {
            (Value::Number(wanted), Some(Value::Number(found))) => Some(found / wanted - 1.0),
            _ => None,
        };
        Row {
            key: key.into(),
            unit: unit.into(),
            configured,
            found,
            error,
        }
    };
    configured(text, profile).into_iter().map(row).collect()
}

/// What came of one drive.
#[derive(Clone, Debug)]
pub struct Probed {
    /// A table in Markdown.
    pub text: String,
    /// All rows.
    pub rows: Vec<Row>,
}

/// What came of one drive, or why nobody would probe it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All tests ran.
    Probed(Probed),
    /// A host asks it for its zones.
    TellsItsZones,
    /// What the probe looks for are platters, seeks and bands.
    HasNoArm,
}

/// Probes a drive that has served, with all tests.
pub fn probed(text: &ProfileText, seed: u64) -> Result<Outcome, String> {
    let profile = convert(text).map_err(|why| why.to_string())?;
    if matches!(profile.translation, Translation::HostManaged(_)) {
        return Ok(Outcome::TellsItsZones);
    }
    if text.get("seek.long_slope") == 0.0 && text.get("seek.long_base") == 0.0 {
        return Ok(Outcome::HasNoArm);
    }
    let mut disk = SimulatedDisk::used(profile.clone(), seed);
    let mut session = Session::new(&mut disk, seed, |_| ());
    Plan::new(&[], true)?
        .run(&mut session)
        .map_err(|why| why.to_string())?;
    let rows = compare(text, &profile, &session.findings);
    let minutes = session.now_s() / 60.0;
    let mut table = markdown(&profile.name, &rows);
    let _ = writeln!(table, "\n{minutes:.0} minutes of the drive's time.");
    if rests_long(text) {
        let _ = writeln!(
            table,
            "It rests longer before it cleans than the probe waits ({:.0} s): {} are not looked for.",
            LONGEST_MS / 1e3,
            OF_IDLE_CLEANING.join(", ")
        );
    }
    Ok(Outcome::Probed(Probed { text: table, rows }))
}

/// A value for people.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Word(word) => word.clone(),
        Value::Number(number) => {
            // Four digits that count.
            let digits = 3 - number.abs().max(1e-9).log10().floor() as i32;
            format!("{number:.*}", digits.clamp(0, 6) as usize)
        }
    }
}

/// Rows as a table in Markdown.
pub fn markdown(name: &str, rows: &[Row]) -> String {
    let agree = rows.iter().filter(|r| r.agrees()).count();
    let mut text = format!("### {name}: {agree} of {}\n\n", rows.len());
    text.push_str("| parameter | unit | configured | found | error |\n|---|---|---|---|---|\n");
    for row in rows {
        let found = row.found.as_ref().map_or("could not tell".into(), shown);
        let error = match row.error {
            Some(error) => format!("{:+.1} %", 100.0 * error),
            None if row.agrees() => "same".into(),
            None => "differs".into(),
        };
        let error = if row.agrees() {
            error
        } else {
            format!("**{error}**")
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {found} | {error} |",
            row.key,
            row.unit,
            shown(&row.configured)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_agrees_within_the_tolerance_and_not_beyond() {
        let mut row = Row {
            key: "x".into(),
            unit: "s".into(),
            configured: Value::Number(10.0),
            found: Some(Value::Number(11.4)),
            error: Some(0.14),
        };
        assert!(row.agrees());
        row.error = Some(-0.16);
        assert!(!row.agrees());
        (row.error, row.found) = (None, None);
        assert!(!row.agrees());
        assert!(markdown("d", &[row]).contains("| x | s | 10.00 | could not tell | **differs** |"));
    }

    #[test]
    fn values_show_four_digits() {
        let shown = |n| shown(&Value::Number(n));
        assert_eq!(
            [shown(0.3045), shown(180064.2), shown(39.5312)],
            ["0.3045", "180064", "39.53"]
        );
    }
}
