// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of the crash explorer's inner part; `./shingle crash` calls it.
#![deny(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use crash_drive::record;
use crash_drive::states::{Disk, States};
use crash_tool::choose::{contents, Cut, Cuts, Fate};
use crash_tool::damage::Healthy;
use crash_tool::fsck::{self, Said};
use crash_tool::history::History;
use crash_tool::image;
use crash_tool::log::Log;
use crash_tool::pool::{Contents, Pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// From a record of requests to the states that a power cut can leave.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A disk with one state, from a raw image.
    Disk {
        /// Raw image.
        image: PathBuf,
        #[command(flatten)]
        kind: Kind,
        /// File of states to write.
        #[arg(short)]
        output: PathBuf,
    },
    /// What one cut of a record leaves, as a disk with one state or a raw image.
    Cut(MakeCut),
    /// The markers of a record, a JSON line each: the event's number and the text.
    Marks {
        /// The record.
        record: PathBuf,
    },
    /// Cuts a record near its end, damages the log of what that leaves in many ways, and writes all to one file of states;
    /// the first is the one without damage. A JSON line for each state on standard output.
    Damage {
        /// What and how many, as JSON.
        plan: PathBuf,
        /// File of states to write.
        #[arg(short)]
        output: PathBuf,
        /// Write the last state as a raw image.
        #[arg(long)]
        raw: Option<PathBuf>,
    },
    /// Chooses cuts, makes their states, has stock e2fsck replay and check a copy of each, and writes all to one file of
    /// states: for each state two, as cut and as replayed. A JSON line for each state on standard output.
    States {
        /// Sources and numbers, as JSON.
        plan: PathBuf,
        /// File of states to write.
        #[arg(short)]
        output: PathBuf,
        /// Folder for images.
        #[arg(long)]
        scratch: PathBuf,
    },
}

#[derive(Args, Clone, Copy)]
struct Kind {
    /// Requests end after at most so long.
    #[arg(long, default_value_t = 0)]
    delay_us: u32,
    /// The disk has no FUA.
    #[arg(long)]
    no_fua: bool,
}

/// What `states` is to do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    flush_ignored: bool,
    /// Hashes of states that were checked before.
    seen: Vec<String>,
    sources: Vec<Source>,
}

/// A record and the disk before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    /// Goes before each cut in its name.
    name: String,
    disk: PathBuf,
    record: PathBuf,
    /// How many distinct states are wanted.
    count: usize,
    /// Where the part ends from which every second cut is taken.
    early: usize,
    seed: u64,
    /// Cuts of that seed that were tried before.
    skip: usize,
    /// Just these cuts.
    cuts: Option<Vec<String>>,
}

/// What `damage` is to do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DamagePlan {
    disk: PathBuf,
    record: PathBuf,
    /// The journal: first sector and sectors, in the order of the log.
    journal: Vec<(u64, u64)>,
    block_bytes: usize,
    seed: u64,
    /// Numbers of the damages; each is drawn for itself.
    numbers: Vec<u64>,
    /// Hashes of states that are left out.
    seen: Vec<String>,
}

/// A damaged state, for the caller.
#[derive(Serialize)]
struct Damaged {
    number: Option<u64>,
    hash: String,
    /// Number in the file of states.
    state: u32,
    /// Target, way, and where.
    done: Vec<(String, String, String)>,
    /// It looks like a log that ends earlier: its last commit block is gone, or there is a wide hole.
    ends: bool,
    /// The cut that the log is of, and how many blocks are in it from its tail to its end.
    cut: String,
    blocks: usize,
}

/// A state, for the caller.
#[derive(Serialize)]
struct Chosen {
    name: String,
    source: usize,
    place: usize,
    fate: char,
    hash: String,
    /// Numbers in the file of states.
    cut: u32,
    replayed: Option<u32>,
    /// Of the replay and of the check.
    e2fsck: [Said; 2],
}

