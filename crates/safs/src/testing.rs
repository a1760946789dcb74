// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests beside the code begin with.

use zoned::RamDevice;

use crate::{make, MakeOptions};

/// A small device with an empty file system.
pub(crate) fn made() -> RamDevice {
    let options = MakeOptions {
        uuid: [7; 16],
        label: [0; 64],
        now_ns: 0,
    };
    make(RamDevice::new(8, 30, 2048), options, |_| ()).unwrap()
}
