// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces in whichever format they are: ours, or text of blkparse.

use crate::blkparse;
use crate::trace_file::{self, Event};
use smr_drive::trace::MAGIC;
use std::path::Path;

/// Reads a trace in whichever of the two formats it is; `file` is its name in errors.
pub fn read_any(file: &str, bytes: &[u8]) -> Result<Vec<Event>, String> {
    let read = if bytes.starts_with(MAGIC) {
        trace_file::read(bytes)
    } else {
        match std::str::from_utf8(bytes) {
            Ok(text) if blkparse::is_blkparse(text) => blkparse::read(text),
            _ => Err(
                "neither a trace (SHGLTRC1) nor text of blkparse: expected one of the two".into(),
            ),
        }
    };
    read.map_err(|why| format!("{file}: {why}"))
}

/// Reads a file in whichever of the two formats it is.
pub fn read_file(path: &Path) -> Result<Vec<Event>, String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|why| format!("{name}: {why}"))?;
    read_any(&name.to_string(), &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_file_is_refused_with_its_name() {
        let refused = read_any("x", b"something").unwrap_err();
        assert!(refused.starts_with("x: neither"), "{refused}");
    }
}
