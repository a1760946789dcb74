// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several tests need: a device, and an empty file system on it.
#![allow(dead_code)]

pub mod power;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use safs::format::{FileType, Ino};
use safs::{FileSystem, MakeOptions, Options, Owner, Placement};
use zoned::{RamDevice, ZonedDevice};

/// Sectors of a zone of the test devices: 256 KiB.
pub const ZONE_SECTORS: u64 = 512;

/// Random numbers from a seed.
pub struct Random(Pcg64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Pcg64::seed_from_u64(seed))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed that `SEED` names, or the first `SEEDS` ones; each is printed, so that a failure names it.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let range = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(default),
    };
    range.inspect(|seed| println!("SEED={seed}"))
}

/// A small strict host-managed device: eight conventional zones, the rest sequential, few of them open at a time.
pub fn device(sequential: u32) -> RamDevice {
    RamDevice::new(8, sequential, ZONE_SECTORS).with_open_max(10)
}

/// The same without conventional zones: the file system reserves sixteen, and the end of no zone can be written.
pub fn device_in_order(sequential: u32) -> RamDevice {
    RamDevice::new(0, 16 + sequential, ZONE_SECTORS)
        .with_capacity(ZONE_SECTORS - 16)
        .with_open_max(14)
}

/// One or the other.
pub fn device_of(seed: u64, sequential: u32) -> RamDevice {
    match seed % 2 {
        0 => device(sequential),
        _ => device_in_order(sequential),
    }
}

/// Options that make much happen on little space.
pub fn options(placement: Placement) -> Options {
    Options {
        placement,
        segment_blocks: 32,
        stream_after_bytes: 48 << 10,
        turn_bytes: 64 << 10,
        streams_max: 3,
        buffer_bytes: 512 << 10,
        gap_bytes: 96 << 10,
        overlay_bytes: 96 << 10,
        node_cache_bytes: 512 << 10,
        changing_bytes: 256 << 10,
        header_cache_bytes: 64 << 10,
        read_ahead_bytes: 512 << 10,
        read_ahead_total_bytes: 1 << 20,
        compaction_bytes: 128 << 10,
        ..Options::default()
    }
}

/// An empty file system.
pub fn made<D: ZonedDevice>(device: D) -> D {
    let make = MakeOptions {
        uuid: *b"a test's own one",
        label: [0; 64],
        now_ns: 1,
    };
    safs::make(device, make, |_| ()).expect("the device suits")
}

/// Everything that a check finds is a failure.
pub fn assert_sound<D: ZonedDevice>(fs: &mut FileSystem<D>, data: bool) {
    let report = fs.check(data, |_| ()).expect("the catalog can be read");
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Mounted, with one log for all.
pub fn mounted<D: ZonedDevice>(device: D) -> FileSystem<D> {
    FileSystem::mount(device, options(Placement::Log), 5).unwrap()
}

/// Synced bytes at the end of a file of the root, which is made if it is not there.
pub fn append<D: ZonedDevice>(fs: &mut FileSystem<D>, name: &str, data: &[u8]) -> Ino {
    let ino = match fs.lookup(Ino(1), name.as_bytes()) {
        Ok(ino) => ino,
        Err(_) => fs
            .create(
                Ino(1),
                name.as_bytes(),
                FileType::Regular,
                Owner::default(),
                0,
            )
            .unwrap(),
    };
    let end = fs.attributes(ino).unwrap().size;
    fs.write(ino, end, data).unwrap();
    fs.fsync(ino).unwrap();
    ino
}
