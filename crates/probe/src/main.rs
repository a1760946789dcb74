// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shingle-probe`: the tests on a disk or a simulated drive, the table of docs/guide/probe.md, and looks at a disk.

use clap::{Parser, Subcommand};
use drive_tool::profile::read;
use probe::block_device::{BlockDevice, Place};
use probe::compare::{probed, shown, Outcome, Probed};
use probe::disk::{Disk, Facts, Stop, BLOCK_BYTES};
use probe::finding::{Confidence, Finding, Value};
use probe::plan::Plan;
use probe::session::Session;
use probe::simulated::SimulatedDisk;
use probe::watch::{Stat, Watch};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use smr_drive::profile::Translation;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::SystemTime;

/// Finds out from timing alone what kind of drive a disk is
#[derive(Parser)]
#[command(name = "shingle-probe")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Probes a disk of this computer; without --destructive it only reads
    Disk {
        /// Such as /dev/sdb
        device: PathBuf,
        /// The device once more: what is on it will be lost
        #[arg(long, value_name = "DEVICE")]
        destructive: Option<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
    /// Probes a simulated drive, in virtual time
    Simulated {
        /// A drive profile (drives/*.toml)
        drive: PathBuf,
        /// Fresh from the factory, not one that has served
        #[arg(long)]
        fresh: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Probes simulated drives and says what was configured and what was found
    Table {
        /// Drive profiles
        #[arg(required = true)]
        drives: Vec<PathBuf>,
        /// Seed of the drives and of the tests' requests
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A page whose part between the marks is replaced by the table
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
    /// Looks at a disk that is in use: one JSON line a look
    Watch {
        /// Such as /dev/sdb
        device: PathBuf,
        /// Seconds between two looks: each costs a drive its idle delay
        #[arg(long, default_value_t = 5.0)]
        every: f64,
        /// Looks; without, until it is stopped
        #[arg(long)]
        looks: Option<u64>,
    },
}

#[derive(clap::Args)]
struct Options {
    /// Only these tests, and those they need
    #[arg(long, value_delimiter = ',', value_name = "TEST,…")]
    only: Vec<String>,
    /// Writes a drive profile that the lab can run
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Seed of the tests' requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Why the program ends without what it was asked for.
enum Trouble {
    /// The user asked for something that cannot be: status 2.
    Wrong(String),
    /// Something failed: status 1.
    Failed(String),
    /// The user stopped it: status 130.
    Interrupted,
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Interrupted => Trouble::Interrupted,
            other => Trouble::Failed(other.to_string()),
        }
    }
}

type Result<T = ()> = std::result::Result<T, Trouble>;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Disk {
            device,
            destructive,
            options,
        } => probe_device(&device, destructive.as_deref(), &options),
        Command::Simulated {
            drive,
            fresh,
            options,
        } => probe_simulated(&drive, fresh, &options),
        Command::Table { drives, seed, page } => table(&drives, seed, page.as_deref()),
        Command::Watch {
            device,
            every,
            looks,
        } => watch(&device, every, looks),
    };
    let (sentence, status) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Wrong(sentence)) => (sentence, 2),
        Err(Trouble::Failed(sentence)) => (sentence, 1),
        Err(Trouble::Interrupted) => ("stopped.".into(), 130),
    };
    eprintln!("shingle-probe: {sentence}");
    ExitCode::from(status)
}

/// Set by the signals that ask a program to end.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))
            .map_err(|why| Trouble::Failed(format!("signals cannot be heard: {why}")))?;
    }
    Ok(stopped)
}

fn probe_device(device: &Path, destructive: Option<&Path>, options: &Options) -> Result {
    let place = Place::find(device).map_err(Trouble::Wrong)?;
    let named_again = destructive
        .map(Place::find)
        .transpose()
        .map_err(Trouble::Wrong)?;
    if let Some(again) = &named_again {
        if again.number != place.number {
            let (a, b) = (device.display(), again.path.display());
            return Err(Trouble::Wrong(format!(
                "--destructive names {b}: expected {a} once more"
            )));
        }
    }
    let plan = Plan::new(&options.only, named_again.is_some()).map_err(Trouble::Wrong)?;
    let mut disk =
        BlockDevice::open(&place, named_again.is_some(), stop_flag()?).map_err(Trouble::Wrong)?;
    let open = left_open(&plan, device);
    probe(&mut disk, &plan, options, &today(), &open)
}

fn probe_simulated(drive: &Path, fresh: bool, options: &Options) -> Result {
    let plan = Plan::new(&options.only, true).map_err(Trouble::Wrong)?;
    let profile =
        drive_tool::profile::load(drive).map_err(|why| Trouble::Wrong(why.to_string()))?;
    refuse_zoned(&profile)?;
    let mut disk = match fresh {
        true => SimulatedDisk::new(profile, options.seed),
        false => SimulatedDisk::used(profile, options.seed),
    };
    probe(&mut disk, &plan, options, "a simulated drive", "")
}

