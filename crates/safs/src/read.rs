// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading: bytes in memory, extents with their checksums, and zeros where nothing ever was.

use crate::error::{At, Error, Result};
use crate::format::*;
use crate::fs::FileSystem;
use std::ops::Range;
use std::sync::Arc;
use zoned::{ZoneId, ZonedDevice};

/// Extents looked up at a time.
const EXTENTS_AT_ONCE: usize = 64;
/// Blocks read to find a header: as many as one of a full segment has, in one request.
const HEADER_GUESS_BLOCKS: u32 = 5;

/// A piece of an extent, and where in the reader's buffer it belongs.
pub(crate) struct Piece {
    pub extent: Extent,
    /// Bytes of the extent before the piece.
    pub skip: u64,
    pub range: Range<usize>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Up to `bytes` bytes of a file from `offset` on; fewer at its end.
    pub fn read(&mut self, ino: Ino, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let inode = self.regular(ino)?;
        let staged = self.staged.of(ino);
        let size = staged.map_or(inode.size, |staging| inode.size.max(staging.visible()));
        let end = offset.saturating_add(bytes as u64).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut data = vec![0; (end - offset) as usize];
        let base = staged.map_or(inode.written, |staging| staging.base);
        if let Some(staging) = staged {
            copy_overlap(&mut data, offset, staging.base, &staging.bytes);
            for (at, bytes) in &staging.gap {
                copy_overlap(&mut data, offset, *at, bytes);
            }
        }
        let on_disk = end.min(base).saturating_sub(offset) as usize;
        if on_disk > 0 {
            self.read_ahead(ino, offset, &mut data[..on_disk], base)?;
        }
        Ok(data)
    }

    /// Reads what segments hold.
    pub(crate) fn read_extents(&mut self, ino: Ino, offset: u64, data: &mut [u8]) -> Result {
        for piece in self.pieces(ino, offset, data.len())? {
            let into = &mut data[piece.range.clone()];
            self.read_extent(ino, &piece.extent, piece.skip, into)?;
        }
        Ok(())
    }

