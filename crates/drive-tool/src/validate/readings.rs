// SPDX-License-Identifier: MIT OR Apache-2.0
//! What experiments read off a drive, and with what.

use crate::host::{at, Host};
use hdrhistogram::Histogram;
use smr_drive::request::Op;
use std::collections::BTreeMap;

/// Nanoseconds of a second.
pub const S: f64 = 1e9;
/// Nanoseconds of a millisecond.
pub const MS: f64 = 1e6;

/// Named numbers.
pub type Readings = BTreeMap<&'static str, f64>;

/// From a nanosecond to a day, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 86_400_000_000_000, 3).expect("these bounds are lawful")
}

/// Waits until all is on the medium.
pub fn flush(host: &mut Host) {
    host.request(Op::Flush, at(0, 0), 0)
        .expect("every drive flushes");
}
