//! Linear interpolation between points in one to three dimensions.
//!
//! In one dimension between the nearest points on both sides. In two and three dimensions in the simplex of the
//! Delaunay triangulation that contains the target. It is the solution of a linear programme: weights of sum 1, none
//! below zero, whose mean of the points is the target, with the least mean of the squared distances to it. No
//! triangulation is built; points on one circle, as those of grids, have several triangulations, of which the order of
//! points selects one.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValuedPoint {
    pub(crate) at: [f64; 3],
    pub(crate) value: f64,
    pub(crate) row: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InterpolatedValue {
    pub(crate) value: f64,
    pub(crate) rows: Vec<u32>,
}

impl InterpolatedValue {
    pub(crate) fn used_points(&self, points: &[ValuedPoint]) -> Vec<(u32, [f64; 3])> {
        let at = |row: u32| points.iter().find(|point| point.row == row).map(|point| (row, point.at));
        self.rows.iter().filter_map(|row| at(*row)).collect()
    }
}

/// Greatest residual of the constraints, relative to the extent of the points.
const TOLERANCE: f64 = 1e-9;
/// Points of which all are candidates; of more only those near the target, if they surround it.
const MANY_POINTS: usize = 512;
/// Distinct coordinates on each side of the target that are near.
const NEAR_COORDINATES: usize = 6;

/// Interpolates between points, the first `dims` of whose coordinates count. Points with equal coordinates stand for
/// their median. Returns `None` unless the target is between points.
pub(crate) fn interpolate(
    points: &[ValuedPoint],
    target: [f64; 3],
    dims: usize,
) -> Option<InterpolatedValue> {
    match dims {
        1 => between_neighbours(points, target[0]),
        2 | 3 => {
            let sites = merge_equal_points(points);
            if sites.len() > MANY_POINTS
                && let Some(found) = in_simplex(&near_sites(&sites, target, dims), target, dims)
            {
                return Some(found);
            }
            in_simplex(&sites, target, dims)
        }
        _ => None,
    }
}

fn between_neighbours(points: &[ValuedPoint], target: f64) -> Option<InterpolatedValue> {
    let lower = points.iter().map(|point| point.at[0]).filter(|at| *at <= target).max_by(f64::total_cmp)?;
    let upper = points.iter().map(|point| point.at[0]).filter(|at| *at >= target).min_by(f64::total_cmp)?;
    let [(low, mut rows), (high, more)] = [lower, upper].map(|at| median_at(points, at));
    if lower < upper {
        rows.extend(more);
    }
    let share = if lower < upper { (target - lower) / (upper - lower) } else { 0.0 };
    Some(InterpolatedValue { value: low + share * (high - low), rows })
}

fn median_at(points: &[ValuedPoint], at: f64) -> (f64, Vec<u32>) {
    let mut equal: Vec<&ValuedPoint> = points.iter().filter(|point| point.at[0] == at).collect();
    (median(&mut equal), equal.iter().map(|point| point.row).collect())
}

fn median(points: &mut [&ValuedPoint]) -> f64 {
    points.sort_by(|one, other| one.value.total_cmp(&other.value).then(one.row.cmp(&other.row)));
    let middle = points.len() / 2;
    match points.len() % 2 {
        0 => f64::midpoint(points[middle - 1].value, points[middle].value),
        _ => points[middle].value,
    }
}

#[derive(Clone, Debug)]
struct InterpolationSite {
    at: [f64; 3],
    value: f64,
    rows: Vec<u32>,
}

fn merge_equal_points(points: &[ValuedPoint]) -> Vec<InterpolationSite> {
    let order = |one: &ValuedPoint, other: &ValuedPoint| {
        let axes = one.at.iter().zip(&other.at).map(|(one, other)| one.total_cmp(other));
        axes.fold(Ordering::Equal, Ordering::then)
    };
    let mut sorted: Vec<&ValuedPoint> = points.iter().collect();
    sorted.sort_by(|one, other| order(one, other));
    let groups = sorted.chunk_by_mut(|one, other| order(one, other).is_eq());
    groups
        .map(|group| InterpolationSite {
            at: group[0].at,
            value: median(group),
            rows: group.iter().map(|point| point.row).collect(),
        })
        .collect()
}

