// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, one file each, in the order in which they run: each may use what those before it found.

pub mod bands;
mod cache_place;
mod cache_size;
pub mod cleaning;
mod enforced;
mod kind;
mod knee;
mod mapping;
mod mechanics;
mod parts;
mod scatter;
mod streaming;
mod write_cache;

use crate::disk::Stop;
use crate::finding::Finding;
use crate::session::Session;

/// One test.
pub struct Test {
    /// As the user calls it.
    pub name: &'static str,
    /// What it finds out.
    pub summary: &'static str,
    /// It writes to the disk.
    pub writes: bool,
    /// Tests whose findings it needs.
    pub needs: &'static [&'static str],
    /// Usual time on a drive of 8 TB, in seconds.
    pub usual_s: f64,
    /// It gives up after this.
    pub limit_s: f64,
    /// It is only of use on a drive that logs small writes.
    pub shingled_only: bool,
    /// Does it.
    pub run: fn(&mut Session<'_>) -> Result<(), Stop>,
}

/// All tests.
pub const TESTS: [Test; 11] = [
    Test {
        name: "mechanics",
        summary: "rates over the disk, rotation, seeks, interface",
        writes: false,
        needs: &[],
        usual_s: 75.0,
        limit_s: 900.0,
        shingled_only: false,
        run: mechanics::run,
    },
    Test {
        name: "kind",
        summary: "whether small writes go in place or to a log",
        writes: true,
        needs: &["mechanics"],
        usual_s: 60.0,
        limit_s: 900.0,
        shingled_only: false,
        run: kind::run,
    },
    Test {
        name: "scatter",
        summary: "whether only a few zones can be written out of order",
        writes: true,
        needs: &["mechanics", "kind"],
        usual_s: 240.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: scatter::run,
    },
    Test {
        name: "cache-place",
        summary: "where the persistent cache is",
        writes: true,
        needs: &["mechanics", "kind", "scatter"],
        usual_s: 20.0,
        limit_s: 900.0,
        shingled_only: true,
        run: cache_place::run,
    },
    Test {
        name: "cleaning",
        summary: "when cleaning begins",
        writes: true,
        needs: &["mechanics", "kind", "scatter"],
        usual_s: 600.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: cleaning::run,
    },
    Test {
        name: "mapping",
        summary: "whether what is cleaned stays in its place",
        writes: true,
        needs: &["mechanics", "kind", "scatter", "cleaning"],
        usual_s: 120.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: mapping::run,
    },
    Test {
        name: "bands",
        summary: "band size at the outer, middle and inner diameter; order of cleaning",
        writes: true,
        needs: &["mechanics", "kind", "scatter", "cleaning", "mapping"],
        usual_s: 900.0,
        limit_s: 14_400.0,
        shingled_only: true,
        run: bands::run,
    },
    Test {
        name: "stream",
        summary: "the smallest sequential write that is written in place",
        writes: true,
        needs: &[
            "mechanics",
            "kind",
            "scatter",
            "cleaning",
            "mapping",
            "bands",
        ],
        usual_s: 90.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: streaming::run,
    },
    Test {
        name: "cache-parts",
        summary: "of a persistent cache in several places: how many there are",
        writes: true,
        needs: &["mechanics", "kind", "scatter", "cache-place"],
        usual_s: 10.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: parts::run,
    },
    Test {
        name: "cache-entries",
        summary: "how many small writes fit into the persistent cache, and what follows",
        writes: true,
        needs: &["mechanics", "kind", "scatter", "cache-place", "cache-parts"],
        usual_s: 240.0,
        limit_s: 7200.0,
        shingled_only: true,
        run: cache_size::entries,
    },
    Test {
        name: "cache-bytes",
        summary: "how many bytes fit into the persistent cache",
        writes: true,
        needs: &[
            "mechanics",
            "kind",
            "scatter",
            "cache-place",
            "cleaning",
            "mapping",
            "bands",
            "cache-parts",
            "cache-entries",
        ],
        usual_s: 600.0,
        limit_s: 14_400.0,
        shingled_only: true,
        run: cache_size::bytes,
    },
];

impl Session<'_> {
    /// Notes a finding.
    fn found(&mut self, finding: Finding) {
        self.findings.0.push(finding);
    }
}
