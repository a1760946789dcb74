// SPDX-License-Identifier: MIT OR Apache-2.0
//! The committed comparison with what was measured on real drives (results/drives/validation.jsonl, shown in
//! docs/results/drive-validation.md) is what the model gives today. The targets are in drives/targets; nothing is judged here
//! that is not judged there.
//!
//! `./shingle drives validate --full --page docs/results/drive-validation.md --figure docs/figures --record
//! results/drives/validation.jsonl` writes both anew.

use drive_tool::validate::{self, Row, Verdict};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn committed() -> Vec<Value> {
    let path = root().join("results/drives/validation.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &Value| record["event"] == "row")
        .collect()
}

fn key(record: &Value) -> String {
    ["drive", "id", "what"]
        .map(|k| record[k].to_string())
        .join(" ")
}

/// A moment's worth of rows of every drive that has targets.
#[test]
fn the_committed_table_is_what_the_model_gives() {
    let committed = committed();
    let drives = root().join("drives");
    let (names, _) = validate::names(&drives).unwrap();
    let mut compared = 0;
    let mut stale = Vec::new();
    for name in names {
        let done = validate::validate(&drives, &name, validate::is_quick).unwrap();
        for row in &done.rows {
            let new = row.json(done.profile_crc32);
            match committed.iter().find(|record| key(record) == key(&new)) {
                Some(record) if *record == new => compared += 1,
                Some(record) => stale.push(format!("committed {record}\nnow       {new}")),
                None => stale.push(format!("not committed: {new}")),
            }
        }
    }
    assert!(
        stale.is_empty(),
        "{}\nrun: ./shingle drives validate --full --page docs/results/drive-validation.md --figure docs/figures --record results/drives/validation.jsonl",
        stale.join("\n")
    );
    assert!(compared > 50, "{compared} rows");
}

/// Rows that were fitted or read back must match, or the profile is wrong; predictions may fail, and then say so.
#[test]
fn what_was_fitted_fits() {
    let off: Vec<String> = committed()
        .iter()
        .filter(|r| r["kind"] != "predicted" && r["verdict"] == "FAIL")
        .map(Value::to_string)
        .collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// The verdicts of the record follow from its numbers.
#[test]
fn a_row_off_by_more_than_its_tolerance_fails() {
    let drives = root().join("drives");
    let quick = |t: &validate::targets::Target| t.id == "seek";
    let mut done = validate::validate(&drives, "wd5000ys", quick).unwrap();
    let row: &mut Row = &mut done.rows[0];
    assert_eq!(row.verdict(), Verdict::Pass);
    row.simulated *= 1.3;
    assert_eq!(row.verdict(), Verdict::Fail);
}