/// Returns the sites whose coordinates are among the nearest on each axis.
fn near_sites(sites: &[InterpolationSite], target: [f64; 3], dims: usize) -> Vec<InterpolationSite> {
    let mut limits = [(f64::NEG_INFINITY, f64::INFINITY); 3];
    for (axis, limit) in limits.iter_mut().enumerate().take(dims) {
        let mut coordinates: Vec<f64> = sites.iter().map(|site| site.at[axis]).collect();
        coordinates.sort_by(f64::total_cmp);
        coordinates.dedup();
        let above = coordinates.partition_point(|at| *at < target[axis]);
        let last = (above + NEAR_COORDINATES).min(coordinates.len() - 1);
        *limit = (coordinates[above.saturating_sub(NEAR_COORDINATES)], coordinates[last]);
    }
    let is_near = |site: &&InterpolationSite| {
        site.at.iter().zip(limits).all(|(at, (low, high))| (low..=high).contains(at))
    };
    sites.iter().filter(is_near).cloned().collect()
}

fn in_simplex(sites: &[InterpolationSite], target: [f64; 3], dims: usize) -> Option<InterpolatedValue> {
    let offset = |site: &InterpolationSite, axis: usize| site.at[axis] - target[axis];
    let extent = sites
        .iter()
        .flat_map(|site| (0..dims).map(move |axis| offset(site, axis).abs()))
        .fold(0.0_f64, f64::max);
    if extent <= 0.0 {
        let site = sites.first()?;
        return Some(InterpolatedValue { value: site.value, rows: site.rows.clone() });
    }
    let columns: Vec<[f64; 4]> = sites
        .iter()
        .map(|site| {
            let mut column = [0.0; 4];
            for (axis, entry) in column.iter_mut().enumerate().take(dims) {
                *entry = offset(site, axis) / extent;
            }
            column[dims] = 1.0;
            column
        })
        .collect();
    let costs: Vec<f64> =
        columns.iter().map(|column| column[..dims].iter().map(|offset| offset * offset).sum()).collect();
    let weights = SimplexMethod::new(&columns, dims + 1).solve(&costs)?;
    let mut found = InterpolatedValue { value: 0.0, rows: Vec::new() };
    for (site, weight) in weights {
        found.value += weight * sites[site].value;
        found.rows.extend(&sites[site].rows);
    }
    found.rows.sort_unstable();
    Some(found)
}

/// The simplex method for weights whose combination of columns is zero but for the last row, which is 1.
struct SimplexMethod<'c> {
    columns: &'c [[f64; 4]],
    rows: usize,
    /// Column of each row's basic variable; from `columns.len()` on an artificial one.
    basis: [usize; 4],
    inverse: [[f64; 4]; 4],
    values: [f64; 4],
}

impl<'c> SimplexMethod<'c> {
    fn new(columns: &'c [[f64; 4]], rows: usize) -> Self {
        let mut inverse = [[0.0; 4]; 4];
        let mut basis = [0; 4];
        for row in 0..rows {
            inverse[row][row] = 1.0;
            basis[row] = columns.len() + row;
        }
        let mut values = [0.0; 4];
        values[rows - 1] = 1.0;
        Self { columns, rows, basis, inverse, values }
    }

