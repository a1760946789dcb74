// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emptying a zone: what lives in it is looked up, moved, and the zone freed by a root record.
//!
//! What lives in a zone is asked of the catalog, not of a map: the headers in the zone say which pieces of which files were
//! written there, and an extent that still points here is alive. That, too, takes time: a zone of small files has their
//! leaves all over the catalog. So that no writer waits for all of it, each call empties a part, while there is room still.
//!
//! How far it is, is in memory only. After each part there is a root record, and before a piece moves it is looked up again:
//! what is left behind at any time is a sealed zone in which less lives.

use crate::error::Result;
use crate::format::*;
use crate::fs::FileSystem;
use crate::victim::{Cleaning, Live};
use zoned::{ZoneId, ZonedDevice};

/// Bytes that move in one part: a writer waits for it, and each part ends with a root record, which takes 75 ms of a disk.
pub(crate) const PART_BYTES: u64 = 128 << 20;
/// Nodes of the catalog that are read for one part: each may cost a seek.
const PART_NODES: u64 = 32;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// More is to be done.
    Part,
    /// Everything, and whether that made room.
    All { gained: bool },
}

impl<D: ZonedDevice> FileSystem<D> {
    /// The zone that is being emptied, if it is this one, or if none is asked for.
    pub(crate) fn begun(&mut self, zone: Option<ZoneId>) -> Result<Option<Cleaning>> {
        let Some(mut begun) = self.policy.cleaning.take() else {
            return Ok(None);
        };
        if !self.is_current(&begun) {
            self.leave_outputs(&mut begun)?;
            return Ok(None);
        }
        if zone.is_some_and(|zone| zone != begun.zone) {
            self.policy.cleaning = Some(begun);
            return Ok(None);
        }
        Ok(Some(begun))
    }

    fn leave_outputs(&mut self, cleaning: &mut Cleaning) -> Result {
        let outputs = std::mem::take(&mut cleaning.outputs);
        outputs
            .into_values()
            .try_for_each(|zone| self.leave_zone(zone))
    }

    /// Seals a zone that a cleaning holds between its parts, if it does.
    pub(crate) fn seal_output(&mut self) -> Result<bool> {
        let cleaning = self.policy.cleaning.as_mut();
        match cleaning.and_then(|cleaning| cleaning.outputs.pop_first()) {
            Some((_, zone)) => self.seal_logged(zone).map(|()| true),
            None => Ok(false),
        }
    }

    /// Begins with a zone.
    pub(crate) fn begin(&self, zone: ZoneId) -> Result<Cleaning> {
        Ok(Cleaning::new(zone, self.zones.get(zone)?.epoch, false))
    }

    /// Nobody else emptied it meanwhile.
    fn is_current(&self, cleaning: &Cleaning) -> bool {
        let entry = self.zones.get(cleaning.zone);
        entry.is_ok_and(|entry| entry.epoch == cleaning.epoch && entry.stage == ZoneStage::Sealed)
    }

    /// Moves everything that lives in a zone, and frees it by a root record.
    pub(crate) fn compact_zone(&mut self, victim: ZoneId) -> Result {
        let cleaning = match self.begun(Some(victim))? {
            Some(begun) => begun,
            None => self.begin(victim)?,
        };
        self.empty(cleaning, true).map(drop)
    }

    /// Empties a part of a zone, or all of it.
    pub(crate) fn empty(&mut self, mut cleaning: Cleaning, is_whole: bool) -> Result<Emptied> {
        let before = self.writable_blocks();
        let moved = loop {
            let part = self.empty_part(&mut cleaning, is_whole);
            let part = self.sticky(part);
            // With what a part has opened there has to be room for what waits.
            let goes_on = is_whole || self.log_blocks_left() == 0;
            if !matches!(part, Ok(Emptied::Part)) || !goes_on {
                break part;
            }
            if self.has_many_leaves() {
                if let Err(error) = self.root_commit(false) {
                    break Err(error);
                }
            }
        };
        let moved = match moved {
            Ok(Emptied::Part) => moved,
            ended => self.leave_outputs(&mut cleaning).and(ended),
        };
        if self.is_current(&cleaning) && !matches!(moved, Ok(Emptied::Part)) {
            // What could not be read stays, and the zone with it; others come first next time.
            let sealed_at = self.roots.newest as u32;
            self.zones
                .change(cleaning.zone, |entry| entry.sealed_at = sealed_at)?;
        }
        let committed = self.root_commit(false);
        // Before any segment of the log may say where data are now, they are there. A root record flushes; without one it
        // has to be done here.
        if committed.is_err() && self.disk.refusal().is_none() {
            self.flush()?;
        }
        cleaning.gain += self.writable_blocks() as i64 - before as i64;
        let gained = cleaning.gain > 0;
        match moved {
            Ok(Emptied::Part) => self.policy.cleaning = Some(cleaning),
            _ => self.counters.compacted += 1,
        }
        committed?;
        moved.map(|emptied| match emptied {
            Emptied::Part => Emptied::Part,
            Emptied::All { .. } => Emptied::All { gained },
        })
    }

