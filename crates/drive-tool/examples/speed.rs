// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the model itself is, in host time: `cargo run --release -p drive-tool --example speed`.
//! The one place where the host's clock is read: it measures the host.
#![allow(clippy::disallowed_methods)]

use drive_tool::drive_file;
use drive_tool::host::Host;
use drive_tool::profile;
use smr_drive::request::Op;
use std::path::Path;
use std::time::Instant;
use zoned::{Block, BlockRange};

fn host() -> Host {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives/st8000as0002.toml");
    Host::new(profile::load(&path).expect("a profile of the house"), 1)
}

fn at(block: u64, blocks: u64) -> BlockRange {
    BlockRange::new(Block(block), Block(block + blocks))
}

/// Writes 1 GiB in requests of 1 MiB, with the data that `fill` makes.
fn throughput(name: &str, fill: impl Fn(usize, &mut [u8])) {
    let mut host = host();
    let mut page = vec![0; 4096];
    let start = Instant::now();
    for i in 0..1024u64 {
        for p in 0..256 {
            fill(p, &mut page);
            host.drive
                .put(i + 2, p * 4096, &page)
                .expect("within a request");
        }
        host.request(Op::Write, at(i * 256, 256), 0)
            .expect("inside the drive");
    }
    let write = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut data = vec![0; 1 << 20];
    for i in 0..1024u64 {
        host.drive.get(i * 2048, &mut data).expect("sound");
    }
    let read = start.elapsed().as_secs_f64();
    println!(
        "{name}: write {:.2} GB/s, read {:.2} GB/s",
        1.074 / write,
        1.074 / read
    );
    host.request(Op::Flush, at(0, 0), 0)
        .expect("a drive flushes");
    files(&host);
}

/// Saves, opens, and exports.
fn files(host: &Host) {
    let folder = std::env::temp_dir();
    let (file, image) = (folder.join("speed.drive"), folder.join("speed.img"));
    let start = Instant::now();
    drive_file::save(&host.drive, &file).expect("room for a file");
    let save = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut opened = drive_file::open(&file).expect("just written");
    let open = start.elapsed().as_secs_f64();
    let start = Instant::now();
    drive_file::export(&mut opened, &image, &file).expect("room for an image");
    let export = start.elapsed().as_secs_f64();
    println!(
        "  save {save:.3} s, open {:.3} ms, export {export:.3} s",
        open * 1e3
    );
    let _ = (std::fs::remove_file(file), std::fs::remove_file(image));
}

fn random(range_gib: u64, before: u64) {
    let mut host = host();
    let mut x = 88172645463325252u64;
    let mut write = |host: &mut Host| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        host.request(Op::Write, at(x % (range_gib << 18), 1), 0)
            .expect("inside the drive");
    };
    (0..before).for_each(|_| write(&mut host));
    let start = Instant::now();
    (0..200_000).for_each(|_| write(&mut host));
    let us = start.elapsed().as_secs_f64() * 5.0;
    println!("random 4 KiB over {range_gib} GiB after {before}: {us:.1} us a request");
}

fn sequential_small() {
    let mut host = host();
    let start = Instant::now();
    for i in 0..200_000 {
        host.request(Op::Write, at(i, 1), 0)
            .expect("inside the drive");
    }
    println!(
        "sequential 4 KiB: {:.1} us a request",
        start.elapsed().as_secs_f64() * 5.0
    );
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("random") {
        return random(2, 400_000);
    }
    throughput("zero", |_, page| page.fill(0));
    throughput("one word", |_, page| page.fill(0x5a));
    throughput("sparse", |p, page| {
        page[100..108].copy_from_slice(&(p as u64 + 1).to_le_bytes())
    });
    throughput("dense", |p, page| {
        page.chunks_exact_mut(8)
            .enumerate()
            .for_each(|(i, c)| c.copy_from_slice(&((i * 31 + p + 1) as u64).to_le_bytes()));
    });
    sequential_small();
    for (gib, before) in [(512, 0), (512, 200_000), (2, 0), (2, 300_000)] {
        random(gib, before);
    }
}
