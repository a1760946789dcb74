// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compaction: data move out of a zone to their files' zones, and the zone becomes free. It eats one zone at a time; what
//! lives in it, and how much of it moves at a time, says `cleaning.rs`.

use crate::append::blocks_that_fit;
use crate::error::Result;
use crate::format::*;
use crate::fs::FileSystem;
use crate::log::{blocks_at, fragment_at};
use crate::space::Space;
use crate::victim::Live;
use std::collections::{BTreeMap, BTreeSet};
use zoned::{ZoneId, ZonedDevice};

/// A file of which so many bytes live in a zone gets zones of its own.
const OWN_ZONE_BYTES: u64 = 8 << 20;
/// Files that get zones of their own at a time, at most and at least.
const OWN_ZONES: (usize, usize) = (2, 4);
/// The part of all zones that partly written ones may be for a file to get another.
const OWN_ZONES_PART: usize = 50;

/// Blocks below which a part of a piece is not worth an extent of its own.
const SPLIT_BLOCKS_MIN: u32 = 16;

/// A piece and its bytes on their way.
struct Moving {
    live: Live,
    data: Vec<u8>,
}

impl<D: ZonedDevice> FileSystem<D> {
    /// Moves everything out of the log's sealed zones, the oldest first; with `all`, out of mixed zones too. `progress` is
    /// told the zones that are left.
    pub fn compact(&mut self, all: bool, mut progress: impl FnMut(usize)) -> Result<Space> {
        self.sync()?;
        // What the log's present zone holds is to move, too.
        self.move_log()?;
        let mut victims: Vec<_> = self
            .zones
            .iter()
            .filter(|(_, entry)| entry.stage == ZoneStage::Sealed)
            .filter(|(_, entry)| {
                entry.kind == ZoneKind::Log || all && entry.kind == ZoneKind::Shared
            })
            .map(|(zone, entry)| (entry.sealed_at, entry.epoch, zone))
            .collect();
        victims.sort_unstable();
        for (i, (_, epoch, zone)) in victims.iter().enumerate() {
            progress(victims.len() - i);
            let entry = self.zones.get(*zone)?;
            if entry.epoch == *epoch && entry.stage == ZoneStage::Sealed {
                self.compact_zone(*zone)?;
            }
        }
        Ok(self.space())
    }

    /// Files of which so much lives in a zone that they get zones of their own, as far as open zones go. Such a zone stays
    /// partly empty until its file is moved again, so all of them together may have a fiftieth of the disk.
    pub(crate) fn with_own_zones(&self, pieces: &[Live]) -> BTreeSet<Ino> {
        let geometry = self.disk.geometry();
        let open = geometry.open_max.unwrap_or(32).min(32) as usize;
        let rest = (self.sequential_zones() as usize / OWN_ZONES_PART)
            .saturating_sub(self.zones.left.len());
        let most = (open / 8).clamp(OWN_ZONES.0, OWN_ZONES.1).min(rest);
        let least = OWN_ZONE_BYTES.min(u64::from(geometry.capacity_blocks) * BLOCK as u64 / 4);
        let mut bytes: BTreeMap<Ino, u64> = BTreeMap::new();
        for live in pieces {
            *bytes.entry(live.ino).or_default() += u64::from(live.extent.bytes);
        }
        let large = bytes.into_iter().filter(|(_, bytes)| *bytes >= least);
        large.map(|(ino, _)| ino).take(most).collect()
    }

    /// Moves pieces out of their zone. What could not be read stays. `outputs` are zones of files' own.
    pub(crate) fn move_pieces(
        &mut self,
        pieces: &[Live],
        own: &BTreeSet<Ino>,
        outputs: &mut BTreeMap<Ino, ZoneId>,
    ) -> Result {
        let moved = self.move_some(pieces, own, outputs);
        if let Some(shared) = outputs.remove(&Ino(0)) {
            self.zones.shared = Some(shared);
        }
        moved
    }

    /// Reads pieces in the order in which they lie, and writes them file by file.
    fn move_some(
        &mut self,
        pieces: &[Live],
        own: &BTreeSet<Ino>,
        outputs: &mut BTreeMap<Ino, ZoneId>,
    ) -> Result {
        let mut by_owner: BTreeMap<Ino, Vec<Moving>> = BTreeMap::new();
        for live in pieces {
            let extent = &live.extent;
            let read = match extent.is_fragment {
                true => self.read_fragment(extent),
                false => self.read_blocks(extent, 0, extent.bytes / BLOCK as u32),
            };
            // What cannot be read stays where it is.
            if let Ok(data) = read {
                let owner = own.get(&live.ino).copied().unwrap_or(Ino(0));
                by_owner
                    .entry(owner)
                    .or_default()
                    .push(Moving { live: *live, data });
            }
        }
        for (owner, mut moving) in by_owner {
            moving.sort_by_key(|piece| (piece.live.ino, piece.live.logical));
            let zone = match (outputs.remove(&owner), owner) {
                (Some(zone), _) => Some(zone),
                (None, Ino(0)) => match self.zones.shared.take() {
                    Some(zone) => Some(zone),
                    None => self.take_left_zone()?,
                },
                (None, owner) => self.left_zone(|entry| entry.owner == owner),
            };
            self.move_to(&moving, zone, owner, outputs)?;
        }
        Ok(())
    }

