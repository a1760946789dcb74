// SPDX-License-Identifier: MIT OR Apache-2.0
//! What requests saw of a drive: latencies (HDR histograms), stalls, throughput and the state of the cache over time.

use crate::trace_file::OPS;
use crate::validate::readings::histogram;
use crate::validate::short;
use hdrhistogram::Histogram;
use serde_json::{json, Value};
use smr_drive::request::{Op, Request};
use smr_drive::Drive;
use std::io::{self, Write};
use zoned::SECTOR_BYTES;

/// Rows of the table over time, at most; records have all.
const ROWS_MAX: usize = 24;

/// One interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    requests: u64,
    bytes: u64,
    stalls: u64,
    longest_ns: u64,
    cache_entries: u64,
    cache_bytes: u64,
    bands_dirty: u64,
    cleaning_ns: u64,
}

/// The measurement.
pub struct Meter {
    stall_ns: u64,
    interval_ns: u64,
    begin_ns: Option<u64>,
    end_ns: u64,
    latencies: [Histogram<u64>; OPS.len()],
    bytes: [u64; OPS.len()],
    stalls: u64,
    stalled_ns: u64,
    samples: Vec<Sample>,
    open: Sample,
}

impl Meter {
    /// A request that takes `stall_ns` or longer is a stall; the drive is looked at every `interval_ns`.
    pub fn new(stall_ns: u64, interval_ns: u64) -> Self {
        Meter {
            stall_ns,
            interval_ns: interval_ns.max(1),
            begin_ns: None,
            end_ns: 0,
            latencies: std::array::from_fn(|_| histogram()),
            bytes: [0; OPS.len()],
            stalls: 0,
            stalled_ns: 0,
            samples: Vec::new(),
            open: Sample::default(),
        }
    }

    /// A request that arrived at `arrival_ns` is done.
    pub fn done(&mut self, drive: &Drive, request: &Request, arrival_ns: u64, now_ns: u64) {
        let begin_ns = *self.begin_ns.get_or_insert(arrival_ns);
        let interval = (now_ns.saturating_sub(begin_ns) / self.interval_ns) as usize;
        while self.samples.len() < interval {
            self.close(drive);
        }
        let ns = now_ns.saturating_sub(arrival_ns);
        let bytes = match request.op {
            Op::Read | Op::Write | Op::WriteZeroes => u64::from(request.sectors) * SECTOR_BYTES,
            _ => 0,
        };
        self.latencies[request.op as usize].saturating_record(ns);
        self.bytes[request.op as usize] += bytes;
        self.open.requests += 1;
        self.open.bytes += bytes;
        self.open.longest_ns = self.open.longest_ns.max(ns);
        if ns >= self.stall_ns {
            self.open.stalls += 1;
            self.stalls += 1;
            self.stalled_ns += ns;
        }
        self.end_ns = now_ns;
    }

    fn close(&mut self, drive: &Drive) {
        let state = drive.snapshot();
        self.samples.push(Sample {
            cache_entries: state.cache_entries,
            cache_bytes: state.cache_bytes,
            bands_dirty: state.bands_dirty,
            cleaning_ns: drive.counters().cleaning_ns,
            ..self.open
        });
        self.open = Sample::default();
    }

    /// Ends the last interval.
    pub fn finish(&mut self, drive: &Drive) {
        if self.open.requests > 0 {
            self.close(drive);
        }
    }

    fn seconds(&self) -> f64 {
        (self.end_ns - self.begin_ns.unwrap_or(self.end_ns)) as f64 / 1e9
    }

    fn interval_s(&self) -> f64 {
        self.interval_ns as f64 / 1e9
    }

