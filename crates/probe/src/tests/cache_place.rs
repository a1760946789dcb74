// SPDX-License-Identifier: MIT OR Apache-2.0
//! After a durable small write the arm is where the log is: the time of the next read tells how far away that was.

use crate::disk::{Stop, BLOCK_BYTES, MIB};
use crate::finding::{Confidence, Finding};
use crate::session::Session;
use crate::statistics::mean;

const WRITTEN_AT: [f64; 3] = [0.1, 0.5, 0.9];
const READ_AT: [f64; 9] = [0.01, 0.12, 0.25, 0.37, 0.5, 0.62, 0.75, 0.87, 0.99];
const TIMES: usize = 24;
/// A log in parts is so near to what is written: anywhere in a tenth of the disk, and what the fit is off.
const WITHIN: f64 = 0.18;

pub fn run(s: &mut Session<'_>) -> Result<(), Stop> {
    let (key, what) = ("cache.place", "place of the persistent cache");
    let Some(law) = s.known.mechanics.seek else {
        s.found(Finding::open(key, what, "the seek law is not known".into()));
        return Ok(());
    };
    let constant_ms = s.known.mechanics.revolution_ms / 2.0 + s.known.mechanics.command_ms;
    let most_ms = 2.0 * constant_ms + law.ms(1.0) + 1.0;
    let mut places = Vec::new();
    let mut residuals = Vec::new();
    for written_at in WRITTEN_AT {
        let points = points(s, written_at, constant_ms, most_ms)?;
        let error = |at: f64| -> f64 {
            let one = |(x, ms): &(f64, f64)| (law.ms((x - at).abs()) - ms).powi(2);
            points.iter().map(one).sum::<f64>() / points.len() as f64
        };
        let best = (0..=100)
            .map(|i| f64::from(i) / 100.0)
            .min_by(|p, q| error(*p).total_cmp(&error(*q)));
        let best = best.unwrap_or(0.0);
        places.push(best);
        residuals.push(error(best).sqrt());
    }
    let how = format!(
        "after writes at 10, 50 and 90 % of the disk the arm was at {:.0}, {:.0} and {:.0} % of its stroke \
         (times of reads at nine places, within {:.1} ms of the seek law)",
        places[0] * 100.0,
        places[1] * 100.0,
        places[2] * 100.0,
        residuals.iter().fold(0.0, |a: f64, b| a.max(*b))
    );
    let spread = places
        .iter()
        .fold(0.0, |a: f64, p| a.max((p - places[0]).abs()));
    let follows = WRITTEN_AT
        .iter()
        .zip(&places)
        .all(|(w, p)| (s.known.mechanics.stroke(*w) - p).abs() < WITHIN);
    if spread < 0.15 {
        let place = mean(&places);
        let word = match place {
            p if p < 0.2 => "outer diameter",
            p if p > 0.8 => "inner diameter",
            _ => "middle",
        };
        s.found(Finding::word(key, what, word, Confidence::High, how));
    } else if follows {
        s.known.spread = true;
        s.found(Finding::word(
            key,
            what,
            "spread over the disk",
            Confidence::Medium,
            how,
        ));
    } else {
        s.found(Finding::open(key, what, how));
    }
    Ok(())
}

/// For each place that is read after writes at `written_at`, how far the arm goes and how long that takes.
fn points(
    s: &mut Session<'_>,
    written_at: f64,
    constant_ms: f64,
    most_ms: f64,
) -> Result<Vec<(f64, f64)>, Stop> {
    let mut points = Vec::new();
    for read_at in READ_AT {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let jitter = s.below(64 * MIB / BLOCK_BYTES) * BLOCK_BYTES;
            let write = s.offset(written_at, BLOCK_BYTES, 128 * MIB) + jitter;
            s.write(write, BLOCK_BYTES)?;
            s.flush()?;
            // Never a block that was written.
            let jitter = s.below(64 * MIB / BLOCK_BYTES) * BLOCK_BYTES;
            let read = s.offset(read_at, BLOCK_BYTES, 256 * MIB) + 128 * MIB + jitter;
            let ms = s.read(read, BLOCK_BYTES)?;
            // No arm needs longer: a cleaner came first.
            if ms < most_ms {
                times.push(ms);
            }
        }
        points.push((
            s.known.mechanics.stroke(read_at),
            mean(&times) - constant_ms,
        ));
    }
    Ok(points)
}
