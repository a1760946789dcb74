// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checking that a file system contradicts itself nowhere. The tests do this after every step.

use crate::error::Result;
use crate::format::*;
use crate::fs::{extent_of, FileSystem};
use std::collections::BTreeMap;
use zoned::{Block, ZoneId, ZonedDevice};

/// Keys looked at in one go.
const KEYS_AT_ONCE: usize = 1024;

#[cfg(test)]
mod tests;

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

/// What repairs one thing.
#[derive(Clone, Debug)]
pub(crate) enum Fix {
    /// Keys are wrong.
    Batch(Vec<Change>),
    /// So much lives in a zone.
    Live(ZoneId, u32),
    /// The superblock's copy there is bad.
    Superblock(Block),
    /// A zone is written at least to this block.
    Written(ZoneId, u32),
    /// A file has no extent between two places.
    Hole(Ino, u64, u64),
    /// Something belongs to an inode that is not there.
    Adopt(Ino),
    /// An inode has no name.
    Name(Ino),
    /// So many inodes are there.
    Inodes(u64),
    /// A node's copy at this distance is bad; the key leads to the node.
    Copy(Pointer, u64, Key),
    /// These are the tree's nodes.
    Nodes(Vec<Block>),
}

/// What a check counts, and what would repair what is wrong.
type Found<'a> = (
    &'a mut BTreeMap<Ino, Links>,
    &'a mut BTreeMap<u32, u64>,
    &'a mut Vec<Fix>,
);

