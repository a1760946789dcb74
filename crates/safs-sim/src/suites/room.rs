// SPDX-License-Identifier: MIT OR Apache-2.0
//! Usable space: fill, delete a random half, fill again. Each time nearly all that `statfs` calls usable can be used, and no
//! call waits for more than one zone to be cleaned.

use super::config::made;
use super::random::Random;
use super::sim::{Shape, Sim};
use safs::format::{FileType, ROOT_INO};
use safs::{Error, FileSystem, Options, Owner, Placement};
use serde::Serialize;
use std::cell::Cell;
use zoned::{DeviceError, Lba, Zone, ZoneId, ZonedDevice};

/// Of the drive whose time is counted: bytes in a second, and what a command costs that is elsewhere.
const RATE: u64 = 200 << 20;
const SEEK_NS: u64 = 10_000_000;
/// What is skipped forwards by waiting for it to pass.
const NEAR_SECTORS: u64 = 2048;
/// What of the usable space has to be used when it is said to be full.
pub const USED_PERCENT: u64 = 90;
/// What moves in one part of a zone, and for each byte that is accepted (`safs`: `PART_BYTES`, `MOVES_FOR_ACCEPTED`).
const PART_BYTES: u64 = 128 << 20;
const MOVES_FOR_ACCEPTED: u64 = 32;
/// Files up to so many bytes are small ones.
const SMALL_BYTES: u64 = 65_536;
/// Bytes that one call writes, as the kernel's largest.
const WRITE_BYTES: usize = 1 << 20;

/// A device, and the time that a drive would take.
struct Timed {
    sim: Sim,
    behind: u64,
    ns: Cell<u64>,
}

impl Timed {
    fn take(&mut self, at: Lba, bytes: usize) {
        let skipped =
            at.0.checked_sub(self.behind)
                .filter(|gap| *gap <= NEAR_SECTORS);
        let sectors = bytes as u64 / 512;
        let passing = (skipped.unwrap_or(0) + sectors) * 512 * 1000 / (RATE / 1_000_000);
        let ns = passing + skipped.map_or(SEEK_NS, |_| 0);
        self.ns.set(self.ns.get() + ns);
        self.behind = at.0 + sectors;
    }
}

impl ZonedDevice for Timed {
    fn zones(&self) -> u32 {
        self.sim.zones()
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.sim.zone(zone)
    }
    fn open_max(&self) -> Option<u32> {
        self.sim.open_max()
    }
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.take(at, data.len());
        self.sim.read(at, data)
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.take(at, data.len());
        self.sim.write(at, data)
    }
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sim.open_zone(zone)
    }
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sim.close_zone(zone)
    }
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sim.finish_zone(zone)
    }
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sim.reset_zone(zone)
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.ns.set(self.ns.get() + SEEK_NS);
        self.sim.flush()
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub file_bytes: u64,
    pub zone_mib: u32,
    pub placement: Placement,
}

/// What a row found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub suite: &'static str,
    pub file_bytes: u64,
    pub zone_mib: u32,
    pub placement: String,
    pub zones: u32,
    /// Percent of the usable space in use when it was full, in each round.
    pub used_percent: Vec<u64>,
    /// Zones that were cleaned, in all and in one call at most, and how many a call may clean.
    pub cleaned: u64,
    pub cleaned_at_once: u64,
    pub cleaned_at_once_max: u64,
    /// The longest call of a writer, and what it may take, in ns of the drive.
    pub wait_ns: u64,
    pub wait_max_ns: u64,
    pub moved_bytes: u64,
    pub accepted_bytes: u64,
}

/// Who writes, and how long it took.
struct Writer {
    fs: FileSystem<Timed>,
    wait_ns: u64,
    cleaned_at_once: u64,
}

impl Writer {
    fn call<T>(&mut self, act: impl FnOnce(&mut FileSystem<Timed>) -> T) -> T {
        let before = (self.fs.device().ns.get(), self.fs.counters().compacted);
        let done = act(&mut self.fs);
        let after = (self.fs.device().ns.get(), self.fs.counters().compacted);
        self.wait_ns = self.wait_ns.max(after.0 - before.0);
        self.cleaned_at_once = self.cleaned_at_once.max(after.1 - before.1);
        done
    }

    /// Makes a file; without room for all of it a part is left, and said.
    fn file(&mut self, number: u64, bytes: u64) -> Result<(), Error> {
        let name = name(number);
        let ino =
            self.call(|fs| fs.create(ROOT_INO, &name, FileType::Regular, Owner::default(), 0))?;
        self.fs.open(ino).expect("it was made");
        let piece = vec![number as u8; WRITE_BYTES.min(bytes as usize)];
        let mut at = 0;
        let mut done = Ok(());
        while at < bytes && done.is_ok() {
            let count = (bytes - at).min(WRITE_BYTES as u64) as usize;
            done = self.call(|fs| fs.write(ino, at, &piece[..count]));
            at += count as u64;
        }
        self.call(|fs| fs.release(ino)).expect("it was opened");
        done
    }