/// What a source had to offer, after its states.
#[derive(Serialize)]
struct Offered {
    source: usize,
    events: usize,
    writes: usize,
    boundaries: usize,
    /// Places.
    boundaries_cut: Vec<usize>,
    writes_cut: Vec<usize>,
    tried: usize,
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shingle-crash: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(clap::Args)]
struct MakeCut {
    /// The disk before the record, a file of states with one.
    disk: PathBuf,
    /// The record.
    record: PathBuf,
    /// The cut, as in 120s77; `random:SEED` draws one after the event number `--after`.
    cut: String,
    /// Event after which a random cut may be.
    #[arg(long, default_value_t = 0)]
    after: usize,
    /// Nothing is durable before all of it is.
    #[arg(long)]
    flush_ignored: bool,
    #[command(flatten)]
    kind: Kind,
    /// Write a raw image.
    #[arg(long)]
    raw: bool,
    /// File to write.
    #[arg(short)]
    output: PathBuf,
}

fn run(command: &Command) -> io::Result<()> {
    match command {
        Command::Disk {
            image,
            kind,
            output,
        } => {
            let mut pool = Pool::default();
            let (blocks, contents) = image::read(image, &mut pool).map_err(|e| named(image, e))?;
            let disk = disk_of(*kind, blocks);
            image::write_states(output, disk, &[contents], &pool).map_err(|e| named(output, e))
        }
        Command::Cut(cut) => make_cut(cut),
        Command::Marks { record } => {
            let bytes = fs::read(record).map_err(|e| named(record, e))?;
            let events = record::decode(&bytes).map_err(|e| invalid(record, &e))?;
            let mut out = BufWriter::new(io::stdout().lock());
            for (at, text) in History::new(&events, false).marks {
                serde_json::to_writer(&mut out, &(at, String::from_utf8_lossy(text)))?;
                writeln!(out)?;
            }
            out.flush()
        }
        Command::Damage { plan, output, raw } => {
            let text = fs::read_to_string(plan).map_err(|e| named(plan, e))?;
            let plan: DamagePlan = serde_json::from_str(&text).map_err(|e| invalid(plan, &e))?;
            make_damaged(&plan, output, raw.as_deref())
        }
        Command::States {
            plan,
            output,
            scratch,
        } => {
            let text = fs::read_to_string(plan).map_err(|e| named(plan, e))?;
            let plan: Plan = serde_json::from_str(&text).map_err(|e| invalid(plan, &e))?;
            make_states(&plan, output, scratch)
        }
    }
}

fn make_cut(
    MakeCut {
        disk,
        record,
        cut,
        after,
        flush_ignored,
        kind,
        raw,
        output,
    }: &MakeCut,
) -> io::Result<()> {
    let mut pool = Pool::default();
    let (before, base) = open_disk(disk, &mut pool)?;
    let bytes = fs::read(record).map_err(|e| named(record, e))?;
    let events = record::decode(&bytes).map_err(|e| invalid(record, &e))?;
    let history = History::new(&events, *flush_ignored);
    let cut = match cut.strip_prefix("random:") {
        None => cut
            .parse()
            .map_err(|e: String| io::Error::new(io::ErrorKind::InvalidInput, e))?,
        Some(seed) => {
            let seed = seed
                .parse()
                .map_err(|e| invalid(Path::new("the seed"), &e))?;
            Cuts::new(&history, 0, seed)
                .find(|cut: &Cut| cut.place > *after)
                .expect("cuts never end")
        }
    };
    println!("{cut}");
    let after = contents(&history, cut, &base, &mut pool);
    if *raw {
        image::write(output, before, &after, &pool)
            .map(|_| ())
            .map_err(|e| named(output, e))
    } else {
        let disk = disk_of(*kind, before.blocks);
        image::write_states(output, disk, &[after], &pool).map_err(|e| named(output, e))
    }
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{}: {error}", path.display()),
    )
}

