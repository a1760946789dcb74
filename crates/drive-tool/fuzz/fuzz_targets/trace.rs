// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a trace: read, summed up, and replayed to a small drive.
#![no_main]

use drive_tool::meter::Meter;
use drive_tool::{any_trace, replay, trace_file};
use libfuzzer_sys::fuzz_target;
use smr_drive::profile::sample;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(events) = any_trace::read_any("x", bytes) {
        trace_file::summary(&events).unwrap();
        let options = replay::Options {
            seed: 1,
            used: true,
            keep_trace: true,
        };
        let meter = Meter::new(80_000_000, u64::MAX);
        let profile = sample::shingled(1 << 30, 20_000, 500);
        let replayed = replay::replay(profile, options, &events, meter);
        trace_file::read(&replayed.trace).unwrap();
    }
});
