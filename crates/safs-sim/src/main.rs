// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs-sim`: the slides' applications, and mounts, on a simulated drive, in virtual time.

use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use safs::{Options, Placement};
use safs_sim::simulate::{self, Application, Run};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// SAFS on simulated drives, in virtual time and without a kernel
#[derive(Parser)]
#[command(name = "safs-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs an application of the slides on a simulated drive
    Applications(Applications),
    /// Fills a file system on a simulated drive, and mounts it after an unmount and after power cuts
    Mounts(Mounts),
}

#[derive(clap::Args)]
struct Applications {
    /// A drive profile (drives/*.toml)
    drive: PathBuf,
    /// What is done; all of it, with both placements, if not said
    #[arg(long, value_enum)]
    application: Option<ApplicationName>,
    /// Zones of the file system; the slides have 256
    #[arg(long, default_value_t = 256)]
    zones: u32,
    /// Random-write zones among them
    #[arg(long, default_value_t = 16)]
    random_zones: u32,
    /// Of the drive
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where data go first; both, one after the other, if not said
    #[arg(long, value_enum)]
    placement: Option<PlacementName>,
    /// Adds the results to this file, one line of JSON each
    #[arg(long)]
    record: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Mounts {
    /// A drive profile (drives/*.toml)
    drive: PathBuf,
    /// Zones of the file system
    #[arg(long)]
    zones: u32,
    /// Random-write zones among them
    #[arg(long)]
    random_zones: u32,
    /// Files to make, in bytes (K, M, G, T)
    #[arg(long, value_parser = bytes)]
    fill: u64,
    /// Of the drive
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Adds the result to this file, one line of JSON
    #[arg(long)]
    record: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApplicationName {
    /// Append to four files in turn until half full, read back in turn
    #[value(name = "1")]
    One,
    /// Append until three quarters full, then replace each file
    #[value(name = "2")]
    Two,
    /// As 1; read one file alone, compact, read it again. Placement log only
    Compaction,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlacementName {
    /// Everything to the log, as in the slides
    Log,
    /// Large streams to zones of their own
    Auto,
}

/// Why the program ends without what it was asked for: a sentence.
type Outcome<T = ()> = Result<T, String>;

fn bytes(text: &str) -> Outcome<u64> {
    let (digits, unit) =
        text.split_at(text.len() - usize::from(text.ends_with(['K', 'M', 'G', 'T'])));
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 0,
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text}: expected a number, perhaps with K, M, G or T"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text}: too many bytes"))
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Applications(arguments) => applications(&arguments),
        Command::Mounts(arguments) => mounts(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("safs-sim: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn applications(arguments: &Applications) -> Outcome {
    let profile = drive_tool::profile::load(&arguments.drive).map_err(|why| why.to_string())?;
    for (application, options) in cells(arguments.application, arguments.placement) {
        let run = Run {
            profile: profile.clone(),
            seed: arguments.seed,
            zones: arguments.zones,
            random: arguments.random_zones,
            application,
            options,
        };
        let bar = bar(0, "{spinner} {bytes} {bytes_per_sec}");
        let result = simulate::run(&run, |bytes| bar.inc(bytes));
        bar.finish_and_clear();
        recorded(&result?, arguments.record.as_deref())?;
    }
    Ok(())
}

/// What is to be run of the applications: the compaction run is about the log, and has no other placement.
fn cells(
    application: Option<ApplicationName>,
    placement: Option<PlacementName>,
) -> Vec<(Application, Options)> {
    let mut cells = Vec::new();
    for name in ApplicationName::value_variants() {
        for place in PlacementName::value_variants() {
            let is_log = matches!(place, PlacementName::Log);
            let is_wanted = application.is_none_or(|wanted| wanted == *name)
                && placement.is_none_or(|wanted| wanted == *place)
                && (is_log || *name != ApplicationName::Compaction);
            let what = match name {
                ApplicationName::One => Application::One,
                ApplicationName::Two => Application::Two,
                ApplicationName::Compaction => Application::Compaction,
            };
            let options = Options {
                placement: match is_log {
                    true => Placement::Log,
                    false => Placement::Auto,
                },
                ..Options::default()
            };
            if is_wanted {
                cells.push((what, options));
            }
        }
    }
    cells
}

fn mounts(arguments: &Mounts) -> Outcome {
    let run = Run {
        profile: drive_tool::profile::load(&arguments.drive).map_err(|why| why.to_string())?,
        seed: arguments.seed,
        zones: arguments.zones,
        random: arguments.random_zones,
        application: Application::One,
        options: Options::default(),
    };
    let bar = bar(arguments.fill, "{bar:40} {bytes}/{total_bytes} {eta}");
    let result = simulate::mounts(&run, arguments.fill, |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    recorded(&result?, arguments.record.as_deref())
}

/// Prints a result, and adds it to a file.
fn recorded(result: &Value, record: Option<&Path>) -> Outcome {
    if let Some(record) = record {
        let failed = |why: std::io::Error| format!("{}: {why}", record.display());
        let file = File::options().append(true).create(true).open(record);
        writeln!(file.map_err(failed)?, "{result}").map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(result).map_err(|why| why.to_string())?;
    println!("{text}");
    Ok(())
}

fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
