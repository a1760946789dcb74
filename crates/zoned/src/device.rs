// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The seam between a file system and a zoned device, and the simplest device behind it.

use crate::{Lba, Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType, SECTOR_BYTES};
use alloc::vec;
use alloc::vec::Vec;

/// Why a device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// A zone refused it; nothing was changed.
    Zone(ZoneError),
    /// The device could not: an unreadable block, a write that failed, damage. Of a write, a part may be done.
    Failed(Sense),
}

impl DeviceError {
    /// What the device says.
    pub fn sense(self) -> Sense {
        match self {
            DeviceError::Zone(error) => error.sense(),
            DeviceError::Failed(sense) => sense,
        }
    }
}

impl From<ZoneError> for DeviceError {
    fn from(error: ZoneError) -> Self {
        DeviceError::Zone(error)
    }
}

/// A device with zones. Buffers hold whole sectors. What was written and not flushed may be lost in a power cut, and then
/// a write pointer is found where the loss begins.
pub trait ZonedDevice {
    /// How many zones there are.
    fn zones(&self) -> u32;
    /// A zone's report: its capacity and its write pointer are there.
    fn zone(&self, zone: ZoneId) -> Option<Zone>;
    /// Zones that may be open at a time: a host-managed device refuses more, a host-aware one becomes slow. `None` if there
    /// is no limit.
    fn open_max(&self) -> Option<u32>;
    /// Reads `data.len()` bytes from `at`.
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes `data` at `at`.
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError>;
    /// Writes `data` at a sequential zone's write pointer, wherever that is. Returns where it was.
    ///
    /// Disks have no such command; the kernel, too, makes it of a write (sd_zbc).
    fn append(&mut self, zone: ZoneId, data: &[u8]) -> Result<Lba, DeviceError> {
        let report = self.zone(zone).ok_or(ZoneError::OutOfRange)?;
        let at = report.write_pointer;
        let end = report.start.0 + report.capacity_sectors;
        match report.state {
            ZoneState::NotWritePointer => return Err(ZoneError::InvalidField.into()),
            ZoneState::ReadOnly => return Err(ZoneError::ReadOnly.into()),
            ZoneState::Offline => return Err(ZoneError::Offline.into()),
            _ if at.0 + data.len() as u64 / SECTOR_BYTES > end => {
                return Err(ZoneError::Boundary.into())
            }
            _ => {}
        }
        self.write(at, data)?;
        Ok(at)
    }
    /// Opens a zone: it stays open until it is closed, finished, reset or full.
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError>;
    /// Closes a zone if it is open.
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError>;
    /// Declares a zone full.
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError>;
    /// Empties a zone.
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError>;
    /// Makes everything written so far survive a power cut.
    fn flush(&mut self) -> Result<(), DeviceError>;
    /// Whether the device itself knows its write pointers after a power cut. An image file does not.
    fn keeps_write_pointers(&self) -> bool {
        true
    }
    /// Tells a device that does not know them where a zone's write pointer is.
    fn set_write_pointer(&mut self, _zone: ZoneId, _at: Lba) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A strict zoned device in memory, for tests: it keeps every rule and takes no time.
#[derive(Clone)]
pub struct RamDevice {
    zones: Vec<Zone>,
    data: Vec<u8>,
    open_max: Option<u32>,
    unit_sectors: u64,
    /// Zones opened by a write, the one that was written longest ago first.
    implicit: Vec<usize>,
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
            open_max: None,
            unit_sectors: 1,
            implicit: Vec::new(),
        }
    }

    /// The same, with at most `zones` open at a time.
    pub fn with_open_max(mut self, zones: u32) -> Self {
        self.open_max = Some(zones);
        self
    }

    /// The same; of each sequential zone only `sectors` can be written.
    pub fn with_capacity(mut self, sectors: u64) -> Self {
        let sequential = self.zones.iter_mut();
        sequential
            .filter(|zone| zone.zone_type != ZoneType::Conventional)
            .for_each(|zone| zone.capacity_sectors = sectors.min(zone.size_sectors));
        self
    }

    /// The same; sequential zones are written in multiples of `sectors`.
    pub fn with_unit(mut self, sectors: u64) -> Self {
        self.unit_sectors = sectors;
        self
    }

    fn zone_of(&self, at: Lba) -> Result<usize, ZoneError> {
        self.zones
            .iter()
            .position(|z| z.start <= at && at.0 < z.start.0 + z.size_sectors)
            .ok_or(ZoneError::OutOfRange)
    }

    /// The zones of `len` bytes from `at`, and where these are in the data.
    fn place(
        &self,
        at: Lba,
        len: usize,
    ) -> Result<(usize, usize, core::ops::Range<usize>), ZoneError> {
        let start = usize::try_from(at.0.saturating_mul(SECTOR_BYTES)).unwrap_or(usize::MAX);
        let bytes = start..start.saturating_add(len);
        if bytes.end > self.data.len() {
            return Err(ZoneError::OutOfRange);
        }
        let last = Lba(at.0 + (len as u64 / SECTOR_BYTES).max(1) - 1);
        Ok((self.zone_of(at)?, self.zone_of(last)?, bytes))
    }

    fn is_conventional(&self, zone: usize) -> bool {
        self.zones[zone].zone_type == ZoneType::Conventional
    }

    /// Makes sure that one more zone can be opened.
    fn make_room(&mut self) -> Result<(), ZoneError> {
        let explicit = |zone: &&Zone| zone.state == ZoneState::ExplicitOpen;
        let open = self.implicit.len() + self.zones.iter().filter(explicit).count();
        if self.open_max.is_some_and(|max| open >= max as usize) {
            let zone = *self.implicit.first().ok_or(ZoneError::Resources)?;
            self.shut(zone);
        }
        Ok(())
    }

    fn shut(&mut self, index: usize) {
        self.implicit.retain(|other| *other != index);
        let zone = &mut self.zones[index];
        zone.state = if zone.write_pointer == zone.start {
            ZoneState::Empty
        } else {
            ZoneState::Closed
        };
    }

    /// The sequential zone of a command.
    fn named(&mut self, zone: ZoneId) -> Result<usize, ZoneError> {
        let index = zone.0 as usize;
        match self.zones.get(index).ok_or(ZoneError::OutOfRange)?.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            ZoneState::ReadOnly => Err(ZoneError::ReadOnly),
            ZoneState::Offline => Err(ZoneError::Offline),
            _ => Ok(index),
        }
    }
}