fn disk_of(kind: Kind, blocks: u32) -> Disk {
    Disk {
        blocks,
        delay_us: kind.delay_us,
        fua: !kind.no_fua,
    }
}

/// A disk and its first state.
fn open_disk(path: &Path, pool: &mut Pool) -> io::Result<(Disk, Contents)> {
    let bytes = fs::read(path).map_err(|e| named(path, e))?;
    let states = States::open(&bytes).map_err(|e| invalid(path, &e))?;
    Ok((states.disk, pool.state(&states, 0)))
}

/// What a record leaves after a power cut in its last third, and what it left at some time before.
fn cut_near_end(
    history: &History,
    base: &Contents,
    seed: u64,
    pool: &mut Pool,
) -> (Cut, Contents, Contents) {
    let late = Cuts::new(history, 0, seed)
        .find(|cut| 3 * cut.place > 2 * history.events)
        .expect("cuts never end");
    let early = Cut {
        place: late.place / 2,
        fate: Fate::Kept,
    };
    let [after, earlier] = [late, early].map(|cut| contents(history, cut, base, pool));
    (late, after, earlier)
}

fn make_damaged(plan: &DamagePlan, output: &Path, raw: Option<&Path>) -> io::Result<()> {
    let mut pool = Pool::default();
    let (before, base) = open_disk(&plan.disk, &mut pool)?;
    let bytes = fs::read(&plan.record).map_err(|e| named(&plan.record, e))?;
    let events = record::decode(&bytes).map_err(|e| invalid(&plan.record, &e))?;
    let history = History::new(&events, false);
    let (cut, after, earlier) = cut_near_end(&history, &base, plan.seed, &mut pool);
    let log = Log::open(&plan.journal, plan.block_bytes, &after, &pool)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    let found = log.walk(&after, &pool);
    let healthy = Healthy {
        log: &log,
        found: &found,
        contents: &after,
        earlier: &earlier,
    };
    // States are checked on a disk that answers at once.
    let disk = Disk {
        delay_us: 0,
        ..before
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut seen: BTreeSet<String> = plan.seen.iter().cloned().collect();
    let mut states = Vec::new();
    for number in std::iter::once(None).chain(plan.numbers.iter().map(|number| Some(*number))) {
        let (state, done) = match number {
            None => (after.clone(), Vec::new()),
            Some(number) => healthy.damaged(&mut pool, plan.seed, number),
        };
        let hash = format!("{:032x}", pool.hash(disk, &state));
        if !seen.insert(hash.clone()) && number.is_some() {
            continue;
        }
        let line = Damaged {
            number,
            hash,
            ends: healthy.ends_earlier(&state, &pool) || done.iter().any(|each| each.wide),
            state: states.len() as u32,
            done: done
                .into_iter()
                .map(|each| (each.target.to_string(), each.way.to_string(), each.detail))
                .collect(),
            cut: cut.to_string(),
            blocks: found.blocks.len(),
        };
        serde_json::to_writer(&mut out, &line)?;
        writeln!(out)?;
        states.push(state);
    }
    out.flush()?;
    if let (Some(path), Some(last)) = (raw, states.last()) {
        image::write(path, disk, last, &pool).map_err(|e| named(path, e))?;
    }
    image::write_states(output, disk, &states, &pool).map_err(|e| named(output, e))
}

fn make_states(plan: &Plan, output: &Path, scratch: &Path) -> io::Result<()> {
    let mut making = Making {
        pool: Pool::default(),
        seen: plan.seen.iter().cloned().collect(),
        states: Vec::new(),
        image: scratch.join("state.img"),
        out: BufWriter::new(io::stdout().lock()),
    };
    let mut disk = None;
    for (number, source) in plan.sources.iter().enumerate() {
        disk = Some(making.of_source(number, source, plan.flush_ignored)?);
    }
    making.out.flush()?;
    if making.image.exists() {
        fs::remove_file(&making.image)?;
    }
    match disk {
        Some(disk) => image::write_states(output, disk, &making.states, &making.pool)
            .map_err(|e| named(output, e)),
        None => File::create(output).map(|_| ()),
    }
}

/// States as they are made, of all sources.
struct Making<'a> {
    pool: Pool,
    /// Hashes of states that are not wanted again.
    seen: BTreeSet<String>,
    states: Vec<Contents>,
    /// Where e2fsck looks at a state.
    image: PathBuf,
    /// A line for each state, and one for each source.
    out: BufWriter<io::StdoutLock<'a>>,
}

