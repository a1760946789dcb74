// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can happen to a log while nobody looks: bits that flip, blocks that are gone, in another's place or from another
//! time, and words that are wrong below a checksum that is right.

use crate::log::{put_word, word, Found, Kind, Log, MARKER};
use crate::pool::{Contents, Pool};
use rand_core::Rng as _;
use rand_pcg::Pcg64;
use std::fmt;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The journal superblock, its marker left out.
    Superblock,
    /// The marker of journal_lazy.
    Marker,
    /// A descriptor.
    Descriptor,
    /// A copy of a metadata block.
    Copy,
    /// A block of revokes.
    Revoke,
    /// A block of a snapshot.
    Snapshot,
    /// A commit block.
    Commit,
    /// What lies behind the end of the log.
    Behind,
}

const TARGETS: [Target; 8] = [
    Target::Superblock,
    Target::Marker,
    Target::Descriptor,
    Target::Copy,
    Target::Revoke,
    Target::Snapshot,
    Target::Commit,
    Target::Behind,
];

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// One to eight bits.
    Flipped,
    /// All zero.
    Zeroed,
    /// Some sectors of 512 bytes are zero.
    Torn,
    /// In the other's place.
    Exchanged,
    /// As the block was earlier, or as another of its kind is.
    Stale,
    /// A word is another one, and the checksum is right.
    Forged,
    /// It and up to 400 blocks behind it are zero.
    Run,
}

/// The names of records are those of the variants, in small letters.
fn small(name: &dyn fmt::Debug, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&format!("{name:?}").to_lowercase())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        small(self, f)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        small(self, f)
    }
}

/// One thing that was done to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What was damaged.
    pub target: Target,
    /// How.
    pub way: Way,
    /// Where, for a person.
    pub detail: String,
    /// It is a hole that is wider than a mount looks.
    pub wide: bool,
}

/// A log before it is damaged.
pub struct Healthy<'a> {
    /// Where it is.
    pub log: &'a Log,
    /// What is in it.
    pub found: &'a Found,
    /// The disk.
    pub contents: &'a Contents,
    /// The same disk some time before.
    pub earlier: &'a Contents,
}

