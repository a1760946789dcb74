// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configurations: a device, the options of the mount, and a load. Their names are `image/default/full`.

use super::random::mix;
use super::sim::{Shape, Sim};
use safs::{MakeOptions, Options, Placement};
use std::fmt;

/// What the file system is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A host-managed disk with conventional zones.
    Managed,
    /// One without: what is rewritten is written in order, too.
    InOrder,
    /// An image file: no write pointers, and what is reset reads as zeros.
    Image,
    /// An ordinary disk: no write pointers, and old bytes stay.
    Disk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Options that make much happen on little space.
    Small,
    /// Those of a mount that says nothing.
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A bit of everything.
    Mixed,
    /// More than fits.
    Full,
    /// Files of many extents.
    Extents,
    /// A ring file and a ring directory, and others beside them.
    Rings,
    /// A command of the device fails.
    Errors,
    /// Writes of megabytes.
    Large,
    /// Gigabytes on zones of 256 MiB.
    Giga,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub on: On,
    pub how: How,
    pub load: Load,
}

/// Devices and their names.
pub const ONS: [(On, &str); 4] = [
    (On::Managed, "managed"),
    (On::InOrder, "in-order"),
    (On::Image, "image"),
    (On::Disk, "disk"),
];
const HOWS: [(How, &str); 2] = [(How::Small, "small"), (How::Default, "default")];
const LOADS: [(Load, &str); 7] = [
    (Load::Mixed, "mixed"),
    (Load::Full, "full"),
    (Load::Extents, "extents"),
    (Load::Rings, "rings"),
    (Load::Errors, "errors"),
    (Load::Large, "large"),
    (Load::Giga, "giga"),
];

fn name_of<T: PartialEq>(of: &T, names: &[(T, &'static str)]) -> &'static str {
    names
        .iter()
        .find(|(other, _)| other == of)
        .map_or("?", |(_, name)| name)
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (on, how) = (name_of(&self.on, &ONS), name_of(&self.how, &HOWS));
        write!(f, "{on}/{how}/{}", name_of(&self.load, &LOADS))
    }
}

/// All configurations. Megabytes at a time say nothing of options that are made for kilobytes.
pub fn all() -> Vec<Config> {
    let mut found = Vec::new();
    for (load, _) in LOADS {
        for (how, _) in HOWS {
            let is_large = matches!(load, Load::Large | Load::Giga);
            if is_large && how == How::Small {
                continue;
            }
            found.extend(ONS.map(|(on, _)| Config { on, how, load }));
        }
    }
    found
}

/// Those whose names begin so, or end so.
pub fn named(part: &str) -> Vec<Config> {
    let suits = |config: &Config| {
        let name = config.to_string();
        name.split('/').any(|word| word == part) || name.starts_with(part) || name.ends_with(part)
    };
    all().into_iter().filter(suits).collect()
}

impl Config {
    /// Tells it from others: with one seed each configuration has a story of its own.
    pub fn number(&self) -> u64 {
        self.to_string()
            .bytes()
            .fold(0, |sum, byte| mix(sum ^ u64::from(byte)))
    }

    /// How much of all states is its share, beside the others'. A state of gigabytes costs a hundred times as much.
    pub fn share(&self) -> u64 {
        match self.load {
            Load::Giga => 1,
            Load::Large => 8,
            Load::Mixed | Load::Full => 80,
            Load::Extents | Load::Rings | Load::Errors => 50,
        }
    }

    /// States of a story.
    pub fn states(&self) -> usize {
        match self.load {
            Load::Giga => 12,
            Load::Large => 40,
            _ => 250,
        }
    }

    pub fn steps(&self) -> usize {
        match self.load {
            Load::Giga => 90,
            Load::Large => 110,
            Load::Extents => 2000,
            Load::Full => 200,
            _ => 150,
        }
    }

    pub fn shape(&self) -> Shape {
        let (zone_blocks, sequential) = match self.load {
            Load::Giga => (65536, 40),
            Load::Large => (1024, 28),
            Load::Full => (64, 16),
            Load::Rings => (64, 24),
            _ => (64, 40),
        };
        let plain = Shape {
            conventional: 8,
            sequential,
            zone_blocks,
            capacity_blocks: zone_blocks,
            open_max: Some(10),
            keeps_pointers: true,
            discards: true,
        };
        match self.on {
            On::Managed => plain,
            On::InOrder => Shape {
                conventional: 0,
                sequential: 16 + sequential,
                capacity_blocks: zone_blocks - 2,
                open_max: Some(14),
                ..plain
            },
            On::Image => Shape {
                open_max: None,
                keeps_pointers: false,
                ..plain
            },
            On::Disk => Shape {
                open_max: None,
                keeps_pointers: false,
                discards: false,
                ..plain
            },
        }
    }

    pub fn options(&self, seed: u64) -> Options {
        let placement = match seed % 2 {
            0 => Placement::Log,
            _ => Placement::Auto,
        };
        match self.how {
            How::Small => small(placement),
            How::Default => Options {
                placement,
                ..Options::default()
            },
        }
    }

    /// An empty file system.
    pub fn made(&self) -> Sim {
        made(Sim::new(self.shape()))
    }
}

/// Options that make much happen on little space.
pub fn small(placement: Placement) -> Options {
    Options {
        placement,
        segment_blocks: 32,
        stream_after_bytes: 48 << 10,
        turn_bytes: 64 << 10,
        streams_max: 3,
        buffer_bytes: 512 << 10,
        gap_bytes: 96 << 10,
        overlay_bytes: 96 << 10,
        node_cache_bytes: 512 << 10,
        changing_bytes: 256 << 10,
        header_cache_bytes: 64 << 10,
        read_ahead_bytes: 512 << 10,
        read_ahead_total_bytes: 1 << 20,
        compaction_bytes: 128 << 10,
        ..Options::default()
    }
}

pub fn made(device: Sim) -> Sim {
    let make = MakeOptions {
        uuid: *b"a test's own one",
        label: [0; 64],
        now_ns: 1,
    };
    safs::make(device, make, |_| ()).expect("the device suits")
}
