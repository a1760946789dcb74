// SPDX-License-Identifier: MIT OR Apache-2.0
//! A zone that is being emptied, and how far that is; `cleaning` does it.

use crate::format::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoned::ZoneId;

/// A piece of a file that has to move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub ino: Ino,
    pub logical: u64,
    pub extent: Extent,
}

/// A zone that is being emptied.
#[derive(Clone, Debug)]
pub(crate) struct Cleaning {
    pub zone: ZoneId,
    pub epoch: u64,
    /// The block of the header that is looked at, and how many of its pieces were.
    pub at: (u32, usize),
    /// What headers claim is looked at, too: the second time.
    pub is_thorough: bool,
    pub is_looked_through: bool,
    pub found: BTreeMap<(Ino, u64), Live>,
    pub found_bytes: u64,
    /// What was found and has to move, in the order in which it lies.
    pub rest: VecDeque<Live>,
    /// Files that get zones of their own, and the zones that they have got.
    pub own: BTreeSet<Ino>,
    pub outputs: BTreeMap<Ino, ZoneId>,
    /// Blocks that can be written more than before.
    pub gain: i64,
}

impl Cleaning {
    pub fn new(zone: ZoneId, epoch: u64, is_thorough: bool) -> Self {
        Cleaning {
            zone,
            epoch,
            at: (0, 0),
            is_thorough,
            is_looked_through: false,
            found: BTreeMap::new(),
            found_bytes: 0,
            rest: VecDeque::new(),
            own: BTreeSet::new(),
            outputs: BTreeMap::new(),
            gain: 0,
        }
    }
}
