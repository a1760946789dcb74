// SPDX-License-Identifier: MIT OR Apache-2.0
//! Truncating: a file to nothing or to a larger size, and its beginning. Extents go in steps of which each can be committed.

use crate::budget::Claim;
use crate::error::{Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use crate::log::Part;
use crate::staging::Staging;
use zoned::ZonedDevice;

/// Extents that one batch removes at most; it has to fit into the smallest zone's segment.
const REMOVE_MAX: usize = 256;

impl<D: ZonedDevice> FileSystem<D> {
    /// Changes a file's size: to nothing, or to what is at least written.
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooBig);
        }
        let inode = self.regular(ino)?;
        let staged = self.staged.of(ino);
        let written = staged.map_or(inode.written, Staging::visible);
        let is_staged = staged.is_some();
        if size != 0 && size < written {
            return Err(Error::Overwrite {
                ino,
                offset: size,
                written,
            });
        }
        self.afford(if size == 0 {
            Claim::Deletion
        } else {
            Claim::Change
        })?;
        if size == 0 {
            self.discard_staging(ino)?;
            self.remove_extents(ino)?;
        } else if is_staged {
            self.close_gap(ino, None)?;
            self.push(&[Part {
                ino,
                with_tail: true,
            }])?;
        }
        let now_ns = self.now_ns;
        if let Some(staging) = self.staged.of_mut(ino) {
            staging.mtime_ns = now_ns;
        }
        let mut inode = self.inode(ino)?;
        inode.size = size;
        (inode.mtime_ns, inode.ctime_ns) = (self.now_ns, self.now_ns);
        self.change(vec![Change::Put(Key::inode(ino), inode.encode())])
    }

    /// Removes all extents of a file, in steps of which each can be committed.
    pub(crate) fn remove_extents(&mut self, ino: Ino) -> Result {
        while self.remove_last_extents(ino)? {
            self.afford(Claim::Deletion)?;
        }
        Ok(())
    }

    /// Removes a file's last extents, and cuts the file there: after every such batch it is a whole, shorter file. Says
    /// whether there were any.
    fn remove_last_extents(&mut self, ino: Ino) -> Result<bool> {
        let mut batch = Vec::new();
        let mut inode = self.inode(ino)?;
        // What was removed before is not looked at again.
        let mut high = Key::extent(ino, inode.written / BLOCK as u64);
        let low = Key::extent(ino, 0);
        for _ in 0..REMOVE_MAX {
            let Some(cell) = self.catalog.floor(&mut self.disk, &low, &high)? else {
                break;
            };
            let (logical, extent) = crate::fs::extent_of(&cell)?;
            inode.written = logical * BLOCK as u64;
            inode.stored = inode.stored.saturating_sub(extent.stored());
            remove_extent(&mut batch, cell.key, &extent);
            match logical.checked_sub(1) {
                Some(before) => high = Key::extent(ino, before),
                None => break,
            }
        }
        if batch.is_empty() {
            inode.written = 0;
        }
        inode.head = inode.head.min(inode.written);
        inode.size = inode.written;
        let found = !batch.is_empty();
        batch.push(Change::Put(Key::inode(ino), inode.encode()));
        self.change(batch)?;
        Ok(found)
    }

    /// Gives a file's beginning up: all extents that lie before `head`. What was there reads as zeros.
    pub fn truncate_head(&mut self, ino: Ino, head: u64) -> Result {
        let mut inode = self.regular(ino)?;
        if head > inode.written {
            return Err(Error::Invalid("the head cannot lie behind what is written"));
        }
        if let Some(open) = self.staged.files.get_mut(&ino) {
            open.readers.clear();
        }
        loop {
            self.afford(Claim::Deletion)?;
            let mut batch = Vec::new();
            for (logical, extent) in self.extents(ino, 0, REMOVE_MAX)? {
                let end = logical * BLOCK as u64 + u64::from(extent.bytes);
                // The last extent stays: it is where the file goes on.
                if end > head || end == inode.written {
                    break;
                }
                inode.head = end;
                inode.stored = inode.stored.saturating_sub(extent.stored());
                remove_extent(&mut batch, Key::extent(ino, logical), &extent);
            }
            if batch.is_empty() {
                return Ok(());
            }
            inode.ctime_ns = self.now_ns;
            batch.push(Change::Put(Key::inode(ino), inode.encode()));
            self.change(batch)?;
        }
    }
}

/// An extent goes, and what lived in its zone with it.
pub(crate) fn remove_extent(batch: &mut Vec<Change>, key: Key, extent: &Extent) {
    batch.push(Change::Delete(key));
    if !extent.is_hole {
        batch.push(Change::Live(extent.zone, -i64::from(extent.bytes)));
    }
}
