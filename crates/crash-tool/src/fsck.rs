// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock e2fsck on a copy of a state: the journal is replayed, then everything is checked and nothing changed.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// What e2fsck has to say.
pub enum Verdict {
    /// Nothing is wrong. The image now holds what the replay left.
    Clean,
    /// Its complaints.
    Complaint(String),
}

const E2FSCK: &str = "/sbin/e2fsck";

fn run(arguments: &[&str], image: &Path, accepted: &[i32]) -> io::Result<Option<String>> {
    let done = Command::new(E2FSCK)
        .args(arguments)
        .arg(image)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    if done
        .status
        .code()
        .is_some_and(|code| accepted.contains(&code))
    {
        return Ok(None);
    }
    let text = format!(
        "e2fsck {} ended with {}: {}{}",
        arguments.join(" "),
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(Some(text.replace(&*image.to_string_lossy(), "IMAGE")))
}

/// Replays and checks. With `preen` e2fsck does in between what it does at boot: of a volume with an orphan file, a check
/// that may change nothing complains about orphans that are as they should be after a crash.
pub fn check(image: &Path, preen: bool) -> io::Result<Verdict> {
    let replay: (&[&str], &[i32]) = (&["-E", "journal_only", "-y"], &[0, 1]);
    let at_boot: (&[&str], &[i32]) = (&["-p"], &[0, 1]);
    let all: (&[&str], &[i32]) = (&["-f", "-n"], &[0]);
    for (arguments, accepted) in [Some(replay), preen.then_some(at_boot), Some(all)]
        .into_iter()
        .flatten()
    {
        if let Some(complaint) = run(arguments, image, accepted)? {
            return Ok(Verdict::Complaint(complaint));
        }
    }
    Ok(Verdict::Clean)
}
