// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file for each command: its arguments, and what it does.

pub mod compact;
pub mod fsck;
pub mod mkfs;
pub mod mount;
pub mod retain;
pub mod show;
