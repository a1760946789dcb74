// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Where the bands are. A band is a fixed number of tracks, so bands are larger where tracks are: at the outer diameter.
//!
//! ```text
//! physical:  | persistent cache | scratch | band 0 | band 1 | …                    outer … inner diameter
//! ```

use crate::mechanics::layout::Layout;
use crate::profile::StaticMapping;
use alloc::vec::Vec;
use zoned::{BandId, Block, BlockRange, Pba};

/// Bands of one size.
struct Region {
    first_block: u64,
    first_band: u32,
    band_blocks: u64,
}

/// The static mapping.
pub struct Bands {
    regions: Vec<Region>,
    home: u64,
    scratch: Pba,
    capacity_blocks: u64,
}

impl Bands {
    /// Lays out the cache, the scratch band, and `capacity_blocks` of bands.
    pub fn new(layout: &Layout, mapping: &StaticMapping, capacity_blocks: u64) -> Self {
        let tracks = u64::from(mapping.band_tracks);
        let outer_track = layout
            .zones()
            .next()
            .map_or(1, |(_, _, track_blocks)| track_blocks);
        let scratch = mapping.cache_blocks;
        let home = (scratch + tracks * outer_track).next_multiple_of(outer_track);
        let mut regions: Vec<Region> = Vec::new();
        let mut next_band = 0;
        for (first, blocks, track_blocks) in layout.zones() {
            let end = first.0 + blocks;
            if end <= home {
                continue;
            }
            let first_block = first.0.max(home) - home;
            let band_blocks = tracks * track_blocks;
            regions.push(Region {
                first_block,
                first_band: next_band,
                band_blocks,
            });
            next_band += (end - home - first_block).div_ceil(band_blocks) as u32;
        }
        assert!(
            layout.blocks() >= home + capacity_blocks,
            "the platters hold the cache and what the host sees"
        );
        Bands {
            regions,
            home,
            scratch: Pba(scratch),
            capacity_blocks,
        }
    }

    /// The same with the zones of a host-aware disk as bands: all of one size, the scratch band as long as a zone.
    pub fn of_zones(
        layout: &Layout,
        cache_blocks: u64,
        zone_blocks: u64,
        capacity_blocks: u64,
    ) -> Self {
        let home = cache_blocks + zone_blocks;
        assert!(
            layout.blocks() >= home + capacity_blocks,
            "the platters hold the cache and what the host sees"
        );
        Bands {
            regions: alloc::vec![Region {
                first_block: 0,
                first_band: 0,
                band_blocks: zone_blocks,
            }],
            home,
            scratch: Pba(cache_blocks),
            capacity_blocks,
        }
    }

    fn region(&self, block: Block) -> &Region {
        let i = self.regions.partition_point(|r| r.first_block <= block.0);
        &self.regions[i.saturating_sub(1)]
    }

    /// The band of a block.
    pub fn band(&self, block: Block) -> BandId {
        let region = self.region(block);
        BandId(region.first_band + ((block.0 - region.first_block) / region.band_blocks) as u32)
    }

    /// The blocks of a band.
    pub fn range(&self, band: BandId) -> BlockRange {
        let i = self
            .regions
            .partition_point(|r| r.first_band <= band.0)
            .saturating_sub(1);
        let region = &self.regions[i];
        let start = region.first_block + u64::from(band.0 - region.first_band) * region.band_blocks;
        let region_end = self
            .regions
            .get(i + 1)
            .map_or(self.capacity_blocks, |next| next.first_block);
        let end = (start + region.band_blocks)
            .min(region_end)
            .min(self.capacity_blocks);
        BlockRange::new(Block(start), Block(end))
    }

    /// The range of the band that holds `block`.
    pub fn range_of(&self, block: Block) -> BlockRange {
        self.range(self.band(block))
    }

    /// Where a block is when it is not in the cache.
    pub fn home(&self, block: Block) -> Pba {
        Pba(self.home + block.0)
    }

    /// First block of the scratch band.
    pub fn scratch(&self) -> Pba {
        self.scratch
    }

    /// Blocks of all bands.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// How many bands there are.
    pub fn count(&self) -> u32 {
        match self.capacity_blocks {
            0 => 0,
            blocks => self.band(Block(blocks - 1)).0 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{sample, Translation};

    #[test]
    fn bands_cover_the_drive_without_gaps_and_shrink_inwards() {
        let profile = sample::shingled(90 << 30, 1000, 100);
        let Translation::StaticMapping(mapping) = &profile.translation else {
            unreachable!()
        };
        let bands = Bands::new(
            &Layout::new(&profile.mechanics),
            mapping,
            profile.capacity_blocks(),
        );
        let mut at = Block(0);
        for i in 0..bands.count() {
            let range = bands.range(BandId(i));
            assert_eq!(range.start, at);
            assert_eq!(
                (bands.band(range.start), bands.band(Block(range.end.0 - 1))),
                (BandId(i), BandId(i))
            );
            at = range.end;
        }
        assert_eq!(at.0, profile.capacity_blocks());
        assert!(bands.range(BandId(0)).blocks() > bands.range(BandId(bands.count() - 2)).blocks());
    }
}
