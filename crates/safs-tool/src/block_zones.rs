// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk with zones of its own. A host-managed one is asked through the kernel, which knows such disks. A host-aware one
//! is an ordinary disk to the kernel: its zones are asked for and reset by the disk's own commands (ZBC, by SG_IO).
//!
//! The table of zones is kept here and follows what is written; after a failure the disk is asked.

use crate::host_file::HostFile;
use crate::zone_calls::{self, RawZone, ScsiError, ZoneCommand};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use zoned::{
    DeviceError, Lba, Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType, ZonedDevice,
    SECTOR_BYTES,
};

/// Bytes of a zone report by SCSI: its head and 255 descriptors.
const SCSI_REPORT_BYTES: usize = 16384;
/// Bytes of its head, and of a descriptor.
const DESCRIPTOR_BYTES: usize = 64;
const ZBC_IN: u8 = 0x95;
const ZBC_OUT: u8 = 0x94;
/// A report may stop where the buffer ends.
const PARTIAL: u8 = 0x80;

/// How the disk's zones are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// By the kernel's own calls.
    Kernel,
    /// By the disk's commands, whose addresses count blocks of so many sectors.
    Scsi { sectors: u64 },
}

/// See the module's head.
pub struct BlockZones {
    file: HostFile,
    access: Access,
    zones: Vec<Zone>,
    open_max: Option<u32>,
}

impl BlockZones {
    /// Asks a disk for its zones; none if it has none.
    pub(crate) fn find(path: &Path, file: HostFile) -> Result<Result<Self, HostFile>, String> {
        let number = |name: &str| -> Option<u64> { file.attribute(name)?.parse().ok() };
        let is_managed = file
            .attribute("queue/zoned")
            .is_some_and(|kind| kind == "host-managed");
        let logical = number("queue/logical_block_size").unwrap_or(SECTOR_BYTES);
        let open_max = number("queue/max_open_zones").and_then(|max| u32::try_from(max).ok());
        let access = match is_managed {
            true => Access::Kernel,
            false if file.attribute("queue/zoned").is_none() => return Ok(Err(file)),
            false => Access::Scsi {
                sectors: (logical / SECTOR_BYTES).max(1),
            },
        };
        let mut disk = BlockZones {
            file,
            access,
            zones: Vec::new(),
            open_max: open_max.filter(|max| *max > 0),
        };
        match disk.report_all() {
            Ok(()) if !disk.zones.is_empty() => Ok(Ok(disk)),
            Err(why) if is_managed => Err(format!("{}: its zones: {why}", path.display())),
            // A disk that does not know the command has no zones.
            _ => Ok(Err(disk.file)),
        }
    }

    /// Bytes of a zone.
    pub fn zone_bytes(&self) -> u64 {
        self.zones
            .first()
            .map_or(0, |zone| zone.size_sectors * SECTOR_BYTES)
    }

    pub(crate) fn file_mut(&mut self) -> &mut HostFile {
        &mut self.file
    }

    /// The disk without its zones, which only a host-aware one can be.
    pub(crate) fn into_file(self, path: &Path) -> Result<HostFile, String> {
        match self.access {
            Access::Scsi { .. } => Ok(self.file),
            Access::Kernel => Err(format!(
                "{}: its zones have {} bytes, and it takes no others",
                path.display(),
                self.zone_bytes()
            )),
        }
    }

    fn report_all(&mut self) -> io::Result<()> {
        let sectors = self.file.bytes() / SECTOR_BYTES;
        let mut at = 0;
        while at < sectors {
            let found = self.report(at)?;
            let Some(last) = found.last().filter(|last| last.length > 0) else {
                break;
            };
            at = last.start + last.length;
            for raw in &found {
                self.zones.push(zone_of(raw)?);
            }
        }
        Ok(())
    }

    fn report(&self, sector: u64) -> io::Result<Vec<RawZone>> {
        match self.access {
            Access::Kernel => Ok(zone_calls::report(self.file.file(), sector)?),
            Access::Scsi { sectors } => {
                let mut command = [0; 16];
                command[0] = ZBC_IN;
                command[2..10].copy_from_slice(&(sector / sectors).to_be_bytes());
                command[10..14].copy_from_slice(&(SCSI_REPORT_BYTES as u32).to_be_bytes());
                command[14] = PARTIAL;
                let mut answer = vec![0; SCSI_REPORT_BYTES];
                match zone_calls::scsi(self.file.file(), command, &mut answer) {
                    Ok(()) => Ok(descriptors(&answer, sectors)),
                    Err(ScsiError::Call(why)) => Err(why.into()),
                    Err(ScsiError::Sense(_)) => Err(Errno::OPNOTSUPP.into()),
                }
            }
        }
    }