    fn empty_part(&mut self, cleaning: &mut Cleaning, is_whole: bool) -> Result<Emptied> {
        const ALL: Emptied = Emptied::All { gained: false };
        if !self.is_current(cleaning) {
            return Ok(ALL);
        }
        let (bytes, nodes) = match is_whole {
            true => (self.options.compaction_bytes, u64::MAX),
            false => (self.options.compaction_bytes.min(PART_BYTES), PART_NODES),
        };
        let nodes = self.catalog.nodes.reads.saturating_add(nodes);
        if !cleaning.is_looked_through {
            if !self.look_for_living(cleaning, nodes)? {
                return Ok(Emptied::Part);
            }
            cleaning.is_looked_through = true;
            let mut found: Vec<Live> = std::mem::take(&mut cleaning.found).into_values().collect();
            found.sort_by_key(|live| live.extent.offset);
            cleaning.own = self.with_own_zones(&found);
            cleaning.rest = found.into();
        }
        // Where slots for nodes are short, a part is what one root record takes.
        let most = match cleaning.rest.len() {
            0 => 0,
            _ if is_whole => usize::MAX,
            rest => self.afford_moves(rest)?,
        };
        let pieces = self.still_living(cleaning, most, bytes, nodes)?;
        self.move_pieces(&pieces, &cleaning.own, &mut cleaning.outputs)?;
        if !cleaning.rest.is_empty() {
            return Ok(Emptied::Part);
        }
        let is_empty = !self.is_current(cleaning) || self.zones.get(cleaning.zone)?.live_bytes == 0;
        if is_empty || cleaning.is_thorough {
            return Ok(ALL);
        }
        // A torn segment's header claims blocks that the log wrote when it went on: what is missing may be there.
        self.leave_outputs(cleaning)?;
        *cleaning = Cleaning {
            gain: cleaning.gain,
            ..Cleaning::new(cleaning.zone, cleaning.epoch, true)
        };
        Ok(Emptied::Part)
    }

    /// Looks up what the headers of a zone name, until nothing is missing, or so many nodes were read. Says whether that
    /// was all.
    fn look_for_living(&mut self, cleaning: &mut Cleaning, nodes: u64) -> Result<bool> {
        let entry = *self.zones.get(cleaning.zone)?;
        while cleaning.at.0 < entry.write_blocks
            && cleaning.found_bytes < u64::from(entry.live_bytes)
        {
            let Ok(header) = self.header_of(cleaning.zone, cleaning.at.0, cleaning.epoch) else {
                // A gap, or a header of which both copies are bad: its pieces cannot be named from here.
                cleaning.at = (cleaning.at.0 + 1, 0);
                continue;
            };
            let batches = header.records.batches().unwrap_or_default();
            for change in batches.iter().flatten().skip(cleaning.at.1) {
                if self.catalog.nodes.reads >= nodes {
                    return Ok(false);
                }
                self.add_living(cleaning, change, header.block)?;
                cleaning.at.1 += 1;
            }
            let blocks = match cleaning.is_thorough {
                true => header.blocks(),
                false => header.segment_blocks(),
            };
            cleaning.at = (cleaning.at.0 + blocks, 0);
        }
        Ok(true)
    }

    fn header_of(&mut self, zone: ZoneId, block: u32, epoch: u64) -> Result<Header> {
        let header = self.read_header(zone, block)?;
        match header.zone == zone && header.epoch == epoch {
            // A copy at this place: the first header was bad, and its segment ends here.
            true if header.block < block => Ok(Header {
                payload_blocks: 0,
                ..header
            }),
            true => Ok(header),
            false => Err(crate::error::Error::corrupt(
                "a segment",
                "it is of another life",
            )),
        }
    }

