// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests beside the code begin with.

#[allow(dead_code)]
#[path = "../../safs-sim/src/suites/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../../safs-sim/src/suites/sim.rs"]
pub(crate) mod sim;

use zoned::RamDevice;

use crate::{make, MakeOptions};

/// A small device with an empty file system.
pub(crate) fn made() -> RamDevice {
    made_on(RamDevice::new(8, 30, 2048))
}

/// The same without conventional zones.
pub(crate) fn made_in_order() -> RamDevice {
    made_on(RamDevice::new(0, 38, 2048))
}

/// The same on another device.
pub(crate) fn made_on(device: RamDevice) -> RamDevice {
    let options = MakeOptions {
        uuid: [7; 16],
        label: [0; 64],
        now_ns: 0,
    };
    make(device, options, |_| ()).unwrap()
}
