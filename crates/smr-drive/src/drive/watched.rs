// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What can be seen of a drive from outside: what the arm does and why, events for the trace, latencies.

use super::in_hand::Work;
use super::Drive;
use crate::activity::Activity;
use crate::counters::Snapshot;
use crate::trace::{Event, EventKind};
use core::fmt;
use zoned::Block;

/// Writes that find no room are one spell of forced cleaning unless that rested for so long: one second.
const FORCED_REST_NS: u64 = 1_000_000_000;

impl Drive {
    /// The arm begins something that takes `ns`, of which `seek_ns` on the way.
    pub(super) fn begins(&mut self, now_ns: u64, ns: u64, activity: Activity, seek_ns: u64) {
        self.activity.enter(now_ns, activity, seek_ns.min(ns));
        match activity {
            Activity::CleaningForced => self.forced_until(now_ns, now_ns + ns),
            Activity::CleaningIdle | Activity::CleaningDue => self.forced_is_over(),
            _ => {}
        }
        self.trace_layer_events(now_ns);
    }

    /// The arm has nothing to do.
    pub(super) fn rests(&mut self, now_ns: u64) {
        if !self.activity.is_idle() {
            self.activity.enter(now_ns, Activity::Idle, 0);
            self.forced_is_over();
            self.trace_layer_events(now_ns);
        }
    }

    fn forced_until(&mut self, now_ns: u64, end_ns: u64) {
        if let Some((_, last_ns)) = self.watched.forced_ns {
            if now_ns > last_ns + FORCED_REST_NS {
                self.forced_is_over();
            }
        }
        let since_ns = match self.watched.forced_ns {
            Some((since_ns, _)) => since_ns,
            None => {
                self.trace_forced(EventKind::ForcedBegan, now_ns, now_ns);
                now_ns
            }
        };
        self.watched.forced_ns = Some((since_ns, end_ns));
    }

    fn forced_is_over(&mut self) {
        if let Some((since_ns, end_ns)) = self.watched.forced_ns.take() {
            self.trace_forced(EventKind::ForcedEnded, end_ns, since_ns);
        }
    }

    fn trace_forced(&mut self, kind: EventKind, now_ns: u64, since_ns: u64) {
        let event = Event {
            kind,
            start: Block(0),
            classes: 0,
            value: 0,
        };
        self.trace.event(now_ns, since_ns, 0, &event);
    }

    pub(super) fn trace_event(&mut self, now_ns: u64, event: Event) {
        self.trace.event(now_ns, now_ns, 0, &event);
    }

    /// What the translation layer did since it was last asked.
    pub(super) fn trace_layer_events(&mut self, now_ns: u64) {
        for event in self.translation.take_events() {
            let (mut since_ns, mut reason) = (now_ns, 0);
            match event.kind {
                EventKind::CleaningBegan => {
                    self.watched.cleaning_since_ns = now_ns;
                    reason = self.watched.why as u8;
                }
                EventKind::CleaningEnded => {
                    since_ns = self.watched.cleaning_since_ns;
                    reason = self.watched.why as u8;
                }
                _ => {}
            }
            self.trace.event(now_ns, since_ns, reason, &event);
        }
    }

    /// What the arm does during this work.
    pub(super) fn activity_of(&self, work: &Work) -> Activity {
        match work {
            Work::Read { .. } => Activity::Reading,
            Work::Destage { destage, .. } => self.translation.activity(destage),
            Work::Command { .. } => Activity::Commanded,
            Work::Clean => self.watched.why,
        }
    }

    /// Adds what the arm does at `now_ns`.
    pub(super) fn describe_arm(&self, now_ns: u64, snapshot: &mut Snapshot) {
        let layout = self.arm.layout();
        let last = layout.blocks().saturating_sub(1);
        let at = self.arm.at().0.min(last);
        snapshot.activity = self.activity.at(now_ns);
        snapshot.activity_ns = self.activity.totals_ns(now_ns);
        snapshot.arm_cylinder = (layout.spot(zoned::Pba(at)).cylinder, layout.cylinders());
        snapshot.cleaning_why = self.watched.why;
    }

    /// How long requests took, every bucket, as JSON.
    pub fn report_latencies(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.counters.latencies.write_json(out)
    }
}
