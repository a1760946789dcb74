// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes of the catalog's tree. Two copies, one checksum, which the parent holds.

use super::{Damage, Key, Reader, Short, Uuid, Writer};
use zoned::Block;

const MAGIC: &[u8; 8] = b"SAFSND01";
/// Bytes of a node.
pub const NODE_BYTES: usize = 16384;
/// Bytes before a node's cells.
const HEAD_BYTES: usize = 40;
/// Bytes that the cells of a node may take, each with the four of its lengths.
pub const NODE_CELLS_BYTES: usize = NODE_BYTES - HEAD_BYTES;
/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 16;

/// Leads to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The first copy's block; the second is a mirror's distance behind.
    pub at: Block,
    /// CRC-32C of the node, the same for both copies.
    pub crc: u32,
    /// 0 for leaves. One less than the level of the node that holds the pointer, so no cycle can be.
    pub level: u8,
}

impl Pointer {
    /// Its bytes.
    pub fn encode(self) -> [u8; POINTER_BYTES] {
        let fields = Writer::new().u64(self.at.0).u32(self.crc).u8(self.level);
        let bytes = fields.padded(POINTER_BYTES);
        bytes.try_into().expect("the fields are 16 bytes")
    }

    /// Reads a pointer; block 0 is none.
    pub fn decode(bytes: &[u8; POINTER_BYTES]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let pointer = Pointer {
            at: Block(from.u64().ok()?),
            crc: from.u32().ok()?,
            level: from.u8().ok()?,
        };
        (pointer.at.0 != 0).then_some(pointer)
    }
}

/// A key with its value; in inner nodes the value is a pointer, and the key is the first below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Cell {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Short,
}

// Derived, it would copy byte by byte: a root record copies millions.
impl Clone for Cell {
    fn clone(&self) -> Self {
        Cell {
            key: Key(Short::from_slice(&self.key.0)),
            value: Short::from_slice(&self.value),
        }
    }
}

impl Cell {
    /// Bytes that it takes in a node.
    pub fn bytes(&self) -> usize {
        4 + self.key.0.len() + self.value.len()
    }

    /// The pointer of an inner node's cell.
    pub fn pointer(&self) -> Result<Pointer, Damage> {
        let bytes = self.value.as_slice().try_into();
        let bytes = bytes.map_err(|_| Damage("an inner node's value is no pointer"))?;
        Pointer::decode(bytes).ok_or(Damage("an inner node's pointer is none"))
    }
}

/// A node: cells in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// 0 for leaves.
    pub level: u8,
    /// Its cells, at least one.
    pub cells: Vec<Cell>,
}

impl Node {
    /// Its bytes and their checksum. `root_seq` is the root record that it is written for.
    pub fn encode(&self, uuid: &Uuid, root_seq: u64, at: Block) -> (Vec<u8>, u32) {
        let used: usize = self.cells.iter().map(Cell::bytes).sum();
        debug_assert!(used <= NODE_CELLS_BYTES && !self.cells.is_empty());
        let mut fields = Writer::with_capacity(NODE_BYTES)
            .bytes(MAGIC)
            .u8(self.level)
            .u8(0)
            .u16(u16::try_from(self.cells.len()).expect("a cell takes more than a byte"))
            .u32(u32::try_from(used).expect("a node is smaller than 4 GiB"))
            .bytes(&uuid[..8])
            .u64(root_seq)
            .u64(at.0);
        for cell in &self.cells {
            let lengths = [cell.key.0.len(), cell.value.len()];
            for length in lengths {
                fields = fields.u16(u16::try_from(length).expect("a cell fits into a node"));
            }
            fields = fields.bytes(&cell.key.0).bytes(&cell.value);
        }
        let bytes = fields.padded(NODE_BYTES);
        let crc = crc32c::crc32c(&bytes);
        (bytes, crc)
    }

    /// Checks bytes against the pointer that led to them, and reads them.
    pub fn decode(bytes: &[u8], uuid: &Uuid, pointer: Pointer) -> Result<Self, Damage> {
        if bytes.len() != NODE_BYTES || crc32c::crc32c(bytes) != pointer.crc {
            return Err(Damage("its checksum is not the one that its parent holds"));
        }
        let mut from = Reader::new(bytes);
        if from.bytes(8)? != MAGIC {
            return Err(Damage("it is no node"));
        }
        let level = from.u8()?;
        from.u8()?;
        let count = from.u16()?;
        let used = from.u32()? as usize;
        if level != pointer.level {
            return Err(Damage("its level is not the one that its parent holds"));
        }
        if from.bytes(8)? != &uuid[..8] {
            return Err(Damage("it belongs to another file system"));
        }
        from.u64()?;
        if from.u64()? != pointer.at.0 {
            return Err(Damage("it belongs to another place"));
        }
        let mut from = Reader::new(from.bytes(used)?);
        let mut cells: Vec<Cell> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (key, value) = (usize::from(from.u16()?), usize::from(from.u16()?));
            let cell = Cell {
                key: Key(Short::from_slice(from.bytes(key)?)),
                value: Short::from_slice(from.bytes(value)?),
            };
            if cells.last().is_some_and(|last| last.key >= cell.key) {
                return Err(Damage("its keys are out of order"));
            }
            cells.push(cell);
        }
        if cells.is_empty() || from.left() != 0 {
            return Err(Damage("its count of cells is wrong"));
        }
        Ok(Node { level, cells })
    }
}
