// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that forgets what was not used for longest, once what it holds weighs too much.

use std::collections::BTreeMap;

/// See the module's head.
#[cfg_attr(test, derive(Clone))]
pub struct Lru<K, V> {
    held: BTreeMap<K, (V, usize, u64)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
    weight: usize,
    weight_max: usize,
}

impl<K: Ord + Clone, V: Clone> Lru<K, V> {
    /// Holds things that weigh `weight_max` together.
    pub fn new(weight_max: usize) -> Self {
        Lru {
            held: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            weight: 0,
            weight_max,
        }
    }

    /// What is held under the key.
    pub fn get(&mut self, key: &K) -> Option<V> {
        let (value, _, used) = self.held.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key.clone());
        Some(value.clone())
    }

    /// Holds a value.
    pub fn put(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.held.insert(key, (value, weight, self.uses));
        self.weight += weight;
        self.forget();
    }

    /// From now on holds things that weigh `weight_max` together.
    pub fn limit(&mut self, weight_max: usize) {
        self.weight_max = weight_max;
        self.forget();
    }

    fn forget(&mut self) {
        while self.weight > self.weight_max && self.held.len() > 1 {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            if let Some((_, weight, _)) = self.held.remove(&oldest) {
                self.weight -= weight;
            }
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        if let Some((_, weight, used)) = self.held.remove(key) {
            self.by_use.remove(&used);
            self.weight -= weight;
        }
    }

    /// Forgets the keys for which `keep` says no.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.held.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut cache = Lru::new(2);
        cache.put('a', 1, 1);
        cache.put('b', 2, 1);
        assert_eq!(cache.get(&'a'), Some(1));
        cache.put('c', 3, 1);
        assert_eq!(
            (cache.get(&'a'), cache.get(&'b'), cache.get(&'c')),
            (Some(1), None, Some(3))
        );
        cache.limit(1);
        assert_eq!((cache.get(&'a'), cache.get(&'c')), (None, Some(3)));
    }
}
