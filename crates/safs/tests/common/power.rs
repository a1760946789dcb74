// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that remembers what was done to it, so that a power cut can be had after every action.
//!
//! What was flushed is there. Of the rest any part may be: of each sequential zone the actions up to some point, the last
//! write perhaps torn; of the conventional zones any blocks. (Host-managed disks promise no more; a plain disk promises
//! less, and that is tested with `keeps_write_pointers` off: then each block of a zone may be there or not.)

use super::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use zoned::{DeviceError, Lba, RamDevice, Zone, ZoneId, ZoneType, ZonedDevice};

#[derive(Clone, Debug)]
pub enum Action {
    Write(Lba, Vec<u8>),
    Reset(ZoneId),
    Finish(ZoneId),
    Flush,
}

pub type Actions = Rc<RefCell<Vec<Action>>>;

/// Does what it is asked, and writes it down.
pub struct Recorder {
    device: RamDevice,
    actions: Actions,
}

impl Recorder {
    pub fn new(device: RamDevice, actions: Actions) -> Self {
        Recorder { device, actions }
    }

    fn note(&self, action: Action) {
        self.actions.borrow_mut().push(action);
    }
}

impl ZonedDevice for Recorder {
    fn zones(&self) -> u32 {
        self.device.zones()
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.device.zone(zone)
    }
    fn open_max(&self) -> Option<u32> {
        self.device.open_max()
    }
    fn read(&mut self, at: Lba, data: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, data)
    }
    fn write(&mut self, at: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, data)?;
        self.note(Action::Write(at, data.to_vec()));
        Ok(())
    }
    fn open_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.open_zone(zone)
    }
    fn close_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.close_zone(zone)
    }
    fn finish_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.finish_zone(zone)?;
        self.note(Action::Finish(zone));
        Ok(())
    }
    fn reset_zone(&mut self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.reset_zone(zone)?;
        self.note(Action::Reset(zone));
        Ok(())
    }
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.note(Action::Flush);
        Ok(())
    }
}

fn apply(device: &mut RamDevice, action: &Action) {
    match action {
        Action::Write(at, data) => device.write(*at, data),
        Action::Reset(zone) => device.reset_zone(*zone),
        Action::Finish(zone) => device.finish_zone(*zone),
        Action::Flush => Ok(()),
    }
    .expect("what the device did once it can do again");
}

/// Devices as power cuts leave them: `Cuts::at(n)` after the first n actions.
pub struct Cuts<'a> {
    actions: &'a [Action],
    durable: RamDevice,
    /// Actions that `durable` has: all up to a flush.
    flushed: usize,
    zone_sectors: u64,
}

impl<'a> Cuts<'a> {
    pub fn new(device: RamDevice, actions: &'a [Action]) -> Self {
        let zone_sectors = device.zone(ZoneId(0)).unwrap().size_sectors;
        Cuts {
            actions,
            durable: device,
            flushed: 0,
            zone_sectors,
        }
    }

    fn zone_of(&self, action: &Action) -> Option<u32> {
        match action {
            Action::Write(at, _) => Some((at.0 / self.zone_sectors) as u32),
            Action::Reset(zone) | Action::Finish(zone) => Some(zone.0),
            Action::Flush => None,
        }
    }

    /// `count` never goes back.
    pub fn at(&mut self, count: usize, random: &mut Random) -> RamDevice {
        let last_flush = self.actions[..count]
            .iter()
            .rposition(|action| matches!(action, Action::Flush));
        let last_flush = last_flush.map_or(0, |at| at + 1);
        for action in &self.actions[self.flushed..last_flush.max(self.flushed)] {
            apply(&mut self.durable, action);
        }
        self.flushed = self.flushed.max(last_flush);
        let mut device = self.durable.clone();
        let mut by_zone: BTreeMap<u32, Vec<&Action>> = BTreeMap::new();
        for action in &self.actions[self.flushed..count] {
            if let Some(zone) = self.zone_of(action) {
                by_zone.entry(zone).or_default().push(action);
            }
        }
        for (zone, actions) in by_zone {
            let is_conventional =
                device.zone(ZoneId(zone)).unwrap().zone_type == ZoneType::Conventional;
            if is_conventional {
                scatter(&mut device, &actions, random);
            } else {
                keep_some(&mut device, &actions, random);
            }
        }
        device
    }
}

/// Any blocks of what was written may be there.
fn scatter(device: &mut RamDevice, actions: &[&Action], random: &mut Random) {
    let chance = random.below(3);
    for action in actions {
        let Action::Write(at, data) = action else {
            continue;
        };
        for (i, block) in data.chunks(4096).enumerate() {
            let is_there = match chance {
                0 => false,
                1 => true,
                _ => random.below(2) == 0,
            };
            if is_there {
                device.write(Lba(at.0 + 8 * i as u64), block).unwrap();
            }
        }
    }
}

/// Up to some point everything is there.
fn keep_some(device: &mut RamDevice, actions: &[&Action], random: &mut Random) {
    let kept = match random.below(3) {
        0 => 0,
        1 => actions.len(),
        _ => random.below(1 + actions.len() as u64) as usize,
    };
    actions[..kept]
        .iter()
        .for_each(|action| apply(device, action));
    if let Some(Action::Write(at, data)) = actions.get(kept) {
        let blocks = data.len() / 4096;
        let torn = random.below(blocks as u64) as usize * 4096;
        if torn > 0 {
            device.write(*at, &data[..torn]).unwrap();
        }
    }
}
