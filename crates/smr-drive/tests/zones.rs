// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Random requests and zone commands against disks with zones.
//!
//! A failure prints the shortest list of actions that shows it; PROPTEST_CASES=1000 for a longer search.

mod common;

use common::small::{drive, small_host_managed, ZONE_BLOCKS};
use common::World;
use proptest::prelude::*;
use smr_drive::file;
use smr_drive::profile::{sample, Profile, Translation};
use smr_drive::request::{Op, Outcome, Request};
use smr_drive::{Drive, ZonedDisk};
use std::collections::BTreeMap;
use zoned::{DeviceError, Lba, RamDevice, Zone, ZoneError, ZoneId, ZoneState, ZonedDevice};

#[derive(Clone, Debug)]
enum Action {
    Write {
        zone: u64,
        offset: u64,
        blocks: u64,
        fua: bool,
    },
    /// At the write pointer.
    Append {
        zone: u64,
        blocks: u64,
    },
    Read {
        zone: u64,
        offset: u64,
        blocks: u64,
    },
    Flush,
    Wait,
    Sleep {
        ms: u64,
    },
    PowerCut,
    SaveAndOpen,
}

fn action() -> impl Strategy<Value = Action> {
    // Few zones and small places, so that writes meet.
    let place = || (0..6u64, prop_oneof![0..64u64, 960..1024u64], 1..60u64);
    prop_oneof![
        4 => (place(), prop::bool::weighted(0.2))
            .prop_map(|((zone, offset, blocks), fua)| Action::Write { zone, offset, blocks, fua }),
        8 => (0..6u64, 1..100u64).prop_map(|(zone, blocks)| Action::Append { zone, blocks }),
        2 => place().prop_map(|(zone, offset, blocks)| Action::Read { zone, offset, blocks }),
        2 => Just(Action::Flush),
        1 => Just(Action::Wait),
        2 => (0..3000u64).prop_map(|ms| Action::Sleep { ms }),
        1 => Just(Action::PowerCut),
        1 => Just(Action::SaveAndOpen),
    ]
}

fn small_host_aware() -> Profile {
    let mut profile = sample::host_aware(64 << 20, ZONE_BLOCKS, 2048, 48);
    profile.buffer.dirty_blocks_max = 256;
    profile.buffer.dirty_extents_max = 16;
    profile.buffer.destage_blocks_max = 64;
    if let Translation::HostAware(disk) = &mut profile.translation {
        disk.cache.entry_blocks_max = 32;
        disk.cache.append_entries_max = 8;
        disk.cache.clean_slice_ns = 20_000_000;
    }
    profile
}

/// The same with bands that are parts of zones, no limit of non-sequential zones, and a cache that is overwritten.
fn small_host_aware_in_parts() -> Profile {
    let mut profile = small_host_aware();
    if let Translation::HostAware(disk) = &mut profile.translation {
        disk.zone_bands = 4;
        disk.non_sequential_max = 16;
        disk.cache.cache_blocks = 256;
        disk.cache.cache_overwritten = true;
        disk.cache.cache_at_block = 8 * ZONE_BLOCKS + 100;
    }
    profile
}

fn host_aware_disk(in_parts: bool) -> Profile {
    if in_parts {
        small_host_aware_in_parts()
    } else {
        small_host_aware()
    }
}

