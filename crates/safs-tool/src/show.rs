// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures of the disk as JSON and as text.

use safs::format::{
    Change, Dirent, Extent, Header, Inode, Key, Root, Superblock, ZoneEntry, ZoneKind, ZoneStage,
    BLOCK,
};
use safs::{FileSystem, Geometry};
use serde_json::{json, Map, Value};
use zoned::{ZoneId, ZonedDevice};

/// Zones in one line of the map.
const MAP_WIDTH: usize = 64;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn superblock(of: &Superblock) -> Value {
    json!({
        "uuid": hex(&of.uuid),
        "label": String::from_utf8_lossy(&of.label).trim_end_matches('\0'),
        "zones": of.zones,
        "zone_blocks": of.zone_blocks,
        "random_zones": of.random_zones,
        "in_order": of.is_in_order(),
        "mirror_blocks": of.mirror_blocks,
        "made_ns": of.made_ns,
    })
}

pub fn root(of: &Root, copies: [bool; 2]) -> Value {
    json!({
        "root_seq": of.root_seq,
        "clean": of.clean,
        "mount_gen": of.mount_gen,
        "catalog": of.catalog.map(|to| json!({"block": to.at.0, "level": to.level, "crc": to.crc})),
        "log": {"zone": of.log.zone.0, "block": of.log.block, "epoch": of.log.epoch, "log_seq": of.log.log_seq},
        "seq": of.seq,
        "next_ino": of.next_ino,
        "inodes": of.inodes,
        "time_ns": of.time_ns,
        "copies": copies,
    })
}

fn extent(of: &Extent) -> Value {
    match of.is_hole {
        true => json!({"hole": true, "bytes": of.bytes}),
        false => json!({
            "zone": of.zone.0, "offset": of.offset, "bytes": of.bytes, "header": of.header, "fragment": of.is_fragment,
        }),
    }
}

fn inode(of: &Inode) -> Value {
    json!({
        "type": format!("{:?}", of.file_type).to_lowercase(),
        "permissions": format!("{:04o}", of.permissions),
        "uid": of.uid, "gid": of.gid, "nlink": of.nlink,
        "written": of.written, "size": of.size, "head": of.head, "stored": of.stored,
        "mtime_ns": of.mtime_ns, "parent": of.parent.0, "children": of.children,
    })
}

/// A key's value, by its kind.
pub fn value(key: &Key, bytes: &[u8]) -> Value {
    let entry = |entry: Dirent| json!({"ino": entry.ino.0, "id": entry.id});
    let shown = match key.kind() {
        Some(1) => Inode::decode(bytes).ok().map(|of| inode(&of)),
        Some(3) => Dirent::decode_name(key, bytes).ok().map(entry),
        Some(4) => Dirent::decode_order(key, bytes).ok().map(entry),
        Some(5) => Extent::decode(bytes).ok().map(|of| extent(&of)),
        Some(2 | 6) => Some(json!(String::from_utf8_lossy(bytes))),
        _ => None,
    };
    shown.unwrap_or_else(|| json!(hex(bytes)))
}

fn change(of: &Change) -> Value {
    match of {
        Change::Put(key, bytes) => json!({"put": format!("{key:?}"), "value": value(key, bytes)}),
        Change::Delete(key) => json!({"delete": format!("{key:?}")}),
        Change::Zone(zone, entry) => json!({"zone": zone.0, "entry": zone_entry(entry)}),
        Change::Live(zone, delta) => json!({"live": zone.0, "delta": delta}),
        Change::Data(data) => {
            json!({"data": data.ino.0, "logical": data.logical, "bytes": data.bytes})
        }
    }
}

pub fn header(of: &Header) -> Value {
    let batches = of.records.batches().unwrap_or_default();
    let batches: Vec<Vec<Value>> = batches
        .iter()
        .map(|batch| batch.iter().map(change).collect())
        .collect();
    json!({
        "log": of.is_log, "seq": of.seq, "log_seq": of.log_seq, "epoch": of.epoch,
        "zone": of.zone.0, "block": of.block, "header_blocks": of.blocks(), "payload_blocks": of.payload_blocks,
        "next_zone": (of.next_zone.0 != u32::MAX).then_some(of.next_zone.0),
        "flushed_seq": of.flushed_seq, "root_seq": of.root_seq, "mount_gen": of.mount_gen,
        "fragment_bytes": of.fragments.len(), "batches": batches,
    })
}

pub fn zone_entry(of: &ZoneEntry) -> Value {
    json!({
        "stage": format!("{:?}", of.stage).to_lowercase(),
        "kind": format!("{:?}", of.kind).to_lowercase(),
        "epoch": of.epoch, "owner": of.owner.0, "write_blocks": of.write_blocks, "live_bytes": of.live_bytes,
    })
}

/// Zones by stage and kind, their live bytes, and what was written.
pub fn statistics<D: ZonedDevice>(fs: &FileSystem<D>, geometry: Geometry) -> Value {
    let mut zones: Map<String, Value> = Map::new();
    let (mut written, mut live) = (0u64, 0u64);
    for (_, entry) in fs.zones().iter() {
        let name = format!("{:?} {:?}", entry.stage, entry.kind).to_lowercase();
        let count = zones.get(&name).and_then(Value::as_u64).unwrap_or(0);
        zones.insert(name, json!(count + 1));
        if entry.kind != ZoneKind::Random {
            written += u64::from(entry.write_blocks) * BLOCK as u64;
            live += u64::from(entry.live_bytes);
        }
    }
    let space = fs.space();
    let ratio = if written > 0 {
        live as f64 / written as f64
    } else {
        0.0
    };
    json!({
        "zone_bytes": u64::from(geometry.zone_blocks) * BLOCK as u64,
        "zones": zones,
        "live_bytes": live,
        "live_ratio": (ratio * 1000.0).round() / 1000.0,
        "blocks": space.blocks,
        "blocks_free": space.free,
        "inodes": space.inodes,
    })
}

/// A character a zone: R random, . free, l or L log, f or F file, s or S shared (small: less than half of it lives),
/// ! given up by the device.
pub fn map<D: ZonedDevice>(fs: &FileSystem<D>) -> String {
    let zone_bytes = u64::from(fs.superblock().zone_blocks) * BLOCK as u64;
    let mut text = String::new();
    for (ZoneId(number), entry) in fs.zones().iter() {
        if number as usize % MAP_WIDTH == 0 {
            text.push_str(&format!("\n{number:>8} "));
        }
        let letter = match (entry.stage, entry.kind) {
            (ZoneStage::ReadOnly | ZoneStage::Offline, _) => '!',
            (ZoneStage::Free | ZoneStage::Dying, _) => '.',
            (_, ZoneKind::Random) => 'R',
            (_, ZoneKind::Log) => 'l',
            (_, ZoneKind::File) => 'f',
            (_, ZoneKind::Shared) => 's',
            (_, ZoneKind::None) => '?',
        };
        let is_full = u64::from(entry.live_bytes) * 2 >= zone_bytes;
        text.push(if is_full {
            letter.to_ascii_uppercase()
        } else {
            letter
        });
    }
    text
}