    fn remove(&mut self, number: u64) {
        self.call(|fs| fs.unlink(ROOT_INO, &name(number)))
            .expect("deleting works");
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("{number:012}").into_bytes()
}

/// Zones of a case: some files, and enough that the reserve is a small part.
fn zones(case: &Case) -> u32 {
    let zone_bytes = u64::from(case.zone_mib) << 20;
    let of_files = (4 * case.file_bytes).div_ceil(zone_bytes);
    // A million small files are enough.
    let least = match case.file_bytes > SMALL_BYTES {
        true => 64,
        false => ((4 << 30) / zone_bytes).min(64),
    };
    u32::try_from(of_files.max(least)).expect("few")
}

/// The device of a case.
fn shape(case: &Case) -> Shape {
    let zone_blocks = case.zone_mib << 8;
    let zones = zones(case);
    // For small files the catalog has a quarter of the space.
    let conventional = (zones / 4).max(4);
    Shape {
        conventional: if case.file_bytes > SMALL_BYTES {
            4
        } else {
            conventional
        },
        sequential: zones,
        zone_blocks,
        capacity_blocks: zone_blocks,
        open_max: None,
        keeps_pointers: true,
        discards: true,
    }
}

/// Fills, deletes half, and fills again, in so many rounds.
pub fn run(case: &Case, rounds: u32, mut progress: impl FnMut(u32)) -> Found {
    let shape = shape(case);
    let options = Options {
        placement: case.placement,
        ..Options::default()
    };
    let turn_bytes = options.turn_bytes;
    let timed = Timed {
        sim: made(Sim::new(shape)),
        behind: 0,
        ns: Cell::new(0),
    };
    let fs = FileSystem::mount(timed, options, 1).expect("it was made");
    let mut writer = Writer {
        fs,
        wait_ns: 0,
        cleaned_at_once: 0,
    };
    let mut random = Random::new(case.file_bytes ^ u64::from(case.zone_mib));
    let (mut next, mut files, mut used_percent) = (0, Vec::new(), Vec::new());
    for round in 0..rounds {
        progress(round);
        loop {
            let made = writer.file(next, case.file_bytes);
            let is_there = writer.fs.lookup(ROOT_INO, &name(next)).is_ok();
            files.extend(is_there.then_some(next));
            next += 1;
            match made {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        writer.fs.sync().expect("what was accepted can be written");
        let space = writer.fs.space();
        used_percent.push((space.blocks - space.free) * 100 / space.blocks);
        for _ in 0..files.len() / 2 {
            let at = random.below(files.len() as u64) as usize;
            writer.remove(files.swap_remove(at));
        }
    }
    let counters = writer.fs.counters();
    let zone_bytes = u64::from(case.zone_mib) << 20;
    // A cleaned zone gives a twentieth at least, so that a call needs as many as give what it writes, and one that is begun.
    // Each is read and written once more, and costs a root record; and then there may be a stream's turn, and a sync.
    let zones_at_once = 1 + (20 * WRITE_BYTES as u64).div_ceil(zone_bytes);
    // In advance a call empties a part for each that its bytes pay for, and one: each may end a zone that others began.
    let parts_at_once = match zone_bytes > PART_BYTES {
        true => 1 + MOVES_FOR_ACCEPTED * WRITE_BYTES as u64 / PART_BYTES,
        false => 0,
    };
    let zone_ns = 2 * zone_bytes * 1000 / (RATE / 1_000_000) * 5 / 4 + 15 * SEEK_NS;
    let turn_ns = turn_bytes * 1000 / (RATE / 1_000_000) + 50 * SEEK_NS;
    Found {
        suite: "room",
        file_bytes: case.file_bytes,
        zone_mib: case.zone_mib,
        placement: format!("{:?}", case.placement).to_lowercase(),
        zones: zones(case),
        used_percent,
        cleaned: counters.compacted,
        cleaned_at_once: writer.cleaned_at_once,
        cleaned_at_once_max: zones_at_once + parts_at_once,
        wait_ns: writer.wait_ns,
        wait_max_ns: zones_at_once * zone_ns + turn_ns,
        moved_bytes: counters.moved_bytes,
        accepted_bytes: counters.accepted_bytes,
    }
}

impl Found {
    /// What is wrong, if anything.
    pub fn problem(&self) -> Option<String> {
        let least = self.used_percent.iter().min().copied().unwrap_or(0);
        let case = format!(
            "files of {} bytes, zones of {} MiB, placement {}",
            self.file_bytes, self.zone_mib, self.placement
        );
        if least < USED_PERCENT {
            return Some(format!("{case}: full at {least} %"));
        }
        if self.cleaned_at_once > self.cleaned_at_once_max {
            return Some(format!(
                "{case}: a call cleaned {} zones, {} are allowed",
                self.cleaned_at_once, self.cleaned_at_once_max
            ));
        }
        (self.wait_ns > self.wait_max_ns).then(|| {
            format!(
                "{case}: a call took {} ms of the drive, {} are allowed",
                self.wait_ns / 1_000_000,
                self.wait_max_ns / 1_000_000
            )
        })
    }
}