    /// JSON lines: one for the whole, one for each interval.
    pub fn records(&self) -> Vec<Value> {
        let s = self.seconds();
        let by_op: serde_json::Map<String, Value> = OPS
            .iter()
            .zip(&self.latencies)
            .zip(self.bytes)
            .filter(|((_, latencies), _)| !latencies.is_empty())
            .map(|((name, latencies), bytes)| {
                let ns = |q| latencies.value_at_quantile(q);
                let value = json!({
                    "requests": latencies.len(), "bytes": bytes, "iops": latencies.len() as f64 / s,
                    "mib_s": bytes as f64 / 1048576.0 / s, "mean_ns": latencies.mean(),
                    "p50_ns": ns(0.5), "p90_ns": ns(0.9), "p99_ns": ns(0.99), "p99_9_ns": ns(0.999),
                    "max_ns": latencies.max(),
                });
                ((*name).to_string(), value)
            })
            .collect();
        let whole = json!({
            "event": "whole", "virtual_s": s, "operations": by_op, "stall_ns": self.stall_ns,
            "stalls": self.stalls, "stalled_ns": self.stalled_ns,
        });
        let samples = self.samples.iter().enumerate().map(|(i, sample)| {
            json!({
                "event": "interval", "from_s": i as f64 * self.interval_s(), "requests": sample.requests,
                "bytes": sample.bytes, "stalls": sample.stalls, "longest_ns": sample.longest_ns,
                "cache_entries": sample.cache_entries, "cache_bytes": sample.cache_bytes,
                "bands_dirty": sample.bands_dirty, "cleaning_ns": sample.cleaning_ns,
            })
        });
        std::iter::once(whole).chain(samples).collect()
    }

    /// The same for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let s = self.seconds();
        writeln!(
            out,
            "operation      requests       IOPS      MiB/s    mean ms     p50 ms     p90 ms     p99 ms   p99.9 ms     max ms"
        )?;
        for ((name, latencies), bytes) in OPS.iter().zip(&self.latencies).zip(self.bytes) {
            if latencies.is_empty() {
                continue;
            }
            let ms = |q| latencies.value_at_quantile(q) as f64 / 1e6;
            writeln!(
                out,
                "{name:<12} {:>10} {:>10.1} {:>10.2} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10.3}",
                latencies.len(),
                latencies.len() as f64 / s,
                bytes as f64 / 1048576.0 / s,
                latencies.mean() / 1e6,
                ms(0.5),
                ms(0.9),
                ms(0.99),
                ms(0.999),
                latencies.max() as f64 / 1e6
            )?;
        }
        writeln!(
            out,
            "stalls of {} ms and more: {}, {:.1} s of {s:.1} s",
            self.stall_ns / 1_000_000,
            self.stalls,
            self.stalled_ns as f64 / 1e9
        )?;
        self.print_intervals(out)
    }

    fn print_intervals(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "   from s       IOPS      MiB/s   stalls   longest ms   cache entries   cache MiB   bands dirty   cleaning %"
        )?;
        let together = self.samples.len().div_ceil(ROWS_MAX).max(1);
        let mut cleaned_ns = 0;
        for (i, samples) in self.samples.chunks(together).enumerate() {
            // The last interval is as long as there were requests.
            let from_s = (i * together) as f64 * self.interval_s();
            let long_s =
                (samples.len() as f64 * self.interval_s()).min(s_left(self.seconds(), from_s));
            let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
            let last = samples[samples.len() - 1];
            writeln!(
                out,
                "{from_s:>9} {:>10.1} {:>10.2} {:>8} {:>12.1} {:>15} {:>11.1} {:>13} {:>12.0}",
                sum(|x| x.requests) as f64 / long_s,
                sum(|x| x.bytes) as f64 / 1048576.0 / long_s,
                sum(|x| x.stalls),
                samples.iter().map(|x| x.longest_ns).max().unwrap_or(0) as f64 / 1e6,
                last.cache_entries,
                last.cache_bytes as f64 / 1048576.0,
                last.bands_dirty,
                (last.cleaning_ns - cleaned_ns) as f64 / 1e7 / long_s,
                from_s = short(from_s)
            )?;
            cleaned_ns = last.cleaning_ns;
        }
        Ok(())
    }
}

/// What is left of the run, and never nothing: it is divided by.
fn s_left(all_s: f64, from_s: f64) -> f64 {
    (all_s - from_s).max(1e-9)
}
