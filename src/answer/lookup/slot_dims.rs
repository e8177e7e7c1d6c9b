//! Dimensions of one tensor without an allocation, and their forms for comparison.

/// Maximum number of dimensions of a tensor; CANN has no kernel with more. Rows and queries beyond are refused.
pub(crate) const MAX_RANK: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotDims {
    dims: [u64; MAX_RANK],
    rank: u8,
}

impl SlotDims {
    /// Copies at most [`MAX_RANK`] dimensions.
    pub(crate) fn new(dims: &[u64]) -> Self {
        let rank = dims.len().min(MAX_RANK);
        let mut copied = [0; MAX_RANK];
        copied[..rank].copy_from_slice(&dims[..rank]);
        Self { dims: copied, rank: rank as u8 }
    }

    /// Returns the matrix that FRACTAL_NZ stores: `(…, c1, r1, b1, b2)` is `(…, c1·b2, r1·b1)`. Shapes of fewer than
    /// four dimensions are unchanged.
    pub(crate) fn from_blocked(dims: &[u64]) -> Self {
        let [batch @ .., outer, inner, block_1, block_2] = dims else { return Self::new(dims) };
        let mut matrix = Self::new(batch);
        matrix.push(outer.saturating_mul(*block_2));
        matrix.push(inner.saturating_mul(*block_1));
        matrix
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u64] {
        &mut self.dims[..usize::from(self.rank)]
    }

    pub(crate) fn push(&mut self, dim: u64) {
        if usize::from(self.rank) < MAX_RANK {
            self.dims[usize::from(self.rank)] = dim;
            self.rank += 1;
        }
    }

    /// Returns the dimensions without ones in front, down to the last `kept` dimensions.
    pub(crate) fn without_leading_ones(&self, kept: usize) -> Self {
        let dims = self.as_slice();
        let ones = dims.iter().take_while(|dim| **dim == 1).count();
        Self::new(&dims[ones.min(dims.len().saturating_sub(kept))..])
    }

    /// Returns the product of all dimensions; 1 for a scalar.
    pub(crate) fn element_count(&self) -> u64 {
        self.as_slice().iter().fold(1, |product: u64, dim| product.saturating_mul(*dim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_matrices_are_those_that_they_store() {
        for (blocked, matrix) in [
            (&[320, 48, 16, 16][..], &[5120, 768][..]),
            (&[2, 48, 96, 16, 32], &[2, 1536, 1536]),
            (&[5120, 768], &[5120, 768]),
            (&[], &[]),
        ] {
            assert_eq!(SlotDims::from_blocked(blocked).as_slice(), matrix);
        }
    }

    #[test]
    fn ones_in_front_are_stripped_down_to_the_kept_dimensions() {
        for (dims, stripped) in [
            (&[1, 136, 5120][..], &[136, 5120][..]),
            (&[1, 1, 7], &[7]),
            (&[1, 1], &[1]),
            (&[1], &[1]),
            (&[], &[]),
        ] {
            assert_eq!(SlotDims::new(dims).without_leading_ones(1).as_slice(), stripped);
        }
        assert_eq!(SlotDims::new(&[1, 1, 7]).without_leading_ones(2).as_slice(), &[1, 7]);
    }
}
