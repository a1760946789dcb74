// SPDX-License-Identifier: MIT OR Apache-2.0
//! A zoned device counted in blocks, and the only way to it. After a failed write, flush, reset or finish it writes nothing
//! any more.
//!
//! INV-S1: in a sequential zone blocks are written once per epoch, in order, at the write pointer. Every write of such a
//! zone goes through `append`, which takes the place from the caller's table and checks it here.

use crate::error::{Error, Result};
use crate::format::BLOCK;
use zoned::{
    Block, DeviceError, Lba, ZoneId, ZoneState, ZoneType, ZonedDevice, BLOCK_BYTES, BLOCK_SECTORS,
};

/// How the device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Zones.
    pub zones: u32,
    /// Blocks from one zone to the next.
    pub zone_blocks: u32,
    /// Blocks of a sequential zone that can be written.
    pub capacity_blocks: u32,
    /// Conventional zones, all of them before the first sequential one.
    pub conventional: u32,
    /// Zones that may be open at a time.
    pub open_max: Option<u32>,
}

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct Disk<D> {
    device: D,
    geometry: Geometry,
    /// Blocks written so far, for the amplification.
    pub written_blocks: u64,
    /// Why nothing is written any more.
    refusal: Option<String>,
}

impl<D: ZonedDevice> Disk<D> {
    /// Looks at the device.
    pub fn new(device: D) -> Result<Self> {
        let geometry = look(&device)?;
        Ok(Disk {
            device,
            geometry,
            written_blocks: 0,
            refusal: None,
        })
    }

    /// Why nothing is written any more, if so.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Nothing is written from now on. The first reason stays.
    pub fn refuse(&mut self, why: impl Into<String>) {
        self.refusal.get_or_insert_with(|| why.into());
    }

    /// Does something that changes the device. After the first failure nothing more is promised, because what is in memory
    /// and not durable cannot be known to become so.
    fn act(
        &mut self,
        place: impl FnOnce() -> String,
        act: impl FnOnce(&mut D) -> std::result::Result<(), DeviceError>,
    ) -> Result {
        if self.refusal.is_some() {
            return Err(Error::ReadOnly);
        }
        act(&mut self.device).map_err(|error| {
            let error = failed(place(), error);
            self.refusal = Some(error.to_string());
            error
        })
    }

    /// How the device is divided.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Gives the device back.
    pub fn into_device(self) -> D {
        self.device
    }

    /// The block of a zone.
    pub fn block_of(&self, zone: ZoneId, block: u32) -> Block {
        Block(u64::from(zone.0) * u64::from(self.geometry.zone_blocks) + u64::from(block))
    }

    /// The zone of a block, and the block's number in it.
    pub fn zone_at(&self, at: Block) -> (ZoneId, u32) {
        let zone_blocks = u64::from(self.geometry.zone_blocks);
        let zone = u32::try_from(at.0 / zone_blocks).unwrap_or(u32::MAX);
        (ZoneId(zone), (at.0 % zone_blocks) as u32)
    }

    /// Reads whole blocks.
    pub fn read(&mut self, at: Block, data: &mut [u8]) -> Result {
        debug_assert!(data.len() % BLOCK == 0);
        self.device
            .read(at.first_sector(), data)
            .map_err(|error| failed(format!("reading block {}", at.0), error))
    }

    /// Reads `blocks` blocks of a zone.
    pub fn read_zone(&mut self, zone: ZoneId, block: u32, blocks: u32) -> Result<Vec<u8>> {
        let mut data = vec![0; blocks as usize * BLOCK];
        self.read(self.block_of(zone, block), &mut data)?;
        Ok(data)
    }

    /// Writes whole blocks of random-write zones, in one command per zone.
    pub fn write_random(&mut self, mut at: Block, mut data: &[u8]) -> Result {
        let zone_blocks = u64::from(self.geometry.zone_blocks);
        while !data.is_empty() {
            let room = (zone_blocks - at.0 % zone_blocks) * BLOCK_BYTES;
            let bytes = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
            let (piece, rest) = data.split_at(bytes);
            self.write(at, piece)?;
            at = at + (bytes / BLOCK) as u64;
            data = rest;
        }
        Ok(())
    }

    /// Writes whole blocks at a sequential zone's write pointer.
    pub fn append(&mut self, zone: ZoneId, block: u32, data: &[u8]) -> Result {
        let end = block as usize + data.len() / BLOCK;
        assert!(
            zone.0 >= self.geometry.conventional && end <= self.geometry.capacity_blocks as usize,
            "INV-S1: {end} blocks do not fit into zone {}",
            zone.0
        );
        self.write(self.block_of(zone, block), data)
    }

