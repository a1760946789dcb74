// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small statistics: quantiles, least squares, change points, rank correlation.

/// The values in order. Times are never NaN.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut all = values.to_vec();
    all.sort_by(f64::total_cmp);
    all
}

/// The value below which a share `q` of `values` lies, interpolated; 0 if there are none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let all = sorted(values);
    let Some(last) = all.len().checked_sub(1) else {
        return 0.0;
    };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    all[low] + (all[high] - all[low]) * (at - low as f64)
}

/// Median; 0 if there are none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Mean; 0 if there are none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard error of the mean.
pub fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return f64::INFINITY;
    }
    let middle = mean(values);
    let variance = values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / (n - 1.0);
    (variance / n).sqrt()
}

/// Where the share lies that `hits` of `n` stand for, with 95 % (Wilson's interval).
pub fn share_interval(hits: usize, n: usize) -> (f64, f64) {
    let (n, z) = (n.max(1) as f64, 1.96_f64);
    let p = hits as f64 / n;
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    ((middle - half) / scale, (middle + half) / scale)
}

/// Coefficients of the combination of the rows' columns that comes nearest to `wanted`; `None` if they do not
/// determine it.
pub fn least_squares<const N: usize>(rows: &[[f64; N]], wanted: &[f64]) -> Option<[f64; N]> {
    // Normal equations, Gauss with pivots: three unknowns at most, and columns of about the same size.
    let mut a = vec![vec![0.0; N + 1]; N];
    for (row, y) in rows.iter().zip(wanted) {
        for i in 0..N {
            for j in 0..N {
                a[i][j] += row[i] * row[j];
            }
            a[i][N] += row[i] * y;
        }
    }
    for i in 0..N {
        let pivot = (i..N).max_by(|p, q| a[*p][i].abs().total_cmp(&a[*q][i].abs()))?;
        a.swap(i, pivot);
        if a[i][i].abs() < 1e-12 {
            return None;
        }
        let pivot_row = a[i].clone();
        for (_, row) in a.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let factor = row[i] / pivot_row[i];
            for (value, above) in row.iter_mut().zip(&pivot_row) {
                *value -= factor * above;
            }
        }
    }
    let mut solution = [0.0; N];
    for (i, x) in solution.iter_mut().enumerate() {
        *x = a[i][N] / a[i][i];
    }
    Some(solution)
}

/// How many values come before the step from `low` to `high` (cumulative sums against the middle).
pub fn step_at(values: &[f64], low: f64, high: f64) -> usize {
    let middle = (low + high) / 2.0;
    let (mut sum, mut least, mut at) = (0.0, 0.0, 0);
    for (i, value) in values.iter().enumerate() {
        sum += value - middle;
        if sum < least {
            (least, at) = (sum, i + 1);
        }
    }
    at
}

/// Kendall's rank correlation (tau-b) of pairs: 1 same order, -1 reversed, 0 none.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let (mut agree, mut ties_a, mut ties_b, mut all) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for (i, p) in pairs.iter().enumerate() {
        for q in &pairs[..i] {
            let (da, db) = (p.0 - q.0, p.1 - q.1);
            all += 1.0;
            ties_a += f64::from(u8::from(da == 0.0));
            ties_b += f64::from(u8::from(db == 0.0));
            if da != 0.0 && db != 0.0 {
                agree += (da * db).signum();
            }
        }
    }
    let scale = ((all - ties_a) * (all - ties_b)).sqrt();
    if scale > 0.0 {
        agree / scale
    } else {
        0.0
    }
}

/// A comb: teeth at `first + k · pitch`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comb {
    /// Distance of two teeth.
    pub pitch: f64,
    /// Smallest and largest pitch that fit as well.
    pub pitch_range: (f64, f64),
    /// A tooth.
    pub first: f64,
}

/// The widest comb with a tooth within `tolerance` of each edge, but for one edge in ten. It needs five edges.
pub fn comb(edges: &[f64], tolerance: f64) -> Option<Comb> {
    let edges = sorted(edges);
    let (low, high) = (*edges.first()?, *edges.last()?);
    let span = high - low;
    if edges.len() < 5 || span <= 0.0 {
        return None;
    }
    let allowed = edges.len() / 10;
    let mut best: Option<Comb> = None;
    // Over the span, a pitch a step larger moves the last tooth by a quarter of the tolerance.
    let mut pitch = span;
    while pitch > tolerance * 6.0 {
        match fitting_tooth(&edges, pitch, tolerance, allowed) {
            Some(first) => {
                let range = best.map_or((pitch, pitch), |b| (pitch, b.pitch_range.1));
                best = Some(Comb {
                    pitch,
                    pitch_range: range,
                    first,
                });
            }
            None if best.is_some() => break,
            None => {}
        }
        pitch -= tolerance / 4.0 * pitch / span;
    }
    let found = best?;
    refine(&edges, found, tolerance)
}

