// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slides' two applications, and mounts, on a simulated drive, in virtual time and without a kernel.

use safs::format::{FileType, Ino, BLOCK};
use safs::{make, FileSystem, MakeOptions, Options, Owner};
use serde_json::{json, Value};
use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::state::State;
use smr_drive::{Drive, ZonedDisk};
use std::cell::RefCell;
use std::rc::Rc;
use zoned::{DeviceError, Lba, Zone, ZoneId, ZoneType, ZonedDevice, SECTOR_BYTES};

/// Files of both applications.
const FILES: usize = 4;
/// Bytes of the writes that find a drive's raw rate.
const RAW_WRITE_BYTES: usize = 16 << 20;
/// Bytes of a file between two calls of the progress bar.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Some zones of a drive: conventional ones, and the sequential ones behind them. A clone is the same disk, which so
/// outlives a file system whose power fails.
#[derive(Clone)]
pub struct Part {
    disk: Rc<RefCell<ZonedDisk>>,
    first: u32,
    zones: u32,
    shift_sectors: u64,
    /// Calls that read, and how long they took.
    reads: u64,
    reads_ns: u64,
}

impl Part {
    /// The last `random` conventional zones of a fresh drive, and sequential ones up to `zones` together.
    pub fn new(profile: Profile, seed: u64, zones: u32, random: u32) -> Result<Self, String> {
        let opened = Opened {
            state: Box::new(State::new(profile, seed)),
            contents: Contents::new(),
        };
        let disk = ZonedDisk::new(Drive::new(opened, seed));
        let is_conventional = |zone: &u32| {
            disk.zone(ZoneId(*zone))
                .is_some_and(|zone| zone.zone_type == ZoneType::Conventional)
        };
        let conventional = (0..disk.zones()).take_while(is_conventional).count() as u32;
        let first = conventional.checked_sub(random);
        let first =
            first.filter(|first| u64::from(*first) + u64::from(zones) <= u64::from(disk.zones()));
        let first = first.ok_or_else(|| {
            format!(
                "the drive has {conventional} conventional zones of {}",
                disk.zones()
            )
        })?;
        let zone_sectors = disk.zone(ZoneId(0)).map_or(0, |zone| zone.size_sectors);
        Ok(Part {
            disk: Rc::new(RefCell::new(disk)),
            first,
            zones,
            shift_sectors: u64::from(first) * zone_sectors,
            reads: 0,
            reads_ns: 0,
        })
    }

    fn now_ns(&self) -> u64 {
        self.disk.borrow().now_ns()
    }

    fn zone_id(&self, zone: ZoneId) -> ZoneId {
        ZoneId(zone.0 + self.first)
    }

    fn lba(&self, at: Lba) -> Lba {
        Lba(at.0 + self.shift_sectors)
    }
}

impl ZonedDevice for Part {
    fn zones(&self) -> u32 {
        self.zones
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        let mut zone =
            (zone.0 < self.zones).then(|| self.disk.borrow().zone(self.zone_id(zone)))??;
        zone.start.0 -= self.shift_sectors;
        zone.write_pointer.0 = zone.write_pointer.0.saturating_sub(self.shift_sectors);
        Some(zone)
    }
    fn open_max(&self) -> Option<u32> {
        self.disk.borrow().open_max()
    }
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        let begin_ns = self.now_ns();
        let result = self.disk.borrow_mut().read(self.lba(at), data);
        self.reads += 1;
        self.reads_ns += self.now_ns() - begin_ns;
        result
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.disk.borrow_mut().write(self.lba(at), data)
    }
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.disk.borrow_mut().open_zone(self.zone_id(zone))
    }
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.disk.borrow_mut().close_zone(self.zone_id(zone))
    }
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.disk.borrow_mut().finish_zone(self.zone_id(zone))
    }
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.disk.borrow_mut().reset_zone(self.zone_id(zone))
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.disk.borrow_mut().flush()
    }
}

/// What is done with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// The slides' first: append until the file system is half full, read everything back in turn, delete.
    One,
    /// The slides' second: append to three quarters, then delete, make and append each file once more.
    Two,
    /// The first, but one file is read alone, before and after compaction.
    Compaction,
}

/// What is to be run.
pub struct Run {
    /// The drive.
    pub profile: Profile,
    /// Of the drive.
    pub seed: u64,
    /// Zones of the file system, random-write ones included.
    pub zones: u32,
    /// Random-write zones.
    pub random: u32,
    /// What is done.
    pub application: Application,
    /// How the file system is mounted.
    pub options: Options,
}

/// Counts virtual time by phase.
struct Meter {
    begin_ns: u64,
    device_bytes: u64,
    reads: u64,
    reads_ns: u64,
    raw: Raw,
    phases: Vec<Value>,
}

