// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The drive itself.

use crate::record::{Event, MAGIC};
use crate::states::{Disk, States, StatesError};
use crate::{BLOCK_BYTES, BLOCK_SECTORS, SECTOR_BYTES};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use smr_drive::request::{Completion, Op, Outcome, Refusal, Request, FLAG_FUA};

/// As many requests at once as a SATA disk takes.
pub const QUEUE_DEPTH: u32 = 32;
/// Longest request: 512 KiB.
pub const MAX_REQUEST_SECTORS: u32 = 1024;

/// Where a block's contents are.
#[derive(Clone, Copy)]
enum Place {
    Zero,
    Pool(u32),
    /// Written since the state was set.
    Page(u32),
}

/// A request that has not ended.
struct Pending {
    due_ns: u64,
    tag: u64,
    sequence: u64,
    recorded: bool,
}

/// A disk made of a file of states.
pub struct CrashDrive<'a> {
    states: States<'a>,
    places: Vec<Place>,
    /// Pages in use come first; the rest are left over from states before.
    pages: Vec<Box<[u8; BLOCK_BYTES]>>,
    pages_used: usize,
    staged: BTreeMap<u64, Vec<u8>>,
    pending: Vec<Pending>,
    sequence: u64,
    random: u64,
    record: Option<Vec<u8>>,
    record_taken: usize,
}

impl<'a> CrashDrive<'a> {
    /// Switches the disk on, in its first state.
    pub fn open(file: &'a [u8], seed: u64) -> Result<Self, StatesError> {
        let states = States::open(file)?;
        let mut drive = Self {
            states,
            places: vec![Place::Zero; states.disk.blocks as usize],
            pages: Vec::new(),
            pages_used: 0,
            staged: BTreeMap::new(),
            pending: Vec::new(),
            sequence: 0,
            random: seed,
            record: None,
            record_taken: 0,
        };
        drive.set(0);
        Ok(drive)
    }

    /// What the disk is.
    pub fn disk(&self) -> Disk {
        self.states.disk
    }

    /// Sets the disk to a state of its file; what was written since the last is forgotten. False: there is no such state,
    /// or requests are under way.
    pub fn set_state(&mut self, state: u32) -> bool {
        let possible = state < self.states.count() && self.pending.is_empty();
        if possible {
            self.set(state);
        }
        possible
    }

    fn set(&mut self, state: u32) {
        self.places.fill(Place::Zero);
        self.pages_used = 0;
        for (block, pool) in self.states.entries(state) {
            self.places[block as usize] = Place::Pool(pool);
        }
    }

