// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets as people write them: `drives/targets/NAME.toml`, one row for each number that somebody measured. A
//! profile joins the validation by getting such a file.

use super::experiments::Experiment;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file of targets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Whether the headline figures are also given over what is not known.
    #[serde(default)]
    sensitivity: bool,
    targets: Vec<Target>,
}

/// One row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Number in the literature notes, or the property.
    pub id: String,
    /// What is compared.
    pub what: String,
    /// What is done.
    pub experiment: Experiment,
    /// Which of its readings.
    pub reading: String,
    /// Another drive: what is compared is the reading over that drive's, where a source only says which is larger.
    pub relative_to: Option<String>,
    /// The measured number; none where nobody has published one.
    pub expected: Option<Expected>,
    /// Of both.
    pub unit: String,
    /// How far off the model may be.
    pub tolerance: Tolerance,
    /// What a match is worth.
    pub kind: Kind,
    /// Who says so, and how far to trust it (letters as in the profiles).
    pub source: String,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Expected {
    /// A number.
    Value(f64),
    /// A range.
    Range([f64; 2]),
    /// A bound.
    AtMost {
        /// The bound.
        at_most: f64,
    },
    /// A bound.
    AtLeast {
        /// The bound.
        at_least: f64,
    },
}

/// How far off the model may be: what published models of such drives reach (Shafaei et al., TOS 13(4), 2017).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// Counts, bytes and sequential rates: 10 %.
    Bytes,
    /// Times: 25 %.
    Time,
    /// The range or bound is all there is.
    Exact,
}

impl Tolerance {
    /// As a share.
    pub fn share(self) -> f64 {
        match self {
            Tolerance::Bytes => 0.10,
            Tolerance::Time => 0.25,
            Tolerance::Exact => 0.0,
        }
    }
}

/// What a match is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A parameter or rule read back through the whole model.
    Input,
    /// Parameters were chosen so that it comes out.
    Fitted,
    /// No parameter was chosen by it.
    Predicted,
}

impl Expected {
    /// How far `value` is outside of what was measured, as a share of the nearest bound; 0 inside a range. Of a bound of
    /// zero, anything else is infinitely far off.
    pub fn error(self, value: f64) -> f64 {
        let (least, most) = match self {
            Expected::Value(v) => (v, v),
            Expected::Range([least, most]) => (least, most),
            Expected::AtMost { at_most } => (f64::NEG_INFINITY, at_most),
            Expected::AtLeast { at_least } => (at_least, f64::INFINITY),
        };
        let off = |bound: f64| {
            if value == bound {
                0.0
            } else {
                (value - bound) / bound.abs()
            }
        };
        if value < least {
            off(least)
        } else if value > most {
            off(most)
        } else {
            0.0
        }
    }
}

/// The rows of a drive, and whether its file asks for the sensitivity of the headline figures. A drive without a file has
/// no rows.
pub fn load(drives: &Path, name: &str) -> Result<(Vec<Target>, bool), String> {
    let path = drives.join("targets").join(format!("{name}.toml"));
    if !path.exists() {
        return Ok((Vec::new(), false));
    }
    let file = path.display();
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{file}: {why}"))?;
    let parsed: File = toml_edit::de::from_str(&text).map_err(|why| {
        let line = why.span().map_or(1, |s| {
            text[..s.start.min(text.len())].matches('\n').count() + 1
        });
        format!("{file}:{line}: {}", why.message().trim())
    })?;
    Ok((parsed.targets, parsed.sensitivity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_counted_from_the_nearest_bound() {
        assert_eq!(Expected::Value(10.0).error(11.0), 0.1);
        assert_eq!(Expected::Range([10.0, 20.0]).error(15.0), 0.0);
        assert_eq!(Expected::Range([10.0, 20.0]).error(5.0), -0.5);
        assert_eq!(Expected::AtMost { at_most: 10.0 }.error(-5.0), 0.0);
        assert_eq!(Expected::AtLeast { at_least: 10.0 }.error(5.0), -0.5);
        assert_eq!(Expected::Value(0.0).error(0.0), 0.0);
        assert!(Expected::Value(0.0).error(1.0).is_infinite());
    }
}
