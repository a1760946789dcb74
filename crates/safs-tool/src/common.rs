// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands share: how they end, what they print, and how they open a disk.

use crate::fuse::now_ns;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use safs::{FileSystem, Options, Placement};
use safs_tool::host::HostDevice;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

/// Why the program ends without what it was asked for: a sentence.
pub type Outcome<T = ExitCode> = Result<T, String>;

/// Where data go first, as it is said on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementName {
    /// Everything to the log, as in the slides
    Log,
    /// Large streams to zones of their own
    Auto,
}

impl PlacementName {
    pub fn options(self) -> Options {
        let placement = match self {
            PlacementName::Log => Placement::Log,
            PlacementName::Auto => Placement::Auto,
        };
        Options {
            placement,
            ..Options::default()
        }
    }
}

/// A number of bytes on the command line.
pub fn bytes(text: &str) -> Result<u64, String> {
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

pub fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub fn print(value: &Value) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(|why| why.to_string())?;
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// Mounts, with what this host has of memory.
pub fn opened(device: &Path, options: Options) -> Outcome<FileSystem<HostDevice>> {
    let image = HostDevice::open(device, !options.read_only)?;
    let host = rustix::system::sysinfo();
    let memory_bytes = host.totalram as u64 * u64::from(host.mem_unit);
    FileSystem::mount(image, options.within(memory_bytes), now_ns())
        .map_err(|error| format!("{}: {error}", device.display()))
}

/// Without changing anything: what a crash left in the log is applied in memory only.
pub fn looked_at(device: &Path) -> Outcome<FileSystem<HostDevice>> {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    opened(device, options)
}
