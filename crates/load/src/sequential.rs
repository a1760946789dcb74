// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential write and read of one file or device.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::direct::{check_alignment, Buffer, How, Target};
use crate::error::{LoadError, Result};
use crate::meter::Meter;
use crate::payload::{Contents, Payload};
use crate::report::Report;
use crate::Load;

/// Writes one file, or a piece of a device, from front to back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SequentialWrite {
    /// File below the load's directory, or the absolute path of a device.
    pub path: String,
    /// First byte to write.
    pub start_bytes: u64,
    /// Bytes to write.
    pub length_bytes: u64,
    /// Bytes of each write.
    pub io_bytes: u64,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// Empty the file first; not for devices.
    pub truncate: bool,
    /// fsync(2) at the end.
    pub fsync: bool,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Seed of the contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for SequentialWrite {
    fn default() -> Self {
        Self {
            path: "sequential".into(),
            start_bytes: 0,
            length_bytes: 1 << 30,
            io_bytes: 1 << 20,
            direct: false,
            truncate: false,
            fsync: true,
            payload: Payload::Word,
            seed: 1,
            latency: false,
        }
    }
}

impl Load for SequentialWrite {
    fn run(&self, dir: &Path) -> Result<Report> {
        let io = check_io(self.io_bytes)?;
        check_alignment(
            self.direct,
            &[("io_bytes", io), ("start_bytes", self.start_bytes)],
        )?;
        check_alignment(self.direct, &[("length_bytes", self.length_bytes)])?;
        let how = How {
            write: true,
            create: true,
            truncate: self.truncate,
            direct: self.direct,
        };
        let target = Target::open(&dir.join(&self.path), how)?;
        let contents = contents(self.payload, self.seed);
        let (mut meter, mut buffer) = (Meter::new(self.latency), Buffer::new(io));
        let mut report = Report::default();
        report.part("write", || {
            let end = self.start_bytes.saturating_add(self.length_bytes);
            let mut offset = self.start_bytes;
            while offset < end {
                let length = io.min(end - offset);
                target.write(&contents, offset, length, &mut buffer, &mut meter)?;
                offset += length;
            }
            Ok::<_, LoadError>(())
        })?;
        if self.fsync {
            report.part("fsync", || target.fsync(&mut meter))?;
        }
        Ok(report.metered(&meter))
    }
}

/// Reads one file, or a piece of a device, from front to back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SequentialRead {
    /// File below the load's directory, or the absolute path of a device.
    pub path: String,
    /// First byte to read.
    pub start_bytes: u64,
    /// Bytes to read; null: to the end.
    pub length_bytes: Option<u64>,
    /// Bytes of each read.
    pub io_bytes: u64,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// Compare with what `sequential_write` wrote with the same seed and payload.
    pub verify: bool,
    /// Each 4 KiB block is `word`: one 8-byte word, repeated; or `random`.
    pub payload: Payload,
    /// Seed of the contents.
    pub seed: u64,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for SequentialRead {
    fn default() -> Self {
        Self {
            path: "sequential".into(),
            start_bytes: 0,
            length_bytes: None,
            io_bytes: 1 << 20,
            direct: false,
            verify: false,
            payload: Payload::Word,
            seed: 1,
            latency: false,
        }
    }
}

impl Load for SequentialRead {
    fn run(&self, dir: &Path) -> Result<Report> {
        let io = check_io(self.io_bytes)?;
        check_alignment(
            self.direct,
            &[("io_bytes", io), ("start_bytes", self.start_bytes)],
        )?;
        let how = How {
            direct: self.direct,
            ..How::default()
        };
        let target = Target::open(&dir.join(&self.path), how)?;
        let size = target.bytes()?;
        let end = self
            .length_bytes
            .map_or(size, |l| self.start_bytes.saturating_add(l));
        let contents = contents(self.payload, self.seed);
        let check = self.verify.then_some(&contents);
        let (mut meter, mut buffer) = (Meter::new(self.latency), Buffer::new(io));
        let mut report = Report::default();
        report.part("read", || {
            let mut offset = self.start_bytes;
            while offset < end.min(size) {
                let length = io.min(end - offset);
                offset += target
                    .read(check, offset, length, &mut buffer, &mut meter)?
                    .max(1);
            }
            Ok::<_, LoadError>(())
        })?;
        if self.verify && end > size {
            let path = &self.path;
            return Err(LoadError::Mismatch(format!(
                "{path}: {size} bytes, not {end}"
            )));
        }
        Ok(report.metered(&meter))
    }
}

fn contents(payload: Payload, seed: u64) -> Contents {
    Contents {
        payload,
        file: 0,
        generation: seed,
    }
}

fn check_io(io_bytes: u64) -> Result<u64> {
    match io_bytes {
        0 => Err(LoadError::Arguments("io_bytes must not be 0".into())),
        _ => Ok(io_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    const LENGTH: u64 = 300 * 4096;

    #[test]
    fn what_is_written_reads_back() {
        let dir = scratch();
        for (direct, payload) in [(false, Payload::Word), (true, Payload::Random)] {
            let write = SequentialWrite {
                length_bytes: LENGTH,
                direct,
                payload,
                ..Default::default()
            };
            let report = write.run(dir.path()).unwrap();
            assert_eq!(report.user_written_bytes, LENGTH);
            let read = SequentialRead {
                verify: true,
                direct,
                payload,
                ..Default::default()
            };
            assert_eq!(read.run(dir.path()).unwrap().user_read_bytes, LENGTH);
        }
    }

    #[test]
    fn a_wrong_byte_and_a_short_file_are_found() {
        let dir = scratch();
        let write = SequentialWrite {
            length_bytes: LENGTH,
            ..Default::default()
        };
        write.run(dir.path()).unwrap();
        let read = SequentialRead {
            verify: true,
            ..Default::default()
        };
        let longer = SequentialRead {
            length_bytes: Some(LENGTH + 1),
            ..read.clone()
        };
        assert!(longer.run(dir.path()).is_err());
        let path = dir.path().join("sequential");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[77_777] ^= 0x80;
        std::fs::write(&path, bytes).unwrap();
        let error = read.run(dir.path()).unwrap_err();
        assert!(error.to_string().contains("byte 77777 "), "{error}");
    }

    #[test]
    fn unaligned_direct_access_is_refused_in_words() {
        let write = SequentialWrite {
            io_bytes: 1000,
            direct: true,
            ..Default::default()
        };
        let error = write.run(scratch().path()).unwrap_err();
        assert!(error.to_string().contains("io_bytes"), "{error}");
    }
}
