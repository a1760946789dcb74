// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shingle-drive validate` and `shingle-drive curves`.

use clap::Args;
use drive_tool::profile;
use drive_tool::validate::{self, experiments, short, Row, Validated};
use serde_json::json;
use smr_drive::profile::Translation;
use std::io::{self, Write};
use std::path::PathBuf;

/// What to compare.
#[derive(Args)]
pub struct Validate {
    /// Drives; all that have targets if none is named
    names: Vec<String>,
    /// Where the profiles are, with the targets in a folder `targets`
    #[arg(long, default_value = "drives")]
    drives: PathBuf,
    /// Also what takes longer than a moment, and the sensitivity to what is not known
    #[arg(long)]
    full: bool,
    /// Also write the rows to this file, as JSON lines
    #[arg(long)]
    record: Option<PathBuf>,
}

/// Which drives to draw.
#[derive(Args)]
pub struct Curves {
    /// Drives; all if none is named
    names: Vec<String>,
    /// Where the profiles are
    #[arg(long, default_value = "drives")]
    drives: PathBuf,
    /// Virtual seconds of random writes
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

/// Prints the table, and writes the records.
pub fn validate(args: &Validate) -> Result<(), String> {
    let (profiles, only_targets) = validate::names(&args.drives)?;
    let names = if args.names.is_empty() {
        &profiles
    } else {
        &args.names
    };
    let mut all: Vec<Validated> = Vec::new();
    let mut records = String::new();
    for name in names {
        let done = validate::validate(&args.drives, name, |t| args.full || validate::is_quick(t))?;
        print_rows(&mut io::stdout().lock(), &done).map_err(|why| why.to_string())?;
        for row in &done.rows {
            records += &format!("{}\n", row.json(done.profile_crc32));
        }
        all.push(done);
    }
    if args.full {
        for done in all.iter().filter(|done| done.sensitivity) {
            records += &sensitivity(args, &done.name)?;
        }
    }
    for name in &only_targets {
        println!("{name}: targets but no profile; its rows were not run");
    }
    let rows: Vec<&Row> = all.iter().flat_map(|v| &v.rows).collect();
    println!("{}", validate::headline(&rows));
    if let Some(path) = &args.record {
        std::fs::write(path, records).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(())
}

fn print_rows(out: &mut dyn Write, done: &Validated) -> io::Result<()> {
    if done.rows.is_empty() {
        return writeln!(out, "{}: no targets", done.name);
    }
    writeln!(out, "{} (profile {:08x})", done.name, done.profile_crc32)?;
    writeln!(
        out,
        "  {:<6} {:<62} {:>15} {:>6} {:>9} {:>8}  {:<6} {:<9} {:<9} source",
        "id", "what", "expected", "±", "simulated", "error", "unit", "verdict", "kind"
    )?;
    for row in &done.rows {
        let t = &row.target;
        let percent = |share: f64| format!("{:+.0} %", share * 100.0);
        writeln!(
            out,
            "  {:<6} {:<62} {:>15} {:>6} {:>9} {:>8}  {:<6} {:<9} {:<9} {}",
            t.id,
            t.what,
            t.expected.map_or("none".to_string(), |e| e.to_string()),
            format!("{:.0} %", t.tolerance.share() * 100.0),
            short(row.simulated),
            row.error().map_or(String::new(), percent),
            t.unit,
            row.verdict(),
            t.kind,
            t.source
        )?;
    }
    Ok(())
}

/// Prints how far the headline figures depend on what is not known; returns the records.
fn sensitivity(args: &Validate, name: &str) -> Result<String, String> {
    let path = args.drives.join(format!("{name}.toml"));
    let profile = profile::load(&path).map_err(|why| why.to_string())?;
    let mut records = String::new();
    for band in validate::sensitivity(&profile) {
        let value = short(band.value);
        println!(
            "  {name}: {} with {}: {value} {}",
            band.what, band.parameter, band.unit
        );
        let record = json!({
            "event": "sensitivity",
            "drive": name,
            "what": band.what,
            "parameter": band.parameter,
            "simulated": value.parse::<f64>().ok(),
            "unit": band.unit,
        });
        records += &format!("{record}\n");
    }
    Ok(records)
}

/// Prints what the figures are drawn from, one JSON line for each drive.
pub fn curves(args: &Curves) -> Result<(), String> {
    let (profiles, _) = validate::names(&args.drives)?;
    let names = if args.names.is_empty() {
        &profiles
    } else {
        &args.names
    };
    for name in names {
        let path = args.drives.join(format!("{name}.toml"));
        let profile = profile::load(&path).map_err(|why| why.to_string())?;
        // Random writes are an error on a zoned disk: there is nothing to draw.
        let random_writes = match profile.translation {
            Translation::HostManaged(_) => Vec::new(),
            _ => experiments::throughput_curve(&profile, args.seconds),
        };
        let line = json!({
            "drive": name,
            "model": profile.model,
            "capacity_bytes": profile.capacity_bytes,
            "random_write_mib_s": random_writes,
            "rate_mb_s": experiments::rate_curve(&profile),
            "band_clean_s": experiments::cleaning_curve(&profile),
        });
        writeln!(io::stdout().lock(), "{line}").map_err(|why| why.to_string())?;
    }
    Ok(())
}