fn perform(profile: Profile, actions: &[Action]) -> World {
    let mut world = World::new(profile, 5);
    for action in actions {
        match *action {
            Action::Write {
                zone,
                offset,
                blocks,
                fua,
            } => {
                world.write(zone * ZONE_BLOCKS + offset, blocks, fua);
            }
            Action::Append { zone, blocks } => {
                let report = world.drive.zone(zoned::ZoneId(zone as u32)).unwrap();
                let at = report.write_pointer.block().0;
                let end = (zone + 1) * ZONE_BLOCKS;
                if at < end {
                    world.write(at, blocks.min(end - at), false);
                }
            }
            Action::Read {
                zone,
                offset,
                blocks,
            } => {
                world.read(zone * ZONE_BLOCKS + offset, blocks);
            }
            Action::Flush => world.flush(),
            Action::Wait => world.wait_all(),
            Action::Sleep { ms } => world.sleep(ms * 1_000_000),
            Action::PowerCut => world.power_cut(),
            Action::SaveAndOpen => world.save_and_open(),
        }
        world.collect();
        if matches!(action, Action::Wait | Action::Sleep { .. }) {
            world.check_newest();
        }
    }
    world.wait_all();
    world.check_newest();
    world
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(64);
    ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 20_000,
        cases,
        ..ProptestConfig::default()
    }
}

/// What a program does to a zoned device, in blocks.
#[derive(Clone, Debug)]
enum Step {
    Write {
        zone: u64,
        offset: u64,
        sectors: u64,
    },
    Append {
        zone: u64,
        blocks: u64,
    },
    Read {
        zone: u64,
        offset: u64,
        blocks: u64,
    },
    Open(u64),
    Close(u64),
    Finish(u64),
    Reset(u64),
    Sleep {
        ms: u64,
    },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    // Zone 16 is not there.
    let zone = || prop_oneof![9 => 0..5u64, 1 => 14..17u64];
    let offset = || prop_oneof![0..64u64, 960..1024u64];
    prop_oneof![
        3 => (zone(), offset(), 1..400u64)
            .prop_map(|(zone, offset, sectors)| Step::Write { zone, offset, sectors }),
        9 => (zone(), prop_oneof![5 => 1..100u64, 1 => 200..256u64])
            .prop_map(|(zone, blocks)| Step::Append { zone, blocks }),
        4 => (zone(), offset(), 1..60u64)
            .prop_map(|(zone, offset, blocks)| Step::Read { zone, offset, blocks }),
        2 => zone().prop_map(Step::Open),
        1 => zone().prop_map(Step::Close),
        1 => zone().prop_map(Step::Finish),
        2 => zone().prop_map(Step::Reset),
        1 => (0..3000u64).prop_map(|ms| Step::Sleep { ms }),
        1 => Just(Step::Flush),
    ]
}

/// Data that differ from step to step and from sector to sector.
fn data_of(number: usize, sectors: u64) -> Vec<u8> {
    let sector = |i: u64| [(number as u64 * 31 + i * 7 + 1) as u8; 512];
    (0..sectors).flat_map(sector).collect()
}

/// One step; what comes back, and what was read.
fn take(
    device: &mut dyn ZonedDevice,
    number: usize,
    step: &Step,
) -> (Result<Lba, DeviceError>, Vec<u8>) {
    let at = |zone: u64, offset: u64| Lba((zone * ZONE_BLOCKS + offset) * 8);
    let id = |zone: u64| ZoneId(zone as u32);
    let mut data = Vec::new();
    let result = match *step {
        Step::Write {
            zone,
            offset,
            sectors,
        } => device.write(at(zone, offset), &data_of(number, sectors)),
        Step::Append { zone, blocks } => {
            return (device.append(id(zone), &data_of(number, blocks * 8)), data);
        }
        Step::Read {
            zone,
            offset,
            blocks,
        } => {
            data.resize(blocks as usize * 4096, 0);
            device.read(at(zone, offset), &mut data)
        }
        Step::Open(zone) => device.open_zone(id(zone)),
        Step::Close(zone) => device.close_zone(id(zone)),
        Step::Finish(zone) => device.finish_zone(id(zone)),
        Step::Reset(zone) => device.reset_zone(id(zone)),
        Step::Flush => device.flush(),
        Step::Sleep { .. } => Ok(()),
    };
    (result.map(|()| Lba(0)), data)
}

fn zones_of(device: &dyn ZonedDevice) -> Vec<Zone> {
    (0..device.zones())
        .map_while(|id| device.zone(ZoneId(id)))
        .collect()
}

