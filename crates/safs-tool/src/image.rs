// SPDX-License-Identifier: MIT OR Apache-2.0
//! An image file, or an ordinary disk, as a zoned device. The rules of zones are kept here, because nobody else keeps them:
//! what works on an image works on a host-managed disk.
//!
//! Write pointers are only in memory: recovery tells them (`set_write_pointer`), and until then a zone may be read to its
//! end.

use crate::host_file::HostFile;
use rustix::fs::{fallocate, FallocateFlags};
use safs::format::{Superblock, BLOCK};
use std::io;
use std::path::Path;
use zoned::{
    DeviceError, Lba, Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType, ZonedDevice,
    SECTOR_BYTES,
};

/// Smallest zone, in bytes.
pub const ZONE_BYTES_MIN: u64 = 1 << 20;
/// Places where a second superblock is looked for, of a small disk. Of a large one they are its first hundredth, because
/// the mirror is in the middle of the random zones, and these are a hundredth of all.
const PLACES_MIN: u64 = 1 << 16;

/// See the module's head.
pub struct ImageDevice {
    file: HostFile,
    zones: Vec<Zone>,
}

impl ImageDevice {
    /// Opens what will be formatted: zones of `zone_bytes`, of which the first `random_zones` are conventional. Without a
    /// number they are a hundredth, at least two.
    pub fn create(path: &Path, zone_bytes: u64, random_zones: Option<u32>) -> Result<Self, String> {
        let file = HostFile::open(path, true)?;
        ImageDevice::format(file, zone_bytes, random_zones)
    }

    pub(crate) fn file_mut(&mut self) -> &mut HostFile {
        &mut self.file
    }

    pub(crate) fn format(
        file: HostFile,
        zone_bytes: u64,
        random_zones: Option<u32>,
    ) -> Result<Self, String> {
        if zone_bytes % ZONE_BYTES_MIN != 0 || zone_bytes == 0 {
            return Err(format!(
                "a zone of {zone_bytes} bytes: zones are multiples of 1 MiB"
            ));
        }
        let bytes = file.bytes();
        let zones =
            u32::try_from(bytes / zone_bytes).map_err(|_| "more than 2^32 zones".to_string())?;
        let random_zones = random_zones.unwrap_or(zones.div_ceil(100).max(2));
        Ok(ImageDevice::new(file, zones, zone_bytes, random_zones))
    }

    /// Opens what was formatted; its superblock tells the zones.
    pub fn open(path: &Path, writable: bool) -> Result<Self, String> {
        ImageDevice::opened(path, HostFile::open(path, writable)?)
    }

    pub(crate) fn opened(path: &Path, mut file: HostFile) -> Result<Self, String> {
        let found = superblock(path, &mut file)?;
        let zone_bytes = u64::from(found.zone_blocks) * BLOCK as u64;
        if u64::from(found.zones) * zone_bytes > file.bytes() {
            return Err(format!(
                "{}: shorter than its superblock says",
                path.display()
            ));
        }
        let (zones, random_zones) = (found.zones, found.random_zones);
        Ok(ImageDevice::new(file, zones, zone_bytes, random_zones))
    }

    fn new(file: HostFile, zones: u32, zone_bytes: u64, random_zones: u32) -> Self {
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

/// The superblock, or its mirror: that starts a zone, and zones are multiples of 1 MiB. Of several mirrors, each where it says
/// that it is, the last made counts: the others are what earlier file systems left.
pub(crate) fn superblock(path: &Path, file: &mut HostFile) -> Result<Superblock, String> {
    let mut block = vec![0; BLOCK];
    let mut read = |file: &mut HostFile, at: u64| {
        let read = file.read(at, &mut block);
        read.map_err(|why| why.to_string())?;
        Superblock::decode(&block).map_err(|damage| damage.to_string())
    };
    let first = match read(file, 0) {
        Ok(found) => return Ok(found),
        Err(why) if file.bytes() == 0 => format!("it is empty ({why})"),
        Err(why) => why,
    };
    let places = file.bytes() / ZONE_BYTES_MIN;
    let places = 1..places.min(PLACES_MIN.max(places / 100 + 1));
    let mirrors = places.filter_map(|place| {
        let at = place * ZONE_BYTES_MIN;
        let found = read(file, at).ok()?;
        (found.mirror_blocks.checked_mul(BLOCK as u64) == Some(at)).then_some(found)
    });
    let newest = mirrors.max_by_key(|found| found.made_ns);
    newest.ok_or_else(|| format!("{}: no SAFS file system: {first}", path.display()))
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
            .read(at.0 * SECTOR_BYTES, data)
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
            .write(at.0 * SECTOR_BYTES, data)
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
        let _ = fallocate(self.file.file(), punch, start, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.file.sync().map_err(failed(0x0c))
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
