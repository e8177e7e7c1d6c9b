//! Durations expected from cases of other sizes: a line through the nearest ones, in logarithms.

/// Greatest number of the nearest cases through which a line is fitted.
const MOST_NEIGHBOURS: usize = 8;
/// Least number of them: a line through fewer fits any duration.
const LEAST_NEIGHBOURS: usize = 5;
/// Number of cases of the next smaller and of the next larger sizes among which the nearest are searched.
const SEARCHED: usize = 32;
/// Greatest ratio of a dimension of a neighbour to that of the case, in either direction.
const MOST_RATIO: f64 = 16.5;
/// Least factor between the expected and the measured duration that is a contradiction. Durations jump by up to 2 where a
/// kernel takes another tiling.
pub(crate) const NEIGHBOUR_FACTOR: f64 = 2.5;
/// Standard deviations of the neighbours around their line from which a deviation is not chance.
pub(crate) const NEIGHBOUR_DEVIATIONS: f64 = 5.0;

/// Shape of a case with its duration. Cases that are compared have the same number of dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShapePoint {
    /// Logarithms of the dimensions.
    pub(crate) log_dims: Vec<f64>,
    pub(crate) log_duration: f64,
}

impl ShapePoint {
    fn size(&self) -> f64 {
        self.log_dims.iter().sum()
    }

    /// Returns the logarithms of the ratios of all dimensions, each in the direction in which it is positive.
    fn distances(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.log_dims.iter().zip(&other.log_dims).map(|(one, other)| (one - other).abs())
    }
}

/// Duration of a case by the line through its neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NeighbourFit {
    pub(crate) log_duration: f64,
    /// Standard deviation of the neighbours around their line, in logarithms.
    pub(crate) deviation: f64,
    /// Number of neighbours.
    pub(crate) neighbours: usize,
}

impl NeighbourFit {
    /// Returns true if a measured duration is too far from the line.
    pub(crate) fn contradicts(&self, log_duration: f64) -> bool {
        let limit = NEIGHBOUR_FACTOR.ln().max(NEIGHBOUR_DEVIATIONS * self.deviation);
        (log_duration - self.log_duration).abs() > limit
    }
}

/// Returns for each case the duration that its neighbours give it: a line of the logarithms of duration and size, which is
/// the product of all dimensions; near ones count more. `None` with too few neighbours, and for the smallest and the largest
/// of them, whose durations would be extrapolated.
pub(crate) fn fit_neighbours(points: &[ShapePoint]) -> Vec<Option<NeighbourFit>> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|one, other| points[*one].size().total_cmp(&points[*other].size()).then(one.cmp(other)));
    let mut fits = vec![None; points.len()];
    for (place, index) in order.iter().enumerate() {
        let window = &order[place.saturating_sub(SEARCHED)..(place + SEARCHED + 1).min(order.len())];
        let others = window.iter().filter(|other| *other != index).map(|other| &points[*other]);
        fits[*index] = fit_point(&points[*index], others);
    }
    fits
}

