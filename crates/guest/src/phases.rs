// SPDX-License-Identifier: MIT OR Apache-2.0
//! Phases of a user's command. `shingle-phase NAME` notes the time and what the
//! drive has counted, as a line of a file; the step of the command reports them.

use std::env;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{json, Value};

use crate::{clock, drive, outbox};

pub const PROGRAM: &str = "shingle-phase";
const FILE: &str = "phases";
/// Where the file is, if not in the machine's /run: for tests outside of it.
const FILE_VARIABLE: &str = "SHINGLE_PHASES";
/// The lab's own phases of such a run.
const TAKEN: [&str; 3] = ["mount", "setup", "unmount"];
const NAME_BYTES_MAX: usize = 64;

/// Begins to take marks, from whatever user the command becomes, behind a line for its first phase.
pub fn begin(first: &str) -> io::Result<()> {
    let path = outbox::scratch(FILE);
    let mut line = json!({"phase": first});
    if drive::disks() > 1 {
        line["disks"] = drive::disks().into();
    }
    fs::write(&path, format!("{line}\n"))?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
}

/// The marks that were made, in order; from now on there is no command under way.
pub fn end() -> io::Result<Vec<Value>> {
    let path = outbox::scratch(FILE);
    let text = fs::read_to_string(&path)?;
    fs::remove_file(path)?;
    Ok(lines(&text)?.split_off(1))
}

fn lines(text: &str) -> io::Result<Vec<Value>> {
    let parsed = text.lines().map(serde_json::from_str);
    Ok(parsed.collect::<Result<_, _>>()?)
}

/// The program `shingle-phase`.
pub fn main(arguments: &[String]) -> ExitCode {
    match arguments {
        [name] => match mark(name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => refused(&message),
        },
        _ => refused("expected one name: shingle-phase NAME"),
    }
}

fn refused(message: &str) -> ExitCode {
    eprintln!("{PROGRAM}: {message}.");
    ExitCode::from(2)
}

fn mark(name: &str) -> Result<(), String> {
    let at_ns = clock::now_ns();
    check_name(name)?;
    let path =
        env::var_os(FILE_VARIABLE).map_or_else(|| Path::new("/run").join(FILE), PathBuf::from);
    let text =
        fs::read_to_string(&path).map_err(|_| "no command of `./shingle exec` is under way")?;
    let known = lines(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if known.iter().any(|mark| mark["phase"] == name) {
        return Err(format!("there is a phase {name} already"));
    }
    let mut line = json!({
        "phase": name, "at_ns": at_ns, "counters": drive::counters(0), "latency": drive::latencies(0),
    });
    // As `begin` noted it: this is another process.
    if let Some(disks) = known.first().and_then(|first| first["disks"].as_u64()) {
        let tell =
            |disk| json!({"counters": drive::counters(disk), "latency": drive::latencies(disk)});
        line["others"] = drive::of_others(disks as u32, tell).into();
    }
    let file = OpenOptions::new().append(true).open(&path);
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        let expected = format!("expected at most {NAME_BYTES_MAX} letters, digits, dots, - and _");
        return Err(format!("{name:?} is no name of a phase; {expected}"));
    }
    if TAKEN.contains(&name) {
        return Err(format!("the phase {name} is the machine's own"));
    }
    Ok(())
}
