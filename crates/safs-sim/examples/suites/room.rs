// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of usable space: sizes of files, sizes of zones, both placements.

use crate::suites::room::{run, Case, Found};
use crate::{source, Arguments};
use indicatif::{ProgressBar, ProgressStyle};
use safs::Placement;
use serde_json::{json, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

const FILES: [u64; 5] = [4 << 10, 1 << 20, 9 << 20, 256 << 20, 4 << 30];
const ZONES_MIB: [u32; 3] = [4, 64, 256];
/// Rounds of a case.
const ROUNDS: u64 = 10;

/// The cases, small devices first. A name is a file's bytes, a zone's MiB and the placement: 4096/64/log.
fn cases(config: &str) -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for zone_mib in ZONES_MIB {
        for file_bytes in FILES {
            for (placement, word) in [(Placement::Log, "log"), (Placement::Auto, "auto")] {
                let name = format!("{file_bytes}/{zone_mib}/{word}");
                let case = Case {
                    file_bytes,
                    zone_mib,
                    placement,
                };
                cases.push((name, case));
            }
        }
    }
    cases.retain(|(name, _)| name.contains(config));
    cases
}

/// Runs the matrix; says whether nothing was wrong.
pub fn act(arguments: &Arguments) -> Result<bool, String> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&is_over));
        registered.map_err(|why| why.to_string())?;
    }
    let cases = cases(&arguments.config);
    if cases.is_empty() {
        return Err(format!(
            "{}: no such case; one is 4096/64/log",
            arguments.config
        ));
    }
    let rounds = arguments.count.min(ROUNDS) as u32;
    let bar = ProgressBar::new(cases.len() as u64 * u64::from(rounds));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} rounds {elapsed} {msg}");
    bar.set_style(style.map_err(|why| why.to_string())?);
    println!("| file | zone | placement | zones | used, least | cleaned | at once | may be | moved/written | longest call | allowed |");
    println!("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut is_good = true;
    for (name, case) in cases {
        if is_over.load(Relaxed) {
            break;
        }
        bar.set_message(name);
        let found = run(&case, rounds, |_| bar.inc(1));
        bar.suspend(|| println!("{}", row(&found)));
        if let Some(problem) = found.problem() {
            is_good = false;
            bar.suspend(|| eprintln!("{problem}"));
        }
        if let Some(path) = &arguments.record {
            record(path, &found).map_err(|why| format!("{}: {why}", path.display()))?;
        }
    }
    bar.finish_and_clear();
    Ok(is_good)
}

fn row(found: &Found) -> String {
    format!(
        "| {} KiB | {} MiB | {} | {} | {} % | {} | {} | {} | {:.2} | {} ms | {} ms |",
        found.file_bytes >> 10,
        found.zone_mib,
        found.placement,
        found.zones,
        found.used_percent.iter().min().unwrap_or(&0),
        found.cleaned,
        found.cleaned_at_once,
        found.cleaned_at_once_max,
        found.moved_bytes as f64 / found.accepted_bytes as f64,
        found.wait_ns / 1_000_000,
        found.wait_max_ns / 1_000_000,
    )
}

/// Adds a line: which sources, and what was found.
fn record(path: &std::path::Path, found: &Found) -> Result<(), String> {
    let mut line = json!({"schema": 1, "commit": source::commit()});
    let found = serde_json::to_value(found).map_err(|why| why.to_string())?;
    if let (Some(line), Value::Object(found)) = (line.as_object_mut(), found) {
        line.extend(found);
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{line}"));
    written.map_err(|why| why.to_string())
}
