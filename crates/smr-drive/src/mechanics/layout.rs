// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Where a physical block is, and when it passes under the head.
//!
//! Everything follows from one function: [`Layout::linear_ns`], the time at which a head that reads the whole drive from
//! its first block on would come to a block. A transfer from `a` to `b` takes `linear_ns(b) - linear_ns(a)`, with all
//! track steps in between; and `linear_ns(b)` modulo a revolution is the angle of `b`. Tracks are skewed by exactly the
//! time of a step, so a sequential transfer loses the step and nothing else.

use crate::profile::Mechanics;
use alloc::vec::Vec;
use zoned::Pba;

/// Tracks of one size.
struct Zone {
    first_pba: u64,
    first_cylinder: u64,
    linear_ns: u64,
    track_blocks: u64,
    tracks: u64,
}

/// The platters' geometry.
pub struct Layout {
    zones: Vec<Zone>,
    revolution_ns: u64,
    heads: u64,
    serpentine_tracks: u64,
    /// Tracks between two steps of the rarer kind.
    period: u64,
    /// Steps within and at the end of a period.
    step_ns: u64,
    period_step_ns: u64,
    cylinders: u64,
    blocks: u64,
}

/// A place on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Counted from the outer diameter.
    pub cylinder: u64,
    /// Surface.
    pub head: u64,
}

impl Layout {
    /// The geometry of a profile.
    pub fn new(mechanics: &Mechanics) -> Self {
        let serpentine = mechanics.serpentine_tracks > 1;
        let (t2t, head_switch) = (mechanics.seek.track_to_track_ns, mechanics.head_switch_ns);
        let heads = u64::from(mechanics.heads);
        let mut layout = Layout {
            zones: Vec::new(),
            revolution_ns: mechanics.revolution_ns,
            heads,
            serpentine_tracks: u64::from(mechanics.serpentine_tracks),
            period: if serpentine {
                u64::from(mechanics.serpentine_tracks)
            } else {
                heads
            },
            step_ns: if serpentine { t2t } else { head_switch },
            period_step_ns: if serpentine { head_switch } else { t2t },
            cylinders: 0,
            blocks: 0,
        };
        let mut linear_ns = 0;
        for zone in &mechanics.zones {
            let tracks = u64::from(zone.cylinders) * heads;
            layout.zones.push(Zone {
                first_pba: layout.blocks,
                first_cylinder: layout.cylinders,
                linear_ns,
                track_blocks: u64::from(zone.track_blocks),
                tracks,
            });
            linear_ns += layout.tracks_ns(tracks);
            layout.blocks += tracks * u64::from(zone.track_blocks);
            layout.cylinders += u64::from(zone.cylinders);
        }
        layout
    }

    /// Time of one revolution.
    pub fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    /// Number of cylinders: the full stroke.
    pub fn cylinders(&self) -> u64 {
        self.cylinders
    }

    /// Number of physical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Revolutions and steps of `tracks` whole tracks from the start of a zone.
    fn tracks_ns(&self, tracks: u64) -> u64 {
        let period_steps = tracks / self.period;
        tracks * self.revolution_ns
            + (tracks - period_steps) * self.step_ns
            + period_steps * self.period_step_ns
    }

    fn zone_index(&self, pba: Pba) -> usize {
        self.zones
            .partition_point(|z| z.first_pba <= pba.0)
            .saturating_sub(1)
    }

    /// First block and number of blocks of each zone, and the blocks of its tracks.
    pub fn zones(&self) -> impl Iterator<Item = (Pba, u64, u64)> + '_ {
        self.zones
            .iter()
            .map(|z| (Pba(z.first_pba), z.tracks * z.track_blocks, z.track_blocks))
    }

    /// See the module's head.
    pub fn linear_ns(&self, pba: Pba) -> u64 {
        let zone = &self.zones[self.zone_index(pba)];
        let offset = pba.0 - zone.first_pba;
        let (track, block) = (offset / zone.track_blocks, offset % zone.track_blocks);
        zone.linear_ns + self.tracks_ns(track) + block * self.revolution_ns / zone.track_blocks
    }

    /// Cylinder and head.
    pub fn spot(&self, pba: Pba) -> Spot {
        let zone = &self.zones[self.zone_index(pba)];
        let track = (pba.0 - zone.first_pba) / zone.track_blocks;
        let run = track / self.serpentine_tracks;
        let (group, head) = (run / self.heads, run % self.heads);
        let i = track % self.serpentine_tracks;
        // Inwards on even heads, outwards on odd ones.
        let i = if head % 2 == 0 {
            i
        } else {
            self.serpentine_tracks - 1 - i
        };
        Spot {
            cylinder: zone.first_cylinder + group * self.serpentine_tracks + i,
            head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn neighbours_pass_one_after_the_other() {
        let layout = Layout::new(&sample::shingled(1 << 30, 1000, 100).mechanics);
        let mut last = 0;
        for pba in 1..50_000 {
            let now = layout.linear_ns(Pba(pba));
            assert!(now > last && now - last < 3_000_000);
            last = now;
        }
    }

    #[test]
    fn a_serpentine_run_turns_on_the_next_head_at_the_same_cylinder() {
        let layout = Layout::new(&sample::shingled(1 << 30, 1000, 100).mechanics);
        let run = 1000 * 160;
        let (before, after) = (layout.spot(Pba(run - 1)), layout.spot(Pba(run)));
        assert_eq!((before.cylinder, before.head), (999, 0));
        assert_eq!((after.cylinder, after.head), (999, 1));
    }

    #[test]
    fn by_cylinder_all_heads_come_before_the_next_cylinder() {
        let layout = Layout::new(&sample::conventional(1 << 30).mechanics);
        assert_eq!(
            layout.spot(Pba(160)),
            Spot {
                cylinder: 0,
                head: 1
            }
        );
        assert_eq!(
            layout.spot(Pba(320)),
            Spot {
                cylinder: 1,
                head: 0
            }
        );
    }
}
