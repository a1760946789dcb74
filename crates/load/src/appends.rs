// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that only grow, one block to each in turn: the applications of SAFS.

use std::path::{Path, PathBuf};

use rustix::fs::{mkdir, unlink, Mode};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::direct::{Buffer, How, Target};
use crate::error::{IoContext, LoadError, Result};
use crate::meter::{Meter, Op};
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::Load;

/// Appends to files until each has its bytes, and makes them durable (SDC 2015, "Measured SAFS Applications").
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppendInTurn {
    /// Directory of the files, below the load's directory; made if absent.
    pub path: String,
    /// Files.
    pub files: u64,
    /// Bytes that each gets.
    pub each_bytes: u64,
    /// Bytes of each write.
    pub io_bytes: u64,
    /// One file after the other, each deleted and made anew first, instead of all in turn.
    pub replace: bool,
    /// Seed of the contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for AppendInTurn {
    fn default() -> Self {
        Self {
            path: "appended".into(),
            files: 4,
            each_bytes: 256 << 20,
            io_bytes: 4096,
            replace: false,
            seed: 1,
            latency: false,
        }
    }
}

impl Load for AppendInTurn {
    fn run(&self, dir: &Path) -> Result<Report> {
        check(self.files, self.io_bytes)?;
        let dir = dir.join(&self.path);
        match mkdir(&dir, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) => Ok(()),
            made => made.on("mkdir", &dir),
        }?;
        let mut meter = Meter::new(self.latency);
        let mut report = Report::default();
        let numbers: Vec<u64> = (0..self.files).collect();
        let turns = if self.replace { 1 } else { numbers.len() };
        for turn in numbers.chunks(turns) {
            let name = if self.replace { "replace" } else { "append" };
            report.part(name, || self.append(&dir, turn, &mut meter))?;
        }
        Ok(report.metered(&meter))
    }
}

impl AppendInTurn {
    /// Makes these files, and appends to them in turn.
    fn append(&self, dir: &Path, numbers: &[u64], meter: &mut Meter) -> Result<()> {
        let how = How {
            write: true,
            create: true,
            ..How::default()
        };
        let mut open = Vec::new();
        for &number in numbers {
            let path = file(dir, number);
            if self.replace {
                meter
                    .time(Op::Unlink, || unlink(&path))
                    .on("unlink", &path)?;
            }
            open.push(meter.time(Op::Create, || Target::open(&path, how))?);
        }
        let mut buffer = Buffer::new(self.io_bytes);
        in_turn(
            &open,
            self.each_bytes,
            self.io_bytes,
            |at, target, offset, length| {
                let contents = contents(numbers[at], self.seed);
                target.write(&contents, offset, length, &mut buffer, meter)
            },
        )?;
        // Otherwise nobody learns that what was accepted found no place.
        open.iter().try_for_each(|target| target.fsync(meter))
    }
}

/// Reads what `append_in_turn` wrote, one block of each file in turn.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadInTurn {
    /// Directory of the files, below the load's directory.
    pub path: String,
    /// Files.
    pub files: u64,
    /// Bytes that each must have.
    pub each_bytes: u64,
    /// Bytes of each read.
    pub io_bytes: u64,
    /// Seed of the contents, which are compared.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for ReadInTurn {
    fn default() -> Self {
        let written = AppendInTurn::default();
        Self {
            path: written.path,
            files: written.files,
            each_bytes: written.each_bytes,
            io_bytes: written.io_bytes,
            seed: written.seed,
            latency: false,
        }
    }
}

impl Load for ReadInTurn {
    fn run(&self, dir: &Path) -> Result<Report> {
        check(self.files, self.io_bytes)?;
        let dir = dir.join(&self.path);
        let mut meter = Meter::new(self.latency);
        let mut report = Report::default();
        report.part("read", || self.read(&dir, &mut meter))?;
        Ok(report.metered(&meter))
    }
}

impl ReadInTurn {
    fn read(&self, dir: &Path, meter: &mut Meter) -> Result<()> {
        let mut open = Vec::new();
        for number in 0..self.files {
            let path = file(dir, number);
            open.push(meter.time(Op::Open, || Target::open(&path, How::default()))?);
        }
        let mut buffer = Buffer::new(self.io_bytes);
        in_turn(
            &open,
            self.each_bytes,
            self.io_bytes,
            |at, target, offset, length| {
                let contents = contents(at as u64, self.seed);
                let mut done = 0;
                while done < length {
                    let (offset, length) = (offset + done, length - done);
                    let read = target.read(Some(&contents), offset, length, &mut buffer, meter)?;
                    if read == 0 {
                        return Err(LoadError::Mismatch(format!(
                            "{}: {offset} bytes, not {}",
                            file(dir, at as u64).display(),
                            self.each_bytes
                        )));
                    }
                    done += read;
                }
                Ok(())
            },
        )
    }
}

/// Goes through files of `each_bytes`, a block of each in turn: a file's place in `open`, the file, an offset, a length.
fn in_turn(
    open: &[Target],
    each_bytes: u64,
    io_bytes: u64,
    mut block: impl FnMut(usize, &Target, u64, u64) -> Result<()>,
) -> Result<()> {
    let mut offset = 0;
    while offset < each_bytes {
        let length = io_bytes.min(each_bytes - offset);
        for (at, target) in open.iter().enumerate() {
            block(at, target, offset, length)?;
        }
        offset += length;
    }
    Ok(())
}

fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file{number}"))
}

fn contents(number: u64, seed: u64) -> Contents {
    Contents {
        payload: Payload::Word,
        file: number,
        generation: seed,
    }
}

fn check(files: u64, io_bytes: u64) -> Result<()> {
    for (name, value) in [("files", files), ("io_bytes", io_bytes)] {
        if value == 0 {
            return Err(LoadError::Arguments(format!("{name} must not be 0")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    const EACH: u64 = 5 * 4096 + 100;

    #[test]
    fn what_was_appended_is_read_and_a_replaced_file_is_new() {
        let dir = scratch();
        let append = AppendInTurn {
            each_bytes: EACH,
            ..AppendInTurn::default()
        };
        let report = append.run(dir.path()).unwrap();
        assert_eq!(report.user_written_bytes, 4 * EACH);
        assert_eq!(report.operations["fsync"], 4);
        let read = ReadInTurn {
            each_bytes: EACH,
            ..ReadInTurn::default()
        };
        assert_eq!(read.run(dir.path()).unwrap().user_read_bytes, 4 * EACH);
        let replace = AppendInTurn {
            replace: true,
            seed: 2,
            ..append
        };
        let report = replace.run(dir.path()).unwrap();
        assert_eq!(report.operations["unlink"], 4);
        assert_eq!(report.parts.len(), 4);
        assert!(read.run(dir.path()).is_err(), "the old contents");
        let anew = ReadInTurn { seed: 2, ..read };
        assert_eq!(anew.run(dir.path()).unwrap().user_read_bytes, 4 * EACH);
    }

    #[test]
    fn a_short_file_is_found_and_no_files_are_refused() {
        let dir = scratch();
        let append = AppendInTurn {
            each_bytes: EACH,
            ..AppendInTurn::default()
        };
        append.run(dir.path()).unwrap();
        let longer = ReadInTurn {
            each_bytes: EACH + 1,
            ..ReadInTurn::default()
        };
        assert!(longer.run(dir.path()).is_err());
        let none = AppendInTurn { files: 0, ..append };
        let error = none.run(dir.path()).unwrap_err();
        assert!(error.to_string().contains("files"), "{error}");
    }
}
