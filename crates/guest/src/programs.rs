// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that run in the machine.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{getpid, kill_process, waitpid, Pid, Signal, WaitOptions};
use serde_json::{Map, Value};

use crate::clock::{now_ns, sleep_until_ns, SECOND_NS};
use crate::failure::Failure;

/// One that waits for a disk whose cache is full ends when that has room.
const LIMIT_NS: u64 = 3600 * SECOND_NS;
const POLL_NS: u64 = SECOND_NS / 1000;

/// Ends every program but those of these names, and waits until they are gone; `line` gets the names of the ended.
pub fn end_all_but(but: &[String], line: &mut Map<String, Value>) -> Result<(), Failure> {
    if getpid() != Pid::INIT {
        return Err(Failure::new(
            "only the machine's first process ends all others",
        ));
    }
    let end_ns = now_ns() + LIMIT_NS;
    let mut names = BTreeSet::new();
    loop {
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        let running = running(but);
        if running.is_empty() {
            break;
        }
        if now_ns() > end_ns {
            let left: Vec<String> = running.into_iter().map(|(_, name)| name).collect();
            return Err(Failure::new(format!("{} did not end", left.join(", "))));
        }
        for (pid, name) in running {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
            names.insert(name);
        }
        sleep_until_ns(now_ns() + POLL_NS);
    }
    line.insert("ended".into(), names.into_iter().collect());
    Ok(())
}

/// Process and name of each program; threads of the kernel have no file that they run.
fn running(but: &[String]) -> Vec<(Pid, String)> {
    let found = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = found.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids = numbers
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != Pid::INIT);
    pids.filter_map(|pid| {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        fs::read_link(format!("{folder}/exe")).ok()?;
        let name = fs::read_to_string(format!("{folder}/comm")).ok()?;
        Some((pid, name.trim_end().to_owned()))
    })
    .filter(|(_, name)| !but.contains(name))
    .collect()
}
