// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorded build of a tree of sources, as `./shingle record-build` writes it
//! (docs/reference/build-traces.md): what was there before, and what each job did.

use std::fs;
use std::path::Path;
use std::str::SplitAsciiWhitespace;

use sha2::{Digest, Sha256};

use crate::error::{IoContext, LoadError, Result};

const MAGIC: &str = "shingle-build 1";

/// A number of a path in [`BuildTrace::paths`].
pub type PathId = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Computing, in microseconds of one processor.
    Compute(u64),
    /// lstat(2).
    Look(PathId),
    /// The first bytes of a file, in order.
    Read(PathId, u64),
    /// Pieces of a file: first byte and length.
    Write {
        path: PathId,
        create: bool,
        truncate: bool,
        pieces: Vec<(u64, u64)>,
    },
    /// truncate(2).
    Resize(PathId, u64),
    /// A change of mode or times.
    Change(PathId),
    MakeDir(PathId),
    RemoveDir(PathId),
    Unlink(PathId),
    Rename(PathId, PathId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Numbers of the jobs that must have ended.
    pub after: Vec<usize>,
    pub operations: Vec<Operation>,
}

/// What was at a path before the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Directory,
    File(u64),
    Nothing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildTrace {
    /// Paths below the tree's top; a directory comes before what is in it.
    pub paths: Vec<(String, Before)>,
    pub jobs: Vec<Job>,
}

impl BuildTrace {
    /// Reads a trace; if `sha256` is given, this one and no other.
    pub fn read(file: &Path, sha256: Option<&str>) -> Result<Self> {
        let bytes = fs::read(file).on("read", file)?;
        let found: String = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if sha256.is_some_and(|wanted| wanted != found) {
            let text = format!("{}: another trace was asked for", file.display());
            return Err(LoadError::Arguments(text));
        }
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(MAGIC) {
            return Err(LoadError::Arguments("this is no trace of a build".into()));
        }
        let mut trace = Self::default();
        for (number, line) in lines {
            trace.line(line).ok_or_else(|| {
                LoadError::Arguments(format!("line {} of the trace: {line:?}", number + 1))
            })?;
        }
        Ok(trace)
    }

    /// Takes a line in; `None` if it means nothing.
    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "job" {
            let after = numbers(rest.split_ascii_whitespace())?;
            let after: Vec<usize> = after.into_iter().map(|n| n as usize).collect();
            if after.iter().any(|number| *number >= self.jobs.len()) {
                return None;
            }
            let operations = Vec::new();
            self.jobs.push(Job { after, operations });
        } else if self.jobs.is_empty() {
            let before = match word {
                "-" => Before::Directory,
                "+" => Before::Nothing,
                size => Before::File(size.parse().ok()?),
            };
            self.paths.push((rest.to_owned(), before));
        } else {
            let operation = self.operation(word, rest)?;
            self.jobs.last_mut()?.operations.push(operation);
        }
        Some(())
    }

    fn operation(&self, word: &str, rest: &str) -> Option<Operation> {
        let mut words = rest.split_ascii_whitespace();
        if word == "t" {
            return Some(Operation::Compute(words.next()?.parse().ok()?));
        }
        let mut path = || -> Option<PathId> {
            let id = words.next()?.parse().ok()?;
            (id < self.paths.len()).then_some(id)
        };
        let first = path()?;
        Some(match word {
            "s" => Operation::Look(first),
            "r" => Operation::Read(first, words.next()?.parse().ok()?),
            "w" => {
                let flags = words.next()?;
                let ends = numbers(words)?;
                Operation::Write {
                    path: first,
                    create: flags.contains('c'),
                    truncate: flags.contains('t'),
                    pieces: ends.chunks_exact(2).map(|p| (p[0], p[1])).collect(),
                }
            }
            "l" => Operation::Resize(first, words.next()?.parse().ok()?),
            "a" => Operation::Change(first),
            "m" => Operation::MakeDir(first),
            "x" => Operation::RemoveDir(first),
            "u" => Operation::Unlink(first),
            "n" => Operation::Rename(first, path()?),
            _ => return None,
        })
    }

    /// Files that were there before, with their sizes.
    pub fn sources(&self) -> impl Iterator<Item = (&str, u64)> {
        self.paths.iter().filter_map(|(path, before)| match before {
            Before::File(size) => Some((path.as_str(), *size)),
            _ => None,
        })
    }
}

fn numbers(words: SplitAsciiWhitespace) -> Option<Vec<u64>> {
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A header is made, two compilers read it, a link reads what they made.
    pub(crate) const SMALL: &str = "\
shingle-build 1
5000 a.c
- sub
9000 sub/b.c
+ gen.h
+ a.o
+ sub/b.o
+ prog.part
+ prog
job
t 1000
w 3 ct 0 100
job 0
r 0 5000
r 3 100
t 30000
w 4 ct 0 6000
job 0
r 2 9000
r 3 100
t 50000
w 5 c 64 8000 0 64
job 1 2
r 4 6000
r 5 8064
w 6 c 0 14064
a 6
n 6 7
s 1
";

    #[test]
    fn a_trace_says_what_was_there_and_who_waits() {
        let trace = BuildTrace::parse(SMALL).unwrap();
        let sources: Vec<_> = trace.sources().collect();
        assert_eq!(sources, [("a.c", 5000), ("sub/b.c", 9000)]);
        assert_eq!(trace.jobs[3].after, [1, 2]);
    }

    #[test]
    fn a_line_that_means_nothing_is_named() {
        for wrong in ["job 1", "job\nr 99 1", "job\nr 0", "job\nq 0", "big a.c"] {
            let text = format!("{MAGIC}\n5 x\n{wrong}\n");
            let error = BuildTrace::parse(&text).unwrap_err().to_string();
            assert!(error.contains("line "), "{error}");
        }
        assert!(BuildTrace::parse("shingle-build 2\n").is_err());
    }
}