fn fit_point<'a>(point: &ShapePoint, others: impl Iterator<Item = &'a ShapePoint>) -> Option<NeighbourFit> {
    let mut nearest: Vec<(f64, &ShapePoint)> = others
        .filter(|other| point.distances(other).all(|distance| distance <= MOST_RATIO.ln()))
        .map(|other| (mean_of(point.distances(other)), other))
        .collect();
    nearest.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.truncate(MOST_NEIGHBOURS);
    let sizes: Vec<f64> = nearest.iter().map(|(_, other)| other.size() - point.size()).collect();
    let is_between = sizes.iter().any(|size| *size < 0.0) && sizes.iter().any(|size| *size > 0.0);
    if nearest.len() < LEAST_NEIGHBOURS || !is_between {
        return None;
    }
    let weights: Vec<f64> = nearest.iter().map(|(distance, _)| weight(distance / MOST_RATIO.ln())).collect();
    let total: f64 = weights.iter().sum();
    let durations: Vec<f64> = nearest.iter().map(|(_, other)| other.log_duration).collect();
    let mean = |values: &[f64]| {
        values.iter().zip(&weights).map(|(value, weight)| value * weight).sum::<f64>() / total
    };
    let (mean_size, mean_duration) = (mean(&sizes), mean(&durations));
    let moment = |product: &dyn Fn(f64, f64) -> f64| {
        let products =
            sizes.iter().zip(&durations).map(|(size, log)| product(size - mean_size, log - mean_duration));
        mean(&products.collect::<Vec<_>>())
    };
    let slope = moment(&|size, log| size * log) / moment(&|size, _| size * size);
    let squares = moment(&|size, log| (log - slope * size).powi(2));
    #[expect(clippy::cast_precision_loss, reason = "at most eight")]
    let count = nearest.len() as f64;
    Some(NeighbourFit {
        log_duration: mean_duration - slope * mean_size,
        deviation: (squares * count / (count - 2.0)).sqrt(),
        neighbours: nearest.len(),
    })
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the weight of a neighbour by its distance as a part of the greatest one: the tricube of W. S. Cleveland, J. Am.
/// Stat. Assoc. 74, 1979. The durations of a kernel bend where its work exceeds its launch, so that far ones mislead.
fn weight(distance: f64) -> f64 {
    (1.0 - distance.min(1.0).powi(3)).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{hash_numbers, normal_deviate};

    /// Cases of two dimensions on a grid, whose durations follow from both, with a fixed part and noise of 3 %.
    fn grid(seed: u64) -> Vec<ShapePoint> {
        let dims = (0..8_i32).flat_map(|rows| (0..6_i32).map(move |columns| (rows, columns)));
        dims.enumerate()
            .map(|(index, (rows, columns))| {
                let (rows, columns) = (16.0 * 2_f64.powi(rows), 256.0 * 2_f64.powi(columns));
                let noise = 0.03 * normal_deviate(hash_numbers(&[seed, index as u64]));
                let micros = 2.0 + rows * columns / 4e5 + rows * rows / 1e6;
                ShapePoint { log_dims: vec![rows.ln(), columns.ln()], log_duration: micros.ln() + noise }
            })
            .collect()
    }

    fn contradicted(points: &[ShapePoint]) -> Vec<usize> {
        let fits = fit_neighbours(points);
        let is_contradicted = |index: &usize| {
            fits[*index].is_some_and(|fit: NeighbourFit| fit.contradicts(points[*index].log_duration))
        };
        (0..points.len()).filter(is_contradicted).collect()
    }

    #[test]
    fn durations_that_follow_from_the_shape_are_not_contradicted() {
        for seed in 0..50 {
            assert_eq!(contradicted(&grid(seed)), [0_usize; 0], "seed {seed}");
        }
        let fitted = fit_neighbours(&grid(1)).into_iter().flatten().count();
        assert!(fitted >= 40, "{fitted} of 48 cases have neighbours of both sides");
    }

    /// The neighbours of a wrong duration have a wide spread, so that they are not contradicted in its place.
    #[test]
    fn one_wrong_duration_is_found() {
        for seed in 0..20 {
            for (index, factor) in [(20, 4.0_f64), (27, 0.2), (14, 5.0)] {
                let mut points = grid(seed);
                points[index].log_duration += factor.ln();
                assert_eq!(contradicted(&points), [index], "seed {seed}, factor {factor}");
            }
        }
    }

    #[test]
    fn nothing_is_extrapolated() {
        let ladder: Vec<ShapePoint> = (0..12_i32)
            .map(|step| ShapePoint { log_dims: vec![0.69 * f64::from(step)], log_duration: f64::from(step) })
            .collect();
        let fits = fit_neighbours(&ladder);
        assert!(fits[0].is_none() && fits[11].is_none() && fits[1..11].iter().all(Option::is_some));
        let middle = fits[5].expect("a fit");
        assert!((middle.log_duration - 5.0).abs() < 1e-9 && middle.deviation < 1e-9);
        assert!(fit_neighbours(&ladder[..5]).iter().all(Option::is_none));
        // Equal sizes give no line.
        let equal = vec![ShapePoint { log_dims: vec![1.0, 2.0], log_duration: 3.0 }; 9];
        assert!(fit_neighbours(&equal).iter().all(Option::is_none));
    }
}
