// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checking that a file system contradicts itself nowhere. The tests do this after every step.

use crate::error::Result;
use crate::format::*;
use crate::fs::{extent_of, FileSystem};
use std::collections::BTreeMap;
use zoned::ZonedDevice;

/// Keys looked at in one go.
const KEYS_AT_ONCE: usize = 1024;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
    /// Inodes.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes of data that were read, if that was asked for.
    pub read_bytes: u64,
    /// Nodes of the catalog.
    pub nodes: u64,
}

#[derive(Default)]
struct Links {
    inode: Option<Inode>,
    names: u32,
    subdirectories: u32,
    entries: u64,
    orders: u64,
    is_orphan: bool,
    /// Where the file's extents have come to, and the bytes that they hold.
    end: Option<u64>,
    stored: u64,
    fragment_at: Option<u64>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Checks everything that the catalog says; with `data` also every block of every file. `progress` is told the number
    /// of keys.
    pub fn check(&mut self, data: bool, mut progress: impl FnMut(u64)) -> Result<Report> {
        let mut report = Report::default();
        let mut links: BTreeMap<Ino, Links> = BTreeMap::new();
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        let mut from = Key::inode(Ino(0));
        let behind = Key(vec![0xff; 10]);
        let mut keys = 0;
        loop {
            let cells = self
                .catalog
                .scan(&mut self.disk, &from, &behind, KEYS_AT_ONCE)?;
            let Some(last) = cells.last() else {
                break;
            };
            let mut next = last.key.0.clone();
            next.push(0);
            from = Key(next);
            keys += cells.len() as u64;
            for cell in &cells {
                if let Err(error) = self.check_cell(cell, data, &mut links, &mut live, &mut report)
                {
                    report.problems.push(error.to_string());
                }
            }
            progress(keys);
        }
        for (ino, links) in &links {
            check_inode(*ino, links, &mut report);
        }
        if report.inodes != self.inodes {
            let (counted, known) = (report.inodes, self.inodes);
            report.problems.push(format!(
                "{known} inodes are said to be there, {counted} are"
            ));
        }
        self.check_zones(&live, &mut report);
        self.check_nodes(&mut report)?;
        Ok(report)
    }

    fn check_cell(
        &mut self,
        cell: &Cell,
        data: bool,
        all: &mut BTreeMap<Ino, Links>,
        live: &mut BTreeMap<u32, u64>,
        report: &mut Report,
    ) -> Result {
        let key = &cell.key;
        let damaged = |reason: &str| crate::error::Error::corrupt(format!("key {key:?}"), reason);
        let ino = key.ino().ok_or_else(|| damaged("it has no inode"))?;
        match key.kind() {
            Some(1) => {
                report.inodes += 1;
                let inode = self.inode(ino)?;
                if inode.file_type == FileType::Directory && ino != ROOT_INO && inode.nlink > 0 {
                    all.entry(inode.parent).or_default().subdirectories += 1;
                }
                all.entry(ino).or_default().inode = Some(inode);
            }
            Some(3) => {
                report.names += 1;
                let entry =
                    Dirent::decode_name(key, &cell.value).map_err(|reason| damaged(reason.0))?;
                all.entry(ino).or_default().entries += 1;
                all.entry(entry.ino).or_default().names += 1;
                let order = self.get(&Key::order(ino, entry.id))?;
                if order != Some(entry.encode_order()) {
                    return Err(damaged(
                        "its place in the directory's order does not name it",
                    ));
                }
            }
            Some(4) => all.entry(ino).or_default().orders += 1,
            Some(5) => {
                report.extents += 1;
                self.check_extent(ino, cell, data, all.entry(ino).or_default(), live, report)?;
            }
            Some(7) => {
                let orphan = key.number().ok_or_else(|| damaged("it names no inode"))?;
                all.entry(Ino(orphan)).or_default().is_orphan = true;
            }
            Some(2 | 6 | 9) => {}
            _ => return Err(damaged("it is of no known kind")),
        }
        Ok(())
    }

