// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites of SAFS for as long as one likes: power cuts, the model, forged images.
//!
//!     cargo run --release -p safs-sim --example suites -- cuts --states 20000
//!     cargo run --release -p safs-sim --example suites -- model --stories 500
//!     cargo run --release -p safs-sim --example suites -- fuzz --seeds 100000
//!     cargo run --release -p safs-sim --example suites -- room
//!
//! Each works in processes of its own, so that a panic, which ends the program as it ends the shipped one, is one failure
//! among others. A failure says how it is had again. docs/results/safs-tests.md has the whole.

mod board;
mod room;
mod run;
mod source;
mod work;

use clap::{Parser, ValueEnum};
use safs_sim::suites;
use std::path::PathBuf;
use std::process::ExitCode;

/// Ends the program if an image takes more than any of its size is worth.
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// A power cut after each action of the device, and a second one in the recovery
    Cuts,
    /// The same answers and contents as a file system in memory
    Model,
    /// Forged images
    Fuzz,
    /// Usable space: fill, delete a random half, fill again
    Room,
}

/// The suites of SAFS, for as long as one likes
#[derive(Clone, Debug, Parser)]
#[command(name = "suites")]
pub struct Arguments {
    /// Which
    #[arg(value_enum)]
    pub suite: Suite,
    /// Cuts: distinct states; model: stories; fuzz: images; room: rounds of a case, 10 at most
    #[arg(long, visible_aliases = ["states", "stories", "seeds", "rounds"], default_value_t = 2000)]
    pub count: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only configurations with this word, or that begin or end so: image, full, image/default; room: 4096/64/log
    #[arg(long, default_value = "")]
    pub config: String,
    /// Processes at a time
    #[arg(long, default_value_t = 1)]
    pub jobs: usize,
    /// Adds the results to this file, a line of JSON for each configuration and one for all
    #[arg(long)]
    pub record: Option<PathBuf>,
    /// Ends after so many failures
    #[arg(long, default_value_t = 1)]
    pub failures: usize,
    /// Nobody sets the wall clock; the record says so
    #[arg(long)]
    pub steady: bool,
    /// One case again, as a failure names it: image/default/full:7, or image/default/full:7:120 for one cut
    #[arg(long)]
    pub replay: Option<String>,
    /// A process of a run: does the seeds from the first to before the second
    #[arg(long, hide = true, num_args = 2)]
    pub work: Option<Vec<u64>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.suite {
        Suite::Room => room::act(&arguments),
        _ => work::act(&arguments).unwrap_or_else(|| run::act(&arguments)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("suites: {sentence}");
            ExitCode::from(2)
        }
    }
}
