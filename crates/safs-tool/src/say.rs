// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where sentences go: to standard error, or, from a server in the background, to the host's log.

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fmt::Display;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

/// A warning of a daemon (syslog(3)).
const PRIORITY: u32 = 3 << 3 | 4;
/// Where the host's log listens; without it sentences of the background are lost.
const LOG: &str = "/dev/log";

static BACKGROUND: OnceLock<Option<UnixDatagram>> = OnceLock::new();

/// Says a sentence to whoever looks after the host.
pub fn say(sentence: impl Display) {
    match BACKGROUND.get() {
        None => eprintln!("safs: {sentence}"),
        Some(None) => {}
        Some(Some(log)) => {
            let line = format!("<{PRIORITY}>safs[{}]: {sentence}", std::process::id());
            // Nobody could be told of a failure.
            let _ = log.send(line.as_bytes());
        }
    }
}

/// Connects to the host's log, for sentences after `to_background`.
pub fn log() -> Option<UnixDatagram> {
    let log = UnixDatagram::unbound().ok()?;
    // A log that is not read makes nobody wait.
    log.set_nonblocking(true).ok()?;
    log.connect(LOG).ok().map(|()| log)
}

/// Lets the streams go with which the program was started, so that whoever reads them sees their end.
pub fn to_background(log: Option<UnixDatagram>, nothing: &File) {
    let _ = BACKGROUND.set(log);
    let _ = dup2_stdin(nothing);
    let _ = dup2_stdout(nothing);
    let _ = dup2_stderr(nothing);
}
