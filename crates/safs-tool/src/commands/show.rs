// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs dump` and `safs stat`: what is on the disk.

use crate::common::{looked_at, print, Outcome};
use crate::show;
use clap::Subcommand;
use safs::{recovery, Disk};
use safs_tool::host::HostDevice;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zoned::ZoneId;

#[derive(clap::Args)]
pub struct Dump {
    /// The disk or the file
    device: PathBuf,
    /// What
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The superblock
    Superblock,
    /// Root records, the newest first
    Roots,
    /// The zone table
    Zones,
    /// Every key of the catalog
    Catalog,
    /// A segment's header and its batches
    Segment {
        /// Zone and block, as 17:0
        place: String,
    },
}

#[derive(clap::Args)]
pub struct Stat {
    /// The disk or the file
    device: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn dump(Dump { device, what }: &Dump) -> Outcome {
    let failed = |error: safs::Error| format!("{}: {error}", device.display());
    match what {
        What::Superblock | What::Roots => {
            let mut disk = Disk::new(HostDevice::open(device, false)?).map_err(failed)?;
            let superblock = recovery::superblock(&mut disk).map_err(failed)?;
            if matches!(what, What::Superblock) {
                return print(&show::superblock(&superblock));
            }
            let roots = recovery::roots(&mut disk, &superblock).map_err(failed)?;
            let roots: Vec<Value> = roots
                .iter()
                .map(|(root, copies)| show::root(root, *copies))
                .collect();
            print(&Value::Array(roots))
        }
        What::Zones => {
            let fs = looked_at(device)?;
            let zones = fs.zones().iter().map(|(_, entry)| show::zone_entry(entry));
            print(&Value::Array(zones.collect()))
        }
        What::Catalog => {
            let mut fs = looked_at(device)?;
            fs.each_key(|key, value| println!("{key:?} {}", show::value(key, value)))
                .map_err(failed)?;
            Ok(ExitCode::SUCCESS)
        }
        What::Segment { place } => segment(device, place),
    }
}

fn segment(device: &Path, place: &str) -> Outcome {
    let numbers = place
        .split_once(':')
        .and_then(|(zone, block)| Some((zone.parse().ok()?, block.parse().ok()?)));
    let (zone, block) =
        numbers.ok_or_else(|| format!("{place}: expected a zone and a block, as 17:0"))?;
    let header = looked_at(device)?
        .segment(ZoneId(zone), block)
        .map_err(|error| format!("{}: {error}", device.display()))?;
    print(&show::header(&header))
}

pub fn stat(arguments: &Stat) -> Outcome {
    let fs = looked_at(&arguments.device)?;
    let geometry = fs.geometry();
    let statistics = show::statistics(&fs, geometry);
    if arguments.json {
        return print(&statistics);
    }
    print(&statistics)?;
    println!(
        "R random  . free  l log  f file  s shared  ! given up; capital: at least half of it lives"
    );
    println!("{}", show::map(&fs).trim_start_matches('\n'));
    Ok(ExitCode::SUCCESS)
}
