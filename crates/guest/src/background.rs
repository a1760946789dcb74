// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps that run over and over in a child process, beside the job.
//!
//! The child is this program again (`guest background FILE`), not a fork: a
//! process with threads had better not be forked. It notes how many rounds it
//! has finished in a file of a tmpfs, and it is killed when its time has come.

use std::fs;
use std::io;

use rustix::process::{kill_process_group, waitpid, Pid, Signal, WaitOptions, WaitStatus};
use serde_json::{json, Map, Value};

use crate::drive;
use crate::exec;
use crate::failure::Failure;
use crate::outbox;

/// A running child.
pub struct Background {
    pid: Pid,
    /// Set when the child ended by itself, which is always a failure.
    ended: Option<WaitStatus>,
}

/// What the child prints, and what its failure is told from.
const LOG: &str = "background.log";

impl Background {
    pub fn start(steps: &[Value]) -> io::Result<Self> {
        let (file, rounds) = (
            outbox::scratch("background.json"),
            outbox::scratch("background.rounds"),
        );
        let mut job = json!({"steps": steps});
        if drive::disks() > 1 {
            job["disks"] = drive::disks().into();
        }
        fs::write(&file, job.to_string())?;
        fs::write(&rounds, "0")?;
        let log = fs::File::create(outbox::path(LOG)?)?;
        let mut command = exec::group("/proc/self/exe");
        command
            .arg("background")
            .args([&file, &rounds])
            .arg(outbox::dir());
        command.stdout(log.try_clone()?).stderr(log);
        let pid = Pid::from_child(&command.spawn()?);
        Ok(Self { pid, ended: None })
    }

    /// Notes a child's end that was met while reaping.
    pub fn note(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.pid {
            self.ended = Some(status);
        }
    }

    /// Ends the child with everything it started.
    pub fn stop(mut self, line: &mut Map<String, Value>) -> Result<(), Failure> {
        if self.ended.is_none() {
            if let Ok(Some((_, status))) = waitpid(Some(self.pid), WaitOptions::NOHANG) {
                self.ended = Some(status);
            }
        }
        let rounds = fs::read_to_string(outbox::scratch("background.rounds")).unwrap_or_default();
        line.insert(
            "rounds".into(),
            rounds.trim().parse::<u64>().unwrap_or(0).into(),
        );
        if self.ended.is_some() {
            let log = fs::read_to_string(outbox::dir().join(LOG)).unwrap_or_default();
            let last = log
                .lines()
                .last()
                .unwrap_or("it left no message")
                .to_owned();
            return Err(Failure::new(format!(
                "the background steps ended early: {last}"
            )));
        }
        let killed = kill_process_group(self.pid, Signal::KILL);
        killed.map_err(|e| Failure::system("killing the background process", e))?;
        exec::wait_for(self.pid).map_err(|e| Failure::system("background process", e))?;
        Ok(())
    }
}
