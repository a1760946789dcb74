// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs mount`, and its half that only unmounts.

use crate::common::{Outcome, PlacementName};
use crate::serve::{self, MountOptions};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// The disk or the file
    device: PathBuf,
    /// Where
    directory: PathBuf,
    /// Nothing is written
    #[arg(long)]
    read_only: bool,
    /// Other users may use it, too
    #[arg(long)]
    allow_other: bool,
    /// Where data go first
    #[arg(long, value_enum, default_value = "auto")]
    placement: PlacementName,
    /// Where retentions copy what they give up
    #[arg(long)]
    cold: Option<PathBuf>,
    /// Options of mount(8), separated by commas: ro, allow_other, placement=log, cold=DIRECTORY
    #[arg(short = 'o', value_delimiter = ',')]
    option: Vec<String>,
    /// Stays in the foreground
    #[arg(short, long)]
    foreground: bool,
}

/// `words` are the arguments as they were given, the command first, for the process that goes on in the background.
pub fn act(arguments: Arguments, words: &[String]) -> Outcome {
    let mut options = MountOptions::default();
    (options.read_only, options.allow_other) = (arguments.read_only, arguments.allow_other);
    (options.placement, options.cold) = (arguments.placement, arguments.cold);
    let mut more = arguments.option.iter();
    more.try_for_each(|option| options.add(option))?;
    match arguments.foreground {
        true => serve::mount(&arguments.device, &arguments.directory, &options),
        false => serve::in_background(words),
    }
}

#[derive(clap::Args)]
pub struct Unmount {
    /// Where it is mounted
    directory: PathBuf,
}

pub fn unmount_when_told(arguments: &Unmount) -> Outcome {
    serve::unmount_when_told(&arguments.directory)
}
