// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What the host has written: a value for each 4 KiB block, in as little memory as its bytes allow.
//!
//! Most blocks of a benchmark are one word repeated, and most metadata blocks are nearly empty. So a block is zero (it
//! costs nothing), a repeated word, or the set of its 64-byte lines that are not zero. Blocks are grouped in leaves of
//! 2 MiB; a leaf without anything in it does not exist.
//!
//! A drive file's leaves stay in the file until they are touched, and their lines until they are overwritten: opening a
//! file costs its index, not its contents.

mod arena;
mod leaf;
mod pack;
mod packed;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use arena::{Arena, LINE_BYTES};
use leaf::{leaf_of, word_at, Kind, Leaf, Slot, NODE_LEAVES};
use zoned::{Block, BlockRange, BLOCK_BYTES};

pub use leaf::{Damaged, Value, LEAF_BLOCKS};
pub use packed::{IndexEntry, INDEX_ENTRY_BYTES};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// One word, repeated.
    pub words: u64,
    /// Line by line.
    pub lines: u64,
}

/// The contents of a drive.
#[derive(Default)]
pub struct Contents {
    root: Vec<Option<Box<[Slot]>>>,
    arena: Arena,
    index: Vec<IndexEntry>,
    packed: &'static [u8],
    block: Vec<u8>,
}

fn place_in_leaf(block: Block) -> usize {
    (block.0 % LEAF_BLOCKS as u64) as usize
}

/// The word of which `block` is nothing but repetitions.
fn repeated_word(block: &[u8]) -> Option<u64> {
    let word = word_at(block, 0);
    let repeats = |line: &[u8]| differing_bits(line, |_| word) == 0;
    block.chunks_exact(LINE_BYTES).all(repeats).then_some(word)
}

/// Bits in which a line's words differ from `expected`. Comparisons go line by line: a kernel's `memcmp` may go byte by
/// byte, and a branch for each word costs more than the word.
fn differing_bits(line: &[u8], expected: impl Fn(usize) -> u64) -> u64 {
    (0..LINE_BYTES / 8).fold(0, |bits, w| bits | word_at(line, w) ^ expected(w))
}

/// Which lines are not all zero.
fn line_mask(block: &[u8]) -> u64 {
    let mut mask = 0;
    for (i, line) in block.chunks_exact(LINE_BYTES).enumerate() {
        mask |= u64::from(differing_bits(line, |_| 0) != 0) << i;
    }
    mask
}

/// Writes the block stored as mask and lines to `out`.
fn unpack_lines(stored: &[u8], out: &mut [u8]) {
    let mask = word_at(stored, 0);
    let mut from = 8;
    for (i, line) in out.chunks_exact_mut(LINE_BYTES).enumerate() {
        if mask >> i & 1 == 1 {
            line.copy_from_slice(&stored[from..from + LINE_BYTES]);
            from += LINE_BYTES;
        } else {
            line.fill(0);
        }
    }
}

/// Whether `stored` holds exactly `block`, whose mask is `mask`.
fn same_lines(stored: &[u8], mask: u64, block: &[u8]) -> bool {
    if word_at(stored, 0) != mask {
        return false;
    }
    let mut from = 8;
    block
        .chunks_exact(LINE_BYTES)
        .enumerate()
        .filter(|(i, _)| mask >> i & 1 == 1)
        .all(|(_, line)| {
            from += LINE_BYTES;
            let kept = &stored[from - LINE_BYTES..from];
            differing_bits(line, |w| word_at(kept, w)) == 0
        })
}

impl Contents {
    /// Nothing written: all zero.
    pub fn new() -> Self {
        Contents {
            block: vec![0; BLOCK],
            ..Contents::default()
        }
    }

    /// Blocks kept line by line in memory.
    pub fn records_held(&self) -> u64 {
        self.arena.records
    }

    fn slot_mut(&mut self, leaf: u64) -> &mut Slot {
        let node = (leaf / NODE_LEAVES as u64) as usize;
        if node >= self.root.len() {
            self.root.resize_with(node + 1, || None);
        }
        let slots =
            self.root[node].get_or_insert_with(|| (0..NODE_LEAVES).map(|_| Slot::Empty).collect());
        &mut slots[(leaf % NODE_LEAVES as u64) as usize]
    }

    fn slot(&self, leaf: u64) -> &Slot {
        match self.root.get((leaf / NODE_LEAVES as u64) as usize) {
            Some(Some(slots)) => &slots[(leaf % NODE_LEAVES as u64) as usize],
            _ => &Slot::Empty,
        }
    }

    /// Brings a leaf into memory; `create` makes an empty one.
    fn load(&mut self, leaf: u64, create: bool) -> Result<Option<&mut Leaf>, Damaged> {
        let loaded = match self.slot(leaf) {
            Slot::Empty if !create => return Ok(None),
            Slot::Empty => Some(Leaf::new()),
            Slot::Packed(entry) => Some(packed::unpack(self.packed, &self.index[*entry as usize])?),
            Slot::Loaded(_) => None,
        };
        let slot = self.slot_mut(leaf);
        if let Some(loaded) = loaded {
            *slot = Slot::Loaded(loaded);
        }
        match slot {
            Slot::Loaded(leaf) => Ok(Some(leaf)),
            _ => Ok(None),
        }
    }

    /// Mask and lines of a value that has them.
    fn stored(&self, kind: Kind) -> &[u8] {
        match kind {
            Kind::Lines(record) => self.arena.bytes(record),
            Kind::File(at) => packed::record_at(self.packed, at),
            _ => &[],
        }
    }

