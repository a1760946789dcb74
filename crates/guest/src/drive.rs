// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block driver's files in sysfs.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::clock::{now_ns, seconds_to_ns, sleep_until_ns, SECOND_NS};
use crate::failure::Failure;

const DIR: &str = "/sys/block/shd0/shingle";
/// How often `wait_clean` looks.
const POLL_NS: u64 = SECOND_NS / 10;

fn path(name: &str) -> PathBuf {
    PathBuf::from(DIR).join(name)
}

/// The drive's counters; null on a machine without a drive.
pub fn counters() -> Value {
    let Ok(text) = fs::read_to_string(path("counters")) else {
        return Value::Null;
    };
    // Damaged counters must not pass for no drive.
    serde_json::from_str(&text).unwrap_or_else(|e| format!("counters are no JSON: {e}").into())
}

/// The drive's histograms of latencies; null on a machine without a drive.
pub fn latencies() -> Value {
    let text = fs::read_to_string(path("latency"));
    text.map_or(Value::Null, Value::from)
}

/// Writes one of the driver's files with one write(2).
pub fn write(name: &str, text: &str) -> Result<(), Failure> {
    let path = path(name);
    fs::write(&path, text).map_err(|e| Failure::system(path.display(), e))
}

pub fn set_extents(name: &str, extents: &[[u64; 2]]) -> Result<(), Failure> {
    let lines = extents
        .iter()
        .map(|[first, sectors]| format!("{first} {sectors}\n"));
    write(name, &lines.collect::<String>())
}

/// Waits until the drive has nothing left to clean.
pub fn wait_clean(limit_s: Option<f64>) -> Result<(), Failure> {
    let start_ns = now_ns();
    let end_ns = limit_s.map_or(u64::MAX, |s| start_ns.saturating_add(seconds_to_ns(s)));
    let path = path("clean");
    loop {
        let text = fs::read_to_string(&path).map_err(|e| Failure::system(path.display(), e))?;
        if text.trim() == "1" {
            return Ok(());
        }
        let now_ns = now_ns();
        if now_ns >= end_ns {
            let dirty = counters()["bands_dirty"].clone();
            return Err(Failure::new(format!(
                "the drive was not clean after {} virtual seconds; bands still dirty: {dirty}",
                limit_s.unwrap_or_default(),
            )));
        }
        sleep_until_ns(now_ns.saturating_add(POLL_NS).min(end_ns));
    }
}