/// A tooth of the comb of this pitch that all edges but `allowed` are near to.
fn fitting_tooth(edges: &[f64], pitch: f64, tolerance: f64, allowed: usize) -> Option<f64> {
    // All edges moved into one pitch: they must lie in an arc of twice the tolerance.
    let mut moved: Vec<f64> = edges
        .iter()
        .map(|e| (e - edges[0]).rem_euclid(pitch))
        .collect();
    moved.sort_by(f64::total_cmp);
    let n = moved.len();
    let needed = n - allowed;
    let around = |i: usize| {
        if i < n {
            moved[i]
        } else {
            moved[i - n] + pitch
        }
    };
    (0..n)
        .map(|i| (around(i), around(i + needed - 1)))
        .find(|(from, to)| to - from <= 2.0 * tolerance)
        .map(|(from, to)| edges[0] + (from + to) / 2.0)
}

/// Least squares over the edges that are near a tooth.
fn refine(edges: &[f64], comb: Comb, tolerance: f64) -> Option<Comb> {
    let middle = (comb.pitch_range.0 + comb.pitch_range.1) / 2.0;
    let first = fitting_tooth(edges, middle, tolerance, edges.len() / 10).unwrap_or(comb.first);
    let (rows, wanted): (Vec<[f64; 2]>, Vec<f64>) = edges
        .iter()
        .map(|e| (((e - first) / middle).round(), e))
        .filter(|(k, e)| (*e - first - k * middle).abs() <= 1.5 * tolerance)
        .map(|(k, e)| ([1.0, k], e - first))
        .unzip();
    let [offset, pitch] = least_squares(&rows, &wanted)?;
    Some(Comb {
        pitch,
        first: first + offset,
        ..comb
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values_are_interpolated() {
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), 3.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_share_lies_in_its_interval_and_none_of_many_is_little() {
        let (low, high) = share_interval(30, 60);
        assert!(low > 0.37 && low < 0.5 && high < 0.63);
        let (low, high) = share_interval(0, 60);
        assert!(low.abs() < 1e-9 && (0.05..0.07).contains(&high));
    }

    #[test]
    fn a_line_is_found_again() {
        let rows: Vec<[f64; 2]> = (0..5).map(|i| [1.0, f64::from(i)]).collect();
        let wanted: Vec<f64> = rows.iter().map(|r| 4.0 - 0.5 * r[1]).collect();
        let [a, b] = least_squares(&rows, &wanted).unwrap();
        assert!((a - 4.0).abs() < 1e-9 && (b + 0.5).abs() < 1e-9);
        assert!(least_squares(&[[1.0, 2.0]], &[3.0]).is_none());
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let values: Vec<f64> = (0..100).map(|i| if i < 63 { 1.0 } else { 9.0 }).collect();
        assert_eq!(step_at(&values, 1.0, 9.0), 63);
        assert_eq!(step_at(&[9.0, 9.0], 1.0, 9.0), 0);
    }

    #[test]
    fn a_comb_is_found_through_gaps_blur_and_one_stray_edge() {
        let teeth = [0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0, 9.0, 11.0, 12.0];
        let mut edges: Vec<f64> = teeth
            .iter()
            .enumerate()
            .map(|(i, k)| 13.0 + 30.3 * k + [0.2, -0.2, 0.1][i % 3])
            .collect();
        edges.push(13.0 + 30.3 * 6.4);
        let found = comb(&edges, 0.25).unwrap();
        assert!((found.pitch - 30.3).abs() < 0.1, "{found:?}");
        assert!(
            found.pitch_range.0 <= 30.3 && 30.3 <= found.pitch_range.1 + 0.02,
            "{found:?}"
        );
    }

    #[test]
    fn edges_without_a_pitch_make_no_comb_of_some_width() {
        let edges = [0.0, 11.0, 37.0, 40.5, 71.3, 88.8, 92.1, 130.9];
        assert!(comb(&edges, 0.25).is_none_or(|c| c.pitch < 4.0));
    }

    #[test]
    fn ranks_agree_disagree_or_neither() {
        assert_eq!(rank_correlation(&[(1.0, 1.0), (2.0, 5.0), (3.0, 7.0)]), 1.0);
        assert_eq!(
            rank_correlation(&[(1.0, 9.0), (2.0, 5.0), (3.0, 1.0)]),
            -1.0
        );
        assert_eq!(rank_correlation(&[(1.0, 2.0), (2.0, 2.0)]), 0.0);
    }
}
