// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs`: makes, mounts, checks and shows the append-only file system.

mod cold;
mod commands;
mod common;
mod fuse;
mod sandbox;
mod say;
mod serve;
mod show;

use clap::{Parser, Subcommand};
use commands::{compact, fsck, mkfs, mount, retain};
use common::Outcome;
use std::path::Path;
use std::process::ExitCode;

/// An append-only file system for shingled disks
#[derive(Parser)]
#[command(name = "safs", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a file system on an image file or a disk; what is there is lost
    Mkfs(mkfs::Arguments),
    /// Mounts, and goes on in the background until it is unmounted
    Mount(mount::Arguments),
    /// Unmounts when it is told to on its standard input, for a server that cannot itself
    #[command(hide = true)]
    UnmountWhenTold(mount::Unmount),
    /// Checks and repairs. Status as fsck(8): 1 repaired, 4 something is wrong still, 8 could not, 16 usage, 32 cancelled
    Fsck(fsck::Arguments),
    /// Shows what is on the disk, as JSON
    Dump(commands::show::Dump),
    /// Shows how zones are used
    Stat(commands::show::Stat),
    /// Moves data from the log to their files' zones; the file system is not mounted
    Compact(compact::Arguments),
    /// Says what a file or a directory of a mounted file system keeps; without limits, shows it
    Retain(retain::Arguments),
}

fn main() -> ExitCode {
    let arguments = arguments();
    let is_fsck = arguments.get(1).is_some_and(|command| command == "fsck");
    let (failed, usage) = match is_fsck {
        true => (fsck::FAILED, fsck::USAGE),
        false => (1, 2),
    };
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(why) => {
            let _ = why.print();
            return ExitCode::from(if why.use_stderr() { usage } else { 0 });
        }
    };
    act(cli.command, &arguments[1..]).unwrap_or_else(|sentence| {
        eprintln!("safs: {sentence}");
        ExitCode::from(failed)
    })
}

/// mount(8), fsck(8) and mkfs(8) call programs named after the file system.
fn arguments() -> Vec<String> {
    let mut arguments: Vec<String> = std::env::args().collect();
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    let command = match name.and_then(|name| name.to_str()) {
        Some("mkfs.safs") => "mkfs",
        Some("mount.safs") => "mount",
        Some("fsck.safs") => "fsck",
        _ => return arguments,
    };
    arguments.insert(1, command.into());
    arguments
}

/// `words` are the arguments without the program's name.
fn act(command: Command, words: &[String]) -> Outcome {
    match command {
        Command::Mkfs(arguments) => mkfs::act(&arguments),
        Command::Mount(arguments) => mount::act(arguments, words),
        Command::UnmountWhenTold(arguments) => mount::unmount_when_told(&arguments),
        Command::Fsck(arguments) => fsck::act(&arguments),
        Command::Dump(arguments) => commands::show::dump(&arguments),
        Command::Stat(arguments) => commands::show::stat(&arguments),
        Command::Compact(arguments) => compact::act(&arguments),
        Command::Retain(arguments) => retain::act(&arguments),
    }
}
