// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sparse device in memory. A copy of it costs a pointer a zone, so that a power cut can be had after every action of a
//! long story; a block that is one 64-bit word again and again takes 16 bytes, so that gigabytes fit.
//!
//! With write pointers it keeps every rule of a host-managed disk. Without, it is an image file or an ordinary disk: the
//! zones are an agreement that a power cut forgets, and old bytes stay readable.

use super::random::mix;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use zoned::{DeviceError, Lba, Sense, Zone, ZoneError, ZoneId, ZoneState, ZoneType, ZonedDevice};

pub const BLOCK: usize = 4096;
const BLOCK_SECTORS: u64 = 8;

/// A block's bytes.
#[derive(Clone)]
pub enum Piece {
    /// One word again and again; zero where nothing was ever written.
    Word(u64),
    /// Any bytes, and a number that tells them from others.
    Bytes(Arc<(u64, [u8; BLOCK])>),
}

impl Piece {
    pub fn of(bytes: &[u8]) -> Piece {
        let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        if bytes[8..16] == bytes[..8] && bytes[8..] == bytes[..BLOCK - 8] {
            return Piece::Word(word);
        }
        let first = u64::from(crc32c::crc32c(bytes));
        let second = u64::from(crc32c::crc32c_append(0x5afe, &bytes[..BLOCK / 2]));
        let bytes: [u8; BLOCK] = bytes.try_into().unwrap();
        Piece::Bytes(Arc::new((first << 32 | second, bytes)))
    }

    pub fn read(&self, into: &mut [u8]) {
        match self {
            Piece::Word(0) => into.fill(0),
            Piece::Word(word) => into
                .chunks_mut(8)
                .for_each(|part| part.copy_from_slice(&word.to_le_bytes()[..part.len()])),
            Piece::Bytes(bytes) => into.copy_from_slice(&bytes.1[..into.len()]),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        self.read(&mut bytes);
        bytes
    }

    /// What tells it from others; that of a block of zeros is 0.
    fn number(&self) -> u64 {
        match self {
            Piece::Word(0) => 0,
            Piece::Word(word) => mix(*word),
            Piece::Bytes(bytes) => mix(bytes.0 ^ 0xb17e),
        }
    }
}

/// What was done to a device.
#[derive(Clone)]
pub enum Action {
    /// From a block on.
    Write(u64, Vec<Piece>),
    Reset(u32),
    Finish(u32),
    Flush,
}

pub type Actions = Rc<RefCell<Vec<Action>>>;

/// A command that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read,
    Write,
    Flush,
    Reset,
    Finish,
}

/// Errors to come, and the bound of what one image may cost. Shared by all copies of a device.
#[derive(Default)]
pub struct Trouble {
    /// The command that fails, and how many of its kind succeed before.
    pub fails: Option<(Command, u64)>,
    /// So many of its kind fail then; 0 for all that follow.
    pub times: u64,
    /// Of a write that fails the first half reaches the medium.
    pub partial: bool,
    /// It has failed.
    pub has_failed: bool,
    /// Requests so far, and how many there may be.
    pub requests: u64,
    pub requests_max: u64,
}

/// How a device is divided.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub conventional: u32,
    pub sequential: u32,
    pub zone_blocks: u32,
    /// Of a sequential zone.
    pub capacity_blocks: u32,
    pub open_max: Option<u32>,
    pub keeps_pointers: bool,
    /// Without pointers: what is reset reads as zeros.
    pub discards: bool,
}

#[derive(Clone)]
struct Room {
    report: Zone,
    /// Its blocks; none before the first is written.
    pieces: Option<Arc<Vec<Piece>>>,
}

#[derive(Clone)]
pub struct Sim {
    shape: Shape,
    rooms: Vec<Room>,
    /// Zones opened by a write, the one that was written longest ago first.
    implicit: Vec<u32>,
    /// Sum of the numbers of all blocks: tells states apart.
    digest: u64,
    actions: Option<Actions>,
    trouble: Option<Rc<RefCell<Trouble>>>,
}