    /// Returns the sites with weights above zero; `None` if no weights fulfil the constraints.
    fn solve(mut self, costs: &[f64]) -> Option<Vec<(usize, f64)>> {
        let count = self.columns.len();
        self.minimise(&|column| if column < count { 0.0 } else { 1.0 })?;
        let residual: f64 =
            (0..self.rows).filter(|row| self.basis[*row] >= count).map(|row| self.values[row]).sum();
        if residual > TOLERANCE {
            return None;
        }
        // An artificial variable that is left has the value zero, and must keep it.
        self.minimise(&|column| if column < count { costs[column] } else { 1e6 })?;
        let basic = (0..self.rows).map(|row| (self.basis[row], self.values[row]));
        let weights: Vec<(usize, f64)> = basic.filter(|(_, weight)| *weight > TOLERANCE).collect();
        weights.iter().all(|(column, _)| *column < count).then(|| {
            let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
            weights.into_iter().map(|(site, weight)| (site, weight / sum)).collect()
        })
    }

    /// Exchanges columns of the basis until none lowers the cost. `None` after more exchanges than any input needs.
    fn minimise(&mut self, cost: &dyn Fn(usize) -> f64) -> Option<()> {
        let limit = 200 + 20 * self.columns.len();
        for step in 0..limit {
            let mut prices = [0.0; 4];
            for (at, price) in prices.iter_mut().enumerate().take(self.rows) {
                *price = (0..self.rows).map(|row| cost(self.basis[row]) * self.inverse[row][at]).sum();
            }
            let reduced = |column: usize| {
                let own: f64 = (0..self.rows).map(|row| prices[row] * self.columns[column][row]).sum();
                cost(column) - own
            };
            // The steepest column first; later the first one, which cannot run in circles.
            let mut entering: Option<(usize, f64)> = None;
            for column in 0..self.columns.len() {
                let change = reduced(column);
                if change < -TOLERANCE && entering.is_none_or(|(_, best)| change < best) {
                    entering = Some((column, change));
                    if step > 100 {
                        break;
                    }
                }
            }
            let Some((entering, _)) = entering else { return Some(()) };
            self.exchange(entering)?;
        }
        None
    }

