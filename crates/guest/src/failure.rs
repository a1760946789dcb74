// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step's failure: the number for `status` and the sentence for `error`.

use std::fmt::Display;
use std::io;

#[derive(Debug)]
pub struct Failure {
    /// An errno, a program's exit status, or 1; never 0.
    pub status: i32,
    pub message: String,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            status: 1,
            message: message.into(),
        }
    }

    /// A system call that failed while `doing` something.
    pub fn system(doing: impl Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self {
            status: error.raw_os_error().filter(|n| *n != 0).unwrap_or(1),
            message: format!("{doing}: {error}"),
        }
    }
}

impl From<load::LoadError> for Failure {
    fn from(error: load::LoadError) -> Self {
        Self {
            status: error.status(),
            message: error.to_string(),
        }
    }
}
