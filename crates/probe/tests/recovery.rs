// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives whose parameters nobody wrote into a test: drawn from a seed, hidden in the drive, found again.
//!
//! A failure prints its seed; `SHINGLE_SEED=n cargo test -p probe --test recovery` replays it. `SHINGLE_DRAWS=n` draws more.

use drive_tool::profile::{convert, read, ProfileText};
use probe::compare::{compare, markdown, probed, Outcome};
use probe::finding::Findings;
use probe::plan::Plan;
use probe::session::Session;
use probe::simulated::SimulatedDisk;
use smr_drive::profile::Profile;

const SHINGLED: &str = include_str!("../../../drives/st8000as0002.toml");
const CONVENTIONAL: &str = include_str!("../../../drives/wd5000ys.toml");
const MOVING: &str = include_str!("../../../drives/wd40nmzw.toml");
const HOST_AWARE: &str = include_str!("../../../drives/safs5000ha.toml");
const ENFORCING: &str = include_str!("../../../drives/wd30ezr-smr.toml");

/// (parameter, least, most), drawn evenly on a logarithmic scale.
type Drawn = (&'static str, f64, f64);

const MECHANICS: [Drawn; 7] = [
    ("host.capacity", 1e12, 12e12),
    ("platters.spindle", 4800.0, 7500.0),
    ("platters.outer_rate", 120.0, 260.0),
    ("platters.inner_rate", 55.0, 110.0),
    ("seek.short_root", 10.0, 18.0),
    ("interface.command", 0.05, 0.3),
    ("interface.link_rate", 280.0, 560.0),
];
const STATIC: [Drawn; 7] = [
    ("translation.band", 10.0, 35.0),
    ("translation.cache", 3.0, 40.0),
    ("translation.cache_entries", 15_000.0, 300_000.0),
    ("translation.entry_time", 0.2, 1.2),
    ("translation.idle", 0.15, 5.0),
    ("translation.clean_slice", 60.0, 200.0),
    // From 1 MiB on, what fills the log would go in place.
    ("translation.stream_min", 2.0, 30.0),
];
const S_BLOCKS: [Drawn; 10] = [
    ("translation.s_block", 8.0, 50.0),
    ("translation.sections", 30.0, 80.0),
    ("translation.cache", 20.0, 80.0),
    ("translation.cache_entries", 300_000.0, 800_000.0),
    ("translation.entry_time", 0.2, 0.8),
    ("translation.low_share", 35.0, 45.0),
    ("translation.high_share", 70.0, 80.0),
    ("translation.idle", 0.15, 5.0),
    ("translation.clean_slice", 60.0, 200.0),
    ("translation.stream_min", 1.0, 7.0),
];
const ZONES: [Drawn; 7] = [
    ("translation.zone", 128.0, 256.0),
    ("translation.non_sequential_optimal", 12.0, 64.0),
    ("translation.cache", 5.0, 40.0),
    ("translation.cache_entries", 15_000.0, 200_000.0),
    ("translation.entry_time", 0.2, 1.2),
    ("translation.idle", 0.15, 5.0),
    ("translation.clean_slice", 60.0, 200.0),
];
const ENFORCED: [Drawn; 2] = [
    ("translation.zone", 32.0, 512.0),
    ("translation.conventional_first", 1.0, 20.0),
];

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn drawn(source: &str, parameters: &[Drawn], seed: u64) -> (ProfileText, Profile) {
    let mut random = Random(seed);
    let mut text = read("drawn", source).unwrap();
    for (key, least, most) in MECHANICS.iter().chain(parameters) {
        let value = least * (most / least).powf(random.unit());
        // Blocks, tracks, zones and entries are whole.
        let step = match *key {
            "host.capacity" => Some(4096.0),
            "translation.entry_time" | "translation.idle" | "translation.cache" => None,
            key if key.starts_with("translation.") => Some(1.0),
            _ => None,
        };
        let value = step.map_or(value, |step: f64| (value / step).round() * step);
        text.parameters.get_mut(*key).unwrap().value = value;
    }
    // If the map is full first, nobody can tell the bytes.
    if text.parameters.contains_key("translation.cache_entries") {
        let most = text.get("translation.cache_entries") / 1024.0 * 0.7;
        let cache = &mut text.parameters.get_mut("translation.cache").unwrap().value;
        *cache = cache.min(most);
        // Nor an append that is hidden behind the command.
        let least = text.get("interface.command") * 1.5;
        let entry = &mut text
            .parameters
            .get_mut("translation.entry_time")
            .unwrap()
            .value;
        *entry = entry.max(least);
    }
    if text.kind == "enforcing" {
        // A whole number of zones.
        let zone = text.get("translation.zone") * f64::from(1 << 20);
        let capacity = &mut text.parameters.get_mut("host.capacity").unwrap().value;
        *capacity = (*capacity / zone).floor() * zone;
    }
    // A steady join at the knee, as real arms have.
    let [a, b, d, knee] =
        ["short_base", "short_root", "long_slope", "knee"].map(|k| text.get(&format!("seek.{k}")));
    text.parameters.get_mut("seek.long_base").unwrap().value = a + b * f64::sqrt(knee) - d * knee;
    let profile = convert(&text).unwrap();
    (text, profile)
}

fn found(profile: &Profile, seed: u64) -> Findings {
    let mut disk = SimulatedDisk::used(profile.clone(), seed);
    let mut session = Session::new(&mut disk, seed, |_| ());
    Plan::new(&[], true).unwrap().run(&mut session).unwrap();
    session.findings
}

/// Draws drives, probes them, and wants every row to agree.
fn recovered(source: &str, parameters: &[Drawn], draws: u64) {
    let first = variable("SHINGLE_SEED", 1);
    let mut all: Vec<String> = Vec::new();
    for seed in first..first + variable("SHINGLE_DRAWS", draws) {
        let (text, profile) = drawn(source, parameters, seed);
        let findings = found(&profile, seed);
        let rows = compare(&text, &profile, &findings);
        println!("{}", markdown(&format!("SHINGLE_SEED={seed}"), &rows));
        let wrong: Vec<&str> = rows
            .iter()
            .filter(|r| !r.agrees())
            .map(|r| r.key.as_str())
            .collect();
        for key in &wrong {
            println!(
                "SHINGLE_SEED={seed} {key}: {}",
                findings.get(key).map_or("not found", |f| &f.how)
            );
        }
        all.extend(wrong.iter().map(|key| format!("SHINGLE_SEED={seed} {key}")));
    }
    assert!(all.is_empty(), "{all:?}");
}

#[test]
fn parameters_that_nobody_wrote_down_are_found_again() {
    recovered(SHINGLED, &STATIC, 2);
}

#[test]
fn drives_that_move_their_bands_are_found_again() {
    recovered(MOVING, &S_BLOCKS, 1);
}

#[test]
fn host_aware_drives_are_found_again() {
    recovered(HOST_AWARE, &ZONES, 1);
}

#[test]
fn drives_that_enforce_their_zones_are_found_again() {
    recovered(ENFORCING, &ENFORCED, 2);
}

#[test]
fn conventional_drives_are_found_again() {
    recovered(CONVENTIONAL, &[], 2);
}

/// Every profile, every row.
#[test]
fn the_page_holds_what_the_probe_finds() {
    let page = include_str!("../../../docs/results/probe-recovery.md");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let text = read(&path.display().to_string(), &source).unwrap();
        seen += 1;
        let Outcome::Probed(probed) = probed(&text, 1).unwrap() else {
            let mut said = page.lines().filter(|l| l.starts_with("Not probed"));
            assert!(said.any(|l| l.contains(&text.name)), "{}", text.name);
            continue;
        };
        assert!(probed.rows.iter().all(|r| r.agrees()), "{}", probed.text);
        assert!(
            page.contains(&probed.text),
            "`./shingle probe --table` renews docs/results/probe-recovery.md:\n{}",
            probed.text
        );
    }
    assert!(seen >= 11, "{seen} profiles");
}

