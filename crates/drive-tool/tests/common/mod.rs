// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code, reason = "every test program uses a part of it")]

use drive_tool::host::Host;
use drive_tool::profile;
use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::Profile;
use smr_drive::request::Op;
use smr_drive::state::{SavedStatic, SavedTranslation, State};
use smr_drive::Drive;
use std::path::{Path, PathBuf};

pub const S: f64 = 1e9;
pub const MIB_BLOCKS: u64 = 1 << 8;
pub const GIB_BLOCKS: u64 = 1 << 18;

/// The file of a profile.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../drives")
        .join(format!("{name}.toml"))
}

pub fn profile(name: &str) -> Profile {
    profile::load(&path(name)).unwrap()
}

pub fn host(name: &str) -> Host {
    Host::new(profile(name), 7)
}

/// A drive whose first `blocks` blocks were written in place some time ago.
pub fn used_host(name: &str, blocks: u64) -> Host {
    let mut state = State::new(profile(name), 7);
    state.translation = SavedTranslation::Static(SavedStatic {
        written: vec![at(0, blocks)],
        ..SavedStatic::default()
    });
    Host::with_drive(Drive::new(
        Opened {
            state: Box::new(state),
            contents: Contents::new(),
        },
        7,
    ))
}

pub use drive_tool::host::at;
pub use drive_tool::random::Random;

/// A drive on which every block was written before.
pub fn fully_used_host(name: &str) -> Host {
    Host::used(profile(name), 7)
}

/// Writes `blocks` in requests of `request` blocks, up to eight at a time, and waits for all.
pub fn write_run(host: &mut Host, from: u64, blocks: u64, request: u64) {
    let (mut at_block, mut running) = (from, 0);
    while at_block < from + blocks || running > 0 {
        if at_block < from + blocks && running < 8 {
            let n = request.min(from + blocks - at_block);
            host.submit(Op::Write, at(at_block, n), 0).unwrap();
            at_block += n;
            running += 1;
            continue;
        }
        running -= host.completions();
        if running > 0 {
            host.step();
            running -= host.completions();
        }
    }
}
