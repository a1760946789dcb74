// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place that reads the clock. In the machine it is virtual, and each
//! reading costs 256 ns of it.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the first reading.
#[allow(clippy::disallowed_methods)] // a generator runs on real machines too, where this is their clock
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
