// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shingle-drive`: makes, inspects and exports simulated drives.

use clap::{Parser, Subcommand};
use smr_drive::contents::Contents;
use smr_drive::state::State;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
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
        /// The drive file
        #[arg(short, long)]
        output: PathBuf,
    },
}

fn create(
    profile: &Path,
    capacity_bytes: Option<u64>,
    seed: u64,
    output: &Path,
) -> Result<(), String> {
    let mut profile = drive_tool::profile::load(profile).map_err(|e| e.to_string())?;
    if let Some(bytes) = capacity_bytes {
        if bytes == 0 || bytes > profile.capacity_bytes || bytes % 4096 != 0 {
            return Err(format!(
                "--capacity-bytes {bytes}: expected a multiple of 4096 up to {}",
                profile.capacity_bytes
            ));
        }
        profile.capacity_bytes = bytes;
    }
    let state = State::new(profile, seed);
    let failed = |why: std::io::Error| format!("{}: {why}", output.display());
    let mut file = BufWriter::new(File::create(output).map_err(failed)?);
    smr_drive::file::save(&state, &Contents::new(), &BTreeMap::new(), |b| {
        file.write_all(b)
    })
    .map_err(failed)?;
    file.flush().map_err(failed)
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Create {
            profile,
            capacity_bytes,
            seed,
            output,
        } => create(&profile, capacity_bytes, seed, &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("shingle-drive: {why}");
            ExitCode::FAILURE
        }
    }
}