    /// The extents that hold `bytes` bytes of a file. Before the head, and behind what is written, there are none: zeros.
    pub(crate) fn pieces(&mut self, ino: Ino, offset: u64, bytes: usize) -> Result<Vec<Piece>> {
        let end = offset.saturating_add(bytes as u64);
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let extents = self.extents(ino, at / BLOCK as u64, EXTENTS_AT_ONCE)?;
            let before = at;
            for (logical, extent) in extents {
                let start = logical.saturating_mul(BLOCK as u64);
                let stop = start.saturating_add(u64::from(extent.bytes));
                if stop <= at {
                    continue;
                }
                if start >= end {
                    return Ok(pieces);
                }
                at = at.max(start);
                let stop = stop.min(end);
                pieces.push(Piece {
                    extent,
                    skip: at - start,
                    range: (at - offset) as usize..(stop - offset) as usize,
                });
                at = stop;
            }
            if at == before {
                break;
            }
        }
        Ok(pieces)
    }

    /// Reads a piece of an extent, `skip` bytes from its start.
    pub(crate) fn read_extent(
        &mut self,
        ino: Ino,
        extent: &Extent,
        skip: u64,
        into: &mut [u8],
    ) -> Result {
        if extent.is_hole {
            into.fill(0);
            return Ok(());
        }
        if extent.is_fragment {
            let bytes = self.read_fragment(extent)?;
            let skip = skip as usize;
            let piece = bytes.get(skip..skip + into.len());
            let piece = piece.ok_or_else(|| {
                Error::corrupt(format!("inode {}", ino.0), "a fragment is too short")
            })?;
            into.copy_from_slice(piece);
            return Ok(());
        }
        let block = BLOCK as u64;
        let first = skip / block;
        let last = (skip + into.len() as u64).div_ceil(block);
        let blocks = self.read_blocks(extent, first as u32, (last - first) as u32)?;
        let from = (skip - first * block) as usize;
        into.copy_from_slice(&blocks[from..from + into.len()]);
        Ok(())
    }

    /// A fragment's bytes. They are part of a header, so they are in its copy, too.
    pub(crate) fn read_fragment(&mut self, extent: &Extent) -> Result<Vec<u8>> {
        let place = || {
            format!(
                "a fragment in zone {}, byte {}",
                extent.zone.0, extent.offset
            )
        };
        let header = self.header(extent.zone, extent.header)?;
        let start = u64::from(extent.header) * BLOCK as u64 + header.fragment_offset(0);
        let at = extent.offset.checked_sub(start).map(|at| at as usize);
        let bytes = at.and_then(|at| header.fragments.get(at..at + extent.bytes as usize));
        let bytes = bytes
            .ok_or(Damage("its header holds no such bytes"))
            .at(place)?;
        if crc32c::crc32c(bytes) != extent.crc {
            return Err(Error::corrupt(place(), "its checksum is wrong"));
        }
        Ok(bytes.to_vec())
    }

    /// Blocks of an extent, checked.
    pub(crate) fn read_blocks(
        &mut self,
        extent: &Extent,
        first: u32,
        count: u32,
    ) -> Result<Vec<u8>> {
        let header = self.header(extent.zone, extent.header)?;
        let at = u32::try_from(extent.offset / BLOCK as u64).unwrap_or(u32::MAX) + first;
        let place = |block: u32| format!("zone {}, block {block}", extent.zone.0);
        let in_payload = at.checked_sub(extent.header + header.blocks());
        let sums = in_payload
            .and_then(|from| header.checksums.get(from as usize..(from + count) as usize));
        let sums = sums
            .ok_or(Damage("its header does not know it"))
            .at(|| place(at))?;
        let mut data = self.disk.read_zone(extent.zone, at, count)?;
        for (i, crc) in sums.iter().enumerate() {
            let block = at + i as u32;
            let bytes = &mut data[i * BLOCK..(i + 1) * BLOCK];
            if crc32c::crc32c(bytes) == *crc {
                continue;
            }
            // Once more: what went wrong may have been on the way.
            bytes.copy_from_slice(&self.disk.read_zone(extent.zone, block, 1)?);
            if crc32c::crc32c(bytes) != *crc {
                return Err(Error::corrupt(place(block), "its checksum is wrong"));
            }
        }
        Ok(data)
    }

    /// The header of the segment that starts at a block, from either of its places.
    pub(crate) fn header(&mut self, zone: ZoneId, block: u32) -> Result<Arc<Header>> {
        if let Some(header) = self.headers.get(&(zone, block)) {
            return Ok(header);
        }
        let epoch = self.zones.get(zone)?.epoch;
        let header = match self.read_header(zone, block) {
            Ok(header) => header,
            Err(error) => {
                self.counters.copies_lost += 1;
                self.find_copy(zone, block)?.ok_or(error)?
            }
        };
        if header.epoch != epoch || header.zone != zone || header.block != block {
            let place = format!("the segment at zone {}, block {block}", zone.0);
            return Err(Error::corrupt(place, "it is of another life of the zone"));
        }
        let header = Arc::new(header);
        let weight =
            256 + 4 * header.checksums.len() + header.fragments.len() + header.records.bytes.len();
        self.headers.put((zone, block), Arc::clone(&header), weight);
        Ok(header)
    }

    /// The header that starts at a block, whatever it is.
    pub(crate) fn read_header(&mut self, zone: ZoneId, block: u32) -> Result<Header> {
        let uuid = self.superblock.uuid;
        let place = || format!("the segment header at zone {}, block {block}", zone.0);
        let capacity = self.disk.geometry().capacity_blocks;
        if zone.0 >= self.zones.count() || block >= capacity {
            return Err(Error::corrupt(place(), "no segment can be there"));
        }
        let known = self.readable_end(zone)?.saturating_sub(block).max(1);
        let guess = HEADER_GUESS_BLOCKS.min(known);
        let mut bytes = match self.disk.read_zone(zone, block, guess) {
            // A bad block behind the header is none of the header's.
            Err(_) if guess > 1 => self.disk.read_zone(zone, block, 1)?,
            read => read?,
        };
        let (blocks, _) = Header::length(&bytes, &uuid).at(place)?;
        if block + blocks > capacity {
            return Err(Error::corrupt(place(), "its length is impossible"));
        }
        let held = u32::try_from(bytes.len() / BLOCK).unwrap_or(u32::MAX);
        if blocks > held {
            bytes.extend(self.disk.read_zone(zone, block + held, blocks - held)?);
        }
        bytes.truncate(blocks as usize * BLOCK);
        Header::decode(&bytes, &uuid).at(place)
    }

    /// Looks for the second header of the segment that starts at a block (R5).
    pub(crate) fn find_copy(&mut self, zone: ZoneId, block: u32) -> Result<Option<Header>> {
        // What a damaged record says of a block may be any number.
        let end = self
            .readable_end(zone)?
            .min(block.saturating_add(SEGMENT_BLOCKS_MAX));
        for at in block.saturating_add(1)..end {
            let Ok(header) = self.read_header(zone, at) else {
                continue;
            };
            if header.zone == zone && header.block == block {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// The block behind the last of a zone that can have been written.
    pub(crate) fn readable_end(&self, zone: ZoneId) -> Result<u32> {
        let capacity = self.disk.geometry().capacity_blocks;
        if self.disk.keeps_write_pointers() {
            return Ok(self.disk.write_pointer(zone)?.min(capacity));
        }
        Ok(capacity)
    }
}

/// Copies to `data`, which starts at `offset` of the file, what of `bytes`, which start at `at`, belongs there.
fn copy_overlap(data: &mut [u8], offset: u64, at: u64, bytes: &[u8]) {
    let start = offset.max(at);
    let end = (offset + data.len() as u64).min(at + bytes.len() as u64);
    if start < end {
        let from = &bytes[(start - at) as usize..(end - at) as usize];
        data[(start - offset) as usize..(end - offset) as usize].copy_from_slice(from);
    }
}