impl ZonedDevice for RamDevice {
    fn zones(&self) -> u32 {
        u32::try_from(self.zones.len()).unwrap_or(u32::MAX)
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.zones.get(zone.0 as usize).copied()
    }

    fn open_max(&self) -> Option<u32> {
        self.open_max
    }

    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        let (first, last, bytes) = self.place(at, data.len())?;
        let end = at.0 + data.len() as u64 / SECTOR_BYTES;
        for index in first..=last {
            let zone = self.zones[index];
            if zone.state == ZoneState::Offline {
                return Err(ZoneError::Offline.into());
            }
            if self.is_conventional(index) != self.is_conventional(first) {
                return Err(ZoneError::ReadBoundary.into());
            }
            let end = end.min(zone.start.0 + zone.size_sectors);
            if !self.is_conventional(index) && end > zone.write_pointer.0 {
                return Err(ZoneError::InvalidData.into());
            }
        }
        data.copy_from_slice(&self.data[bytes]);
        Ok(())
    }

    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        let (first, last, bytes) = self.place(at, data.len())?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        if self.is_conventional(first) {
            if !self.is_conventional(last) {
                return Err(ZoneError::Boundary.into());
            }
        } else {
            let mut zone = self.zones[first];
            let was_open = matches!(
                zone.state,
                ZoneState::ImplicitOpen | ZoneState::ExplicitOpen
            );
            zone.write(at, sectors)?;
            if (at.0 | sectors) % self.unit_sectors != 0 {
                return Err(ZoneError::Unaligned.into());
            }
            if !was_open {
                self.make_room()?;
            }
            self.zones[first] = zone;
            self.implicit.retain(|other| *other != first);
            if zone.state == ZoneState::ImplicitOpen {
                self.implicit.push(first);
            }
        }
        self.data[bytes].copy_from_slice(data);
        Ok(())
    }

    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.named(zone)?;
        match self.zones[index].state {
            ZoneState::ExplicitOpen | ZoneState::Full => return Ok(()),
            ZoneState::ImplicitOpen => self.implicit.retain(|other| *other != index),
            _ => self.make_room()?,
        }
        self.zones[index].state = ZoneState::ExplicitOpen;
        Ok(())
    }

    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.named(zone)?;
        if matches!(
            self.zones[index].state,
            ZoneState::ImplicitOpen | ZoneState::ExplicitOpen
        ) {
            self.shut(index);
        }
        Ok(())
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.named(zone)?;
        self.implicit.retain(|other| *other != index);
        let zone = &mut self.zones[index];
        zone.state = ZoneState::Full;
        zone.write_pointer = Lba(zone.start.0 + zone.capacity_sectors);
        Ok(())
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.named(zone)?;
        self.implicit.retain(|other| *other != index);
        self.zones[index].reset()?;
        let Zone {
            start,
            size_sectors,
            ..
        } = self.zones[index];
        let bytes = usize::try_from(size_sectors * SECTOR_BYTES).unwrap_or(usize::MAX);
        let (_, _, place) = self.place(start, bytes)?;
        self.data[place].fill(0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
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
            Err(ZoneError::InvalidData.into())
        );
    }
    #[test]
    fn append_tells_where_and_does_not_run_into_the_next_zone() {
        let mut device = RamDevice::new(1, 2, 16).with_capacity(12);
        assert_eq!(device.append(ZoneId(1), &[7; 512 * 8]), Ok(Lba(16)));
        assert_eq!(device.append(ZoneId(1), &[7; 512 * 4]), Ok(Lba(24)));
        for zone in [ZoneId(1), ZoneId(2)] {
            let error = device.append(zone, &[7; 512 * 13]).unwrap_err();
            assert_eq!(error, ZoneError::Boundary.into());
        }
        let conventional = device.append(ZoneId(0), &[7; 512]);
        assert_eq!(conventional, Err(ZoneError::InvalidField.into()));
    }

    #[test]
    fn one_zone_too_many_is_refused_when_none_can_be_closed() {
        let mut device = RamDevice::new(0, 3, 16).with_open_max(1);
        device.append(ZoneId(0), &[1; 512]).unwrap();
        device.open_zone(ZoneId(1)).unwrap();
        assert_eq!(device.zone(ZoneId(0)).unwrap().state, ZoneState::Closed);
        let refused = device.append(ZoneId(2), &[1; 512]);
        assert_eq!(refused, Err(ZoneError::Resources.into()));
    }
}
