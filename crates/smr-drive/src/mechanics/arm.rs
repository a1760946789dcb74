// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The arm: where it is, and how long it takes to be elsewhere.

use super::layout::Layout;
use crate::profile::{Mechanics, Seek};
use zoned::Pba;

/// The arm over its platters.
pub struct Arm {
    layout: Layout,
    seek: Seek,
    head_switch_ns: u64,
    write_settle_ns: u64,
    /// Angle of the platters at time 0, as a time.
    phase_ns: u64,
    /// The block that comes next under the head where the arm is.
    at: Pba,
    /// Moves to another cylinder.
    pub seeks: u64,
    /// Time on the way to transfers: seeks and rotation.
    pub position_ns: u64,
}

/// Whether the arm is to read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write: it must be steadier.
    Write,
}

/// Seek time over a distance in cylinders; the law is at [`Seek`].
pub fn seek_ns(seek: &Seek, distance: u64, cylinders: u64) -> u64 {
    match distance {
        0 => 0,
        1 => seek.track_to_track_ns,
        _ => {
            let x_q32 = (distance << 32) / cylinders;
            let ns = if x_q32 < seek.knee_q32 {
                // √(x · 2³²) = √x · 2¹⁶
                seek.a_ns + ((seek.b_ns * x_q32.isqrt()) >> 16)
            } else {
                seek.c_ns + ((seek.d_ns * x_q32) >> 32)
            };
            ns.max(seek.track_to_track_ns)
        }
    }
}

impl Arm {
    /// An arm over block 0; `seed` decides how the platters stand at time 0.
    pub fn new(mechanics: &Mechanics, seed: u64) -> Self {
        Arm {
            layout: Layout::new(mechanics),
            seek: mechanics.seek,
            head_switch_ns: mechanics.head_switch_ns,
            write_settle_ns: mechanics.write_settle_ns,
            phase_ns: splitmix(seed) % mechanics.revolution_ns,
            at: Pba(0),
            seeks: 0,
            position_ns: 0,
        }
    }

    /// The geometry.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The block that comes next.
    pub fn at(&self) -> Pba {
        self.at
    }

    /// Time from `now_ns` until `to` passes under the head: seek, settle, rotation.
    pub fn position_ns(&self, now_ns: u64, to: Pba, access: Access) -> u64 {
        self.way(now_ns, to, self.layout.linear_ns(to), access).0
    }

    /// The same, given when `to` passes, and whether that is on another cylinder.
    fn way(&self, now_ns: u64, to: Pba, linear_ns: u64, access: Access) -> (u64, bool) {
        let (move_ns, seeks) = if to == self.at {
            (0, false)
        } else {
            self.move_ns(to, access)
        };
        let revolution = self.layout.revolution_ns();
        let angle_then = (now_ns + move_ns + self.phase_ns) % revolution;
        let angle_of_block = linear_ns % revolution;
        let turn_ns = (angle_of_block + revolution - angle_then) % revolution;
        (move_ns + turn_ns, seeks)
    }

    fn move_ns(&self, to: Pba, access: Access) -> (u64, bool) {
        let (here, there) = (self.layout.spot(self.at), self.layout.spot(to));
        let mut ns = seek_ns(
            &self.seek,
            here.cylinder.abs_diff(there.cylinder),
            self.layout.cylinders(),
        );
        if here.head != there.head {
            ns = ns.max(self.head_switch_ns);
        }
        if ns > 0 && access == Access::Write {
            ns += self.write_settle_ns;
        }
        (ns, here.cylinder != there.cylinder)
    }

    /// Time to pass over `blocks` blocks from `from` on.
    pub fn transfer_ns(&self, from: Pba, blocks: u64) -> u64 {
        self.layout.linear_ns(from + blocks) - self.layout.linear_ns(from)
    }

    /// Goes to `from` and passes over `blocks` blocks: the time it takes from `now_ns` on.
    pub fn access(&mut self, now_ns: u64, from: Pba, blocks: u64, access: Access) -> u64 {
        let linear_ns = self.layout.linear_ns(from);
        let (position_ns, seeks) = self.way(now_ns, from, linear_ns, access);
        self.position_ns += position_ns;
        self.seeks += u64::from(seeks);
        self.at = from + blocks;
        let transfer_ns = match blocks {
            0 => 0,
            _ => self.layout.linear_ns(self.at) - linear_ns,
        };
        position_ns + transfer_ns
    }

    /// The arm is found at `at`: it followed a track by itself.
    pub fn drift_to(&mut self, at: Pba) {
        self.at = at;
    }
}

/// A well-mixed number from a seed (Steele, Lea, Flood 2014).
pub(crate) fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    fn arm() -> Arm {
        Arm::new(&sample::conventional(1 << 30).mechanics, 1)
    }

    #[test]
    fn going_on_where_a_transfer_ended_costs_nothing() {
        let mut arm = arm();
        let mut now = 12_345;
        now += arm.access(now, Pba(1000), 777, Access::Write);
        assert_eq!(arm.position_ns(now, Pba(1777), Access::Write), 0);
    }

    #[test]
    fn coming_a_moment_late_costs_almost_a_revolution() {
        let mut arm = arm();
        let mut now = 0;
        now += arm.access(now, Pba(1000), 10, Access::Read);
        let late = arm.position_ns(now + 1000, Pba(1010), Access::Read);
        assert_eq!(late, arm.layout().revolution_ns() - 1000);
    }

    #[test]
    fn longer_seeks_take_longer_and_the_law_has_no_step_at_the_knee() {
        let seek = sample::conventional(1 << 30).mechanics.seek;
        let mut last = 0;
        for distance in 1..1000 {
            let ns = seek_ns(&seek, distance, 1000);
            assert!(
                ns >= last && ns - last < 2_100_000,
                "{distance}: {last} {ns}"
            );
            last = ns;
        }
        assert!((19_000_000..20_000_000).contains(&last));
    }

    #[test]
    fn a_write_settles_and_a_read_need_not() {
        let arm = arm();
        let revolution = arm.layout().revolution_ns();
        let ns = |access| arm.position_ns(0, Pba(200_000), access);
        let extra = ns(Access::Write) as i64 - ns(Access::Read) as i64;
        assert!(
            extra == 0 || extra == revolution as i64,
            "settling is paid in whole revolutions or not at all"
        );
    }
}
