// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The drive: queue, buffer, arm and translation layer put together.
//!
//! A request's way: [`Drive::put`] (data of a write), [`Drive::submit`], a place in the buffer or a turn of the arm
//! (`schedule.rs`), completion by [`Drive::advance`], [`Drive::get`] (data of a read, `data.rs`).

mod data;
mod in_hand;
mod schedule;
mod staging;
mod trouble;
mod watched;

use crate::activity::ActivityClock;
use crate::contents::{Contents, Damaged};
use crate::counters::{Counters, Snapshot};
use crate::durability::Durability;
use crate::faults::Faults;
use crate::file::{self, Opened};
use crate::mechanics::arm::Arm;
use crate::mechanics::read_ahead::ReadAhead;
use crate::profile::{Profile, Translation};
use crate::request::{Class, Completion, Op, Outcome, Refusal, Request, FLAG_FAILED, FLAG_META};
use crate::state::State;
use crate::trace::{Record, Trace, Where};
use crate::translation::{self, TranslationLayer};
use crate::volatile_buffer::VolatileBuffer;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use in_hand::{Done, Pending, Waiter, Watched, Work};
use staging::Staging;
use zoned::{BlockRange, Zone, ZoneId, BLOCK_BYTES, SECTOR_BYTES};

/// A drive that is switched on.
pub struct Drive {
    state: Box<State>,
    contents: Contents,
    durability: Durability,
    buffer: VolatileBuffer,
    arm: Arm,
    read_ahead: ReadAhead,
    translation: Box<dyn TranslationLayer>,
    counters: Counters,
    trace: Trace,
    /// Where journals and superblocks are.
    extents: [(Class, Vec<BlockRange>); 2],
    staging: Staging,
    /// Grows with every flush; see `volatile_buffer.rs`.
    epoch: u64,
    reads: Vec<Pending>,
    /// Writes without a place in the buffer, in order.
    writes: VecDeque<Pending>,
    /// Acknowledged when something is on the medium.
    waiters: Vec<Waiter>,
    /// Discards and zone commands, which wait until nothing of their range is volatile.
    commands: Vec<Pending>,
    /// What came after a command that is not executed yet.
    held: VecDeque<Pending>,
    /// By time and order.
    done: BTreeMap<(u64, u64), Done>,
    done_count: u64,
    /// What the arm does, and until when.
    work: Option<(u64, Work)>,
    last_was_read: bool,
    link_free_ns: u64,
    /// When an idle arm should look for work again.
    wake_ns: Option<u64>,
    /// Last host request, or power-on. A drive learns what time it is from its first call.
    idle_since_ns: Option<u64>,
    /// Of the run.
    seed: u64,
    /// What goes wrong; nothing without a plan.
    faults: Option<Box<Faults>>,
    activity: ActivityClock,
    watched: Watched,
}

impl Drive {
    /// Switches a drive on. `seed` is the run's.
    pub fn new(opened: Opened, seed: u64) -> Self {
        let Opened {
            mut state,
            contents,
        } = opened;
        let arm = Arm::new(&state.profile.mechanics, state.seed.rotate_left(32) ^ seed);
        let translation = translation::new(&state.profile, &arm, &state.translation);
        // From now on the translation layer knows better.
        state.translation = Default::default();
        Drive {
            contents,
            durability: Durability::default(),
            buffer: VolatileBuffer::default(),
            read_ahead: ReadAhead::new(&state.profile.mechanics),
            arm,
            translation,
            counters: Counters::default(),
            trace: Trace::default(),
            extents: [
                (Class::Journal, Vec::new()),
                (Class::Superblock, Vec::new()),
            ],
            staging: Staging::default(),
            epoch: 0,
            reads: Vec::new(),
            writes: VecDeque::new(),
            waiters: Vec::new(),
            commands: Vec::new(),
            held: VecDeque::new(),
            done: BTreeMap::new(),
            done_count: 0,
            work: None,
            last_was_read: false,
            link_free_ns: 0,
            // Whatever time it is, there may be something to clean.
            wake_ns: Some(0),
            idle_since_ns: None,
            seed,
            faults: None,
            activity: ActivityClock::default(),
            watched: Watched::default(),
            state,
        }
    }

