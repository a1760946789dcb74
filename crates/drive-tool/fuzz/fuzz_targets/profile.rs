// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any text as a profile; what is accepted makes a drive.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(profile) = drive_tool::profile::parse("x.toml", text) {
        drop(drive_tool::host::Host::new(profile, 1));
    }
});
