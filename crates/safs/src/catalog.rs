// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one index of everything: a tree on the disk, and over it the changes since its root record.
//!
//! INV-S6: the file system is the tree of the root record and the batches of the log behind it, in order. At run time and
//! after recovery this is the same structure.

use crate::disk::Disk;
use crate::error::Result;
use crate::format::{Cell, Key, Pointer, NODE_BYTES};
use crate::node_store::{NodeStore, RESERVE_NODES};
use crate::tree::{self, Changes};
use std::collections::BTreeSet;
use zoned::{Block, ZonedDevice};

/// What a key and its value take in memory besides their bytes, about.
const ENTRY_BYTES: usize = 96;
/// What a key that is still to come will add to the same sum: an extent or an inode.
const KEY_BYTES: usize = ENTRY_BYTES + 96;

/// Places in the catalog at which a deletion's keys lie, at most: two directories' inodes, a name, an order, an orphan, the
/// inode with its attributes, and extents, which are the file's last and lie side by side.
const PLACES_OF_A_DELETION: u32 = 8;

/// A node that cannot be read, and the keys that are below it.
#[derive(Clone, Debug)]
pub(crate) struct LostNode {
    pub pointer: Pointer,
    pub from: Key,
    /// The first key that is not.
    pub to: Option<Key>,
}

impl LostNode {
    pub fn holds(&self, key: &Key) -> bool {
        *key >= self.from && self.to.as_ref().is_none_or(|to| key < to)
    }
}

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct Catalog {
    /// The tree's nodes.
    pub nodes: NodeStore,
    root: Option<Pointer>,
    overlay: Changes,
    overlay_bytes: usize,
    /// Keys whose nodes are to be written elsewhere.
    touched: BTreeSet<Key>,
}

impl Catalog {
    /// The catalog of a root record.
    pub fn new(nodes: NodeStore, root: Option<Pointer>) -> Self {
        Catalog {
            nodes,
            root,
            overlay: Changes::new(),
            overlay_bytes: 0,
            touched: BTreeSet::new(),
        }
    }

    /// With the next root record the nodes that lead to a key are elsewhere.
    pub fn touch(&mut self, key: Key) {
        self.touched.insert(key);
    }

    /// The tree's root.
    pub fn root(&self) -> Option<Pointer> {
        self.root
    }

    /// Bytes that the changes since the root record take in memory, about.
    pub fn changed_bytes(&self) -> usize {
        self.overlay_bytes
    }

    /// A key is about to change: its leaf is read now and kept, so that the root record need not read it.
    pub fn keep_leaf<D: ZonedDevice>(&mut self, disk: &mut Disk<D>, key: &Key) -> Result {
        match self.overlay.contains_key(key) {
            true => Ok(()),
            false => tree::keep(&mut self.nodes, disk, self.root, key),
        }
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.change(key, Some(value));
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Key) {
        self.change(key, None);
    }

    fn change(&mut self, key: Key, value: Option<Vec<u8>>) {
        let weight = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        let key_bytes = key.0.len();
        self.overlay_bytes += weight(&value) + key_bytes + ENTRY_BYTES;
        if let Some(old) = self.overlay.insert(key, value) {
            self.overlay_bytes -= weight(&old) + key_bytes + ENTRY_BYTES;
        }
    }

