// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the unit tests of several generators need.

use std::fs;
use std::path::Path;

pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[derive(Default)]
pub struct Found {
    pub directories: u64,
    pub files: u64,
    pub bytes: u64,
}

/// What is below `dir`, counted with the standard library alone.
pub fn count_entries(dir: &Path) -> Found {
    let mut found = Found::default();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = count_entries(&entry.path());
            found.directories += 1 + below.directories;
            found.files += below.files;
            found.bytes += below.bytes;
        } else {
            found.files += 1;
            found.bytes += entry.metadata().unwrap().len();
        }
    }
    found
}