    /// Data of a write that is about to be submitted.
    pub fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        let end = offset + data.len();
        if end > MAX_REQUEST_SECTORS as usize * SECTOR_BYTES {
            return Err(Refusal::Invalid);
        }
        let staged = self.staged.entry(tag).or_default();
        if staged.len() < end {
            staged.resize(end, 0);
        }
        staged[offset..end].copy_from_slice(data);
        Ok(())
    }

    /// The write will not be submitted.
    pub fn forget_staged(&mut self, tag: u64) {
        self.staged.remove(&tag);
    }

    /// Takes a request. What it writes can be read at once.
    pub fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal> {
        let staged = self.staged.remove(&request.tag).unwrap_or_default();
        if self.pending.len() >= QUEUE_DEPTH as usize {
            return Err(Refusal::QueueFull);
        }
        if !matches!(request.op, Op::Read | Op::Write | Op::Flush) {
            return Err(Refusal::Unsupported);
        }
        let (first, sectors) = (request.lba.0, u64::from(request.sectors));
        let end = first.checked_add(sectors).ok_or(Refusal::Invalid)?;
        if end > u64::from(self.states.disk.blocks) * BLOCK_SECTORS
            || request.sectors > MAX_REQUEST_SECTORS
        {
            return Err(Refusal::Invalid);
        }
        self.sequence += 1;
        let sequence = self.sequence;
        if request.op == Op::Write {
            if staged.len() as u64 != sectors * SECTOR_BYTES as u64 {
                return Err(Refusal::Invalid);
            }
            self.write(first, &staged);
            let fua = request.flags & FLAG_FUA != 0;
            self.note(&Event::Write {
                sequence,
                sector: first,
                fua,
                data: &staged,
            });
        } else if request.op == Op::Flush {
            self.note(&Event::Flush { sequence });
        }
        let delay_ns = self.delay_ns(request.op);
        self.pending.push(Pending {
            due_ns: now_ns.saturating_add(delay_ns),
            tag: request.tag,
            sequence,
            recorded: request.op != Op::Read,
        });
        Ok(())
    }

    fn delay_ns(&mut self, op: Op) -> u64 {
        let longest_ns = u64::from(self.states.disk.delay_us) * 1000;
        if op == Op::Read || longest_ns == 0 {
            return 0;
        }
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % longest_ns
    }

    fn write(&mut self, first: u64, data: &[u8]) {
        for (at, sector) in (first..).zip(data.chunks_exact(SECTOR_BYTES)) {
            let page = self.page((at / BLOCK_SECTORS) as usize);
            let offset = (at % BLOCK_SECTORS) as usize * SECTOR_BYTES;
            page[offset..offset + SECTOR_BYTES].copy_from_slice(sector);
        }
    }

    /// The page of a block, made of what the block holds if there is none yet.
    fn page(&mut self, block: usize) -> &mut [u8; BLOCK_BYTES] {
        if let Place::Page(page) = self.places[block] {
            return &mut self.pages[page as usize];
        }
        if self.pages_used == self.pages.len() {
            self.pages.push(Box::new([0; BLOCK_BYTES]));
        }
        let page = &mut self.pages[self.pages_used];
        match self.places[block] {
            Place::Pool(pool) => page.copy_from_slice(self.states.block(pool)),
            _ => page.fill(0),
        }
        self.places[block] = Place::Page(self.pages_used as u32);
        self.pages_used += 1;
        page
    }

    /// Fetches data. False: beyond the end.
    pub fn get(&self, sector: u64, data: &mut [u8]) -> bool {
        for (at, out) in (sector..).zip(data.chunks_mut(SECTOR_BYTES)) {
            let Some(place) = self.places.get((at / BLOCK_SECTORS) as usize) else {
                return false;
            };
            let offset = (at % BLOCK_SECTORS) as usize * SECTOR_BYTES;
            let range = offset..offset + out.len();
            match *place {
                Place::Zero => out.fill(0),
                Place::Pool(pool) => out.copy_from_slice(&self.states.block(pool)[range]),
                Place::Page(page) => out.copy_from_slice(&self.pages[page as usize][range]),
            }
        }
        true
    }

    /// When the next request ends.
    pub fn next_event(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.due_ns).min()
    }

    /// Hands over the requests that have ended, at most `max`, in the order in which they ended.
    pub fn advance(&mut self, now_ns: u64, max: usize, mut done: impl FnMut(Completion)) {
        for _ in 0..max {
            let due = self
                .pending
                .iter()
                .enumerate()
                .filter(|(_, pending)| pending.due_ns <= now_ns);
            let Some((index, _)) =
                due.min_by_key(|(_, pending)| (pending.due_ns, pending.sequence))
            else {
                return;
            };
            let Pending {
                tag,
                sequence,
                recorded,
                ..
            } = self.pending.remove(index);
            if recorded {
                self.note(&Event::Complete { sequence });
            }
            done(Completion {
                tag,
                outcome: Outcome::Done,
            });
        }
    }

    /// Puts a marker into the record.
    pub fn mark(&mut self, text: &[u8]) {
        self.note(&Event::Mark(text.trim_ascii_end()));
    }

    fn note(&mut self, event: &Event) {
        if let Some(record) = &mut self.record {
            event.encode(record);
        }
    }

    /// Takes bytes of the record, which is kept from the first call on.
    pub fn record_take(&mut self, out: &mut [u8]) -> usize {
        let record = self.record.get_or_insert_with(|| MAGIC.to_vec());
        let bytes = out.len().min(record.len() - self.record_taken);
        out[..bytes].copy_from_slice(&record[self.record_taken..][..bytes]);
        self.record_taken += bytes;
        if self.record_taken == record.len() {
            record.clear();
            self.record_taken = 0;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::decode;
    use crate::states::Builder;
    use zoned::Lba;

    fn file(delay_us: u32) -> Vec<u8> {
        let mut builder = Builder::new(Disk {
            blocks: 4,
            delay_us,
            fua: true,
        });
        builder.state([(1, 0)]);
        builder.state([(1, 1), (3, 0)]);
        let mut file = builder.head(2);
        file.extend(vec![5; BLOCK_BYTES]);
        file.extend(vec![6; BLOCK_BYTES]);
        file
    }

    fn write(drive: &mut CrashDrive, now_ns: u64, tag: u64, sector: u64, byte: u8) {
        drive.put(tag, 0, &[byte; SECTOR_BYTES]).unwrap();
        let request = Request {
            tag,
            op: Op::Write,
            flags: 0,
            lba: Lba(sector),
            sectors: 1,
        };
        drive.submit(now_ns, request).unwrap();
    }

    fn byte(drive: &CrashDrive, sector: u64) -> u8 {
        let mut data = [0xff; SECTOR_BYTES];
        assert!(drive.get(sector, &mut data));
        data[0]
    }

    #[test]
    fn a_state_forgets_what_was_written_before() {
        let file = file(0);
        let mut drive = CrashDrive::open(&file, 1).unwrap();
        assert_eq!(
            [byte(&drive, 0), byte(&drive, 8), byte(&drive, 24)],
            [0, 5, 0]
        );
        write(&mut drive, 0, 1, 9, 9);
        assert_eq!(
            [byte(&drive, 8), byte(&drive, 9), byte(&drive, 10)],
            [5, 9, 5]
        );
        assert!(!drive.set_state(1), "a request is under way");
        drive.advance(0, 9, |_| ());
        assert!(drive.set_state(1) && !drive.set_state(2));
        assert_eq!(
            [byte(&drive, 8), byte(&drive, 9), byte(&drive, 24)],
            [6, 6, 5]
        );
        write(&mut drive, 0, 1, 0, 7);
        assert_eq!([byte(&drive, 0), byte(&drive, 1)], [7, 0]);
        assert!(!drive.get(32, &mut [0; 512]));
    }

    #[test]
    fn the_record_has_writes_with_data_and_completions_in_their_order() {
        let file = file(1000);
        let mut drive = CrashDrive::open(&file, 1).unwrap();
        let mut record = vec![0; 4096];
        let mut bytes = drive.record_take(&mut record);
        for tag in 0..6 {
            write(&mut drive, 0, tag, tag, tag as u8);
        }
        drive.mark(b"half\n");
        let mut ended = Vec::new();
        while let Some(at_ns) = drive.next_event() {
            drive.advance(at_ns, 1, |completion| ended.push(completion.tag));
        }
        // In pieces that do not fit events.
        loop {
            let end = record.len().min(bytes + 100);
            match drive.record_take(&mut record[bytes..end]) {
                0 => break,
                more => bytes += more,
            }
        }
        record.resize(bytes, 0);
        let events = decode(&record).unwrap();
        assert_eq!(events.len(), 13);
        assert_eq!(
            events[2],
            Event::Write {
                sequence: 3,
                sector: 2,
                fua: false,
                data: &[2; 512]
            }
        );
        assert_eq!(events[6], Event::Mark(b"half"));
        let recorded: Vec<Event> = ended
            .iter()
            .map(|tag| Event::Complete { sequence: tag + 1 })
            .collect();
        assert_eq!(events[7..], recorded);
        let mut sorted = ended.clone();
        sorted.sort_unstable();
        assert_ne!(ended, sorted, "requests overtake each other");
    }
}
