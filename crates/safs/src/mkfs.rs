// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a file system.

use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::{root_slot, Layout};
use crate::namespace::{new_inode, Owner};
use crate::node_store::NodeStore;
use crate::zones::Zones;
use zoned::{Block, ZoneId, ZonedDevice};

/// Zones for data that a file system has at least: the log's two, the reserve, and some to work with.
const SEQUENTIAL_MIN: u32 = 12;

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct MakeOptions {
    /// Names the file system.
    pub uuid: Uuid,
    /// What the user calls it; at most 64 bytes of UTF-8, zeros behind.
    pub label: [u8; 64],
    /// Now, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// Makes an empty file system. Every sequential zone that holds something is reset; `progress` is told after each zone.
pub fn make<D: ZonedDevice>(
    device: D,
    options: MakeOptions,
    mut progress: impl FnMut(u32),
) -> Result<D> {
    let mut disk = Disk::new(device)?;
    let geometry = disk.geometry();
    let refuse = |reason: String| Error::corrupt("the device", reason);
    let random_zones = geometry.conventional;
    if random_zones < 2 {
        return Err(refuse(format!(
            "it has {random_zones} conventional zones, and this version needs two"
        )));
    }
    if geometry.zones.saturating_sub(random_zones) < SEQUENTIAL_MIN {
        return Err(refuse(format!(
            "it has fewer than {SEQUENTIAL_MIN} sequential zones"
        )));
    }
    let superblock = Superblock {
        uuid: options.uuid,
        incompatible: 0,
        read_only_compatible: 0,
        zones: geometry.zones,
        zone_blocks: geometry.zone_blocks,
        random_zones,
        mirror_blocks: u64::from(random_zones / 2) * u64::from(geometry.zone_blocks),
        label: options.label,
        made_ns: options.now_ns,
    };
    let layout = Layout::of(&superblock);
    let layout = layout.ok_or_else(|| refuse("its conventional zones are too small".into()))?;
    for zone in (random_zones..geometry.zones).map(ZoneId) {
        if disk.write_pointer(zone)? != 0 {
            disk.reset(zone)?;
        }
        progress(zone.0 + 1 - random_zones);
    }
    write_first(&mut disk, &superblock, layout, options.now_ns)?;
    Ok(disk.into_device())
}

/// The root directory's record, and the superblock last: without it there is no file system.
fn write_first<D: ZonedDevice>(
    disk: &mut Disk<D>,
    superblock: &Superblock,
    layout: Layout,
    now_ns: i64,
) -> Result {
    let mirror = superblock.mirror_blocks;
    let nodes = NodeStore::new(
        superblock.uuid,
        mirror,
        layout.nodes,
        layout.slots,
        NODE_BYTES,
    );
    let mut catalog = Catalog::new(nodes, None);
    let owner = Owner {
        permissions: 0o755,
        uid: 0,
        gid: 0,
    };
    let mut directory = new_inode(FileType::Directory, owner, now_ns);
    (directory.nlink, directory.parent) = (2, ROOT_INO);
    catalog.put(Key::inode(ROOT_INO), directory.encode());
    catalog.commit(disk, 1)?;
    let mut zones = Zones::new(superblock.zones, superblock.random_zones);
    let log = zones.take(ZoneKind::Log, Ino(0)).ok_or(Error::NoSpace)?;
    let mut image = zones.encode();
    image.extend(catalog.nodes.encode_map());
    image.resize(layout.image_blocks as usize * BLOCK, 0);
    let root = Root {
        uuid: superblock.uuid,
        clean: true,
        root_seq: 1,
        mount_gen: 1,
        catalog: catalog.root(),
        log: LogPosition {
            zone: log,
            block: 0,
            epoch: zones.get(log)?.epoch,
            log_seq: 1,
        },
        seq: 0,
        image: Image {
            at: layout.image(1),
            blocks: layout.image_blocks,
            crc: crc32c::crc32c(&image),
        },
        next_ino: ROOT_INO.0 + 1,
        inodes: 1,
        time_ns: now_ns,
    };
    // Old root records must not look newer than ours.
    let empty = vec![0; ROOT_SLOTS as usize * BLOCK];
    for distance in [0, mirror] {
        disk.write_random(Block(1 + distance), &empty)?;
        disk.write_random(layout.image(1) + distance, &image)?;
        disk.write_random(root_slot(1) + distance, &root.encode())?;
    }
    disk.flush()?;
    for distance in [mirror, 0] {
        disk.write_random(Block(distance), &superblock.encode())?;
    }
    disk.flush()
}