    fn exchange(&mut self, entering: usize) -> Option<()> {
        let mut direction = [0.0; 4];
        for (row, direction) in direction.iter_mut().enumerate().take(self.rows) {
            *direction = (0..self.rows).map(|at| self.inverse[row][at] * self.columns[entering][at]).sum();
        }
        let leaving = (0..self.rows).filter(|row| direction[*row] > TOLERANCE).min_by(|one, other| {
            let ratio = |row: usize| self.values[row].max(0.0) / direction[row];
            ratio(*one).total_cmp(&ratio(*other)).then(self.basis[*one].cmp(&self.basis[*other]))
        })?;
        let pivot = direction[leaving];
        let step = self.values[leaving].max(0.0) / pivot;
        for at in 0..self.rows {
            self.inverse[leaving][at] /= pivot;
        }
        for row in (0..self.rows).filter(|row| *row != leaving) {
            for at in 0..self.rows {
                self.inverse[row][at] -= direction[row] * self.inverse[leaving][at];
            }
            self.values[row] -= direction[row] * step;
        }
        self.values[leaving] = step;
        self.basis[leaving] = entering;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(values: &[([f64; 3], f64)]) -> Vec<ValuedPoint> {
        (0..).zip(values).map(|(row, (at, value))| ValuedPoint { at: *at, value: *value, row }).collect()
    }

    #[test]
    fn one_dimension_takes_the_nearest_points_and_the_median_of_equal_ones() {
        let line = points(&[
            ([100.0, 0.0, 0.0], 10.0),
            ([200.0, 0.0, 0.0], 20.0),
            ([200.0, 0.0, 0.0], 24.0),
            ([200.0, 0.0, 0.0], 90.0),
            ([900.0, 0.0, 0.0], 90.0),
        ]);
        let at = |target: f64| interpolate(&line, [target, 0.0, 0.0], 1);
        assert_eq!(at(150.0).map(|found| (found.value, found.rows)), Some((17.0, vec![0, 1, 2, 3])));
        assert_eq!(at(200.0).map(|found| (found.value, found.rows)), Some((24.0, vec![1, 2, 3])));
        assert_eq!(at(99.0), None);
        assert_eq!(at(901.0), None);
        let even = points(&[([1.0, 0.0, 0.0], 2.0), ([1.0, 0.0, 0.0], 4.0)]);
        assert_eq!(interpolate(&even, [1.0, 0.0, 0.0], 1).map(|found| found.value), Some(3.0));
    }

    #[test]
    fn targets_outside_the_hull_have_no_value() {
        let triangle = points(&[([0.0, 0.0, 0.0], 0.0), ([10.0, 0.0, 0.0], 10.0), ([0.0, 10.0, 0.0], 20.0)]);
        let at = |x: f64, y: f64| interpolate(&triangle, [x, y, 0.0], 2).map(|found| found.value);
        assert!(at(2.0, 3.0).is_some_and(|value| (value - 8.0).abs() < 1e-9));
        assert!(at(5.0, 5.0).is_some_and(|value| (value - 15.0).abs() < 1e-9), "on the edge");
        assert_eq!(at(5.1, 5.1), None);
        assert_eq!(at(-0.1, 1.0), None);
        let flat = points(&[([0.0, 0.0, 0.0], 0.0), ([10.0, 10.0, 0.0], 10.0)]);
        assert_eq!(interpolate(&flat, [3.0, 4.0, 0.0], 2), None);
        assert_eq!(interpolate(&[], [3.0, 4.0, 0.0], 2), None);
    }

    /// The simplex belongs to the Delaunay triangulation: no other point is inside the circle through its corners.
    #[test]
    fn the_simplex_has_no_other_point_in_its_circle() {
        let sites = points(&[
            ([0.0, 0.0, 0.0], 0.0),
            ([10.0, 1.0, 0.0], 100.0),
            ([1.0, 10.0, 0.0], 0.0),
            ([9.0, 8.0, 0.0], 100.0),
        ]);
        // (9, 8) is in the circle of the other three, so that the diagonal from the origin divides them.
        let found = interpolate(&sites, [4.0, 4.0, 0.0], 2).expect("inside");
        assert_eq!(found.rows, [0, 2, 3]);
        let found = interpolate(&sites, [7.0, 6.0, 0.0], 2).expect("inside");
        assert_eq!(found.rows, [0, 1, 3]);
    }

    proptest! {
        /// Any triangulation reproduces a linear function, inside the hull of the points and nowhere else.
        #[test]
        fn linear_functions_are_reproduced(
            corners in prop::collection::vec([0_u32..60, 0_u32..60, 0_u32..60], 1..80),
            weights in prop::collection::vec(0_u32..=64, 3),
            dims in 2_usize..=3,
        ) {
            let value = |at: [f64; 3]| 3.0 + 2.0 * at[0] + 5.0 * at[1] + if dims == 3 { 7.0 * at[2] } else { 0.0 };
            let place = |corner: &[u32; 3]| {
                let mut at = corner.map(f64::from);
                if dims == 2 { at[2] = 0.0; }
                at
            };
            let valued: Vec<([f64; 3], f64)> = corners.iter().map(|corner| (place(corner), value(place(corner)))).collect();
            let points = points(&valued);
            // A weighted mean of corners is inside. Its weights are exact in binary numbers.
            let weights = [weights[0], weights[1], weights[2], 256 - weights.iter().sum::<u32>()];
            let mut target = [0.0; 3];
            for (weight, (at, _)) in weights.iter().zip(valued.iter().cycle()) {
                for axis in 0..3 { target[axis] += at[axis] * f64::from(*weight) / 256.0; }
            }
            let found = interpolate(&points, target, dims).expect("inside the hull");
            prop_assert!((found.value - value(target)).abs() < 1e-4, "{} and {}", found.value, value(target));
            prop_assert_eq!(interpolate(&points, [61.0, 0.0, 0.0], dims), None);
        }
    }
}
