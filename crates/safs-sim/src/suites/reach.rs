// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run reached: a suite that never got to what it is about fails.

use super::config::Load;
use super::sim::{Action, Piece};
use safs::Counters;
use serde::{Deserialize, Serialize};

/// Counts; all of them only grow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    pub stories: u64,
    pub steps: u64,
    /// Cuts whose state was looked at, and how many of these cut a recovery.
    pub states: u64,
    pub nested: u64,
    /// What was made durable before the cut: files and whole file systems that had to be there.
    pub promises: u64,
    pub bytes_compared: u64,
    pub root_records: u64,
    pub segments: u64,
    pub resets: u64,
    /// Zones that compaction emptied while somebody asked for something else.
    pub compactions: u64,
    /// Nodes by which the catalog grew beyond its first.
    pub node_splits: u64,
    /// The log went on in a zone with a lower number.
    pub log_wraps: u64,
    /// Heads and files that retentions gave up.
    pub ring_turns: u64,
    /// A full disk refused, and was right.
    pub refusals: u64,
    /// Extents of the file that has most.
    pub extents_max: u64,
    /// Blocks of the largest segment.
    pub segment_blocks_max: u64,
    /// Bytes in use at most.
    pub bytes_max: u64,
    /// Open files without a name.
    pub unnamed: u64,
    /// Writes with O_SYNC.
    pub sync_writes: u64,
    pub clock_sets: u64,
    pub exchanges: u64,
    /// Commands that failed.
    pub failed_commands: u64,
    #[serde(skip)]
    nodes: u64,
    #[serde(skip)]
    log_zone: u32,
}

impl Reach {
    /// Adds what another counted.
    pub fn add(&mut self, other: &Reach) {
        let maxima = [
            (&mut self.extents_max, other.extents_max),
            (&mut self.segment_blocks_max, other.segment_blocks_max),
            (&mut self.bytes_max, other.bytes_max),
        ];
        maxima
            .into_iter()
            .for_each(|(mine, theirs)| *mine = theirs.max(*mine));
        let sums = [
            (&mut self.stories, other.stories),
            (&mut self.steps, other.steps),
            (&mut self.states, other.states),
            (&mut self.nested, other.nested),
            (&mut self.promises, other.promises),
            (&mut self.bytes_compared, other.bytes_compared),
            (&mut self.root_records, other.root_records),
            (&mut self.segments, other.segments),
            (&mut self.resets, other.resets),
            (&mut self.compactions, other.compactions),
            (&mut self.node_splits, other.node_splits),
            (&mut self.log_wraps, other.log_wraps),
            (&mut self.ring_turns, other.ring_turns),
            (&mut self.refusals, other.refusals),
            (&mut self.unnamed, other.unnamed),
            (&mut self.sync_writes, other.sync_writes),
            (&mut self.clock_sets, other.clock_sets),
            (&mut self.exchanges, other.exchanges),
            (&mut self.failed_commands, other.failed_commands),
        ];
        sums.into_iter().for_each(|(mine, theirs)| *mine += theirs);
    }

    /// What a mount did.
    pub fn take(&mut self, counters: &Counters) {
        self.root_records += counters.roots;
        self.segments += counters.segments;
        self.resets += counters.resets;
    }

    pub fn see_nodes(&mut self, nodes: u64) {
        self.node_splits += nodes.saturating_sub(self.nodes.max(1));
        self.nodes = nodes;
    }

    /// Reads a record for what only the medium tells.
    pub fn see_actions(&mut self, actions: &[Action], zone_blocks: u32) {
        for action in actions {
            let Action::Write(at, pieces) = action else {
                continue;
            };
            let Piece::Bytes(first) = &pieces[0] else {
                continue;
            };
            if !first.1.starts_with(b"SAFSSG") {
                continue;
            }
            self.segment_blocks_max = self.segment_blocks_max.max(pieces.len() as u64);
            let is_log = first.1[14] & 1 != 0;
            let zone = (at / u64::from(zone_blocks)) as u32;
            if is_log {
                self.log_wraps += u64::from(zone < self.log_zone);
                self.log_zone = zone;
            }
        }
    }
}

/// What a load is about, and how much of it there has to be in a run at least.
pub fn wanted(load: Load) -> Vec<(&'static str, u64)> {
    let mut wanted = vec![("root_records", 1), ("segments", 1), ("sync_writes", 1)];
    if load != Load::Giga {
        wanted.push(("resets", 1));
    }
    wanted.extend(match load {
        Load::Mixed => vec![
            ("unnamed", 1),
            ("exchanges", 1),
            ("clock_sets", 1),
            ("node_splits", 1),
        ],
        Load::Full => vec![
            ("compactions", 1),
            ("refusals", 1),
            ("log_wraps", 1),
            ("node_splits", 1),
        ],
        Load::Extents => vec![("extents_max", 257)],
        Load::Rings => vec![("ring_turns", 1)],
        Load::Errors => vec![("failed_commands", 1)],
        Load::Large => vec![("segment_blocks_max", 900), ("bytes_max", 64 << 20)],
        Load::Giga => vec![("segment_blocks_max", 4000), ("bytes_max", 1 << 30)],
    });
    wanted
}
