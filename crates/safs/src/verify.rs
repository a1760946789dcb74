// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose end may never have arrived (R8): it is looked at when the file is first used, and cut where it is missing.

use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use zoned::ZonedDevice;

/// Blocks between two checks of a file's end.
const VERIFY_BLOCKS: u32 = 256;

impl<D: ZonedDevice> FileSystem<D> {
    /// Checks the end of a file that the log named before it was flushed, and cuts it at the first block that never
    /// arrived (R8). What the device cannot read stays: it may have been confirmed (R9).
    pub(crate) fn verify_end(&mut self, ino: Ino) -> Result {
        if !self.unverified.remove(&ino) {
            return Ok(());
        }
        let mark = Key::unverified(ino);
        let from = self.get(&mark)?.and_then(|value| value.try_into().ok());
        let Some(from) = from.map(u64::from_le_bytes) else {
            return Ok(());
        };
        let mut at = from;
        loop {
            let extents = self.extents(ino, at, 64)?;
            let Some((last, extent)) = extents.last().copied() else {
                break;
            };
            for (logical, extent) in extents.into_iter().filter(|(logical, _)| *logical >= at) {
                if let Some(good) = self.first_bad(&extent)? {
                    self.cut(ino, logical, &extent, good, None)?;
                    return self.change(vec![Change::Delete(mark)]);
                }
            }
            if last + extent.blocks() <= at {
                break;
            }
            at = last + extent.blocks();
        }
        self.change(vec![Change::Delete(mark)])
    }

    /// The first block of an extent that never arrived.
    pub(crate) fn first_bad(&mut self, extent: &Extent) -> Result<Option<u32>> {
        if extent.is_hole {
            return Ok(None);
        }
        let is_missing = |error: &Error| {
            matches!(error, Error::Corrupt { .. }) || error.is_beyond_write_pointer()
        };
        if extent.is_fragment {
            return Ok(self
                .read_fragment(extent)
                .err()
                .filter(is_missing)
                .map(|_| 0));
        }
        let blocks = u32::try_from(extent.blocks()).unwrap_or(u32::MAX);
        for first in (0..blocks).step_by(VERIFY_BLOCKS as usize) {
            let count = VERIFY_BLOCKS.min(blocks - first);
            if self.read_blocks(extent, first, count).is_ok() {
                continue;
            }
            for block in first..first + count {
                match self.read_blocks(extent, block, 1) {
                    Err(error) if is_missing(&error) => return Ok(Some(block)),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Cuts a file behind `good` blocks of the extent at `logical`. A fragment can take that place.
    pub(crate) fn cut(
        &mut self,
        ino: Ino,
        logical: u64,
        extent: &Extent,
        good: u32,
        instead: Option<Extent>,
    ) -> Result {
        // A size that was set beyond what is written stays.
        let inode = self.inode(ino)?;
        let size = if inode.size > inode.written {
            inode.size
        } else {
            0
        };
        while let Some((last, gone)) = self.last_extent(ino)?.filter(|(last, _)| *last > logical) {
            let mut batch = Vec::new();
            crate::truncate::remove_extent(&mut batch, Key::extent(ino, last), &gone);
            self.shrink(
                ino,
                (last * BLOCK as u64, size),
                -(gone.stored() as i64),
                batch,
            )?;
        }
        let key = Key::extent(ino, logical);
        let kept = match good {
            0 => instead,
            _ => Some(Extent {
                bytes: good * BLOCK as u32,
                ..*extent
            }),
        };
        let mut batch = vec![Change::Live(extent.zone, -(extent.stored() as i64))];
        let bytes = kept.map_or(0, |kept| u64::from(kept.bytes));
        batch.push(match kept {
            None => Change::Delete(key),
            Some(kept) => Change::Put(key, kept.encode()),
        });
        batch.extend(kept.map(|kept| Change::Live(kept.zone, i64::from(kept.bytes))));
        let delta = bytes as i64 - extent.stored() as i64;
        self.shrink(ino, (logical * BLOCK as u64 + bytes, size), delta, batch)
    }

    fn shrink(
        &mut self,
        ino: Ino,
        (written, size): (u64, u64),
        delta: i64,
        mut batch: Vec<Change>,
    ) -> Result {
        let mut inode = self.inode(ino)?;
        (inode.written, inode.size) = (written, size.max(written));
        inode.head = inode.head.min(written);
        inode.stored = inode.stored.saturating_add_signed(delta);
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        self.change(batch)
    }
}
