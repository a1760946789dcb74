// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Who gets the arm next.
//!
//! Reads come first, the nearest of them; but if somebody waits for the buffer (a flush, FUA, a write without a place)
//! or for the persistent cache, reads and that take turns. Then what has been in the buffer long enough. Then, when
//! nobody has asked for anything for a while, cleaning.

use super::in_hand::{Pending, Waiter, Work};
use super::Drive;
use crate::activity::Activity;
use crate::contents::Value;
use crate::mechanics::arm::Access;
use crate::request::{Op, Outcome, Request, FLAG_FUA};
use crate::trace::Where;
use crate::translation::{Destage, Need};
use crate::volatile_buffer::Arrival;
use alloc::vec::Vec;
use zoned::{Block, BlockRange, Pba};

/// A read that has waited for longer goes first, however far it is.
const READ_WAIT_MAX_NS: u64 = 200_000_000;
/// The same of what a flush or FUA waits for. A guess: nobody has published how long a stream may go on before it, and no
/// row of the validation comes near.
const DURABLE_WAIT_MAX_NS: u64 = 1_000_000_000;
/// Of a read's data, so much is still on its way over the cable when the last block leaves the medium.
const READ_LINK_TAIL_BLOCKS: u64 = 16;

/// Why the first waiting write has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Not,
    ByBuffer,
    ByTranslation,
}

const EVERYTHING: BlockRange = BlockRange {
    start: Block(0),
    end: Block(u64::MAX),
};

impl Drive {
    /// The destage that is under way.
    pub(super) fn work_destage(&self) -> Option<Destage> {
        match &self.work {
            Some((_, Work::Destage { destage, .. })) => Some(destage.clone()),
            _ => None,
        }
    }

    /// Lets everything happen that happens until `now_ns`.
    pub(super) fn run(&mut self, now_ns: u64) {
        if self.idle_since_ns.is_none() {
            self.idle_since_ns = Some(now_ns);
            self.activity.enter(now_ns, Activity::Idle, 0);
            self.dispatch(now_ns);
        }
        loop {
            let at_ns = match (&self.work, self.wake_ns) {
                (Some((end_ns, _)), _) => *end_ns,
                (None, Some(wake_ns)) => wake_ns,
                (None, None) => return,
            };
            if at_ns > now_ns {
                return;
            }
            if let Some((_, work)) = self.work.take() {
                self.end_work(at_ns, work);
            }
            self.dispatch(at_ns);
        }
    }

    pub(super) fn queue_read(&mut self, now_ns: u64, pending: Pending) {
        if !self.read_from_dram(now_ns, pending) {
            self.reads.push(pending);
        }
    }

    /// Answers a read from the buffer or from what was read ahead; false if it needs the arm.
    fn read_from_dram(&mut self, now_ns: u64, pending: Pending) -> bool {
        let range = pending.request.blocks();
        let found = self.answers(range)
            || self.can_be_ahead(range) && self.read_ahead.hit(&self.arm, now_ns, range);
        if found {
            let blocks = range.blocks();
            self.complete(pending, now_ns, blocks, 0, Where::None, Outcome::Done);
        }
        found
    }

    pub(super) fn queue_flush(&mut self, pending: Pending) {
        if self.lies_about(Op::Flush) {
            let now_ns = pending.arrival_ns;
            return self.complete(pending, now_ns, 0, 0, Where::None, Outcome::Done);
        }
        self.waiters.push(Waiter {
            pending,
            range: EVERYTHING,
            epoch: self.epoch,
            flush: true,
        });
        self.epoch += 1;
        self.wake_waiters(pending.arrival_ns, Where::None);
    }

    pub(super) fn queue_command(&mut self, pending: Pending) {
        self.commands.push(pending);
        // What follows must not become part of a piece that the command waits for.
        self.epoch += 1;
    }