fn refuse_zoned(profile: &smr_drive::profile::Profile) -> Result {
    match profile.translation {
        Translation::HostManaged(_) => Err(Trouble::Wrong(format!(
            "{} is host-managed: it tells its zones when asked and refuses random writes, so there is nothing to probe",
            profile.name
        ))),
        _ => Ok(()),
    }
}

/// The day by the computer's clock, as 2026-01-31.
#[allow(clippy::disallowed_methods)] // a measurement of a real disk has a day
fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March.
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `open`: what is said of the tests that are left out.
fn probe(disk: &mut dyn Disk, plan: &Plan, options: &Options, when: &str, open: &str) -> Result {
    // Before hours are spent.
    if let Some(path) = options.profile.as_deref() {
        let name = path.display();
        if path.exists() {
            return Err(Trouble::Wrong(format!(
                "{name} exists: expected the name of a new file for --profile"
            )));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        if folder.is_some_and(|p| !p.is_dir()) {
            return Err(Trouble::Wrong(format!(
                "{name}: expected a folder that exists for --profile"
            )));
        }
    }
    let facts = disk.facts().clone();
    eprintln!(
        "{} ({}), {}",
        facts.name,
        facts.model,
        plan.duration(&facts)
    );
    if !plan.left_out.is_empty() {
        eprintln!("only reading: that does not show whether the disk is shingled");
    }
    let mut session = Session::new(disk, options.seed, |what| eprintln!("  {what}"));
    let start_s = session.now_s();
    let ended = plan.run(&mut session);
    let seconds = session.now_s() - start_s;
    let stopped = ended.as_ref().err().map(ToString::to_string);
    let text = match options.json {
        true => {
            let why = "it needs writing: name the device again with --destructive";
            let unknown = |(name, summary)| Finding::open(name, summary, why.into());
            session.findings.0.extend(plan.left_open().map(unknown));
            as_json(&facts, &session, options.seed, seconds, stopped.as_deref())
        }
        false => for_people(&session.findings.0, seconds) + open,
    };
    print(&text)?;
    ended?;
    if let Some(path) = &options.profile {
        let profile = probe::profile::write(&session, when).map_err(Trouble::Failed)?;
        std::fs::write(path, profile)
            .map_err(|why| Trouble::Failed(format!("{}: {why}", path.display())))?;
        eprintln!("profile: {}", path.display());
    }
    Ok(())
}

fn as_json(
    facts: &Facts,
    session: &Session<'_>,
    seed: u64,
    seconds: f64,
    stopped: Option<&str>,
) -> String {
    let all = json!({
        "disk": facts.name,
        "model": facts.model,
        "capacity_bytes": facts.capacity_bytes,
        "seed": seed,
        "seconds": seconds,
        "stopped": stopped,
        "findings": session.findings,
    });
    format!("{all}\n")
}

fn for_people(findings: &[Finding], seconds: f64) -> String {
    let mut text = String::new();
    for finding in findings {
        let value = match &finding.value {
            None => "could not tell".into(),
            Some(value) => format!(
                "{} {}",
                shown(value),
                if finding.unit == "1" {
                    ""
                } else {
                    &finding.unit
                }
            ),
        };
        let interval = finding.interval.map_or(String::new(), |(low, high)| {
            format!(
                "{} to {}",
                shown(&Value::Number(low)),
                shown(&Value::Number(high))
            )
        });
        let confidence = match finding.confidence {
            Some(Confidence::High) => "high",
            Some(Confidence::Medium) => "medium",
            Some(Confidence::Low) => "low",
            None => "",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<48} {value:<22} {interval:<24} {confidence}",
            finding.what
        );
        let _ = writeln!(text, "    {}", finding.how);
    }
    let _ = writeln!(
        text,
        "{} findings in {seconds:.0} s of the disk's time",
        findings.len()
    );
    text
}

/// What a probe that only reads leaves open, and how to find it out; once for all of it.
fn left_open(plan: &Plan, device: &Path) -> String {
    if plan.left_out.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nNot looked for, because it needs writing to the disk:\n");
    for (name, summary) in plan.left_open() {
        let _ = writeln!(text, "  {name:<15} {summary}");
    }
    let disk = device.display();
    let _ = writeln!(
        text,
        "So whether this disk is shingled is open. To find it out, and lose all that is on the disk:\n  \
         shingle probe {disk} --destructive {disk}"
    );
    text
}

fn print(text: &str) -> Result {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader of a pipe has seen enough.
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            Err(Trouble::Failed(why.to_string()))
        }
        _ => Ok(()),
    }
}

