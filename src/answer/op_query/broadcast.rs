//! Broadcasting of the inputs of element-wise kernels.

use super::slot_dims::SlotDims;

/// Relation of each dimension of each input to that of the output, as digits: 1 equal, 2 broadcast, 3 another length.
/// The first dimension of the output is the most significant one, missing dimensions are 0.
pub(crate) fn broadcast_pattern(output: &SlotDims, inputs: impl Iterator<Item = SlotDims>) -> Vec<u64> {
    let output = output.without_leading_ones(1);
    let output = output.as_slice();
    let relation = |input: SlotDims| {
        let input = input.without_leading_ones(1);
        let mut digits = 0;
        let missing = output.len().saturating_sub(input.as_slice().len());
        let skipped = input.as_slice().len().saturating_sub(output.len());
        for (own, dim) in input.as_slice().iter().skip(skipped).zip(&output[missing..]) {
            digits = digits * 4
                + match (*own, *dim) {
                    (own, dim) if own == dim => 1,
                    (1, _) => 2,
                    _ => 3,
                };
        }
        digits
    };
    inputs.map(relation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_broadcasting() {
        let pattern = |output: &[u64], inputs: &[&[u64]]| {
            broadcast_pattern(&SlotDims::new(output), inputs.iter().map(|dims| SlotDims::new(dims)))
        };
        let full = pattern(&[4, 8], &[&[4, 8], &[4, 8]]);
        assert_eq!(full, pattern(&[1, 9, 7], &[&[9, 7], &[1, 9, 7]]));
        assert_ne!(full, pattern(&[4, 8], &[&[4, 8], &[8]]));
        assert_ne!(pattern(&[4, 8], &[&[4, 8], &[8]]), pattern(&[4, 8], &[&[4, 8], &[4, 1]]));
    }
}
