// SPDX-License-Identifier: GPL-2.0-only
//! The structures of the C ABI. Their sizes and offsets are asserted here, and of C's in `tests/link.c`.

use core::mem::{align_of, offset_of, size_of};

/// `struct shingle_geometry`.
#[repr(C)]
pub struct ShingleGeometry {
    pub(crate) capacity_sectors: u64,
    pub(crate) logical_block_bytes: u32,
    pub(crate) physical_block_bytes: u32,
    pub(crate) queue_depth: u32,
    pub(crate) max_request_sectors: u32,
    pub(crate) volatile_cache: u32,
    pub(crate) fua: u32,
    pub(crate) discard: u32,
    pub(crate) zoned: u32,
    pub(crate) zone_sectors: u64,
    pub(crate) zones: u32,
    pub(crate) open_max: u32,
    pub(crate) read_restricted: u32,
}

/// `struct shingle_zone`.
#[repr(C)]
pub struct ShingleZone {
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) capacity_sectors: u64,
    pub(crate) write_pointer: u64,
    /// As in the kernel's `enum blk_zone_type`.
    pub(crate) kind: u32,
    /// As in the kernel's `enum blk_zone_cond`.
    pub(crate) condition: u32,
}

/// `struct shingle_completion`.
#[repr(C)]
pub struct ShingleCompletion {
    pub(crate) tag: u64,
    pub(crate) status: i32,
    /// Sense key, additional sense code and qualifier, a byte each from the third; 0 if all is well.
    pub(crate) sense: u32,
}

/// Bytes of a structure, and where each of its fields begins.
macro_rules! assert_layout {
    ($structure:ty, $bytes:expr, $($field:ident: $offset:expr),+) => {
        const _: () = {
            assert!(size_of::<$structure>() == $bytes && align_of::<$structure>() == 8);
            $(assert!(offset_of!($structure, $field) == $offset);)+
        };
    };
}

assert_layout!(ShingleGeometry, 64,
    capacity_sectors: 0, logical_block_bytes: 8, physical_block_bytes: 12, queue_depth: 16,
    max_request_sectors: 20, volatile_cache: 24, fua: 28, discard: 32, zoned: 36,
    zone_sectors: 40, zones: 48, open_max: 52, read_restricted: 56);
assert_layout!(ShingleZone, 40,
    start: 0, sectors: 8, capacity_sectors: 16, write_pointer: 24, kind: 32, condition: 36);
assert_layout!(ShingleCompletion, 16, tag: 0, status: 8, sense: 12);
