// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a generator hands back: it goes into the result line under `load`.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::now_ns;
use crate::meter::Meter;

/// A part of a load, timed by two readings of the clock.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub ns: u64,
}

/// The result of one load. Everything in it is the same for the same seed, in
/// the machine also the times.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub name: String,
    /// All parameters, defaults included.
    pub args: Value,
    /// Successful operations by kind.
    pub operations: Map<String, Value>,
    pub user_written_bytes: u64,
    pub user_read_bytes: u64,
    /// The parts of the load in order.
    pub parts: Vec<Part>,
    /// Summaries by kind of operation, where `latency` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Map<String, Value>>,
    /// What only this generator has to say.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl Report {
    /// Takes over the counts of a meter.
    pub fn metered(mut self, meter: &Meter) -> Self {
        self.operations = meter.operations();
        self.user_written_bytes = meter.written_bytes;
        self.user_read_bytes = meter.read_bytes;
        self.latency_ns = meter.latency_ns();
        self
    }

    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Runs a part of the load and notes how long it took.
    pub fn part<T>(&mut self, name: &'static str, act: impl FnOnce() -> T) -> T {
        let start = now_ns();
        let result = act();
        self.parts.push(Part {
            name,
            ns: now_ns() - start,
        });
        result
    }
}
