// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test finds out: a value with its unit, the interval it is in, how far to trust it, and how it was derived.

use serde::Serialize;

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// In the finding's unit.
    Number(f64),
    /// One of a few words.
    Word(String),
}

/// How far to trust a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The signal stood far out of the noise, or many measurements agree.
    High,
    /// Likely; another cause is possible.
    Medium,
    /// A hint.
    Low,
}

/// One answer; without a value it says why not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Name for programs, with the test's name before the point.
    pub key: String,
    /// What it is.
    pub what: String,
    /// The answer, if there is one.
    pub value: Option<Value>,
    /// Unit; empty for words.
    pub unit: String,
    /// Interval in which the true value is believed to be.
    pub interval: Option<(f64, f64)>,
    /// How far to trust it.
    pub confidence: Option<Confidence>,
    /// How it was derived, or why the test could not tell.
    pub how: String,
}

impl Finding {
    /// A number that is believed to be in `interval`.
    pub fn number(
        key: &str,
        what: &str,
        value: f64,
        unit: &str,
        interval: (f64, f64),
        how: String,
    ) -> Self {
        let spread = (interval.1 - interval.0) / value.abs().max(1e-12);
        Finding {
            key: key.into(),
            what: what.into(),
            value: Some(Value::Number(value)),
            unit: unit.into(),
            interval: Some(interval),
            confidence: Some(match spread {
                s if s <= 0.1 => Confidence::High,
                s if s <= 0.4 => Confidence::Medium,
                _ => Confidence::Low,
            }),
            how,
        }
    }

    /// A word.
    pub fn word(key: &str, what: &str, word: &str, confidence: Confidence, how: String) -> Self {
        Finding {
            key: key.into(),
            what: what.into(),
            value: Some(Value::Word(word.into())),
            unit: String::new(),
            interval: None,
            confidence: Some(confidence),
            how,
        }
    }

    /// No answer, and why.
    pub fn open(key: &str, what: &str, why: String) -> Self {
        Finding {
            key: key.into(),
            what: what.into(),
            value: None,
            unit: String::new(),
            interval: None,
            confidence: None,
            how: why,
        }
    }
}

/// All findings of a probe.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// The finding of this key.
    pub fn get(&self, key: &str) -> Option<&Finding> {
        self.0.iter().find(|f| f.key == key)
    }

    /// Its number, if it has one.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)?.value.as_ref()? {
            Value::Number(number) => Some(*number),
            Value::Word(_) => None,
        }
    }

    /// Its word, if it has one.
    pub fn word(&self, key: &str) -> Option<&str> {
        match self.get(key)?.value.as_ref()? {
            Value::Word(word) => Some(word),
            Value::Number(_) => None,
        }
    }
}
