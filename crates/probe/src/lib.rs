// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out from timing alone what is behind a disk: conventional or shingled, persistent cache, bands, cleaning.
//!
//! The method is Skylight's (Aghayev and Desnoyers, FAST'15). A test sees a [`disk::Disk`]: its capacity, requests one
//! at a time, and a clock; no test knows a profile or a counter. docs/guide/probe.md says what each test does and what
//! it cannot tell.
#![deny(unsafe_code)]

pub mod block_device;
pub mod compare;
pub mod disk;
pub mod finding;
pub mod plan;
pub mod profile;
pub mod session;
pub mod simulated;
pub mod statistics;
pub mod tests;
pub mod watch;
