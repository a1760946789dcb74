// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a file system.

use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::*;
use crate::layout::{reserved_zones, Layout};
use crate::namespace::{new_inode, Owner};
use crate::node_store::NodeStore;
use crate::zones::Zones;
use zoned::{Block, ZoneId, ZoneType, ZonedDevice};

/// Zones for data that a file system has at least: the log's two, the reserve, and some to work with.
const SEQUENTIAL_MIN: u32 = 12;
/// Where the reserved zones are written in order, one has to hold what a deletion takes of nodes, and what cleaning takes
/// beside it, or deletions are refused at last: 64 nodes.
const IN_ORDER_BLOCKS_MIN: u32 = 256;
/// Largest number of a first mount: as many again can follow.
const FIRST_MOUNT_MAX: u32 = (1 << 30) - 1;

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

/// Refuses a device on which no file system can be, or none that keeps INV-S16; nothing is written. Gives the device back.
pub fn check_device<D: ZonedDevice>(device: D, options: &MakeOptions) -> Result<D> {
    let disk = Disk::new(device)?;
    let (superblock, _) = plan(&disk, options)?;
    if superblock.is_in_order() && disk.geometry().capacity_blocks < IN_ORDER_BLOCKS_MIN {
        let reason = "its zones hold less than 1 MiB, and none of them is conventional";
        return Err(Error::corrupt("the device", reason));
    }
    Ok(disk.into_device())
}

/// How a device will be divided.
fn plan<D: ZonedDevice>(disk: &Disk<D>, options: &MakeOptions) -> Result<(Superblock, Layout)> {
    let geometry = disk.geometry();
    let refuse = |reason: String| Error::corrupt("the device", reason);
    // With one conventional zone, the superblock is in it, and nothing is different.
    let is_in_order = geometry.conventional < 2;
    if is_in_order && !disk.keeps_write_pointers() {
        return Err(refuse(
            "it has fewer than two conventional zones, and keeps no write pointers".into(),
        ));
    }
    let random_zones = match is_in_order {
        true => reserved_zones(geometry.zones),
        false => geometry.conventional,
    };
    if geometry.zones.saturating_sub(random_zones) < SEQUENTIAL_MIN {
        return Err(refuse(format!(
            "it has fewer than {SEQUENTIAL_MIN} sequential zones besides {random_zones} for the file system's own structures"
        )));
    }
    let superblock = Superblock {
        uuid: options.uuid,
        incompatible: if is_in_order { Superblock::IN_ORDER } else { 0 },
        read_only_compatible: 0,
        zones: geometry.zones,
        zone_blocks: geometry.zone_blocks,
        random_zones,
        mirror_blocks: u64::from(random_zones / 2) * u64::from(geometry.zone_blocks),
        label: options.label,
        made_ns: options.now_ns,
    };
    let layout = Layout::of(&superblock, geometry.capacity_blocks);
    let layout = layout.ok_or_else(|| {
        let kind = if is_in_order { "" } else { "conventional " };
        refuse(format!("its {kind}zones are too small"))
    })?;
    Ok((superblock, layout))
}

/// Makes an empty file system. Every sequential zone that holds something is reset; `progress` is told after each zone.
pub fn make<D: ZonedDevice>(
    device: D,
    options: MakeOptions,
    mut progress: impl FnMut(u32),
) -> Result<D> {
    let mut disk = Disk::new(device)?;
    let (superblock, layout) = plan(&disk, &options)?;
    let geometry = disk.geometry();
    let first = geometry.conventional;
    for zone in (first..geometry.zones).map(ZoneId) {
        if disk.write_pointer(zone)? != 0 {
            disk.reset(zone)?;
        }
        progress(zone.0 + 1 - first);
    }
    write_first(&mut disk, &superblock, layout, &options)?;
    Ok(disk.into_device())
}

/// The number of a file system's first mount. Epochs are made of these numbers, and segments of an earlier file system with
/// the same UUID lie where nothing was reset: so that none is taken for one of this life, the numbers begin by chance.
fn first_mount(options: &MakeOptions) -> u64 {
    let bytes = [&options.uuid, options.now_ns.to_le_bytes().as_slice()].concat();
    u64::from(crc32c::crc32c(&bytes) & FIRST_MOUNT_MAX).max(1)
}

/// The root directory's record, and the superblock last: without it there is no file system.
fn write_first<D: ZonedDevice>(
    disk: &mut Disk<D>,
    superblock: &Superblock,
    layout: Layout,
    options: &MakeOptions,
) -> Result {
    let now_ns = options.now_ns;
    let mirror = superblock.mirror_blocks;
    let nodes = NodeStore::new(superblock.uuid, layout, NODE_BYTES);
    let mut catalog = Catalog::new(nodes, None);
    let owner = Owner {
        permissions: 0o755,
        uid: 0,
        gid: 0,
    };
    let mut directory = new_inode(FileType::Directory, owner, now_ns);
    (directory.nlink, directory.parent) = (2, ROOT_INO);
    catalog.put(Key::inode(ROOT_INO), directory.encode());
    let root_seq = layout.first_root();
    catalog.commit(disk, root_seq)?;
    let mut zones = Zones::new(
        superblock.zones,
        superblock.random_zones,
        disk.geometry().capacity_blocks,
    );
    let mount_gen = first_mount(options);
    zones.begin(mount_gen);
    let log = zones.take(ZoneKind::Log, Ino(0)).ok_or(Error::NoSpace)?;
    let mut image = zones.encode();
    image.extend(catalog.nodes.encode_map());
    image.resize(layout.image_blocks as usize * BLOCK, 0);
    let root = Root {
        uuid: superblock.uuid,
        clean: true,
        root_seq,
        mount_gen,
        catalog: catalog.root(),
        log: LogPosition {
            zone: log,
            block: 0,
            epoch: zones.get(log)?.epoch,
            log_seq: 1,
        },
        seq: 0,
        image: Image {
            at: layout.image(root_seq),
            blocks: layout.image_blocks,
            crc: crc32c::crc32c(&image),
        },
        next_ino: ROOT_INO.0 + 1,
        inodes: 1,
        time_ns: now_ns,
    };
    let places = match layout.in_order {
        // Old root records must not look newer than ours.
        None => vec![(Block(1), vec![0; ROOT_SLOTS as usize * BLOCK])],
        Some(_) => Vec::new(),
    };
    let places = places.into_iter().chain([
        (layout.image(root_seq), image),
        (layout.root(root_seq), root.encode()),
    ]);
    for (at, bytes) in places {
        for distance in [0, mirror] {
            layout.write(disk, at + distance, &bytes)?;
        }
    }
    disk.flush()?;
    write_superblock(disk, superblock)
}

/// Both copies; the mirror first.
fn write_superblock<D: ZonedDevice>(disk: &mut Disk<D>, superblock: &Superblock) -> Result {
    for at in [Block(superblock.mirror_blocks), Block(0)] {
        disk.write_random(at, &superblock.encode())?;
        let (zone, _) = disk.zone_at(at);
        let is_conventional = disk.zone_type(zone) == Some(ZoneType::Conventional);
        if !is_conventional {
            disk.finish(zone)?;
        }
    }
    disk.flush()
}