/// What a host-aware disk is to the host: a write is never refused, and a write pointer is where the last block ends.
struct Preferred {
    zones: Vec<(u64, bool)>,
    data: Vec<u8>,
}

impl Preferred {
    fn take(&mut self, number: usize, step: &Step) {
        let conventional = |zone: u64| zone == 0;
        match *step {
            Step::Write {
                zone,
                offset,
                sectors,
            } => {
                self.write(
                    zone * ZONE_BLOCKS * 8 + offset * 8,
                    &data_of(number, sectors),
                );
            }
            Step::Append { zone, blocks } if zone < 16 && !conventional(zone) => {
                let (pointer, _) = self.zones[zone as usize];
                if pointer + blocks * 8 <= ZONE_BLOCKS * 8 {
                    let at = zone * ZONE_BLOCKS * 8 + pointer;
                    self.write(at, &data_of(number, blocks * 8));
                }
            }
            Step::Reset(zone) if zone < 16 && !conventional(zone) => {
                self.zones[zone as usize] = (0, false);
                let bytes = (ZONE_BLOCKS * 4096) as usize;
                self.data[zone as usize * bytes..][..bytes].fill(0);
            }
            Step::Finish(zone) if zone < 16 && !conventional(zone) => {
                self.zones[zone as usize] = (ZONE_BLOCKS * 8, true);
            }
            _ => {}
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64 / 512;
        if end * 512 > self.data.len() as u64 {
            return;
        }
        self.data[at as usize * 512..][..data.len()].copy_from_slice(data);
        for zone in at / 8 / ZONE_BLOCKS..=(end - 1) / 8 / ZONE_BLOCKS {
            let to = (end - zone * ZONE_BLOCKS * 8).min(ZONE_BLOCKS * 8);
            let (pointer, full) = &mut self.zones[zone as usize];
            *pointer = to.max(*pointer);
            *full = *pointer == ZONE_BLOCKS * 8;
        }
    }
}

/// Sequential streams into zones with many requests on the way, and power cuts in between.
struct Streams {
    drive: Drive,
    now_ns: u64,
    tag: u64,
    zones: BTreeMap<u64, Stream>,
    running: BTreeMap<u64, Running>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stream {
    /// Grows with every reset.
    generation: u64,
    /// Blocks given to the drive, acknowledged, and certain to survive.
    next: u64,
    acknowledged: u64,
    durable: u64,
    resetting: bool,
}

enum Running {
    Write { zone: u64, end: u64 },
    Flush(BTreeMap<u64, Stream>),
    Reset(u64),
}

impl Streams {
    fn new(profile: Profile) -> Self {
        let zones = (1..6).map(|zone| (zone, Stream::default())).collect();
        Streams {
            drive: drive(profile),
            now_ns: 0,
            tag: 0,
            zones,
            running: BTreeMap::new(),
        }
    }

    fn block(zone: u64, generation: u64, block: u64) -> Vec<u8> {
        let word = (zone << 40 | generation << 20 | block) + 1;
        word.to_le_bytes().repeat(512)
    }

    fn submit(&mut self, op: Op, block: u64, blocks: u64, running: Running) {
        let request = Request {
            tag: self.tag,
            op,
            flags: 0,
            lba: Lba(block * 8),
            sectors: blocks as u32 * 8,
        };
        assert_eq!(self.drive.submit(self.now_ns, request), Ok(()));
        self.running.insert(self.tag, running);
        self.tag += 1;
    }

    fn append(&mut self, zone: u64, blocks: u64) {
        let stream = self.zones[&zone];
        let blocks = blocks.min(1000 - stream.next);
        if stream.resetting || blocks == 0 {
            return;
        }
        let data: Vec<u8> = (stream.next..stream.next + blocks)
            .flat_map(|block| Streams::block(zone, stream.generation, block))
            .collect();
        self.drive.put(self.tag, 0, &data).unwrap();
        let end = stream.next + blocks;
        self.zones.get_mut(&zone).unwrap().next = end;
        self.submit(
            Op::Write,
            zone * ZONE_BLOCKS + stream.next,
            blocks,
            Running::Write { zone, end },
        );
    }

