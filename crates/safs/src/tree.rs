// SPDX-License-Identifier: MIT OR Apache-2.0
//! The catalog's tree: a B+-tree whose nodes are never changed. A root record's changes are merged into it in one pass in
//! key order; the nodes on their way are written anew elsewhere, and the old ones are free once the record is durable.

use crate::disk::Disk;
use crate::error::{At, Error, Result};
use crate::format::{Cell, Key, Node, Pointer, NODE_CELLS_BYTES};
use crate::node_store::NodeStore;
use std::collections::{BTreeMap, BTreeSet};
use zoned::ZonedDevice;

/// New values; none for what is gone.
pub type Changes = BTreeMap<Key, Option<Vec<u8>>>;

/// A node that is less full takes its right neighbour in.
const SPARSE_BYTES: usize = NODE_CELLS_BYTES / 4;

/// A key's new value; or none, if only the nodes on its way are to be written anew.
type Change<'a> = (&'a Key, Option<&'a Option<Vec<u8>>>);

fn place(pointer: Pointer) -> String {
    format!("the catalog's node at block {}", pointer.at.0)
}

/// The child whose keys `key` is among; keys before the first belong to the first.
fn child(cells: &[Cell], key: &Key) -> usize {
    cells
        .partition_point(|cell| cell.key <= *key)
        .saturating_sub(1)
}

/// The value of a key.
pub fn get<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    root: Option<Pointer>,
    key: &Key,
) -> Result<Option<Vec<u8>>> {
    let found = floor(nodes, disk, root, key)?;
    Ok(found
        .filter(|cell| cell.key == *key)
        .map(|cell| cell.value.into_vec()))
}

/// The last cell that is not behind `key`.
pub fn floor<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    root: Option<Pointer>,
    key: &Key,
) -> Result<Option<Cell>> {
    let Some(mut pointer) = root else {
        return Ok(None);
    };
    loop {
        let node = nodes.read(disk, pointer)?;
        if node.level == 0 {
            let behind = node.cells.partition_point(|cell| cell.key <= *key);
            return Ok(behind.checked_sub(1).map(|at| node.cells[at].clone()));
        }
        pointer = below(pointer, &node.cells[child(&node.cells, key)])?;
    }
}

/// Keeps the leaf that `key` belongs to.
pub fn keep<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    root: Option<Pointer>,
    key: &Key,
) -> Result {
    let Some(mut pointer) = root else {
        return Ok(());
    };
    loop {
        let node = nodes.read(disk, pointer)?;
        if node.level == 0 {
            nodes.keep(pointer, node);
            return Ok(());
        }
        pointer = below(pointer, &node.cells[child(&node.cells, key)])?;
    }
}

/// A child's pointer; its level is one less, so that damage cannot lead in a circle.
fn below(parent: Pointer, cell: &Cell) -> Result<Pointer> {
    let pointer = cell.pointer().at(|| place(parent))?;
    if pointer.level + 1 != parent.level {
        return Err(Error::corrupt(
            place(parent),
            "a child's level is not one less",
        ));
    }
    Ok(pointer)
}

/// Up to `limit` cells from `from` on, before `to`.
pub fn scan<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    root: Option<Pointer>,
    (from, to): (&Key, &Key),
    limit: usize,
) -> Result<Vec<Cell>> {
    let mut found = Vec::new();
    if let Some(root) = root {
        scan_below(nodes, disk, root, (from, to), limit, &mut found)?;
    }
    Ok(found)
}

fn scan_below<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    pointer: Pointer,
    (from, to): (&Key, &Key),
    limit: usize,
    found: &mut Vec<Cell>,
) -> Result {
    let node = nodes.read(disk, pointer)?;
    if node.level == 0 {
        let first = node.cells.partition_point(|cell| cell.key < *from);
        let wanted = node.cells[first..].iter().take_while(|cell| cell.key < *to);
        found.extend(wanted.take(limit - found.len()).cloned());
        return Ok(());
    }
    for cell in &node.cells[child(&node.cells, from)..] {
        if cell.key >= *to || found.len() >= limit {
            break;
        }
        scan_below(nodes, disk, below(pointer, cell)?, (from, to), limit, found)?;
    }
    Ok(())
}

