// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual time: CLOCK_MONOTONIC of the guest, in nanoseconds.

use rustix::thread::{clock_nanosleep_absolute, ClockId};
use rustix::time::{clock_gettime, Timespec};

pub const SECOND_NS: u64 = 1_000_000_000;

pub fn now_ns() -> u64 {
    let now = clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

/// Waits until the clock shows `at_ns`, whatever signals arrive.
pub fn sleep_until_ns(at_ns: u64) {
    let at = Timespec {
        tv_sec: (at_ns / SECOND_NS) as i64,
        tv_nsec: (at_ns % SECOND_NS) as i64,
    };
    while clock_nanosleep_absolute(ClockId::Monotonic, &at) == Err(rustix::io::Errno::INTR) {}
}

/// A limit or a duration of a job, in seconds, as nanoseconds.
pub fn seconds_to_ns(seconds: f64) -> u64 {
    (seconds.max(0.0) * SECOND_NS as f64) as u64
}
