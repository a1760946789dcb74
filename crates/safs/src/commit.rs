// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root records: the catalog's changes go into its tree, and the log behind becomes superfluous.
//!
//! Order: nodes and image into free places; flush; the record, twice; flush; only then are old nodes free and empty zones
//! reset. Where the reserved zones are written in order, image and record follow each other in the ring. A crash in between leaves the older record with all that it needs (INV-S4, INV-S7).

use crate::error::Result;
use crate::format::*;
use crate::fs::FileSystem;
use zoned::ZonedDevice;

impl<D: ZonedDevice> FileSystem<D> {
    /// Writes a root record. Batches that wait for the log are in it and need not be logged any more.
    pub fn root_commit(&mut self, clean: bool) -> Result {
        self.writable()?;
        let result = self.commit_root(clean);
        self.sticky(result)
    }

    fn commit_root(&mut self, clean: bool) -> Result {
        let root_seq = self.roots.next;
        self.catalog.commit(&mut self.disk, root_seq)?;
        self.bury()?;
        let mirror = self.superblock.mirror_blocks;
        let image = self.image();
        let at = self.layout.image(root_seq);
        let root = Root {
            uuid: self.superblock.uuid,
            clean,
            root_seq,
            mount_gen: self.roots.mount_gen,
            catalog: self.catalog.root(),
            log: self.log.at,
            seq: self.log.seq,
            image: Image {
                at,
                blocks: self.layout.image_blocks,
                crc: crc32c::crc32c(&image),
            },
            next_ino: self.next_ino,
            inodes: self.inodes,
            time_ns: self.now_ns,
        };
        for distance in [0, mirror] {
            self.layout.write(&mut self.disk, at + distance, &image)?;
        }
        self.disk.flush()?;
        let slot = self.layout.root(root_seq);
        for distance in [0, mirror] {
            self.layout
                .write(&mut self.disk, slot + distance, &root.encode())?;
        }
        self.disk.flush()?;
        self.layout.settle(&mut self.disk, root_seq)?;
        self.log.flushed_seq = self.log.seq;
        self.roots.newest = root_seq;
        self.roots.next = root_seq + 1;
        self.log.pending.clear();
        self.log.pending_bytes = 0;
        self.catalog.settle();
        self.log.tail_ns = 0;
        self.log.next_is_named = false;
        self.counters.roots += 1;
        self.staged.dirty_since_ns = self.staged.oldest_ns();
        self.reset_dying()
    }

    fn image(&self) -> Vec<u8> {
        let mut image = self.zones.encode();
        image.extend(self.catalog.nodes.encode_map());
        image.resize(self.layout.image_blocks as usize * BLOCK, 0);
        image
    }

    /// Sealed zones in which nothing lives die with this record: no batch before it is needed any more, and the log goes
    /// on in an open zone.
    fn bury(&mut self) -> Result {
        let is_empty =
            |entry: &ZoneEntry| entry.stage == ZoneStage::Sealed && entry.live_bytes == 0;
        let empty = self.zones.iter().filter(|(_, entry)| is_empty(entry));
        let empty: Vec<_> = empty.map(|(zone, _)| zone).collect();
        for zone in empty {
            self.zones
                .change(zone, |entry| entry.stage = ZoneStage::Dying)?;
        }
        Ok(())
    }

    /// Resets zones that a durable root record calls dying (R15). A zone that cannot be reset is not used again.
    pub(crate) fn reset_dying(&mut self) -> Result {
        let dying = self
            .zones
            .iter()
            .filter(|(_, entry)| entry.stage == ZoneStage::Dying);
        let dying: Vec<_> = dying.map(|(zone, _)| zone).collect();
        for zone in &dying {
            if self.retire_if_bad(*zone)? {
                continue;
            }
            self.disk.reset(*zone)?;
            self.counters.resets += 1;
            self.zones.change(*zone, |entry| *entry = ZoneEntry::FREE)?;
        }
        if !dying.is_empty() {
            self.headers.retain(|(zone, _)| !dying.contains(zone));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{FileType, NODE_BYTES, ROOT_INO};
    use crate::testing::made_on;
    use crate::{FileSystem, Options, Owner};
    use zoned::RamDevice;

    /// Deletions all over a catalog larger than its cache: a root record read ten thousand leaves again, which took 47 s.
    #[test]
    fn a_root_record_reads_no_leaf_again_that_a_change_has_read() {
        let options = Options {
            node_cache_bytes: 128 * NODE_BYTES,
            changing_bytes: 64 * NODE_BYTES,
            ..Options::default()
        };
        let device = made_on(RamDevice::new(64, 30, 2048));
        let mut fs = FileSystem::mount(device, options, 1).unwrap();
        let name = |file: u64| format!("{file:0100}").into_bytes();
        for file in 0..10_000 {
            fs.create(
                ROOT_INO,
                &name(file),
                FileType::Regular,
                Owner::default(),
                0,
            )
            .unwrap();
        }
        fs.root_commit(false).unwrap();
        let (leaves, roots) = (fs.catalog.nodes.in_use(), fs.counters.roots);
        assert!(leaves > 200, "only {leaves} nodes");
        let mut most = 0;
        for step in 0..2000 {
            let before = fs.catalog.nodes.reads;
            fs.unlink(ROOT_INO, &name(step * 3571 % 10_000)).unwrap();
            most = most.max(fs.catalog.nodes.reads - before);
        }
        assert!(fs.counters.roots > roots, "no root record was due");
        assert!(most <= 8, "{most} nodes were read for one deletion");
    }
}
