// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Faults, as a plan: what goes wrong where, how often, and what a power cut leaves. All of it is off without a plan.
//!
//! People write plans as TOML (docs/reference/faults.md); the host tool turns that into this form. Whether a fault happens is
//! decided by the run's seed, the rule's place in the plan and how many requests the rule has met: the same run meets
//! the same faults, and a rule more does not change what the others do.
//!
//! INV-F1: a read never returns anything but the newest data. Where the newest data are gone it is an error, until the
//! block is written as a whole.
//! INV-F2: what was flushed, and what was written with FUA, is on the medium, unless the plan says that the drive lies,
//! or the flush ended with an error.

use crate::mechanics::arm::splitmix;
use crate::request::{Op, Outcome, Request};
use crate::trace::Where;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use zoned::{Block, BlockRange, ZoneId, ZoneState};

/// First bytes of a plan in its binary form.
pub const MAGIC: &[u8; 8] = b"SHGLFLT1";
/// A probability of 1: they are counted in units of 2⁻³².
pub const ALWAYS_Q32: u64 = 1 << 32;
/// The whole drive, of whatever size.
pub const EVERYWHERE: BlockRange = BlockRange {
    start: Block(0),
    end: Block(u64::MAX),
};

/// Requests that a rule is about, a bit each.
pub const READS: u8 = 1;
/// Writes, and writes of zeros.
pub const WRITES: u8 = 2;
/// Flushes. They have no place: the rule's range does not matter to them.
pub const FLUSHES: u8 = 4;

/// Everything that goes wrong in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// Blocks that cannot be read until they are written as a whole.
    pub unreadable: Vec<Unreadable>,
    /// What happens to single requests.
    pub rules: Vec<Rule>,
    /// What a power cut leaves of what was on its way to the medium.
    pub torn: Torn,
    /// A power cut finds that a random part of what was only in the volatile buffer did reach the medium, in no order.
    pub reorder: bool,
    /// FLUSH is acknowledged at once, and nothing is written for it.
    pub flush_lies: bool,
    /// A FUA write is treated like any other.
    pub fua_lies: bool,
    /// Zones that the drive gives up.
    pub zones: Vec<ZoneFault>,
}

/// Blocks that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Which.
    pub range: BlockRange,
    /// How long the drive tries.
    pub retry_ns: u64,
}

/// When a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// Requests that touch these blocks.
    pub range: BlockRange,
    /// The first so many of them are spared.
    pub after: u64,
    /// The share of the others, in units of 2⁻³².
    pub probability_q32: u64,
    /// It strikes at most so many times.
    pub times: u64,
}

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// When.
    pub trigger: Trigger,
    /// What.
    pub effect: Effect,
}

/// What a rule does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// A read that needs the medium fails after the arm has tried for so long; the blocks stay readable.
    FailRead {
        /// How long it tries.
        retry_ns: u64,
    },
    /// A write is refused; nothing was changed.
    FailWrite,
    /// Blocks do not get from the buffer to the medium. Their writes may have been acknowledged: the next FLUSH, and
    /// every FUA write of such a block, ends with the error, and the blocks cannot be read until they are written again.
    FailDestage,
    /// It takes longer.
    Slow {
        /// Which requests.
        ops: u8,
        /// By how much.
        extra_ns: u64,
    },
    /// Nothing happens for so long, then it is aborted. It was not executed.
    Timeout {
        /// Which requests.
        ops: u8,
        /// For how long.
        ns: u64,
    },
}

/// What a power cut leaves of a transfer that was under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Torn {
    /// Nothing.
    #[default]
    Nothing,
    /// The first so many blocks, in the order of the transfer.
    Prefix,
    /// Any of its blocks. Of an entry of a persistent cache's log, one part without a gap.
    Subset,
}

/// A zone that the drive gives up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneFault {
    /// Which.
    pub zone: ZoneId,
    /// `ReadOnly` or `Offline`.
    pub state: ZoneState,
    /// Not before this time on the drive's clock.
    pub at_ns: u64,
}

