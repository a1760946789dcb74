// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cuts of a record are made.

use crate::history::{History, Write};
use crate::pool::{Contents, Pool};
use rand_core::Rng as _;
use rand_pcg::Pcg64;
use std::fmt;
use std::str::FromStr;

/// What becomes of the volatile writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// All are lost.
    Lost,
    /// All are on the medium.
    Kept,
    /// Some of them, and of some only a part; drawn from this seed.
    Some(u32),
    /// They reach the medium in another order, up to some point; drawn from this seed.
    Order(u32),
}

/// A cut, written as place and fate: `120l`, `120k`, `120s77`, `120o77`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// How many events were before it.
    pub place: usize,
    /// What becomes of the volatile writes.
    pub fate: Fate,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            Fate::Lost => write!(f, "{}l", self.place),
            Fate::Kept => write!(f, "{}k", self.place),
            Fate::Some(seed) => write!(f, "{}s{seed}", self.place),
            Fate::Order(seed) => write!(f, "{}o{seed}", self.place),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no cut; expected a place and l, k, s or o, as in 120s77");
        let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let place = text[..end].parse().map_err(|_| wrong())?;
        let seed = |rest: &str| rest.parse().map_err(|_| wrong());
        let fate = match (&text[end..=end], &text[end + 1..]) {
            ("l", "") => Fate::Lost,
            ("k", "") => Fate::Kept,
            ("s", rest) => Fate::Some(seed(rest)?),
            ("o", rest) => Fate::Order(seed(rest)?),
            _ => return Err(wrong()),
        };
        Ok(Self { place, fate })
    }
}

/// A number below `bound`.
fn below(rng: &mut Pcg64, bound: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
}

fn shuffle<T>(rng: &mut Pcg64, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let other = below(rng, last as u64 + 1) as usize;
        items.swap(last, other);
    }
}

fn generator(seed: u64, stream: u64) -> Pcg64 {
    Pcg64::new(
        u128::from(seed) << 64 | 0x5eed_0f5e_ed0f,
        u128::from(stream),
    )
}

/// What the disk holds after a cut, when it held `base` before the record.
pub fn contents(history: &History, cut: Cut, base: &Contents, pool: &mut Pool) -> Contents {
    let id = |write: &Write| history.id << 32 | write.at as u64;
    let mut after = base.clone();
    for write in history.durable(cut.place) {
        pool.write(&mut after, id(write), write.sector, write.data, |_| true);
    }
    let mut volatile: Vec<_> = history.volatile(cut.place).collect();
    match cut.fate {
        Fate::Lost => return after,
        Fate::Kept => (),
        Fate::Some(seed) => {
            let mut rng = generator(seed.into(), cut.place as u64);
            // Nearly all, half, or hardly any.
            let of_eight = [1, 4, 7][below(&mut rng, 3) as usize];
            volatile.retain(|_| below(&mut rng, 8) < of_eight);
            for write in volatile {
                let torn = below(&mut rng, 4) == 0;
                pool.write(&mut after, id(write), write.sector, write.data, |_| {
                    !torn || below(&mut rng, 2) == 0
                });
            }
            return after;
        }
        Fate::Order(seed) => {
            let mut rng = generator(seed.into(), cut.place as u64);
            shuffle(&mut rng, &mut volatile);
            volatile.truncate(below(&mut rng, volatile.len() as u64 + 1) as usize);
        }
    }
    for write in volatile {
        pool.write(&mut after, id(write), write.sector, write.data, |_| true);
    }
    after
}

/// Cuts of a record, without end and in an order drawn from the seed: those at every boundary and every write, each once,
/// alternating with random ones.
pub struct Cuts<'a> {
    history: &'a History<'a>,
    /// Cuts at or before this place come first, then the rest.
    systematic: Vec<Cut>,
    rng: Pcg64,
    turn: bool,
}

impl<'a> Cuts<'a> {
    /// Every second of the random cuts is before the event `early`, and the systematic ones there come first.
    pub fn new(history: &'a History<'a>, early: usize, seed: u64) -> Self {
        let mut rng = generator(seed, 1);
        let mut places = history.boundaries.clone();
        places.extend(history.writes.iter().map(|write| write.at + 1));
        places.push(history.events);
        places.sort_unstable();
        places.dedup();
        let mut systematic: Vec<Cut> = places
            .iter()
            .flat_map(|place| {
                [Fate::Lost, Fate::Kept].map(|fate| Cut {
                    place: *place,
                    fate,
                })
            })
            .collect();
        shuffle(&mut rng, &mut systematic);
        // Taken from the end; of a nested record, what recovery did alternates with what came after.
        let (first, rest): (Vec<Cut>, Vec<Cut>) =
            systematic.into_iter().partition(|cut| cut.place <= early);
        let mut systematic = Vec::with_capacity(first.len() + rest.len());
        let (mut first, mut rest) = (first.into_iter(), rest.into_iter());
        loop {
            match (first.next(), rest.next()) {
                (None, None) => break,
                (a, b) => systematic.extend(a.into_iter().chain(b)),
            }
        }
        systematic.reverse();
        Self {
            history,
            systematic,
            rng,
            turn: false,
        }
    }

