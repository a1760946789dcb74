// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which sources a record is of.

use std::process::Command;

/// The commit that is checked out, and `-dirty` behind it if the crates are not as in it; none outside a repository.
pub fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .output();
        let done = done.ok().filter(|done| done.status.success())?;
        String::from_utf8(done.stdout).ok()
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let crates = [":/crates", ":/Cargo.toml", ":/Cargo.lock"];
    let changed = git(&[&["status", "--porcelain", "--"][..], &crates].concat())?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Some(format!("{}{mark}", commit.trim()))
}