#[test]
fn a_written_profile_runs_and_is_found_again() {
    for source in [SHINGLED, CONVENTIONAL, MOVING, HOST_AWARE, ENFORCING] {
        let profile = convert(&read("source", source).unwrap()).unwrap();
        let mut disk = SimulatedDisk::used(profile, 5);
        let mut session = Session::new(&mut disk, 5, |_| ());
        Plan::new(&[], true).unwrap().run(&mut session).unwrap();
        let written = probe::profile::write(&session, "2026-01-31").unwrap();
        let again = read("written", &written).unwrap();
        assert!(
            written.contains("measured by shingle probe on 2026-01-31"),
            "{written}"
        );
        let rows = compare(&again, &convert(&again).unwrap(), &session.findings);
        assert!(
            rows.iter().all(|r| r.agrees()),
            "{}",
            markdown("written", &rows)
        );
    }
}

#[test]
fn a_small_drive_is_refused_in_a_sentence() {
    let mut profile = convert(&read("x", SHINGLED).unwrap()).unwrap();
    profile.capacity_bytes = 1 << 30;
    let mut disk = SimulatedDisk::new(profile, 1);
    let mut session = Session::new(&mut disk, 1, |_| ());
    let stop = Plan::new(&[], true).unwrap().run(&mut session).unwrap_err();
    assert!(stop.to_string().contains("16 GiB"), "{stop}");
}