#[derive(Default)]
struct Links {
    inode: Option<Inode>,
    names: u32,
    /// A directory that names it.
    named_in: Option<Ino>,
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
        let (report, _) = self.check_all(data, &mut progress)?;
        Ok(report)
    }

    /// The check, and what would repair what it finds.
    pub(crate) fn check_all(
        &mut self,
        data: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Report, Vec<Fix>)> {
        let mut fixes = Vec::new();
        let mut report = Report {
            problems: self.salvaged.clone(),
            ..Report::default()
        };
        // There is always a root directory.
        let mut links = BTreeMap::from([(ROOT_INO, Links::default())]);
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        let mut from = Key::inode(Ino(0));
        let behind = Key::last();
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
                let found = (&mut links, &mut live, &mut fixes);
                if let Err(error) = self.check_cell(cell, data, found, &mut report) {
                    report.problems.push(error.to_string());
                }
            }
            progress(keys);
        }
        for (ino, links) in &links {
            check_inode(*ino, links, &mut report, &mut fixes);
        }
        if report.inodes != self.inodes {
            let (counted, known) = (report.inodes, self.inodes);
            report.problems.push(format!(
                "{known} inodes are said to be there, {counted} are"
            ));
            fixes.push(Fix::Inodes(counted));
        }
        self.check_superblocks(&mut report, &mut fixes);
        self.check_zones(&live, &mut report, &mut fixes);
        self.check_nodes(&mut report, &mut fixes)?;
        Ok((report, fixes))
    }

    fn check_cell(
        &mut self,
        cell: &Cell,
        data: bool,
        (all, live, fixes): Found,
        report: &mut Report,
    ) -> Result {
        let key = &cell.key;
        let drop_it = || Fix::Batch(vec![Change::Delete(key.clone())]);
        let damaged = |reason: &str| crate::error::Error::corrupt(format!("key {key:?}"), reason);
        let Some(ino) = key.ino() else {
            fixes.push(drop_it());
            return Err(damaged("it has no inode"));
        };
        match key.kind() {
            Some(1) => {
                report.inodes += 1;
                let inode = self.inode(ino).inspect_err(|_| fixes.push(drop_it()))?;
                if inode.file_type == FileType::Directory && ino != ROOT_INO && inode.nlink > 0 {
                    all.entry(inode.parent).or_default().subdirectories += 1;
                }
                all.entry(ino).or_default().inode = Some(inode);
            }
            Some(3) => {
                report.names += 1;
                let entry = Dirent::decode_name(key, &cell.value).map_err(|reason| {
                    fixes.push(drop_it());
                    damaged(reason.0)
                })?;
                let order = Key::order(ino, entry.id);
                let is_lost = self.get(&Key::inode(entry.ino))?.is_none();
                if is_lost && self.adopted(entry.ino)?.is_none() {
                    let both = [key.clone(), order].map(Change::Delete);
                    fixes.push(Fix::Batch(both.into()));
                    all.entry(ino).or_default().entries += 1;
                    return Err(damaged("what it names is not there"));
                }
                all.entry(ino).or_default().entries += 1;
                let named = all.entry(entry.ino).or_default();
                (named.names, named.named_in) = (named.names + 1, Some(ino));
                if self.get(&order)? != Some(entry.encode_order()) {
                    let put = Change::Put(order, entry.encode_order());
                    fixes.push(Fix::Batch(vec![put]));
                    return Err(damaged(
                        "its place in the directory's order does not name it",
                    ));
                }
            }
            Some(4) => {
                all.entry(ino).or_default().orders += 1;
                let entry = Dirent::decode_order(key, &cell.value).ok();
                let name = match &entry {
                    Some(entry) => self.get(&Key::name(ino, &entry.name))?,
                    None => None,
                };
                if name.is_none() || name != entry.map(|entry| entry.encode_name()) {
                    fixes.push(drop_it());
                    return Err(damaged("no name is at this place of the order"));
                }
            }
            Some(5) => {
                report.extents += 1;
                let links = all.entry(ino).or_default();
                self.check_extent(ino, cell, data, (links, live, fixes), report)?;
            }
            Some(7) => {
                let Some(orphan) = key.number() else {
                    fixes.push(drop_it());
                    return Err(damaged("it names no inode"));
                };
                all.entry(Ino(orphan)).or_default().is_orphan = true;
            }
            Some(8) => {
                let number = key.number().unwrap_or(0);
                let attribute = Key::xattr(Ino(number), crate::retain::RETAIN_ATTRIBUTE);
                if self.get(&attribute)?.is_none() {
                    fixes.push(drop_it());
                    return Err(damaged("the inode has no retention"));
                }
            }
            Some(2 | 6 | 9) => {}
            _ => {
                fixes.push(drop_it());
                return Err(damaged("it is of no known kind"));
            }
        }
        Ok(())
    }

    /// INV-S10, and the sums of INV-S12.
    fn check_extent(
        &mut self,
        ino: Ino,
        cell: &Cell,
        data: bool,
        (links, live, fixes): (&mut Links, &mut BTreeMap<u32, u64>, &mut Vec<Fix>),
        report: &mut Report,
    ) -> Result {
        let drop_it = || Fix::Batch(vec![Change::Delete(cell.key.clone())]);
        let (logical, extent) = extent_of(cell).inspect_err(|_| fixes.push(drop_it()))?;
        let start = logical.saturating_mul(BLOCK as u64);
        let end = start.saturating_add(u64::from(extent.bytes));
        let wrong = |reason: &str| crate::error::Error::corrupt(format!("{:?}", cell.key), reason);
        if end > FILE_BYTES_MAX {
            fixes.push(drop_it());
            return Err(wrong("it lies behind where a file can end"));
        }
        if links.fragment_at.is_some() {
            fixes.push(drop_it());
            return Err(wrong("an extent follows a fragment"));
        }
        let head = links.inode.as_ref().map_or(0, |inode| inode.head);
        let expected = links.end.unwrap_or(head);
        if start < expected {
            fixes.push(drop_it());
            return Err(wrong("it begins before the one before ends"));
        }
        if start > expected {
            fixes.push(Fix::Hole(ino, expected, start));
        }
        links.end = Some(end);
        links.fragment_at = extent.is_fragment.then_some(start);
        links.stored += extent.stored();
        if !extent.is_hole {
            *live.entry(extent.zone.0).or_default() += u64::from(extent.bytes);
            let entry = self.zones.get(extent.zone).copied();
            let entry = entry.inspect_err(|_| fixes.push(drop_it()))?;
            let end = (extent.offset + u64::from(extent.bytes)).div_ceil(BLOCK as u64);
            if end > u64::from(entry.write_blocks) && !self.unverified.contains(&ino) {
                // The account may be wrong: what is there, with its checksums, was written.
                let blocks = u32::try_from(extent.blocks()).unwrap_or(u32::MAX);
                let read = match extent.is_fragment {
                    true => self.read_fragment(&extent).map(drop),
                    false => self.read_blocks(&extent, 0, blocks).map(drop),
                };
                if let (Ok(()), Ok(end)) = (read, u32::try_from(end)) {
                    fixes.push(Fix::Written(extent.zone, end));
                    return Err(wrong("its zone is said to be written less far"));
                }
                fixes.push(drop_it());
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

    fn check_superblocks(&mut self, report: &mut Report, fixes: &mut Vec<Fix>) {
        for at in [0, self.superblock.mirror_blocks].map(zoned::Block) {
            let mut block = vec![0; BLOCK];
            let read = self.disk.read(at, &mut block);
            if read.is_err() || Superblock::decode(&block).as_ref() != Ok(&self.superblock) {
                let problem = format!("the copy of the superblock at block {} is bad", at.0);
                report.problems.push(problem);
                fixes.push(Fix::Superblock(at));
            }
        }
    }

    fn check_zones(&self, live: &BTreeMap<u32, u64>, report: &mut Report, fixes: &mut Vec<Fix>) {
        for (zone, entry) in self.zones.iter() {
            let counted = live.get(&zone.0).copied().unwrap_or(0);
            let mut wrong =
                |reason: String| report.problems.push(format!("zone {}: {reason}", zone.0));
            if counted != u64::from(entry.live_bytes) {
                fixes.push(Fix::Live(zone, u32::try_from(counted).unwrap_or(u32::MAX)));
                wrong(format!(
                    "{} bytes are said to live in it, {counted} do",
                    entry.live_bytes
                ));
            }
            if zone == self.log.at.zone && entry.write_blocks != self.log.at.block {
                fixes.push(Fix::Written(zone, entry.write_blocks));
                wrong(format!(
                    "it is said to be written up to block {}, the log goes on at block {}",
                    entry.write_blocks, self.log.at.block
                ));
            }
            if counted > 0 && matches!(entry.stage, ZoneStage::Free | ZoneStage::Dying) {
                wrong("it is to be written anew, and data live in it".into());
            }
            let is_sequential = entry.kind != ZoneKind::Random && entry.stage == ZoneStage::Open;
            if is_sequential && self.disk.refusal().is_none() {
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
        let open_max = self.open_max().map_or(usize::MAX, |max| max as usize);
        if open > open_max {
            report
                .problems
                .push(format!("{open} zones are open, {open_max} may be"));
        }
    }

    /// Every node of the tree is marked as used, both of its copies are good, and no other slot is used.
    fn check_nodes(&mut self, report: &mut Report, fixes: &mut Vec<Fix>) -> Result {
        let Some(root) = self.catalog.root() else {
            return Ok(());
        };
        let mut waiting = vec![(root, Key::default())];
        let mut used = Vec::new();
        while let Some((pointer, key)) = waiting.pop() {
            report.nodes += 1;
            used.push(pointer.at);
            if !self.catalog.nodes.is_used(pointer.at) {
                report.problems.push(format!(
                    "the node at block {} is not marked as used",
                    pointer.at.0
                ));
            }
            for distance in [0, self.catalog.nodes.mirror_blocks()] {
                if let Err(error) = self.catalog.nodes.copy(&mut self.disk, pointer, distance) {
                    report.problems.push(error.to_string());
                    fixes.push(Fix::Copy(pointer, distance, key.clone()));
                }
            }
            let node = self.catalog.nodes.read(&mut self.disk, pointer)?;
            if node.level > 0 {
                let child = |cell: &Cell| Some((cell.pointer().ok()?, cell.key.clone()));
                waiting.extend(node.cells.iter().filter_map(child));
            }
        }
        report
            .problems
            .extend(self.catalog.nodes.out_of_order(&self.disk));
        let is_known = |at: &zoned::Block| self.catalog.nodes.is_used(*at);
        let in_use = u64::from(self.catalog.nodes.in_use());
        if in_use != report.nodes || !used.iter().all(is_known) {
            fixes.push(Fix::Nodes(used));
        }
        if in_use != report.nodes {
            let nodes = report.nodes;
            report.problems.push(format!(
                "{in_use} slots for nodes are in use, the tree has {nodes} nodes"
            ));
        }
        Ok(())
    }
}

fn check_inode(ino: Ino, links: &Links, report: &mut Report, fixes: &mut Vec<Fix>) {
    let problems = report.problems.len();
    let mut wrong = |reason: String| report.problems.push(format!("inode {}: {reason}", ino.0));
    let Some(inode) = &links.inode else {
        wrong("something belongs to it, and it is not there".into());
        fixes.push(Fix::Adopt(ino));
        return;
    };
    let mut right = inode.clone();
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
    let is_directory = inode.file_type == FileType::Directory && ino != ROOT_INO;
    let named_in = links.named_in.filter(|_| is_directory);
    if let Some(parent) = named_in.filter(|parent| *parent != inode.parent) {
        let (said, by) = (inode.parent.0, parent.0);
        wrong(format!(
            "its parent is said to be {said}, and {by} names it"
        ));
        right.parent = parent;
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
    if report.problems.len() == problems {
        return;
    }
    right.nlink = expected;
    right.children = links.entries;
    (right.written, right.stored) = (end.max(right.head), links.stored);
    right.size = right.size.max(right.written);
    let is_lost = links.names == 0 && ino != ROOT_INO && !links.is_orphan;
    let mark = match (right.nlink == 0 && !is_lost, links.is_orphan) {
        (true, false) => Some(Change::Put(Key::orphan(ino), Vec::new())),
        (false, true) => Some(Change::Delete(Key::orphan(ino))),
        _ => None,
    };
    let batch = [Change::Put(Key::inode(ino), right.encode())];
    fixes.push(Fix::Batch(batch.into_iter().chain(mark).collect()));
    if is_lost {
        fixes.push(Fix::Name(ino));
    }
}
