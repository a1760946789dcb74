// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What each band has in the persistent cache: a flat table, and a bit for each band that has anything.

use alloc::vec;
use alloc::vec::Vec;
use zoned::BandId;

/// What a band has in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirt {
    /// Entries.
    pub entries: u32,
    /// Blocks.
    pub blocks: u32,
    /// Classes of its writes, a bit each; may be too many after overwriting.
    pub classes: u8,
}

/// All bands.
pub struct DirtyBands {
    by_band: Vec<Dirt>,
    marks: Vec<u64>,
    count: usize,
}

impl DirtyBands {
    /// So many clean bands.
    pub(super) fn new(bands: u32) -> Self {
        DirtyBands {
            by_band: vec![Dirt::default(); bands as usize],
            marks: vec![0; bands.div_ceil(64) as usize],
            count: 0,
        }
    }

    /// How many bands have something in the cache.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no band has.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What a band has; nothing at all if it is clean.
    pub fn of(&self, band: BandId) -> Dirt {
        self.by_band[band.0 as usize]
    }

    /// Whether a band has something in the cache.
    pub fn contains(&self, band: BandId) -> bool {
        self.of(band).entries > 0
    }

    /// Bands that have something in the cache, in order.
    pub fn iter(&self) -> impl Iterator<Item = (BandId, Dirt)> + '_ {
        let words = self.marks.iter().enumerate();
        words.flat_map(move |(i, word)| {
            let mut rest = *word;
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                let band = BandId(i as u32 * 64 + bit);
                Some((band, self.of(band)))
            })
        })
    }

    fn mark(&mut self, band: BandId) {
        self.marks[band.0 as usize / 64] ^= 1 << (band.0 % 64);
    }

    pub(super) fn add(&mut self, band: BandId, blocks: u64, classes: u8) {
        let dirt = &mut self.by_band[band.0 as usize];
        dirt.entries += 1;
        dirt.blocks += blocks as u32;
        dirt.classes |= classes;
        if dirt.entries == 1 {
            self.count += 1;
            self.mark(band);
        }
    }

    pub(super) fn remove(&mut self, band: BandId, blocks: u64) {
        let dirt = &mut self.by_band[band.0 as usize];
        dirt.entries -= 1;
        dirt.blocks -= blocks as u32;
        if dirt.entries == 0 {
            *dirt = Dirt::default();
            self.count -= 1;
            self.mark(band);
        }
    }
}
