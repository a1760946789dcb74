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

fn command(dir: &Path, script: &str) -> Value {
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_guest"), dir.join("shingle-phase")).unwrap();
    let env = json!({"SHINGLE_PHASES": dir.join("phases"), "DIR": dir});
    json!({"do": "command", "name": "first", "argv": ["/bin/sh", "-c", script], "env": env, "cwd": dir,
        "stdout": "out.txt", "stderr": "err.txt", "limit_s": 60, "phase": "first", "may_fail": true})
}

#[test]
fn a_command_is_reported_with_its_streams_and_its_status() {
    // What is printed before /dev/stderr is opened anew stays, and what is left behind is not waited for.
    let script = "echo one; echo two >&2; echo three >/dev/stderr; sleep 61 & exit 3";
    let ran = run(|dir| json!([command(dir, script)]));
    let step = ran.steps().next().unwrap();
    assert_eq!(step["exited"], 3);
    assert_eq!(step["status"], 0);
    let text = |name| fs::read_to_string(ran.dir.path().join(name)).unwrap();
    assert_eq!(
        (text("out.txt"), text("err.txt")),
        ("one\n".into(), "two\nthree\n".into())
    );
    let took_ns = step["end_ns"].as_u64().unwrap() - step["start_ns"].as_u64().unwrap();
    assert!(took_ns < 30_000_000_000);
}

#[test]
fn more_than_a_pipe_holds_is_printed_whole() {
    let ran = run(|dir| json!([command(dir, "head -c 1000000 /dev/zero; kill -TERM $$")]));
    let step = ran.steps().next().unwrap();
    assert_eq!(
        (&step["signal"], &step["exited"]),
        (&json!(15), &Value::Null)
    );
    let printed = fs::metadata(ran.dir.path().join("out.txt")).unwrap();
    assert_eq!(printed.len(), 1_000_000);
}

#[test]
fn a_command_marks_its_phases_once_each() {
    let script = "cd $DIR; ./shingle-phase a; ./shingle-phase b-2; ./shingle-phase a; \
        ./shingle-phase first; ./shingle-phase 'a b'; ./shingle-phase unmount; ./shingle-phase; true";
    let ran = run(|dir| json!([command(dir, script)]));
    let step = ran.steps().next().unwrap();
    let marks = step["marks"].as_array().unwrap();
    let names: Vec<_> = marks.iter().map(|mark| &mark["phase"]).collect();
    assert_eq!(names, [&json!("a"), &json!("b-2")]);
    let times = ["/start_ns", "/marks/0/at_ns", "/marks/1/at_ns", "/end_ns"];
    let times = times.map(|place| step.pointer(place).unwrap().as_u64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    let said = fs::read_to_string(ran.dir.path().join("err.txt")).unwrap();
    for (line, word) in
        said.lines()
            .zip(["already", "already", "letters", "own", "expected one name"])
    {
        assert!(line.contains(word), "{line}");
    }
    assert_eq!(said.lines().count(), 5);
}

#[test]
fn a_command_that_cannot_be_started_and_one_that_is_too_slow_are_failures() {
    let ran = run(|dir| {
        let mut slow = command(dir, "echo began; sleep 62");
        let mut missing = slow.clone();
        missing["argv"] = json!(["/nonexistent"]);
        slow["limit_s"] = json!(0.3);
        json!([missing, slow, {"do": "end_programs", "may_fail": true}])
    });
    let steps: Vec<_> = ran.steps().collect();
    assert_eq!(
        (&steps[0]["status"], &steps[1]["status"]),
        (&json!(2), &json!(124))
    );
    assert_eq!(steps[1]["exited"], Value::Null);
    let printed = fs::read_to_string(ran.dir.path().join("out.txt")).unwrap();
    assert_eq!(printed, "began\n");
    // Outside of the machine the programs are the host's.
    assert_ne!(steps[2]["status"], 0);
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
