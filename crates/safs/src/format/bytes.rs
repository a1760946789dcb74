// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields one after the other, in and out.

use smallvec::SmallVec;
use std::fmt;

/// Bytes of a key or a value. A catalog has many, of which most are short: up to 24 take no allocation.
pub type Short = SmallVec<[u8; 24]>;

/// Why bytes are not the structure that was expected. A sentence's end: "… is damaged: {this}".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Reads fields; answers `Damage` at the end of the bytes.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        if count > self.rest.len() {
            return Err(Damage("it ends too early"));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let taken = self.bytes(N)?;
        Ok(taken.try_into().expect("as many bytes as asked for"))
    }

    /// An unsigned byte.
    pub fn u8(&mut self) -> Result<u8, Damage> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Damage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes with a sign.
    pub fn i64(&mut self) -> Result<i64, Damage> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

/// Writes fields.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// With nothing written.
    pub fn new() -> Self {
        Writer::default()
    }

    /// The same, with space for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Writer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// Bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// An unsigned byte.
    pub fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    /// Two bytes.
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Four bytes.
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Eight bytes.
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Eight bytes with a sign.
    pub fn i64(self, value: i64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// What was written, followed by zeros up to `size` bytes.
    pub fn padded(mut self, size: usize) -> Vec<u8> {
        debug_assert!(self.bytes.len() <= size);
        self.bytes.resize(size, 0);
        self.bytes
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