    fn add_living(&mut self, cleaning: &mut Cleaning, change: &Change, header: u32) -> Result {
        let (ino, logical) = match change {
            Change::Put(key, _) if key.kind() == Some(Kind::Extent as u8) => {
                match (key.ino(), key.number()) {
                    (Some(ino), Some(logical)) => (ino, logical),
                    _ => return Ok(()),
                }
            }
            Change::Data(data) => (data.ino, data.logical),
            _ => return Ok(()),
        };
        // A file's end that may be missing is cut first, so that it is not taken for damage.
        self.verify_end(ino)?;
        let Some(extent) = self.extent_at(ino, logical)? else {
            return Ok(());
        };
        let is_here = !extent.is_hole && extent.zone == cleaning.zone && extent.header == header;
        let piece = Live {
            ino,
            logical,
            extent,
        };
        if is_here && cleaning.found.insert((ino, logical), piece).is_none() {
            cleaning.found_bytes += u64::from(extent.bytes);
        }
        Ok(())
    }

    fn extent_at(&mut self, ino: Ino, logical: u64) -> Result<Option<Extent>> {
        let key = Key::extent(ino, logical);
        let Some(value) = self.get(&key)? else {
            return Ok(None);
        };
        let (_, extent) = crate::fs::extent_of(&Cell {
            key,
            value: value.into(),
        })?;
        Ok(Some(extent))
    }

    /// The next pieces that have together about so many bytes, at least one; without those that died since they were found.
    fn still_living(
        &mut self,
        cleaning: &mut Cleaning,
        most: usize,
        bytes: u64,
        nodes: u64,
    ) -> Result<Vec<Live>> {
        let (mut pieces, mut sum) = (Vec::new(), 0);
        while let Some(live) = cleaning.rest.front().copied() {
            sum += u64::from(live.extent.bytes);
            let is_much = sum > bytes || self.catalog.nodes.reads >= nodes || pieces.len() >= most;
            if is_much && !pieces.is_empty() {
                break;
            }
            cleaning.rest.pop_front();
            if self.extent_at(live.ino, live.logical)? == Some(live.extent) {
                pieces.push(live);
            }
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::Emptied;
    use crate::format::{FileType, Ino, BLOCK, ROOT_INO};
    use crate::testing::made;
    use crate::{FileSystem, Options, Owner};

    /// Between two parts files are deleted and appended to, and the power fails.
    #[test]
    fn a_zone_is_emptied_in_parts_and_what_happens_between_them_counts() {
        let options = Options {
            compaction_bytes: 16 * BLOCK as u64,
            ..Options::default()
        };
        let mut fs = FileSystem::mount(made(), options, 1).unwrap();
        let name = |file: u64| format!("{file}").into_bytes();
        let mut files: Vec<Ino> = Vec::new();
        for file in 0..40 {
            let made = fs.create(
                ROOT_INO,
                &name(file),
                FileType::Regular,
                Owner::default(),
                0,
            );
            files.push(made.unwrap());
            fs.write(files[file as usize], 0, &[file as u8; 2 * BLOCK + 7])
                .unwrap();
        }
        fs.sync().unwrap();
        let victim = fs.log.at.zone;
        fs.move_log().unwrap();
        let epoch = fs.zones.get(victim).unwrap().epoch;
        let (mut parts, mut gone) = (0, 0);
        let mut cleaning = fs.begin(victim).unwrap();
        while fs.empty(cleaning, false).unwrap() == Emptied::Part {
            parts += 1;
            // What was found last has not moved yet.
            gone += 1;
            fs.unlink(ROOT_INO, &name(40 - gone)).unwrap();
            fs.write(files[20], 2 * BLOCK as u64 + 6 + gone, &[20])
                .unwrap();
            let mut after = FileSystem::mount(fs.device().clone(), Options::default(), 2).unwrap();
            assert_eq!(after.check(true, |_| ()).unwrap().problems, [""; 0]);
            for file in 0..40 - gone {
                let found = after.read(files[file as usize], 0, 2 * BLOCK).unwrap();
                assert_eq!(found, [file as u8; 2 * BLOCK]);
            }
            // If all that was left has died, there is nothing to go on with.
            let Some(begun) = fs.begun(Some(victim)).unwrap() else {
                break;
            };
            cleaning = begun;
        }
        assert!(parts >= 3, "only {parts} parts");
        assert_eq!(fs.check(true, |_| ()).unwrap().problems, [""; 0]);
        let entry = fs.zones.get(victim).unwrap();
        assert!(entry.live_bytes == 0 || entry.epoch != epoch);
        assert!(fs.begun(None).unwrap().is_none());
    }
}