    fn random(&mut self) -> Cut {
        let writes = &self.history.writes;
        // After a write, so that there is something to lose.
        let place = match writes.len() {
            0 => self.history.events,
            count => {
                writes[below(&mut self.rng, count as u64) as usize].at
                    + 1
                    + below(&mut self.rng, 3) as usize
            }
        };
        let seed = below(&mut self.rng, 1 << 20) as u32;
        let fate = if below(&mut self.rng, 4) == 0 {
            Fate::Order(seed)
        } else {
            Fate::Some(seed)
        };
        Cut {
            place: place.min(self.history.events),
            fate,
        }
    }
}

impl Iterator for Cuts<'_> {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        self.turn = !self.turn;
        match self.systematic.pop() {
            Some(cut) if self.turn => Some(cut),
            Some(cut) => {
                self.systematic.push(cut);
                Some(self.random())
            }
            None => Some(self.random()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crash_drive::record::Event;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BLOCK: u64 = 8;

    fn write(sequence: u64, block: u64, byte: &'static [u8]) -> Event<'static> {
        Event::Write {
            sequence,
            sector: block * BLOCK,
            fua: false,
            data: byte,
        }
    }

    /// Two writes of one block, one of two blocks; a flush covers the first.
    fn events() -> Vec<Event<'static>> {
        vec![
            write(1, 0, &[1; 4096]),
            Event::Complete { sequence: 1 },
            Event::Flush { sequence: 2 },
            Event::Complete { sequence: 2 },
            write(3, 0, &[2; 4096]),
            write(4, 1, &[3; 8192]),
        ]
    }

    /// The first bytes of the first three blocks.
    fn bytes(history: &History, cut: &str) -> [u8; 3] {
        let mut pool = Pool::default();
        let after = contents(history, cut.parse().unwrap(), &Contents::new(), &mut pool);
        [0, 1, 2].map(|block| pool.block(&after, block)[0])
    }

    #[test]
    fn fates_are_what_they_say() {
        let events = events();
        let history = History::new(&events, false);
        assert_eq!(bytes(&history, "1l"), [0, 0, 0]);
        assert_eq!(bytes(&history, "1k"), [1, 0, 0]);
        assert_eq!(bytes(&history, "4l"), [1, 0, 0]);
        assert_eq!(bytes(&history, "6l"), [1, 0, 0]);
        assert_eq!(bytes(&history, "6k"), [2, 3, 3]);
    }

    #[test]
    fn random_cuts_reach_every_state_and_no_other() {
        let events = events();
        let history = History::new(&events, false);
        let seen: BTreeSet<[u8; 3]> = (0..400)
            .map(|seed| bytes(&history, &format!("6s{seed}")))
            .collect();
        // The durable write is always there or overwritten; each volatile block is there or not.
        let mut all = BTreeSet::new();
        for (a, b, c) in [
            (1, 0, 0),
            (1, 0, 3),
            (1, 3, 0),
            (1, 3, 3),
            (2, 0, 0),
            (2, 0, 3),
            (2, 3, 0),
            (2, 3, 3),
        ] {
            all.insert([a, b, c]);
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn another_order_leaves_an_older_write_on_top() {
        let events = [write(1, 0, &[1; 4096]), write(2, 0, &[2; 4096])];
        let history = History::new(&events, false);
        let seen: BTreeSet<u8> = (0..100)
            .map(|seed| bytes(&history, &format!("2o{seed}"))[0])
            .collect();
        assert_eq!(seen, BTreeSet::from([0, 1, 2]));
    }

    #[test]
    fn cuts_are_read_as_they_are_written() {
        for text in ["0l", "17k", "120s77", "3o0"] {
            assert_eq!(text.parse::<Cut>().unwrap().to_string(), text);
        }
        for text in ["", "12", "l", "12x", "12l7", "12s", "12s-1"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_boundary_and_every_write_is_cut(count in 1..12u64, seed: u64, early in 0..40usize) {
            let mut events = Vec::new();
            for number in 0..count {
                events.push(write(2 * number, number, &[7; 4096]));
                events.push(Event::Complete { sequence: 2 * number });
                events.push(Event::Flush { sequence: 2 * number + 1 });
                events.push(Event::Complete { sequence: 2 * number + 1 });
            }
            let history = History::new(&events, false);
            // Two fates at 2 places a round; every second cut is a random one.
            let cuts: BTreeSet<Cut> = Cuts::new(&history, early, seed).take(8 * count as usize).collect();
            for place in 0..=events.len() {
                let after_write = place % 4 == 1;
                let after_flush = place > 0 && place % 4 == 0;
                for fate in [Fate::Lost, Fate::Kept] {
                    prop_assert_eq!(cuts.contains(&Cut { place, fate }), after_write || after_flush);
                }
            }
            let same: Vec<Cut> = Cuts::new(&history, early, seed).take(20).collect();
            prop_assert_eq!(same, Cuts::new(&history, early, seed).take(20).collect::<Vec<_>>());
        }
    }
}