    /// What a discard or a zone command is about: nothing of it may be volatile when it is executed.
    fn command_range(&self, request: &Request) -> BlockRange {
        match request.op {
            Op::Discard => request.blocks(),
            Op::ZoneResetAll => EVERYTHING,
            _ => {
                let id = self.translation.zone_at(request.lba);
                let zone = id.and_then(|id| self.translation.zone(id));
                zone.map_or(BlockRange::new(Block(0), Block(0)), |z| {
                    BlockRange::covering(z.start, z.size_sectors)
                })
            }
        }
    }

    /// Starts the first command that need not wait any longer; false if there is none.
    fn start_command(&mut self, now_ns: u64) -> bool {
        let ready = self.commands.iter().position(|pending| {
            let range = self.command_range(&pending.request);
            let waits = self
                .writes
                .iter()
                .any(|w| w.request.blocks().overlaps(range));
            !waits && self.buffer.durable(range, u64::MAX)
        });
        let Some(pending) = ready.map(|i| self.commands.remove(i)) else {
            return false;
        };
        let service_ns = if pending.request.op.is_zone_command() {
            self.translation.zone_command_ns()
        } else {
            0
        };
        let work = Work::Command {
            pending,
            service_ns,
        };
        self.start(now_ns, service_ns, 0, work);
        true
    }

    /// Executes a discard or a zone command.
    fn end_command(&mut self, pending: &Pending) -> Outcome {
        let request = &pending.request;
        let Drive {
            translation,
            contents,
            read_ahead,
            ..
        } = self;
        let mut damaged = false;
        let mut forget = |range: BlockRange| {
            let mut old: Vec<Value> = Vec::new();
            damaged |= contents.zero(range, |_, value| old.push(value)).is_err();
            old.into_iter().for_each(|value| contents.release(value));
            read_ahead.forget(range);
        };
        let result = if request.op == Op::Discard {
            let range = request.whole_blocks();
            if !range.is_empty() && translation.discard(range) {
                forget(range);
            }
            Ok(())
        } else {
            translation.zone_command(request.op, request.lba, &mut forget)
        };
        match result {
            Ok(()) if damaged => Outcome::Damaged,
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Zone(error),
        }
    }

    /// Lets writes into the buffer, in their order. If the profile says so, they pass one for which only the layer has no
    /// place, unless they are about a block of it.
    fn admit(&mut self, now_ns: u64) -> Blocked {
        let mut passed: Vec<BlockRange> = Vec::new();
        while let Some(pending) = self.writes.get(passed.len()) {
            let range = pending.request.blocks();
            let limits = &self.state.profile.buffer;
            let has_piece = self.buffer.piece_count() < limits.dirty_extents_max as usize
                || self.buffer.absorbs(range);
            if self.buffer.blocks() >= limits.dirty_blocks_max || !has_piece {
                if passed.is_empty() {
                    return Blocked::ByBuffer;
                }
                break;
            }
            let waits = passed.iter().any(|earlier| earlier.overlaps(range));
            if !waits && self.translation.accepts(range, &self.buffer) {
                self.admit_one(passed.len(), now_ns);
                continue;
            }
            if !limits.writes_pass {
                return Blocked::ByTranslation;
            }
            passed.push(range);
        }
        if passed.is_empty() {
            Blocked::Not
        } else {
            Blocked::ByTranslation
        }
    }

    fn admit_one(&mut self, place: usize, now_ns: u64) {
        let Some(pending) = self.writes.remove(place) else {
            return;
        };
        let range = pending.request.blocks();
        if self.store(&pending.request).is_err() {
            let end_ns = now_ns + self.state.profile.interface.command_ns;
            return self.finish(pending, end_ns, 0, Where::None, Outcome::Damaged);
        }
        self.note_stored(&pending);
        let write_cache = self.state.profile.buffer.write_cache;
        let durable = pending.request.flags & FLAG_FUA != 0 || !write_cache;
        let urgent = durable && !self.lies_about(Op::Write);
        let arrival = Arrival {
            now_ns,
            epoch: self.epoch,
            classes: 1 << pending.class as u8,
            urgent,
        };
        self.buffer.write(range, arrival);
        self.read_ahead.forget(range);
        if urgent {
            self.waiters.push(Waiter {
                pending,
                range,
                epoch: self.epoch,
                flush: false,
            });
            // What follows must not become part of its piece.
            self.epoch += 1;
        } else {
            let blocks = range.blocks();
            self.complete(pending, now_ns, blocks, 0, Where::Volatile, Outcome::Done);
        }
    }

