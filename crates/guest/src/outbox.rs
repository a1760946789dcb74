// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the lab's directory (`shingle.out`), and the lines that go there.
//!
//! A line is written by open, write, close: hostfs hands its pages to the host
//! when a file is closed, so the lab sees a line as soon as the step has ended,
//! and nothing is lost when the machine's power is cut.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

/// Where the lab's directory is mounted in the machine.
pub const OUT_DIR: &str = "/run/out";

static DIR: OnceLock<PathBuf> = OnceLock::new();

/// Uses another directory than `/run/out`: for running a job outside the machine.
pub fn set_dir(dir: &Path) {
    DIR.set(dir.to_owned()).expect("set once, at the start");
}

pub fn dir() -> &'static Path {
    DIR.get().map_or(Path::new(OUT_DIR), PathBuf::as_path)
}

/// A file of the job's own, which must not lead out of the directory.
pub fn path(name: &str) -> io::Result<PathBuf> {
    let plain = Path::new(name)
        .components()
        .all(|c| matches!(c, std::path::Component::Normal(_)));
    if !plain || name.is_empty() {
        let message = format!("{name:?} is no name of a file under {OUT_DIR}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(dir().join(name))
}

/// A file of the guest's own, in memory where it runs as the first process.
pub fn scratch(name: &str) -> PathBuf {
    let folder = if dir() == Path::new(OUT_DIR) {
        Path::new("/run")
    } else {
        dir()
    };
    folder.join(name)
}

pub fn read_job() -> io::Result<String> {
    fs::read_to_string(dir().join("job.json"))
}

pub fn result(line: &Value) -> io::Result<()> {
    append("results.jsonl", line)
}

pub fn tick(line: &Value) -> io::Result<()> {
    append("progress.jsonl", line)
}

/// The last line: without it the run counts as failed.
pub fn end(error: Option<&str>) -> io::Result<()> {
    result(&match error {
        None => serde_json::json!({"event": "end", "status": "ok"}),
        Some(message) => {
            serde_json::json!({"event": "end", "status": "error", "message": message})
        }
    })
}

fn append(name: &str, line: &Value) -> io::Result<()> {
    let mut text = line.to_string();
    text.push('\n');
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir().join(name))?;
    file.write_all(text.as_bytes())
}
