// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shell on the console, for a person to look around in the machine.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::exec;
use crate::failure::Failure;

/// /dev/console itself cannot become a controlling terminal, what is behind it can.
const TERMINALS: [&str; 2] = ["/dev/tty0", "/dev/console"];

/// Runs a shell in `dir` until it exits; its exit status is no failure.
pub fn run(dir: &str) -> Result<(), Failure> {
    let open = |path| OpenOptions::new().read(true).write(true).open(path);
    let terminal = TERMINALS.iter().find_map(|path| open(path).ok());
    let terminal = terminal.ok_or_else(|| Failure::new("there is no console"))?;
    let copy = || terminal.try_clone().map(Stdio::from);
    let io = |e| Failure::system("console", e);

    let mut command = exec::command("/bin/sh");
    command
        .arg("-i")
        .current_dir(dir)
        .env("PS1", "shingle:$PWD# ");
    command.env(
        "TERM",
        std::env::var("TERM").unwrap_or_else(|_| "linux".into()),
    );
    command
        .stdin(copy().map_err(io)?)
        .stdout(copy().map_err(io)?)
        .stderr(copy().map_err(io)?);
    take_terminal(&mut command);
    let status = command
        .status()
        .map_err(|e| Failure::system("/bin/sh", e))?;
    match status.code() {
        Some(126 | 127) => Err(Failure::new("/bin/sh did not start")),
        _ => Ok(()),
    }
}

/// Makes the child the leader of a session that owns its standard input.
#[allow(unsafe_code)]
fn take_terminal(command: &mut Command) {
    let own = || {
        rustix::process::setsid()?;
        // Job control is a comfort: a shell without it is better than none.
        let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
        Ok(())
    };
    // SAFETY: between fork and exec only two system calls are made, nothing is
    // allocated and no lock is taken.
    unsafe { command.pre_exec(own) };
}
