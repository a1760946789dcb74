// SPDX-License-Identifier: MIT OR Apache-2.0
//! From units for people to units for the drive: nanoseconds, blocks, tracks.

use super::reader::{ProfileError, ProfileText};
use smr_drive::profile::{
    Buffer, Enforcing, HostAware, Interface, Mechanics, Profile, RecordingZone, SBlocks, Seek,
    Share, StaticMapping, Translation, Zones,
};

const BLOCK_BYTES: f64 = 4096.0;
const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;
const MB: f64 = 1e6;
const TB: f64 = 1e12;
const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;

fn ns(ms: f64) -> u64 {
    (ms * NS_PER_MS).round() as u64
}

fn blocks(bytes: f64) -> u64 {
    (bytes / BLOCK_BYTES).round() as u64
}

/// Converts a checked profile.
pub fn convert(text: &ProfileText) -> Result<Profile, ProfileError> {
    if text.get("platters.inner_rate") > text.get("platters.outer_rate") {
        return Err(ProfileError {
            file: text.file.clone(),
            line: 0,
            message: "platters.inner_rate: expected at most platters.outer_rate".into(),
        });
    }
    if text.get_or("translation.zone_capacity", 0.0) > text.get_or("translation.zone", 0.0) {
        return Err(ProfileError {
            file: text.file.clone(),
            line: 0,
            message: "translation.zone_capacity: expected at most translation.zone".into(),
        });
    }
    if text.get_or("translation.cache_at", 0.0) * TB > text.get("host.capacity") {
        return Err(ProfileError {
            file: text.file.clone(),
            line: 0,
            message: "translation.cache_at: expected at most host.capacity".into(),
        });
    }
    check_zone_bands(text)?;
    if text.kind == "s_blocks" {
        check_s_blocks(text)?;
    }
    Ok(Profile {
        name: text.name.clone(),
        model: text.model.clone(),
        capacity_bytes: text.get("host.capacity") as u64,
        logical_block_bytes: text.get("host.logical_block") as u32,
        physical_block_bytes: text.get("host.physical_block") as u32,
        mechanics: mechanics(text),
        interface: interface(text),
        buffer: Buffer {
            write_cache: text.get_or("buffer.write_cache", 1.0) != 0.0,
            writes_pass: text.get_or("translation.writes_pass", 0.0) != 0.0,
            dirty_blocks_max: blocks(text.get("buffer.dirty_max") * MIB),
            dirty_extents_max: text.get("buffer.dirty_extents_max") as u32,
            hold_ns: ns(text.get("buffer.hold")),
            destage_blocks_max: blocks(text.get("buffer.destage_max") * KIB),
            elevator_window: text.get("buffer.elevator_window") as u32,
        },
        translation: translation(text),
    })
}

fn interface(text: &ProfileText) -> Interface {
    Interface {
        command_ns: ns(text.get("interface.command")),
        command_gap_ns: ns(text.get("interface.command_gap")),
        block_ns: (BLOCK_BYTES / (text.get("interface.link_rate") * MB) * NS_PER_S).round() as u64,
        queue_depth: text.get("interface.queue_depth") as u32,
        max_request_sectors: (text.get("interface.max_request") * KIB / 512.0) as u32,
    }
}

