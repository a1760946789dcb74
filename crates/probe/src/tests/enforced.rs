// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk without a zone interface that refuses writes out of order: what it takes and what it refuses says where its
//! zones are. A zone takes a write at its beginning, and where its last write ended.

use super::write_cache::write_cache_found;
use crate::disk::{Stop, BLOCK_BYTES, GIB, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::comb;

const SCANNED_BYTES: u64 = 4 * GIB;
const FREE_MOST: u64 = 64 * GIB;
const IN_ORDER: u64 = 64;

/// `why`: what the disk said to a small write somewhere.
pub fn run(s: &mut Session<'_>, why: &str) -> Result<(), Stop> {
    s.known.logs = Some(false);
    s.known.refuses = true;
    s.found(Finding::word(
        "kind.writes",
        "small durable writes",
        "refused",
        Confidence::High,
        why.to_string(),
    ));
    s.tell("the disk refuses writes out of order: which ones it takes");
    let (key, what) = ("translation.zone", "zone that is written in order");
    // Of whole mebibytes, those that may be written are where zones begin.
    let bytes = SCANNED_BYTES.min(s.capacity() / 4) / MIB * MIB;
    let from = s.offset(0.5, MIB, bytes);
    let mut starts = Vec::new();
    for at in (from..from + bytes).step_by(MIB as usize) {
        if s.takes(at, BLOCK_BYTES)? {
            starts.push(at as f64);
        }
    }
    let scanned = bytes / MIB;
    // A finer one finds no other pitch: all starts are whole mebibytes.
    let found = comb(&starts, MIB as f64 / 8.0).filter(|_| starts.len() as u64 * 2 < scanned);
    let Some(zones) = found else {
        let why = format!(
            "of {scanned} writes, one at each MiB, {} were taken, and not at regular distances",
            starts.len()
        );
        s.found(Finding::open(key, what, why));
        return Ok(());
    };
    let mib = |bytes: f64| bytes / MIB as f64;
    let how = format!(
        "of {scanned} writes, one at each MiB, the disk took {} at regular distances",
        starts.len()
    );
    let interval = (mib(zones.pitch_range.0), mib(zones.pitch_range.1));
    s.found(Finding::number(
        key,
        what,
        mib(zones.pitch),
        "MiB",
        interval,
        how,
    ));
    free(s, zones.pitch)?;
    in_order(s, starts[0] as u64)
}

/// How far from the first block on writes are taken in any order.
fn free(s: &mut Session<'_>, zone: f64) -> Result<(), Stop> {
    let (key, what) = (
        "translation.conventional_first",
        "zones at the beginning that are written in any order",
    );
    // Never where a zone may begin.
    let inside = |at: u64| at / MIB * MIB + 5 * BLOCK_BYTES;
    let (mut taken, mut refused) = (0, FREE_MOST.min(s.capacity() / 4));
    if !s.takes(inside(0), BLOCK_BYTES)? {
        let how = "the disk refused a write of its sixth block".to_string();
        s.found(Finding::number(key, what, 0.0, "zones", (0.0, 0.0), how));
        return Ok(());
    }
    while refused - taken > MIB {
        let middle = (taken + refused) / 2;
        if s.takes(inside(middle), BLOCK_BYTES)? {
            taken = middle;
        } else {
            refused = middle;
        }
    }
    let how = format!(
        "the disk took single blocks up to {} MiB and refused them behind",
        refused / MIB
    );
    let zones = |bytes: u64| bytes as f64 / zone;
    let interval = (zones(taken), zones(refused));
    s.found(Finding::number(
        key,
        what,
        zones(refused),
        "zones",
        interval,
        how,
    ));
    Ok(())
}

/// The beginning of a zone again, then on in small pieces.
fn in_order(s: &mut Session<'_>, start: u64) -> Result<(), Stop> {
    let mut times = Vec::new();
    for i in 0..IN_ORDER {
        times.push(s.write(start + i * BLOCK_BYTES, BLOCK_BYTES)?);
    }
    let how = format!("{IN_ORDER} blocks written one behind the other, without a flush");
    write_cache_found(s, &times, how);
    Ok(())
}
