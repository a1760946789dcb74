// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong in a generator, each with the sentence a person needs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, LoadError>;

#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A system call failed on a path.
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The arguments do not fit the generator.
    Arguments(String),
    /// No generator of this name.
    Unknown {
        name: String,
        known: Vec<&'static str>,
    },
    /// The file system does not hold what was written to it.
    Mismatch(String),
    /// Any of these, with more about where and how.
    During { error: Box<LoadError>, more: String },
}

impl LoadError {
    /// The error number for the result line; 1 where there is none.
    pub fn status(&self) -> i32 {
        match self {
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(1),
            Self::Arguments(_) | Self::Unknown { .. } => 22, // EINVAL
            Self::Mismatch(_) => 1,
            Self::During { error, .. } => error.status(),
        }
    }

    pub fn is_mismatch(&self) -> bool {
        match self {
            Self::Mismatch(_) => true,
            Self::During { error, .. } => error.is_mismatch(),
            _ => false,
        }
    }

    pub fn during(self, more: String) -> Self {
        Self::During {
            error: Box::new(self),
            more,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                operation,
                path,
                source,
            } => {
                write!(f, "{operation} {}: {source}", path.display())
            }
            Self::Arguments(text) => write!(f, "{text}"),
            Self::Unknown { name, known } => {
                write!(
                    f,
                    "there is no load named {name:?}; there are: {}",
                    known.join(", ")
                )
            }
            Self::Mismatch(text) => write!(f, "{text}"),
            Self::During { error, more } => write!(f, "{error}{more}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Gives an I/O result the operation and the path it was about.
pub trait IoContext<T> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| LoadError::Io {
            operation,
            path: path.to_owned(),
            source: e.into(),
        })
    }
}
