// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of a processor appending takes: `cargo bench -p safs`. Beside it, what cannot be avoided: each byte copied
//! into the file's buffer and from there to the device, and its checksum.
#![allow(clippy::disallowed_methods)] // what is measured is the host's processor
#![allow(missing_docs)] // criterion's macro makes a function without

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use safs::format::{FileType, Ino};
use safs::{make, FileSystem, MakeOptions, Options, Owner, Placement};
use std::hint::black_box;
use std::time::{Duration, Instant};
use zoned::{RamDevice, ZoneId, ZonedDevice};

const BYTES: u64 = 512 << 20;
const ZONE_SECTORS: u64 = (32 << 20) / 512;

/// Empty, and each of its pages there: to find memory is the host's work.
fn device() -> RamDevice {
    let mut device = RamDevice::new(4, 36, ZONE_SECTORS);
    let data = vec![1; ZONE_SECTORS as usize * 512];
    for zone in (0..device.zones()).map(ZoneId) {
        let start = device.zone(zone).expect("it has so many").start;
        device.write(start, &data).expect("a whole zone");
        if zone.0 >= 4 {
            device.reset_zone(zone).expect("a written zone");
        }
    }
    device
}

/// Appends to one file, and syncs.
fn append(placement: Placement, io_bytes: usize) -> Duration {
    let options = MakeOptions {
        uuid: *b"a benchmark's ow",
        label: [0; 64],
        now_ns: 0,
    };
    let device = make(device(), options, |_| ()).expect("it is large enough");
    let options = Options {
        placement,
        ..Options::default()
    };
    let mut fs = FileSystem::mount(device, options, 0).expect("it was just made");
    let made = fs.create(Ino(1), b"file", FileType::Regular, Owner::default(), 0);
    let ino = made.expect("a file");
    fs.open(ino).expect("it is there");
    let data = vec![0x5a; io_bytes];
    let begin = Instant::now();
    for at in (0..BYTES).step_by(io_bytes) {
        fs.write(ino, at, black_box(&data)).expect("there is room");
    }
    fs.sync().expect("sync");
    begin.elapsed()
}

/// The same bytes through a buffer of a segment's size.
fn copied(io_bytes: usize) -> Duration {
    let data = vec![0x5a_u8; io_bytes];
    let mut segment = Vec::with_capacity(16 << 20);
    let mut disk = vec![1_u8; BYTES as usize];
    let mut sum = 0;
    let begin = Instant::now();
    for place in disk.chunks_exact_mut(16 << 20) {
        segment.clear();
        while segment.len() < place.len() {
            segment.extend_from_slice(black_box(&data));
        }
        for block in segment.chunks_exact(4096) {
            sum ^= crc32c::crc32c(block);
        }
        place.copy_from_slice(&segment);
    }
    black_box((sum, &disk));
    begin.elapsed()
}

fn appends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group.throughput(Throughput::Bytes(BYTES)).sample_size(10);
    for io_bytes in [4 << 10, 128 << 10] {
        let kib = io_bytes >> 10;
        group.bench_function(format!("copy and checksum, {kib} KiB"), |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| copied(io_bytes)).sum());
        });
        for (name, placement) in [("stream", Placement::Auto), ("log", Placement::Log)] {
            group.bench_function(format!("{name}, {kib} KiB"), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| append(placement, io_bytes)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, appends);
criterion_main!(benches);