impl Sim {
    pub fn new(shape: Shape) -> Self {
        let sectors = u64::from(shape.zone_blocks) * BLOCK_SECTORS;
        let room = |number: u32| {
            let kind = match number < shape.conventional {
                true => ZoneType::Conventional,
                false => ZoneType::SeqRequired,
            };
            let mut report = Zone::new(Lba(u64::from(number) * sectors), sectors, kind);
            if kind == ZoneType::SeqRequired {
                report.capacity_sectors = u64::from(shape.capacity_blocks) * BLOCK_SECTORS;
            }
            Room {
                report,
                pieces: None,
            }
        };
        Sim {
            shape,
            rooms: (0..shape.conventional + shape.sequential)
                .map(room)
                .collect(),
            implicit: Vec::new(),
            digest: 0,
            actions: None,
            trouble: None,
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same, and what is done to it from now on is written down.
    pub fn recorded(mut self, actions: &Actions) -> Self {
        self.actions = Some(Rc::clone(actions));
        self
    }

    /// The same, with trouble.
    pub fn troubled(mut self, trouble: &Rc<RefCell<Trouble>>) -> Self {
        self.trouble = Some(Rc::clone(trouble));
        self
    }

    /// The same, healthy, not recorded.
    pub fn plain(mut self) -> Self {
        (self.actions, self.trouble) = (None, None);
        self
    }

    /// The same with fewer zones or more, all new ones empty.
    pub fn resized(mut self, zones: u32) -> Self {
        let shape = Shape {
            sequential: zones - self.shape.conventional,
            ..self.shape
        };
        let rooms = Sim::new(shape).rooms;
        self.rooms.truncate(zones as usize);
        self.rooms
            .extend_from_slice(&rooms[self.rooms.len()..zones as usize]);
        self.shape = shape;
        self
    }

    /// As the power comes back: without pointers all zones look empty.
    pub fn power_on(&mut self) {
        self.implicit.clear();
        for room in &mut self.rooms {
            let zone = &mut room.report;
            if zone.zone_type == ZoneType::Conventional {
                continue;
            }
            if !self.shape.keeps_pointers {
                (zone.state, zone.write_pointer) = (ZoneState::Empty, zone.start);
            } else if matches!(
                zone.state,
                ZoneState::ImplicitOpen | ZoneState::ExplicitOpen
            ) {
                zone.state = closed(zone);
            }
        }
    }

    /// A number that differs where states differ, but for 1 in 2^60.
    pub fn digest(&self) -> u64 {
        let zones = (0u64..).zip(&self.rooms);
        let pointers = zones.map(|(number, room)| {
            let at = room.report.write_pointer.0;
            let is_full = room.report.state == ZoneState::Full;
            mix(number << 40 ^ at << 1 ^ u64::from(is_full))
        });
        pointers.fold(self.digest, u64::wrapping_add)
    }

    fn zone_of(&self, block: u64) -> usize {
        (block / u64::from(self.shape.zone_blocks)) as usize
    }

    pub fn blocks(&self) -> u64 {
        self.rooms.len() as u64 * u64::from(self.shape.zone_blocks)
    }

    pub fn is_conventional(&self, zone: u32) -> bool {
        zone < self.shape.conventional
    }

    /// The zone of an action; none of a flush.
    pub fn zone_named(&self, action: &Action) -> Option<u32> {
        match action {
            Action::Write(block, _) => u32::try_from(self.zone_of(*block)).ok(),
            Action::Reset(zone) | Action::Finish(zone) => Some(*zone),
            Action::Flush => None,
        }
    }

    /// A block as it is on the medium.
    pub fn piece(&self, block: u64) -> Piece {
        let within = (block % u64::from(self.shape.zone_blocks)) as usize;
        let room = &self.rooms[self.zone_of(block)];
        match &room.pieces {
            Some(pieces) => pieces[within].clone(),
            None => Piece::Word(0),
        }
    }

    /// Puts a block onto the medium, past all rules.
    pub fn put(&mut self, block: u64, piece: Piece) {
        let zone_blocks = self.shape.zone_blocks as usize;
        let within = (block % zone_blocks as u64) as usize;
        let zone = self.zone_of(block);
        let pieces = self.rooms[zone]
            .pieces
            .get_or_insert_with(|| Arc::new(vec![Piece::Word(0); zone_blocks]));
        let place = &mut Arc::make_mut(pieces)[within];
        let part = |piece: &Piece| match piece.number() {
            0 => 0,
            number => mix(number ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        self.digest = self.digest.wrapping_sub(part(place));
        self.digest = self.digest.wrapping_add(part(&piece));
        *place = piece;
    }

    fn erase(&mut self, zone: u32) {
        let first = u64::from(zone) * u64::from(self.shape.zone_blocks);
        if self.rooms[zone as usize].pieces.is_some() {
            for block in first..first + u64::from(self.shape.zone_blocks) {
                self.put(block, Piece::Word(0));
            }
            self.rooms[zone as usize].pieces = None;
        }
    }

    fn note(&self, action: impl FnOnce() -> Action) {
        if let Some(actions) = &self.actions {
            actions.borrow_mut().push(action());
        }
    }

    /// Whether this command fails.
    fn fails(&self, command: Command) -> Result<(), DeviceError> {
        let Some(trouble) = &self.trouble else {
            return Ok(());
        };
        let mut trouble = trouble.borrow_mut();
        trouble.requests += 1;
        if trouble.requests_max > 0 {
            assert!(
                trouble.requests < trouble.requests_max,
                "this does not end: {} requests",
                trouble.requests
            );
        }
        match &mut trouble.fails {
            Some((kind, before)) if *kind == command => {
                if *before > 0 {
                    *before -= 1;
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
        trouble.has_failed = true;
        trouble.times = trouble.times.saturating_sub(1);
        if trouble.times == 0 {
            trouble.fails = None;
        }
        let (key, asc) = match command {
            Command::Read => (3, 0x11),
            _ => (3, 0x0c),
        };
        Err(DeviceError::Failed(Sense { key, asc, ascq: 0 }))
    }

    /// Does an action of a record once more.
    pub fn redo(&mut self, action: &Action) {
        match action {
            Action::Write(at, pieces) => {
                let sectors = pieces.len() as u64 * BLOCK_SECTORS;
                if self.shape.keeps_pointers {
                    let checked = self.check_write(at * BLOCK_SECTORS, sectors);
                    checked.expect("what the device did once it can do again");
                }
                for (block, piece) in (*at..).zip(pieces) {
                    self.put(block, piece.clone());
                }
            }
            Action::Reset(zone) => {
                let reset = self.reset_zone(ZoneId(*zone));
                reset.expect("what the device did once it can do again");
            }
            Action::Finish(zone) => {
                let finished = self.finish_zone(ZoneId(*zone));
                finished.expect("what the device did once it can do again");
            }
            Action::Flush => {}
        }
    }

    /// Writes the first blocks of what was cut off.
    pub fn redo_torn(&mut self, at: u64, pieces: &[Piece]) {
        self.redo(&Action::Write(at, pieces.to_vec()));
    }

    fn open_zones(&self) -> usize {
        let explicit = |room: &&Room| room.report.state == ZoneState::ExplicitOpen;
        self.implicit.len() + self.rooms.iter().filter(explicit).count()
    }

    fn make_room(&mut self) -> Result<(), ZoneError> {
        let open_max = self.shape.open_max.unwrap_or(u32::MAX) as usize;
        if self.open_zones() >= open_max {
            let zone = *self.implicit.first().ok_or(ZoneError::Resources)?;
            self.implicit.remove(0);
            let report = &mut self.rooms[zone as usize].report;
            report.state = closed(report);
        }
        Ok(())
    }

    /// The rules of a write; moves the write pointer.
    fn check_write(&mut self, at: u64, sectors: u64) -> Result<(), ZoneError> {
        let first = self.zone_of(at / BLOCK_SECTORS);
        let last = self.zone_of((at + sectors - 1) / BLOCK_SECTORS);
        if self.is_conventional(first as u32) {
            return match self.is_conventional(last as u32) {
                true => Ok(()),
                false => Err(ZoneError::Boundary),
            };
        }
        let mut zone = self.rooms[first].report;
        let is_open = |state| matches!(state, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen);
        let was_open = is_open(zone.state);
        zone.write(Lba(at), sectors)?;
        if !was_open {
            self.make_room()?;
        }
        self.rooms[first].report = zone;
        self.implicit.retain(|other| *other != first as u32);
        if zone.state == ZoneState::ImplicitOpen {
            self.implicit.push(first as u32);
        }
        Ok(())
    }

    fn named(&mut self, zone: ZoneId) -> Result<&mut Zone, ZoneError> {
        let room = self.rooms.get_mut(zone.0 as usize);
        let room = room.ok_or(ZoneError::OutOfRange)?;
        match room.report.state {
            ZoneState::NotWritePointer => Err(ZoneError::InvalidField),
            _ => Ok(&mut room.report),
        }
    }

    /// Nobody asks for what is not on the device.
    fn assert_inside(&self, at: Lba, bytes: usize) {
        let sectors = self.blocks() * BLOCK_SECTORS;
        let end = at.0.checked_add(bytes as u64 / 512);
        assert!(
            bytes > 0 && bytes % BLOCK == 0 && end.is_some_and(|end| end <= sectors),
            "a request outside: {bytes} bytes at sector {} of {sectors}",
            at.0
        );
    }
}

fn closed(zone: &Zone) -> ZoneState {
    match zone.write_pointer == zone.start {
        true => ZoneState::Empty,
        false => ZoneState::Closed,
    }
}

impl ZonedDevice for Sim {
    fn zones(&self) -> u32 {
        self.rooms.len() as u32
    }

    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.rooms.get(zone.0 as usize).map(|room| room.report)
    }

    fn open_max(&self) -> Option<u32> {
        self.shape.open_max
    }

    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.assert_inside(at, data.len());
        self.fails(Command::Read)?;
        let first = at.0 / BLOCK_SECTORS;
        let blocks = (data.len() / BLOCK) as u64;
        if self.shape.keeps_pointers {
            for zone in self.zone_of(first)..=self.zone_of(first + blocks - 1) {
                let report = &self.rooms[zone].report;
                if self.is_conventional(zone as u32)
                    != (self.zone_of(first) < self.shape.conventional as usize)
                {
                    return Err(ZoneError::ReadBoundary.into());
                }
                let end = at.0 + blocks * BLOCK_SECTORS;
                let end = end.min(report.start.0 + report.size_sectors);
                if !self.is_conventional(zone as u32) && end > report.write_pointer.0 {
                    return Err(ZoneError::InvalidData.into());
                }
            }
        }
        for (block, into) in (first..).zip(data.chunks_exact_mut(BLOCK)) {
            let within = (block % u64::from(self.shape.zone_blocks)) as usize;
            match &self.rooms[self.zone_of(block)].pieces {
                Some(pieces) => pieces[within].read(into),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.assert_inside(at, data.len());
        if let Err(error) = self.fails(Command::Write) {
            let half = data.len() / BLOCK / 2 * BLOCK;
            let trouble = self.trouble.take();
            if half > 0
                && trouble
                    .as_ref()
                    .is_some_and(|trouble| trouble.borrow().partial)
            {
                self.write(at, &data[..half])?;
            }
            self.trouble = trouble;
            return Err(error);
        }
        self.check_write(at.0, data.len() as u64 / 512)?;
        let first = at.0 / BLOCK_SECTORS;
        let pieces: Vec<Piece> = data.chunks_exact(BLOCK).map(Piece::of).collect();
        for (block, piece) in (first..).zip(&pieces) {
            self.put(block, piece.clone());
        }
        self.note(|| Action::Write(first, pieces));
        Ok(())
    }

    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        match self.named(zone)?.state {
            ZoneState::ExplicitOpen | ZoneState::Full => return Ok(()),
            ZoneState::ImplicitOpen => self.implicit.retain(|other| *other != zone.0),
            _ => self.make_room()?,
        }
        self.named(zone)?.state = ZoneState::ExplicitOpen;
        Ok(())
    }

    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        let report = self.named(zone)?;
        if matches!(
            report.state,
            ZoneState::ImplicitOpen | ZoneState::ExplicitOpen
        ) {
            report.state = closed(report);
            self.implicit.retain(|other| *other != zone.0);
        }
        Ok(())
    }

    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.fails(Command::Finish)?;
        let report = self.named(zone)?;
        report.finish()?;
        report.write_pointer = Lba(report.start.0 + report.capacity_sectors);
        self.implicit.retain(|other| *other != zone.0);
        self.note(|| Action::Finish(zone.0));
        Ok(())
    }

    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.fails(Command::Reset)?;
        self.named(zone)?.reset()?;
        self.implicit.retain(|other| *other != zone.0);
        if self.shape.keeps_pointers || self.shape.discards {
            self.erase(zone.0);
        }
        self.note(|| Action::Reset(zone.0));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.fails(Command::Flush)?;
        self.note(|| Action::Flush);
        Ok(())
    }

    fn keeps_write_pointers(&self) -> bool {
        self.shape.keeps_pointers
    }

    fn set_write_pointer(&mut self, zone: ZoneId, at: Lba) -> Result<(), DeviceError> {
        let report = self.named(zone)?;
        assert!(
            at >= report.start && at.0 <= report.start.0 + report.capacity_sectors,
            "a write pointer outside its zone"
        );
        report.write_pointer = at;
        report.state = match at.0 - report.start.0 {
            0 => ZoneState::Empty,
            sectors if sectors >= report.capacity_sectors => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        Ok(())
    }
}
