// SPDX-License-Identifier: MIT OR Apache-2.0
//! The readers of a file, told apart by where they read, and what was read ahead for each.

/// Someone who reads a file in order, as far as can be seen from where they read.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Reader {
    /// Where the last read ended.
    pub end: u64,
    /// Where the bytes read ahead begin.
    pub from: u64,
    /// Bytes read ahead.
    pub ahead: Vec<u8>,
    /// How many were read at a time.
    pub window: usize,
}

impl Reader {
    pub fn piece(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.from)?).ok()?;
        self.ahead.get(at..at.checked_add(bytes)?)
    }

    /// What was read ahead and not used yet.
    pub fn rest(&self) -> &[u8] {
        let used = usize::try_from(self.end.saturating_sub(self.from)).unwrap_or(usize::MAX);
        self.ahead.get(used..).unwrap_or(&[])
    }

    /// Gives back the memory of what was used.
    pub fn drop_used(&mut self) {
        let rest = self.rest().to_vec();
        self.from = self.end.max(self.from);
        self.window = self.window.max(self.ahead.len());
        self.ahead = rest;
    }

    /// Whether seven eighths of what was read ahead were used.
    pub fn is_due(&self) -> bool {
        self.window > 0 && self.rest().len() <= self.window / 8
    }
}

/// The readers of a file, the one who read last behind.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Readers(pub Vec<Reader>);

impl Readers {
    /// What was read ahead is not what the file is any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn ahead_bytes(&self) -> usize {
        self.0.iter().map(|reader| reader.ahead.len()).sum()
    }
}
