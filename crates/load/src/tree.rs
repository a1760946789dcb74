// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a directory tree, computed before anything is created: inner
//! directories, and leaves that hang in them (directories or files).
//!
//! `filebench` is the shape that Filebench gives its file sets, and with it the
//! papers' numbers come out: 100,000 files at width 2 lie in some 66,000
//! directories (FAST'17 §4.1: "more than 60,000"), and 800,000 directories at
//! width 4 need 228,000 inner ones; all of them, 4 KiB and an inode each, are
//! 4,268 MiB to read for RemoveDirs (Table 2: 4,066 MiB).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{LoadError, Result};
use crate::rng::Rng;

/// How leaves and inner directories hang together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// As Filebench does it: width and depth of each directory are drawn from a
    /// gamma distribution of shape 1.5; inner directories come on top of the count.
    #[default]
    Filebench,
    /// Each directory has exactly `width` children, level by level. For trees of
    /// directories the count then includes the inner ones.
    Regular,
}

/// A directory or a leaf: its name is its serial number within the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index into `Tree::inner`; the root is its own parent.
    pub parent: u32,
    pub serial: u32,
    /// Levels below the root.
    pub depth: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Inner directories, each after its parent; the first is the root.
    pub inner: Vec<Node>,
    pub leaves: Vec<Node>,
}

/// More levels than any path can have.
const DEPTH_MAX: u32 = 200;

impl Tree {
    /// Filebench's tree of `count` leaves. Its mean depth follows from the mean
    /// width: ln(count) / ln(width), if `depth_mean` does not give it.
    pub fn filebench(count: u32, width: f64, depth_mean: Option<f64>, seed: u64) -> Result<Self> {
        if width <= 1.0 {
            return Err(LoadError::Arguments(format!(
                "width {width} must be above 1"
            )));
        }
        let computed = libm::log(f64::from(count.max(2))) / libm::log(width);
        let mut growth = Growth {
            tree: Self::default(),
            count,
            width,
            depth_mean: depth_mean.unwrap_or(computed),
            rng: Rng::new(seed, 0),
        };
        growth.tree.inner.push(Node {
            parent: 0,
            serial: 1,
            depth: 0,
        });
        let mut serial = 1;
        while growth.missing() {
            growth.directory(0, serial, 1);
            serial += 1;
        }
        Ok(growth.tree)
    }

    /// `count` directories below the root, `width` in each, level by level; those
    /// without children are the leaves.
    pub fn regular_directories(count: u32, width: u32) -> Result<Self> {
        let width = check_width(width)?;
        let mut tree = Self {
            inner: vec![ROOT],
            leaves: Vec::new(),
        };
        let inner = count.div_ceil(width);
        for number in 1..=count {
            let node = tree.child_of_level_order(number, width);
            if number < inner {
                tree.inner.push(node);
            } else {
                tree.leaves.push(node);
            }
        }
        Ok(tree)
    }

    /// `count` files, `width` to a directory, in as many directories, `width` to
    /// a directory, as they need.
    pub fn regular_files(count: u32, width: u32) -> Result<Self> {
        let width = check_width(width)?;
        let holders = count.div_ceil(width).max(1);
        let mut tree = Self::regular_directories(holders, width)?;
        let holder_leaves = std::mem::take(&mut tree.leaves);
        let first = tree.inner.len() as u32;
        tree.inner.extend(&holder_leaves);
        let available = tree.inner.len() as u32 - first;
        for number in 0..count {
            let parent = first + (number / width) % available;
            let serial = number % width + 1 + number / width / available * width;
            let depth = tree.inner[parent as usize].depth + 1;
            tree.leaves.push(Node {
                parent,
                serial,
                depth,
            });
        }
        Ok(tree)
    }

    fn child_of_level_order(&self, number: u32, width: u32) -> Node {
        let parent = (number - 1) / width;
        let depth = self.inner[parent as usize].depth + 1;
        Node {
            parent,
            serial: (number - 1) % width + 1,
            depth,
        }
    }

    /// Appends `/` and the path of an inner directory below the root to `out`;
    /// nothing for the root itself.
    pub fn push_path(&self, inner: u32, out: &mut String) {
        if inner != 0 {
            let node = self.inner[inner as usize];
            self.push_leaf_path(node, out);
        }
    }

    /// Appends the path of a leaf, or of any node, below the root to `out`.
    pub fn push_leaf_path(&self, leaf: Node, out: &mut String) {
        let mut serials = [0; DEPTH_MAX as usize + 2];
        let mut length = 1;
        serials[0] = leaf.serial;
        let mut at = leaf.parent;
        while at != 0 {
            let node = self.inner[at as usize];
            serials[length] = node.serial;
            length += 1;
            at = node.parent;
        }
        for serial in serials[..length].iter().rev() {
            push_name(*serial, out);
        }
    }

    /// Deepest leaf, in levels below the root.
    pub fn depth_max(&self) -> u32 {
        self.leaves.iter().map(|leaf| leaf.depth).max().unwrap_or(0)
    }

    /// Mean depth of the leaves, rounded to whole levels.
    pub fn depth_mean(&self) -> u64 {
        let sum: u64 = self.leaves.iter().map(|leaf| u64::from(leaf.depth)).sum();
        let leaves = (self.leaves.len() as u64).max(1);
        (sum + leaves / 2) / leaves
    }

    /// Its size, for a report.
    pub fn summary(&self) -> serde_json::Value {
        serde_json::json!({
            "inner": self.inner.len(), "leaves": self.leaves.len(),
            "depth_mean": self.depth_mean(), "depth_max": self.depth_max(),
        })
    }
}

