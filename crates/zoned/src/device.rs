// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The seam between a file system and a zoned device, and the simplest device behind it.

use crate::{Lba, Zone, ZoneError, ZoneId, ZoneType, SECTOR_BYTES};
use alloc::vec;
use alloc::vec::Vec;

/// A device with zones. Buffers hold whole sectors.
pub trait ZonedDevice {
    /// How many zones there are.
    fn zones(&self) -> u32;
    /// A zone's report.
    fn zone(&self, zone: ZoneId) -> Option<Zone>;
    /// Reads `data.len()` bytes from `at`.
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), ZoneError>;
    /// Writes `data` at `at`.
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), ZoneError>;
    /// Empties a zone.
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), ZoneError>;
    /// Declares a zone full.
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), ZoneError>;
    /// Makes everything written so far survive a power cut.
    fn flush(&mut self) -> Result<(), ZoneError>;
}

/// A strict zoned device in memory, for tests: it keeps every rule and takes no time.
pub struct RamDevice {
    zones: Vec<Zone>,
    data: Vec<u8>,
}

impl RamDevice {
    /// `conventional` conventional zones followed by `sequential` sequential ones.
    pub fn new(conventional: u32, sequential: u32, zone_sectors: u64) -> Self {
        let count = conventional + sequential;
        let zones = (0..count)
            .map(|i| {
                let kind = if i < conventional {
                    ZoneType::Conventional
                } else {
                    ZoneType::SeqRequired
                };
                Zone::new(Lba(u64::from(i) * zone_sectors), zone_sectors, kind)
            })
            .collect();
        let bytes = u64::from(count) * zone_sectors * SECTOR_BYTES;
        RamDevice {
            zones,
            data: vec![0; usize::try_from(bytes).expect("a test device fits in memory")],
        }
    }

    fn zone_of(&self, at: Lba) -> Result<usize, ZoneError> {
        self.zones
            .iter()
            .position(|z| z.start <= at && at.0 < z.start.0 + z.size_sectors)
            .ok_or(ZoneError::OutOfRange)
    }

    fn bytes(at: Lba, len: usize) -> core::ops::Range<usize> {
        let start = usize::try_from(at.0 * SECTOR_BYTES).unwrap_or(usize::MAX);
        start..start.saturating_add(len)
    }
}

impl ZonedDevice for RamDevice {
    fn zones(&self) -> u32 {
        u32::try_from(self.zones.len()).unwrap_or(u32::MAX)
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.zones.get(zone.0 as usize).copied()
    }

    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), ZoneError> {
        let zone = self.zones[self.zone_of(at)?];
        let end = Lba(at.0 + data.len() as u64 / SECTOR_BYTES);
        if zone.zone_type == ZoneType::SeqRequired && end > zone.write_pointer {
            return Err(ZoneError::InvalidData);
        }
        let from = self
            .data
            .get(Self::bytes(at, data.len()))
            .ok_or(ZoneError::OutOfRange)?;
        data.copy_from_slice(from);
        Ok(())
    }

    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), ZoneError> {
        let index = self.zone_of(at)?;
        let to = Self::bytes(at, data.len());
        if to.end > self.data.len() {
            return Err(ZoneError::Boundary);
        }
        self.zones[index].write(at, data.len() as u64 / SECTOR_BYTES)?;
        self.data[to].copy_from_slice(data);
        Ok(())
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), ZoneError> {
        self.zones
            .get_mut(zone.0 as usize)
            .ok_or(ZoneError::OutOfRange)?
            .reset()
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), ZoneError> {
        self.zones
            .get_mut(zone.0 as usize)
            .ok_or(ZoneError::OutOfRange)?
            .finish()
    }

    fn flush(&mut self) -> Result<(), ZoneError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_at_the_write_pointer_reads_back() {
        let mut device = RamDevice::new(1, 2, 16);
        device.write(Lba(16), &[7; 512]).unwrap();
        let mut sector = [0; 512];
        device.read(Lba(16), &mut sector).unwrap();
        assert_eq!(sector, [7; 512]);
        assert_eq!(
            device.read(Lba(17), &mut sector),
            Err(ZoneError::InvalidData)
        );
    }
}