    /// INV-S10, and the sums of INV-S12.
    fn check_extent(
        &mut self,
        ino: Ino,
        cell: &Cell,
        data: bool,
        links: &mut Links,
        live: &mut BTreeMap<u32, u64>,
        report: &mut Report,
    ) -> Result {
        let (logical, extent) = extent_of(cell)?;
        let start = logical * BLOCK as u64;
        let wrong = |reason: &str| crate::error::Error::corrupt(format!("{:?}", cell.key), reason);
        if links.fragment_at.is_some() {
            return Err(wrong("an extent follows a fragment"));
        }
        let head = links.inode.as_ref().map_or(0, |inode| inode.head);
        let expected = links.end.unwrap_or(head);
        links.end = Some(start + u64::from(extent.bytes));
        links.fragment_at = extent.is_fragment.then_some(start);
        links.stored += extent.stored();
        if !extent.is_hole {
            *live.entry(extent.zone.0).or_default() += u64::from(extent.bytes);
            let entry = self.zones.get(extent.zone)?;
            let end = (extent.offset + u64::from(extent.bytes)).div_ceil(BLOCK as u64);
            if end > u64::from(entry.write_blocks) && !self.unverified.contains(&ino) {
                return Err(wrong("it lies behind what its zone was written"));
            }
        }
        if start != expected {
            return Err(wrong("it does not begin where the one before ends"));
        }
        if extent.is_hole || self.unverified.contains(&ino) {
            return Ok(());
        }
        if extent.is_fragment {
            self.read_fragment(&extent)?;
        } else if data {
            self.read_blocks(
                &extent,
                0,
                u32::try_from(extent.blocks()).unwrap_or(u32::MAX),
            )?;
            report.read_bytes += u64::from(extent.bytes);
        }
        Ok(())
    }

    fn check_zones(&self, live: &BTreeMap<u32, u64>, report: &mut Report) {
        for (zone, entry) in self.zones.iter() {
            let counted = live.get(&zone.0).copied().unwrap_or(0);
            let mut wrong =
                |reason: String| report.problems.push(format!("zone {}: {reason}", zone.0));
            if counted != u64::from(entry.live_bytes) {
                wrong(format!(
                    "{} bytes are said to live in it, {counted} do",
                    entry.live_bytes
                ));
            }
            if entry.live_bytes > 0 && matches!(entry.stage, ZoneStage::Free | ZoneStage::Dying) {
                wrong("it is to be written anew, and data live in it".into());
            }
            let is_sequential = entry.kind != ZoneKind::Random && entry.stage == ZoneStage::Open;
            if is_sequential && self.refusal.is_none() {
                let pointer = self.disk.write_pointer(zone).unwrap_or(0);
                if pointer != entry.write_blocks {
                    wrong(format!(
                        "the table says block {}, the device {pointer}",
                        entry.write_blocks
                    ));
                }
            }
        }
        // INV-S11.
        let open = self.zones.open().count();
        let open_max = self
            .disk
            .geometry()
            .open_max
            .map_or(usize::MAX, |max| max as usize);
        if open > open_max {
            report
                .problems
                .push(format!("{open} zones are open, {open_max} may be"));
        }
    }

    /// Every node of the tree is marked as used, both of its copies are good, and no other slot is used.
    fn check_nodes(&mut self, report: &mut Report) -> Result {
        let Some(root) = self.catalog.root() else {
            return Ok(());
        };
        let mut waiting = vec![root];
        while let Some(pointer) = waiting.pop() {
            report.nodes += 1;
            if !self.catalog.nodes.is_used(pointer.at) {
                report.problems.push(format!(
                    "the node at block {} is not marked as used",
                    pointer.at.0
                ));
            }
            for distance in [0, self.catalog.nodes.mirror_blocks()] {
                if let Err(error) = self.catalog.nodes.copy(&mut self.disk, pointer, distance) {
                    report.problems.push(error.to_string());
                }
            }
            let node = self.catalog.nodes.read(&mut self.disk, pointer)?;
            if node.level > 0 {
                waiting.extend(node.cells.iter().filter_map(|cell| cell.pointer().ok()));
            }
        }
        let in_use = u64::from(self.catalog.nodes.in_use());
        if in_use != report.nodes {
            let nodes = report.nodes;
            report.problems.push(format!(
                "{in_use} slots for nodes are in use, the tree has {nodes} nodes"
            ));
        }
        Ok(())
    }
}

fn check_inode(ino: Ino, links: &Links, report: &mut Report) {
    let mut wrong = |reason: String| report.problems.push(format!("inode {}: {reason}", ino.0));
    let Some(inode) = &links.inode else {
        wrong("something belongs to it, and it is not there".into());
        return;
    };
    let expected = match inode.file_type {
        FileType::Directory if links.names == 0 && ino != ROOT_INO => 0,
        FileType::Directory => 2 + links.subdirectories,
        _ => links.names,
    };
    if inode.nlink != expected {
        wrong(format!(
            "it counts {} links, there are {expected}",
            inode.nlink
        ));
    }
    if (inode.nlink == 0) != links.is_orphan {
        wrong("it has no name and is not marked for deletion, or the reverse".into());
    }
    if inode.children != links.entries || inode.children != links.orders {
        wrong(format!(
            "it counts {} entries, there are {} by name and {} by order",
            inode.children, links.entries, links.orders
        ));
    }
    let end = links.end.unwrap_or(inode.head);
    if inode.written != end {
        wrong(format!(
            "it is written up to {}, its extents end at {end}",
            inode.written
        ));
    }
    if inode.stored != links.stored {
        wrong(format!(
            "it holds {} bytes, its extents {}",
            inode.stored, links.stored
        ));
    }
}
