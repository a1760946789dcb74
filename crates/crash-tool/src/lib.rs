// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which states a power cut can leave, by a record of the requests before it (docs/design/crash-explorer.md).
#![deny(unsafe_code)]

pub mod choose;
pub mod damage;
pub mod fsck;
pub mod history;
pub mod image;
pub mod log;
pub mod pool;
