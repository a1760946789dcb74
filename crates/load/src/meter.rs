// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what a generator does, and, where asked, how long each call took.
//! Reading the clock costs 256 ns of virtual time in the machine, so latencies
//! are off by default.

use hdrhistogram::Histogram;
use serde_json::{json, Map, Value};

use crate::clock::now_ns;

macro_rules! operations {
    ($($variant:ident => $name:literal),* $(,)?) => {
        /// The kinds of operation that are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op { $($variant),* }
        impl Op {
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];
            pub fn name(self) -> &'static str { match self { $(Op::$variant => $name),* } }
        }
    };
}

operations! {
    Mkdir => "mkdir",
    Rmdir => "rmdir",
    Create => "create",
    Open => "open",
    Read => "read",
    Write => "write",
    Truncate => "truncate",
    Unlink => "unlink",
    Rename => "rename",
    Link => "link",
    Symlink => "symlink",
    Readlink => "readlink",
    Stat => "stat",
    Readdir => "readdir",
    Fsync => "fsync",
    Sync => "sync",
}

/// Longest latency that is told apart: an hour of virtual time.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// One thread's counts. Meters of several threads are added with [`Meter::merge`].
pub struct Meter {
    counts: Vec<u64>,
    latencies: Option<Vec<Histogram<u64>>>,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Meter {
    pub fn new(latency: bool) -> Self {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_NS, 2).expect("constant bounds");
        Self {
            counts: vec![0; Op::ALL.len()],
            latencies: latency.then(|| Op::ALL.iter().map(|_| histogram()).collect()),
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Runs one operation and counts it if it succeeded.
    pub fn time<T, E>(
        &mut self,
        op: Op,
        act: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let start = self.latencies.is_some().then(now_ns);
        let result = act();
        if let (Some(start), Some(latencies)) = (start, self.latencies.as_mut()) {
            latencies[op as usize].saturating_record(now_ns() - start);
        }
        self.counts[op as usize] += u64::from(result.is_ok());
        result
    }

    pub fn count(&self, op: Op) -> u64 {
        self.counts[op as usize]
    }

    pub fn merge(&mut self, other: &Meter) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        if let (Some(mine), Some(theirs)) = (self.latencies.as_mut(), other.latencies.as_ref()) {
            for (a, b) in mine.iter_mut().zip(theirs) {
                a.add(b).expect("same bounds");
            }
        }
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// Counts by name, kinds that did not occur left out.
    pub fn operations(&self) -> Map<String, Value> {
        let occurred = Op::ALL.iter().filter(|op| self.count(**op) > 0);
        occurred
            .map(|op| (op.name().to_owned(), self.count(*op).into()))
            .collect()
    }

    /// Latency summaries by name, in nanoseconds; `None` if not measured.
    pub fn latency_ns(&self) -> Option<Map<String, Value>> {
        let latencies = self.latencies.as_ref()?;
        let occurred = Op::ALL.iter().zip(latencies).filter(|(_, h)| !h.is_empty());
        Some(
            occurred
                .map(|(op, h)| (op.name().to_owned(), summary(h)))
                .collect(),
        )
    }
}

/// Integers only: the last digits of a floating mean need not agree between hosts.
fn summary(h: &Histogram<u64>) -> Value {
    json!({
        "count": h.len(), "min": h.min(), "mean": h.mean() as u64,
        "p50": h.value_at_quantile(0.5), "p90": h.value_at_quantile(0.9),
        "p99": h.value_at_quantile(0.99), "p999": h.value_at_quantile(0.999), "max": h.max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_operations_are_not_counted() {
        let mut meter = Meter::new(true);
        assert!(meter.time(Op::Mkdir, || Err::<(), ()>(())).is_err());
        meter.time(Op::Mkdir, || Ok::<(), ()>(())).unwrap();
        assert_eq!(meter.operations().get("mkdir"), Some(&json!(1)));
        assert_eq!(meter.operations().len(), 1);
    }

    #[test]
    fn merging_adds_counts_and_latencies() {
        let mut sum = Meter::new(true);
        for _ in 0..3 {
            let mut one = Meter::new(true);
            one.time(Op::Read, || Ok::<(), ()>(())).unwrap();
            one.read_bytes = 5;
            sum.merge(&one);
        }
        assert_eq!((sum.count(Op::Read), sum.read_bytes), (3, 15));
        assert_eq!(sum.latency_ns().unwrap()["read"]["count"], json!(3));
    }
}
