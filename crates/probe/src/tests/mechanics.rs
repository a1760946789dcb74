// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads only: interface, rotation, rate over the disk, seek law.

use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::Finding;
use crate::session::{SeekLaw, Session};
use crate::statistics::{least_squares, mean, median, quantile, standard_error};

const PLACES: usize = 17;
const RATE_BYTES: u64 = 24 * MIB;
const RATE_SKIPPED_BYTES: u64 = 4 * MIB;
const SEEKS: usize = 100;
const DISTANCES: [f64; 12] = [
    0.005, 0.015, 0.03, 0.06, 0.1, 0.16, 0.24, 0.34, 0.46, 0.6, 0.78, 0.96,
];
const RANDOM_READS: usize = 200;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    interface(s)?;
    rates(s)?;
    rotation(s)?;
    seeks(s)
}

/// The same data again and again: from the second time on they come from DRAM.
fn interface(s: &mut Session<'_>) -> Result<(), Stop> {
    let again = |s: &mut Session<'_>, bytes: u64| -> Result<Vec<f64>, Stop> {
        let at = s.offset(0.5, MIB, 8 * MIB) + bytes;
        s.read(at, bytes)?;
        (0..20).map(|_| s.read(at, bytes)).collect()
    };
    let (small, large) = (again(s, BLOCK_BYTES)?, again(s, 256 << 10)?);
    let (small_ms, large_ms) = (median(&small), median(&large));
    let link = ((256 << 10) - BLOCK_BYTES) as f64 / 1e3 / (large_ms - small_ms);
    let command_ms = (small_ms - BLOCK_BYTES as f64 / 1e3 / link.max(1.0)).max(0.001);
    s.known.mechanics.command_ms = small_ms.min(2.0);
    if small_ms > 2.0 || link < 10.0 {
        let why = format!(
            "reading 4 KiB again took {small_ms:.1} ms: the disk keeps nothing that it read"
        );
        s.found(Finding::open(
            "interface.command",
            "command without the medium",
            why,
        ));
        return Ok(());
    }
    let spread = (quantile(&small, 0.1), quantile(&small, 0.9));
    let how =
        "reading 4 KiB again from the disk's DRAM, less the transfer; host included".to_string();
    let interval = (
        spread.0 - small_ms + command_ms,
        spread.1 - small_ms + command_ms,
    );
    s.found(Finding::number(
        "interface.command",
        "command without the medium",
        command_ms,
        "ms",
        interval,
        how,
    ));
    let how = "256 KiB against 4 KiB from the disk's DRAM".to_string();
    let interval = (link * 0.9, link * 1.1);
    s.found(Finding::number(
        "interface.link_rate",
        "rate of the cable",
        link,
        "MB/s",
        interval,
        how,
    ));
    Ok(())
}

fn rates(s: &mut Session<'_>) -> Result<(), Stop> {
    let bytes = RATE_BYTES.min(s.capacity() / 64 / MIB * MIB);
    for i in 0..PLACES {
        let place = i as f64 / (PLACES - 1) as f64;
        let from = s.offset(place, MIB, bytes);
        let mut ms = 0.0;
        for at in (0..bytes).step_by(MIB as usize) {
            let one = s.read(from + at, MIB)?;
            ms += if at >= RATE_SKIPPED_BYTES { one } else { 0.0 };
        }
        let rate = (bytes - RATE_SKIPPED_BYTES) as f64 / 1e3 / ms;
        s.known.mechanics.rates.push((place, rate));
    }
    let (outer, inner) = (
        s.known.mechanics.rates[0].1,
        s.known.mechanics.rates[PLACES - 1].1,
    );
    for (key, what, rate) in [
        (
            "platters.outer_rate",
            "sequential rate, outer diameter",
            outer,
        ),
        (
            "platters.inner_rate",
            "sequential rate, inner diameter",
            inner,
        ),
    ] {
        let how = format!("reading {} MiB in order", bytes / MIB);
        s.found(Finding::number(
            key,
            what,
            rate,
            "MB/s",
            (rate * 0.97, rate * 1.03),
            how,
        ));
    }
    Ok(())
}

