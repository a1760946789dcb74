// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks states of a crash drive: sets the disk to each, mounts it in several
//! ways, and lists what is there.
//!
//! The checks are a file, one JSON line each; so are the answers. A tree is
//! written out once, under its hash.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use load::listing::Listing;
use serde::Deserialize;
use serde_json::{json, Map, Value};

use crate::failure::Failure;
use crate::job::Mount;
use crate::{drive, mounts, outbox};

/// One state of the disk as a test sees it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    name: String,
    mounts: Vec<View>,
}

/// A way to look at it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    /// Number in the drive's file of states; absent: as the last view left it.
    state: Option<u32>,
    options: String,
    /// A file to read while it is mounted.
    read: Option<String>,
    /// What cannot be read does not end the listing.
    #[serde(default)]
    damaged: bool,
}

const DIR: &str = "/mnt";

/// Runs all checks; `line` gets their number.
pub fn run(checks: &str, answers: &str, line: &mut Map<String, Value>) -> Result<(), Failure> {
    let at = |name: &str| outbox::path(name).map_err(|e| Failure::system(name, e));
    let input = File::open(at(checks)?).map_err(|e| Failure::system(checks, e))?;
    let output = File::create(at(answers)?).map_err(|e| Failure::system(answers, e))?;
    let mut output = BufWriter::new(output);
    let mut listed = BTreeSet::new();
    let mut count = 0u64;
    for text in BufReader::new(input).lines() {
        let text = text.map_err(|e| Failure::system(checks, e))?;
        let check: Check = serde_json::from_str(&text)
            .map_err(|e| Failure::new(format!("{checks}, line {}: {e}", count + 1)))?;
        announce(&check.name);
        let mut views = Vec::new();
        for view in &check.mounts {
            let (answer, tree) = look(view)?;
            views.push(answer);
            if let Some(tree) = tree {
                let hash = tree.hash();
                if listed.insert(hash.clone()) {
                    put(&mut output, &json!({"tree": hash, "entries": tree.entries}))?;
                }
            }
        }
        put(&mut output, &json!({"name": check.name, "views": views}))?;
        count += 1;
    }
    output.flush().map_err(|e| Failure::system(answers, e))?;
    line.insert("checks".into(), count.into());
    Ok(())
}

fn put(output: &mut impl Write, value: &Value) -> Result<(), Failure> {
    writeln!(output, "{value}").map_err(|e| Failure::system("writing the answers", e))
}

/// Into the kernel's log, so that what the kernel says next can be told whose it is.
fn announce(name: &str) {
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        // In one write, or it is two messages.
        let _ = log.write_all(format!("<4>crash: {name}").as_bytes());
    }
}

fn look(view: &View) -> Result<(Value, Option<Listing>), Failure> {
    if let Some(state) = view.state {
        drive::write(0, "state", &state.to_string())?;
    }
    let mount = Mount {
        fs: "ext4".into(),
        options: view.options.clone(),
        dir: DIR.into(),
        device: "/dev/shd0".into(),
    };
    if let Err(failure) = mounts::mount_step(&mount) {
        return Ok((json!({"error": failure.message}), None));
    }
    let tree = if view.damaged {
        Ok(Listing::of_what_is_left(Path::new(DIR)))
    } else {
        Listing::of(Path::new(DIR))
    };
    let mut answer = Map::new();
    if let Some(path) = &view.read {
        let text = fs::read_to_string(path).unwrap_or_default();
        answer.insert("read".into(), text.trim().into());
    }
    // Whatever was found: the next state needs the disk.
    mounts::umount_step(DIR)?;
    let listing = match tree {
        Ok(listing) => {
            answer.insert("tree".into(), listing.hash().into());
            Some(listing)
        }
        Err(error) => {
            answer.insert("error".into(), error.to_string().into());
            None
        }
    };
    Ok((answer.into(), listing))
}