impl FaultPlan {
    /// As the machine gets it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let plan = postcard::to_allocvec(self).expect("a plan is made of numbers and lists");
        bytes.extend_from_slice(&plan);
        bytes
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let plan = bytes
            .strip_prefix(MAGIC)
            .ok_or("not a fault plan: it does not begin with SHGLFLT1")?;
        postcard::from_bytes(plan).map_err(|why| format!("the fault plan is damaged: {why}"))
    }
}

fn bit(op: Op) -> u8 {
    match op {
        Op::Read => READS,
        Op::Write | Op::WriteZeroes => WRITES,
        Op::Flush => FLUSHES,
        _ => 0,
    }
}

/// Disjoint ranges of blocks, by their first block.
#[derive(Default)]
struct Ranges(BTreeMap<Block, Block>);

impl Ranges {
    fn first_overlapping(&self, range: BlockRange) -> Option<BlockRange> {
        let (start, end) = self.0.range(..range.end).next_back()?;
        let found = BlockRange::new(*start, *end);
        found.overlaps(range).then_some(found)
    }

    fn remove(&mut self, range: BlockRange) {
        while let Some(found) = self.first_overlapping(range) {
            self.0.remove(&found.start);
            for (start, end) in [(found.start, range.start), (range.end, found.end)] {
                if start < end {
                    self.0.insert(start, end);
                }
            }
        }
    }

    fn add(&mut self, range: BlockRange) {
        self.remove(range);
        if !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }
}

/// How often a rule was met, and how often it struck.
#[derive(Clone, Copy, Default)]
struct Use {
    met: u64,
    struck: u64,
}

/// A plan at work.
pub struct Faults {
    plan: FaultPlan,
    seed: u64,
    uses: Vec<Use>,
    bad: Ranges,
    /// Unreadable blocks of which a part is being written: that does not make them readable.
    patched: BTreeSet<Block>,
    /// Blocks were lost after they had been acknowledged, and no flush has said so yet.
    deferred: bool,
    draws: u64,
    /// Faults so far.
    pub count: u64,
}

