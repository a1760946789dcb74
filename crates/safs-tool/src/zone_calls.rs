// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel offers for zones: the ioctls of zoned block devices (linux/blkzoned.h), and commands that go to the
//! disk as they are (SG_IO, scsi/sg.h). The only module of SAFS with `unsafe`: these calls take pointers.
#![allow(unsafe_code)]

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Direction, Opcode, Setter, Updater};
use std::ffi::c_void;
use std::ptr::null_mut;
use zoned::Sense;

/// Zones that one report asks for.
const AT_ONCE: usize = 256;
/// `BLK_ZONE_REP_CAPACITY`: the kernel says how much of each zone can be written.
const REPORTS_CAPACITY: u32 = 1;
const GROUP: u8 = 0x12;
const REPORT: Opcode = opcode::from_components(Direction::ReadWrite, GROUP, 130, 16);
const RESET: Opcode = opcode::write::<Range>(GROUP, 131);
const OPEN: Opcode = opcode::write::<Range>(GROUP, 134);
const CLOSE: Opcode = opcode::write::<Range>(GROUP, 135);
const FINISH: Opcode = opcode::write::<Range>(GROUP, 136);
const SG_IO: Opcode = 0x2285;
/// How long a disk may take for a command that resets a zone.
const SCSI_LIMIT_MS: u32 = 60_000;
const SCSI_INTERFACE: i32 = b'S' as i32;
const FROM_DEVICE: i32 = -3;
const NO_DATA: i32 = -1;
const CHECK_CONDITION: u8 = 2;

/// `struct blk_zone`. Places and lengths in sectors.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawZone {
    pub start: u64,
    pub length: u64,
    pub write_pointer: u64,
    pub kind: u8,
    pub condition: u8,
    pub non_sequential: u8,
    pub reset: u8,
    pub reserved: [u8; 4],
    /// 0 if the kernel does not say.
    pub capacity: u64,
    pub more: [u8; 24],
}

/// `struct blk_zone_report` with room for its zones.
#[repr(C)]
struct Report {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [RawZone; AT_ONCE],
}

/// `struct blk_zone_range`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Range {
    sector: u64,
    sectors: u64,
}

/// What is done to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneCommand {
    Reset,
    Open,
    Close,
    Finish,
}

/// Zones from the one that holds `sector` on: some of them, at least one unless there are no more.
pub(crate) fn report(file: impl AsFd, sector: u64) -> Result<Vec<RawZone>, Errno> {
    let mut report = Box::new(Report {
        sector,
        count: AT_ONCE as u32,
        flags: 0,
        zones: [RawZone::default(); AT_ONCE],
    });
    // SAFETY: BLKREPORTZONE reads `count` and writes at most so many zones behind the head; there is room for them.
    unsafe { ioctl(file, Updater::<REPORT, Report>::new(&mut report)) }?;
    let mut zones = report.zones[..(report.count as usize).min(AT_ONCE)].to_vec();
    if report.flags & REPORTS_CAPACITY == 0 {
        zones
            .iter_mut()
            .for_each(|zone| zone.capacity = zone.length);
    }
    Ok(zones)
}

/// A command for the zone that starts at `sector` and has `sectors` sectors.
pub(crate) fn command(
    file: impl AsFd,
    command: ZoneCommand,
    sector: u64,
    sectors: u64,
) -> Result<(), Errno> {
    let range = Range { sector, sectors };
    // SAFETY: these four read a `struct blk_zone_range` and nothing else.
    unsafe {
        match command {
            ZoneCommand::Reset => ioctl(file, Setter::<RESET, Range>::new(range)),
            ZoneCommand::Open => ioctl(file, Setter::<OPEN, Range>::new(range)),
            ZoneCommand::Close => ioctl(file, Setter::<CLOSE, Range>::new(range)),
            ZoneCommand::Finish => ioctl(file, Setter::<FINISH, Range>::new(range)),
        }
    }
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgIo {
    interface: i32,
    direction: i32,
    command_bytes: u8,
    sense_max_bytes: u8,
    pieces: u16,
    data_bytes: u32,
    data: *mut c_void,
    command: *mut u8,
    sense: *mut u8,
    limit_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_bytes: u8,
    host_status: u16,
    driver_status: u16,
    residual_bytes: i32,
    duration_ms: u32,
    info: u32,
}

/// Why a command that went to the disk was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScsiError {
    /// It did not reach the disk.
    Call(Errno),
    /// The disk refused it.
    Sense(Sense),
}

/// Sends a SCSI command of 16 bytes; `data` takes what the disk answers.
pub(crate) fn scsi(
    file: impl AsFd,
    mut command: [u8; 16],
    data: &mut [u8],
) -> Result<(), ScsiError> {
    let mut sense = [0u8; 32];
    let mut call = SgIo {
        interface: SCSI_INTERFACE,
        direction: if data.is_empty() {
            NO_DATA
        } else {
            FROM_DEVICE
        },
        command_bytes: command.len() as u8,
        sense_max_bytes: sense.len() as u8,
        pieces: 0,
        data_bytes: u32::try_from(data.len()).map_err(|_| ScsiError::Call(Errno::INVAL))?,
        data: data.as_mut_ptr().cast(),
        command: command.as_mut_ptr(),
        sense: sense.as_mut_ptr(),
        limit_ms: SCSI_LIMIT_MS,
        flags: 0,
        pack_id: 0,
        user: null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_bytes: 0,
        host_status: 0,
        driver_status: 0,
        residual_bytes: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: the three pointers and their lengths are those of buffers that outlive the call.
    unsafe { ioctl(file, Updater::<SG_IO, SgIo>::new(&mut call)) }.map_err(ScsiError::Call)?;
    match (call.status, call.host_status) {
        (0, 0) => Ok(()),
        (CHECK_CONDITION, _) => Err(ScsiError::Sense(sense_of(&sense))),
        _ => Err(ScsiError::Call(Errno::IO)),
    }
}

/// Key and codes, in either of the two formats (SPC).
fn sense_of(bytes: &[u8; 32]) -> Sense {
    match bytes[0] & 0x7f {
        0x72 | 0x73 => Sense {
            key: bytes[1] & 0x0f,
            asc: bytes[2],
            ascq: bytes[3],
        },
        _ => Sense {
            key: bytes[2] & 0x0f,
            asc: bytes[12],
            ascq: bytes[13],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_numbers_and_sizes_are_ours() {
        assert_eq!(size_of::<RawZone>(), 64);
        assert_eq!(size_of::<SgIo>(), 88);
        assert_eq!((REPORT, RESET), (0xc010_1282, 0x4010_1283));
        assert_eq!(
            (OPEN, CLOSE, FINISH),
            (0x4010_1286, 0x4010_1287, 0x4010_1288)
        );
    }

    #[test]
    fn sense_is_read_in_both_formats() {
        let expected = Sense {
            key: 5,
            asc: 0x21,
            ascq: 4,
        };
        let mut fixed = [0; 32];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0x70, 5, 0x21, 4);
        let mut descriptors = [0; 32];
        descriptors[..4].copy_from_slice(&[0x72, 5, 0x21, 4]);
        assert_eq!(sense_of(&fixed), expected);
        assert_eq!(sense_of(&descriptors), expected);
    }
}
