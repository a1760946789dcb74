// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs fsck`.

use crate::common::{bar, opened, print, Outcome};
use safs::{Options, Report};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What fsck says (fsck(8)): everything was repaired,
const REPAIRED: u8 = 1;
/// errors are left,
const ERRORS_LEFT: u8 = 4;
/// it could not do its work,
pub const FAILED: u8 = 8;
/// it was not asked in a way that it understands,
pub const USAGE: u8 = 16;
/// it was told to stop.
const CANCELLED: u8 = 32;

#[derive(clap::Args)]
pub struct Arguments {
    /// The disk or the file
    device: PathBuf,
    /// Only checks; nothing is changed
    #[arg(long, short = 'n')]
    read_only: bool,
    /// What fsck(8) passes on: everything is repaired without questions anyway
    #[arg(short, short_aliases = ['p', 'y'])]
    a: bool,
    /// Also reads every block of every file
    #[arg(long)]
    data: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn act(arguments: &Arguments) -> Outcome {
    let (device, read_only) = (&arguments.device, arguments.read_only);
    let failed = |error: safs::Error| format!("{}: {error}", device.display());
    let options = Options {
        read_only,
        repair: true,
        ..Options::default()
    };
    cancel_when_signalled().map_err(|why| why.to_string())?;
    let mut fs = opened(device, options)?;
    let bar = bar(0, "{spinner} {pos} keys");
    let progress = |keys| bar.set_position(keys);
    let reports = match read_only {
        true => fs
            .check(arguments.data, progress)
            .map(|report| (report.clone(), report)),
        false => fs.repair(arguments.data, progress),
    };
    bar.finish_and_clear();
    let (report, left) = reports.map_err(failed)?;
    match arguments.json {
        true => say_json(&report, &left, fs.counters().copies_lost)?,
        false => say(device, &report, &left),
    }
    if !read_only {
        fs.unmount().map_err(failed)?;
    }
    Ok(
        match (report.problems.is_empty(), left.problems.is_empty()) {
            (_, false) => ExitCode::from(ERRORS_LEFT),
            (false, true) => ExitCode::from(REPAIRED),
            (true, true) => ExitCode::SUCCESS,
        },
    )
}

fn say_json(report: &Report, left: &Report, copies_lost: u64) -> Outcome<()> {
    print(&json!({
        "problems": report.problems,
        "left": left.problems,
        "inodes": report.inodes,
        "names": report.names,
        "extents": report.extents,
        "nodes": report.nodes,
        "read_bytes": report.read_bytes,
        "copies_lost": copies_lost,
    }))?;
    Ok(())
}

fn say(device: &Path, report: &Report, left: &Report) {
    report
        .problems
        .iter()
        .for_each(|problem| println!("{problem}"));
    println!(
        "{}: {} inodes, {} extents, {} nodes: {} problems, {} left",
        device.display(),
        report.inodes,
        report.extents,
        report.nodes,
        report.problems.len(),
        left.problems.len()
    );
}

/// A repair can end anywhere: each of its root records is as good as after a power cut.
fn cancel_when_signalled() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("safs: cancelled; what was repaired stays repaired");
            std::process::exit(i32::from(CANCELLED));
        }
    });
    Ok(())
}