    /// A zone that is partly written and that nobody writes now.
    fn left_zone(&mut self, suits: impl Fn(&ZoneEntry) -> bool) -> Option<ZoneId> {
        let suits = |zone: &ZoneId| self.zones.get(*zone).is_ok_and(&suits);
        let found = self.zones.left.iter().position(suits);
        found.map(|at| self.zones.left.remove(at))
    }

    /// Moves pieces of one file, or of several, to a zone and on to others. The last becomes the owner's output.
    fn move_to(
        &mut self,
        pieces: &[Moving],
        mut zone: Option<ZoneId>,
        owner: Ino,
        outputs: &mut BTreeMap<Ino, ZoneId>,
    ) -> Result {
        let mut rest = pieces;
        while !rest.is_empty() {
            let at = match zone.take() {
                Some(at) => at,
                None => self.output_zone(owner)?,
            };
            let block = self.zones.get(at)?.write_blocks;
            let room = self.room_in(at)?;
            let fits = fitting(rest, room);
            if fits == 0 {
                // The end of a zone gets a part of the next piece.
                outputs.remove(&owner);
                if let Some((head, tail)) = rest[0].split(room) {
                    if self.afford_moves(2)? < 2 {
                        return Err(crate::error::Error::NoSpace);
                    }
                    let first = self.place(&[head], at, block)?;
                    self.seal_logged(at)?;
                    let tail = [tail];
                    let next = self.output_zone_for(&tail, owner)?;
                    outputs.insert(owner, next);
                    let second = self.place(&tail, next, self.zones.get(next)?.write_blocks)?;
                    self.moved(&rest[0].live, &[first, second].concat())?;
                    rest = &rest[1..];
                    zone = Some(next);
                } else {
                    self.seal_logged(at)?;
                }
                continue;
            }
            let count = self.afford_moves(fits)?;
            outputs.insert(owner, at);
            let places = self.place(&rest[..count], at, block)?;
            for (piece, place) in rest[..count].iter().zip(places) {
                self.moved(&piece.live, &[place])?;
            }
            rest = &rest[count..];
            zone = Some(at);
        }
        Ok(())
    }

    /// The same, with room for these pieces in one segment; what was left and is too small is sealed.
    fn output_zone_for(&mut self, pieces: &[Moving], owner: Ino) -> Result<ZoneId> {
        loop {
            let zone = self.output_zone(owner)?;
            if fitting(pieces, self.room_in(zone)?) == pieces.len() {
                return Ok(zone);
            }
            self.seal_logged(zone)?;
        }
    }

    /// Blocks that the next segment in a zone may have.
    fn room_in(&self, zone: ZoneId) -> Result<u32> {
        let capacity = self.disk.geometry().capacity_blocks;
        let rest = capacity - self.zones.get(zone)?.write_blocks;
        Ok(rest.min(self.options.segment_blocks))
    }

    /// A zone for what several files have: one that was left, or a free one. A file's own zone is a free one.
    fn output_zone(&mut self, owner: Ino) -> Result<ZoneId> {
        let kind = if owner == Ino(0) {
            if let Some(zone) = self.take_left_zone()? {
                return Ok(zone);
            }
            ZoneKind::Shared
        } else {
            ZoneKind::File
        };
        let zone = self
            .open_zone(kind, owner)?
            .ok_or(crate::error::Error::NoSpace)?;
        let entry = *self.zones.get(zone)?;
        self.change(vec![Change::Zone(zone, entry)])?;
        Ok(zone)
    }

    /// Writes pieces as one segment. Returns where each is now, with its place in its file.
    fn place(&mut self, pieces: &[Moving], zone: ZoneId, block: u32) -> Result<Vec<(u64, Extent)>> {
        let (records_bytes, payload_blocks, fragments_bytes) = sizes(pieces);
        let mut draft = self.draft(records_bytes, payload_blocks, fragments_bytes);
        let mut places = Vec::with_capacity(pieces.len());
        for Moving { live, data } in pieces {
            let bytes = live.extent.bytes;
            draft.records.push(&[Change::Data(DataRecord {
                ino: live.ino,
                logical: live.logical,
                bytes,
            })]);
            let moved = if live.extent.is_fragment {
                fragment_at(zone, block, draft.fragment(data), data)
            } else {
                blocks_at(
                    zone,
                    block + draft.payload(data),
                    bytes / BLOCK as u32,
                    block,
                )
            };
            places.push((live.logical, moved));
        }
        self.write_segment(zone, block, draft, false)?;
        Ok(places)
    }

