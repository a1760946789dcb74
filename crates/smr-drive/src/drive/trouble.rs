// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Where a plan of faults meets the drive: requests that arrive, reads, what a power cut leaves.

use super::in_hand::Pending;
use super::Drive;
use crate::faults::{FaultPlan, Faults};
use crate::request::{Op, Outcome};
use crate::trace::{Event, EventKind, Where};
use crate::translation::Need;
use crate::volatile_buffer::{Arrival, InFlight, VolatileBuffer};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use zoned::{Block, BlockRange, ZoneId};

impl Drive {
    /// From now on things go wrong as `plan` says. Refused with a sentence if the plan is not for this drive.
    pub fn set_faults(&mut self, plan: FaultPlan) -> Result<(), String> {
        let blocks = self.state.profile.capacity_blocks();
        let mut unreadable = plan.unreadable.iter().map(|u| u.range);
        if let Some(range) = unreadable.find(|r| r.end.0 > blocks) {
            return Err(format!(
                "unreadable: blocks {range} lie behind the end of the drive, which has {blocks} blocks"
            ));
        }
        let zones = self.translation.zones();
        for fault in &plan.zones {
            let ZoneId(zone) = fault.zone;
            let sequential = self
                .translation
                .zone(fault.zone)
                .is_some_and(|z| z.zone_type != zoned::ZoneType::Conventional);
            if !sequential {
                return Err(format!(
                    "zone: {zone} is no sequential zone of this drive, which has {zones} zones"
                ));
            }
        }
        self.faults = Some(Box::new(Faults::new(plan, self.seed)));
        Ok(())
    }

    fn note_fault(&mut self, now_ns: u64, start: Block) {
        let count = self.faults.as_ref().map_or(0, |f| f.count);
        if count > self.counters.faults {
            self.counters.faults = count;
            let event = Event {
                kind: EventKind::Fault,
                start,
                classes: 0,
                value: count,
            };
            self.trace_event(now_ns, event);
        }
    }

    /// A request arrives: it may be delayed, or fail at once. Returns it unless it failed.
    pub(super) fn meet_faults(&mut self, now_ns: u64, mut pending: Pending) -> Option<Pending> {
        let Some(faults) = &mut self.faults else {
            return Some(pending);
        };
        while let Some(fault) = faults.zone_due(now_ns) {
            self.translation.fail_zone(fault.zone, fault.state);
        }
        let (extra_ns, failure) = faults.arrives(&pending.request);
        pending.extra_ns = extra_ns;
        self.note_fault(now_ns, pending.request.blocks().start);
        let Some((after_ns, outcome)) = failure else {
            return Some(pending);
        };
        self.staging.forget(pending.request.tag);
        let end_ns = now_ns + after_ns + self.state.profile.interface.command_ns;
        self.finish(pending, end_ns, 0, Where::None, outcome);
        None
    }

    /// Whether the DRAM can answer a read: it has all of it, and nothing of it is missing there.
    pub(super) fn answers(&self, range: BlockRange) -> bool {
        let patched = self.faults.as_ref().is_some_and(|f| f.is_patched(range));
        self.buffer.holds(range) && !patched
    }

    /// Whether read-ahead may have the range: it does not get past what cannot be read.
    pub(super) fn can_be_ahead(&self, range: BlockRange) -> bool {
        !self.faults.as_ref().is_some_and(|f| f.is_bad(range))
    }

    /// How a read ends that the medium is asked for, and how much longer the arm needs.
    pub(super) fn read_fault(&mut self, now_ns: u64, range: BlockRange) -> (u64, Outcome) {
        let Drive { faults, buffer, .. } = self;
        let Some(faults) = faults else {
            return (0, Outcome::Done);
        };
        // What the buffer holds newer versions of is not asked of the medium, unless a part of it is.
        let ask = |block: Block| {
            let one = BlockRange::new(block, block + 1);
            !buffer.holds(one) || faults.is_patched(one)
        };
        let start = (range.start.0..range.end.0).map(Block).find(|b| ask(*b));
        let end = (range.start.0..range.end.0)
            .rev()
            .map(Block)
            .find(|b| ask(*b));
        let result = match (start, end) {
            (Some(start), Some(end)) => faults.reads(BlockRange::new(start, end + 1)),
            _ => (0, Outcome::Done),
        };
        self.note_fault(now_ns, range.start);
        result
    }

