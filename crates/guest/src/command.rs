// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command of the user's. What it prints comes through pipes, as from a
//! terminal's other end: a program may open /dev/stderr anew without losing
//! what was there. It is reported how it ended; only a command that could not be
//! started, or was killed at its limit, is a failure.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
use rustix::process::{kill_process_group, pidfd_open, Pid, PidfdFlags, Signal};
use serde_json::{Map, Value};

use crate::clock::{now_ns, seconds_to_ns, SECOND_NS};
use crate::exec;
use crate::failure::Failure;
use crate::job::UserCommand;
use crate::{outbox, phases};

/// As much as a pipe holds.
const PIPE_BYTES: usize = 1 << 16;

/// Runs the command; `line` gets its status or its signal, and the phases that it marked.
pub fn run(asked: &UserCommand, line: &mut Map<String, Value>) -> Result<(), Failure> {
    let io = |e| Failure::system("a command's output", e);
    phases::begin(&asked.name).map_err(|e| Failure::system("the file of phases", e))?;
    let program = &asked.argv[0];
    let mut command = exec::group(program);
    command.args(&asked.argv[1..]).envs(&asked.env);
    command.current_dir(&asked.cwd);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| Failure::system(program, e))?;
    let pipes = (child.stdout.take(), child.stderr.take());
    let pipes = (pipes.0.expect("a pipe"), pipes.1.expect("a pipe"));
    let mut streams = [
        Stream::new(pipes.0.into(), &asked.stdout).map_err(io)?,
        Stream::new(pipes.1.into(), &asked.stderr).map_err(io)?,
    ];
    drop(command);
    let pid = Pid::from_child(&child);
    let end_ns = now_ns().saturating_add(seconds_to_ns(asked.limit_s));
    let in_time = attend(pid, &mut streams, end_ns).map_err(io)?;
    if !in_time {
        kill_process_group(pid, Signal::KILL).map_err(|e| Failure::system("killing", e))?;
    }
    let status = exec::wait_for(pid).map_err(|e| Failure::system("waiting", e))?;
    let marks = phases::end().map_err(|e| Failure::system("the file of phases", e))?;
    line.insert("marks".into(), marks.into());
    if !in_time {
        return Err(Failure {
            status: 124, // as timeout(1)
            message: format!(
                "{program} ran longer than {} virtual seconds and was killed",
                asked.limit_s
            ),
        });
    }
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => line.insert("exited".into(), code.into()),
        (None, signal) => line.insert("signal".into(), signal.into()),
    };
    Ok(())
}

/// Passes on what the command prints until it ends; whether that was before `end_ns`.
fn attend(pid: Pid, streams: &mut [Stream], end_ns: u64) -> io::Result<bool> {
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut hand_over_ns = now_ns().saturating_add(SECOND_NS);
    loop {
        let kept = streams.iter().any(|each| each.file.is_some());
        let wake_ns = if kept {
            end_ns.min(hand_over_ns)
        } else {
            end_ns
        };
        let has_ended = wait(&ended, streams, wake_ns)?;
        for each in &mut *streams {
            each.pass_on()?;
        }
        if has_ended {
            return Ok(true);
        }
        let now_ns = now_ns();
        if now_ns >= end_ns {
            return Ok(false);
        }
        if now_ns >= hand_over_ns {
            // A closed file's pages are handed to the host.
            streams.iter_mut().for_each(|each| each.file = None);
            hand_over_ns = now_ns.saturating_add(SECOND_NS);
        }
    }
}

/// Waits until something is printed, the process has ended, or it is `wake_ns`; whether it has ended.
fn wait(ended: &OwnedFd, streams: &[Stream], wake_ns: u64) -> io::Result<bool> {
    let open = streams.iter().filter_map(|each| each.pipe.as_ref());
    let mut watched: Vec<PollFd> = [ended]
        .into_iter()
        .chain(open)
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let left_ns = wake_ns.saturating_sub(now_ns());
    let timeout = Timespec {
        tv_sec: (left_ns / SECOND_NS) as i64,
        tv_nsec: (left_ns % SECOND_NS) as i64,
    };
    match poll(&mut watched, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(!watched[0].revents().is_empty()),
        Err(e) => Err(e.into()),
    }
}

/// What a program prints, on its way to a file of the lab's.
struct Stream {
    /// None: everybody who could write to it has closed it.
    pipe: Option<OwnedFd>,
    path: PathBuf,
    /// Open while there may be pages that the host has not got.
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(pipe: OwnedFd, name: &str) -> io::Result<Self> {
        let path = outbox::path(name)?;
        File::create(&path)?;
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Some(pipe),
            path,
            file: None,
            bytes: vec![0; PIPE_BYTES],
        })
    }

    /// Takes what is in the pipe.
    fn pass_on(&mut self) -> io::Result<()> {
        while let Some(pipe) = &self.pipe {
            match rustix::io::read(pipe, &mut self.bytes[..]) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    if self.file.is_none() {
                        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
                    }
                    let file = self.file.as_mut().expect("opened");
                    file.write_all(&self.bytes[..length])?;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => (),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
