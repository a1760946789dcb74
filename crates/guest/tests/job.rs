// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs run outside the machine, as far as they need no drive: `guest job DIR`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{json, Value};
use tempfile::TempDir;

struct Ran {
    dir: TempDir,
    lines: Vec<Value>,
    success: bool,
}

impl Ran {
    fn steps(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(|line| line["event"] == "step")
    }
    fn end(&self) -> &Value {
        self.lines.last().expect("a last line")
    }
}

fn run(steps: impl FnOnce(&Path) -> Value) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let job = json!({"steps": steps(dir.path())});
    fs::write(dir.path().join("job.json"), job.to_string()).unwrap();
    let guest = Command::new(env!("CARGO_BIN_EXE_guest"))
        .arg("job")
        .arg(dir.path())
        .output();
    let success = guest.unwrap().status.success();
    let text = fs::read_to_string(dir.path().join("results.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    Ran {
        dir,
        lines,
        success,
    }
}

#[test]
fn a_load_runs_and_its_report_is_in_the_line() {
    let ran = run(|dir| {
        json!([
            {"do": "load", "phase": "make", "name": "makedirs", "dir": dir, "args": {"count": 40}},
            {"do": "load", "name": "removedirs", "dir": dir},
        ])
    });
    assert!(ran.success, "{:?}", ran.lines);
    assert_eq!(ran.end(), &json!({"event": "end", "status": "ok"}));
    let made = ran.steps().next().unwrap();
    assert_eq!(
        (&made["phase"], &made["index"], &made["status"]),
        (&json!("make"), &json!(0), &json!(0))
    );
    assert!(made["end_ns"].as_u64() > made["start_ns"].as_u64());
    assert_eq!(made["load"]["args"]["threads"], 8);
    assert!(made["load"]["operations"]["mkdir"].as_u64().unwrap() > 40);
    assert!(!ran.dir.path().join("dirs").exists());
}

#[test]
fn a_failing_step_ends_the_job_and_says_why() {
    let ran = run(|_| {
        json!([
            {"do": "read", "path": "/nonexistent", "may_fail": true},
            {"do": "exec", "argv": ["/bin/sh", "-c", "echo out; echo broken >&2; exit 7"]},
            {"do": "sync"},
        ])
    });
    assert!(!ran.success);
    let steps: Vec<_> = ran.steps().collect();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["status"], 2);
    assert_eq!(steps[1]["status"], 7);
    assert_eq!(steps[1]["stdout_tail"], "out\n");
    assert_eq!(ran.end()["status"], "error");
    let message = ran.end()["message"].as_str().unwrap();
    assert!(
        message.contains("step 1, exec") && message.contains("broken"),
        "{message}"
    );
}

#[test]
fn output_goes_to_the_file_that_the_job_names() {
    let ran = run(|_| {
        json!([
            {"do": "exec", "argv": ["env"], "env": {"COLOUR": "blue"}, "stdout": "env.txt"},
            {"do": "exec", "argv": ["true"], "stdout": "../outside", "may_fail": true},
        ])
    });
    assert!(ran.success, "{:?}", ran.lines);
    let text = fs::read_to_string(ran.dir.path().join("env.txt")).unwrap();
    assert!(text.contains("COLOUR=blue") && text.contains("LC_ALL=C") && !text.contains("CARGO"));
    assert_ne!(ran.steps().nth(1).unwrap()["status"], 0);
    let files = fs::read_dir(ran.dir.path()).unwrap();
    let files: Vec<_> = files
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !files.iter().any(|f| f.ends_with(".stderr")),
        "empty output leaves no file: {files:?}"
    );
}

#[test]
fn a_program_is_killed_at_its_limit_with_its_children() {
    let ran = run(|_| {
        let script = "sleep 61 & sleep 62";
        json!([{"do": "exec", "argv": ["sh", "-c", script], "limit_s": 0.2, "may_fail": true}])
    });
    let step = ran.steps().next().unwrap();
    assert_eq!(step["status"], 124);
    assert!(step["error"]
        .as_str()
        .unwrap()
        .contains("0.2 virtual seconds"));
    let took_ns = step["end_ns"].as_u64().unwrap() - step["start_ns"].as_u64().unwrap();
    assert!(took_ns < 10_000_000_000);
}

#[test]
fn background_steps_repeat_until_stopped() {
    let ran = run(|dir| {
        let path = dir.join("touched");
        // Time is the host's here, so the fourth round is waited for, not half a second.
        let four = "until test $(wc -c < rounds) -ge 4; do sleep 0.01; done";
        let round = "printf x >> rounds";
        json!([
            {"do": "write", "path": dir.join("rounds"), "text": ""},
            {"do": "background", "steps": [
                {"do": "exec", "argv": ["sh", "-c", round], "cwd": dir},
                {"do": "write", "path": path, "text": "x"}]},
            {"do": "exec", "argv": ["sh", "-c", four], "cwd": dir, "limit_s": 60},
            {"do": "stop_background"},
            {"do": "read", "path": path},
        ])
    });
    assert!(ran.success, "{:?}", ran.lines);
    assert!(ran.steps().nth(3).unwrap()["rounds"].as_u64().unwrap() >= 3);
    // Empty if the last round was stopped between truncating the file and writing to it.
    let text = &ran.steps().nth(4).unwrap()["text"];
    assert!(text == "x" || text == "", "{text}");
}

#[test]
fn a_background_step_that_fails_is_not_lost() {
    let ran = run(|_| {
        json!([
            {"do": "background", "steps": [{"do": "read", "path": "/nonexistent"}]},
            {"do": "sleep", "seconds": 0.3},
        ])
    });
    assert!(!ran.success);
    let message = ran.end()["message"].as_str().unwrap();
    assert!(
        message.contains("background") && message.contains("/nonexistent"),
        "{message}"
    );
}

#[test]
fn progress_has_a_line_per_second() {
    let ran = run(|_| json!([{"do": "sleep", "seconds": 2.5, "phase": "rest"}]));
    let text = fs::read_to_string(ran.dir.path().join("progress.jsonl")).unwrap();
    let ticks: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(ticks.len(), 2);
    assert_eq!(
        (&ticks[0]["event"], &ticks[0]["phase"]),
        (&json!("tick"), &json!("rest"))
    );
}

#[test]
fn a_job_with_a_typing_error_runs_no_step() {
    let ran = run(|_| json!([{"do": "sync"}, {"do": "synk"}]));
    assert!(!ran.success);
    assert_eq!(ran.steps().count(), 0);
    assert!(ran.end()["message"].as_str().unwrap().contains("synk"));
}