    fn reset(&mut self, zone: u64) {
        let stream = self.zones.get_mut(&zone).unwrap();
        if !std::mem::replace(&mut stream.resetting, true) {
            self.submit(Op::ZoneReset, zone * ZONE_BLOCKS, 0, Running::Reset(zone));
        }
    }

    fn flush(&mut self) {
        let zones = self.zones.clone();
        self.submit(Op::Flush, 0, 0, Running::Flush(zones));
    }

    fn step(&mut self) {
        let Some(next_ns) = self.drive.next_event() else {
            return;
        };
        self.now_ns = next_ns.max(self.now_ns);
        let mut done = Vec::new();
        self.drive.advance(self.now_ns, usize::MAX, |completion| {
            assert_eq!(completion.outcome, Outcome::Done);
            done.push(completion.tag);
        });
        for tag in done {
            match self.running.remove(&tag).unwrap() {
                Running::Write { zone, end } => {
                    let stream = self.zones.get_mut(&zone).unwrap();
                    stream.acknowledged = end.max(stream.acknowledged);
                }
                Running::Flush(then) => {
                    for (zone, stream) in &mut self.zones {
                        if stream.generation == then[zone].generation {
                            stream.durable = then[zone].acknowledged.max(stream.durable);
                        }
                    }
                }
                Running::Reset(zone) => {
                    let stream = self.zones.get_mut(&zone).unwrap();
                    let generation = stream.generation + 1;
                    *stream = Stream {
                        generation,
                        ..Stream::default()
                    };
                }
            }
        }
        self.drive.check_invariants();
    }

    fn power_cut(&mut self, save: bool) {
        if save {
            let mut bytes: Vec<u8> = Vec::new();
            let saved: Result<(), ()> = self.drive.save(|piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            });
            saved.unwrap();
            let opened = file::open(bytes.leak()).unwrap_or_else(|e| panic!("{e}"));
            self.drive = Drive::new(opened, 3);
        } else {
            self.drive.power_cut(self.now_ns);
        }
        self.running.clear();
        self.drive.check_invariants();
        for (zone, stream) in &mut self.zones {
            let report = self.drive.zone(ZoneId(*zone as u32)).unwrap();
            assert_eq!((report.write_pointer.0 - report.start.0) % 8, 0);
            let pointer = (report.write_pointer.0 - report.start.0) / 8;
            // A reset that was on its way may have been carried out.
            if !(stream.resetting && pointer == 0) {
                assert!(
                    stream.durable <= pointer && pointer <= stream.next,
                    "{report:?} {stream:?}"
                );
            }
            for block in 0..stream.next.min(ZONE_BLOCKS) {
                let mut data = vec![0xee; 4096];
                self.drive
                    .get((zone * ZONE_BLOCKS + block) * 8, &mut data)
                    .unwrap();
                let expected = if block < pointer {
                    Streams::block(*zone, stream.generation, block)
                } else {
                    vec![0; 4096]
                };
                assert!(
                    data == expected,
                    "zone {zone} block {block}: {report:?} {stream:?}"
                );
            }
            let generation = stream.generation + 1;
            if pointer == 0 {
                *stream = Stream {
                    generation,
                    ..Stream::default()
                };
            } else {
                (stream.next, stream.acknowledged, stream.durable) = (pointer, pointer, pointer);
                stream.resetting = false;
            }
        }
    }

