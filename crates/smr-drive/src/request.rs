// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What the host asks of a drive, and the answer.

use zoned::{Block, BlockRange, Lba, Sense, ZoneError, BLOCK_SECTORS};

/// Kinds of request. The numbers are those of the C ABI and of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Make everything acknowledged durable.
    Flush = 2,
    /// The host no longer needs these blocks.
    Discard = 3,
    /// Write zeros; no data come over the cable.
    WriteZeroes = 4,
    /// Opens the zone that begins at the request's address.
    ZoneOpen = 5,
    /// Closes it.
    ZoneClose = 6,
    /// Declares it full.
    ZoneFinish = 7,
    /// Empties it.
    ZoneReset = 8,
    /// Empties all zones.
    ZoneResetAll = 9,
}

impl Op {
    /// From its number.
    pub fn from_number(number: u32) -> Option<Op> {
        const OPS: [Op; 10] = [
            Op::Read,
            Op::Write,
            Op::Flush,
            Op::Discard,
            Op::WriteZeroes,
            Op::ZoneOpen,
            Op::ZoneClose,
            Op::ZoneFinish,
            Op::ZoneReset,
            Op::ZoneResetAll,
        ];
        OPS.get(number as usize).copied()
    }

    /// Whether it changes a zone's state and carries no data.
    pub fn is_zone_command(self) -> bool {
        matches!(
            self,
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll
        )
    }
}

/// What a request is for, as the papers count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Contents of files, and what has no other class.
    Data = 0,
    /// `REQ_META`.
    Metadata = 1,
    /// Inside a journal extent.
    Journal = 2,
    /// Inside a superblock extent.
    Superblock = 3,
}

/// How many classes there are.
pub const CLASSES: usize = 4;

/// Must be on the medium before it is acknowledged.
pub const FLAG_FUA: u32 = 1;
/// Metadata.
pub const FLAG_META: u32 = 2;
/// Somebody waits.
pub const FLAG_SYNC: u32 = 4;
/// In traces: it ended with an error.
pub const FLAG_FAILED: u32 = 0x80;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's name for it.
    pub tag: u64,
    /// Kind.
    pub op: Op,
    /// `FLAG_…`.
    pub flags: u32,
    /// First sector.
    pub lba: Lba,
    /// Number of sectors.
    pub sectors: u32,
}

impl Request {
    /// The blocks it touches.
    pub fn blocks(&self) -> BlockRange {
        BlockRange::covering(self.lba, u64::from(self.sectors))
    }

    /// The blocks that lie in it as a whole, perhaps none.
    pub fn whole_blocks(&self) -> BlockRange {
        let end = (self.lba.0 + u64::from(self.sectors)) / BLOCK_SECTORS;
        let start = self.lba.0.div_ceil(BLOCK_SECTORS);
        BlockRange {
            start: Block(start),
            end: Block(end.max(start)),
        }
    }

    /// Whether it changes contents.
    pub fn writes(&self) -> bool {
        matches!(self.op, Op::Write | Op::WriteZeroes)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Done,
    /// The drive file is damaged where the request looked.
    Damaged,
    /// The medium could not be read there; a plan of faults wants it so.
    ReadFailed,
    /// The medium could not be written; of a flush: something acknowledged before it was lost.
    WriteFailed,
    /// It took too long and was given up; it was not executed.
    Aborted,
    /// A zone refused it; nothing was changed.
    Zone(ZoneError),
}

impl Outcome {
    /// What a SCSI disk would say; `None` if all is well.
    pub fn sense(self) -> Option<Sense> {
        match self {
            Outcome::Done => None,
            // MEDIUM ERROR, UNRECOVERED READ ERROR.
            Outcome::Damaged | Outcome::ReadFailed => Some(Sense {
                key: 3,
                asc: 0x11,
                ascq: 0,
            }),
            // MEDIUM ERROR, WRITE ERROR.
            Outcome::WriteFailed => Some(Sense {
                key: 3,
                asc: 0x0c,
                ascq: 0,
            }),
            // ABORTED COMMAND, COMMAND TIMEOUT DURING PROCESSING.
            Outcome::Aborted => Some(Sense {
                key: 0xb,
                asc: 0x2e,
                ascq: 2,
            }),
            Outcome::Zone(error) => Some(error.sense()),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue is full.
    QueueFull,
    /// Beyond the end, too long, or with more data than sectors.
    Invalid,
    /// This drive has no such command.
    Unsupported,
}
