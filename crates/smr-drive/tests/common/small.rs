// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Small drives with zones.

use smr_drive::contents::Contents;
use smr_drive::file::Opened;
use smr_drive::profile::{sample, Profile, Translation};
use smr_drive::state::State;
use smr_drive::Drive;

/// Of a zone: 4 MiB on disks of 64 MiB.
pub const ZONE_BLOCKS: u64 = 1024;

pub fn drive(profile: Profile) -> Drive {
    let state = Box::new(State::new(profile, 5));
    let contents = Contents::new();
    Drive::new(Opened { state, contents }, 5)
}

/// 16 zones of 1,000 blocks and a gap, the first conventional; three may be open.
pub fn small_host_managed() -> Profile {
    let mut profile = sample::host_managed(64 << 20, ZONE_BLOCKS);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile.buffer.destage_blocks_max = 64;
    if let Translation::HostManaged(zones) = &mut profile.translation {
        zones.open_max = 3;
        zones.zone_capacity_blocks = 1000;
        zones.read_restricted = true;
    }
    profile
}