const MARK_BEGIN: &str = "<!-- table: begin -->\n";
const MARK_END: &str = "<!-- table: end -->\n";

fn table(drives: &[PathBuf], seed: u64, page: Option<&Path>) -> Result {
    let mut text = String::new();
    let (mut agree, mut all) = (0, 0);
    let (mut zoned, mut armless) = (Vec::new(), Vec::new());
    for path in drives {
        let file = path.display().to_string();
        let source = std::fs::read_to_string(path)
            .map_err(|why| Trouble::Wrong(format!("{file}: {why}")))?;
        let written = read(&file, &source).map_err(|why| Trouble::Wrong(why.to_string()))?;
        eprintln!("{file}");
        match probed(&written, seed).map_err(|why| Trouble::Failed(format!("{file}: {why}")))? {
            Outcome::TellsItsZones => zoned.push(written.name),
            Outcome::HasNoArm => armless.push(written.name),
            Outcome::Probed(Probed { text: part, rows }) => {
                agree += rows.iter().filter(|r| r.agrees()).count();
                all += rows.len();
                let _ = writeln!(text, "{part}");
            }
        }
    }
    let _ = writeln!(
        text,
        "In all {agree} of {all} agree within 15 % (seed {seed})."
    );
    for (left, why) in [
        (zoned, "they tell their zones when asked"),
        (armless, "there is no arm to measure"),
    ] {
        if !left.is_empty() {
            let _ = writeln!(text, "Not probed, because {why}: {}.", left.join(", "));
        }
    }
    match page {
        None => print(&text),
        Some(page) => replace_between_marks(page, &text),
    }
}

fn replace_between_marks(page: &Path, text: &str) -> Result {
    let name = page.display();
    let old =
        std::fs::read_to_string(page).map_err(|why| Trouble::Wrong(format!("{name}: {why}")))?;
    let parts = old
        .split_once(MARK_BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(MARK_END)?.1)));
    let (before, after) = parts.ok_or_else(|| {
        Trouble::Wrong(format!(
            "{name}: expected the lines {} and {}",
            MARK_BEGIN.trim(),
            MARK_END.trim()
        ))
    })?;
    std::fs::write(page, format!("{before}{MARK_BEGIN}{text}{MARK_END}{after}"))
        .map_err(|why| Trouble::Failed(format!("{name}: {why}")))
}

fn watch(device: &Path, every_s: f64, looks: Option<u64>) -> Result {
    if !(0.2..=3600.0).contains(&every_s) {
        return Err(Trouble::Wrong(format!(
            "--every {every_s}: expected 0.2 to 3600 seconds"
        )));
    }
    let place = Place::find(device).map_err(Trouble::Wrong)?;
    let mut disk = BlockDevice::share(&place, stop_flag()?).map_err(Trouble::Wrong)?;
    let stat = || place.attribute("stat").and_then(|text| Stat::parse(&text));
    let mut before = stat().ok_or_else(|| {
        Trouble::Failed(format!("{}: the kernel keeps no counts", device.display()))
    })?;
    let mut watch = Watch::default();
    let blocks = disk.facts().capacity_bytes / BLOCK_BYTES;
    let (start_ns, mut last_ns) = (disk.now_ns(), disk.now_ns());
    for i in 0..looks.unwrap_or(u64::MAX) {
        disk.idle((every_s * 1e9) as u64)?;
        let now = stat().unwrap_or(before);
        let began_ns = disk.now_ns();
        // Steps by the golden ratio: all over the disk, never twice, without a seed.
        disk.read(
            (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks * BLOCK_BYTES,
            BLOCK_BYTES,
        )?;
        let seconds = (began_ns - last_ns) as f64 / 1e9;
        let mut look = now.look(&before, seconds, u64::from(i > 0));
        look.read_ms = (disk.now_ns() - began_ns) as f64 / 1e6;
        look.at_s = (began_ns - start_ns) as f64 / 1e9;
        let verdict = watch.add(look);
        print(&format!(
            "{}\n",
            json!({"look": look, "verdict": verdict, "sentence": verdict.sentence()})
        ))?;
        (before, last_ns) = (now, began_ns);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_writing_is_said_once_with_the_command_that_finds_it_out() {
        let text = left_open(&Plan::new(&[], false).unwrap(), Path::new("/dev/sdx"));
        assert_eq!(text.matches("needs writing").count(), 1, "{text}");
        assert_eq!(text.matches("--destructive /dev/sdx").count(), 1, "{text}");
        assert!(text.contains("kind            whether small writes go in place"));
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(
            left_open(&Plan::new(&[], true).unwrap(), Path::new("/dev/sdx")),
            ""
        );
    }
}