    fn index(&self, at: Lba) -> Result<usize, ZoneError> {
        let sectors = self.zones.first().map_or(1, |zone| zone.size_sectors);
        let index = usize::try_from(at.0 / sectors).unwrap_or(usize::MAX);
        (index < self.zones.len())
            .then_some(index)
            .ok_or(ZoneError::OutOfRange)
    }

    fn sequential(&self, zone: ZoneId) -> Result<usize, ZoneError> {
        let index = zone.0 as usize;
        let found = self.zones.get(index).ok_or(ZoneError::OutOfRange)?;
        match found.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            ZoneState::ReadOnly => Err(ZoneError::ReadOnly),
            ZoneState::Offline => Err(ZoneError::Offline),
            _ => Ok(index),
        }
    }

    fn command(&mut self, index: usize, command: ZoneCommand) -> Result<(), DeviceError> {
        let zone = self.zones[index];
        let done = match self.access {
            Access::Kernel => {
                zone_calls::command(self.file.file(), command, zone.start.0, zone.size_sectors)
                    .map_err(|_| failure(0x0c))
            }
            Access::Scsi { sectors } => {
                let mut bytes = [0; 16];
                bytes[0] = ZBC_OUT;
                bytes[1] = match command {
                    ZoneCommand::Close => 1,
                    ZoneCommand::Finish => 2,
                    ZoneCommand::Open => 3,
                    ZoneCommand::Reset => 4,
                };
                bytes[2..10].copy_from_slice(&(zone.start.0 / sectors).to_be_bytes());
                zone_calls::scsi(self.file.file(), bytes, &mut []).map_err(|error| match error {
                    ScsiError::Sense(sense) => DeviceError::Failed(sense),
                    ScsiError::Call(_) => failure(0x0c),
                })
            }
        };
        if done.is_err() {
            self.ask_again(index);
        }
        done
    }

    /// What the disk says of a zone after something failed.
    fn ask_again(&mut self, index: usize) {
        let start = self.zones[index].start.0;
        let raw = self
            .report(start)
            .ok()
            .and_then(|found| found.first().copied());
        if let Some(Ok(zone)) = raw.map(|raw| zone_of(&raw)) {
            self.zones[index] = zone;
        }
    }
}

/// MEDIUM ERROR, with what the disk was doing: 11h reading, 0Ch writing.
fn failure(asc: u8) -> DeviceError {
    DeviceError::Failed(Sense {
        key: 3,
        asc,
        ascq: 0,
    })
}

fn zone_of(raw: &RawZone) -> io::Result<Zone> {
    let zone_type = match raw.kind {
        1 => ZoneType::Conventional,
        2 => ZoneType::SeqRequired,
        3 => ZoneType::SeqPreferred,
        _ => return Err(io::Error::other("a zone is of no known type")),
    };
    let state = match raw.condition {
        0 => ZoneState::NotWritePointer,
        1 => ZoneState::Empty,
        2 => ZoneState::ImplicitOpen,
        3 => ZoneState::ExplicitOpen,
        4 => ZoneState::Closed,
        13 => ZoneState::ReadOnly,
        14 => ZoneState::Full,
        15 => ZoneState::Offline,
        _ => return Err(io::Error::other("a zone is in no known condition")),
    };
    let start = raw.start;
    let write_pointer = match state {
        ZoneState::Full => start + raw.capacity,
        ZoneState::Empty | ZoneState::NotWritePointer => start,
        _ => raw.write_pointer.clamp(start, start + raw.capacity),
    };
    Ok(Zone {
        start: Lba(start),
        size_sectors: raw.length,
        capacity_sectors: raw.capacity,
        zone_type,
        state,
        write_pointer: Lba(write_pointer),
    })
}