    /// Whether `value` is what `block` says.
    /// Whether a block kept as `kind` is `block`, which repeats the word `repeated` if it does.
    fn holds(&self, kind: Kind, block: &[u8], repeated: Option<u64>) -> bool {
        match kind {
            Kind::Zero => repeated == Some(0),
            Kind::Word(word) => repeated == Some(word),
            Kind::Lines(_) | Kind::File(_) => {
                same_lines(self.stored(kind), line_mask(block), block)
            }
        }
    }

    fn encode(&mut self, block: &[u8], repeated: Option<u64>) -> Kind {
        match repeated {
            Some(0) => Kind::Zero,
            Some(word) => Kind::Word(word),
            None => Kind::Lines(self.arena.store(line_mask(block), block)),
        }
    }

    /// Writes one whole block. Returns what it held, if that was different.
    pub fn write(&mut self, at: Block, block: &[u8]) -> Result<Option<Value>, Damaged> {
        let old = self.kind(at)?;
        let repeated = repeated_word(block);
        if self.holds(old, block, repeated) {
            return Ok(None);
        }
        let new = self.encode(block, repeated);
        if let Some(leaf) = self.load(leaf_of(at), true)? {
            leaf.set(place_in_leaf(at), new);
        }
        Ok(Some(Value(old)))
    }

    /// Writes `data` at byte `offset` of a block, keeping the rest.
    pub fn write_part(
        &mut self,
        at: Block,
        offset: usize,
        data: &[u8],
    ) -> Result<Option<Value>, Damaged> {
        let mut block = core::mem::take(&mut self.block);
        block.resize(BLOCK, 0);
        let result = self.read(at, &mut block).and_then(|()| {
            block[offset..offset + data.len()].copy_from_slice(data);
            self.write(at, &block)
        });
        self.block = block;
        result
    }

    /// Makes `range` zero; `changed` gets what the blocks held that were not.
    pub fn zero(
        &mut self,
        range: BlockRange,
        mut changed: impl FnMut(Block, Value),
    ) -> Result<(), Damaged> {
        let mut at = range.start;
        while at < range.end {
            let leaf_end = Block((leaf_of(at) + 1) * LEAF_BLOCKS as u64);
            let end = leaf_end.min(range.end);
            if let Some(leaf) = self.load(leaf_of(at), false)? {
                for block in at.0..end.0 {
                    let i = place_in_leaf(Block(block));
                    let old = leaf.get(i);
                    if old != Kind::Zero {
                        leaf.set(i, Kind::Zero);
                        changed(Block(block), Value(old));
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    fn kind(&mut self, at: Block) -> Result<Kind, Damaged> {
        Ok(self
            .load(leaf_of(at), false)?
            .map_or(Kind::Zero, |leaf| leaf.get(place_in_leaf(at))))
    }

    /// Reads one whole block.
    pub fn read(&mut self, at: Block, out: &mut [u8]) -> Result<(), Damaged> {
        let kind = self.kind(at)?;
        self.expand(kind, out);
        Ok(())
    }

    fn expand(&self, kind: Kind, out: &mut [u8]) {
        match kind {
            Kind::Zero => out.fill(0),
            Kind::Word(word) => out
                .chunks_exact_mut(8)
                .for_each(|c| c.copy_from_slice(&word.to_le_bytes())),
            Kind::Lines(_) | Kind::File(_) => unpack_lines(self.stored(kind), out),
        }
    }

    /// Puts back a value that [`Contents::write`] or [`Contents::zero`] returned.
    pub fn restore(&mut self, at: Block, value: Value) -> Result<(), Damaged> {
        let old = self.kind(at)?;
        self.release(Value(old));
        if let Some(leaf) = self.load(leaf_of(at), value.0 != Kind::Zero)? {
            leaf.set(place_in_leaf(at), value.0);
        }
        Ok(())
    }

    /// A second value with the same bytes.
    pub fn duplicate(&mut self, value: &Value) -> Value {
        Value(match value.0 {
            Kind::Lines(record) => Kind::Lines(self.arena.duplicate(record)),
            other => other,
        })
    }

    /// Forgets a value.
    pub fn release(&mut self, value: Value) {
        if let Kind::Lines(record) = value.0 {
            self.arena.release(record);
        }
    }

    /// How many blocks are held, by kind.
    pub fn census(&mut self) -> Census {
        let mut census = Census::default();
        for leaf in 0..(self.root.len() * NODE_LEAVES) as u64 {
            if let Ok(Some(leaf)) = self.load(leaf, false) {
                census.words += leaf.kinds.iter().filter(|k| **k == 1).count() as u64;
                census.lines += leaf.kinds.iter().filter(|k| **k > 1).count() as u64;
            }
        }
        census
    }

    /// Calls `visit` with every block that is not zero, in order.
    pub fn for_each(&mut self, mut visit: impl FnMut(Block, &[u8])) -> Result<(), Damaged> {
        let mut block = vec![0; BLOCK];
        for leaf in 0..(self.root.len() * NODE_LEAVES) as u64 {
            if self.load(leaf, false)?.is_none() {
                continue;
            }
            for i in 0..LEAF_BLOCKS as u64 {
                let at = Block(leaf * LEAF_BLOCKS as u64 + i);
                let kind = self.kind(at)?;
                if kind != Kind::Zero {
                    self.expand(kind, &mut block);
                    visit(at, &block);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