    /// The drive's model.
    pub fn profile(&self) -> &Profile {
        &self.state.profile
    }

    /// What was counted since the drive was switched on.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Accepts a request: its completion will come.
    pub fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal> {
        self.run(now_ns);
        self.check(&request)
            .inspect_err(|_| self.staging.forget(request.tag))?;
        let class = self.class_of(&request);
        let bytes = u64::from(request.sectors) * SECTOR_BYTES;
        self.counters.request(request.op, class, bytes);
        self.counters.last_host_ns = now_ns;
        self.idle_since_ns = Some(now_ns);
        let pending = Pending {
            request,
            class,
            arrival_ns: now_ns,
            extra_ns: 0,
            forgotten: false,
        };
        let Some(pending) = self.meet_faults(now_ns, pending) else {
            return Ok(());
        };
        // Discards and zone commands are not queued with others: what comes later waits until they are over.
        if self.command_waits() {
            self.held.push_back(pending);
        } else {
            self.begin_request(now_ns, pending);
        }
        self.dispatch(now_ns);
        Ok(())
    }

    fn begin_request(&mut self, now_ns: u64, pending: Pending) {
        let request = &pending.request;
        if let Err(error) = self.translation.admit(request) {
            self.staging.forget(request.tag);
            let end_ns = now_ns + self.state.profile.interface.command_ns;
            return self.finish(pending, end_ns, 0, Where::None, Outcome::Zone(error));
        }
        match request.op {
            Op::Read => self.queue_read(now_ns, pending),
            Op::Write | Op::WriteZeroes => self.writes.push_back(pending),
            Op::Flush => self.queue_flush(pending),
            _ => self.queue_command(pending),
        }
    }

    fn command_waits(&self) -> bool {
        !self.commands.is_empty() || matches!(self.work, Some((_, Work::Command { .. })))
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let interface = &self.state.profile.interface;
        let working = matches!(
            self.work,
            Some((_, Work::Read { pending, .. } | Work::Command { pending, .. })) if !pending.forgotten
        );
        let queued = self.reads.len()
            + self.writes.len()
            + self.waiters.len()
            + self.commands.len()
            + self.held.len()
            + self.done.len()
            + usize::from(working);
        if queued >= interface.queue_depth as usize {
            return Err(Refusal::QueueFull);
        }
        let end = request
            .lba
            .0
            .checked_add(u64::from(request.sectors))
            .ok_or(Refusal::Invalid)?;
        let with_data = matches!(request.op, Op::Read | Op::Write);
        let too_long = with_data && request.sectors > interface.max_request_sectors;
        let empty =
            request.sectors == 0 && request.op != Op::Flush && !request.op.is_zone_command();
        let unsupported = request.op == Op::Discard && !self.translation.has_discard()
            || request.op.is_zone_command() && self.translation.zones() == 0;
        if unsupported {
            return Err(Refusal::Unsupported);
        }
        if end > self.state.profile.capacity_sectors() || too_long || empty {
            return Err(Refusal::Invalid);
        }
        Ok(())
    }

    fn class_of(&self, request: &Request) -> Class {
        let block = request.lba.block();
        let inside =
            |ranges: &[BlockRange]| ranges.iter().any(|r| r.start <= block && block < r.end);
        match self.extents.iter().find(|(_, ranges)| inside(ranges)) {
            Some((class, _)) if request.op != Op::Flush => *class,
            _ if request.flags & FLAG_META != 0 => Class::Metadata,
            _ => Class::Data,
        }
    }

    /// Tells where a class of data lies. Only journals and superblocks have places.
    pub fn set_class(&mut self, class: Class, ranges: Vec<BlockRange>) {
        if let Some(entry) = self.extents.iter_mut().find(|(c, _)| *c == class) {
            entry.1 = ranges;
        }
    }

