// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the model is compared with itself: ratios of processor times measured side by side in this process, against
//! those of the last release. A host's speed cancels out and most of its noise; what is left of it must not fail a build.
//! So a ratio fails only at three times what it was. All are printed (`--nocapture`); to renew the baseline after a
//! change that is meant, write down what is printed.

use drive_tool::{profile, speed};
use smr_drive::profile::Profile;
use std::path::Path;

/// More than noise: something grew with the drive, its cache or its buffer.
const TOO_MUCH: f64 = 3.0;

fn drive(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../drives/{name}.toml"));
    profile::load(&path).expect("a profile of the house")
}

fn random_s(profile: Profile, percent: u64) -> f64 {
    speed::Load::filled(profile, percent).seconds(30_000).0
}

#[test]
fn ratios_of_times_are_those_of_the_last_release() {
    let seagate = || drive("st8000as0002");
    let sized = |tenths_tb: u64| speed::resized(&seagate(), tenths_tb * 100_000_000_000);
    let empty_s = random_s(seagate(), 0);
    let rows = [
        (
            "sequential replay / random, cache empty",
            0.25,
            speed::sequential_s(&seagate(), 200_000),
        ),
        ("random, cache full / empty", 2.1, random_s(seagate(), 100)),
        (
            "random, 20 TB and full / 8 TB and empty",
            2.4,
            random_s(sized(200), 100),
        ),
        (
            "random, 0.1 TB and full / 8 TB and empty",
            0.9,
            random_s(sized(1), 100),
        ),
        (
            "random, s-blocks full / static mapping empty",
            1.8,
            random_s(drive("wd40nmzw"), 100),
        ),
        (
            "random, host-aware full / static mapping empty",
            2.3,
            random_s(drive("safs5000ha"), 100),
        ),
        (
            "random, conventional / static mapping empty",
            2.6,
            random_s(drive("wd5000ys"), 0),
        ),
    ];
    for (what, before, s) in rows {
        println!("{what}: {:.2}, was {before}", s / empty_s);
    }
    for (what, before, s) in rows {
        let ratio = s / empty_s;
        assert!(
            ratio < TOO_MUCH * before,
            "{what}: {ratio:.2}, expected less than {TOO_MUCH} times {before}"
        );
    }
}