/// What the same zones of the same drive give with nothing in between, in MiB/s.
#[derive(Clone, Copy)]
struct Raw {
    write: f64,
    read: f64,
}

impl Meter {
    fn end(&mut self, fs: &FileSystem<Part>, name: &str, bytes: u64, of: Option<f64>) {
        let device = fs.device();
        let now_ns = device.now_ns();
        let ns = now_ns - self.begin_ns;
        let written = fs.device_bytes() - self.device_bytes;
        let rate = (bytes > 0).then(|| rate(bytes, ns));
        let share = rate.zip(of).map(|(rate, of)| rounded(rate / of, 1000.0));
        self.phases.push(json!({
            "phase": name,
            "bytes": bytes,
            "device_written_bytes": written,
            "device_reads": device.reads - self.reads,
            "device_reads_ns": device.reads_ns - self.reads_ns,
            "virtual_ns": ns,
            "rate_mib_s": rate,
            "share_of_raw": share,
        }));
        (self.begin_ns, self.device_bytes) = (now_ns, fs.device_bytes());
        (self.reads, self.reads_ns) = (device.reads, device.reads_ns);
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

fn rate(bytes: u64, ns: u64) -> f64 {
    rounded(bytes as f64 / (1 << 20) as f64 / (ns as f64 / 1e9), 10.0)
}

/// Runs an application; the answer has a line for each phase.
pub fn run(run: &Run, mut progress: impl FnMut(u64)) -> Result<Value, String> {
    let part = || Part::new(run.profile.clone(), run.seed, run.zones, run.random);
    let raw = raw_rates(part()?, run)?;
    let device = made(part()?)?;
    let begin_ns = device.now_ns();
    let mut fs = FileSystem::mount(device, run.options.clone(), 0).map_err(failed)?;
    let mut meter = Meter {
        begin_ns,
        device_bytes: 0,
        reads: 0,
        reads_ns: 0,
        raw,
        phases: Vec::new(),
    };
    meter.end(&fs, "mount", 0, None);
    let capacity = u64::from(run.zones) * zone_bytes(&fs);
    let share = match run.application {
        Application::Two => capacity / 4 * 3,
        _ => capacity / 2,
    };
    let each = share / FILES as u64 / BLOCK as u64 * BLOCK as u64;
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(create(&mut fs, number)?);
    }
    append(&mut fs, &files, each, &mut progress).map_err(failed)?;
    meter.end(&fs, "append", each * FILES as u64, Some(raw.write));
    act(run, &mut fs, &mut meter, (&mut files, each), &mut progress)?;
    for (number, ino) in files.into_iter().enumerate() {
        remove(&mut fs, number, ino)?;
    }
    meter.end(&fs, "delete", 0, None);
    let sum = |key: &str| -> u64 {
        let values = meter.phases.iter().filter_map(|phase| phase[key].as_u64());
        values.sum()
    };
    let (bytes, ns) = (sum("bytes"), sum("virtual_ns"));
    let counters = fs.counters();
    let accepted = counters.accepted_bytes.max(1) as f64;
    Ok(json!({
        "drive": run.profile.name,
        "application": format!("{:?}", run.application).to_lowercase(),
        "placement": format!("{:?}", run.options.placement).to_lowercase(),
        "zones": run.zones,
        "random_zones": run.random,
        "seed": run.seed,
        "raw_write_mib_s": meter.raw.write,
        "raw_read_mib_s": meter.raw.read,
        "phases": meter.phases,
        "seconds": rounded(ns as f64 / 1e9, 10.0),
        "rate_mib_s": rate(bytes, ns),
        "amplification": rounded(fs.device_bytes() as f64 / accepted, 1000.0),
        "zones_compacted": counters.compacted,
        "root_records": counters.roots,
    }))
}

/// What the application does once its files are there.
fn act(
    run: &Run,
    fs: &mut FileSystem<Part>,
    meter: &mut Meter,
    (files, each): (&mut [Ino], u64),
    progress: &mut impl FnMut(u64),
) -> Result<(), String> {
    let raw = meter.raw;
    match run.application {
        Application::One => {
            read(fs, files, each, progress).map_err(failed)?;
            meter.end(fs, "read", each * FILES as u64, Some(raw.read));
        }
        Application::Two => {
            for number in 0..FILES {
                remove(fs, number, files[number])?;
                files[number] = create(fs, number)?;
                append(fs, &files[number..=number], each, progress).map_err(failed)?;
                meter.end(fs, "replace", each, Some(raw.write));
            }
        }
        Application::Compaction => {
            let alone = &files[1..2];
            read(fs, alone, each, progress).map_err(failed)?;
            meter.end(fs, "read one", each, Some(raw.read));
            fs.compact(false, |_| ()).map_err(failed)?;
            meter.end(fs, "compact", each * FILES as u64, None);
            read(fs, alone, each, progress).map_err(failed)?;
            meter.end(fs, "read one compacted", each, Some(raw.read));
        }
    }
    Ok(())
}

fn failed(error: safs::Error) -> String {
    error.to_string()
}

fn made(part: Part) -> Result<Part, String> {
    let options = MakeOptions {
        uuid: *b"simulated SAFS!!",
        label: [0; 64],
        now_ns: 0,
    };
    make(part, options, |_| ()).map_err(failed)
}

/// Appended to a file before its fsync, where the log is to have many segments, or large ones.
const TAILS: [(&str, u64); 2] = [("small", 4 << 10), ("large", 48 << 20)];
/// Bytes of the files that fill the disk, and of each write: the largest that FUSE passes on.
const FILL: (u64, usize) = (1 << 30, 1 << 20);

/// Mounts of a file system with so many bytes in files: after an unmount, and after power cuts with as much log behind the
/// root record as there can be.
pub fn mounts(run: &Run, fill_bytes: u64, mut progress: impl FnMut(u64)) -> Result<Value, String> {
    let part = made(Part::new(
        run.profile.clone(),
        run.seed,
        run.zones,
        run.random,
    )?)?;
    // One file at a time is written: turns of one segment put the same on the disk, and are moved in memory less often.
    let options = Options {
        turn_bytes: u64::from(run.options.segment_blocks) * BLOCK as u64,
        ..run.options.clone()
    };
    let mut phases = Vec::new();
    let mut mount = |name: &str| {
        let begin_ns = part.now_ns();
        let fs = FileSystem::mount(part.clone(), options.clone(), 0).map_err(failed)?;
        phases.push(json!({"phase": name, "virtual_ns": part.now_ns() - begin_ns}));
        Ok::<_, String>(fs)
    };
    let mut fs = mount("mount empty")?;
    // Zeros cost the simulated drive no memory.
    let data = vec![0; FILL.1];
    fill(&part, &mut fs, fill_bytes, &data, &mut progress)?;
    let space = fs.space();
    fs.unmount().map_err(failed)?;
    let mut fs = mount("mount unmounted")?;
    for (number, (name, bytes)) in TAILS.into_iter().enumerate() {
        let mut next = fill_bytes as usize * (number + 1);
        let mut step = |fs: &mut FileSystem<Part>| {
            let ino = create(fs, next)?;
            next += 1;
            for at in (0..bytes).step_by(FILL.1) {
                let length = (bytes - at).min(FILL.1 as u64);
                fs.write(ino, at, &data[..length as usize])
                    .map_err(failed)?;
            }
            fs.fsync(ino).map_err(failed)?;
            fs.release(ino).map_err(failed)
        };
        // As many steps as lie between two root records, and as many again but one.
        let mut steps = [0; 2];
        for count in &mut steps {
            let roots = fs.counters().roots;
            while fs.counters().roots == roots {
                step(&mut fs)?;
                *count += 1;
            }
        }
        for _ in 1..steps[1] {
            step(&mut fs)?;
        }
        drop(fs);
        part.disk.borrow_mut().power_cut();
        fs = mount(&format!("mount after a cut, {name} segments"))?;
    }
    Ok(json!({
        "drive": run.profile.name,
        "application": "mounts",
        "zones": run.zones,
        "random_zones": run.random,
        "seed": run.seed,
        "filled_bytes": fill_bytes / FILL.0 * FILL.0,
        "blocks": space.blocks,
        "blocks_free": space.free,
        "phases": phases,
    }))
}

/// Fills the file system with files.
fn fill(
    part: &Part,
    fs: &mut FileSystem<Part>,
    fill_bytes: u64,
    data: &[u8],
    progress: &mut impl FnMut(u64),
) -> Result<(), String> {
    let space_bytes = fs.space().free * BLOCK as u64;
    if fill_bytes > space_bytes {
        return Err(format!(
            "{fill_bytes} bytes do not fit: an empty file system on these zones takes {space_bytes}"
        ));
    }
    for file in 0..fill_bytes / FILL.0 {
        let ino = create(fs, file as usize)?;
        for at in (0..FILL.0).step_by(FILL.1) {
            fs.write(ino, at, data).map_err(failed)?;
            progress(FILL.1 as u64);
        }
        fs.release(ino).map_err(failed)?;
        fs.tick(part.now_ns() as i64).map_err(failed)?;
    }
    Ok(())
}

fn zone_bytes(fs: &FileSystem<Part>) -> u64 {
    u64::from(fs.superblock().zone_blocks) * BLOCK as u64
}

/// The rates at which the same zones of the same drive take and give half of their bytes in order.
fn raw_rates(mut part: Part, run: &Run) -> Result<Raw, String> {
    let mut data = vec![0x5a; RAW_WRITE_BYTES];
    let begin_ns = part.now_ns();
    let mut bytes = 0;
    let mut places = Vec::new();
    for zone in (run.random..run.zones / 2).map(ZoneId) {
        let report = part.zone(zone).ok_or("a zone is missing")?;
        let mut at = report.start;
        while at.0 < report.start.0 + report.capacity_sectors {
            part.write(at, &data)
                .map_err(|error| format!("raw write: {error:?}"))?;
            places.push(at);
            at.0 += RAW_WRITE_BYTES as u64 / SECTOR_BYTES;
            bytes += RAW_WRITE_BYTES as u64;
        }
    }
    part.flush()
        .map_err(|error| format!("raw flush: {error:?}"))?;
    let written_ns = part.now_ns();
    for at in places {
        part.read(at, &mut data)
            .map_err(|error| format!("raw read: {error:?}"))?;
    }
    Ok(Raw {
        write: rate(bytes, written_ns - begin_ns),
        read: rate(bytes, part.now_ns() - written_ns),
    })
}

fn create(fs: &mut FileSystem<Part>, number: usize) -> Result<Ino, String> {
    let name = format!("file{number}");
    let owner = Owner::default();
    let ino = fs.create(Ino(1), name.as_bytes(), FileType::Regular, owner, 0);
    let ino = ino.map_err(failed)?;
    fs.open(ino).map_err(failed)?;
    Ok(ino)
}

fn remove(fs: &mut FileSystem<Part>, number: usize, ino: Ino) -> Result<(), String> {
    let removed = fs.unlink(Ino(1), format!("file{number}").as_bytes());
    removed.and_then(|()| fs.release(ino)).map_err(failed)
}

/// One block to each file in turn. What one contains says where it belongs; it is one word repeated, of which the drive's
/// model keeps only the word.
fn append(
    fs: &mut FileSystem<Part>,
    files: &[Ino],
    each: u64,
    progress: &mut impl FnMut(u64),
) -> safs::Result {
    let mut block = [0; BLOCK];
    for at in (0..each).step_by(BLOCK) {
        for ino in files {
            let word = word(*ino, at).to_le_bytes();
            block
                .chunks_exact_mut(8)
                .for_each(|place| place.copy_from_slice(&word));
            fs.write(*ino, at, &block)?;
        }
        fs.tick(fs.device().now_ns() as i64)?;
        if at % PROGRESS_BYTES == 0 {
            progress(files.len() as u64 * PROGRESS_BYTES);
        }
    }
    fs.sync()
}

/// What fills a file's block.
fn word(ino: Ino, at: u64) -> u64 {
    ino.0 << 48 | (at / BLOCK as u64 + 1)
}

/// One block of each file in turn.
fn read(
    fs: &mut FileSystem<Part>,
    files: &[Ino],
    each: u64,
    progress: &mut impl FnMut(u64),
) -> safs::Result {
    for at in (0..each).step_by(BLOCK) {
        for ino in files {
            let block = fs.read(*ino, at, BLOCK)?;
            let word = word(*ino, at).to_le_bytes();
            if block.len() != BLOCK || block.chunks_exact(8).any(|found| found != word) {
                return Err(safs::Error::Invalid(
                    "what was read is not what was written",
                ));
            }
        }
        if at % PROGRESS_BYTES == 0 {
            progress(files.len() as u64 * PROGRESS_BYTES);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn run_of(zones: u32, random: u32) -> Run {
        let drives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
        Run {
            profile: drive_tool::profile::load(&drives.join("hc620.toml")).unwrap(),
            seed: 1,
            zones,
            random,
            application: Application::One,
            options: Options::default(),
        }
    }

    #[test]
    fn mounts_take_less_than_a_second_after_an_unmount_and_after_cuts() {
        let result = mounts(&run_of(40, 8), 1 << 30, |_| ()).unwrap();
        let phases = result["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 2 + TAILS.len());
        for phase in phases {
            assert!(
                phase["virtual_ns"].as_u64().unwrap() < 1_000_000_000,
                "{phase}"
            );
        }
        let after = |at: usize| phases[at]["virtual_ns"].as_u64().unwrap();
        assert!(after(2) > after(1), "a log is read");
    }

    #[test]
    fn the_first_application_has_most_of_what_the_drive_gives() {
        let result = run(&run_of(24, 4), |_| ()).unwrap();
        for phase in &result["phases"].as_array().unwrap()[1..3] {
            assert!(phase["share_of_raw"].as_f64().unwrap() > 0.8, "{phase}");
        }
        assert!(result["amplification"].as_f64().unwrap() < 1.1);
    }
}