/// The descriptors of an answer to REPORT ZONES, whose addresses count blocks of `sectors` sectors.
fn descriptors(answer: &[u8], sectors: u64) -> Vec<RawZone> {
    let number = |bytes: &[u8]| {
        let bytes: [u8; 8] = bytes.try_into().expect("eight bytes");
        u64::from_be_bytes(bytes).saturating_mul(sectors)
    };
    let bytes: [u8; 4] = answer[..4].try_into().expect("four bytes");
    let list = u32::from_be_bytes(bytes) as usize;
    let found = answer[DESCRIPTOR_BYTES..].chunks_exact(DESCRIPTOR_BYTES);
    let found = found.take(list / DESCRIPTOR_BYTES);
    let zone = |bytes: &[u8]| RawZone {
        start: number(&bytes[16..24]),
        length: number(&bytes[8..16]),
        write_pointer: number(&bytes[24..32]),
        kind: bytes[0] & 0x0f,
        condition: bytes[1] >> 4,
        capacity: number(&bytes[8..16]),
        ..RawZone::default()
    };
    found.map(zone).collect()
}

impl ZonedDevice for BlockZones {
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
        let end = at.0 + data.len() as u64 / SECTOR_BYTES;
        let zone = self.zones[self.index(at)?];
        let has_pointer = zone.zone_type == ZoneType::SeqRequired && zone.state != ZoneState::Full;
        if has_pointer && end > zone.write_pointer.0 {
            return Err(ZoneError::InvalidData.into());
        }
        self.file
            .read(at.0 * SECTOR_BYTES, data)
            .map_err(|_| failure(0x11))
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
        if self.file.write(at.0 * SECTOR_BYTES, data).is_err() {
            self.ask_again(first);
            return Err(failure(0x0c));
        }
        self.zones[first] = zone;
        Ok(())
    }

    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.sequential(zone)?;
        self.command(index, ZoneCommand::Open)?;
        self.zones[index].state = ZoneState::ExplicitOpen;
        Ok(())
    }

    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.sequential(zone)?;
        self.command(index, ZoneCommand::Close)?;
        self.zones[index].state = ZoneState::Closed;
        Ok(())
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.sequential(zone)?;
        // A host-aware disk has no limit of open zones that a command would help against.
        if self.access == Access::Kernel {
            self.command(index, ZoneCommand::Finish)?;
        }
        let zone = &mut self.zones[index];
        zone.write_pointer = Lba(zone.start.0 + zone.capacity_sectors);
        Ok(zone.finish()?)
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let index = self.sequential(zone)?;
        self.command(index, ZoneCommand::Reset)?;
        Ok(self.zones[index].reset()?)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.file.sync().map_err(|_| failure(0x0c))
    }

    fn keeps_write_pointers(&self) -> bool {
        // A host-aware disk takes any write anywhere, and its pointers are said to get lost.
        self.access == Access::Kernel
    }

    fn set_write_pointer(&mut self, zone: ZoneId, at: Lba) -> Result<(), DeviceError> {
        let index = self.sequential(zone)?;
        let before = self.zones[index];
        if at == before.write_pointer {
            return Ok(());
        }
        if at == before.start {
            // What a lost attempt left must go, or the disk would take what comes for overwriting.
            return self.reset_zone(zone);
        }
        let end = before.start.0 + before.capacity_sectors;
        let zone = &mut self.zones[index];
        zone.write_pointer = at;
        zone.state = if at.0 >= end {
            ZoneState::Full
        } else {
            ZoneState::Closed
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scsi_report_is_read() {
        let mut answer = vec![0; SCSI_REPORT_BYTES];
        answer[..4].copy_from_slice(&128u32.to_be_bytes());
        let mut put = |at: usize, kind: u8, condition: u8, numbers: [u64; 3]| {
            answer[at] = kind;
            answer[at + 1] = condition << 4;
            for (i, number) in numbers.iter().enumerate() {
                answer[at + 8 * (i + 1)..at + 8 * (i + 2)].copy_from_slice(&number.to_be_bytes());
            }
        };
        put(64, 1, 0, [65536, 0, u64::MAX]);
        put(128, 3, 4, [65536, 65536, 65600]);
        let found = descriptors(&answer, 8);
        let zones: Vec<Zone> = found.iter().map(|raw| zone_of(raw).unwrap()).collect();
        assert_eq!(zones.len(), 2);
        assert_eq!(zones[0], Zone::new(Lba(0), 524_288, ZoneType::Conventional));
        assert_eq!(zones[1].write_pointer, Lba(524_800));
        assert_eq!(zones[1].state, ZoneState::Closed);
    }
}
