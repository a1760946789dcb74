// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file system of this computer can be on: an image file or an ordinary disk, whose zones are only an agreement, or
//! a disk with zones of its own.

use crate::block_zones::BlockZones;
use crate::host_file::HostFile;
use crate::image::{superblock, ImageDevice};
use safs::format::BLOCK;
use std::path::Path;
use zoned::{DeviceError, Lba, Zone, ZoneId, ZonedDevice};

/// Bytes of a zone where neither the disk nor the user says.
const ZONE_BYTES: u64 = 256 << 20;

/// See the module's head.
pub enum HostDevice {
    /// Zones are kept by this program.
    Image(ImageDevice),
    /// Zones are kept by the disk.
    Zones(BlockZones),
}

impl HostDevice {
    /// Opens what will be formatted: a disk, or a file, which will have `bytes` bytes. Without a zone size it is the disk's
    /// own; with another than that, a host-aware disk is treated as an ordinary one. Before `prepare` nothing changes.
    pub fn create(
        path: &Path,
        bytes: Option<u64>,
        zone_bytes: Option<u64>,
        random_zones: Option<u32>,
    ) -> Result<Self, String> {
        let file = match BlockZones::find(path, HostFile::create(path, bytes)?)? {
            Ok(disk) if zone_bytes.is_none_or(|bytes| bytes == disk.zone_bytes()) => {
                return Ok(HostDevice::Zones(disk));
            }
            Ok(disk) => disk.into_file(path)?,
            Err(file) => file,
        };
        let zone_bytes = zone_bytes.unwrap_or(ZONE_BYTES);
        ImageDevice::format(file, zone_bytes, random_zones).map(HostDevice::Image)
    }

    /// What is there is given up now.
    pub fn prepare(&mut self) -> std::io::Result<()> {
        match self {
            HostDevice::Image(device) => device.file_mut(),
            HostDevice::Zones(device) => device.file_mut(),
        }
        .prepare()
    }

    /// Opens what was formatted.
    pub fn open(path: &Path, writable: bool) -> Result<Self, String> {
        let file = match BlockZones::find(path, HostFile::open(path, writable)?)? {
            Ok(mut disk) => {
                let found = superblock(path, disk.file_mut())?;
                let zone_bytes = u64::from(found.zone_blocks) * BLOCK as u64;
                if zone_bytes == disk.zone_bytes() {
                    return Ok(HostDevice::Zones(disk));
                }
                disk.into_file(path)?
            }
            Err(file) => file,
        };
        ImageDevice::opened(path, file).map(HostDevice::Image)
    }

    fn device(&self) -> &dyn ZonedDevice {
        match self {
            HostDevice::Image(device) => device,
            HostDevice::Zones(device) => device,
        }
    }

    fn device_mut(&mut self) -> &mut dyn ZonedDevice {
        match self {
            HostDevice::Image(device) => device,
            HostDevice::Zones(device) => device,
        }
    }
}

impl ZonedDevice for HostDevice {
    fn zones(&self) -> u32 {
        self.device().zones()
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.device().zone(zone)
    }
    fn open_max(&self) -> Option<u32> {
        self.device().open_max()
    }
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.device_mut().read(at, data)
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.device_mut().write(at, data)
    }
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device_mut().open_zone(zone)
    }
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device_mut().close_zone(zone)
    }
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device_mut().finish_zone(zone)
    }
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device_mut().reset_zone(zone)
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.device_mut().flush()
    }
    fn keeps_write_pointers(&self) -> bool {
        self.device().keeps_write_pointers()
    }
    fn set_write_pointer(&mut self, zone: ZoneId, at: Lba) -> Result<(), DeviceError> {
        self.device_mut().set_write_pointer(zone, at)
    }
}
