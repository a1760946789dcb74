// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rings forget by themselves: the model follows, and says what they may.

use super::model::{Content, Id};
use super::steps::{Pair, Ring};

/// The oldest of a ring directory's entries that had to stay, of entries by age with their bytes: together with what is
/// younger it is what is kept.
pub fn first_kept(sizes: &[u64], kept: u64) -> usize {
    let mut sum = 0;
    let fits = |size: &&u64| {
        sum += **size;
        sum <= kept
    };
    let count = sizes.iter().rev().take_while(fits).count().max(1);
    sizes.len().saturating_sub(count)
}

impl Pair {
    /// What rings forgot since the last step, the model forgets, too.
    pub fn follow_rings(&mut self) {
        for ring in self.rings.clone() {
            match ring.is_directory {
                false => self.follow_ring_file(ring),
                true => self.follow_ring_directory(ring),
            }
        }
    }

    fn follow_ring_file(&mut self, ring: Ring) {
        let ino = self.inos[&ring.id];
        let head = self.fs().attributes(ino).unwrap().head;
        let file = self.model.file_mut(ring.id).unwrap();
        if head != file.head {
            let most = file.written.saturating_sub(ring.kept);
            assert!(
                head > file.head && head <= most,
                "the newest {} bytes stay",
                ring.kept
            );
            file.head = head;
            self.reach.ring_turns += 1;
        }
    }

    fn follow_ring_directory(&mut self, ring: Ring) {
        let ino = self.inos[&ring.id];
        let left = self.fs().entries(ino, 0, usize::MAX).unwrap();
        let Content::Directory(entries) = &self.model.nodes[&ring.id].content else {
            panic!("a ring directory is one");
        };
        let mut known: Vec<(Id, Vec<u8>)> = entries
            .iter()
            .map(|(name, id)| (*id, name.clone()))
            .collect();
        known.sort_unstable();
        let gone = known.len() - left.len();
        let sizes: Vec<u64> = known
            .iter()
            .map(|(id, _)| self.model.file(*id).map_or(0, |file| file.written))
            .collect();
        assert!(
            gone <= first_kept(&sizes, ring.kept),
            "{gone} of {} files of a ring are gone",
            known.len()
        );
        for ((_, name), entry) in known[gone..].iter().zip(&left) {
            assert_eq!(&entry.name, name, "the oldest go first");
        }
        for (_, name) in &known[..gone] {
            self.model.unlink(ring.id, name).unwrap();
            self.reach.ring_turns += 1;
        }
    }
}
