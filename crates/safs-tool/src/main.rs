// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs`: makes, mounts, checks and shows the append-only file system.

mod cold;
mod fuse;
mod sandbox;
mod say;
mod serve;
mod show;
mod simulate;

use clap::{Parser, Subcommand, ValueEnum};
use fuse::now_ns;
use indicatif::{ProgressBar, ProgressStyle};
use safs::format::Uuid;
use safs::host::HostDevice;
use safs::{check_device, make, recovery};
use safs::{Disk, FileSystem, MakeOptions, Options, Placement, Retention};
use serde_json::{json, Value};
use serve::MountOptions;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zoned::{ZoneId, ZonedDevice};

/// What fsck says (fsck(8)): everything was repaired,
const FSCK_REPAIRED: u8 = 1;
/// errors are left,
const FSCK_ERRORS_LEFT: u8 = 4;
/// it could not do its work,
const FSCK_FAILED: u8 = 8;
/// it was not asked in a way that it understands,
const FSCK_USAGE: u8 = 16;
/// it was told to stop.
const FSCK_CANCELLED: u8 = 32;

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
    Mkfs {
        /// The disk or the file
        device: PathBuf,
        /// Makes the file, with this many bytes (K, M, G, T)
        #[arg(long, value_parser = bytes)]
        size: Option<u64>,
        /// Bytes of a zone, a multiple of 1 MiB; the disk's own if not said, or 256M where it has none
        #[arg(long, value_parser = bytes)]
        zone_size: Option<u64>,
        /// Zones that are written in any order; a hundredth if not said
        #[arg(long)]
        random_zones: Option<u32>,
        /// A name, up to 64 bytes
        #[arg(short = 'L', long, default_value = "")]
        label: String,
        /// 32 hexadecimal digits; by chance if not said
        #[arg(long, value_parser = uuid)]
        uuid: Option<Uuid>,
    },
    /// Mounts, and goes on in the background until it is unmounted
    Mount {
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
        #[command(flatten)]
        how: How,
        /// Where retentions copy what they give up
        #[arg(long)]
        cold: Option<PathBuf>,
        /// Options of mount(8), separated by commas: ro, allow_other, placement=log, cold=DIRECTORY
        #[arg(short = 'o', value_delimiter = ',')]
        option: Vec<String>,
        /// Stays in the foreground
        #[arg(short, long)]
        foreground: bool,
    },
    /// Unmounts when it is told to on its standard input, for a server that cannot itself
    #[command(hide = true)]
    UnmountWhenTold {
        /// Where it is mounted
        directory: PathBuf,
    },
    /// Checks and repairs. Status as fsck(8): 1 repaired, 4 something is wrong still, 8 could not, 16 usage, 32 cancelled
    Fsck {
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
    },
    /// Shows what is on the disk, as JSON
    Dump {
        /// The disk or the file
        device: PathBuf,
        /// What
        #[command(subcommand)]
        what: What,
    },
    /// Shows how zones are used
    Stat {
        /// The disk or the file
        device: PathBuf,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Moves data from the log to their files' zones; the file system is not mounted
    Compact {
        /// The disk or the file
        device: PathBuf,
        /// Also what several files share
        #[arg(long)]
        all: bool,
    },
    /// Says what a file or a directory of a mounted file system keeps; without limits, shows it
    Retain {
        /// The file, whose beginning will go, or the directory, whose oldest files will
        path: PathBuf,
        /// The newest so many bytes (K, M, G, T)
        #[arg(long, value_parser = bytes)]
        bytes: Option<u64>,
        /// What is younger (s, m, h, d)
        #[arg(long, value_parser = seconds)]
        age: Option<u64>,
        /// What goes is copied first, to the directory that the mount's option cold= names. Only root can say so
        #[arg(long)]
        copy: bool,
        /// Keeps everything from now on
        #[arg(long, conflicts_with_all = ["bytes", "age", "copy"])]
        off: bool,
    },
    /// Fills a file system on a simulated drive, and mounts it after an unmount and after power cuts, in virtual time
    SimulateMounts {
        /// A drive profile (drives/*.toml)
        drive: PathBuf,
        /// Zones of the file system
        #[arg(long)]
        zones: u32,
        /// Random-write zones among them
        #[arg(long)]
        random_zones: u32,
        /// Files to make, in bytes (K, M, G, T)
        #[arg(long, value_parser = bytes)]
        fill: u64,
        /// Of the drive
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Adds the result to this file, one line of JSON
        #[arg(long)]
        record: Option<PathBuf>,
    },
    /// Runs an application of the slides on a simulated drive, in virtual time
    Simulate {
        /// A drive profile (drives/*.toml)
        drive: PathBuf,
        /// What is done; all of it, with both placements, if not said
        #[arg(long, value_enum)]
        application: Option<ApplicationName>,
        /// Zones of the file system; the slides have 256
        #[arg(long, default_value_t = 256)]
        zones: u32,
        /// Random-write zones among them
        #[arg(long, default_value_t = 16)]
        random_zones: u32,
        /// Of the drive
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where data go first; both, one after the other, if not said
        #[arg(long, value_enum)]
        placement: Option<PlacementName>,
        /// Adds the results to this file, one line of JSON each
        #[arg(long)]
        record: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApplicationName {
    /// Append to four files in turn until half full, read back in turn
    #[value(name = "1")]
    One,
    /// Append until three quarters full, then replace each file
    #[value(name = "2")]
    Two,
    /// As 1; read one file alone, compact, read it again. Placement log only
    Compaction,
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
struct How {
    /// Where data go first
    #[arg(long, value_enum, default_value = "auto")]
    placement: PlacementName,
}

/// Where data go first, as it is said on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementName {
    /// Everything to the log, as in the slides
    Log,
    /// Large streams to zones of their own
    Auto,
}

impl PlacementName {
    fn options(self) -> Options {
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

/// Why the program ends without what it was asked for: a sentence.
type Outcome<T = ExitCode> = Result<T, String>;

fn bytes(text: &str) -> Result<u64, String> {
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

fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text}: expected a number, perhaps with s, m, h or d");
    let (digits, unit) =
        text.split_at(text.len() - usize::from(text.ends_with(['s', 'm', 'h', 'd'])));
    let each = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => 1,
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(each).ok_or_else(wrong)
}

fn uuid(text: &str) -> Result<Uuid, String> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let wrong = || format!("{text}: expected 32 hexadecimal digits");
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok());
    Ok(number.flatten().ok_or_else(wrong)?.to_be_bytes())
}

fn main() -> ExitCode {
    let arguments = arguments();
    let is_fsck = arguments.get(1).is_some_and(|command| command == "fsck");
    let (failed, usage) = match is_fsck {
        true => (FSCK_FAILED, FSCK_USAGE),
        false => (1, 2),
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(why) => {
            let _ = why.print();
            return ExitCode::from(if why.use_stderr() { usage } else { 0 });
        }
    };
    act(cli.command).unwrap_or_else(|sentence| {
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

fn act(command: Command) -> Outcome {
    match command {
        Command::Mkfs {
            device,
            size,
            zone_size,
            random_zones,
            label,
            uuid,
        } => {
            // What is made here and cannot be used does not stay.
            let is_new = size.is_some() && !device.exists();
            let made = mkfs(&device, size, (zone_size, random_zones), &label, uuid);
            if made.is_err() && is_new {
                let _ = std::fs::remove_file(&device);
            }
            made
        }
        Command::Mount {
            device,
            directory,
            read_only,
            allow_other,
            how,
            cold,
            option,
            foreground,
        } => {
            let mut options = MountOptions::default();
            (options.read_only, options.allow_other) = (read_only, allow_other);
            (options.placement, options.cold) = (how.placement, cold);
            option.iter().try_for_each(|option| options.add(option))?;
            match foreground {
                true => serve::mount(&device, &directory, &options),
                false => serve::in_background(&arguments()[1..]),
            }
        }
        Command::UnmountWhenTold { directory } => serve::unmount_when_told(&directory),
        Command::Fsck {
            device,
            read_only,
            a: _,
            data,
            json,
        } => fsck(&device, read_only, data, json),
        Command::Dump { device, what } => dump(&device, &what),
        Command::Stat { device, json } => stat(&device, json),
        Command::Compact { device, all } => compact(&device, all),
        Command::Retain {
            path,
            bytes,
            age,
            copy,
            off,
        } => retain(&path, bytes, age, copy, off),
        Command::SimulateMounts {
            drive,
            zones,
            random_zones,
            fill,
            seed,
            record,
        } => {
            let profile = drive_tool::profile::load(&drive).map_err(|why| why.to_string())?;
            let run = simulate::Run {
                profile,
                seed,
                zones,
                random: random_zones,
                application: simulate::Application::One,
                options: Options::default(),
            };
            let bar = bar(fill, "{bar:40} {bytes}/{total_bytes} {eta}");
            let result = simulate::mounts(&run, fill, |bytes| bar.inc(bytes));
            bar.finish_and_clear();
            recorded(&result?, record.as_deref())
        }
        Command::Simulate {
            drive,
            application,
            zones,
            random_zones,
            seed,
            placement,
            record,
        } => {
            let cells = cells(application, placement);
            simulate(
                &drive,
                (zones, random_zones, seed),
                &cells,
                record.as_deref(),
            )
        }
    }
}

/// What is to be run of the applications: the compaction run is about the log, and has no other placement.
fn cells(
    application: Option<ApplicationName>,
    placement: Option<PlacementName>,
) -> Vec<(simulate::Application, Options)> {
    let mut cells = Vec::new();
    for name in ApplicationName::value_variants() {
        for place in PlacementName::value_variants() {
            let is_log = matches!(place, PlacementName::Log);
            let is_wanted = application.is_none_or(|wanted| wanted == *name)
                && placement.is_none_or(|wanted| wanted == *place)
                && (is_log || *name != ApplicationName::Compaction);
            let what = match name {
                ApplicationName::One => simulate::Application::One,
                ApplicationName::Two => simulate::Application::Two,
                ApplicationName::Compaction => simulate::Application::Compaction,
            };
            if is_wanted {
                cells.push((what, place.options()));
            }
        }
    }
    cells
}

fn simulate(
    drive: &Path,
    (zones, random, seed): (u32, u32, u64),
    cells: &[(simulate::Application, Options)],
    record: Option<&Path>,
) -> Outcome {
    let profile = drive_tool::profile::load(drive).map_err(|why| why.to_string())?;
    for (application, options) in cells {
        let run = simulate::Run {
            profile: profile.clone(),
            seed,
            zones,
            random,
            application: *application,
            options: options.clone(),
        };
        let bar = bar(0, "{spinner} {bytes} {bytes_per_sec}");
        let result = simulate::run(&run, |bytes| bar.inc(bytes));
        bar.finish_and_clear();
        recorded(&result?, record)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a result, and adds it to a file.
fn recorded(result: &Value, record: Option<&Path>) -> Outcome {
    if let Some(record) = record {
        let failed = |why: std::io::Error| format!("{}: {why}", record.display());
        let file = File::options().append(true).create(true).open(record);
        writeln!(file.map_err(failed)?, "{result}").map_err(failed)?;
    }
    print(result)
}

fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(value: &Value) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(|why| why.to_string())?;
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn mkfs(
    path: &Path,
    size: Option<u64>,
    (zone_size, random_zones): (Option<u64>, Option<u32>),
    label: &str,
    uuid: Option<Uuid>,
) -> Outcome {
    let mut bytes = [0; 64];
    let place = bytes.get_mut(..label.len());
    place
        .ok_or("the label is longer than 64 bytes")?
        .copy_from_slice(label.as_bytes());
    let options = MakeOptions {
        uuid: uuid.map_or_else(random_uuid, Ok)?,
        label: bytes,
        now_ns: now_ns(),
    };
    let refused = |error: safs::Error| format!("{}: {error}", path.display());
    let device = HostDevice::create(path, size, zone_size, random_zones)?;
    let mut device = check_device(device, &options).map_err(refused)?;
    let prepared = device.prepare();
    prepared.map_err(|why| format!("{}: {why}", path.display()))?;
    let bar = bar(
        u64::from(device.zones()),
        "resetting zones {bar:40} {pos}/{len}",
    );
    make(device, options, |zone| bar.set_position(u64::from(zone))).map_err(refused)?;
    bar.finish_and_clear();
    Ok(ExitCode::SUCCESS)
}

fn random_uuid() -> Outcome<Uuid> {
    let mut uuid = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uuid));
    read.map_err(|why| format!("/dev/urandom: {why}"))?;
    Ok(uuid)
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
fn looked_at(device: &Path) -> Outcome<FileSystem<HostDevice>> {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    opened(device, options)
}

fn fsck(device: &Path, read_only: bool, data: bool, json: bool) -> Outcome {
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
            .check(data, progress)
            .map(|report| (report.clone(), report)),
        false => fs.repair(data, progress),
    };
    bar.finish_and_clear();
    let (report, left) = reports.map_err(failed)?;
    if json {
        print(&json!({
            "problems": report.problems,
            "left": left.problems,
            "inodes": report.inodes,
            "names": report.names,
            "extents": report.extents,
            "nodes": report.nodes,
            "read_bytes": report.read_bytes,
            "copies_lost": fs.counters().copies_lost,
        }))?;
    } else {
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
    if !read_only {
        fs.unmount().map_err(failed)?;
    }
    Ok(
        match (report.problems.is_empty(), left.problems.is_empty()) {
            (_, false) => ExitCode::from(FSCK_ERRORS_LEFT),
            (false, true) => ExitCode::from(FSCK_REPAIRED),
            (true, true) => ExitCode::SUCCESS,
        },
    )
}

/// A repair can end anywhere: each of its root records is as good as after a power cut.
fn cancel_when_signalled() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("safs: cancelled; what was repaired stays repaired");
            std::process::exit(i32::from(FSCK_CANCELLED));
        }
    });
    Ok(())
}

fn dump(device: &Path, what: &What) -> Outcome {
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
        What::Segment { place } => {
            let numbers = place
                .split_once(':')
                .and_then(|(zone, block)| Some((zone.parse().ok()?, block.parse().ok()?)));
            let (zone, block) =
                numbers.ok_or_else(|| format!("{place}: expected a zone and a block, as 17:0"))?;
            let header = looked_at(device)?
                .segment(ZoneId(zone), block)
                .map_err(failed)?;
            print(&show::header(&header))
        }
    }
}