    /// Gives the arm work if it has none, and decides when to look again if there is none.
    pub(super) fn dispatch(&mut self, now_ns: u64) {
        loop {
            let blocked = self.admit(now_ns);
            if self.work.is_some() {
                return;
            }
            if self.choose(now_ns, blocked) {
                if matches!(self.work, Some((_, Work::Clean))) {
                    // No destage began that would make room, and to start a slice makes none.
                    return;
                }
                continue;
            }
            if blocked != Blocked::Not && self.buffer.is_clean() {
                // Nothing in the way and still no place: a request larger than the drive's limits. It goes alone.
                self.admit_one(0, now_ns);
                continue;
            }
            self.rests(now_ns);
            self.wake_ns = self.next_look_ns();
            return;
        }
    }

    /// When an arm without work may find some without the host's doing.
    fn next_look_ns(&self) -> Option<u64> {
        let hold_ns = self.state.profile.buffer.hold_ns;
        let due_ns = self.buffer.oldest_ns().map(|oldest| oldest + hold_ns);
        let idle_ns = if self.buffer.is_clean() {
            self.idle_from_ns()
        } else {
            None
        };
        due_ns.into_iter().chain(idle_ns).min()
    }

    /// From when on the drive may clean because nobody asks for anything.
    fn idle_from_ns(&self) -> Option<u64> {
        self.translation
            .idle_ns()
            .map(|ns| self.idle_since_ns.unwrap_or(0) + ns)
    }

    fn need(&self, now_ns: u64, blocked: Blocked) -> Need {
        let limits = &self.state.profile.buffer;
        let half_full = self.buffer.blocks() * 2 >= limits.dirty_blocks_max
            || self.buffer.piece_count() * 2 >= limits.dirty_extents_max as usize;
        Need {
            now_ns,
            flush_epoch: if self.commands.is_empty() {
                let flushes = self.waiters.iter().filter(|w| w.flush);
                flushes.map(|w| w.epoch).max()
            } else {
                Some(self.epoch)
            },
            pressure: half_full || blocked != Blocked::Not && self.translation.is_clean(),
            hold_ns: limits.hold_ns,
            overdue: None,
        }
    }

    /// What leaves the buffer next. A stream that the host never ends must not keep others waiting for ever.
    fn plan(&mut self, now_ns: u64, blocked: Blocked) -> Option<Destage> {
        let need = self.need(now_ns, blocked);
        // They came in their order.
        let oldest = self.waiters.first();
        let overdue = oldest.filter(|w| now_ns - w.pending.arrival_ns > DURABLE_WAIT_MAX_NS);
        if let Some(waiter) = overdue {
            let first = Need {
                pressure: false,
                overdue: Some(waiter.epoch),
                ..need
            };
            let destage = self.translation.plan(&self.buffer, &self.arm, first);
            if destage.is_some() {
                return destage;
            }
        }
        self.translation.plan(&self.buffer, &self.arm, need)
    }

