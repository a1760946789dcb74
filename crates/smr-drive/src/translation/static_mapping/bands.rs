// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Where the bands are. A band is a fixed number of tracks, so bands are larger where tracks are: at the outer diameter.
//!
//! ```text
//! physical:  | persistent cache | scratch | band 0 | band 1 | …                    outer … inner diameter
//! or         | band 0 | … | persistent cache | scratch | band n | …
//! ```

use crate::mechanics::layout::Layout;
use crate::profile::{Profile, StaticMapping};
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
    gap: Gap,
    scratch: Pba,
    capacity_blocks: u64,
}

/// Where the cache and the scratch band lie among the bands.
#[derive(Clone, Copy)]
struct Gap {
    /// The first block behind them, which without them would be where they begin.
    at: u64,
    blocks: u64,
}

impl Bands {
    /// Lays out the cache, the scratch band, and the bands of all that the host sees.
    pub fn new(layout: &Layout, mapping: &StaticMapping, profile: &Profile) -> Self {
        let tracks = u64::from(mapping.band_tracks);
        let holds =
            |(first, blocks, _): &(Pba, u64, u64)| mapping.cache_at_block < first.0 + blocks;
        let (first, track_blocks) = layout
            .zones()
            .find(holds)
            .or(layout.zones().last())
            .map_or((0, 1), |(first, _, track_blocks)| (first.0, track_blocks));
        let whole_bands = |blocks: u64| blocks / (tracks * track_blocks) * tracks * track_blocks;
        let at = first + whole_bands(mapping.cache_at_block - first);
        let cache_blocks = mapping.area_blocks(&profile.buffer);
        let blocks = (cache_blocks + tracks * track_blocks).next_multiple_of(track_blocks);
        let gap = Gap { at, blocks };
        let mut regions: Vec<Region> = Vec::new();
        let mut next_band = 0;
        for (first, zone_blocks, track_blocks) in layout.zones() {
            let end = first.0 + zone_blocks;
            let before = (first.0, end.min(at), 0);
            let behind = (first.0.max(at + blocks), end, blocks);
            for (start, end, hidden) in [before, behind] {
                if end <= start {
                    continue;
                }
                let band_blocks = tracks * track_blocks;
                regions.push(Region {
                    first_block: start - hidden,
                    first_band: next_band,
                    band_blocks,
                });
                next_band += (end - start).div_ceil(band_blocks) as u32;
            }
        }
        Bands {
            regions,
            gap,
            scratch: Pba(at + cache_blocks),
            capacity_blocks: profile.capacity_blocks(),
        }
        .on(layout)
    }

    /// The same with equal bands, parts of the zones of a host-aware disk; the scratch band is as long.
    pub fn of_zones(
        layout: &Layout,
        mapping: &StaticMapping,
        band_blocks: u64,
        profile: &Profile,
    ) -> Self {
        let cache_blocks = mapping.area_blocks(&profile.buffer);
        let blocks = cache_blocks + band_blocks;
        let last = layout.blocks().saturating_sub(blocks);
        let at = mapping.cache_at_block.min(last) / band_blocks * band_blocks;
        Bands {
            regions: alloc::vec![Region {
                first_block: 0,
                first_band: 0,
                band_blocks,
            }],
            gap: Gap { at, blocks },
            scratch: Pba(at + cache_blocks),
            capacity_blocks: profile.capacity_blocks(),
        }
        .on(layout)
    }

    fn on(self, layout: &Layout) -> Self {
        assert!(
            layout.blocks() >= self.gap.at.max(self.capacity_blocks) + self.gap.blocks,
            "the platters hold the cache and what the host sees"
        );
        self
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
        let behind = block.0 >= self.gap.at;
        Pba(block.0 + if behind { self.gap.blocks } else { 0 })
    }

    /// The block at home where the arm is; the first one behind the cache if it is there.
    pub fn block_at(&self, place: Pba) -> Block {
        let before = place.0.min(self.gap.at);
        Block(before.max(place.0.saturating_sub(self.gap.blocks)))
    }

    /// First block of the cache.
    pub fn cache(&self) -> Pba {
        Pba(self.gap.at)
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

    fn bands(profile: &Profile) -> Bands {
        let Translation::StaticMapping(mapping) = &profile.translation else {
            unreachable!()
        };
        Bands::new(&Layout::new(&profile.mechanics), mapping, profile)
    }

    #[test]
    fn bands_cover_the_drive_without_gaps_and_shrink_inwards() {
        for profile in [
            sample::shingled(90 << 30, 1000, 100),
            sample::overwritten(90 << 30, 1000, 100),
        ] {
            let bands = bands(&profile);
            let mut at = Block(0);
            for i in 0..bands.count() {
                let range = bands.range(BandId(i));
                assert_eq!(range.start, at);
                assert_eq!(
                    (bands.band(range.start), bands.band(Block(range.end.0 - 1))),
                    (BandId(i), BandId(i))
                );
                // A band is one piece of the platters.
                let last = Block(range.end.0 - 1);
                let length = bands.home(last).0 - bands.home(range.start).0;
                assert_eq!(length, range.blocks() - 1);
                at = range.end;
            }
            assert_eq!(at.0, profile.capacity_blocks());
            let last = BandId(bands.count() - 2);
            assert!(bands.range(BandId(0)).blocks() > bands.range(last).blocks());
        }
    }

    #[test]
    fn a_cache_inside_is_between_the_bands_before_and_behind_it() {
        let profile = sample::overwritten(90 << 30, 1000, 100);
        let bands = bands(&profile);
        let (cache, scratch) = (bands.cache(), bands.scratch());
        let spare = profile.buffer.dirty_blocks_max + profile.buffer.destage_blocks_max;
        assert_eq!(scratch, cache + 1000 + spare);
        let behind = bands.block_at(scratch);
        assert_eq!(behind.0, cache.0);
        assert_eq!(bands.home(Block(behind.0 - 1)), Pba(cache.0 - 1));
        assert!(bands.home(behind).0 >= scratch.0 + bands.range_of(behind).blocks());
        for block in [0, behind.0 - 1, behind.0, profile.capacity_blocks() - 1].map(Block) {
            assert_eq!(bands.block_at(bands.home(block)), block);
        }
    }
}