    /// When something will happen if the host does nothing.
    pub fn next_event(&self) -> Option<u64> {
        let arm_ns = match &self.work {
            Some((end_ns, _)) => Some(*end_ns),
            None => self.wake_ns,
        };
        let done_ns = self.done.first_key_value().map(|((ns, _), _)| *ns);
        match (arm_ns, done_ns) {
            (Some(arm_ns), Some(done_ns)) => Some(arm_ns.min(done_ns)),
            (arm_ns, done_ns) => arm_ns.or(done_ns),
        }
    }

    /// Lets time pass; completions are handed to `done`, at most `max` of them. Returns how many.
    pub fn advance(&mut self, now_ns: u64, max: usize, mut done: impl FnMut(Completion)) -> usize {
        self.run(now_ns);
        let mut count = 0;
        while count < max {
            match self.done.first_entry() {
                Some(entry) if entry.key().0 <= now_ns => {
                    let Done { record, outcome } = entry.remove();
                    self.trace.request(&record);
                    self.counters.latencies.note(
                        record.request.op,
                        record.class,
                        record.completion_ns - record.arrival_ns,
                    );
                    done(Completion {
                        tag: record.request.tag,
                        outcome,
                    });
                    count += 1;
                }
                _ => break,
            }
        }
        count
    }

    /// Gives a request its time of completion: when `ready_ns` has come, the cable is free, and the data are across.
    fn complete(
        &mut self,
        pending: Pending,
        ready_ns: u64,
        link_blocks: u64,
        service_ns: u64,
        place: Where,
        outcome: Outcome,
    ) {
        let interface = &self.state.profile.interface;
        let start_ns = ready_ns.max(self.link_free_ns);
        let transfer_ns = link_blocks * interface.block_ns;
        let completion_ns = start_ns + interface.command_ns + transfer_ns;
        self.link_free_ns = start_ns + interface.command_gap_ns + transfer_ns;
        self.finish(pending, completion_ns, service_ns, place, outcome);
    }

    fn finish(
        &mut self,
        pending: Pending,
        completion_ns: u64,
        service_ns: u64,
        place: Where,
        outcome: Outcome,
    ) {
        let Pending {
            mut request,
            class,
            arrival_ns,
            extra_ns,
            forgotten,
        } = pending;
        if forgotten {
            return;
        }
        let completion_ns = completion_ns + extra_ns;
        if outcome != Outcome::Done {
            request.flags |= FLAG_FAILED;
        }
        let record = Record {
            request,
            class,
            arrival_ns,
            completion_ns,
            service_ns,
            place,
        };
        self.done
            .insert((completion_ns, self.done_count), Done { record, outcome });
        self.done_count += 1;
    }

    /// Whether it has the discard command.
    pub fn has_discard(&self) -> bool {
        self.translation.has_discard()
    }

    /// How many zones it can report.
    pub fn zones(&self) -> u32 {
        self.translation.zones()
    }

    /// A zone's report.
    pub fn zone(&self, zone: ZoneId) -> Option<Zone> {
        self.translation.zone(zone)
    }

    /// Blocks that a power cut would lose, those of writes without a place in the buffer included.
    fn volatile(&self) -> Vec<BlockRange> {
        let dirty = self.buffer.pieces().map(|(range, _)| range);
        let in_flight = self.buffer.in_flight().iter().map(|f| f.range);
        let waiting = self.writes.iter().map(|p| p.request.blocks());
        dirty.chain(in_flight).chain(waiting).collect()
    }

    /// Nothing to clean without a host that asks for something, nothing volatile.
    pub fn is_clean(&self) -> bool {
        let nothing_waits = self.writes.is_empty() && self.held.is_empty();
        self.translation.idle_ns().is_none() && self.buffer.is_clean() && nothing_waits
    }

    /// The counters as JSON.
    pub fn report(&mut self, now_ns: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        self.run(now_ns);
        self.counters.trace_lost = self.trace.lost;
        let mut snapshot = self.snapshot();
        self.describe_arm(now_ns, &mut snapshot);
        self.counters.write_json(&snapshot, out)
    }