struct Dice(Pcg64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

impl Healthy<'_> {
    /// Whether the last commit block is not there any more: then the log just ends earlier.
    pub fn ends_earlier(&self, contents: &Contents, pool: &Pool) -> bool {
        self.found.blocks.last().is_some_and(|(block, _)| {
            self.log.read(contents, pool, *block) != self.log.read(self.contents, pool, *block)
        })
    }

    fn blocks(&self, target: Target) -> Vec<u32> {
        let is = |kind: &Kind| match target {
            Target::Descriptor => matches!(kind, Kind::Descriptor(_)),
            Target::Copy => *kind == Kind::Copy,
            Target::Revoke => *kind == Kind::Revoke,
            Target::Snapshot => *kind == Kind::Snapshot,
            Target::Commit => *kind == Kind::Commit,
            _ => false,
        };
        match target {
            Target::Superblock | Target::Marker => vec![0],
            Target::Behind => {
                let mut blocks = vec![self.found.end];
                for _ in 0..3 {
                    blocks.push(self.log.after(blocks[blocks.len() - 1]));
                }
                blocks
            }
            _ => self
                .found
                .blocks
                .iter()
                .filter(|(_, kind)| is(kind))
                .map(|(block, _)| *block)
                .collect(),
        }
    }

    /// Damages the log; the same seed and number do the same. Most numbers do one thing, some two to four.
    pub fn damaged(&self, pool: &mut Pool, seed: u64, number: u64) -> (Contents, Vec<Damage>) {
        let state = u128::from(seed) << 64 | 0xda3a_6ed0;
        let mut dice = Dice(Pcg64::new(state, u128::from(number)));
        let mut contents = self.contents.clone();
        let count = if dice.below(8) == 0 {
            2 + dice.below(3)
        } else {
            1
        };
        let mut done = Vec::new();
        for _ in 0..count {
            done.push(self.damage_one(&mut contents, pool, &mut dice));
        }
        (contents, done)
    }

    fn damage_one(&self, contents: &mut Contents, pool: &mut Pool, dice: &mut Dice) -> Damage {
        // A log may have no revokes, or no snapshots.
        let (target, blocks) = loop {
            let target = dice.one(&TARGETS);
            let blocks = self.blocks(target);
            if !blocks.is_empty() {
                break (target, blocks);
            }
        };
        let block = dice.one(&blocks);
        let way = dice.one(ways(target));
        let before = self.log.read(contents, pool, block);
        let mut data = before.clone();
        let (mut detail, mut wide) = (format!("log block {block}"), false);
        match way {
            Way::Flipped => {
                let (first, last) = self.range(target, &data);
                for _ in 0..1 + dice.below(8) {
                    let at = first + dice.below(last - first);
                    data[at] ^= 1 << dice.below(8);
                    detail += &format!(", byte {at}");
                }
            }
            Way::Zeroed if target == Target::Marker => {
                data[MARKER..MARKER + 64].fill(0);
                self.log.seal(&mut data);
            }
            Way::Zeroed => data.fill(0),
            Way::Torn => detail += &self.tear(block, &mut data, pool, dice),
            Way::Exchanged => {
                let same = dice.below(3) > 0;
                let other = if same {
                    dice.one(&blocks)
                } else {
                    dice.one(&self.found.blocks).0
                };
                data = self.log.read(contents, pool, other);
                self.log.write(contents, pool, other, &before);
                detail += &format!(" and {other}");
            }
            Way::Stale => (data, detail) = self.stale(target, block, contents, pool, dice),
            Way::Forged => {
                detail += &self.forge(target, &mut data, dice);
            }
            Way::Run => {
                let most = dice.one(&[8, 400]);
                let count = 2 + dice.below(most);
                let mut at = block;
                for _ in 0..count {
                    let zeroes = vec![0; data.len()];
                    self.log.write(contents, pool, at, &zeroes);
                    at = self.log.after(at);
                }
                data.fill(0);
                detail += &format!(" and {} behind it", count - 1);
                // One descriptor with all its copies.
                wide = count > data.len() / 16;
            }
        }
        self.log.write(contents, pool, block, &data);
        Damage {
            target,
            way,
            detail,
            wide,
        }
    }

    /// Only the first sectors of a write arrive; behind them are zeroes, or what was there before.
    fn tear(&self, block: u32, data: &mut [u8], pool: &mut Pool, dice: &mut Dice) -> String {
        let sectors = data.len() / 512;
        let keep = 1 + dice.below(sectors - 1);
        data[keep * 512..].fill(0);
        if dice.below(2) == 0 {
            data[keep * 512..]
                .copy_from_slice(&self.log.read(self.earlier, pool, block)[keep * 512..]);
        }
        format!(", from byte {} on", keep * 512)
    }

    /// Where in a block damage matters.
    fn range(&self, target: Target, data: &[u8]) -> (usize, usize) {
        match target {
            Target::Marker => (MARKER, MARKER + 64),
            Target::Superblock => (0, MARKER),
            _ => (0, data.len()),
        }
    }

    /// What was in the block earlier, or another block of its kind; behind the end, any block, as a transaction's that
    /// would come next.
    fn stale(
        &self,
        target: Target,
        block: u32,
        contents: &Contents,
        pool: &Pool,
        dice: &mut Dice,
    ) -> (Vec<u8>, String) {
        let earlier = self.log.read(self.earlier, pool, block);
        if target == Target::Behind {
            let (other, _) = dice.one(&self.found.blocks);
            let mut data = self.log.read(contents, pool, other);
            let mut detail = format!("log block {other} in log block {block}");
            if self.log.kind(&data).is_some() && dice.below(2) == 0 {
                put_word(
                    &mut data,
                    8,
                    self.found.next.wrapping_add(dice.below(2) as u32),
                );
                self.log.seal(&mut data);
                detail += ", with the id of a transaction to come";
            }
            return (data, detail);
        }
        if target == Target::Superblock || dice.below(2) == 0 {
            return (earlier, format!("log block {block} as it was earlier"));
        }
        let other = dice.one(&self.blocks(target));
        let data = self.log.read(contents, pool, other);
        (data, format!("log block {other} in log block {block}"))
    }

    /// Another word, and the right checksum.
    fn forge(&self, target: Target, data: &mut [u8], dice: &mut Dice) -> String {
        if target == Target::Behind {
            // A block of the log that has no beginning and no end.
            data.fill(0);
            put_word(data, 0, crate::log::MAGIC);
            put_word(data, 4, dice.one(&[1, 2, 5]));
            put_word(data, 8, self.found.next);
            for at in (12..76).step_by(4) {
                put_word(data, at, dice.below(1 << 13) as u32);
            }
            self.log.seal(data);
            return ", a block of the transaction to come".into();
        }
        let (first, last) = match target {
            Target::Marker => (MARKER, MARKER + 40),
            Target::Superblock => (0, MARKER),
            _ => (0, self.log.used(data)),
        };
        let mut detail = String::new();
        for _ in 0..1 + dice.below(2) {
            // The header and the fields behind it more often than one of hundreds of records.
            let last = if dice.below(3) == 0 {
                last
            } else {
                last.min(first + 64)
            };
            let at = first + 4 * dice.below((last - first) / 4);
            let old = word(data, at);
            let other = first + 4 * dice.below((last - first) / 4);
            let new = match dice.below(9) {
                0 => 0,
                1 => 1,
                2 => u32::MAX,
                3 => dice.0.next_u64() as u32,
                4 => old.wrapping_add(1),
                5 => old.wrapping_sub(1),
                6 => old ^ 1 << dice.below(32),
                7 => dice.below(self.log.blocks as usize) as u32,
                _ => word(data, other),
            };
            put_word(data, at, new);
            detail += &format!(", {old:#x} at byte {at} is {new:#x}");
        }
        self.log.seal(data);
        detail
    }
}

