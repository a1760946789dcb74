// SPDX-License-Identifier: MIT OR Apache-2.0
//! An image file, or an ordinary disk, as a zoned device. The rules of zones are kept here, because nobody else keeps them:
//! what works on an image works on a host-managed disk.
//!
//! Write pointers are only in memory: recovery tells them (`set_write_pointer`), and until then a zone may be read to its
//! end.

use crate::format::{Superblock, BLOCK};
use rustix::fs::{fallocate, flock, FallocateFlags, FlockOperation};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zoned::{
    DeviceError, Lba, Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType, ZonedDevice,
    SECTOR_BYTES,
};

/// Smallest zone, in bytes.
pub const ZONE_BYTES_MIN: u64 = 1 << 20;
/// Places where a second superblock is looked for.
const PLACES_MAX: u64 = 1 << 16;

/// See the module's head.
pub struct ImageDevice {
    file: File,
    zones: Vec<Zone>,
}

impl ImageDevice {
    /// Opens what will be formatted: zones of `zone_bytes`, of which the first `random_zones` are conventional. Without a
    /// number they are a hundredth, at least two.
    pub fn create(path: &Path, zone_bytes: u64, random_zones: Option<u32>) -> Result<Self, String> {
        if zone_bytes % ZONE_BYTES_MIN != 0 || zone_bytes == 0 {
            return Err(format!(
                "a zone of {zone_bytes} bytes: zones are multiples of 1 MiB"
            ));
        }
        let (file, bytes) = open(path, true)?;
        let zones =
            u32::try_from(bytes / zone_bytes).map_err(|_| "more than 2^32 zones".to_string())?;
        let random_zones = random_zones.unwrap_or(zones.div_ceil(100).max(2));
        Ok(ImageDevice::new(file, zones, zone_bytes, random_zones))
    }

    /// Opens what was formatted; its superblock tells the zones.
    pub fn open(path: &Path, writable: bool) -> Result<Self, String> {
        let (file, bytes) = open(path, writable)?;
        let mut block = vec![0; BLOCK];
        let mut first = None;
        // The second superblock starts a zone, and zones are multiples of 1 MiB.
        let places = (0..(bytes / ZONE_BYTES_MIN).min(PLACES_MAX)).map(|i| i * ZONE_BYTES_MIN);
        for at in places {
            if file.read_exact_at(&mut block, at).is_err() {
                continue;
            }
            match Superblock::decode(&block) {
                Ok(found) => {
                    let zone_bytes = u64::from(found.zone_blocks) * BLOCK as u64;
                    if u64::from(found.zones) * zone_bytes > bytes {
                        return Err(format!(
                            "{}: shorter than its superblock says",
                            path.display()
                        ));
                    }
                    return Ok(ImageDevice::new(
                        file,
                        found.zones,
                        zone_bytes,
                        found.random_zones,
                    ));
                }
                Err(damage) => first = first.or(Some(damage)),
            }
        }
        let why = first.map_or("it is empty".to_string(), |damage| damage.to_string());
        Err(format!("{}: no SAFS file system: {why}", path.display()))
    }

    fn new(file: File, zones: u32, zone_bytes: u64, random_zones: u32) -> Self {
        let sectors = zone_bytes / SECTOR_BYTES;
        let zone = |number: u32| {
            let kind = match number < random_zones {
                true => ZoneType::Conventional,
                false => ZoneType::SeqRequired,
            };
            Zone::new(Lba(u64::from(number) * sectors), sectors, kind)
        };
        ImageDevice {
            file,
            zones: (0..zones).map(zone).collect(),
        }
    }

    fn index(&self, at: Lba) -> Result<usize, ZoneError> {
        let sectors = self.zones.first().map_or(1, |zone| zone.size_sectors);
        let index = usize::try_from(at.0 / sectors).unwrap_or(usize::MAX);
        (index < self.zones.len())
            .then_some(index)
            .ok_or(ZoneError::OutOfRange)
    }

    fn sequential(&mut self, zone: ZoneId) -> Result<&mut Zone, ZoneError> {
        let zone = self
            .zones
            .get_mut(zone.0 as usize)
            .ok_or(ZoneError::OutOfRange)?;
        match zone.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            _ => Ok(zone),
        }
    }
}

/// Opens and locks; also says how long it is.
fn open(path: &Path, writable: bool) -> Result<(File, u64), String> {
    let failed = |why: io::Error| format!("{}: {why}", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(writable)
        .open(path)
        .map_err(failed)?;
    let lock = match writable {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    flock(&file, lock).map_err(|_| format!("{}: in use by another program", path.display()))?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok((file, bytes))
}

/// MEDIUM ERROR: unrecovered read error, write error.
fn failed(asc: u8) -> impl FnOnce(io::Error) -> DeviceError {
    move |_| {
        DeviceError::Failed(Sense {
            key: 3,
            asc,
            ascq: 0,
        })
    }
}

impl ZonedDevice for ImageDevice {
    fn zones(&self) -> u32 {
        u32::try_from(self.zones.len()).unwrap_or(u32::MAX)
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.zones.get(zone.0 as usize).copied()
    }

    fn open_max(&self) -> Option<u32> {
        None
    }

    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.index(at)?;
        self.file
            .read_exact_at(data, at.0 * SECTOR_BYTES)
            .map_err(failed(0x11))
    }

    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let first = self.index(at)?;
        let last = self.index(Lba(at.0 + sectors.max(1) - 1))?;
        if first != last && self.zones[last].zone_type != ZoneType::Conventional {
            return Err(ZoneError::Boundary.into());
        }
        let mut zone = self.zones[first];
        zone.write(at, sectors)?;
        self.file
            .write_all_at(data, at.0 * SECTOR_BYTES)
            .map_err(failed(0x0c))?;
        self.zones[first] = zone;
        Ok(())
    }

    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sequential(zone)?.state = ZoneState::ExplicitOpen;
        Ok(())
    }

    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.sequential(zone)?.state = ZoneState::Closed;
        Ok(())
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        Ok(self.sequential(zone)?.finish()?)
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let zone = self.sequential(zone)?;
        zone.reset()?;
        let (start, bytes) = (
            zone.start.0 * SECTOR_BYTES,
            zone.size_sectors * SECTOR_BYTES,
        );
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Only gives space back; where it is not known, as on most disks, old bytes stay, and their epoch tells them.
        let _ = fallocate(&self.file, punch, start, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(failed(0x0c))
    }

    fn keeps_write_pointers(&self) -> bool {
        false
    }

    fn set_write_pointer(&mut self, zone: ZoneId, at: Lba) -> Result<(), DeviceError> {
        let zone = self.sequential(zone)?;
        zone.write_pointer = at;
        zone.state = match at.0 - zone.start.0 {
            0 => ZoneState::Empty,
            sectors if sectors >= zone.capacity_sectors => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        Ok(())
    }
}
