// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash of all that can be seen of every drive under fixed loads: requests' times and places, events, counters, the
//! saved state. A change that is to make the model faster and nothing else must not change a line of it:
//!
//! ```text
//! cargo run --release -p drive-tool --example fingerprint > before    (with the old code)
//! cargo run --release -p drive-tool --example fingerprint | diff before -
//! ```
//! Nothing of it is committed: a change of the model changes it, and should.

use drive_tool::host::{at, Host};
use drive_tool::profile;
use drive_tool::random::Random;
use smr_drive::profile::{Profile, StaticMapping, Translation};
use smr_drive::request::{Op, FLAG_FUA};
use std::path::Path;
use zoned::{BlockRange, BLOCK_SECTORS};

/// FNV-1a, 64 bits.
struct Hash(u64);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

struct Run {
    host: Host,
    random: Random,
    hash: Hash,
    blocks: u64,
    /// Where the next write of each stream goes.
    streams: [u64; 4],
    /// Requests in the drive.
    queued: usize,
}

impl Run {
    fn new(profile: Profile, seed: u64, used: bool) -> Self {
        let mut host = if used {
            Host::used(profile, seed)
        } else {
            Host::new(profile, seed)
        };
        host.drive.trace_take(&mut []);
        let blocks = host.drive.profile().capacity_blocks();
        Run {
            host,
            random: Random::from_seed(seed),
            hash: Hash(0xcbf2_9ce4_8422_2325),
            blocks,
            streams: [0, blocks / 4 + 3, blocks / 2, blocks / 8 * 7],
            queued: 0,
        }
    }

    fn look(&mut self) {
        let mut buf = [0; 1 << 14];
        loop {
            let n = self.host.drive.trace_take(&mut buf);
            self.hash.add(&buf[..n]);
            if n == 0 {
                return;
            }
        }
    }

    /// Submits, and waits for some of the queue now and then.
    fn submit(&mut self, op: Op, range: BlockRange, flags: u32) {
        let mut refused = self.host.submit(op, range, flags).is_err();
        if refused {
            self.drain();
            refused = self.host.submit(op, range, flags).is_err();
            self.hash.add(&[u8::from(refused)]);
        }
        self.queued += usize::from(!refused);
    }

    fn drain(&mut self) {
        self.queued -= self.host.completions();
        while self.queued > 0 {
            self.host.step();
            self.queued -= self.host.completions();
        }
        self.look();
    }

    fn sleep(&mut self, ns: u64) {
        self.drain();
        self.host.sleep(ns);
    }

    /// One request of a load of everything.
    fn anything(&mut self, range: u64) {
        let block = self.random.below(range);
        match self.random.below(100) {
            0..=39 => self.submit(Op::Write, at(block, 1), 0),
            40..=49 => {
                let n = 1 + self.random.below(256).min(self.blocks - block - 1);
                self.submit(Op::Write, at(block, n), 0);
            }
            50..=79 => {
                let i = self.random.below(4) as usize;
                let n = 1 + self.random.below(256);
                let id = zoned::ZoneId((self.streams[i] >> 16) as u32);
                if let Some(zone) = self.host.drive.zone(id).filter(|_| n % 4 > 0) {
                    self.streams[i] = zone.write_pointer.0 / BLOCK_SECTORS;
                }
                self.streams[i] =
                    if self.streams[i] + n >= self.blocks || self.random.below(500) == 0 {
                        self.random.below(self.blocks - 300)
                    } else {
                        self.streams[i]
                    };
                self.submit(Op::Write, at(self.streams[i], n), 0);
                self.streams[i] += n;
            }
            80..=89 => self.submit(Op::Read, at(block, 1 + block % 16), 0),
            90..=91 => self.submit(Op::Flush, at(0, 0), 0),
            92..=93 => self.submit(Op::Write, at(block, 2), FLAG_FUA),
            94 => self.submit(Op::Discard, at(block, 500), 0),
            95 => self.submit(Op::WriteZeroes, at(block, 20), 0),
            96 => {
                let ns = self.random.below(3_000_000_000);
                self.sleep(ns);
            }
            97 => {
                let zone = self.host.drive.zone(zoned::ZoneId((block >> 16) as u32));
                let start = zone.map_or(0, |z| z.start.0 / BLOCK_SECTORS);
                self.submit(Op::ZoneReset, at(start, 0), 0);
            }
            98 if self.random.below(40) == 0 => {
                self.host.drive.power_cut(self.host.now_ns);
                self.queued = 0;
                self.look();
            }
            _ => self.sleep(20_000_000),
        }
        if self.random.below(8) == 0 {
            self.drain();
        }
    }

    fn end(mut self, name: &str) {
        self.drain();
        let mut text = String::new();
        let _ = self.host.drive.report(self.host.now_ns, &mut text);
        let _ = self.host.drive.report_latencies(&mut text);
        self.hash.add(text.as_bytes());
        let hash = &mut self.hash;
        let saved = self.host.drive.save(|bytes| -> Result<(), ()> {
            hash.add(bytes);
            Ok(())
        });
        let ok = if saved.is_ok() { "" } else { " not saved" };
        println!(
            "{name}: {:016x} at {} ns{ok}",
            self.hash.0, self.host.now_ns
        );
    }
}

/// The same drive with a cache that is full soon.
fn small(mut profile: Profile) -> Profile {
    let shrink = |m: &mut StaticMapping| {
        m.cache_entries_max = 1_500;
        m.cache_blocks = m.cache_blocks.min(60_000);
    };
    match &mut profile.translation {
        Translation::StaticMapping(m) => shrink(m),
        Translation::HostAware(h) => shrink(&mut h.cache),
        Translation::SBlocks(s) => s.section_entries_max = 100,
        _ => {}
    }
    profile
}

fn loads(name: &str, profile: &Profile, seed: u64) {
    for (size, profile) in [
        ("", profile.clone()),
        (", small cache", small(profile.clone())),
    ] {
        let run = || Run::new(profile.clone(), seed, seed % 2 == 1);
        for range_share in [1, 4_000] {
            let mut any = run();
            let range = any.blocks / range_share - 1_000;
            for _ in 0..12_000 {
                any.anything(range);
            }
            any.end(&format!(
                "{name}{size}, anything in 1/{range_share}, seed {seed}"
            ));
        }
        for (depth, count) in [(1, 15_000), (24, 15_000)] {
            let mut writes = run();
            let blocks = writes.blocks.min(1 << 27);
            for i in 0..count {
                let block = writes.random.below(blocks);
                writes.submit(Op::Write, at(block, 1), 0);
                if i % depth == 0 {
                    writes.drain();
                }
            }
            writes.sleep(30_000_000_000);
            writes.end(&format!(
                "{name}{size}, random writes {depth} deep, seed {seed}"
            ));
        }
        let mut ascending = run();
        for i in 0..20_000 {
            ascending.submit(Op::Write, at(i * 8 + u64::from(i % 5000 > 4000), 8), 0);
            if i % 16 == 0 {
                ascending.drain();
            }
        }
        ascending.end(&format!("{name}{size}, ascending, seed {seed}"));
    }
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
    let files = std::fs::read_dir(folder).expect("the profiles of the house");
    let mut files: Vec<_> = files.flatten().map(|f| f.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "toml"));
    files.sort();
    for file in files {
        let profile = profile::load(&file).expect("a profile of the house");
        let name = profile.name.clone();
        (1..=3).for_each(|seed| loads(&name, &profile, seed));
    }
}
