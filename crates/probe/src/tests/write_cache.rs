// SPDX-License-Identifier: MIT OR Apache-2.0
//! What quick writes say about a write cache.

use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::median;

/// What `times` of writes that nobody asked to be durable say about it.
pub fn write_cache_found(s: &mut Session<'_>, times: &[f64], how: String) {
    let (key, what) = ("buffer.write_cache", "write cache in DRAM");
    let (ms, turn_ms) = (median(times), s.known.mechanics.revolution_ms);
    let how = format!(
        "{how}: {ms:.2} ms in the median, where a command without the medium takes {:.2} ms",
        s.known.mechanics.command_ms
    );
    s.found(match ms / turn_ms {
        turns if turns < 0.1 => Finding::word(key, what, "yes", Confidence::High, how),
        turns if turns > 0.4 => Finding::word(key, what, "no", Confidence::High, how),
        _ => Finding::open(key, what, how),
    });
}