    /// What can be said of the drive's present state.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            seeks: self.arm.seeks,
            volatile_bytes: self.buffer.volatile_blocks() * BLOCK_BYTES,
            clean: self.is_clean(),
            ..Snapshot::default()
        };
        self.translation.describe(&mut snapshot);
        snapshot
    }

    /// Writes a marker into the trace.
    pub fn mark(&mut self, now_ns: u64, text: &[u8]) {
        self.run(now_ns);
        self.trace.marker(now_ns, text);
    }

    /// Takes finished bytes of the trace, which begins with the first call.
    pub fn trace_take(&mut self, buf: &mut [u8]) -> usize {
        self.trace.take(buf)
    }

    /// Power fails: what is not durable is gone, and so is every request.
    pub fn power_cut(&mut self, now_ns: u64) {
        self.run(now_ns);
        let survivors = self.survivors(now_ns);
        let volatile = without(self.volatile(), &survivors);
        for (range, _) in survivors.pieces() {
            self.durability.landed(&mut self.contents, range);
        }
        // A damaged leaf cannot hold volatile data: it could not have been written.
        let _ = self.durability.cut(&mut self.contents);
        self.buffer.clear();
        self.translation.power_cut(&volatile);
        self.land_survivors(now_ns, survivors);
        self.read_ahead = ReadAhead::new(&self.state.profile.mechanics);
        self.forget_requests();
        self.work = None;
        self.wake_ns = None;
        self.dispatch(now_ns);
    }

    /// The host resets the link, as it does when a request takes too long. All requests are forgotten. What the arm does goes
    /// on, and what is in the buffer stays there. False: a drive with zones knows no reset, because its write pointers count
    /// writes that wait, too, and would refuse them when they are sent again.
    pub fn reset(&mut self, now_ns: u64) -> bool {
        let zoned = matches!(
            self.state.profile.translation,
            Translation::HostAware(_) | Translation::HostManaged(_) | Translation::Enforcing(_)
        );
        if zoned {
            return false;
        }
        self.run(now_ns);
        self.counters.resets += 1;
        self.forget_requests();
        if let Some((_, Work::Read { pending, .. } | Work::Command { pending, .. })) =
            &mut self.work
        {
            pending.forgotten = true;
        }
        self.idle_since_ns = Some(now_ns);
        self.dispatch(now_ns);
        true
    }

    /// All but what the arm is at.
    fn forget_requests(&mut self) {
        self.staging = Staging::default();
        self.reads.clear();
        self.writes.clear();
        self.waiters.clear();
        self.commands.clear();
        self.held.clear();
        self.done.clear();
    }

    /// Cleans all bands without any time: for drives prepared ahead of an experiment. What is volatile becomes durable.
    pub fn clean_now(&mut self) {
        self.durability = Durability::default();
        self.buffer.clear();
        self.translation.clean_now();
    }

    /// Checks the invariants of everything that has some.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.translation.check();
        self.durability.check(&self.buffer);
    }

    /// Verifies what the drive holds against the checksums of its file.
    pub fn verify(&mut self) -> Result<(), Damaged> {
        self.contents.verify()
    }

    /// The contents, for programs that export them.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// Writes the drive file, in order, as a power cut now would leave it.
    pub fn save<E>(&self, write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.clone();
        state.translation = self.translation.save(&self.volatile());
        file::save(&state, &self.contents, self.durability.on_medium(), write)
    }
}

/// `ranges` without the blocks of `others`.
fn without(ranges: Vec<BlockRange>, others: &VolatileBuffer) -> Vec<BlockRange> {
    let mut rest = Vec::new();
    for range in ranges {
        let mut at = range.start;
        for (other, _) in others.pieces() {
            let cut = other.intersection(range);
            if !cut.is_empty() && cut.end > at {
                if cut.start > at {
                    rest.push(BlockRange::new(at, cut.start));
                }
                at = cut.end;
            }
        }
        if at < range.end {
            rest.push(BlockRange::new(at, range.end));
        }
    }
    rest
}

#[cfg(test)]
mod tests;
