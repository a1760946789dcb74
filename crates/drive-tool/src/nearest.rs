// SPDX-License-Identifier: MIT OR Apache-2.0
//! For wrong names: the nearest right one.

/// The candidate that takes the fewest edits, if they are few enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let (distance, best) = candidates.iter().map(|c| (edits(word, c), *c)).min()?;
    (distance <= 2 + word.len() / 4).then_some(best)
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        assert_eq!(nearest("haeds", &["heads", "spindle"]), Some("heads"));
        assert_eq!(nearest("xyzzy", &["heads", "spindle"]), None);
    }
}
