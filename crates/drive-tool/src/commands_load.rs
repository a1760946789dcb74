// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shingle-drive load` and `shingle-drive replay`.

use clap::{Args, ValueEnum};
use drive_tool::any_trace;
use drive_tool::host::Host;
use drive_tool::load::{self, size};
use drive_tool::meter::Meter;
use drive_tool::profile;
use drive_tool::replay;
use serde_json::{json, Value};
use smr_drive::request::Op;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// What requests to make.
#[derive(Args)]
pub struct Load {
    /// Model of the drive
    #[arg(long)]
    profile: PathBuf,
    /// Kind of requests
    #[arg(long, value_enum)]
    op: Kind,
    /// Size of a request
    #[arg(long, value_parser = size, default_value = "4k")]
    block: u64,
    /// From the drive's start on; the whole drive if not given
    #[arg(long, value_parser = size)]
    range: Option<u64>,
    /// Requests
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Requests at a time
    #[arg(long, default_value_t = 1)]
    depth: u32,
    #[command(flatten)]
    common: Common,
}

/// What to play.
#[derive(Args)]
pub struct Replay {
    /// Model of the drive
    #[arg(long)]
    profile: PathBuf,
    /// Where to write the new trace
    #[arg(long)]
    trace_out: Option<PathBuf>,
    /// The trace: one of ours, or text of blkparse
    trace: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What both take.
#[derive(Args)]
struct Common {
    /// Of the drive and the requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A factory-new drive; otherwise every band was written before
    #[arg(long)]
    new: bool,
    /// A request that takes as long is a stall
    #[arg(long, default_value_t = 80)]
    stall_ms: u64,
    /// The drive is looked at so often
    #[arg(long, default_value_t = 1000)]
    interval_ms: u64,
    /// Also add JSON lines to this file
    #[arg(long)]
    record: Option<PathBuf>,
}

impl Common {
    fn meter(&self) -> Meter {
        Meter::new(self.stall_ms * 1_000_000, self.interval_ms * 1_000_000)
    }
}

/// Kinds of load.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
}

/// Makes the requests and says what they saw.
pub fn load(args: &Load) -> Result<(), String> {
    let profile = profile::load(&args.profile).map_err(|why| why.to_string())?;
    let (name, capacity) = (profile.name.clone(), profile.capacity_bytes);
    let mut host = if args.common.new {
        Host::new(profile, args.common.seed)
    } else {
        Host::used(profile, args.common.seed)
    };
    let (op, random) = match args.op {
        Kind::Randread => (Op::Read, true),
        Kind::Randwrite => (Op::Write, true),
        Kind::Read => (Op::Read, false),
        Kind::Write => (Op::Write, false),
    };
    let load = load::Load {
        op,
        random,
        block: args.block,
        range: args.range.unwrap_or(capacity),
        count: args.count,
        depth: args.depth,
        seed: args.common.seed,
    };
    load.check(&host)?;
    let mut meter = args.common.meter();
    load.run(&mut host, &mut meter);
    let kind = args.op.to_possible_value();
    let asked = json!({
        "event": "load", "drive": name, "op": kind.as_ref().map(|v| v.get_name()), "block": load.block,
        "range": load.range, "count": load.count, "depth": load.depth, "seed": load.seed, "used": !args.common.new,
    });
    let mut report = String::new();
    host.drive
        .report(host.now_ns, &mut report)
        .map_err(|why| why.to_string())?;
    show(&args.common, asked, &meter, &report)
}

/// Plays the trace and says what its requests saw.
pub fn replay(args: &Replay) -> Result<(), String> {
    let profile = profile::load(&args.profile).map_err(|why| why.to_string())?;
    let name = profile.name.clone();
    let options = replay::Options {
        seed: args.common.seed,
        used: !args.common.new,
        keep_trace: args.trace_out.is_some(),
    };
    let events = any_trace::read_file(&args.trace)?;
    let mut replayed = replay::replay(profile, options, &events, args.common.meter());
    if let Some(path) = &args.trace_out {
        std::fs::write(path, &replayed.trace)
            .map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let asked = json!({
        "event": "replay", "drive": name, "seed": options.seed, "used": options.used, "refused": replayed.refused,
    });
    if replayed.refused > 0 {
        println!(
            "{} requests were refused: beyond the end of the drive, too long, or a command that it does not have",
            replayed.refused
        );
    }
    let end_ns = replayed.end_ns;
    let mut report = String::new();
    replayed
        .drive
        .report(end_ns, &mut report)
        .map_err(|why| why.to_string())?;
    show(&args.common, asked, replayed.meter(), &report)
}

fn show(common: &Common, asked: Value, meter: &Meter, report: &str) -> Result<(), String> {
    if let Some(path) = &common.record {
        let counters: Value = serde_json::from_str(report).map_err(|why| why.to_string())?;
        let mut lines = vec![asked];
        lines.extend(meter.records());
        lines.push(json!({"event": "counters", "counters": counters}));
        let added = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| lines.iter().try_for_each(|line| writeln!(file, "{line}")));
        added.map_err(|why| format!("{}: {why}", path.display()))?;
    }
    match meter.print(&mut io::stdout().lock()) {
        // The reader of a pipe has seen enough.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|why| why.to_string()),
    }
}
