// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mount can choose.

/// Where data go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Everything to the log, as in the slides; compaction moves it to its file.
    Log,
    /// What proves to be a large stream goes straight to zones of its own.
    Auto,
}

/// See the fields.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where data go first.
    pub placement: Placement,
    /// Nothing is written.
    pub read_only: bool,
    /// What was durable and is lost is not insisted upon: for repairs.
    pub repair: bool,
    /// Blocks of the largest segment.
    pub segment_blocks: u32,
    /// A file is a stream after so many bytes without an fsync.
    pub stream_after_bytes: u64,
    /// A stream is written in pieces of this size.
    pub turn_bytes: u64,
    /// Streams at a time.
    pub streams_max: usize,
    /// Data that wait in memory to be written, all files together.
    pub buffer_bytes: u64,
    /// Data of a file that wait for the gap before them to be filled.
    pub gap_bytes: u64,
    /// Changes since the root record that are kept in memory.
    pub overlay_bytes: usize,
    /// Nodes of the catalog that are kept in memory.
    pub node_cache_bytes: usize,
    /// Part of them: leaves with changes since the root record. With more, there is a new one.
    pub changing_bytes: usize,
    /// Checksums of segments that are kept in memory.
    pub header_cache_bytes: usize,
    /// What is read ahead at a time of a file that is read in order.
    pub read_ahead_bytes: usize,
    /// The same for all readers together.
    pub read_ahead_total_bytes: usize,
    /// Data that compaction has in memory.
    pub compaction_bytes: u64,
    /// Estimated time that reading the log may take after a crash: then there is a new root record.
    pub recovery_budget_ns: u64,
    /// Data are written at the latest so long after they were accepted.
    pub dirty_max_ns: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            placement: Placement::Auto,
            read_only: false,
            repair: false,
            segment_blocks: crate::format::SEGMENT_BLOCKS_MAX,
            stream_after_bytes: 64 << 20,
            turn_bytes: 64 << 20,
            streams_max: 4,
            buffer_bytes: 320 << 20,
            gap_bytes: 16 << 20,
            overlay_bytes: 8 << 20,
            node_cache_bytes: 32 << 20,
            changing_bytes: 16 << 20,
            header_cache_bytes: 16 << 20,
            read_ahead_bytes: 32 << 20,
            read_ahead_total_bytes: 128 << 20,
            compaction_bytes: 128 << 20,
            recovery_budget_ns: 450_000_000,
            dirty_max_ns: 5_000_000_000,
        }
    }
}

impl Options {
    /// The same on a host with so much memory: what waits to be written takes at most a quarter of it, what was read
    /// ahead and what compaction holds an eighth each.
    #[must_use]
    pub fn within(self, memory_bytes: u64) -> Self {
        let buffer_bytes = self.buffer_bytes.min(memory_bytes / 4);
        // Each stream has a turn's bytes, and what is no stream yet has as much.
        let turn_bytes = self.turn_bytes.min(buffer_bytes / 5);
        let eighth = memory_bytes / 8;
        let read_ahead_total = (self.read_ahead_total_bytes as u64).min(eighth);
        Options {
            buffer_bytes,
            turn_bytes,
            stream_after_bytes: self.stream_after_bytes.min(turn_bytes),
            gap_bytes: self.gap_bytes.min(buffer_bytes / 8),
            read_ahead_bytes: (self.read_ahead_bytes as u64).min(read_ahead_total / 4) as usize,
            read_ahead_total_bytes: read_ahead_total as usize,
            compaction_bytes: self.compaction_bytes.min(eighth),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn a_large_host_changes_nothing_and_a_small_one_keeps_half_of_its_memory() {
        let usual = Options::default();
        let large = usual.clone().within(2 << 30);
        assert_eq!(format!("{large:?}"), format!("{usual:?}"));
        let memory = 256 << 20;
        let small = usual.within(memory);
        let most =
            small.buffer_bytes + small.read_ahead_total_bytes as u64 + small.compaction_bytes;
        assert!(most <= memory / 2, "{most} bytes");
        assert!(small.turn_bytes > 0 && small.turn_bytes * 5 <= small.buffer_bytes);
    }
}
