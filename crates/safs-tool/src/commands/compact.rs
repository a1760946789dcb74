// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs compact`.

use crate::common::{bar, opened, Outcome};
use safs::Options;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// The disk or the file
    device: PathBuf,
    /// Also what several files share
    #[arg(long)]
    all: bool,
}

pub fn act(Arguments { device, all }: &Arguments) -> Outcome {
    let failed = |error: safs::Error| format!("{}: {error}", device.display());
    let mut fs = opened(device, Options::default())?;
    let bar = bar(0, "{spinner} {pos} zones left");
    let result = fs.compact(*all, |left| bar.set_position(left as u64));
    bar.finish_and_clear();
    let space = result.map_err(failed)?;
    let moved = fs.counters().moved_bytes;
    fs.unmount().map_err(failed)?;
    println!(
        "{} bytes moved, {} of {} blocks free",
        moved, space.free, space.blocks
    );
    Ok(ExitCode::SUCCESS)
}