fn mechanics(text: &ProfileText) -> Mechanics {
    let revolution_s = 60.0 / text.get("platters.spindle");
    let heads = text.get("platters.heads");
    let run_bytes = text.get("platters.serpentine_run") * GIB;
    // A sustained rate includes the step to the next track; by cylinder, most steps are head switches.
    let step_ms = if run_bytes > 0.0 {
        text.get("seek.track_to_track")
    } else {
        text.get("seek.head_switch")
    };
    let step_s = step_ms / 1000.0;
    let (outer, inner) = (
        text.get("platters.outer_rate") * MB,
        text.get("platters.inner_rate") * MB,
    );
    let zones = text.get("platters.recording_zones");
    // Constant areal density: the bytes of a track are linear in its radius.
    let track_bytes =
        |i: f64| (outer - (outer - inner) * (i + 0.5) / zones) * (revolution_s + step_s);
    let tracks: Vec<f64> = (0..zones as u32)
        .map(|i| (track_bytes(f64::from(i)) / BLOCK_BYTES).round())
        .collect();
    // What the host sees, the persistent cache, a scratch band, and one part in 200 for the ends of zones and bands.
    let hidden = text
        .parameters
        .get("translation.cache")
        .map_or(0.0, |p| p.value * GIB + 64.0 * MIB);
    let total_blocks =
        (text.get("host.capacity") + hidden + spare_bytes(text)) * 1.005 / BLOCK_BYTES;
    let least_cylinders = (total_blocks / heads / tracks.iter().sum::<f64>()).ceil();
    // A zone holds whole runs: they are made a little shorter or longer than the profile says.
    let run_tracks = (run_bytes / track_bytes(zones / 2.0)).clamp(1.0, least_cylinders);
    let runs = (least_cylinders / run_tracks).round().max(1.0);
    let serpentine_tracks = (least_cylinders / runs).ceil() as u32;
    Mechanics {
        revolution_ns: (revolution_s * NS_PER_S).round() as u64,
        heads: heads as u32,
        serpentine_tracks,
        zones: tracks
            .iter()
            .map(|t| RecordingZone {
                track_blocks: *t as u32,
                cylinders: serpentine_tracks * runs as u32,
            })
            .collect(),
        seek: Seek {
            track_to_track_ns: ns(text.get("seek.track_to_track")),
            a_ns: ns(text.get("seek.short_base")),
            b_ns: ns(text.get("seek.short_root")),
            c_ns: ns(text.get("seek.long_base")),
            d_ns: ns(text.get("seek.long_slope")),
            knee_q32: (text.get("seek.knee") * f64::powi(2.0, 32)) as u64,
        },
        head_switch_ns: ns(text.get("seek.head_switch")),
        write_settle_ns: ns(text.get("seek.write_settle")),
        segment_blocks: blocks(text.get("read_ahead.segment") * KIB) as u32,
        segments: text.get("read_ahead.segments") as u32,
    }
}

fn translation(text: &ProfileText) -> Translation {
    match text.kind.as_str() {
        "static_mapping" => Translation::StaticMapping(static_mapping(text)),
        "host_managed" => Translation::HostManaged(zones(text)),
        "enforcing" => Translation::Enforcing(enforcing(text)),
        "host_aware" => Translation::HostAware(host_aware(text)),
        "s_blocks" => Translation::SBlocks(s_blocks(text)),
        _ => Translation::Conventional,
    }
}

/// What all disks with zones have; of the rest, what asks least of the host.
fn plain_zones(text: &ProfileText) -> Zones {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    let zone = of("zone");
    let capacity = text.get_or("translation.zone_capacity", zone);
    Zones {
        zone_blocks: blocks(zone * MIB),
        zone_capacity_blocks: blocks(capacity * MIB),
        conventional_first: of("conventional_first") as u32,
        conventional_last: of("conventional_last") as u32,
        open_max: u32::MAX,
        command_ns: 0,
        read_restricted: false,
        discard_resets: false,
    }
}

fn zones(text: &ProfileText) -> Zones {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    Zones {
        open_max: of("open_max") as u32,
        command_ns: ns(of("zone_command")),
        read_restricted: of("read_restricted") != 0.0,
        discard_resets: of("discard_resets") != 0.0,
        ..plain_zones(text)
    }
}

fn enforcing(text: &ProfileText) -> Enforcing {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    Enforcing {
        zones: plain_zones(text),
        reject: of("reject_violations") != 0.0,
        implicit_reset: of("implicit_reset") != 0.0,
        overhead_permille: (of("write_overhead") * 10.0).round() as u32,
    }
}

fn host_aware(text: &ProfileText) -> HostAware {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    HostAware {
        // Behind a write pointer, host-aware disks give the initialisation pattern (SAFS), so reads are not restricted.
        zones: Zones {
            open_max: of("open_optimal") as u32,
            command_ns: ns(of("zone_command")),
            ..plain_zones(text)
        },
        cache: persistent_cache(text),
        zone_bands: text.get_or("translation.zone_bands", 1.0) as u32,
        non_sequential_max: of("non_sequential_optimal") as u32,
        close_ns: ns(of("zone_close")),
    }
}

fn static_mapping(text: &ProfileText) -> StaticMapping {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    StaticMapping {
        band_tracks: of("band") as u32,
        stream_min_blocks: blocks(of("stream_min") * MIB),
        stream_memory_ns: ns(of("stream_memory") * 1000.0),
        stream_runs_max: of("stream_runs") as u32,
        ..persistent_cache(text)
    }
}

