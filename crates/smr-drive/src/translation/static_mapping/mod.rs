// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Static mapping: bands at fixed places, and a persistent cache in front of them.

pub mod bands;
mod cache_map;
mod cleaning;
mod dirty_bands;
mod extents;
mod job;
mod layer;
mod places;
mod plan;

pub use layer::StaticMapping;
