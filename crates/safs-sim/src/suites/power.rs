// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a power cut leaves of a record.
//!
//! What was flushed is there. Of the rest, with write pointers: of each sequential zone the actions up to some point, the
//! last write perhaps torn; of the conventional zones any blocks. Without write pointers: any blocks of anything, each old
//! or new, some of them half old and half new (sectors of 512 bytes); and what was to be discarded may still be there.

use super::random::Random;
use super::sim::{Action, Piece, Sim, BLOCK};
use std::collections::BTreeMap;

/// What of a write without pointers reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Nothing,
    Everything,
    /// Up to some action.
    Beginning(usize),
    /// From some action on: the later overtook the earlier.
    End(usize),
    /// Each request as a whole or not.
    Requests,
    /// Each block or not.
    Blocks,
}

/// Devices as power cuts leave them: `Cuts::at(n)` after the first n actions.
pub struct Cuts<'a> {
    actions: &'a [Action],
    durable: Sim,
    /// Actions that `durable` has: all up to a flush.
    flushed: usize,
}

impl<'a> Cuts<'a> {
    pub fn new(device: &Sim, actions: &'a [Action]) -> Self {
        Cuts {
            actions,
            durable: device.clone().plain(),
            flushed: 0,
        }
    }

    /// `count` never goes back.
    pub fn at(&mut self, count: usize, random: &mut Random) -> Sim {
        let is_flush = |action: &Action| matches!(action, Action::Flush);
        let behind = self.actions[..count].iter().rposition(is_flush);
        let behind = behind.map_or(0, |at| at + 1).max(self.flushed);
        for action in &self.actions[self.flushed..behind] {
            self.durable.redo(action);
        }
        self.flushed = behind;
        let mut device = self.durable.clone();
        let volatile = &self.actions[behind..count];
        if device.shape().keeps_pointers {
            keep_by_zone(&mut device, volatile, random);
        } else {
            scatter(&mut device, volatile, random);
        }
        device.power_on();
        device
    }
}

fn keep_by_zone(device: &mut Sim, volatile: &[Action], random: &mut Random) {
    let mut by_zone: BTreeMap<u32, Vec<&Action>> = BTreeMap::new();
    for action in volatile {
        if let Some(zone) = device.zone_named(action) {
            by_zone.entry(zone).or_default().push(action);
        }
    }
    for (zone, actions) in by_zone {
        if device.is_conventional(zone) {
            any_blocks(device, &actions, random);
        } else {
            keep_some(device, &actions, random);
        }
    }
}

/// Any blocks of what was written may be there.
fn any_blocks(device: &mut Sim, actions: &[&Action], random: &mut Random) {
    let chance = random.below(3);
    for action in actions {
        let Action::Write(at, pieces) = action else {
            continue;
        };
        for (block, piece) in (*at..).zip(pieces) {
            if chance == 1 || chance == 2 && random.one_in(2) {
                device.put(block, piece.clone());
            }
        }
    }
}

/// Up to some point everything is there.
fn keep_some(device: &mut Sim, actions: &[&Action], random: &mut Random) {
    let kept = match random.below(3) {
        0 => 0,
        1 => actions.len(),
        _ => random.below(1 + actions.len() as u64) as usize,
    };
    actions[..kept]
        .iter()
        .for_each(|action| device.redo(action));
    if let Some(Action::Write(at, pieces)) = actions.get(kept) {
        let torn = random.below(pieces.len() as u64) as usize;
        if torn > 0 {
            device.redo_torn(*at, &pieces[..torn]);
        }
    }
}

fn scatter(device: &mut Sim, volatile: &[Action], random: &mut Random) {
    let point = |random: &mut Random| random.below(1 + volatile.len() as u64) as usize;
    let fate = match random.below(8) {
        0 => Fate::Nothing,
        1 => Fate::Everything,
        2 | 3 => Fate::Beginning(point(random)),
        4 => Fate::End(point(random)),
        5 => Fate::Requests,
        _ => Fate::Blocks,
    };
    let tears = random.one_in(4);
    let zone_blocks = u64::from(device.shape().zone_blocks);
    let discards = device.shape().discards;
    for (number, action) in volatile.iter().enumerate() {
        let is_kept = match fate {
            Fate::Nothing => false,
            Fate::Everything | Fate::Blocks => true,
            Fate::Beginning(end) => number <= end,
            Fate::End(start) => number >= start,
            Fate::Requests => random.one_in(2),
        };
        if !is_kept {
            continue;
        }
        let is_edge = fate == Fate::Beginning(number) || fate == Fate::End(number);
        let is_mixed = is_edge || fate == Fate::Blocks;
        match action {
            Action::Write(at, pieces) => {
                for (block, piece) in (*at..).zip(pieces) {
                    if is_mixed && random.one_in(2) {
                        continue;
                    }
                    let is_torn = tears && random.one_in(16);
                    let piece = match is_torn {
                        true => torn(&device.piece(block), piece, random),
                        false => piece.clone(),
                    };
                    device.put(block, piece);
                }
            }
            Action::Reset(zone) if discards => {
                let first = u64::from(*zone) * zone_blocks;
                for block in first..first + zone_blocks {
                    if !(is_mixed && random.one_in(2)) {
                        device.put(block, Piece::Word(0));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Some sectors of one, the others of the other.
fn torn(old: &Piece, new: &Piece, random: &mut Random) -> Piece {
    let (mut bytes, new) = (old.bytes(), new.bytes());
    let mask = 1 + random.below(254);
    for sector in 0..BLOCK / 512 {
        if mask & 1 << sector != 0 {
            let range = sector * 512..(sector + 1) * 512;
            bytes[range.clone()].copy_from_slice(&new[range]);
        }
    }
    Piece::of(&bytes)
}
