// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! A drive with zones as a program in this process sees it: one request at a time, data in and out, and virtual time that
//! passes only while a request runs. No kernel is needed.

use crate::request::{Op, Outcome, Refusal, Request};
use crate::Drive;
use zoned::{DeviceError, Lba, Zone, ZoneError, ZoneId, ZonedDevice, SECTOR_BYTES};

/// A drive and its clock. Its drive should be host-managed or host-aware; of any other it says that it has no zones.
pub struct ZonedDisk {
    drive: Drive,
    now_ns: u64,
    tag: u64,
}

impl ZonedDisk {
    /// A drive at time 0.
    pub fn new(drive: Drive) -> Self {
        ZonedDisk {
            drive,
            now_ns: 0,
            tag: 0,
        }
    }

    /// The virtual time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets time pass: the caller computes, or sleeps.
    pub fn sleep(&mut self, ns: u64) {
        self.now_ns += ns;
        self.drive.advance(self.now_ns, usize::MAX, |_| ());
    }

    /// The drive: its counters, its profile.
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Power fails and comes back.
    pub fn power_cut(&mut self) {
        self.drive.power_cut(self.now_ns);
    }

    /// Sends a request and waits for its end. Data of a write were put before.
    pub fn request(&mut self, op: Op, lba: Lba, sectors: u64) -> Result<(), DeviceError> {
        let request = Request {
            tag: self.tag,
            op,
            flags: 0,
            lba,
            sectors: u32::try_from(sectors).map_err(|_| ZoneError::OutOfRange)?,
        };
        self.tag += 1;
        self.drive
            .submit(self.now_ns, request)
            .map_err(|refusal| match refusal {
                Refusal::Unsupported => ZoneError::InvalidField,
                Refusal::Invalid | Refusal::QueueFull => ZoneError::OutOfRange,
            })?;
        let mut outcome = None;
        loop {
            self.drive
                .advance(self.now_ns, usize::MAX, |done| outcome = Some(done.outcome));
            if let Some(outcome) = outcome {
                return result(outcome);
            }
            let next_ns = self.drive.next_event();
            let next_ns = next_ns.expect("a request is in the drive, so something will happen");
            self.now_ns = next_ns.max(self.now_ns);
        }
    }

    /// Bytes of the largest request.
    fn chunk_bytes(&self) -> usize {
        self.drive.profile().interface.max_request_sectors as usize * SECTOR_BYTES as usize
    }

    fn zone_command(&mut self, op: Op, zone: ZoneId) -> Result<(), DeviceError> {
        let report = self.drive.zone(zone).ok_or(ZoneError::OutOfRange)?;
        self.request(op, report.start, 0)
    }
}

fn result(outcome: Outcome) -> Result<(), DeviceError> {
    match (outcome, outcome.sense()) {
        (Outcome::Zone(error), _) => Err(error.into()),
        (_, Some(sense)) => Err(DeviceError::Failed(sense)),
        (_, None) => Ok(()),
    }
}

/// Sectors of a buffer.
fn sectors(data: &[u8]) -> u64 {
    debug_assert!(data.len() as u64 % SECTOR_BYTES == 0);
    data.len() as u64 / SECTOR_BYTES
}

/// Data that are longer than the drive's largest request go in several, one after the other.
impl ZonedDevice for ZonedDisk {
    fn zones(&self) -> u32 {
        self.drive.zones()
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.drive.zone(zone)
    }

    fn open_max(&self) -> Option<u32> {
        self.drive.profile().open_zones()
    }

    fn read(&mut self, mut at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        for chunk in data.chunks_mut(self.chunk_bytes()) {
            self.request(Op::Read, at, sectors(chunk))?;
            let damaged = self.drive.get(at.0, chunk);
            damaged.or_else(|_| result(Outcome::Damaged))?;
            at = Lba(at.0 + sectors(chunk));
        }
        Ok(())
    }

    fn write(&mut self, mut at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        for chunk in data.chunks(self.chunk_bytes()) {
            let put = self.drive.put(self.tag, 0, chunk);
            put.map_err(|_| ZoneError::OutOfRange)?;
            self.request(Op::Write, at, sectors(chunk))?;
            at = Lba(at.0 + sectors(chunk));
        }
        Ok(())
    }

    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zone_command(Op::ZoneOpen, zone)
    }

    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zone_command(Op::ZoneClose, zone)
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zone_command(Op::ZoneFinish, zone)
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zone_command(Op::ZoneReset, zone)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.request(Op::Flush, Lba(0), 0)
    }
}