impl Making<'_> {
    /// The states that are wanted of one source, on which disk they are.
    fn of_source(
        &mut self,
        number: usize,
        source: &Source,
        flush_ignored: bool,
    ) -> io::Result<Disk> {
        let (before, base) = open_disk(&source.disk, &mut self.pool)?;
        let bytes = fs::read(&source.record).map_err(|e| named(&source.record, e))?;
        let events = record::decode(&bytes).map_err(|e| invalid(&source.record, &e))?;
        let mut history = History::new(&events, flush_ignored);
        history.id = number as u64;
        // States are checked on a disk that answers at once.
        let disk = Disk {
            delay_us: 0,
            ..before
        };
        let (mut boundaries_cut, mut writes_cut) = (BTreeSet::new(), BTreeSet::new());
        let (mut found, mut tried) = (0, 0);
        for cut in cuts_of(source, &history)? {
            if found == source.count {
                break;
            }
            tried += 1;
            if history.boundaries.binary_search(&cut.place).is_ok() {
                boundaries_cut.insert(cut.place);
            }
            let of_write = |write: &crash_tool::history::Write| write.at + 1;
            if history
                .writes
                .binary_search_by_key(&cut.place, of_write)
                .is_ok()
            {
                writes_cut.insert(cut.place);
            }
            let after = contents(&history, cut, &base, &mut self.pool);
            let hash = format!("{:032x}", self.pool.hash(disk, &after));
            if self.seen.insert(hash.clone()) {
                found += 1;
                self.put(number, source, disk, cut, after, hash)?;
            }
        }
        let offered = Offered {
            source: number,
            events: history.events,
            writes: history.writes.len(),
            boundaries: history.boundaries.len(),
            boundaries_cut: boundaries_cut.into_iter().collect(),
            writes_cut: writes_cut.into_iter().collect(),
            tried,
        };
        self.line(&offered)?;
        Ok(disk)
    }

    /// Keeps a state and what e2fsck makes of it, and says so.
    fn put(
        &mut self,
        number: usize,
        source: &Source,
        disk: Disk,
        cut: Cut,
        after: Contents,
        hash: String,
    ) -> io::Result<()> {
        let file = image::write(&self.image, disk, &after, &self.pool)
            .map_err(|e| named(&self.image, e))?;
        let e2fsck = fsck::check(&self.image)?;
        let replayed = image::changed(&file, disk, &after, &mut self.pool)?;
        let name = cut.to_string();
        let fate = name
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .chars()
            .next();
        let first = self.states.len() as u32;
        self.states.extend([after, replayed]);
        self.line(&Chosen {
            name: format!("{}{name}", source.name),
            source: number,
            place: cut.place,
            fate: fate.unwrap_or_default(),
            hash,
            cut: first,
            replayed: Some(first + 1),
            e2fsck,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        writeln!(self.out)
    }
}

/// Those that were asked for by name, or so many of the seed's.
fn cuts_of<'a>(
    source: &Source,
    history: &'a History<'a>,
) -> io::Result<Box<dyn Iterator<Item = Cut> + 'a>> {
    let Some(texts) = &source.cuts else {
        let all = Cuts::new(history, source.early, source.seed);
        return Ok(Box::new(
            all.skip(source.skip).take(20 * source.count + 100),
        ));
    };
    let cuts: Result<Vec<Cut>, String> = texts.iter().map(|text| text.parse()).collect();
    let cuts = cuts.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    Ok(Box::new(cuts.into_iter()))
}
