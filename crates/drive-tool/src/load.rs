// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic loads, with no kernel: a number of requests of one kind, some of them at a time.

use crate::host::Host;
use crate::meter::Meter;
use crate::random::Random;
use smr_drive::request::{Op, Request};
use std::collections::BTreeMap;
use zoned::{Lba, SECTOR_BYTES};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Read or write.
    pub op: Op,
    /// At random places, or one after the other and again from the start.
    pub random: bool,
    /// Bytes of a request.
    pub block: u64,
    /// Bytes from the drive's start on that requests go to.
    pub range: u64,
    /// Requests.
    pub count: u64,
    /// Requests at a time.
    pub depth: u32,
    /// Decides the places.
    pub seed: u64,
}

impl Load {
    /// Whether a drive can do this; the sentence says what it cannot.
    pub fn check(&self, host: &Host) -> Result<(), String> {
        let profile = host.drive.profile();
        let unit = u64::from(profile.logical_block_bytes);
        let most = u64::from(profile.interface.max_request_sectors) * SECTOR_BYTES;
        if self.block == 0 || self.block % unit != 0 || self.block > most {
            return Err(format!(
                "--block {}: expected a multiple of {unit} bytes up to {most}, the drive's largest request",
                self.block
            ));
        }
        if self.range < self.block || self.range > profile.capacity_bytes {
            return Err(format!(
                "--range {}: expected at least a block and at most the drive's {} bytes",
                self.range, profile.capacity_bytes
            ));
        }
        let queue = profile.interface.queue_depth;
        if self.depth == 0 || self.depth > queue {
            return Err(format!(
                "--depth {}: expected 1 to {queue}, the drive's queue",
                self.depth
            ));
        }
        Ok(())
    }

    /// Does it; time starts at the host's. Panics if [`Load::check`] fails.
    pub fn run(&self, host: &mut Host, meter: &mut Meter) {
        let mut random = Random::from_seed(self.seed);
        let places = self.range / self.block;
        let sectors = (self.block / SECTOR_BYTES) as u32;
        let mut running: BTreeMap<u64, (Request, u64)> = BTreeMap::new();
        let mut submitted = 0;
        while submitted < self.count || !running.is_empty() {
            while submitted < self.count && running.len() < self.depth as usize {
                let place = if self.random {
                    random.below(places)
                } else {
                    submitted % places
                };
                let request = Request {
                    tag: submitted,
                    op: self.op,
                    flags: 0,
                    lba: Lba(place * self.block / SECTOR_BYTES),
                    sectors,
                };
                host.drive
                    .submit(host.now_ns, request)
                    .expect("checked against the drive's limits");
                running.insert(submitted, (request, host.now_ns));
                submitted += 1;
            }
            host.step();
            let mut tags = Vec::new();
            host.drive
                .advance(host.now_ns, usize::MAX, |c| tags.push(c.tag));
            for (request, arrival_ns) in tags.iter().filter_map(|tag| running.remove(tag)) {
                meter.done(&host.drive, &request, arrival_ns, host.now_ns);
            }
        }
        meter.finish(&host.drive);
    }
}

/// Bytes from a number with a unit: 4k, 8M, 512G, 1T, each with or without `iB`; powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib") {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => 64,
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1u64.checked_shl(shift)?))
        .ok_or_else(|| format!("'{text}': expected a size such as 4k, 8M, 512G or 2T"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smr_drive::profile::sample;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("512G"), Ok(512 << 30));
        assert_eq!(size("3MiB"), Ok(3 << 20));
        assert_eq!(size("512"), Ok(512));
        for wrong in ["", "G", "4x", "99999999T", "-1k", "4 k"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_request_is_counted_once() {
        let load = Load {
            op: Op::Write,
            random: true,
            block: 4096,
            range: 1 << 29,
            count: 1000,
            depth: 4,
            seed: 1,
        };
        let mut host = Host::new(sample::shingled(1 << 30, 20_000, 500), 1);
        load.check(&host).unwrap();
        let mut meter = Meter::new(80_000_000, 1_000_000_000);
        load.run(&mut host, &mut meter);
        let records = meter.records();
        assert_eq!(records[0]["operations"]["write"]["requests"], 1000);
        let sum: u64 = records[1..]
            .iter()
            .map(|r| r["requests"].as_u64().unwrap())
            .sum();
        assert_eq!(sum, 1000);
        assert!(
            records[0]["stalls"].as_u64().unwrap() > 0,
            "the cache has 500 entries"
        );
    }
}