    fn run(&mut self, actions: &[(u8, u64, u64)]) {
        for (kind, zone, number) in actions {
            while self.running.len() > 25 {
                self.step();
            }
            match kind {
                0..=5 => self.append(*zone, *number),
                6 => self.reset(*zone),
                7 => self.flush(),
                8 => self.power_cut(number % 2 == 0),
                _ => (0..number / 4).for_each(|_| self.step()),
            }
        }
        while !self.running.is_empty() {
            self.step();
        }
        self.power_cut(true);
    }
}

/// Without an open limit: streams open zones as they like.
fn roomy(mut profile: Profile) -> Profile {
    if let Translation::HostManaged(zones) = &mut profile.translation {
        zones.open_max = 5;
    }
    profile
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_host_managed_disk_is_the_device_in_memory(steps in prop::collection::vec(step(), 1..80)) {
        let mut disk = ZonedDisk::new(drive(small_host_managed()));
        let mut model = RamDevice::new(1, 15, ZONE_BLOCKS * 8)
            .with_open_max(3)
            .with_capacity(8000)
            .with_unit(8);
        for (number, step) in steps.iter().enumerate() {
            if let Step::Sleep { ms } = step {
                disk.sleep(ms * 1_000_000);
            }
            let (ours, expected) = (take(&mut disk, number, step), take(&mut model, number, step));
            let sense = |result: Result<Lba, DeviceError>| result.map_err(|error| error.sense());
            prop_assert_eq!(sense(ours.0), sense(expected.0), "step {}: {:?}", number, step);
            // Of a refused read there are no data.
            prop_assert!(ours.0.is_err() || ours.1 == expected.1, "step {}: {:?}", number, step);
            prop_assert_eq!(zones_of(&disk), zones_of(&model), "step {}: {:?}", number, step);
            disk.drive().check_invariants();
        }
        for zone in zones_of(&disk) {
            let sectors = match zone.state {
                ZoneState::NotWritePointer => zone.size_sectors,
                _ => zone.write_pointer.0 - zone.start.0,
            };
            let (mut ours, mut expected) = (vec![1; sectors as usize * 512], vec![2; sectors as usize * 512]);
            disk.read(zone.start, &mut ours).unwrap();
            model.read(zone.start, &mut expected).unwrap();
            prop_assert!(ours == expected, "{:?}", zone);
        }
    }

    #[test]
    fn a_host_aware_disk_refuses_no_write(
        in_parts in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut disk = ZonedDisk::new(drive(host_aware_disk(in_parts)));
        let mut model = Preferred { zones: vec![(0, false); 16], data: vec![0; 64 << 20] };
        for (number, step) in steps.iter().enumerate() {
            if let Step::Sleep { ms } = step {
                disk.sleep(ms * 1_000_000);
            }
            let (result, read) = take(&mut disk, number, step);
            model.take(number, step);
            match *step {
                Step::Write { zone, offset, sectors } => {
                    let inside = zone * ZONE_BLOCKS * 8 + offset * 8 + sectors <= 16 * ZONE_BLOCKS * 8;
                    prop_assert_eq!(result.is_ok(), inside);
                }
                Step::Read { zone, offset, .. } if result.is_ok() => {
                    let at = (zone * ZONE_BLOCKS + offset) as usize * 4096;
                    prop_assert!(read == model.data[at..][..read.len()], "step {}: {:?}", number, step);
                }
                _ => {}
            }
            for (zone, (pointer, full)) in zones_of(&disk).iter().zip(&model.zones).skip(1) {
                prop_assert_eq!(zone.write_pointer.0 - zone.start.0, *pointer, "step {}: {:?}", number, step);
                prop_assert_eq!(zone.state == ZoneState::Full, *full);
            }
            disk.drive().check_invariants();
        }
        for (id, (pointer, _)) in model.zones.iter().enumerate() {
            // Of a conventional zone the model has a pointer, too: where the last block ends.
            let bytes = (pointer * 512) as usize;
            let mut ours = vec![1; bytes];
            disk.read(Lba(id as u64 * ZONE_BLOCKS * 8), &mut ours).unwrap();
            let expected = &model.data[id * (ZONE_BLOCKS * 4096) as usize..][..bytes];
            prop_assert!(ours == expected, "zone {}", id);
        }
    }

    #[test]
    fn a_power_cut_leaves_what_was_flushed_below_the_write_pointers(
        actions in prop::collection::vec((0..12u8, 1..6u64, 1..100u64), 1..100),
    ) {
        Streams::new(roomy(small_host_managed())).run(&actions);
        Streams::new(small_host_aware()).run(&actions);
        Streams::new(small_host_aware_in_parts()).run(&actions);
    }

    #[test]
    fn enforced_zones_take_what_is_in_order_and_count_the_rest(
        reject in any::<bool>(),
        writes in prop::collection::vec((0..4u64, 0..4u8, 1..200u64, any::<bool>()), 1..60),
    ) {
        let mut profile = sample::enforcing(64 << 20, ZONE_BLOCKS);
        if let Translation::Enforcing(enforcing) = &mut profile.translation {
            enforcing.reject = reject;
        }
        let mut disk = ZonedDisk::new(drive(profile));
        prop_assert_eq!(disk.zones(), 0);
        let mut pointers = [0u64; 5];
        let mut data = vec![0u8; 5 * ZONE_BLOCKS as usize * 4096];
        let mut violations = 0;
        for (number, (zone, kind, blocks, cut)) in writes.iter().enumerate() {
            let pointer = pointers[*zone as usize];
            let offset = match kind {
                0 => 0,
                1 => 10 * blocks % ZONE_BLOCKS,
                _ => pointer % ZONE_BLOCKS,
            };
            let (first, end) = (zone * ZONE_BLOCKS + offset, zone * ZONE_BLOCKS + offset + blocks);
            // A write across a zone's end is judged in both zones; zone 0 takes all.
            let parts: Vec<(usize, u64, u64)> = (*zone..=(end - 1) / ZONE_BLOCKS)
                .map(|z| (z as usize, first.max(z * ZONE_BLOCKS) - z * ZONE_BLOCKS, end.min((z + 1) * ZONE_BLOCKS) - z * ZONE_BLOCKS))
                .collect();
            let wrong = parts.iter().any(|(z, from, _)| *z > 0 && *from != pointers[*z] && *from != 0);
            violations += u64::from(wrong);
            let bytes = data_of(number, blocks * 8);
            let result = disk.write(Lba(first * 8), &bytes);
            let refused = wrong && reject;
            let expected = if refused { Err(ZoneError::Unaligned.into()) } else { Ok(()) };
            prop_assert_eq!(result, expected, "write {}", number);
            if !refused {
                data[first as usize * 4096..][..bytes.len()].copy_from_slice(&bytes);
                for (z, from, to) in parts {
                    let again = from == 0 && !wrong;
                    pointers[z] = if again { to } else { to.max(pointers[z]) };
                }
            }
            prop_assert_eq!(disk.drive().snapshot().violations, violations);
            disk.drive().check_invariants();
            if *cut {
                // Acknowledged is durable: there is no write cache.
                disk.power_cut();
                disk.drive().check_invariants();
            }
        }
        let mut all = vec![1; data.len()];
        disk.read(Lba(0), &mut all).unwrap();
        prop_assert!(all == data);
    }

    #[test]
    fn a_host_aware_disk_takes_every_write(
        in_parts in any::<bool>(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut world = perform(host_aware_disk(in_parts), &actions);
        world.wait_clean();
        world.check_newest();
        prop_assert_eq!(world.drive.snapshot().cache_entries, 0);
    }

    #[test]
    fn the_same_requests_give_the_same_trace(
        in_parts in any::<bool>(),
        actions in prop::collection::vec(action(), 1..40),
    ) {
        let profile = || host_aware_disk(in_parts);
        let (once, twice) = (perform(profile(), &actions), perform(profile(), &actions));
        prop_assert_eq!(once.now_ns, twice.now_ns);
        prop_assert!(once.trace == twice.trace);
    }
}