/// The cache alone, without bands of its own and without streams.
fn persistent_cache(text: &ProfileText) -> StaticMapping {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    StaticMapping {
        band_tracks: 0,
        cache_blocks: blocks(of("cache") * GIB),
        cache_entries_max: of("cache_entries") as u64,
        entry_ns: ns(of("entry_time")),
        entry_blocks_max: blocks(of("entry_max") * KIB),
        entry_header_blocks: blocks(of("entry_header") * KIB),
        append_entries_max: of("append_max") as u32,
        idle_ns: ns(of("idle") * 1000.0),
        clean_slice_ns: ns(of("clean_slice")),
        merge_ns_by_log2: (0..16)
            .map(|i| ns(of("merge_base") * f64::from(1 << i).powf(of("merge_exponent"))))
            .collect(),
        clean_max_ns_per_block: ns(of("clean_max_per_block")),
        stream_min_blocks: u64::MAX,
        stream_memory_ns: 0,
        stream_runs_max: 0,
        cache_overwritten: text.get_or("translation.cache_overwritten", 0.0) != 0.0,
        cache_at_block: blocks(text.get_or("translation.cache_at", 0.0) * TB),
    }
}

/// S-blocks of a section that the host sees, and slots beyond these.
fn section(text: &ProfileText) -> (u32, u32) {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    let s_blocks = (text.get("host.capacity") / (of("s_block") * MIB)).ceil();
    let seen = (s_blocks / of("sections")).ceil();
    // The model needs a slot for each open s-block, one for the cleaner, and one to be opened.
    let least = of("stream_runs") + 2.0;
    let spare = (seen * of("spare") / 100.0).ceil().max(least);
    (seen as u32, spare as u32)
}

/// Of S-block drives: all slots that the host does not see.
fn spare_bytes(text: &ProfileText) -> f64 {
    if text.kind != "s_blocks" {
        return 0.0;
    }
    let of = |key: &str| text.get(&format!("translation.{key}"));
    let (seen, spare) = section(text);
    let slots = of("sections") * f64::from(seen + spare);
    slots * of("s_block") * MIB - text.get("host.capacity")
}

/// Bands of a zone are all of one size, of whole blocks.
fn check_zone_bands(text: &ProfileText) -> Result<(), ProfileError> {
    let zone_blocks = blocks(text.get_or("translation.zone", 0.0) * MIB);
    let bands = text.get_or("translation.zone_bands", 1.0);
    if bands.fract() == 0.0 && zone_blocks % bands as u64 == 0 {
        return Ok(());
    }
    Err(ProfileError {
        file: text.file.clone(),
        line: 0,
        message: format!(
            "translation.zone_bands is {bands}: expected a divisor of the zone's {zone_blocks} blocks"
        ),
    })
}

/// What one rule for each key cannot say.
fn check_s_blocks(text: &ProfileText) -> Result<(), ProfileError> {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    let ring = of("cache") * GIB / of("sections");
    let ends = 2.0 * of("s_block") * MIB + 8.0 * of("entry_max") * KIB;
    let wrong = if of("low_water") >= of("high_water") {
        "translation.low_water: expected less than translation.high_water"
    } else if of("low_share") > of("high_share") {
        "translation.low_share: expected at most translation.high_share"
    } else if ring < ends {
        "translation.cache: expected room for two s-blocks and eight entries in each section"
    } else if of("stream_min") > of("s_block") {
        "translation.stream_min: expected at most translation.s_block"
    } else {
        return Ok(());
    };
    Err(ProfileError {
        file: text.file.clone(),
        line: 0,
        message: wrong.into(),
    })
}

fn s_blocks(text: &ProfileText) -> SBlocks {
    let of = |key: &str| text.get(&format!("translation.{key}"));
    let thousandths = |key: &str| (of(key) * 10.0).round() as u64;
    let (seen, spare) = section(text);
    SBlocks {
        s_block_blocks: blocks(of("s_block") * MIB),
        section_s_blocks: seen,
        section_spare_slots: spare,
        section_ring_blocks: blocks(of("cache") * GIB / of("sections")),
        section_entries_max: (of("cache_entries") / of("sections")).ceil() as u64,
        entry_ns: ns(of("entry_time")),
        entry_blocks_max: blocks(of("entry_max") * KIB),
        entry_header_blocks: blocks(of("entry_header") * KIB),
        append_entries_max: of("append_max") as u32,
        share: Share {
            low_water: thousandths("low_water"),
            low: thousandths("low_share"),
            high_water: thousandths("high_water"),
            high: thousandths("high_share"),
        },
        idle_ns: ns(of("idle") * 1000.0),
        clean_slice_ns: ns(of("clean_slice")),
        merge_ns_by_log2: (0..16)
            .map(|i| ns(of("merge_base") * f64::from(1 << i).powf(of("merge_exponent"))))
            .collect(),
        stream_min_blocks: blocks(of("stream_min") * MIB),
        stream_memory_ns: ns(of("stream_memory") * 1000.0),
        stream_runs_max: of("stream_runs") as u32,
        discard: of("discard") != 0.0,
        discard_zeros: of("discard_zeros") != 0.0,
    }
}
