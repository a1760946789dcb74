// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program of the host: output to files of the lab's directory, a limit
//! in virtual seconds, nothing left behind.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{
    kill_process_group, pidfd_open, waitpid, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus,
};
use serde_json::{Map, Value};

use crate::clock::{now_ns, seconds_to_ns, SECOND_NS};
use crate::failure::Failure;
use crate::job::Exec;
use crate::outbox;

/// What of a program's output goes into the result line.
const TAIL_BYTES: u64 = 4096;

/// The environment of every program: nothing of the host's.
const ENVIRONMENT: [(&str, &str); 6] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/run/home"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    // There is no udev to wait for.
    ("DM_DISABLE_UDEV", "1"),
];

/// A program with the machine's environment and no input.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// The same in a process group of its own, which can be killed as a whole.
pub fn group(program: &str) -> Command {
    let mut command = command(program);
    command.process_group(0);
    command
}

/// Runs the program of step `index`; its output goes into `line`.
pub fn run(exec: &Exec, index: usize, line: &mut Map<String, Value>) -> Result<(), Failure> {
    let program = &exec.argv[0];
    let output = Output::create(exec, index).map_err(|e| Failure::system("output files", e))?;
    let mut command = group(program);
    command.args(&exec.argv[1..]).envs(&exec.env);
    command.current_dir(exec.cwd.as_deref().unwrap_or("/"));
    let files = output
        .files()
        .map_err(|e| Failure::system("output files", e))?;
    command.stdout(files.0).stderr(files.1);
    let child = command.spawn().map_err(|e| Failure::system(program, e))?;
    let pid = Pid::from_child(&child);
    let ended = wait(pid, exec.limit_s);
    output.report(line);
    match ended.map_err(|e| Failure::system("waiting", e))? {
        Ended::Limit => Err(Failure {
            status: 124, // as timeout(1)
            message: format!(
                "{program} ran longer than {} virtual seconds and was killed",
                exec.limit_s.unwrap_or_default()
            ),
        }),
        Ended::Status(status) => judge(program, status, &output),
    }
}

enum Ended {
    Status(WaitStatus),
    Limit,
}

/// Waits for a child; kills its process group when its time is over.
fn wait(pid: Pid, limit_s: Option<f64>) -> io::Result<Ended> {
    let mut in_time = true;
    if let Some(limit_s) = limit_s {
        in_time = wait_limited(pid, now_ns().saturating_add(seconds_to_ns(limit_s)))?;
        if !in_time {
            kill_process_group(pid, Signal::KILL)?;
        }
    }
    let status = wait_for(pid)?;
    Ok(if in_time {
        Ended::Status(status)
    } else {
        Ended::Limit
    })
}

fn wait_limited(pid: Pid, end_ns: u64) -> io::Result<bool> {
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left_ns = end_ns.saturating_sub(now_ns());
        let timeout = Timespec {
            tv_sec: (left_ns / SECOND_NS) as i64,
            tv_nsec: (left_ns % SECOND_NS) as i64,
        };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Takes the status of a child that has ended or will end.
pub fn wait_for(pid: Pid) -> io::Result<WaitStatus> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e.into()),
        }
    }
}

fn judge(program: &str, status: WaitStatus, output: &Output) -> Result<(), Failure> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => {
            let said = tail(&output.stderr)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned();
            let separator = if said.is_empty() { "" } else { ": " };
            let message = format!("{program} ended with status {code}{separator}{said}");
            Err(Failure {
                status: code,
                message,
            })
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let message = format!("{program} was ended by signal {signal}");
            Err(Failure {
                status: 128 + signal,
                message,
            })
        }
    }
}

/// The files that take a program's output.
struct Output {
    stdout: PathBuf,
    stderr: PathBuf,
    /// The job named the file: it stays, even if empty.
    named: bool,
}

impl Output {
    fn create(exec: &Exec, index: usize) -> io::Result<Self> {
        let program = Path::new(&exec.argv[0])
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let name = match &exec.stdout {
            Some(name) => name.clone(),
            None => format!("{index:03}-{program}.stdout"),
        };
        let stderr = format!("{index:03}-{program}.stderr");
        let named = exec.stdout.is_some();
        Ok(Self {
            stdout: outbox::path(&name)?,
            stderr: outbox::path(&stderr)?,
            named,
        })
    }

    fn files(&self) -> io::Result<(File, File)> {
        Ok((File::create(&self.stdout)?, File::create(&self.stderr)?))
    }

    /// Tails into the result line; files that stayed empty go away.
    fn report(&self, line: &mut Map<String, Value>) {
        line.insert("stdout_tail".into(), tail(&self.stdout).into());
        line.insert("stderr_tail".into(), tail(&self.stderr).into());
        for (path, keep) in [(&self.stdout, self.named), (&self.stderr, false)] {
            let empty = fs::metadata(path).is_ok_and(|m| m.len() == 0);
            if empty && !keep {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
