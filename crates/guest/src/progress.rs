// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line in `progress.jsonl` for every virtual second. The thread that writes
//! it sleeps on the clock, so it is as deterministic as everything else; it
//! costs about ten system calls per virtual second.

use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::clock::{now_ns, sleep_until_ns, SECOND_NS};
use crate::{drive, outbox};

/// What the ticks say is going on; `None` between steps.
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Option<Running>>>);

#[derive(Clone)]
struct Running {
    phase: Option<String>,
    action: &'static str,
    index: usize,
}

impl Progress {
    /// Starts the thread that writes the ticks.
    pub fn start() -> Self {
        let progress = Self::default();
        let shared = progress.clone();
        let spawned = thread::Builder::new()
            .name("ticks".into())
            .spawn(move || shared.tick_for_ever());
        spawned.expect("a thread for the ticks");
        progress
    }

    pub fn begin(&self, phase: Option<&str>, action: &'static str, index: usize) {
        let phase = phase.map(str::to_owned);
        *self.0.lock().expect("not poisoned") = Some(Running {
            phase,
            action,
            index,
        });
    }

    pub fn end(&self) {
        *self.0.lock().expect("not poisoned") = None;
    }

    fn tick_for_ever(&self) {
        let mut at_ns = now_ns();
        loop {
            at_ns += SECOND_NS;
            sleep_until_ns(at_ns);
            self.tick();
            // A machine that was busy for seconds reports once, not for each of them.
            at_ns = at_ns.max(now_ns().saturating_sub(SECOND_NS));
        }
    }

    fn tick(&self) {
        let running = self.0.lock().expect("not poisoned").clone();
        let Some(Running {
            phase,
            action,
            index,
        }) = running
        else {
            return;
        };
        let line = json!({
            "event": "tick", "now_ns": now_ns(), "phase": phase, "do": action, "index": index,
            "counters": drive::counters(0),
        });
        // Progress is for looking at: a run does not fail for want of it.
        let _ = outbox::tick(&line);
    }
}
