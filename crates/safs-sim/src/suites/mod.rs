// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: power cuts, the model, forged images. A sample of each is a test; the long runs are
//! `cargo run --release -p safs-sim --example suites`.

pub mod choose;
pub mod config;
pub mod cuts;
pub mod forge;
pub mod fuzz;
pub mod history;
pub mod model;
pub mod power;
pub mod random;
pub mod reach;
pub mod rings;
pub mod room;
pub mod sim;
pub mod steps;
pub mod story;
pub mod verify;
