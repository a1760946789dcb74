// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock e2fsck on a copy of a state: the journal is replayed, then everything is checked and nothing changed.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

const E2FSCK: &str = "/sbin/e2fsck";

/// What e2fsck said, for the caller to judge: its status alone does not tell.
#[derive(Serialize)]
pub struct Said {
    status: Option<i32>,
    text: String,
}

fn run(arguments: &[&str], image: &Path) -> io::Result<Said> {
    let done = Command::new(E2FSCK)
        .args(arguments)
        .arg(image)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    let text = [done.stdout, done.stderr].map(|each| String::from_utf8_lossy(&each).into_owned());
    Ok(Said {
        status: done.status.code(),
        text: text.concat().replace(&*image.to_string_lossy(), "IMAGE"),
    })
}

/// What it says of a replay and of a check. The image then holds what the replay left.
pub fn check(image: &Path) -> io::Result<[Said; 2]> {
    Ok([
        run(&["-E", "journal_only", "-y"], image)?,
        run(&["-f", "-n"], image)?,
    ])
}