    /// Starts the work whose turn it is; false if there is none.
    fn choose(&mut self, now_ns: u64, blocked: Blocked) -> bool {
        if self.start_command(now_ns) {
            return true;
        }
        let somebody_waits =
            blocked != Blocked::Not || !self.waiters.is_empty() || !self.commands.is_empty();
        let reads_wait = !self.reads.is_empty();
        if reads_wait && !(self.last_was_read && somebody_waits) && self.start_read(now_ns) {
            return true;
        }
        if self.translation.cleaning_is_due(&self.buffer)
            && self.start_cleaning(now_ns, Activity::CleaningDue)
        {
            return true;
        }
        if let Some(destage) = self.plan(now_ns, blocked) {
            self.start_destage(now_ns, destage);
            return true;
        }
        if blocked == Blocked::ByTranslation
            && self.start_cleaning(now_ns, Activity::CleaningForced)
        {
            return true;
        }
        if reads_wait && self.start_read(now_ns) {
            return true;
        }
        let idle = self.buffer.is_clean() && self.reads.is_empty() && self.writes.is_empty();
        idle && self.idle_from_ns().is_some_and(|from_ns| from_ns <= now_ns)
            && self.start_cleaning(now_ns, Activity::CleaningIdle)
    }

    /// Gives the arm work for `ns`, of which `seek_ns` are the way to it.
    fn start(&mut self, now_ns: u64, ns: u64, seek_ns: u64, work: Work) {
        self.last_was_read = matches!(work, Work::Read { .. });
        self.counters.busy_ns += ns;
        self.begins(now_ns, ns, self.activity_of(&work), seek_ns);
        self.work = Some((now_ns + ns, work));
    }

    fn start_destage(&mut self, now_ns: u64, destage: Destage) {
        self.read_ahead.stop(&mut self.arm, now_ns);
        self.buffer.take(&destage.ranges);
        let before_ns = self.arm.position_ns;
        let ns = self.translation.begin(&destage, &mut self.arm, now_ns);
        let seek_ns = self.arm.position_ns - before_ns;
        let work = Work::Destage {
            destage,
            service_ns: ns,
        };
        self.start(now_ns, ns, seek_ns, work);
    }

    fn start_cleaning(&mut self, now_ns: u64, why: Activity) -> bool {
        self.read_ahead.stop(&mut self.arm, now_ns);
        let forced = why == Activity::CleaningForced;
        match self.translation.clean_slice(&mut self.arm, now_ns, forced) {
            Some(ns) => {
                self.watched.why = why;
                self.start(now_ns, ns, 0, Work::Clean);
                true
            }
            None => false,
        }
    }

    /// The read that the arm reaches first, unless one has waited for too long. False if no read needs the arm after all.
    fn start_read(&mut self, now_ns: u64) -> bool {
        self.read_ahead.stop(&mut self.arm, now_ns);
        while let Some(i) = self.nearest_read(now_ns) {
            let pending = self.reads.swap_remove(i);
            if self.read_from_dram(now_ns, pending) {
                continue;
            }
            let range = pending.request.blocks();
            let before_ns = self.arm.position_ns;
            let (ns, ahead) = self.read_pieces(now_ns, range);
            let seek_ns = self.arm.position_ns - before_ns;
            let (retry_ns, outcome) = self.read_fault(now_ns, range);
            let ns = ns + retry_ns;
            let work = Work::Read {
                pending,
                service_ns: ns,
                ahead: ahead.filter(|_| outcome == Outcome::Done),
                outcome,
            };
            self.start(now_ns, ns, seek_ns, work);
            return true;
        }
        false
    }

    fn nearest_read(&self, now_ns: u64) -> Option<usize> {
        let cost = |pending: &Pending| {
            if now_ns - pending.arrival_ns > READ_WAIT_MAX_NS {
                return (0, pending.arrival_ns);
            }
            let start = pending.request.blocks().start;
            let mut ns = 0;
            self.translation
                .pieces(BlockRange::new(start, start + 1), &mut |_, pba, _| {
                    ns = self.arm.position_ns(now_ns, pba, Access::Read);
                });
            (1 + ns, pending.arrival_ns)
        };
        (0..self.reads.len()).min_by_key(|i| cost(&self.reads[*i]))
    }

