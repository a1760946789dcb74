// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of the simulated machine: mounts what programs expect,
//! runs the job that the lab has left (docs/reference/interfaces.md), and switches off.
//! It switches off in every case, also after a panic of its own.
//!
//! `guest job DIR` runs the job of a directory on any machine, as far as it needs
//! no drive: for tests. `guest background …` is for its own use. Under the name
//! `shingle-phase` it is what a user's command calls to begin a phase.

mod background;
mod check;
mod clock;
mod command;
mod drive;
mod exec;
mod failure;
mod job;
mod kernel_log;
mod mounts;
mod outbox;
mod phases;
mod programs;
mod progress;
mod shell;
mod steps;

use std::env;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{getpid, setrlimit, Pid, Resource, Rlimit};
use rustix::system::{reboot, RebootCommand};

fn main() -> ExitCode {
    if getpid() == Pid::INIT {
        std::panic::set_hook(Box::new(|panic| finish(Err(format!("the guest: {panic}")))));
        finish(boot().and_then(|()| run_job()));
    }
    let called = env::args().next().unwrap_or_default();
    let arguments: Vec<String> = env::args().skip(1).collect();
    if Path::new(&called).ends_with(phases::PROGRAM) {
        return phases::main(&arguments);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["job", dir] => {
            outbox::set_dir(Path::new(dir));
            let result = run_job();
            report_end(&result);
            if result.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        ["background", steps, rounds, out] => {
            if out != outbox::OUT_DIR {
                outbox::set_dir(Path::new(out));
            }
            steps::run_in_background(Path::new(steps), Path::new(rounds))
        }
        _ => {
            eprintln!(
                "guest: I am the first process of a simulated machine. Usage here: guest job DIR"
            );
            ExitCode::from(2)
        }
    }
}

/// Makes the bare machine one that programs run on.
fn boot() -> Result<(), String> {
    mounts::mount_system().map_err(|e| e.message)?;
    let out = mounts::kernel_parameter("shingle.out");
    let out = out.ok_or("the kernel's command line has no shingle.out=")?;
    mounts::mount_out(&out).map_err(|e| e.message)?;
    set_limits();
    Ok(())
}

/// Many open files, no core dumps.
fn set_limits() {
    let limit = |value| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    let _ = setrlimit(Resource::Nofile, limit(65_536));
    let _ = setrlimit(Resource::Core, limit(0));
}

fn run_job() -> Result<(), String> {
    let text = outbox::read_job().map_err(|e| format!("job.json: {e}"))?;
    let job = job::parse(&text)?;
    drive::set_disks(job.disks);
    steps::run_job(&job.steps)
}

fn report_end(result: &Result<(), String>) {
    if let Err(message) = result {
        eprintln!("guest: {message}");
    }
    if let Err(e) = outbox::end(result.as_ref().err().map(String::as_str)) {
        eprintln!("guest: results.jsonl: {e}");
    }
}

/// Writes the last line and switches the machine off. Only the lab's directory
/// is written back: what a job has left dirty on the drive stays undone.
fn finish(result: Result<(), String>) -> ! {
    report_end(&result);
    if let Ok(dir) = File::open(outbox::OUT_DIR) {
        let _ = rustix::fs::syncfs(dir);
    }
    loop {
        let failed = reboot(RebootCommand::PowerOff);
        eprintln!("guest: cannot switch off: {failed:?}");
        clock::sleep_until_ns(clock::now_ns() + clock::SECOND_NS);
    }
}
