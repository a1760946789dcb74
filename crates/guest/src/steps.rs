// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out the steps of a job, one result line for each.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{getpid, waitpid, Pid, WaitOptions};
use serde_json::{json, Map, Value};

use crate::background::Background;
use crate::clock::{now_ns, seconds_to_ns, sleep_until_ns};
use crate::failure::Failure;
use crate::job::{self, Action, Step};
use crate::progress::Progress;
use crate::{check, command, drive, exec, mounts, outbox, programs, shell};

/// Runs the whole job. The error is the message of the line that ends it.
pub fn run_job(steps: &[Step]) -> Result<(), String> {
    let progress = Progress::start();
    let mut runner = Runner::default();
    for (index, step) in steps.iter().enumerate() {
        // A shell waits for a person, while virtual time flies: no ticks.
        if !matches!(step.action, Action::Shell { .. }) {
            progress.begin(step.phase.as_deref(), step.action.name(), index);
        }
        let (line, result) = runner.step(index, step);
        progress.end();
        outbox::result(&line).map_err(|e| format!("results.jsonl: {e}"))?;
        runner.reap();
        if let (Err(failure), false) = (result, step.may_fail) {
            return Err(format!(
                "step {index}, {}: {}",
                step.action.name(),
                failure.message
            ));
        }
    }
    match runner.background.take() {
        Some(background) => background.stop(&mut Map::new()).map_err(|e| e.message),
        None => Ok(()),
    }
}

/// The child of `background.rs`: runs the steps until one fails or the process is killed.
pub fn run_in_background(steps: &Path, rounds: &Path) -> ExitCode {
    let text = fs::read_to_string(steps).unwrap_or_default();
    let steps = match job::parse(&text) {
        Ok(job) => {
            drive::set_disks(job.disks);
            job.steps
        }
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let mut runner = Runner::default();
    for round in 1u64.. {
        for (index, step) in steps.iter().enumerate() {
            // Apart from the job's own steps in the names of output files.
            let result = runner.act(&step.action, 1000 + index, &mut Map::new());
            if let (Err(failure), false) = (result, step.may_fail) {
                eprintln!("round {round}, step {index}: {}", failure.message);
                return ExitCode::FAILURE;
            }
        }
        let _ = fs::write(rounds, round.to_string());
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
pub struct Runner {
    background: Option<Background>,
}

impl Runner {
    /// One step between two readings of clock and counters.
    fn step(&mut self, index: usize, step: &Step) -> (Value, Result<(), Failure>) {
        let mut more = Map::new();
        let before = drive::counters(0);
        let others_before = drive::of_others(drive::disks(), drive::counters);
        let start_ns = now_ns();
        let result = self.act(&step.action, index, &mut more);
        let end_ns = now_ns();
        let after = drive::counters(0);
        let others_after = drive::of_others(drive::disks(), drive::counters);
        let status = result.as_ref().err().map_or(0, |failure| failure.status);
        let mut line = json!({
            "event": "step", "do": step.action.name(), "phase": step.phase, "index": index,
            "start_ns": start_ns, "end_ns": end_ns, "status": status,
            "before": before, "after": after,
        });
        let fields = line.as_object_mut().expect("an object");
        if drive::disks() > 1 {
            let others = json!({"before": others_before, "after": others_after});
            fields.insert("others".into(), others);
        }
        if let Err(failure) = &result {
            fields.insert("error".into(), failure.message.as_str().into());
        }
        fields.extend(more);
        (line, result)
    }

    /// Carries out an action; what it has to report goes into `line`.
    pub fn act(
        &mut self,
        action: &Action,
        index: usize,
        line: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        match action {
            Action::Mount(mount) => mounts::mount_step(mount),
            Action::Umount { dir } => mounts::umount_step(dir),
            Action::Load { name, dir, args } => {
                let report = load::run(name, Path::new(dir), args)?;
                line.insert("load".into(), json!(report));
                Ok(())
            }
            Action::Sync {} => {
                rustix::fs::sync();
                Ok(())
            }
            Action::DropCaches {} => drop_caches(),
            Action::WaitClean { limit_s } => drive::wait_clean(*limit_s),
            Action::Exec(program) => exec::run(program, index, line),
            Action::Command(asked) => command::run(asked, line),
            Action::EndPrograms { but } => programs::end_all_but(but, line),
            Action::Journal { extents, disk } => {
                drive::set_extents(*disk, "journal_extents", extents)
            }
            Action::Superblock { extents, disk } => {
                drive::set_extents(*disk, "superblock_extents", extents)
            }
            Action::Write { path, text } => write_file(path, text),
            Action::Read { path } => {
                let bytes = fs::read(path).map_err(|e| Failure::system(path, e))?;
                line.insert("text".into(), String::from_utf8_lossy(&bytes).into());
                Ok(())
            }
            Action::Sleep { seconds } => {
                sleep_until_ns(now_ns().saturating_add(seconds_to_ns(*seconds)));
                Ok(())
            }
            Action::Mark { text } => drive::mark(text),
            Action::Save { disk } => drive::write(*disk, "save", "1"),
            Action::CheckStates { checks, answers } => check::run(checks, answers, line),
            Action::Shell { dir } => shell::run(dir),
            Action::Background { steps } => self.start_background(steps),
            Action::StopBackground {} => match self.background.take() {
                Some(background) => background.stop(line),
                None => Err(Failure::new("nothing runs in the background")),
            },
        }
    }

    fn start_background(&mut self, steps: &[Value]) -> Result<(), Failure> {
        if self.background.is_some() {
            return Err(Failure::new("something runs in the background already"));
        }
        let started = Background::start(steps);
        self.background = Some(started.map_err(|e| Failure::system("background process", e))?);
        Ok(())
    }

    /// Takes the orphans that programs left to the first process.
    fn reap(&mut self) {
        if getpid() != Pid::INIT {
            return;
        }
        while let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) {
            if let Some(background) = &mut self.background {
                background.note(pid, status);
            }
        }
    }
}

/// Makes the caches cold. Once is not enough: the first time, the blocks that the
/// journal still remembers stay, and only its shrinker, which runs last, lets
/// go of them.
fn drop_caches() -> Result<(), Failure> {
    rustix::fs::sync();
    write_file("/proc/sys/vm/drop_caches", "3")?;
    write_file("/proc/sys/vm/drop_caches", "3")
}

/// Writes a sysctl, sysfs or tracefs file, or any other, with one write(2).
fn write_file(path: &str, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|e| Failure::system(path, e))
}
