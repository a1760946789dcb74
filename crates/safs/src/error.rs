// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the file system did not do what it was asked.

use crate::format::{Damage, Ino};
use std::fmt;
use zoned::{DeviceError, ZoneError};

/// The adapter makes error numbers of these, and only it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such name, inode or attribute holder.
    NotFound,
    /// The name is taken.
    Exists,
    /// A name leads through something that is no directory.
    NotDirectory,
    /// A directory where none can be.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// A name is longer than 255 bytes, or empty.
    NameTooLong,
    /// Asked for what makes no sense; the sentence says what.
    Invalid(&'static str),
    /// Existing bytes never change.
    Overwrite {
        /// The file.
        ino: Ino,
        /// Where it was to be written, or cut.
        offset: u64,
        /// Where it may be written.
        written: u64,
    },
    /// No room; nothing was accepted.
    NoSpace,
    /// A file would be longer than 2^63 bytes, or a value longer than 4096.
    TooBig,
    /// No such extended attribute.
    NoAttribute,
    /// Mounted without the right to write, or that right was lost.
    ReadOnly,
    /// What is on the disk is not what should be there.
    Corrupt {
        /// Where.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The device could not.
    Device {
        /// What it was doing.
        place: String,
        /// What it said.
        error: DeviceError,
    },
}

/// Of everything here.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    /// Damage at a place.
    pub fn corrupt(place: impl Into<String>, reason: impl fmt::Display) -> Error {
        Error::Corrupt {
            place: place.into(),
            reason: reason.to_string(),
        }
    }

    /// Whether nothing was ever written where it was read, as far as the device knows.
    pub fn is_beyond_write_pointer(&self) -> bool {
        let beyond = DeviceError::Zone(ZoneError::InvalidData);
        matches!(self, Error::Device { error, .. } if *error == beyond)
    }
}

/// A full disk is no failure of what tidies up.
pub(crate) fn unless_full(result: Result) -> Result {
    match result {
        Err(Error::NoSpace) => Ok(()),
        other => other,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound => f.write_str("no such file or directory"),
            Error::Exists => f.write_str("the name is taken"),
            Error::NotDirectory => f.write_str("not a directory"),
            Error::IsDirectory => f.write_str("is a directory"),
            Error::NotEmpty => f.write_str("the directory is not empty"),
            Error::NameTooLong => f.write_str("a name has 1 to 255 bytes"),
            Error::Invalid(why) => f.write_str(why),
            Error::Overwrite {
                ino,
                offset,
                written,
            } => write!(
                f,
                "inode {}: byte {offset} cannot change: everything below byte {written} is written for good",
                ino.0
            ),
            Error::NoSpace => f.write_str("no space left"),
            Error::TooBig => f.write_str("too big"),
            Error::NoAttribute => f.write_str("no such attribute"),
            Error::ReadOnly => f.write_str("the file system cannot be written"),
            Error::Corrupt { place, reason } => write!(f, "{place} is damaged: {reason}"),
            Error::Device { place, error } => {
                let sense = error.sense();
                write!(
                    f,
                    "the device failed at {place}: sense {:X}h, {:02X}h/{:02X}h",
                    sense.key, sense.asc, sense.ascq
                )
            }
        }
    }
}

impl std::error::Error for Error {}

/// Says where damage is.
pub(crate) trait At<T> {
    /// The place, made only when it is needed.
    fn at(self, place: impl FnOnce() -> String) -> Result<T>;
}

impl<T> At<T> for std::result::Result<T, Damage> {
    fn at(self, place: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|reason| Error::corrupt(place(), reason))
    }
}