    /// Reads the pieces of `range` one after the other, without those in DRAM. Returns how long it takes, and the last
    /// piece with the place behind it, if that is in place.
    fn read_pieces(&mut self, now_ns: u64, range: BlockRange) -> (u64, Option<(BlockRange, Pba)>) {
        let (mut ns, mut ahead) = (0, None);
        let Drive {
            arm,
            buffer,
            read_ahead,
            translation,
            ..
        } = self;
        translation.pieces(range, &mut |piece, pba, in_place| {
            if buffer.holds(piece) {
                return;
            }
            let known_to = if in_place {
                read_ahead.known_to(piece)
            } else {
                piece.start
            };
            let from = pba + (known_to.0 - piece.start.0);
            ns += arm.access(now_ns + ns, from, piece.end.0 - known_to.0, Access::Read);
            ahead = in_place.then(|| (piece, arm.at()));
        });
        (ns, ahead)
    }

    /// How many blocks from `at` on lie one behind the other from `from` on: what is read ahead ends where the next block
    /// is in the cache, whatever its old place still holds.
    fn blocks_behind(&self, at: Block, from: Pba) -> u64 {
        let all = Block(self.state.profile.capacity_blocks());
        let segment = BlockRange::new(at, (at + self.read_ahead.segment_blocks()).min(all));
        let mut known_to = at;
        if !segment.is_empty() {
            self.translation
                .pieces(segment, &mut |piece, pba, in_place| {
                    let follows = piece.start == known_to && pba == from + (known_to.0 - at.0);
                    if in_place && follows {
                        known_to = piece.end;
                    }
                });
        }
        known_to.0 - at.0
    }

    fn end_work(&mut self, now_ns: u64, work: Work) {
        match work {
            Work::Read {
                pending,
                service_ns,
                ahead,
                outcome,
            } => {
                let link_blocks = pending.request.blocks().blocks().min(READ_LINK_TAIL_BLOCKS);
                let place = Where::None;
                self.complete(pending, now_ns, link_blocks, service_ns, place, outcome);
                if let Some((range, from)) = ahead {
                    let blocks = self.blocks_behind(range.end, from);
                    self.read_ahead.start(now_ns, range, from, blocks);
                }
            }
            Work::Destage {
                destage,
                service_ns,
            } => {
                let landed = self.buffer.landed();
                for flight in &landed {
                    self.durability.landed(&mut self.contents, flight.range);
                }
                self.translation.land(&destage, &landed, &mut self.counters);
                self.note_landed(now_ns, &landed);
                let ready_ns = now_ns + self.translation.firmware_ns(service_ns);
                self.wake_waiters(ready_ns, destage.place);
            }
            Work::Command {
                pending,
                service_ns,
            } => {
                let outcome = self.end_command(&pending);
                let end_ns = now_ns + self.state.profile.interface.command_ns;
                self.finish(pending, end_ns, service_ns, Where::None, outcome);
                while !self.command_waits() {
                    match self.held.pop_front() {
                        Some(next) => self.begin_request(now_ns, next),
                        None => break,
                    }
                }
            }
            Work::Clean => self
                .translation
                .end_slice(&mut self.arm, now_ns, &mut self.counters),
        }
    }

    /// Ends the requests whose blocks are on the medium now; they can be acknowledged at `ready_ns`.
    fn wake_waiters(&mut self, ready_ns: u64, place: Where) {
        let mut i = 0;
        while i < self.waiters.len() {
            let waiter = &self.waiters[i];
            if !self.buffer.durable(waiter.range, waiter.epoch) {
                i += 1;
                continue;
            }
            let Waiter {
                pending,
                range,
                flush,
                ..
            } = self.waiters.remove(i);
            let (link_blocks, place) = if flush {
                (0, Where::None)
            } else {
                (range.blocks(), place)
            };
            let outcome = self.durable_outcome(&pending);
            self.complete(pending, ready_ns, link_blocks, 0, place, outcome);
        }
    }
}
