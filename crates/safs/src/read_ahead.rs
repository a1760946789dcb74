// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading ahead, for those who read in order.
//!
//! Where several readers take turns, each piece costs the disk a seek, and only its length pays for that: so pieces become
//! long. When one reader needs the next, all who will soon need theirs get them too, in the order of places on the disk:
//! what was written in turn is then read in one pass.

use crate::error::Result;
use crate::format::{Extent, Ino};
use crate::fs::FileSystem;
use crate::readers::Reader;
use std::ops::Range;
use zoned::ZonedDevice;

/// Readers of one file that are told apart.
const READERS_MAX: usize = 8;
/// What is read ahead at first.
const WINDOW_MIN_BYTES: usize = 256 << 10;

/// What a reader will get.
struct Want {
    ino: Ino,
    reader: usize,
    /// Where `data` belongs in the file.
    from: u64,
    data: Vec<u8>,
    /// Bytes of `data` that are there already.
    kept: usize,
    is_bad: bool,
}

/// A piece of one of the wants.
struct Fetch {
    want: usize,
    extent: Extent,
    skip: u64,
    range: Range<usize>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Reads what segments hold, up to `base` of the file at most.
    pub(crate) fn read_ahead(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &mut [u8],
        base: u64,
    ) -> Result {
        let wanted = data.len();
        let Some(readers) = self
            .staged
            .files
            .get_mut(&ino)
            .map(|open| &mut open.readers.0)
        else {
            return self.read_extents(ino, offset, data);
        };
        let is_theirs =
            |reader: &Reader| reader.end == offset || reader.piece(offset, wanted).is_some();
        let found = readers.iter().position(is_theirs);
        let mut reader = found.map_or_else(Reader::default, |at| readers.remove(at));
        if readers.len() >= READERS_MAX {
            readers.remove(0);
        }
        let is_held = reader.piece(offset, wanted).is_some();
        let is_in_order = reader.end == offset;
        if !is_held && !is_in_order {
            (reader.ahead, reader.window) = (Vec::new(), 0);
        }
        readers.push(reader);
        if !is_held && is_in_order {
            self.sweep(ino, offset, wanted);
        }
        let open = self.staged.files.get_mut(&ino);
        let reader = open.and_then(|open| open.readers.0.last_mut());
        let Some(reader) = reader else {
            return self.read_extents(ino, offset, data);
        };
        reader.end = offset + wanted as u64;
        match reader.piece(offset, wanted) {
            Some(piece) => data.copy_from_slice(piece),
            None => return self.read_extents(ino, offset, data),
        }
        // Who has come to the end needs no memory.
        if reader.end >= base {
            (reader.ahead, reader.window) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Reads ahead for the file's newest reader, and for all others who will need it soon.
    fn sweep(&mut self, ino: Ino, offset: u64, wanted: usize) {
        let newest = match self.staged.files.get(&ino) {
            Some(open) => open.readers.0.len() - 1,
            None => return,
        };
        let mut due = vec![(ino, newest)];
        for (other, open) in &self.staged.files {
            let readers = open.readers.0.iter().enumerate();
            let others = readers.filter(|(at, _)| (*other, *at) != (ino, newest));
            due.extend(
                others
                    .filter(|(_, reader)| reader.is_due())
                    .map(|(at, _)| (*other, at)),
            );
        }
        // What is used up goes first, so that there is room for what comes.
        for (other, at) in &due {
            let open = self.staged.files.get_mut(other);
            if let Some(reader) = open.and_then(|open| open.readers.0.get_mut(*at)) {
                reader.drop_used();
            }
        }
        let files = self.staged.files.values();
        let held: usize = files.map(|open| open.readers.ahead_bytes()).sum();
        let mut room = self.options.read_ahead_total_bytes.saturating_sub(held);
        let mut wants = Vec::with_capacity(due.len());
        for (other, at) in due {
            let is_first = wants.is_empty();
            let Some(want) = self.want((other, at), is_first.then_some((offset, wanted)), room)
            else {
                continue;
            };
            room = room.saturating_sub(want.data.len() - want.kept);
            wants.push(want);
        }
        self.fetch(&mut wants);
        for want in wants {
            let open = self.staged.files.get_mut(&want.ino);
            let Some(reader) = open.and_then(|open| open.readers.0.get_mut(want.reader)) else {
                continue;
            };
            // Damage further on must not take what was asked for, and is not looked for again and again.
            reader.window = 0;
            if !want.is_bad {
                reader.window = want.data.len() - want.kept;
                (reader.from, reader.ahead) = (want.from, want.data);
            }
        }
    }

    /// Twice what a reader had, as far as memory and the file go. `asked` is what one waits for.
    fn want(
        &mut self,
        (ino, at): (Ino, usize),
        asked: Option<(u64, usize)>,
        room: usize,
    ) -> Option<Want> {
        let written = self.inode(ino).ok()?.written;
        let open = self.staged.files.get_mut(&ino)?;
        let base = open
            .staging
            .as_ref()
            .map_or(written, |staging| staging.base);
        let reader = open.readers.0.get_mut(at)?;
        let least = asked.map_or(0, |(_, wanted)| wanted);
        let most = self.options.read_ahead_bytes.min(room);
        let window = (reader.window * 2)
            .max(WINDOW_MIN_BYTES)
            .min(most)
            .max(least);
        let (from, mut data) = match asked {
            Some((offset, _)) => (offset, Vec::new()),
            None => (reader.end, reader.rest().to_vec()),
        };
        let kept = data.len();
        let left = base.saturating_sub(from + kept as u64);
        let window = usize::try_from(left).map_or(window, |left| window.min(left));
        if window <= least {
            return None;
        }
        data.resize(kept + window, 0);
        Some(Want {
            ino,
            reader: at,
            from,
            data,
            kept,
            is_bad: false,
        })
    }

    /// Reads for all in the order of places.
    fn fetch(&mut self, wants: &mut [Want]) {
        let mut fetches = Vec::new();
        for (number, want) in wants.iter_mut().enumerate() {
            let (start, bytes) = (want.from + want.kept as u64, want.data.len() - want.kept);
            let Ok(pieces) = self.pieces(want.ino, start, bytes) else {
                want.is_bad = true;
                continue;
            };
            fetches.extend(pieces.into_iter().map(|piece| Fetch {
                want: number,
                extent: piece.extent,
                skip: piece.skip,
                range: want.kept + piece.range.start..want.kept + piece.range.end,
            }));
        }
        fetches.sort_by_key(|fetch| (fetch.extent.zone, fetch.extent.offset + fetch.skip));
        for fetch in fetches {
            let want = &mut wants[fetch.want];
            if !want.is_bad {
                let into = &mut want.data[fetch.range];
                let read = self.read_extent(want.ino, &fetch.extent, fetch.skip, into);
                want.is_bad = read.is_err();
            }
        }
    }
}
