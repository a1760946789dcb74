// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test may use: a disk's public facts, requests one at a time, and a clock.

use std::fmt;

/// The unit of the tests' requests, in bytes: no drive has a larger physical block.
pub const BLOCK_BYTES: u64 = 4096;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// What anybody may know of a disk without measuring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How the user calls it.
    pub name: String,
    /// What it says it is.
    pub model: String,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Unit of addresses.
    pub logical_block_bytes: u32,
    /// Unit of writing that needs no read-modify-write.
    pub physical_block_bytes: u32,
    /// Largest request that is not cut into several.
    pub max_request_bytes: u64,
}

/// Why a probe ends before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user wants it to.
    Interrupted,
    /// The test has taken as long as it may.
    OutOfTime,
    /// The disk ended a write with an error, as one does that wants its zones in order; the sentence says which.
    Refused(String),
    /// The disk does not do as it is told; the sentence says what.
    Failed(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Interrupted => write!(f, "interrupted"),
            Stop::OutOfTime => write!(f, "the test's time is used up"),
            Stop::Refused(why) | Stop::Failed(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for Stop {}

/// A disk. Offsets and lengths are in bytes and multiples of 4 KiB.
pub trait Disk {
    /// What is known without measuring.
    fn facts(&self) -> &Facts;
    /// Now; only differences mean something.
    fn now_ns(&self) -> u64;
    /// Reads, past every cache of the host, and waits for it.
    fn read(&mut self, offset: u64, bytes: u64) -> Result<(), Stop>;
    /// Writes, past every cache of the host, until the disk acknowledges.
    fn write(&mut self, offset: u64, bytes: u64) -> Result<(), Stop>;
    /// Waits until everything acknowledged is on the medium.
    fn flush(&mut self) -> Result<(), Stop>;
    /// Asks the disk for nothing for so long.
    fn idle(&mut self, ns: u64) -> Result<(), Stop>;
}
