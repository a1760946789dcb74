// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block driver's files in sysfs: a folder of them for each disk.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value};

use crate::clock::{now_ns, seconds_to_ns, sleep_until_ns, SECOND_NS};
use crate::failure::Failure;

/// How often `wait_clean` looks.
const POLL_NS: u64 = SECOND_NS / 10;

/// How many disks the job speaks of. To look for them would be system calls, which take time.
static DISKS: AtomicU32 = AtomicU32::new(1);

/// Tells how many disks there are, once, before the first step.
pub fn set_disks(disks: u32) {
    DISKS.store(disks, Ordering::Relaxed);
}

pub fn disks() -> u32 {
    DISKS.load(Ordering::Relaxed)
}

fn path(disk: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/shd{disk}/shingle/{name}"))
}

/// What is told of each disk but the first of so many, by its name.
pub fn of_others(disks: u32, tell: impl Fn(u32) -> Value) -> Map<String, Value> {
    let others = 1..disks;
    others
        .map(|disk| (format!("shd{disk}"), tell(disk)))
        .collect()
}

/// A disk's counters; null on a machine without it.
pub fn counters(disk: u32) -> Value {
    let Ok(text) = fs::read_to_string(path(disk, "counters")) else {
        return Value::Null;
    };
    // Damaged counters must not pass for no drive.
    serde_json::from_str(&text).unwrap_or_else(|e| format!("counters are no JSON: {e}").into())
}

/// A disk's histograms of latencies; null on a machine without it.
pub fn latencies(disk: u32) -> Value {
    let text = fs::read_to_string(path(disk, "latency"));
    text.map_or(Value::Null, Value::from)
}

/// Writes one of the driver's files with one write(2).
pub fn write(disk: u32, name: &str, text: &str) -> Result<(), Failure> {
    let path = path(disk, name);
    fs::write(&path, text).map_err(|e| Failure::system(path.display(), e))
}

/// Puts a marker into the trace of each disk.
pub fn mark(text: &str) -> Result<(), Failure> {
    (0..disks()).try_for_each(|disk| write(disk, "mark", text))
}

pub fn set_extents(disk: u32, name: &str, extents: &[[u64; 2]]) -> Result<(), Failure> {
    let lines = extents
        .iter()
        .map(|[first, sectors]| format!("{first} {sectors}\n"));
    write(disk, name, &lines.collect::<String>())
}

/// Waits until no disk has anything left to clean.
pub fn wait_clean(limit_s: Option<f64>) -> Result<(), Failure> {
    let start_ns = now_ns();
    let end_ns = limit_s.map_or(u64::MAX, |s| start_ns.saturating_add(seconds_to_ns(s)));
    (0..disks()).try_for_each(|disk| wait_clean_until(disk, limit_s, end_ns))
}

fn wait_clean_until(disk: u32, limit_s: Option<f64>, end_ns: u64) -> Result<(), Failure> {
    let path = path(disk, "clean");
    loop {
        let text = fs::read_to_string(&path).map_err(|e| Failure::system(path.display(), e))?;
        if text.trim() == "1" {
            return Ok(());
        }
        let now_ns = now_ns();
        if now_ns >= end_ns {
            let dirty = counters(disk)["bands_dirty"].clone();
            return Err(Failure::new(format!(
                "the drive shd{disk} was not clean after {} virtual seconds; bands still dirty: {dirty}",
                limit_s.unwrap_or_default(),
            )));
        }
        sleep_until_ns(now_ns.saturating_add(POLL_NS).min(end_ns));
    }
}
