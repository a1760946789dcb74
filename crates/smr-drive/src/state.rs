// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What a drive remembers while it is switched off, apart from the contents.

use crate::profile::Profile;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The first section of a drive file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The drive's model.
    pub profile: Profile,
    /// Of this one drive: what differs between two of a model.
    pub seed: u64,
}

impl State {
    /// A new drive.
    pub fn new(profile: Profile, seed: u64) -> Self {
        State { profile, seed }
    }

    /// As in the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a state is made of numbers, lists and strings")
    }

    /// From the file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes).map_err(|why| format!("{why}"))
    }
}
