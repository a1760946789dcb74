// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random overwrites of one file or device.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::direct::{check_alignment, Buffer, How, Target};
use crate::error::{LoadError, Result};
use crate::meter::Meter;
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::rng::Rng;
use crate::sequential::SequentialWrite;
use crate::team::{self, Handout};
use crate::Load;

/// Writes blocks at uniformly random places of one file or device, as in the
/// first test of FAST'17 §2.2 (4 KiB, the whole drive).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RandomOverwrite {
    /// File below the load's directory, or the absolute path of a device.
    pub path: String,
    /// Bytes of the file that are overwritten; null: all it has.
    pub span_bytes: Option<u64>,
    /// Bytes of each write; places are multiples of it.
    pub block_bytes: u64,
    /// Writes; null: until the time is over.
    pub count: Option<u64>,
    /// Virtual seconds after which it ends; null: no limit.
    pub limit_s: Option<f64>,
    /// Threads, each with one write under way.
    pub threads: u32,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// If the file is shorter than `span_bytes`, write it from front to back first.
    pub prepare: bool,
    /// fsync(2) after every so many writes of a thread; 0: only at the end.
    pub fsync_every: u64,
    /// fsync(2) at the end.
    pub fsync: bool,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Seed of places and contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for RandomOverwrite {
    fn default() -> Self {
        Self {
            path: "random".into(),
            span_bytes: Some(1 << 30),
            block_bytes: 4096,
            count: Some(20_000),
            limit_s: None,
            threads: 1,
            direct: true,
            prepare: true,
            fsync_every: 0,
            fsync: true,
            payload: Payload::Word,
            seed: 1,
            latency: false,
        }
    }
}

impl Load for RandomOverwrite {
    fn run(&self, dir: &Path) -> Result<Report> {
        self.check()?;
        let path = dir.join(&self.path);
        let mut report = Report::default();
        let prepared = report.part("prepare", || self.prepare(&path))?;
        let how = How {
            write: true,
            create: false,
            truncate: false,
            direct: self.direct,
        };
        let target = Target::open(&path, how)?;
        let size = target.bytes()?;
        let blocks = self.span_bytes.unwrap_or(size).min(size) / self.block_bytes;
        if blocks == 0 {
            let path = path.display();
            return Err(LoadError::Arguments(format!(
                "{path} has no block to overwrite"
            )));
        }
        let end_ns = self
            .limit_s
            .map(|s| now_ns().saturating_add((s * 1e9) as u64));
        let handout = Handout::new(0..self.count.unwrap_or(u64::MAX));
        let mut meter = report.part("overwrite", || {
            team::run(self.threads, self.latency, |_, meter| {
                let result = self.overwrite(&target, blocks, end_ns, &handout, meter);
                result.inspect_err(|_| handout.stop())
            })
        })?;
        if self.fsync {
            report.part("fsync", || target.fsync(&mut meter))?;
        }
        Ok(report.metered(&meter).detail("prepared_bytes", prepared))
    }
}

impl RandomOverwrite {
    fn check(&self) -> Result<()> {
        check_alignment(self.direct, &[("block_bytes", self.block_bytes)])?;
        if self.block_bytes == 0 {
            return Err(LoadError::Arguments("block_bytes must not be 0".into()));
        }
        match (self.count, self.limit_s) {
            (None, None) => Err(LoadError::Arguments(
                "count or limit_s must be given".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Brings a file to its size; returns the bytes written.
    fn prepare(&self, path: &Path) -> Result<u64> {
        let how = How {
            write: true,
            create: self.prepare,
            ..How::default()
        };
        let size = Target::open(path, how)?.bytes()?;
        let span = self.span_bytes.unwrap_or(0);
        if !self.prepare || size >= span {
            return Ok(0);
        }
        let write = SequentialWrite {
            path: path.display().to_string(),
            length_bytes: span,
            payload: self.payload,
            seed: self.seed,
            ..SequentialWrite::default()
        };
        Ok(write.run(Path::new("/"))?.user_written_bytes)
    }

    fn overwrite(
        &self,
        target: &Target,
        blocks: u64,
        end_ns: Option<u64>,
        handout: &Handout,
        meter: &mut Meter,
    ) -> Result<()> {
        let mut buffer = Buffer::new(self.block_bytes);
        let mut done = 0;
        while let Some(number) = handout.take() {
            if end_ns.is_some_and(|end_ns| now_ns() >= end_ns) {
                break;
            }
            // A write's place follows from its number, whichever thread does it.
            let block = Rng::new(self.seed, number).below(blocks);
            let contents = Contents {
                payload: self.payload,
                file: 1,
                generation: number,
            };
            let offset = block * self.block_bytes;
            target.write(&contents, offset, self.block_bytes, &mut buffer, meter)?;
            done += 1;
            if self.fsync_every > 0 && done % self.fsync_every == 0 {
                target.fsync(meter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    fn small() -> RandomOverwrite {
        RandomOverwrite {
            span_bytes: Some(1 << 20),
            count: Some(200),
            ..Default::default()
        }
    }

    #[test]
    fn writes_as_often_as_asked_within_the_span() {
        let dir = scratch();
        let load = RandomOverwrite {
            threads: 3,
            fsync_every: 10,
            ..small()
        };
        let report = load.run(dir.path()).unwrap();
        assert_eq!(report.details["prepared_bytes"], 1 << 20);
        assert_eq!(report.operations["write"], 200);
        assert_eq!(
            std::fs::metadata(dir.path().join("random")).unwrap().len(),
            1 << 20
        );
        let again = small().run(dir.path()).unwrap();
        assert_eq!(again.details["prepared_bytes"], 0);
    }

    #[test]
    fn a_time_limit_ends_it() {
        let dir = scratch();
        let load = RandomOverwrite {
            count: None,
            limit_s: Some(0.05),
            direct: false,
            ..small()
        };
        assert!(load.run(dir.path()).unwrap().user_written_bytes > 0);
    }

    #[test]
    fn no_end_at_all_is_refused() {
        let load = RandomOverwrite {
            count: None,
            ..small()
        };
        assert!(load.run(scratch().path()).is_err());
    }
}
