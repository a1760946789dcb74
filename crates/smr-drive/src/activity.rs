// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! What the arm does, and how much of the time: the states exclude each other and add up to the time that has passed.

/// What the arm does. The numbers are those of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Nothing, or reading ahead.
    #[default]
    Idle = 0,
    /// On its way to a read or a write of the next kinds: seek and rotation.
    Seeking = 1,
    /// A read of the host.
    Reading = 2,
    /// From the buffer to its place.
    Writing = 3,
    /// From the buffer to its place in a band, past the persistent cache.
    Streaming = 4,
    /// From the buffer to the persistent cache.
    Caching = 5,
    /// Cleaning, ways included, because nobody asks for anything.
    CleaningIdle = 6,
    /// Cleaning because a write waits for room.
    CleaningForced = 7,
    /// Cleaning because it is due, as in drives that clean all the time.
    CleaningDue = 8,
    /// A zone command.
    Commanded = 9,
}

/// How many there are.
pub const ACTIVITIES: usize = 10;
/// Names of the counters of their times, in nanoseconds.
pub const NAMES: [&str; ACTIVITIES] = [
    "idle_ns",
    "seeking_ns",
    "reading_ns",
    "writing_ns",
    "streaming_ns",
    "caching_ns",
    "cleaning_idle_ns",
    "cleaning_forced_ns",
    "cleaning_due_ns",
    "commanded_ns",
];

/// Adds up the times.
#[derive(Clone, Copy, Debug, Default)]
pub struct ActivityClock {
    activity: Activity,
    since_ns: Option<u64>,
    /// Until then it is only on its way.
    seeking_until_ns: u64,
    totals_ns: [u64; ACTIVITIES],
}

impl ActivityClock {
    /// From `now_ns` on the arm does this, after `seek_ns` of seeking. The first call starts the clock.
    pub fn enter(&mut self, now_ns: u64, activity: Activity, seek_ns: u64) {
        let [seeking_ns, at_it_ns] = self.open_ns(now_ns);
        self.totals_ns[Activity::Seeking as usize] += seeking_ns;
        self.totals_ns[self.activity as usize] += at_it_ns;
        self.activity = activity;
        self.since_ns = Some(now_ns);
        self.seeking_until_ns = now_ns + seek_ns;
    }

    /// What it does at `now_ns`.
    pub fn at(&self, now_ns: u64) -> Activity {
        if now_ns < self.seeking_until_ns {
            Activity::Seeking
        } else {
            self.activity
        }
    }

    /// Whether it has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.activity == Activity::Idle
    }

    /// Of the activity under way: how long it has been seeking, and how long it has been at it.
    fn open_ns(&self, now_ns: u64) -> [u64; 2] {
        let Some(since_ns) = self.since_ns else {
            return [0, 0];
        };
        let end_ns = now_ns.max(since_ns);
        let arrived_ns = self.seeking_until_ns.clamp(since_ns, end_ns);
        [arrived_ns - since_ns, end_ns - arrived_ns]
    }

    /// The times up to `now_ns`, by activity.
    pub fn totals_ns(&self, now_ns: u64) -> [u64; ACTIVITIES] {
        let mut totals_ns = self.totals_ns;
        let [seeking_ns, at_it_ns] = self.open_ns(now_ns);
        totals_ns[Activity::Seeking as usize] += seeking_ns;
        totals_ns[self.activity as usize] += at_it_ns;
        totals_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_at_every_moment() {
        let mut clock = ActivityClock::default();
        clock.enter(100, Activity::Idle, 0);
        clock.enter(150, Activity::Reading, 30);
        for now_ns in [150, 160, 180, 200] {
            assert_eq!(clock.totals_ns(now_ns).iter().sum::<u64>(), now_ns - 100);
        }
        assert_eq!(clock.at(179), Activity::Seeking);
        clock.enter(200, Activity::Idle, 0);
        let totals_ns = clock.totals_ns(300);
        assert_eq!(totals_ns[..3], [150, 30, 20]);
    }
}