/// The ways in which something is damaged; what is named more often happens more often.
fn ways(target: Target) -> &'static [Way] {
    match target {
        Target::Marker => &[Way::Flipped, Way::Zeroed, Way::Forged, Way::Forged],
        Target::Superblock => &[
            Way::Flipped,
            Way::Zeroed,
            Way::Torn,
            Way::Stale,
            Way::Forged,
            Way::Forged,
        ],
        Target::Copy => &[
            Way::Flipped,
            Way::Zeroed,
            Way::Torn,
            Way::Exchanged,
            Way::Stale,
            Way::Run,
        ],
        Target::Behind => &[Way::Stale, Way::Forged],
        // Forged ones get past the checksum, to where most can go wrong.
        _ => &[
            Way::Flipped,
            Way::Zeroed,
            Way::Torn,
            Way::Exchanged,
            Way::Stale,
            Way::Run,
            Way::Forged,
            Way::Forged,
            Way::Forged,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::example;
    use std::collections::BTreeSet;

    #[test]
    fn every_target_is_damaged_in_every_way_and_nothing_else_is() {
        let (log, mut pool, contents) = example();
        let found = log.walk(&contents, &pool);
        let healthy = Healthy {
            log: &log,
            found: &found,
            contents: &contents,
            earlier: &Contents::new(),
        };
        let mut seen = BTreeSet::new();
        for number in 0..3000 {
            let (after, done) = healthy.damaged(&mut pool, 1, number);
            assert!((1..=4).contains(&done.len()));
            let commit = |contents| log.read(contents, &pool, 3);
            assert_eq!(
                healthy.ends_earlier(&after, &pool),
                commit(&after) != commit(&contents)
            );
            seen.extend(done.iter().map(|each| (each.target, each.way)));
            assert_eq!(
                healthy.damaged(&mut pool, 1, number),
                (after.clone(), done.clone())
            );
            // The log is in the blocks 2 to 9 and 13 to 20 of the disk.
            let inside = |block: &u32| (2..10).contains(block) || (13..21).contains(block);
            assert!(after.keys().chain(contents.keys()).all(inside));
            for each in done
                .iter()
                .filter(|each| each.way == Way::Forged && done.len() == 1)
            {
                let block = each
                    .detail
                    .split([' ', ','])
                    .nth(2)
                    .unwrap()
                    .parse()
                    .unwrap();
                let data = log.read(&after, &pool, block);
                assert!(log.kind(&data).is_none() || log.is_whole(&data), "{each:?}");
            }
        }
        assert_eq!(
            seen.iter()
                .map(|(target, _)| target)
                .collect::<BTreeSet<_>>()
                .len(),
            TARGETS.len()
        );
        assert_eq!(
            seen.iter()
                .map(|(_, way)| way)
                .collect::<BTreeSet<_>>()
                .len(),
            7,
            "every way"
        );
    }
}