    fn write(&mut self, at: Block, data: &[u8]) -> Result {
        debug_assert!(data.len() % BLOCK == 0);
        self.act(
            || format!("writing block {}", at.0),
            |device| device.write(at.first_sector(), data),
        )?;
        self.written_blocks += (data.len() / BLOCK) as u64;
        Ok(())
    }

    /// Makes everything written so far survive a power cut.
    pub fn flush(&mut self) -> Result {
        self.act(|| "a flush".into(), D::flush)
    }

    /// Empties a zone.
    pub fn reset(&mut self, zone: ZoneId) -> Result {
        self.act(
            || format!("resetting zone {}", zone.0),
            |device| device.reset_zone(zone),
        )
    }

    /// Declares a zone full, so that it is not open any more.
    pub fn finish(&mut self, zone: ZoneId) -> Result {
        self.act(
            || format!("finishing zone {}", zone.0),
            |device| device.finish_zone(zone),
        )
    }

    /// The zone's next block as the device knows it; its capacity if the zone is full.
    pub fn write_pointer(&self, zone: ZoneId) -> Result<u32> {
        let out_of_range =
            || Error::corrupt(format!("zone {}", zone.0), "the device has no such zone");
        let report = self.device.zone(zone).ok_or_else(out_of_range)?;
        if report.state == ZoneState::Full {
            return Ok(self.geometry.capacity_blocks);
        }
        let sectors = report.write_pointer.0.saturating_sub(report.start.0);
        Ok(u32::try_from(sectors.div_ceil(BLOCK_SECTORS)).unwrap_or(u32::MAX))
    }

    /// The zone's condition.
    pub fn state(&self, zone: ZoneId) -> Option<ZoneState> {
        Some(self.device.zone(zone)?.state)
    }

    /// What may be written where in the zone.
    pub fn zone_type(&self, zone: ZoneId) -> Option<ZoneType> {
        Some(self.device.zone(zone)?.zone_type)
    }

    /// Whether the device keeps write pointers through a power cut.
    pub fn keeps_write_pointers(&self) -> bool {
        self.device.keeps_write_pointers()
    }

    /// Tells a device that keeps none where a zone's write pointer is.
    pub fn set_write_pointer(&mut self, zone: ZoneId, block: u32) -> Result {
        let at = self.block_of(zone, block).first_sector();
        self.act(
            || format!("the write pointer of zone {}", zone.0),
            |device| device.set_write_pointer(zone, at),
        )
    }
}

fn failed(place: String, error: DeviceError) -> Error {
    Error::Device { place, error }
}

/// Checks that a device is of a kind that this file system knows.
fn look(device: &impl ZonedDevice) -> Result<Geometry> {
    let refuse = |reason: &str| Error::corrupt("the device's division into zones", reason);
    let first = device
        .zone(ZoneId(0))
        .ok_or_else(|| refuse("it has none"))?;
    let mut geometry = Geometry {
        zones: device.zones(),
        zone_blocks: u32::try_from(first.size_sectors / BLOCK_SECTORS)
            .map_err(|_| refuse("its zones are larger than 16 TiB"))?,
        capacity_blocks: 0,
        conventional: 0,
        open_max: device.open_max(),
    };
    for number in 0..geometry.zones {
        let zone = device
            .zone(ZoneId(number))
            .ok_or_else(|| refuse("a zone is missing"))?;
        let start = u64::from(number) * first.size_sectors;
        let is_last = number + 1 == geometry.zones;
        if zone.start != Lba(start) || (zone.size_sectors != first.size_sectors && !is_last) {
            return Err(refuse("its zones differ in size"));
        }
        if zone.zone_type == ZoneType::Conventional {
            if geometry.conventional != number {
                // Conventional zones at the end of a disk are not used.
                geometry.zones = number;
                break;
            }
            geometry.conventional += 1;
            continue;
        }
        let capacity = u32::try_from(zone.capacity_sectors / BLOCK_SECTORS).unwrap_or(u32::MAX);
        if geometry.capacity_blocks == 0 {
            geometry.capacity_blocks = capacity;
        } else if capacity != geometry.capacity_blocks {
            if !is_last {
                return Err(refuse("its zones differ in capacity"));
            }
            geometry.zones = number;
        }
    }
    if first.size_sectors % BLOCK_SECTORS != 0 || geometry.zone_blocks < 16 {
        return Err(refuse(
            "its zones are no multiples of 4 KiB, or smaller than 64 KiB",
        ));
    }
    if u64::from(geometry.capacity_blocks) * BLOCK_BYTES > u64::from(u32::MAX) {
        return Err(refuse("its zones are larger than 4 GiB"));
    }
    Ok(geometry)
}
