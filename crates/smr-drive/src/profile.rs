// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What makes one drive model differ from another, in integers: nanoseconds, 4 KiB blocks, tracks.
//!
//! People write profiles as TOML with a source for every value (`drives/*.toml`); the host tool turns that into this
//! form, because neither files nor floating-point functions exist where the drive runs.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A drive model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Short name, as in `drives/<name>.toml`.
    pub name: String,
    /// What the label says.
    pub model: String,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Unit of host addresses (512, or 4096 for 4Kn).
    pub logical_block_bytes: u32,
    /// Unit of writing that needs no read-modify-write.
    pub physical_block_bytes: u32,
    /// The platters and the arm.
    pub mechanics: Mechanics,
    /// The cable and the command processor.
    pub interface: Interface,
    /// The DRAM buffer.
    pub buffer: Buffer,
    /// How logical addresses become physical ones.
    pub translation: Translation,
}

/// The platters and the arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mechanics {
    /// One revolution.
    pub revolution_ns: u64,
    /// Recording surfaces.
    pub heads: u32,
    /// Tracks that lie side by side on one surface before the address space goes on at the next: 1 is the classic
    /// layout by cylinder, thousands the serpentine one of large drives.
    pub serpentine_tracks: u32,
    /// From the outer to the inner diameter.
    pub zones: Vec<RecordingZone>,
    /// Seek times.
    pub seek: Seek,
    /// Other head, same cylinder.
    pub head_switch_ns: u64,
    /// Added to each seek before a write: the arm must be steadier.
    pub write_settle_ns: u64,
    /// Blocks of one read-ahead segment.
    pub segment_blocks: u32,
    /// Number of segments.
    pub segments: u32,
}

/// Tracks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingZone {
    /// Blocks of a track.
    pub track_blocks: u32,
    /// Tracks per surface.
    pub cylinders: u32,
}

/// Seek time over `x`, the distance as a fraction of the full stroke: `a + b·√x` below the knee, `c + d·x` above it
/// (Ruemmler and Wilkes, IEEE Computer, March 1994).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seek {
    /// To the neighbouring cylinder.
    pub track_to_track_ns: u64,
    /// See above.
    pub a_ns: u64,
    /// See above.
    pub b_ns: u64,
    /// See above.
    pub c_ns: u64,
    /// See above.
    pub d_ns: u64,
    /// Where the second form begins, as `x · 2³²`.
    pub knee_q32: u64,
}

/// The cable and the command processor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// From a command's arrival to its completion when no medium is needed, without the data's transfer.
    pub command_ns: u64,
    /// Least distance of two commands: what bounds the rate of a full queue.
    pub command_gap_ns: u64,
    /// Transfer of 4 KiB over the cable.
    pub block_ns: u64,
    /// Commands the drive accepts at a time.
    pub queue_depth: u32,
    /// Largest request.
    pub max_request_sectors: u32,
}

/// The DRAM buffer: writes are acknowledged from it, unless the write cache is off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Whether a write is acknowledged when it is in the buffer, and not only when it is on the medium.
    pub write_cache: bool,
    /// Whether a write may pass an earlier one for which there is no place in the translation layer.
    pub writes_pass: bool,
    /// Blocks it may hold that are not yet on the medium.
    pub dirty_blocks_max: u64,
    /// Separate pieces these may form.
    pub dirty_extents_max: u32,
    /// How long data wait for neighbours while nothing presses.
    pub hold_ns: u64,
    /// Blocks of one destage: what cannot be interrupted.
    pub destage_blocks_max: u64,
    /// Pieces among which the elevator chooses the nearest.
    pub elevator_window: u32,
}

/// How logical addresses become physical ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Translation {
    /// In place.
    Conventional,
    /// Bands at fixed places, and a persistent cache.
    StaticMapping(StaticMapping),
    /// Zones that the host must write in order.
    HostManaged(Zones),
    /// Zones that the host had better write in order, and a media cache.
    HostAware(HostAware),
    /// Zones that the host does not see and the firmware enforces.
    Enforcing(Enforcing),
    /// S-blocks that move, and an exception buffer for each section of the drive.
    SBlocks(SBlocks),
}

/// A disk without zone commands whose firmware enforces that its zones are written in order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enforcing {
    /// The zones.
    pub zones: Zones,
    /// A violation is refused, and not only counted.
    pub reject: bool,
    /// Writing the start of a used zone empties it.
    pub implicit_reset: bool,
    /// Of the time that the arm takes for a write, what the firmware adds, in thousandths.
    pub overhead_permille: u32,
}