impl Faults {
    /// The plan in a run with this seed.
    pub fn new(plan: FaultPlan, seed: u64) -> Self {
        let mut bad = Ranges::default();
        plan.unreadable.iter().for_each(|u| bad.add(u.range));
        Faults {
            uses: vec![Use::default(); plan.rules.len()],
            seed: splitmix(seed ^ 0x5bd1_e995_fa01_7000),
            bad,
            patched: BTreeSet::new(),
            deferred: false,
            draws: 0,
            count: 0,
            plan,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Whether the rule strikes a request for `range`.
    fn strikes(&mut self, rule: usize, range: BlockRange, placeless: bool) -> bool {
        let trigger = self.plan.rules[rule].trigger;
        if !placeless && !trigger.range.overlaps(range) {
            return false;
        }
        let used = &mut self.uses[rule];
        used.met += 1;
        if used.met <= trigger.after || used.struck >= trigger.times {
            return false;
        }
        let number = splitmix(self.seed ^ splitmix(((rule as u64) << 40) | used.met));
        let strikes = number >> 32 < trigger.probability_q32;
        used.struck += u64::from(strikes);
        self.count += u64::from(strikes);
        strikes
    }

    /// What happens to a request as it arrives: by how much it is delayed, and when and how it fails, if it does.
    pub fn arrives(&mut self, request: &Request) -> (u64, Option<(u64, Outcome)>) {
        let (range, op) = (request.blocks(), bit(request.op));
        let placeless = request.op == Op::Flush;
        let (mut extra_ns, mut failure) = (0, None);
        for i in 0..self.plan.rules.len() {
            let effect = self.plan.rules[i].effect;
            let concerned = match effect {
                Effect::Slow { ops, .. } | Effect::Timeout { ops, .. } => ops & op != 0,
                Effect::FailWrite => op == WRITES,
                Effect::FailRead { .. } | Effect::FailDestage => false,
            };
            if !concerned || !self.strikes(i, range, placeless) {
                continue;
            }
            match effect {
                Effect::Slow { extra_ns: ns, .. } => extra_ns += ns,
                Effect::Timeout { ns, .. } => failure = failure.or(Some((ns, Outcome::Aborted))),
                _ => failure = failure.or(Some((0, Outcome::WriteFailed))),
            }
        }
        (extra_ns, failure)
    }

    /// How a read ends that the medium was asked for, and how much longer the arm needs for it.
    pub fn reads(&mut self, range: BlockRange) -> (u64, Outcome) {
        if self.is_bad(range) {
            self.count += 1;
            return (self.retry_ns(range), Outcome::ReadFailed);
        }
        for i in 0..self.plan.rules.len() {
            if let Effect::FailRead { retry_ns } = self.plan.rules[i].effect {
                if self.strikes(i, range, false) {
                    return (retry_ns, Outcome::ReadFailed);
                }
            }
        }
        (0, Outcome::Done)
    }

    fn retry_ns(&self, range: BlockRange) -> u64 {
        let tried = self.plan.unreadable.iter();
        let tried = tried
            .filter(|u| u.range.overlaps(range))
            .map(|u| u.retry_ns);
        tried.max().unwrap_or(0)
    }

    /// Whether a block of `range` cannot be read from the medium.
    pub fn is_bad(&self, range: BlockRange) -> bool {
        self.bad.first_overlapping(range).is_some()
    }

    /// Whether the buffer's copy of a block of `range` has parts that could not be read.
    pub fn is_patched(&self, range: BlockRange) -> bool {
        self.patched.range(range.start..range.end).next().is_some()
    }

    /// A write is in the buffer: which unreadable blocks it does not cover as a whole. `held`: whether a block was there
    /// before.
    pub fn stored(&mut self, request: &Request, held: impl Fn(Block) -> bool) {
        let (touched, whole) = (request.blocks(), request.whole_blocks());
        let covered: Vec<Block> = self
            .patched
            .range(whole.start..whole.end.max(whole.start))
            .copied()
            .collect();
        covered.iter().for_each(|block| {
            self.patched.remove(block);
        });
        for block in [touched.start, Block(touched.end.0.max(1) - 1)] {
            let one = BlockRange::new(block, block + 1);
            if !whole.contains(one) && self.is_bad(one) && !held(block) {
                self.patched.insert(block);
            }
        }
    }

    /// Blocks that `range` covers are on the medium now: they can be read, unless only a part of them was written.
    pub fn heals(&mut self, range: BlockRange) {
        if !self.is_bad(range) {
            return;
        }
        let kept: Vec<Block> = self
            .patched
            .range(range.start..range.end)
            .copied()
            .collect();
        self.bad.remove(range);
        for block in kept {
            self.bad.add(BlockRange::new(block, block + 1));
        }
    }

    /// Blocks came to the medium; some may not have got there.
    pub fn lands(&mut self, range: BlockRange) {
        self.heals(range);
        for i in 0..self.plan.rules.len() {
            let Rule { trigger, effect } = self.plan.rules[i];
            if effect == Effect::FailDestage && self.strikes(i, range, false) {
                self.bad.add(range.intersection(trigger.range));
                self.deferred = true;
            }
        }
    }

    /// How a flush ends: with an error if acknowledged data were lost since the last one.
    pub fn flushes(&mut self) -> Outcome {
        match core::mem::take(&mut self.deferred) {
            true => Outcome::WriteFailed,
            false => Outcome::Done,
        }
    }

    fn draw(&mut self) -> u64 {
        self.draws += 1;
        splitmix(self.seed ^ splitmix(!self.draws))
    }

    /// A power cut at `now_ns`: what follows is drawn anew.
    pub fn cut(&mut self, now_ns: u64) {
        self.seed = splitmix(self.seed ^ now_ns);
    }

    /// The power cut is over: the buffer is empty.
    pub fn buffer_is_lost(&mut self) {
        self.patched.clear();
    }

    /// What is on the medium of a transfer of `ranges` that a power cut stopped; a prefix, if it counts only `in_order`.
    pub fn torn(&mut self, ranges: &[BlockRange], place: Where, in_order: bool) -> Vec<BlockRange> {
        match self.plan.torn {
            Torn::Nothing => Vec::new(),
            torn if torn == Torn::Prefix || in_order => {
                let all: u64 = ranges.iter().map(|r| r.blocks()).sum();
                let mut left = self.draw() % (all + 1);
                let mut kept = Vec::new();
                for range in ranges {
                    let blocks = range.blocks().min(left);
                    left -= blocks;
                    kept.push(BlockRange::new(range.start, range.start + blocks));
                }
                kept.retain(|r| !r.is_empty());
                kept
            }
            Torn::Subset if place == Where::PersistentCache => {
                // One part of each entry: more entries than were planned might not have room in the log.
                let mut kept: Vec<_> = ranges.iter().map(|r| self.part(*r)).collect();
                kept.retain(|r| !r.is_empty());
                kept
            }
            _ => {
                let mut kept: Vec<BlockRange> = Vec::new();
                for block in ranges.iter().flat_map(|r| r.start.0..r.end.0).map(Block) {
                    if self.draw() & 1 == 0 {
                        continue;
                    }
                    match kept.last_mut().filter(|last| last.end == block) {
                        Some(last) => last.end = block + 1,
                        None => kept.push(BlockRange::new(block, block + 1)),
                    }
                }
                kept
            }
        }
    }

    /// Nothing, all, or a part of `range`.
    fn part(&mut self, range: BlockRange) -> BlockRange {
        let (a, b) = (self.draw(), self.draw());
        match self.draw() % 3 {
            0 => BlockRange::new(range.start, range.start),
            1 => range,
            _ => {
                let (a, b) = (a % (range.blocks() + 1), b % (range.blocks() + 1));
                BlockRange::new(range.start + a.min(b), range.start + a.max(b))
            }
        }
    }

    /// What a power cut finds on the medium of a piece of the volatile buffer.
    pub fn survives(&mut self, piece: BlockRange) -> BlockRange {
        if self.plan.reorder {
            self.part(piece)
        } else {
            BlockRange::new(piece.start, piece.start)
        }
    }

    /// A zone that is given up by `now_ns`, once each.
    pub fn zone_due(&mut self, now_ns: u64) -> Option<ZoneFault> {
        let due = self.plan.zones.iter().position(|z| z.at_ns <= now_ns)?;
        self.count += 1;
        Some(self.plan.zones.remove(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoned::Lba;

    fn range(start: u64, end: u64) -> BlockRange {
        BlockRange::new(Block(start), Block(end))
    }

    fn rule(effect: Effect, probability_q32: u64, after: u64, times: u64) -> Rule {
        let trigger = Trigger {
            range: EVERYWHERE,
            after,
            probability_q32,
            times,
        };
        Rule { trigger, effect }
    }

    fn faults(rules: Vec<Rule>) -> Faults {
        let plan = FaultPlan {
            rules,
            ..FaultPlan::default()
        };
        Faults::new(plan, 7)
    }

    #[test]
    fn a_rule_spares_the_first_and_strikes_so_many_times() {
        let mut faults = faults(vec![rule(
            Effect::FailRead { retry_ns: 5 },
            ALWAYS_Q32,
            2,
            3,
        )]);
        let failed: Vec<bool> = (0..8)
            .map(|_| faults.reads(range(0, 1)) == (5, Outcome::ReadFailed))
            .collect();
        assert_eq!(
            failed,
            [false, false, true, true, true, false, false, false]
        );
    }

    #[test]
    fn a_rule_more_does_not_change_what_the_others_do() {
        let half = rule(
            Effect::FailRead { retry_ns: 0 },
            ALWAYS_Q32 / 2,
            0,
            u64::MAX,
        );
        let slow = Effect::Slow {
            ops: READS,
            extra_ns: 9,
        };
        let mut one = faults(vec![half]);
        let mut two = faults(vec![half, rule(slow, ALWAYS_Q32 / 3, 0, u64::MAX)]);
        let request = Request {
            tag: 1,
            op: Op::Read,
            flags: 0,
            lba: Lba(0),
            sectors: 8,
        };
        let mut failed = 0;
        for _ in 0..1000 {
            two.arrives(&request);
            let outcome = one.reads(range(0, 1));
            assert_eq!(outcome, two.reads(range(0, 1)));
            failed += u32::from(outcome.1 != Outcome::Done);
        }
        assert!((400..600).contains(&failed), "{failed}");
    }

    #[test]
    fn only_a_write_of_the_whole_block_makes_it_readable() {
        let mut faults = Faults::new(
            FaultPlan {
                unreadable: vec![Unreadable {
                    range: range(10, 20),
                    retry_ns: 7,
                }],
                ..FaultPlan::default()
            },
            1,
        );
        let write = |sector, sectors| Request {
            tag: 1,
            op: Op::Write,
            flags: 0,
            lba: Lba(sector),
            sectors,
        };
        // The last half of block 11, blocks 12 and 13, the first half of 14.
        faults.stored(&write(11 * 8 + 4, 4 + 16 + 4), |_| false);
        faults.lands(range(11, 15));
        let bad: Vec<u64> = (0..30)
            .filter(|b| faults.is_bad(range(*b, b + 1)))
            .collect();
        assert_eq!(bad, [10, 11, 14, 15, 16, 17, 18, 19]);
        assert_eq!(faults.reads(range(5, 11)), (7, Outcome::ReadFailed));
        faults.stored(&write(11 * 8, 8), |_| false);
        faults.lands(range(11, 12));
        assert!(!faults.is_bad(range(11, 14)));
    }

    #[test]
    fn what_is_torn_is_a_part_of_what_was_under_way() {
        for torn in [Torn::Nothing, Torn::Prefix, Torn::Subset] {
            let plan = FaultPlan {
                torn,
                ..FaultPlan::default()
            };
            let mut faults = Faults::new(plan, 3);
            let mut most = 0;
            for cut in 0..200 {
                faults.cut(cut);
                let ranges = [range(100, 140), range(10, 50)];
                for place in [Where::InPlace, Where::PersistentCache] {
                    let kept = faults.torn(&ranges, place, false);
                    assert!(kept.iter().all(|k| ranges.iter().any(|r| r.contains(*k))));
                    assert!(place == Where::InPlace || kept.len() <= 2);
                    most = most.max(kept.iter().map(|k| k.blocks()).sum());
                }
                let kept = faults.torn(&ranges, Where::InPlace, true);
                let starts = [100, 10].map(Block);
                assert!(kept.iter().zip(starts).all(|(k, start)| k.start == start));
                assert!(kept.len() < 2 || kept[0] == ranges[0]);
            }
            assert_eq!(most > 0, torn != Torn::Nothing);
        }
    }

    #[test]
    fn a_plan_reads_back_and_damage_is_refused() {
        let plan = FaultPlan {
            rules: vec![rule(Effect::FailWrite, 5, 6, 7)],
            flush_lies: true,
            ..FaultPlan::default()
        };
        let bytes = plan.to_bytes();
        assert_eq!(FaultPlan::from_bytes(&bytes), Ok(plan));
        assert!(FaultPlan::from_bytes(&bytes[..bytes.len() - 2]).is_err());
        assert!(FaultPlan::from_bytes(&bytes[1..])
            .unwrap_err()
            .contains("SHGLFLT1"));
    }
}
