// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program: what it refuses, and what it writes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn drives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shingle-probe"))
        .args(arguments)
        .output()
        .unwrap()
}

/// The one sentence of a refusal.
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

#[test]
fn wrong_input_is_answered_with_one_sentence() {
    assert!(refusal(&["disk", "/dev/null"]).contains("no block device"));
    assert!(refusal(&["disk", "/dev/no-such-disk"]).contains("there is no /dev/no-such-disk:"));
    let zoned = drives().join("hc620.toml");
    let said = refusal(&["simulated", zoned.to_str().unwrap()]);
    assert!(
        said.contains("host-managed") && said.contains("refuses random writes"),
        "{said}"
    );
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(refusal(&["disk", file]).contains("is no block device"));
    let drive = drives().join("wd5000ys.toml");
    let drive = drive.to_str().unwrap();
    let said = refusal(&["simulated", drive, "--only", "bnads"]);
    assert!(said.contains("'bnads'") && said.contains("bands"), "{said}");
    let said = refusal(&["simulated", drive, "--profile", file]);
    assert!(
        said.contains("exists") && said.contains("new file"),
        "{said}"
    );
    let said = refusal(&["simulated", drive, "--profile", "/no/such/folder/x.toml"]);
    assert!(said.contains("a folder that exists"), "{said}");
    assert!(refusal(&["simulated", "no-such-file.toml"]).contains("no-such-file.toml"));
    assert!(refusal(&["watch", "/dev/null", "--every", "0"]).contains("3600"));
}

#[test]
fn json_and_profile_are_written_and_the_profile_is_one() {
    let file = std::env::temp_dir().join(format!("shingle-probe-{}.toml", std::process::id()));
    let drive = drives().join("wd5000ys.toml");
    let output = run(&[
        "simulated",
        drive.to_str().unwrap(),
        "--json",
        "--profile",
        file.to_str().unwrap(),
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("minutes"), "how long it will take: {said}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = all["findings"].as_array().unwrap();
    assert!(findings
        .iter()
        .any(|f| f["key"] == "kind" && f["value"] == "conventional"));
    let profile = drive_tool::profile::load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(profile.capacity_bytes / 4096, 500_107_862_016 / 4096);
}