/// A host-aware disk. Its `zones.open_max` is the optimal number of open zones: no write is refused for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAware {
    /// The zones.
    pub zones: Zones,
    /// The media cache. What concerns bands and streams has no meaning here: the bands are parts of the zones.
    pub cache: StaticMapping,
    /// Bands of a zone, all of one size: what is rewritten as a unit.
    pub zone_bands: u32,
    /// Zones with data in the media cache that the disk can follow.
    pub non_sequential_max: u32,
    /// Time to note where a zone ends that is closed because another is opened.
    pub close_ns: u64,
}

/// The zones of a zoned disk. All have one size but the last, which ends where the disk does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Zones {
    /// Blocks of a zone.
    pub zone_blocks: u64,
    /// Blocks of a sequential zone that can be written, from its start; at most `zone_blocks`.
    pub zone_capacity_blocks: u64,
    /// Conventional zones at the beginning of the address space.
    pub conventional_first: u32,
    /// Conventional zones at its end.
    pub conventional_last: u32,
    /// Zones that may be open at a time.
    pub open_max: u32,
    /// Time of a zone command, besides what has to be written first.
    pub command_ns: u64,
    /// Reading behind a write pointer is an error (URSWRZ = 0), and does not give zeros.
    pub read_restricted: bool,
    /// A discard of a whole zone resets it: hypothetical, no disk does that.
    pub discard_resets: bool,
}

/// The idle delay of a drive that does not clean because nobody asks for anything.
pub const NEVER_NS: u64 = u64::MAX;

/// Drive-managed SMR with static mapping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaticMapping {
    /// Tracks of a band; bands are larger where tracks are.
    pub band_tracks: u32,
    /// Blocks of the persistent cache, headers included.
    pub cache_blocks: u64,
    /// Extents that its map can hold.
    pub cache_entries_max: u64,
    /// Least time to append an entry.
    pub entry_ns: u64,
    /// Blocks of one entry, at most.
    pub entry_blocks_max: u64,
    /// Blocks that an entry needs beside its data.
    pub entry_header_blocks: u64,
    /// Entries appended in one go.
    pub append_entries_max: u32,
    /// No host command for so long: band cleaning begins; [`NEVER_NS`]: only when the cache is full.
    pub idle_ns: u64,
    /// Band cleaning can be interrupted so often.
    pub clean_slice_ns: u64,
    /// Time to collect `2^i` scattered pieces when a band is cleaned; between two powers, a straight line.
    pub merge_ns_by_log2: Vec<u64>,
    /// A band is never cleaned for longer than this for each of its blocks.
    pub clean_max_ns_per_block: u64,
    /// A run as long as this is written in place.
    pub stream_min_blocks: u64,
    /// A run that pauses for longer is forgotten.
    pub stream_memory_ns: u64,
    /// Runs that the drive remembers.
    pub stream_runs_max: u32,
    /// What is in the cache is overwritten where it is there. Otherwise the cache is a log.
    pub cache_overwritten: bool,
    /// The cache lies on the platters in front of the band of this block: 0 is the outer edge.
    pub cache_at_block: u64,
}

/// Drive-managed SMR with dynamic mapping (Cassuto et al., MSST'10, and the parameters of Skylight's dm-sblock).
///
/// A section is described, not the number of them: a drive of a smaller capacity has fewer sections of the same size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SBlocks {
    /// Blocks of an s-block: what is rewritten as a unit, anywhere in its section. Below 2^16.
    pub s_block_blocks: u64,
    /// S-blocks of a section that the host sees.
    pub section_s_blocks: u32,
    /// Slots of a section beyond these. At least `stream_runs_max + 2` are made.
    pub section_spare_slots: u32,
    /// Blocks of a section's exception buffer, headers included.
    pub section_ring_blocks: u64,
    /// Extents that a section's map can hold.
    pub section_entries_max: u64,
    /// Least time to append an entry.
    pub entry_ns: u64,
    /// Blocks of one entry, at most.
    pub entry_blocks_max: u64,
    /// Blocks that an entry needs beside its data.
    pub entry_header_blocks: u64,
    /// Entries appended in one go.
    pub append_entries_max: u32,
    /// Share of the arm's time that cleaning takes from writing, over how full the exception buffer is.
    pub share: Share,
    /// No host command for so long: cleaning needs no share; [`NEVER_NS`]: it always does.
    pub idle_ns: u64,
    /// Cleaning can be interrupted so often.
    pub clean_slice_ns: u64,
    /// Time to collect `2^i` scattered pieces when an s-block is cleaned; between two powers, a straight line.
    pub merge_ns_by_log2: Vec<u64>,
    /// A run of so much from an s-block's first block on goes to a fresh slot.
    pub stream_min_blocks: u64,
    /// A run that pauses for longer is forgotten.
    pub stream_memory_ns: u64,
    /// S-blocks that may be half written at a time.
    pub stream_runs_max: u32,
    /// The drive has the discard command.
    pub discard: bool,
    /// What was discarded reads as zeros.
    pub discard_zeros: bool,
}

