// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tests run, how long that takes, and what happens when one cannot go on.

use crate::disk::{Facts, Stop, GIB};
use crate::finding::{Confidence, Finding, Findings};
use crate::session::Session;
use crate::tests::{Test, TESTS};

/// Tests in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    names: Vec<&'static str>,
    /// Tests that would write and may not.
    pub left_out: Vec<&'static str>,
}

fn find(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|t| t.name == name)
}

impl Plan {
    /// `only` and what they need; without `may_write`, only tests that read.
    pub fn new(only: &[String], may_write: bool) -> Result<Plan, String> {
        let mut wanted: Vec<&str> = only.iter().map(String::as_str).collect();
        if wanted.is_empty() {
            wanted = TESTS.iter().map(|t| t.name).collect();
        }
        for name in &wanted {
            if find(name).is_none() {
                let known: Vec<&str> = TESTS.iter().map(|t| t.name).collect();
                return Err(format!(
                    "there is no test called '{name}': expected one of {}",
                    known.join(", ")
                ));
            }
        }
        let needed = |test: &Test| {
            let by = |name: &&str| find(name).is_some_and(|t| t.needs.contains(&test.name));
            wanted.contains(&test.name) || wanted.iter().any(by)
        };
        let (in_plan, left_out): (Vec<&Test>, Vec<&Test>) = TESTS
            .iter()
            .filter(|t| needed(t))
            .partition(|t| may_write || !t.writes);
        if in_plan.is_empty() {
            return Err(format!(
                "{} writes to the disk: name it again with --destructive",
                wanted.join(", ")
            ));
        }
        let names = |tests: Vec<&Test>| {
            TESTS
                .iter()
                .map(|t| t.name)
                .filter(|n| tests.iter().any(|t| t.name == *n))
                .collect()
        };
        Ok(Plan {
            names: names(in_plan),
            left_out: names(left_out),
        })
    }

    /// Names of the tests.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    fn tests(&self) -> impl Iterator<Item = &'static Test> + '_ {
        self.names.iter().filter_map(|name| find(name))
    }

    /// Each test that is left out, and what it would find.
    pub fn left_open(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let left_out = self.left_out.iter().filter_map(|name| find(name));
        left_out.map(|test| (test.name, test.summary))
    }

    /// One sentence on the time that it takes on the disk's clock.
    pub fn duration(&self, facts: &Facts) -> String {
        let sum = |of: fn(&Test) -> f64| self.tests().map(of).sum::<f64>() / 60.0;
        let usual = sum(|t| t.usual_s).ceil();
        let conventional = self
            .tests()
            .filter(|t| !t.shingled_only)
            .map(|t| t.usual_s)
            .sum::<f64>()
            / 60.0;
        let most = sum(|t| t.limit_s).ceil() / 60.0;
        let size = facts.capacity_bytes as f64 / 1e12;
        if self.tests().any(|t| t.shingled_only) {
            format!(
                "{size:.1} TB: about {usual:.0} minutes on a shingled disk with nothing left to clean, {:.0} on another; \
                 at most {most:.0} hours",
                conventional.ceil()
            )
        } else {
            format!("{size:.1} TB: about {usual:.0} minutes; at most {most:.1} hours")
        }
    }

    /// Runs the tests. What was found is in the session, also when the probe was stopped.
    pub fn run(&self, session: &mut Session<'_>) -> Result<(), Stop> {
        if session.capacity() < 16 * GIB {
            return Err(Stop::Failed(format!(
                "{} has {} bytes: the tests need 16 GiB or more",
                session.facts().name,
                session.capacity()
            )));
        }
        for test in self.tests() {
            if test.shingled_only && session.known.logs == Some(false) {
                continue;
            }
            session.tell(test.summary);
            session.limit(test.limit_s);
            match (test.run)(session) {
                Ok(()) => {}
                Err(Stop::OutOfTime) => {
                    let why = format!("not done after {:.0} minutes", test.limit_s / 60.0);
                    session
                        .findings
                        .0
                        .push(Finding::open(test.name, test.summary, why));
                }
                Err(other) => return Err(other),
            }
        }
        session.limit(f64::MAX);
        conclude(&mut session.findings);
        Ok(())
    }
}

/// What kind of drive all of it speaks for.
fn conclude(findings: &mut Findings) {
    let bands = ["band.outer", "band.middle", "band.inner"]
        .iter()
        .filter(|k| findings.number(k).is_some())
        .count();
    let cleans = findings.word("cleaning.idle") == Some("yes");
    let Some(kind) = findings.get("kind.writes") else {
        return;
    };
    let confidence = kind.confidence.unwrap_or(Confidence::Low);
    let (key, what) = ("kind", "kind of drive");
    let evidence = format!(
        "small writes go {}",
        findings.word("kind.writes").unwrap_or("somewhere")
    );
    let finding = match findings.word("kind.writes") {
        Some("in place") => Finding::word(key, what, "conventional", confidence, evidence),
        Some("refused") => {
            let how =
                "writes out of order end with an error, and there is no zone interface".into();
            Finding::word(key, what, "sequential writes enforced", confidence, how)
        }
        Some(_) if findings.word("stream.rule") == Some("the end of the last write") => {
            let how = format!("{evidence}, but in place where a zone's last write ended");
            Finding::word(key, what, "host-aware SMR", Confidence::High, how)
        }
        Some(_) if findings.word("mapping") == Some("dynamic") => {
            let how = format!("{evidence}, and what was cleaned lies elsewhere afterwards");
            Finding::word(key, what, "drive-managed SMR", Confidence::High, how)
        }
        Some(_) if bands > 0 => {
            let how = format!("{evidence}, and come home band by band ({bands} of 3 places)");
            Finding::word(key, what, "drive-managed SMR", Confidence::High, how)
        }
        Some(_) if cleans => {
            let how = format!("{evidence}, and something is cleaned when idle; no bands were seen");
            Finding::word(key, what, "drive-managed SMR", Confidence::Medium, how)
        }
        Some(_) => {
            let how = format!("{evidence}: shingled, or conventional with a log for small writes; no bands were seen");
            Finding::word(key, what, "drive-managed SMR", Confidence::Low, how)
        }
        None => Finding::open(key, what, "it is not clear where small writes go".into()),
    };
    findings.0.insert(0, finding);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_leave_to_write_only_the_tests_that_read_are_planned() {
        let plan = Plan::new(&[], false).unwrap();
        assert_eq!(plan.names(), ["mechanics"]);
        assert_eq!(plan.left_out.len(), TESTS.len() - 1);
        assert!(TESTS.iter().all(|t| t.writes == (t.name != "mechanics")));
    }

    #[test]
    fn a_test_brings_those_it_needs() {
        let plan = Plan::new(&["mapping".into()], true).unwrap();
        assert_eq!(
            plan.names(),
            ["mechanics", "kind", "scatter", "cleaning", "mapping"]
        );
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let why = Plan::new(&["band".into()], true).unwrap_err();
        assert!(why.contains("'band'") && why.contains("bands"), "{why}");
    }

    #[test]
    fn every_test_needs_only_tests_before_it() {
        for (i, test) in TESTS.iter().enumerate() {
            for need in test.needs {
                assert!(
                    TESTS[..i].iter().any(|t| t.name == *need),
                    "{} needs {need}",
                    test.name
                );
            }
            // `Plan::new` follows one step: the list names all of them.
            for need in test.needs.iter().filter_map(|n| find(n)) {
                assert!(
                    need.needs.iter().all(|n| test.needs.contains(n)),
                    "{}",
                    test.name
                );
            }
        }
    }
}