    /// A write's data are in the contents: what of it the medium could not complete is noted.
    pub(super) fn note_stored(&mut self, pending: &Pending) {
        let Drive { faults, buffer, .. } = self;
        if let Some(faults) = faults {
            faults.stored(&pending.request, |block| {
                buffer.holds(BlockRange::new(block, block + 1))
            });
        }
    }

    /// Blocks got to the medium, or should have.
    pub(super) fn note_landed(&mut self, now_ns: u64, landed: &[InFlight]) {
        if let Some(faults) = &mut self.faults {
            landed.iter().for_each(|flight| faults.lands(flight.range));
            let start = landed.first().map_or(Block(0), |f| f.range.start);
            self.note_fault(now_ns, start);
        }
    }

    /// How a request ends that waited for the medium.
    pub(super) fn durable_outcome(&mut self, pending: &Pending) -> Outcome {
        let Some(faults) = &mut self.faults else {
            return Outcome::Done;
        };
        match pending.request.op {
            Op::Flush => faults.flushes(),
            _ if faults.is_bad(pending.request.blocks()) => Outcome::WriteFailed,
            _ => Outcome::Done,
        }
    }

    /// Whether the drive acknowledges this without doing it.
    pub(super) fn lies_about(&self, op: Op) -> bool {
        let plan = self.faults.as_ref().map(|f| f.plan());
        plan.is_some_and(|p| match op {
            Op::Flush => p.flush_lies,
            _ => p.fua_lies,
        })
    }

    /// Power fails: lets land what the plan lets land of the transfer under way, and tells what of the buffer had got to
    /// the medium before.
    pub(super) fn survivors(&mut self, now_ns: u64) -> VolatileBuffer {
        let mut survivors = VolatileBuffer::default();
        let Some(mut faults) = self.faults.take() else {
            return survivors;
        };
        faults.cut(now_ns);
        if let Some(destage) = self.work_destage() {
            let in_order = self.translation.writes_in_order(destage.place);
            let durable = faults.torn(&destage.ranges, destage.place, in_order);
            let mut landed: Vec<InFlight> = Vec::new();
            for range in &durable {
                self.durability.landed(&mut self.contents, *range);
                faults.heals(*range);
                let flying = self.buffer.in_flight().iter();
                landed.extend(flying.filter_map(|f| {
                    let range = f.range.intersection(*range);
                    (!range.is_empty()).then_some(InFlight { range, ..*f })
                }));
            }
            if !durable.is_empty() {
                self.translation
                    .land_torn(&destage, &durable, &landed, &mut self.counters);
            }
            self.buffer.flight_lost(&durable);
        }
        self.durability.flight_lost(&mut self.contents);
        for (range, piece) in self.buffer.pieces() {
            let kept = faults.survives(range);
            if !kept.is_empty() {
                let arrival = Arrival {
                    now_ns,
                    epoch: piece.epoch,
                    classes: piece.classes,
                    urgent: false,
                };
                survivors.write(kept, arrival);
            }
        }
        self.faults = Some(faults);
        survivors
    }

    /// Lets the survivors of a power cut be where the translation layer would have put them.
    pub(super) fn land_survivors(&mut self, now_ns: u64, mut survivors: VolatileBuffer) {
        let need = Need {
            now_ns,
            flush_epoch: Some(u64::MAX),
            pressure: true,
            hold_ns: 0,
            overdue: None,
        };
        while !survivors.is_clean() {
            let Some(destage) = self.translation.plan(&survivors, &self.arm, need) else {
                break;
            };
            survivors.take(&destage.ranges);
            self.translation.begin(&destage, &mut self.arm, now_ns);
            let landed = survivors.landed();
            for flight in &landed {
                if let Some(faults) = &mut self.faults {
                    faults.heals(flight.range);
                }
            }
            self.translation.land(&destage, &landed, &mut self.counters);
        }
        if let Some(faults) = &mut self.faults {
            faults.buffer_is_lost();
        }
    }
}