    /// Logs where a piece is now: in one batch, because all of it was named by one key.
    fn moved(&mut self, live: &Live, places: &[(u64, Extent)]) -> Result {
        let bytes = live.extent.bytes;
        let mut batch = Vec::with_capacity(2 * places.len() + 1);
        for (logical, place) in places {
            batch.push(Change::Put(Key::extent(live.ino, *logical), place.encode()));
            batch.push(Change::Live(place.zone, i64::from(place.bytes)));
        }
        batch.push(Change::Live(live.extent.zone, -i64::from(bytes)));
        self.counters.moved_bytes += u64::from(bytes);
        // A file that is open for appending knows its last fragment.
        let staging = self.staged.of_mut(live.ino);
        let staging = staging.filter(|staging| staging.tail == Some(live.extent));
        if let (Some(staging), Some((_, place))) = (staging, places.last()) {
            staging.tail = Some(*place);
        }
        self.change(batch)
    }
}

impl Moving {
    /// Two pieces, of which the first fills `room` blocks with its headers; none if that is not worth an extent.
    fn split(&self, room: u32) -> Option<(Moving, Moving)> {
        let record = sizes(std::slice::from_ref(self)).0;
        let blocks = blocks_that_fit(room, record);
        let all = self.live.extent.bytes / BLOCK as u32;
        if self.live.extent.is_fragment
            || blocks < SPLIT_BLOCKS_MIN
            || all < blocks + SPLIT_BLOCKS_MIN
        {
            return None;
        }
        let part = |from: u32, to: u32| Moving {
            live: Live {
                ino: self.live.ino,
                logical: self.live.logical + u64::from(from),
                extent: Extent {
                    offset: self.live.extent.offset + u64::from(from) * BLOCK as u64,
                    bytes: (to - from) * BLOCK as u32,
                    ..self.live.extent
                },
            },
            data: self.data[from as usize * BLOCK..to as usize * BLOCK].to_vec(),
        };
        Some((part(0, blocks), part(blocks, all)))
    }
}

/// Bytes of records, blocks of payload and bytes of fragments.
fn sizes(pieces: &[Moving]) -> (usize, usize, usize) {
    let record = Change::Data(DataRecord {
        ino: Ino(0),
        logical: 0,
        bytes: 0,
    })
    .bytes();
    let mut sizes = (pieces.len() * record, 0, 0);
    for Moving { live, .. } in pieces {
        match live.extent.is_fragment {
            true => sizes.2 += (live.extent.bytes as usize).next_multiple_of(8),
            false => sizes.1 += live.extent.bytes as usize / BLOCK,
        }
    }
    sizes
}

/// How many of the pieces fit into `room` blocks.
fn fitting(pieces: &[Moving], room: u32) -> usize {
    let fits = |count: &usize| {
        let (records, payload, fragments) = sizes(&pieces[..*count]);
        let headers = 2 * Header::blocks_for(records, payload, fragments);
        u64::from(headers) + payload as u64 <= u64::from(room)
    };
    // Sizes only grow: the last count that fits.
    (1..=pieces.len().min(4096))
        .take_while(fits)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::format::{FileType, BLOCK, ROOT_INO};
    use crate::testing::made;
    use crate::{FileSystem, Options, Owner};
    use zoned::ZonedDevice;

    /// M4: the header of a torn segment claims the blocks in which the log went on.
    #[test]
    fn what_was_logged_behind_a_torn_header_moves_too() {
        let mut fs = FileSystem::mount(made(), Options::default(), 1).unwrap();
        let mut create = |name: &[u8]| {
            let file = fs.create(ROOT_INO, name, FileType::Regular, Owner::default(), 0);
            file.unwrap()
        };
        let (torn, file) = (create(b"torn"), create(b"file"));
        fs.sync().unwrap();
        fs.root_commit(false).unwrap();
        let mut device = fs.device().clone();
        let (zone, block) = (fs.log.at.zone, fs.log.at.block);
        fs.write(torn, 0, &[1; 20 * BLOCK]).unwrap();
        fs.fsync(torn).unwrap();
        let header = fs.segment(zone, block).unwrap();
        assert_eq!(header.payload_blocks, 20);
        // Its header and three blocks arrive, then the power fails.
        let bytes = fs.disk.read_zone(zone, block, header.blocks() + 3).unwrap();
        let at = fs.disk.block_of(zone, block).first_sector();
        device.write(at, &bytes).unwrap();
        let mut fs = FileSystem::mount(device, Options::default(), 2).unwrap();
        fs.write(file, 0, &[2; 5 * BLOCK]).unwrap();
        fs.fsync(file).unwrap();
        assert!(fs.log.at.zone == zone && fs.log.at.block < block + header.segment_blocks());
        fs.compact(false, |_| ()).unwrap();
        assert_eq!(fs.zones.get(zone).unwrap().live_bytes, 0);
        assert_eq!(fs.read(file, 0, 6 * BLOCK).unwrap(), [2; 5 * BLOCK]);
    }
}