/// A curve of straight lines from (0, 0) through (`low_water`, `low`) and (`high_water`, `high`) to (1000, 1000), in
/// thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// How full, at the first bend.
    pub low_water: u64,
    /// Share of cleaning there.
    pub low: u64,
    /// How full, at the second bend.
    pub high_water: u64,
    /// Share of cleaning there.
    pub high: u64,
}

impl StaticMapping {
    /// What the cache takes of the platters. One that is overwritten has more than it is filled with: so a run that goes
    /// on, and may turn out to end there, need not wait for room.
    pub fn area_blocks(&self, buffer: &Buffer) -> u64 {
        let spare = match self.cache_overwritten {
            true => buffer.dirty_blocks_max + buffer.destage_blocks_max,
            false => 0,
        };
        self.cache_blocks + spare
    }
}

impl Profile {
    /// Zones that may be open at a time (host-managed), or that are best not exceeded (host-aware).
    pub fn open_zones(&self) -> Option<u32> {
        match &self.translation {
            Translation::HostManaged(zones) => Some(zones.open_max),
            Translation::HostAware(disk) => Some(disk.zones.open_max),
            _ => None,
        }
    }

    /// Sectors that the host sees.
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_bytes / zoned::SECTOR_BYTES
    }

    /// 4 KiB blocks that the host sees; a last part of a block counts as one.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_bytes.div_ceil(zoned::BLOCK_BYTES)
    }
}

/// Small drives with round numbers, for tests.
#[doc(hidden)]
pub mod sample {
    use super::*;
    use alloc::vec;

    /// A conventional drive of `capacity_bytes`.
    pub fn conventional(capacity_bytes: u64) -> Profile {
        Profile {
            name: "sample".into(),
            model: "sample".into(),
            capacity_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            mechanics: Mechanics {
                revolution_ns: 8_333_333,
                heads: 2,
                serpentine_tracks: 1,
                zones: vec![
                    RecordingZone {
                        track_blocks: 160,
                        cylinders: 50_000,
                    },
                    RecordingZone {
                        track_blocks: 80,
                        cylinders: 50_000,
                    },
                ],
                seek: Seek {
                    track_to_track_ns: 2_000_000,
                    a_ns: 1_200_000,
                    b_ns: 12_900_000,
                    c_ns: 3_860_000,
                    d_ns: 15_640_000,
                    knee_q32: (17 << 32) / 100,
                },
                head_switch_ns: 800_000,
                write_settle_ns: 1_000_000,
                segment_blocks: 128,
                segments: 16,
            },
            interface: Interface {
                command_ns: 100_000,
                command_gap_ns: 20_000,
                block_ns: 7_450,
                queue_depth: 31,
                max_request_sectors: 2048,
            },
            buffer: Buffer {
                write_cache: true,
                writes_pass: false,
                dirty_blocks_max: 2048,
                dirty_extents_max: 256,
                hold_ns: 20_000_000,
                destage_blocks_max: 256,
                elevator_window: 8,
            },
            translation: Translation::Conventional,
        }
    }

    /// A host-managed drive of `capacity_bytes` with small zones, the first of them conventional.
    pub fn host_managed(capacity_bytes: u64, zone_blocks: u64) -> Profile {
        let mut profile = conventional(capacity_bytes);
        profile.translation = Translation::HostManaged(Zones {
            zone_blocks,
            zone_capacity_blocks: zone_blocks,
            conventional_first: 1,
            conventional_last: 0,
            open_max: 4,
            command_ns: 10_000_000,
            read_restricted: false,
            discard_resets: false,
        });
        profile
    }

