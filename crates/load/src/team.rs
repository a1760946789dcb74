// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that share a list of work. Nothing here waits by spinning: in the
//! machine a spinning thread would stop the clock for ever.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::error::{LoadError, Result};
use crate::meter::Meter;

/// Hands out the numbers of a range, in order, to whoever asks.
pub struct Handout {
    next: AtomicU64,
    end: u64,
    stopped: AtomicBool,
}

impl Handout {
    pub fn new(range: Range<u64>) -> Self {
        let Range { start, end } = range;
        Self {
            next: AtomicU64::new(start),
            end,
            stopped: AtomicBool::new(false),
        }
    }

    pub fn take(&self) -> Option<u64> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.end).then_some(number)
    }

    /// Lets the others end early: one of them has met an error.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// More would not be a workload but an accident.
const THREADS_MAX: u32 = 1024;

/// Runs `work` once per thread, thread number given, and adds up the meters.
/// The first error in the order of threads is returned.
pub fn run(
    threads: u32,
    latency: bool,
    work: impl Fn(u32, &mut Meter) -> Result<()> + Sync,
) -> Result<Meter> {
    if threads == 0 || threads > THREADS_MAX {
        let text = format!("threads is {threads}: it must be 1 to {THREADS_MAX}");
        return Err(LoadError::Arguments(text));
    }
    let one = |number| {
        let mut meter = Meter::new(latency);
        work(number, &mut meter).map(|()| meter)
    };
    let results: Vec<Result<Meter>> = thread::scope(|scope| {
        let one = &one;
        let handles: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().expect("a load thread panicked"))
            .collect()
    });
    let mut sum = Meter::new(latency);
    for result in results {
        sum.merge(&result?);
    }
    Ok(sum)
}

/// Runs `act` for every number of `0..count`, shared out among the threads.
pub fn for_each(
    threads: u32,
    latency: bool,
    count: u64,
    act: impl Fn(u64, &mut Meter) -> Result<()> + Sync,
) -> Result<Meter> {
    let handout = Handout::new(0..count);
    run(threads, latency, |_, meter| {
        while let Some(number) = handout.take() {
            act(number, meter).inspect_err(|_| handout.stop())?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_number_is_done_once() {
        let done = Mutex::new(Vec::new());
        for_each(8, false, 1000, |n, _| {
            done.lock().unwrap().push(n);
            Ok(())
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_team() {
        let act = |n, _: &mut Meter| match n {
            10 => Err(LoadError::Mismatch("ten".into())),
            _ => Ok(()),
        };
        let error = for_each(4, false, u64::MAX, act).err().unwrap();
        assert_eq!(error.to_string(), "ten");
    }
}
