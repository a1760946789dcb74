// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a mount begins: the superblock, the root records, and whether one of these is lost.

use crate::disk::Disk;
use crate::error::{At, Result};
use crate::format::*;
use crate::layout::{self, Layout};
use std::collections::BTreeMap;
use zoned::{Block, ZoneId, ZonedDevice};

/// Finds the superblock: the first one, or its mirror, which is at the start of some zone (R1).
pub fn superblock<D: ZonedDevice>(disk: &mut Disk<D>) -> Result<Superblock> {
    let mut block = vec![0; BLOCK];
    disk.read(Block(0), &mut block)?;
    let first = Superblock::decode(&block);
    if let Ok(found) = first {
        return Ok(found);
    }
    let geometry = disk.geometry();
    // A disk without conventional zones has its mirror in what mkfs reserves.
    let end = match geometry.conventional {
        0 | 1 => layout::reserved_zones(geometry.zones).min(geometry.zones),
        conventional => conventional,
    };
    for zone in 1..end {
        let at = disk.block_of(ZoneId(zone), 0);
        if disk.read(at, &mut block).is_err() {
            continue;
        }
        match Superblock::decode(&block) {
            Ok(found) if found.mirror_blocks == at.0 => return Ok(found),
            _ => continue,
        }
    }
    first.at(|| "the superblock".into())
}

/// The root records that can be read, the newest first, each with whether its two copies are good.
pub fn roots<D: ZonedDevice>(
    disk: &mut Disk<D>,
    superblock: &Superblock,
) -> Result<Vec<(Root, [bool; 2])>> {
    let layout = layout::suits(disk, superblock)?;
    let mut found: BTreeMap<u64, (Root, [bool; 2])> = BTreeMap::new();
    for (copy, first, count) in layout.root_places(disk)? {
        let mut blocks = vec![0; count * BLOCK];
        if disk.read(first, &mut blocks).is_err() {
            // One bad block must not hide its neighbours.
            for (i, block) in blocks.chunks_exact_mut(BLOCK).enumerate() {
                if disk.read(first + i as u64, block).is_err() {
                    block.fill(0);
                }
            }
        }
        for (i, block) in blocks.chunks_exact(BLOCK).enumerate() {
            let Ok(root) = Root::decode(block, &superblock.uuid) else {
                continue;
            };
            let distance = [0, layout.mirror_blocks()][copy];
            if layout.root(root.root_seq) + distance == first + i as u64 {
                let entry = found.entry(root.root_seq).or_insert((root, [false; 2]));
                entry.1[copy] = true;
            }
        }
    }
    Ok(found.into_values().rev().collect())
}

/// Whether a record behind the newest of `found` was written and is lost in both copies (R26). No power cut leaves that: a
/// record lies in one sector, which is old or new, and only one copy is written at a time.
pub(crate) fn lost_record<D: ZonedDevice>(
    disk: &mut Disk<D>,
    layout: Layout,
    found: &[(Root, [bool; 2])],
) -> Result<Option<String>> {
    let Some(newest) = found.first().map(|(root, _)| root.root_seq) else {
        return Ok(None);
    };
    let is_lost = match layout.in_order {
        None => {
            // Its slot holds the record that was there before, or nothing since mkfs.
            let next = newest.saturating_add(1);
            let before = next.checked_sub(ROOT_SLOTS).filter(|before| *before > 0);
            match before {
                Some(before) => !found.iter().any(|(root, _)| root.root_seq == before),
                None => !is_blank(disk, layout, next),
            }
        }
        Some(_) => layout.has_lost_record(disk, newest, |zone| {
            let mut numbers = found.iter().map(|(root, _)| root.root_seq);
            numbers.any(|number| layout.ring_zone(number) == Some(zone))
        })?,
    };
    Ok(is_lost.then(|| {
        format!("a root record behind {newest}, the newest that is found, is lost in both copies")
    }))
}

/// Whether a record's slot was never written, in one of the copies.
fn is_blank<D: ZonedDevice>(disk: &mut Disk<D>, layout: Layout, number: u64) -> bool {
    let mut block = vec![0; BLOCK];
    [0, layout.mirror_blocks()].into_iter().any(|distance| {
        let read = disk.read(layout.root(number) + distance, &mut block);
        read.is_ok() && block.iter().all(|byte| *byte == 0)
    })
}
