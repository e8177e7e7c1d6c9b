//! Dense symmetric matrices, with the inverse by Cholesky's decomposition.

/// Square matrix, row by row.
pub(super) type SquareMatrix = Vec<Vec<f64>>;

pub(super) fn zeros(size: usize) -> SquareMatrix {
    vec![vec![0.0; size]; size]
}

pub(super) fn product(matrix: &SquareMatrix, vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| dot(row, vector)).collect()
}

/// Inverts a symmetric matrix. `None` if it is not positive definite.
pub(super) fn inverse(matrix: &SquareMatrix) -> Option<SquareMatrix> {
    let size = matrix.len();
    // The matrix is L L'. L is lower triangular.
    let mut lower = zeros(size);
    for row in 0..size {
        for column in 0..=row {
            let rest = matrix[row][column] - dot(&lower[row][..column], &lower[column][..column]);
            if row > column {
                lower[row][column] = rest / lower[column][column];
            } else if rest > 0.0 && rest.is_finite() {
                lower[row][row] = rest.sqrt();
            } else {
                return None;
            }
        }
    }
    // Row i of `upper` is column i of the inverse of L, so that all sums run over rows.
    let mut upper = zeros(size);
    for column in 0..size {
        upper[column][column] = 1.0 / lower[column][column];
        for row in column + 1..size {
            let known = dot(&lower[row][column..row], &upper[column][column..row]);
            upper[column][row] = -known / lower[row][row];
        }
    }
    let mut inverse = zeros(size);
    for row in 0..size {
        for column in 0..=row {
            let value = dot(&upper[row][row..], &upper[column][row..]);
            inverse[row][column] = value;
            inverse[column][row] = value;
        }
    }
    Some(inverse)
}

/// Sums products in eight lanes, which the compiler turns into vector instructions.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let (left_lanes, left_rest) = left.as_chunks::<8>();
    let (right_lanes, right_rest) = right.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (left, right) in left_lanes.iter().zip(right_lanes) {
        for lane in 0..8 {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// `B B' + I` is positive definite. Its product with the inverse is computed entry by entry.
        #[test]
        fn matrix_times_its_inverse_is_the_identity(
            (size, entries) in (1_usize..40).prop_flat_map(|size| (Just(size), vec(-3.0..3.0_f64, size * size)))
        ) {
            let mut matrix = zeros(size);
            for row in 0..size {
                for column in 0..size {
                    let products = (0..size).map(|k| entries[row * size + k] * entries[column * size + k]);
                    matrix[row][column] = products.sum::<f64>() + f64::from(u8::from(row == column));
                }
            }
            let inverse = inverse(&matrix).expect("positive definite");
            for (row, column) in inverse.iter().enumerate() {
                let unit: Vec<f64> = (0..size).map(|k| f64::from(u8::from(k == row))).collect();
                for (k, expected) in unit.iter().enumerate() {
                    let found: f64 = (0..size).map(|j| matrix[k][j] * column[j]).sum();
                    prop_assert!((found - expected).abs() < 1e-9, "{size} {k} {row}: {found}");
                }
            }
        }
    }

    #[test]
    fn matrices_that_are_not_positive_definite_have_no_inverse() {
        let mut matrix = zeros(2);
        assert!(inverse(&matrix).is_none());
        matrix.clone_from(&vec![vec![1.0, 2.0], vec![2.0, 1.0]]);
        assert!(inverse(&matrix).is_none());
        matrix[1][1] = f64::NAN;
        assert!(inverse(&matrix).is_none());
    }
}
