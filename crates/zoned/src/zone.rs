// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Zones: the unit of the host interface of zoned disks (ZBC, ZAC).

use crate::Lba;
use serde::{Deserialize, Serialize};

/// Number of a zone, counted from LBA 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ZoneId(pub u32);

/// What may be written where in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneType {
    /// Anywhere, in any order.
    Conventional,
    /// Only at the write pointer (host-managed).
    SeqRequired,
    /// At the write pointer for speed, elsewhere at a cost (host-aware).
    SeqPreferred,
}

/// Condition of a zone, as in the kernel's `BLK_ZONE_COND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneState {
    /// Conventional zones have no write pointer and no other state.
    NotWritePointer,
    /// Nothing written since the last reset.
    Empty,
    /// Opened by a write.
    ImplicitOpen,
    /// Opened by a command.
    ExplicitOpen,
    /// Partly written, not open.
    Closed,
    /// Written to its capacity, or finished.
    Full,
    /// May be read but not written: the device has given it up.
    ReadOnly,
    /// May be neither read nor written.
    Offline,
}

/// One zone, as a zone report tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// First sector.
    pub start: Lba,
    /// Stride to the next zone, in sectors.
    pub size_sectors: u64,
    /// Sectors that may be written; at most the size.
    pub capacity_sectors: u64,
    /// What may be written where.
    pub zone_type: ZoneType,
    /// Its condition.
    pub state: ZoneState,
    /// Next sector to write. Without meaning in conventional and in full zones.
    pub write_pointer: Lba,
}

/// Why a zone refuses a command. The comment gives the sense that a disk answers (libzbc's names).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// Write not at the write pointer: ILLEGAL REQUEST 21h/04h.
    Unaligned,
    /// Write beyond the end of the zone's capacity: 21h/05h.
    Boundary,
    /// Read beyond the write pointer: 21h/06h.
    InvalidData,
    /// Read across zones of different types: 21h/07h.
    ReadBoundary,
    /// A zone of this type has no such command: 24h/00h.
    InvalidField,
    /// Too many open zones: DATA PROTECT 55h/0Eh.
    Resources,
    /// The zone cannot be written any more: DATA PROTECT 27h/08h.
    ReadOnly,
    /// The zone can be neither read nor written: DATA PROTECT 2Ch/0Eh.
    Offline,
    /// No such address: 21h/00h.
    OutOfRange,
}

/// What a SCSI disk says of an error (SPC): sense key, additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

const ILLEGAL_REQUEST: u8 = 5;
const DATA_PROTECT: u8 = 7;

impl ZoneError {
    /// The sense of ZBC for it.
    pub fn sense(self) -> Sense {
        let (key, asc, ascq) = match self {
            ZoneError::Unaligned => (ILLEGAL_REQUEST, 0x21, 0x04),
            ZoneError::Boundary => (ILLEGAL_REQUEST, 0x21, 0x05),
            ZoneError::InvalidData => (ILLEGAL_REQUEST, 0x21, 0x06),
            ZoneError::ReadBoundary => (ILLEGAL_REQUEST, 0x21, 0x07),
            ZoneError::InvalidField => (ILLEGAL_REQUEST, 0x24, 0x00),
            ZoneError::OutOfRange => (ILLEGAL_REQUEST, 0x21, 0x00),
            ZoneError::Resources => (DATA_PROTECT, 0x55, 0x0e),
            ZoneError::ReadOnly => (DATA_PROTECT, 0x27, 0x08),
            ZoneError::Offline => (DATA_PROTECT, 0x2c, 0x0e),
        };
        Sense { key, asc, ascq }
    }
}

impl Zone {
    /// A fresh zone.
    pub fn new(start: Lba, size_sectors: u64, zone_type: ZoneType) -> Self {
        let state = match zone_type {
            ZoneType::Conventional => ZoneState::NotWritePointer,
            ZoneType::SeqRequired | ZoneType::SeqPreferred => ZoneState::Empty,
        };
        Zone {
            start,
            size_sectors,
            capacity_sectors: size_sectors,
            zone_type,
            state,
            write_pointer: start,
        }
    }

    /// Checks a write against the rules of a host-managed zone, in the order in which a disk does, and moves the
    /// write pointer.
    pub fn write(&mut self, at: Lba, sectors: u64) -> Result<(), ZoneError> {
        match self.state {
            ZoneState::ReadOnly => return Err(ZoneError::ReadOnly),
            ZoneState::Offline => return Err(ZoneError::Offline),
            ZoneState::NotWritePointer => return Ok(()),
            ZoneState::Full => return Err(ZoneError::Unaligned),
            _ => {}
        }
        if at != self.write_pointer {
            return Err(ZoneError::Unaligned);
        }
        let end = Lba(self.start.0 + self.capacity_sectors);
        if at.0 + sectors > end.0 {
            return Err(ZoneError::Boundary);
        }
        self.write_pointer = Lba(at.0 + sectors);
        self.state = if self.write_pointer == end {
            ZoneState::Full
        } else if self.state == ZoneState::ExplicitOpen {
            ZoneState::ExplicitOpen
        } else {
            ZoneState::ImplicitOpen
        };
        Ok(())
    }

    /// Empties the zone.
    pub fn reset(&mut self) -> Result<(), ZoneError> {
        match self.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            ZoneState::ReadOnly => Err(ZoneError::ReadOnly),
            ZoneState::Offline => Err(ZoneError::Offline),
            _ => {
                self.state = ZoneState::Empty;
                self.write_pointer = self.start;
                Ok(())
            }
        }
    }

    /// Declares the zone full.
    pub fn finish(&mut self) -> Result<(), ZoneError> {
        match self.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            ZoneState::ReadOnly => Err(ZoneError::ReadOnly),
            ZoneState::Offline => Err(ZoneError::Offline),
            _ => {
                self.state = ZoneState::Full;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_written_only_at_its_write_pointer() {
        let mut zone = Zone::new(Lba(0), 64, ZoneType::SeqRequired);
        assert_eq!(zone.write(Lba(0), 8), Ok(()));
        assert_eq!(zone.write(Lba(16), 8), Err(ZoneError::Unaligned));
        assert_eq!(
            zone.write_pointer,
            Lba(8),
            "a refused write changes nothing"
        );
    }

    #[test]
    fn full_zone_rejects_write() {
        let mut zone = Zone::new(Lba(0), 64, ZoneType::SeqRequired);
        zone.write(Lba(0), 64).unwrap();
        assert_eq!(zone.state, ZoneState::Full);
        assert_eq!(zone.write(Lba(64), 8), Err(ZoneError::Unaligned));
    }

    #[test]
    fn reset_empties_a_full_zone_but_not_a_conventional_one() {
        let mut zone = Zone::new(Lba(64), 64, ZoneType::SeqRequired);
        zone.finish().unwrap();
        zone.reset().unwrap();
        assert_eq!(
            (zone.state, zone.write_pointer),
            (ZoneState::Empty, Lba(64))
        );
        let mut conventional = Zone::new(Lba(0), 64, ZoneType::Conventional);
        assert_eq!(conventional.reset(), Err(ZoneError::InvalidField));
    }
}