fn stat(device: &Path, json: bool) -> Outcome {
    let fs = looked_at(device)?;
    let geometry = fs.geometry();
    let statistics = show::statistics(&fs, geometry);
    if json {
        return print(&statistics);
    }
    print(&statistics)?;
    println!(
        "R random  . free  l log  f file  s shared  ! given up; capital: at least half of it lives"
    );
    println!("{}", show::map(&fs).trim_start_matches('\n'));
    Ok(ExitCode::SUCCESS)
}

fn retain(
    path: &Path,
    bytes: Option<u64>,
    age: Option<u64>,
    is_copied: bool,
    off: bool,
) -> Outcome {
    use rustix::fs::{getxattr, removexattr, setxattr, XattrFlags};
    const NAME: &str = "user.safs.retain";
    let failed = |why: rustix::io::Errno| format!("{}: {why}", path.display());
    if off {
        removexattr(path, NAME).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if bytes.is_none() && age.is_none() {
        let mut value = vec![0; 4096];
        let length = getxattr(path, NAME, &mut value).map_err(failed)?;
        println!("{}", String::from_utf8_lossy(&value[..length]));
        return Ok(ExitCode::SUCCESS);
    }
    let retention = Retention {
        bytes,
        seconds: age,
        is_copied,
    };
    setxattr(
        path,
        NAME,
        retention.encode().as_bytes(),
        XattrFlags::empty(),
    )
    .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn compact(device: &Path, all: bool) -> Outcome {
    let failed = |error: safs::Error| format!("{}: {error}", device.display());
    let mut fs = opened(device, Options::default())?;
    let bar = bar(0, "{spinner} {pos} zones left");
    let result = fs.compact(all, |left| bar.set_position(left as u64));
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