    /// The value of a key.
    pub fn get<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        key: &Key,
    ) -> Result<Option<Vec<u8>>> {
        match self.overlay.get(key) {
            Some(value) => Ok(value.clone()),
            None => tree::get(&mut self.nodes, disk, self.root, key),
        }
    }

    /// The last key that is not before `low` and not behind `high`.
    pub fn floor<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        low: &Key,
        high: &Key,
    ) -> Result<Option<Cell>> {
        let in_overlay = self.overlay.range(low.clone()..=high.clone()).rev();
        let newest = in_overlay.into_iter().find(|(_, value)| value.is_some());
        let newest = newest.map(|(key, value)| Cell {
            key: key.clone(),
            value: value.as_deref().unwrap_or_default().into(),
        });
        let mut high = high.clone();
        loop {
            let in_tree = tree::floor(&mut self.nodes, disk, self.root, &high)?;
            let Some(in_tree) = in_tree.filter(|cell| cell.key >= *low) else {
                return Ok(newest);
            };
            if newest
                .as_ref()
                .is_some_and(|newest| newest.key >= in_tree.key)
            {
                return Ok(newest);
            }
            if !self.overlay.contains_key(&in_tree.key) {
                return Ok(Some(in_tree));
            }
            // The overlay says that this one is gone: look before it.
            match before(&in_tree.key) {
                Some(key) => high = key,
                None => return Ok(newest),
            }
        }
    }

    /// Up to `limit` keys from `from` on, before `to`.
    pub fn scan<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        from: &Key,
        to: &Key,
        limit: usize,
    ) -> Result<Vec<Cell>> {
        let mut found = Vec::new();
        let mut from = from.clone();
        while found.len() < limit && from < *to {
            let wanted = limit - found.len();
            let in_tree = tree::scan(&mut self.nodes, disk, self.root, (&from, to), wanted)?;
            // Behind the last cell of a full answer the tree may have more: the overlay counts only up to there.
            let end = match in_tree.last() {
                Some(last) if in_tree.len() == wanted => behind(&last.key),
                _ => to.clone(),
            };
            let mut changed = self.overlay.range(from..end.clone()).peekable();
            for cell in in_tree {
                while let Some((key, value)) = changed.next_if(|(key, _)| **key < cell.key) {
                    found.extend(some(key, value));
                }
                match changed.next_if(|(key, _)| **key == cell.key) {
                    Some((key, value)) => found.extend(some(key, value)),
                    None => found.push(cell),
                }
            }
            found.extend(changed.filter_map(|(key, value)| some(key, value)));
            from = end;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Reads all nodes: those that are lost in both copies, and the places of the others.
    pub fn look<D: ZonedDevice>(&mut self, disk: &mut Disk<D>) -> (Vec<LostNode>, BTreeSet<Block>) {
        let (mut lost, mut reached) = (Vec::new(), BTreeSet::new());
        let root = self.root.map(|pointer| LostNode {
            pointer,
            from: Key::default(),
            to: None,
        });
        let mut waiting: Vec<LostNode> = root.into_iter().collect();
        while let Some(node) = waiting.pop() {
            let Ok(read) = self.nodes.read(disk, node.pointer) else {
                lost.push(node);
                continue;
            };
            reached.insert(node.pointer.at);
            if read.level == 0 {
                continue;
            }
            for (i, cell) in read.cells.iter().enumerate() {
                let Ok(pointer) = cell.pointer() else {
                    continue;
                };
                let next = read.cells.get(i + 1).map(|next| next.key.clone());
                waiting.push(LostNode {
                    pointer,
                    from: if i == 0 {
                        node.from.clone()
                    } else {
                        cell.key.clone()
                    },
                    to: next.or_else(|| node.to.clone()),
                });
            }
        }
        (lost, reached)
    }

    /// From now on nothing is below these nodes, and with the next root record they are gone. What only they led to keeps its
    /// place until then, if there is room for the new nodes beside it.
    pub fn lose(&mut self, lost: &[LostNode], reached: &BTreeSet<Block>) {
        for node in lost {
            self.nodes.lose(node.pointer);
            self.touch(node.from.clone());
        }
        if self.nodes.free() < self.nodes_needed() {
            let lost = lost.iter().map(|lost| lost.pointer.at);
            let kept: Vec<Block> = reached.iter().copied().chain(lost).collect();
            self.nodes.set_used(&kept);
        }
    }

    /// Nodes that the next root record may have to write, at most; what one more change may add is in it.
    pub fn nodes_needed(&self) -> u32 {
        self.nodes_needed_with(0)
    }

    /// The same if so many keys change besides.
    pub fn nodes_needed_with(&self, more: usize) -> u32 {
        let depth = self.root.map_or(1, |root| u32::from(root.level) + 2);
        let keys = u32::try_from(self.overlay.len() + more + 1).unwrap_or(u32::MAX);
        let all = (self.nodes.in_use() + depth + 1).saturating_add(self.growth(more));
        all.min(keys.saturating_mul(depth))
    }

    /// Nodes by which the tree may grow, about, if so many keys change besides.
    pub fn growth(&self, more: usize) -> u32 {
        let bytes = self.overlay_bytes + more * KEY_BYTES;
        u32::try_from(bytes / (NODE_BYTES / 4)).unwrap_or(u32::MAX)
    }

    /// Merges the overlay into the tree and writes the new nodes. The overlay stays until `settle`.
    pub fn commit<D: ZonedDevice>(&mut self, disk: &mut Disk<D>, root_seq: u64) -> Result {
        let before = self.nodes.before();
        let cleaned = self.keys_to_clean(disk);
        if !cleaned.is_empty() {
            let all = cleaned.union(&self.touched).cloned().collect();
            if self.merge(disk, &all, root_seq).is_ok() {
                return Ok(());
            }
            // Cleaning can wait, the root record cannot.
            self.nodes.go_back(&before);
        }
        let touched = self.touched.clone();
        let result = self.merge(disk, &touched, root_seq);
        if result.is_err() {
            self.nodes.go_back(&before);
        }
        result
    }

    fn merge<D: ZonedDevice>(
        &mut self,
        disk: &mut Disk<D>,
        touched: &BTreeSet<Key>,
        root_seq: u64,
    ) -> Result {
        let changes = (&self.overlay, touched);
        let root = tree::merge(&mut self.nodes, disk, self.root, changes, root_seq)?;
        self.nodes.write(disk)?;
        self.root = root;
        Ok(())
    }

    /// Keys that lead to the nodes of zones that are to become empty. Inner nodes are read to find them; a node that cannot
    /// be read stays where it is.
    fn keys_to_clean<D: ZonedDevice>(&mut self, disk: &mut Disk<D>) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        let zones = self.nodes.victims(self.nodes_needed());
        let root = self.root.filter(|_| !zones.is_empty());
        let mut waiting: Vec<(Pointer, Key)> = root
            .map(|root| (root, Key::default()))
            .into_iter()
            .collect();
        while let Some((pointer, key)) = waiting.pop() {
            let zone = self.nodes.zone_of(pointer);
            let is_victim = zone.is_some_and(|zone| zones.contains(&zone));
            if pointer.level == 0 && !is_victim {
                continue;
            }
            let Ok(node) = self.nodes.read(disk, pointer) else {
                continue;
            };
            if is_victim {
                keys.insert(key);
            }
            if node.level > 0 {
                let below = |cell: &Cell| {
                    let below = cell.pointer().ok()?;
                    (below.level + 1 == node.level).then(|| (below, cell.key.clone()))
                };
                waiting.extend(node.cells.iter().filter_map(below));
            }
        }
        keys
    }

    /// Nodes that the root record of one deletion may have to write, at most, when the tree has grown by so many: nodes that
    /// lead to its places, and the neighbours that they are joined with.
    pub fn deletion_nodes(&self, growth: u32) -> u32 {
        if self.nodes.reserve(true) > 0 {
            // Whole zones are kept for deletions, and half of all slots are empty.
            return RESERVE_NODES;
        }
        let depth = self.root.map_or(1, |root| u32::from(root.level) + 2);
        let all = (self.nodes.in_use() + depth + 1).saturating_add(growth);
        all.min(PLACES_OF_A_DELETION * (2 * depth + 1))
    }

    /// Whether a root record would change anything for the better: merge what waits, or clean.
    pub fn can_settle(&self) -> bool {
        !self.overlay.is_empty() || !self.nodes.victims(self.nodes_needed()).is_empty()
    }

    /// The root record is durable.
    pub fn settle(&mut self) {
        self.overlay.clear();
        self.overlay_bytes = 0;
        self.touched.clear();
        self.nodes.settle();
    }
}

fn some(key: &Key, value: &Option<Vec<u8>>) -> Option<Cell> {
    let value = value.as_deref()?.into();
    Some(Cell {
        key: key.clone(),
        value,
    })
}

/// The first key behind `key`.
fn behind(key: &Key) -> Key {
    let mut bytes = key.0.clone();
    bytes.push(0);
    Key(bytes)
}

/// A key before `key`, and before no other that matters: keys that are extended from a shorter one are never looked for
/// backwards, and of extents all have one length.
fn before(key: &Key) -> Option<Key> {
    let mut bytes = key.0.clone();
    let last = bytes.iter().rposition(|byte| *byte != 0)?;
    bytes[last] -= 1;
    bytes[last + 1..].fill(0xff);
    Some(Key(bytes))
}