    /// The same zones enforced on a host that does not see them; violations are refused.
    pub fn enforcing(capacity_bytes: u64, zone_blocks: u64) -> Profile {
        let mut profile = host_managed(capacity_bytes, zone_blocks);
        if let Translation::HostManaged(zones) = profile.translation {
            profile.translation = Translation::Enforcing(Enforcing {
                zones,
                reject: true,
                implicit_reset: true,
                overhead_permille: 40,
            });
        }
        profile.buffer.write_cache = false;
        profile
    }

    /// A host-aware drive of `capacity_bytes` with the same zones; its cache holds `cache_blocks` and `entries`.
    pub fn host_aware(
        capacity_bytes: u64,
        zone_blocks: u64,
        cache_blocks: u64,
        entries: u64,
    ) -> Profile {
        let mut profile = shingled(capacity_bytes, cache_blocks, entries);
        let Translation::StaticMapping(mut cache) = profile.translation else {
            unreachable!()
        };
        cache.stream_min_blocks = u64::MAX;
        cache.stream_runs_max = 0;
        let Translation::HostManaged(zones) = host_managed(capacity_bytes, zone_blocks).translation
        else {
            unreachable!()
        };
        profile.translation = Translation::HostAware(HostAware {
            zones,
            cache,
            zone_bands: 1,
            non_sequential_max: 3,
            close_ns: 15_000_000,
        });
        profile
    }

    /// A drive of `capacity_bytes` with s-blocks of 1 MiB, sections of 16 of them, and 200 entries for each section.
    pub fn s_blocks(capacity_bytes: u64) -> Profile {
        let mut profile = conventional(capacity_bytes);
        profile.mechanics.serpentine_tracks = 1000;
        profile.translation = Translation::SBlocks(SBlocks {
            s_block_blocks: 256,
            section_s_blocks: 16,
            section_spare_slots: 2,
            section_ring_blocks: 2048,
            section_entries_max: 200,
            entry_ns: 300_000,
            entry_blocks_max: 64,
            entry_header_blocks: 1,
            append_entries_max: 64,
            share: Share {
                low_water: 50,
                low: 400,
                high_water: 900,
                high: 750,
            },
            idle_ns: 1_000_000_000,
            clean_slice_ns: 100_000_000,
            merge_ns_by_log2: (0..16u64).map(|i| 2_000_000 << i).collect(),
            stream_min_blocks: 64,
            stream_memory_ns: 10_000_000_000,
            stream_runs_max: 4,
            discard: true,
            discard_zeros: true,
        });
        profile.buffer.hold_ns = 500_000_000;
        profile
    }

    /// A shingled drive of `capacity_bytes` whose cache holds `cache_blocks` and `entries`.
    pub fn shingled(capacity_bytes: u64, cache_blocks: u64, entries: u64) -> Profile {
        let mut profile = conventional(capacity_bytes);
        profile.mechanics.serpentine_tracks = 1000;
        profile.translation = Translation::StaticMapping(StaticMapping {
            band_tracks: 8,
            cache_blocks,
            cache_entries_max: entries,
            entry_ns: 300_000,
            entry_blocks_max: 256,
            entry_header_blocks: 1,
            append_entries_max: 64,
            idle_ns: 1_000_000_000,
            clean_slice_ns: 115_000_000,
            merge_ns_by_log2: (0..16u64).map(|i| 2_000_000 << i).collect(),
            clean_max_ns_per_block: 5_860_000,
            stream_min_blocks: 2048,
            stream_memory_ns: 30_000_000_000,
            stream_runs_max: 8,
            cache_overwritten: false,
            cache_at_block: 0,
        });
        profile.buffer.hold_ns = 500_000_000;
        profile.buffer.dirty_blocks_max = 8192;
        profile
    }

    /// The same with a cache that is overwritten, in the middle of the platters.
    pub fn overwritten(capacity_bytes: u64, cache_blocks: u64, entries: u64) -> Profile {
        let mut profile = shingled(capacity_bytes, cache_blocks, entries);
        let middle = profile.capacity_blocks() / 2;
        if let Translation::StaticMapping(mapping) = &mut profile.translation {
            mapping.cache_overwritten = true;
            mapping.cache_at_block = middle;
        }
        profile
    }
}
