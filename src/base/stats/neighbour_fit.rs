//! Durations expected from cases of other sizes: a line through the nearest ones, in logarithms.

const MAX_NEIGHBOURS: usize = 8;
const MIN_NEIGHBOURS: usize = 5;
/// Number of cases of the next smaller and of the next larger sizes among which the nearest are searched.
const SEARCHED: usize = 32;
/// Greatest ratio between a dimension of a neighbour and the same dimension of the case, in either direction.
const MAX_RATIO: f64 = 16.5;
/// Least factor between the expected and the measured duration that is a contradiction. Durations jump by up to 2 where a
/// kernel takes another tiling.
pub(crate) const NEIGHBOUR_FACTOR: f64 = 2.5;
/// Standard deviations of the neighbours around their line from which a deviation is not chance.
pub(crate) const NEIGHBOUR_DEVIATIONS: f64 = 5.0;

/// Shape of a case with its duration. Cases that are compared have the same number of dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShapePoint {
    pub(crate) log_dims: Vec<f64>,
    pub(crate) log_duration: f64,
}

/// Returns the mean of the logarithms of the ratios of all dimensions, each in the direction in which it is positive; `None` if
/// one of them is too great for a neighbour.
fn neighbour_distance(log_dims: &[f64], others: &[f64]) -> Option<f64> {
    let mut sum = 0.0;
    for (one, other) in log_dims.iter().zip(others) {
        let distance = (one - other).abs();
        if distance > MAX_RATIO.ln() {
            return None;
        }
        sum += distance;
    }
    Some(sum / log_dims.len().max(1) as f64)
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    distance: f64,
    /// Logarithm of its size relative to the size of the other case.
    log_size: f64,
    log_duration: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NeighbourFit {
    pub(crate) log_duration: f64,
    /// Standard deviation of the neighbours around their line, in logarithms.
    pub(crate) deviation: f64,
    pub(crate) neighbours: usize,
}

impl NeighbourFit {
    pub(crate) fn contradicts(&self, log_duration: f64) -> bool {
        let limit = NEIGHBOUR_FACTOR.ln().max(NEIGHBOUR_DEVIATIONS * self.deviation);
        (log_duration - self.log_duration).abs() > limit
    }
}

/// Returns for each case the duration that its neighbours give it: a line of the logarithms of duration and size, which is
/// the product of all dimensions; near ones count more. `None` with too few neighbours, and for the smallest and the largest
/// of them, whose durations would be extrapolated.
pub(crate) fn fit_neighbours(points: &[ShapePoint]) -> Vec<Option<NeighbourFit>> {
    let sizes: Vec<f64> = points.iter().map(|point| point.log_dims.iter().sum()).collect();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|one, other| sizes[*one].total_cmp(&sizes[*other]));
    let mut fits = vec![None; points.len()];
    for (place, &index) in order.iter().enumerate() {
        let near = &order[place.saturating_sub(SEARCHED)..order.len().min(place + 1 + SEARCHED)];
        let neighbour = |&other: &usize| {
            Some(Neighbour {
                distance: neighbour_distance(&points[index].log_dims, &points[other].log_dims)?,
                log_size: sizes[other] - sizes[index],
                log_duration: points[other].log_duration,
            })
        };
        let mut nearest: Vec<Neighbour> =
            near.iter().filter(|other| **other != index).filter_map(neighbour).collect();
        // Of equally near ones the smaller is nearer.
        nearest.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        nearest.truncate(MAX_NEIGHBOURS);
        fits[index] = fit_line(&nearest);
    }
    fits
}

fn fit_line(nearest: &[Neighbour]) -> Option<NeighbourFit> {
    let is_between =
        nearest.iter().any(|one| one.log_size < 0.0) && nearest.iter().any(|one| one.log_size > 0.0);
    if nearest.len() < MIN_NEIGHBOURS || !is_between {
        return None;
    }
    let mut weights = [0.0; MAX_NEIGHBOURS];
    for (weighted, neighbour) in weights.iter_mut().zip(nearest) {
        *weighted = weight(neighbour.distance / MAX_RATIO.ln());
    }
    let total: f64 = weights[..nearest.len()].iter().sum();
    let mean = |value: &dyn Fn(&Neighbour) -> f64| {
        nearest.iter().zip(&weights).map(|(neighbour, weight)| value(neighbour) * weight).sum::<f64>() / total
    };
    let mean_size = mean(&|one| one.log_size);
    let mean_duration = mean(&|one| one.log_duration);
    let moment = |product: &dyn Fn(f64, f64) -> f64| {
        mean(&|one| product(one.log_size - mean_size, one.log_duration - mean_duration))
    };
    let slope = moment(&|size, log| size * log) / moment(&|size, _| size * size);
    let squares = moment(&|size, log| (log - slope * size).powi(2));
    let count = nearest.len() as f64;
    Some(NeighbourFit {
        log_duration: mean_duration - slope * mean_size,
        deviation: (squares * count / (count - 2.0)).sqrt(),
        neighbours: nearest.len(),
    })
}

/// Returns the weight of a neighbour by its distance as a part of the greatest one: the tricube of W. S. Cleveland, J. Am.
/// Stat. Assoc. 74, 1979. The durations of a kernel bend where its work exceeds its launch, so that far ones mislead.
fn weight(distance: f64) -> f64 {
    (1.0 - distance.min(1.0).powi(3)).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::{hash_numbers, normal_deviate};

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