/// Each read begins a little before the last one: the platters come round once less that little.
fn rotation(s: &mut Session<'_>) -> Result<(), Stop> {
    const TIMES: u64 = 40;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut spread: Vec<f64> = Vec::new();
    for (i, blocks) in [4, 8, 16, 32].into_iter().enumerate() {
        let back = blocks * BLOCK_BYTES;
        let start = s.offset(0.3 + 0.05 * i as f64, MIB, 64 * MIB) + TIMES * back;
        s.read(start, BLOCK_BYTES)?;
        let mut steps = Vec::new();
        for k in 1..=TIMES {
            steps.push(s.read(start - k * back, BLOCK_BYTES)?);
        }
        let middle = median(&steps);
        spread.push((quantile(&steps, 0.75) - quantile(&steps, 0.25)) / middle);
        points.push((
            back as f64 / 1e3 / s.known.mechanics.rate(0.3 + 0.05 * i as f64),
            middle,
        ));
    }
    let turns: Vec<f64> = points.iter().map(|(back, ms)| ms + back).collect();
    let rows: Vec<[f64; 2]> = points.iter().map(|p| [1.0, p.0]).collect();
    let wanted: Vec<f64> = points.iter().map(|p| p.1).collect();
    // Without distance nothing but the revolution is left, whatever the rate between two steps of the arm.
    let (turn_ms, slope) = least_squares(&rows, &wanted).map_or((0.0, 0.0), |[a, b]| (a, b));
    let error_ms = (quantile(&turns, 1.0) - quantile(&turns, 0.0)) / 2.0;
    s.known.mechanics.revolution_ms = turn_ms;
    let regular =
        median(&spread) < 0.05 && (-1.5..=-0.5).contains(&slope) && error_ms < 0.05 * turn_ms;
    if !regular || !(2.0..=70.0).contains(&turn_ms) {
        s.known.mechanics.revolution_ms = 10.0;
        let why = format!(
            "reading backwards took {turn_ms:.2} ms a step, {slope:.1} ms for each ms of distance, \
             and not steadily: not what one arm over turning platters does"
        );
        s.found(Finding::open("platters.spindle", "rotation", why));
        return Ok(());
    }
    let how = format!("reading backwards by 16 to 128 KiB: one revolution is {turn_ms:.3} ms");
    let interval = (60e3 / (turn_ms + error_ms), 60e3 / (turn_ms - error_ms));
    s.found(Finding::number(
        "platters.spindle",
        "rotation",
        60e3 / turn_ms,
        "rpm",
        interval,
        how,
    ));
    Ok(())
}

fn random_reads(s: &mut Session<'_>) -> Result<(), Stop> {
    let any = s.capacity() / BLOCK_BYTES - 1;
    let mut reads = Vec::new();
    for _ in 0..RANDOM_READS {
        let at = s.below(any) * BLOCK_BYTES;
        reads.push(s.read(at, BLOCK_BYTES)?);
    }
    let random_ms = mean(&reads);
    s.known.mechanics.random_read_ms = random_ms;
    let error_ms = 2.0 * standard_error(&reads);
    let how = format!("{RANDOM_READS} reads over the whole disk");
    let interval = (random_ms - error_ms, random_ms + error_ms);
    s.found(Finding::number(
        "mechanics.random_read",
        "random 4 KiB read",
        random_ms,
        "ms",
        interval,
        how,
    ));
    Ok(())
}

fn seeks(s: &mut Session<'_>) -> Result<(), Stop> {
    random_reads(s)?;
    let turn_ms = s.known.mechanics.revolution_ms;
    let mut points = Vec::new();
    for distance in DISTANCES {
        let mut times = Vec::new();
        for i in 0..SEEKS {
            let low = (1.0 - distance) * s.below(1 << 30) as f64 / f64::from(1 << 30);
            let [mut from, mut to] = [low, low + distance].map(|x| s.known.mechanics.place(x));
            if i % 2 == 1 {
                std::mem::swap(&mut from, &mut to);
            }
            let (from, to) = (
                s.offset(from, BLOCK_BYTES, MIB),
                s.offset(to, BLOCK_BYTES, MIB),
            );
            s.read(from, BLOCK_BYTES)?;
            times.push(s.read(to, BLOCK_BYTES)?);
        }
        // The platters stand anywhere: the times lie evenly over one revolution, and the ends say more than the mean.
        let middle = (quantile(&times, 0.03) + quantile(&times, 0.97)) / 2.0;
        points.push((
            distance,
            middle - turn_ms / 2.0 - s.known.mechanics.command_ms,
        ));
    }
    let Some(law) = SeekLaw::fit(&points) else {
        let why =
            "time does not grow with distance: there is no arm, or something hides it".to_string();
        s.found(Finding::open("seek.mean", "mean seek", why));
        return Ok(());
    };
    s.known.mechanics.seek = Some(law);
    let residual = points
        .iter()
        .map(|(x, ms)| (law.ms(*x) - ms).abs())
        .fold(0.0, f64::max);
    let interval = |ms: f64| (ms - residual, ms + residual);
    let how = format!(
        "{SEEKS} pairs of reads at each of {} distances, less half a revolution",
        DISTANCES.len()
    );
    s.found(Finding::number(
        "seek.mean",
        "mean seek",
        law.mean_ms(),
        "ms",
        interval(law.mean_ms()),
        how.clone(),
    ));
    s.found(Finding::number(
        "seek.full",
        "full stroke",
        law.ms(1.0),
        "ms",
        interval(law.ms(1.0)),
        how,
    ));
    Ok(())
}