const ROOT: Node = Node {
    parent: 0,
    serial: 1,
    depth: 0,
};

fn check_width(width: u32) -> Result<u32> {
    match width {
        0 | 1 => Err(LoadError::Arguments(format!(
            "width {width} must be above 1"
        ))),
        _ => Ok(width),
    }
}

/// `/` and eight digits, as Filebench names its entries.
fn push_name(serial: u32, out: &mut String) {
    let mut digits = [b'0'; 9];
    digits[0] = b'/';
    let mut rest = serial;
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend(digits.iter().map(|d| char::from(*d)));
}

/// A tree that grows from the seed, first child first.
struct Growth {
    tree: Tree,
    count: u32,
    width: f64,
    depth_mean: f64,
    rng: Rng,
}

impl Growth {
    fn missing(&self) -> bool {
        (self.tree.leaves.len() as u32) < self.count
    }

    /// Adds a directory at `depth` with all that is below it.
    fn directory(&mut self, parent: u32, serial: u32, depth: u32) {
        let index = self.tree.inner.len() as u32;
        self.tree.inner.push(Node {
            parent,
            serial,
            depth,
        });
        let depth_drawn = self.rng.gamma_1_5(self.depth_mean) as u32;
        let children = libm::ceil(self.rng.gamma_1_5(self.width)) as u32;
        // Filebench counts the root as level 1.
        let holds_leaves = depth + 1 >= depth_drawn.clamp(1, DEPTH_MAX);
        for serial in 1..=children.max(1) {
            if !self.missing() {
                return;
            }
            if holds_leaves {
                self.tree.leaves.push(Node {
                    parent: index,
                    serial,
                    depth: depth + 1,
                });
            } else {
                self.directory(index, serial, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn paths(tree: &Tree) -> BTreeSet<String> {
        let path = |node: &Node| {
            let mut path = String::new();
            tree.push_leaf_path(*node, &mut path);
            path
        };
        tree.inner[1..]
            .iter()
            .chain(&tree.leaves)
            .map(path)
            .collect()
    }

    /// What must hold of every tree, whatever its parameters.
    fn check(tree: &Tree) {
        for (index, node) in tree.inner.iter().enumerate().skip(1) {
            assert!(
                (node.parent as usize) < index,
                "a directory comes after its parent"
            );
            assert_eq!(node.depth, tree.inner[node.parent as usize].depth + 1);
        }
        for leaf in &tree.leaves {
            assert_eq!(leaf.depth, tree.inner[leaf.parent as usize].depth + 1);
        }
        let names = tree.inner.len() - 1 + tree.leaves.len();
        assert_eq!(paths(tree).len(), names, "no name occurs twice");
    }

    #[test]
    fn trees_of_any_size_and_width_are_trees() {
        let mut rng = Rng::new(11, 0);
        for seed in 0..60 {
            let count = rng.below(3000) as u32;
            let width = 2 + rng.below(8) as u32;
            let tree = Tree::filebench(count, f64::from(width) + 0.5, None, seed).unwrap();
            assert_eq!(tree.leaves.len(), count as usize);
            check(&tree);
            let tree = Tree::regular_directories(count, width).unwrap();
            assert_eq!(tree.inner.len() + tree.leaves.len(), count as usize + 1);
            check(&tree);
            let tree = Tree::regular_files(count, width).unwrap();
            assert_eq!(tree.leaves.len(), count as usize);
            check(&tree);
        }
    }

    #[test]
    fn regular_tree_of_800_000_has_four_to_a_parent_and_depth_10() {
        let tree = Tree::regular_directories(800_000, 4).unwrap();
        assert_eq!(tree.depth_max(), 10);
        let mut children = vec![0; tree.inner.len()];
        for node in tree.inner[1..].iter().chain(&tree.leaves) {
            children[node.parent as usize] += 1;
        }
        assert!(children[..children.len() - 1].iter().all(|c| *c == 4));
    }

    /// FAST'17 §4.1: 100,000 files in more than 60,000 directories.
    #[test]
    fn filebench_tree_has_the_papers_directories_per_file() {
        let tree = Tree::filebench(100_000, 2.0, None, 1).unwrap();
        assert!(
            (60_000..72_000).contains(&tree.inner.len()),
            "{}",
            tree.inner.len()
        );
    }

    /// Table 2 of FAST'17: RemoveDirs reads 4,066 MiB, a 4 KiB block and a
    /// 256-byte inode per directory. 10 % is the tolerance on byte counts.
    #[test]
    fn filebench_tree_has_the_papers_volume_of_metadata() {
        let tree = Tree::filebench(800_000, 4.0, None, 1).unwrap();
        let directories = tree.inner.len() + tree.leaves.len();
        let mib = directories as f64 * (4096.0 + 256.0) / 1048576.0;
        assert!((mib / 4066.4 - 1.0).abs() < 0.10, "{mib} MiB");
    }

    #[test]
    fn same_seed_same_tree() {
        let tree = |seed| paths(&Tree::filebench(5000, 4.0, None, seed).unwrap());
        assert_eq!(tree(1), tree(1));
        assert_ne!(tree(1), tree(2));
    }

    #[test]
    fn width_that_cannot_be_is_refused() {
        assert!(Tree::filebench(10, 1.0, None, 1).is_err());
        assert!(Tree::regular_directories(10, 1).is_err());
    }
}
