// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shingle-drive`: makes, inspects and exports simulated drives.

mod commands_load;
mod commands_validate;

use clap::{Parser, Subcommand};
use drive_tool::{any_trace, drive_file, faults, profile, trace_file};
use serde_json::{json, Value};
use smr_drive::profile::Translation;
use smr_drive::state::State;
use smr_drive::Drive;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes, inspects and exports simulated drives.
#[derive(Parser)]
#[command(name = "shingle-drive")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a new drive
    Create {
        /// Model of the drive (drives/*.toml)
        #[arg(long)]
        profile: PathBuf,
        /// Make it smaller: only the outermost part of the platters
        #[arg(long)]
        capacity_bytes: Option<u64>,
        /// What differs between two drives of a model
        #[arg(long)]
        seed: u64,
        /// Every band was written before, as on a drive that has served: cleaning has to read and save all of it
        #[arg(long)]
        used: bool,
        /// The drive file
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Says what a drive is, and what is left to clean
    Info {
        /// The drive file
        drive: PathBuf,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Writes a sparse raw image of what the next power-on would read
    Export {
        /// The drive file
        drive: PathBuf,
        /// The image
        image: PathBuf,
    },
    /// Writes the same drive with all cleaning done
    Clean {
        /// The drive file
        drive: PathBuf,
        /// The new drive file
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Reads a request trace
    Trace {
        /// The trace
        trace: PathBuf,
        /// One line for each request
        #[arg(long, conflicts_with = "summary")]
        csv: bool,
        /// A table (the default)
        #[arg(long)]
        summary: bool,
    },
    /// Checks and shows profiles
    Profile {
        #[command(subcommand)]
        command: ProfileCommand,
    },
    /// Checks a plan of faults
    Faults {
        #[command(subcommand)]
        command: faults::FaultsCommand,
    },
    /// Plays a trace to a drive, with no kernel: one of ours, or text of blkparse
    Replay(commands_load::Replay),
    /// Random or sequential requests to a drive, with no kernel
    Load(commands_load::Load),
    /// Compares drives with what was measured on real ones
    Validate(commands_validate::Validate),
    /// What the figures of the validation are drawn from, as JSON
    Curves(commands_validate::Curves),
}

#[derive(Subcommand)]
enum ProfileCommand {
    /// Reads each file and says what is wrong with it
    Check {
        /// Profiles
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Shows every parameter with its source
    Show {
        /// A file, or the name of one in drives/
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Create {
            profile,
            capacity_bytes,
            seed,
            used,
            output,
        } => create(&profile, capacity_bytes, seed, used, &output),
        Command::Info { drive, json } => info(&drive, json),
        Command::Export { drive, image } => export(&drive, &image),
        Command::Clean { drive, output } => clean(&drive, &output),
        Command::Trace { trace, csv, .. } => trace_command(&trace, csv),
        Command::Profile {
            command: ProfileCommand::Check { files },
        } => check(&files),
        Command::Profile {
            command: ProfileCommand::Show { name, json },
        } => show(&name, json),
        Command::Faults { command } => faults::run(command),
        Command::Replay(args) => commands_load::replay(&args),
        Command::Load(args) => commands_load::load(&args),
        Command::Validate(args) => commands_validate::validate(&args),
        Command::Curves(args) => commands_validate::curves(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("shingle-drive: {why}");
            ExitCode::FAILURE
        }
    }
}

fn create(
    profile: &Path,
    capacity_bytes: Option<u64>,
    seed: u64,
    used: bool,
    output: &Path,
) -> Result {
    let mut profile = profile::load(profile).map_err(|e| e.to_string())?;
    if let Some(bytes) = capacity_bytes {
        if bytes == 0 || bytes > profile.capacity_bytes || bytes % 4096 != 0 {
            let most = profile.capacity_bytes;
            return Err(format!(
                "--capacity-bytes {bytes}: expected a multiple of 4096 up to {most}"
            ));
        }
        profile.capacity_bytes = bytes;
    }
    let state = if used {
        State::used(profile, seed)
    } else {
        State::new(profile, seed)
    };
    drive_file::create(&state, output)
}

fn info(path: &Path, as_json: bool) -> Result {
    let opened = drive_file::open(path)?;
    let state = opened.state.clone();
    let mut drive = Drive::new(opened, 0);
    drive
        .verify()
        .map_err(|leaf| drive_file::damaged(path, leaf))?;
    let snapshot = drive.snapshot();
    let contents = drive.contents_mut().census();
    let info = json!({
        "profile": state.profile.name,
        "model": state.profile.model,
        "capacity_bytes": state.profile.capacity_bytes,
        "seed": state.seed,
        "translation": match state.profile.translation {
            Translation::Conventional => "conventional",
            Translation::StaticMapping(_) => "static_mapping",
            Translation::HostManaged(_) => "host_managed",
            Translation::HostAware(_) => "host_aware",
            Translation::Enforcing(_) => "enforcing",
            Translation::SBlocks(_) => "s_blocks",
        },
        "clean": snapshot.clean,
        "cache_entries": snapshot.cache_entries,
        "cache_bytes": snapshot.cache_bytes,
        "bands_dirty": snapshot.bands_dirty,
        "written_in_place_bytes": snapshot.written_blocks * 4096,
        "blocks_of_one_word": contents.words,
        "blocks_held": contents.lines,
    });
    print(&info, as_json)
}

/// An object as JSON, or one line for each field.
fn print(object: &Value, as_json: bool) -> Result {
    let mut out = io::stdout().lock();
    let written = if as_json {
        writeln!(out, "{object}")
    } else {
        let mut fields = object.as_object().into_iter().flatten();
        fields.try_for_each(|(key, value)| {
            writeln!(out, "{key:<24} {}", value.to_string().trim_matches('"'))
        })
    };
    written.map_err(|why| why.to_string())
}

fn export(drive: &Path, image: &Path) -> Result {
    drive_file::export(&mut drive_file::open(drive)?, image, drive).map(|_| ())
}

fn clean(path: &Path, output: &Path) -> Result {
    let mut drive = Drive::new(drive_file::open(path)?, 0);
    drive
        .verify()
        .map_err(|leaf| drive_file::damaged(path, leaf))?;
    drive.clean_now();
    drive_file::save(&drive, output)
}

fn trace_command(path: &Path, csv: bool) -> Result {
    let events = any_trace::read_file(path)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if csv {
        trace_file::write_csv(&events, &mut out)
    } else {
        let text = trace_file::summary(&events).map_err(|why| why.to_string())?;
        out.write_all(text.as_bytes())
    };
    match written.and_then(|()| out.flush()) {
        // The reader of a pipe has seen enough.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|why| why.to_string()),
    }
}

fn check(files: &[PathBuf]) -> Result {
    let mut wrong = 0;
    for file in files {
        match profile::load(file) {
            Ok(profile) => println!("{}: {}", file.display(), profile.model),
            Err(why) => {
                eprintln!("{why}");
                wrong += 1;
            }
        }
    }
    match wrong {
        0 => Ok(()),
        n => Err(format!("{n} of {} profiles are wrong", files.len())),
    }
}

fn show(name: &str, as_json: bool) -> Result {
    let path = if Path::new(name).exists() {
        PathBuf::from(name)
    } else {
        Path::new("drives").join(format!("{name}.toml"))
    };
    let file = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{file}: {why}"))?;
    let text = profile::read(&file, &text).map_err(|why| why.to_string())?;
    if as_json {
        let parameters = text.parameters.iter().map(|(key, p)| {
            let parameter =
                json!({"value": p.value, "unit": p.unit, "source": p.source, "confidence": p.confidence});
            (key.clone(), parameter)
        });
        let parameters: serde_json::Map<String, Value> = parameters.collect();
        let profile = json!({"name": text.name, "model": text.model, "translation": text.kind, "parameters": parameters});
        return print(&profile, true);
    }
    println!("{} ({}), {}", text.name, text.model, text.kind);
    for (key, p) in &text.parameters {
        println!(
            "{key:<32} {:>14} {:<8} {}  {}",
            p.value, p.unit, p.confidence, p.source
        );
    }
    Ok(())
}
