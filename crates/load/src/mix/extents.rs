// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file should hold, without holding it: for each range, which write was
//! the last. A hole and what truncation has cut off are zeros.

use std::collections::BTreeMap;

use crate::payload::Contents;

/// Ranges by their start; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    written: BTreeMap<u64, Written>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    end: u64,
    generation: u64,
}

impl Extents {
    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that `start..end` was written by write `generation`.
    pub fn write(&mut self, start: u64, end: u64, generation: u64) {
        self.cut(start, end);
        if start < end {
            self.written.insert(start, Written { end, generation });
        }
        self.bytes = self.bytes.max(end);
    }

    /// Sets the size; what comes back when a file grows again is zeros.
    pub fn truncate(&mut self, bytes: u64) {
        self.cut(bytes, u64::MAX);
        self.bytes = bytes;
    }

    /// Forgets what was written to `start..end`.
    fn cut(&mut self, start: u64, end: u64) {
        let before = self
            .written
            .range(..start)
            .next_back()
            .map(|(s, w)| (*s, *w));
        if let Some((s, w)) = before.filter(|(_, w)| w.end > start) {
            self.written.insert(s, Written { end: start, ..w });
            if w.end > end {
                self.written.insert(end, w);
            }
        }
        while let Some((s, w)) = self.written.range(start..end).next().map(|(s, w)| (*s, *w)) {
            self.written.remove(&s);
            if w.end > end {
                self.written.insert(end, w);
            }
        }
    }

    /// The whole contents; `contents` knows all but the generation.
    pub fn fill(&self, contents: Contents, out: &mut [u8]) {
        out.fill(0);
        for (start, written) in &self.written {
            let generation = written.generation;
            let range = *start as usize..written.end as usize;
            Contents {
                generation,
                ..contents
            }
            .fill(*start, &mut out[range]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;
    use crate::rng::Rng;

    /// Random writes and truncations agree with a plain array of bytes.
    #[test]
    fn extents_agree_with_bytes() {
        let contents = Contents {
            payload: Payload::Word,
            file: 3,
            generation: 0,
        };
        for seed in 0..40 {
            let mut rng = Rng::new(seed, 0);
            let (mut extents, mut bytes) = (Extents::default(), Vec::new());
            for generation in 1..60 {
                let (a, b) = (rng.below(20_000), rng.below(20_000));
                if rng.below(4) == 0 {
                    extents.truncate(a);
                    bytes.resize(a as usize, 0);
                } else {
                    let (start, end) = (a.min(b), a.max(b));
                    extents.write(start, end, generation);
                    bytes.resize(bytes.len().max(end as usize), 0);
                    let range = start as usize..end as usize;
                    Contents {
                        generation,
                        ..contents
                    }
                    .fill(start, &mut bytes[range]);
                }
                let mut expected = vec![1; extents.bytes() as usize];
                extents.fill(contents, &mut expected);
                assert!(expected == bytes, "seed {seed}, generation {generation}");
            }
        }
    }
}