/// Merges changes into the tree; what leads to `touched` keys is written anew, too. Returns the new root; its nodes wait in
/// the store to be written.
pub fn merge<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    root: Option<Pointer>,
    (changes, touched): (&Changes, &BTreeSet<Key>),
    root_seq: u64,
) -> Result<Option<Pointer>> {
    if changes.is_empty() && touched.is_empty() {
        return Ok(root);
    }
    let unchanged = touched.iter().filter(|key| !changes.contains_key(*key));
    let unchanged = unchanged.map(|key| (key, None));
    let changed = changes.iter().map(|(key, value)| (key, Some(value)));
    let mut changes: Vec<Change> = changed.chain(unchanged).collect();
    if !touched.is_empty() {
        changes.sort_unstable_by_key(|(key, _)| *key);
    }
    let (mut cells, mut level) = match root {
        Some(root) => (rewrite(nodes, disk, root, &changes, root_seq)?, root.level),
        None => (merged(&[], &changes), 0),
    };
    // A root with one child is none: go down to where there are more.
    while level > 0 && cells.len() == 1 {
        let pointer = cells[0].pointer().at(|| "the catalog's root".into())?;
        if pointer.level == 0 {
            return Ok(Some(pointer));
        }
        cells = nodes.read(disk, pointer)?.cells.clone();
        nodes.release(pointer);
        level = pointer.level;
    }
    if cells.is_empty() {
        return Ok(None);
    }
    loop {
        cells = pack(nodes, cells, level, root_seq)?;
        if cells.len() == 1 {
            return Ok(Some(cells[0].pointer().at(|| "the catalog's root".into())?));
        }
        level = level.checked_add(1).ok_or(Error::NoSpace)?;
    }
}

/// The cells that a node will have after the changes. The node itself is released; its cells are packed by the caller,
/// who knows its neighbours.
fn rewrite<D: ZonedDevice>(
    nodes: &mut NodeStore,
    disk: &mut Disk<D>,
    pointer: Pointer,
    changes: &[Change],
    root_seq: u64,
) -> Result<Vec<Cell>> {
    let node = nodes.read(disk, pointer)?;
    nodes.release(pointer);
    if node.level == 0 {
        let mut cells = merged(&node.cells, changes);
        // A lost node counts as an empty leaf wherever it was; those beside it are as high as it was.
        for level in 0..pointer.level {
            cells = pack(nodes, cells, level, root_seq)?;
        }
        return Ok(cells);
    }
    let mut out: Vec<Cell> = Vec::with_capacity(node.cells.len());
    // Cells of children that were changed, not packed yet.
    let mut loose: Vec<Cell> = Vec::new();
    let mut rest = changes;
    for (i, cell) in node.cells.iter().enumerate() {
        let mine = match node.cells.get(i + 1) {
            Some(next) => rest.partition_point(|(key, _)| **key < next.key),
            None => rest.len(),
        };
        let (mine, others) = rest.split_at(mine);
        rest = others;
        let loose_bytes: usize = loose.iter().map(Cell::bytes).sum();
        let below = below(pointer, cell)?;
        if !mine.is_empty() {
            nodes.write_early(disk)?;
            loose.extend(rewrite(nodes, disk, below, mine, root_seq)?);
        } else if (1..SPARSE_BYTES).contains(&loose_bytes) {
            loose.extend(nodes.read(disk, below)?.cells.iter().cloned());
            nodes.release(below);
        } else {
            out.extend(pack(
                nodes,
                std::mem::take(&mut loose),
                node.level - 1,
                root_seq,
            )?);
            out.push(cell.clone());
        }
    }
    out.extend(pack(nodes, loose, node.level - 1, root_seq)?);
    Ok(out)
}

/// Old cells with the changes.
fn merged(cells: &[Cell], changes: &[Change]) -> Vec<Cell> {
    let mut out = Vec::with_capacity(cells.len() + changes.len());
    let mut old = cells.iter().peekable();
    for (key, value) in changes {
        while let Some(cell) = old.next_if(|cell| cell.key < **key) {
            out.push(cell.clone());
        }
        let Some(value) = value else {
            continue;
        };
        old.next_if(|cell| cell.key == **key);
        if let Some(value) = value {
            let (key, value) = ((*key).clone(), value.as_slice().into());
            out.push(Cell { key, value });
        }
    }
    out.extend(old.cloned());
    out
}

/// Makes nodes of cells, about equally full, and answers with the cells that lead to them.
fn pack(nodes: &mut NodeStore, cells: Vec<Cell>, level: u8, root_seq: u64) -> Result<Vec<Cell>> {
    let total: usize = cells.iter().map(Cell::bytes).sum();
    let pieces = total.div_ceil(NODE_CELLS_BYTES);
    let mut leading = Vec::with_capacity(pieces);
    let share = total / pieces.max(1);
    let count = cells.len() / pieces.max(1) + 1;
    let (mut piece, mut bytes) = (Vec::with_capacity(count), 0);
    for cell in cells {
        if bytes > 0 && (bytes >= share || bytes + cell.bytes() > NODE_CELLS_BYTES) {
            let full = std::mem::replace(&mut piece, Vec::with_capacity(count));
            leading.push(lead(nodes, full, level, root_seq)?);
            bytes = 0;
        }
        bytes += cell.bytes();
        piece.push(cell);
    }
    if !piece.is_empty() {
        leading.push(lead(nodes, piece, level, root_seq)?);
    }
    Ok(leading)
}

fn lead(nodes: &mut NodeStore, cells: Vec<Cell>, level: u8, root_seq: u64) -> Result<Cell> {
    let key = cells[0].key.clone();
    let pointer = nodes.add(Node { level, cells }, root_seq)?;
    let value = pointer.encode().as_slice().into();
    Ok(Cell { key, value })
}
