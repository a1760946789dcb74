// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Data of writes between the call that brings them and their place in the buffer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Buffers kept: as many as a queue has commands.
const SPARE_MAX: usize = 32;

/// Data of writes that have no place in the buffer yet.
#[derive(Default)]
pub(super) struct Staging {
    pub(super) by_tag: BTreeMap<u64, Vec<u8>>,
    /// Emptied, to be used again.
    pub(super) spare: Vec<Vec<u8>>,
    /// For reads of parts of a block.
    pub(super) block: Vec<u8>,
}

impl Staging {
    /// Forgets the data of a request that will not come.
    pub fn forget(&mut self, tag: u64) {
        if let Some(data) = self.by_tag.remove(&tag) {
            self.keep(data);
        }
    }

    /// Keeps a buffer for a later write, unless there are plenty.
    pub(super) fn keep(&mut self, mut data: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            data.clear();
            self.spare.push(data);
        }
    }
}
