//! Dimensions of tensors in blocked formats. In FRACTAL_NZ a matrix of r rows and c columns is stored as
//! (⌈c/c0⌉, ⌈r/r0⌉, r0, c0), after the dimensions of a batch; r0 is 16, and c0 elements take 32 bytes.

use super::{
    Bindings, TensorSlot,
    mismatch::{FormMismatch, RuleMatch},
    shape_rule::to_signed,
};
use crate::kernel::expression::{BinaryOperator, ExprNumber};
use crate::kernel::{Dtype, Tensor, TensorFormat};

fn block_width(dtype: &Dtype) -> u64 {
    32 / dtype.bytes().unwrap_or(2).clamp(1, 32)
}

/// Returns the dimensions that torch shows for a recorded tensor.
pub(super) fn logical_dims(slot: &TensorSlot, tensor: &Tensor) -> Result<Vec<u64>, FormMismatch> {
    let mut found = RuleMatch::new(Bindings::default());
    let dims = unblocked_dims(slot, tensor, to_signed(&tensor.dims), &mut found)?;
    Ok(dims.into_iter().map(i64::unsigned_abs).collect())
}

/// Does the same as [`logical_dims`] for dimensions that may be nodes of compiled expressions.
pub(super) fn unblocked_dims<N: ExprNumber>(
    slot: &TensorSlot,
    Tensor { dtype, format, .. }: &Tensor,
    dims: Vec<N>,
    found: &mut RuleMatch<N>,
) -> Result<Vec<N>, FormMismatch> {
    let (TensorFormat::Private(_), [batch @ .., c1, r1, r0, c0]) = (format, dims.as_slice()) else {
        return Ok(dims);
    };
    if !slot.formats.iter().any(|format| format == "FRACTAL_NZ") {
        return Ok(dims);
    }
    let width = block_width(dtype);
    for (dim, expected) in [(r0, 16), (c0, i64::try_from(width).unwrap_or(32))] {
        found.compare(dim, BinaryOperator::Equal, expected, || {
            format!("blocks of {r0} by {c0}, in FRACTAL_NZ those of {dtype} are 16 by {width}")
        })?;
    }
    let times = |count: &N, size: &N| N::apply(BinaryOperator::Multiply, count.clone(), size.clone());
    Ok(batch.iter().cloned().chain([times(r1, r0)?, times(c1, c0)?]).collect())
}

/// Inverse of [`logical_dims`] for a matrix in FRACTAL_NZ, padded to whole blocks.
pub(super) fn blocked_dims(dims: &[u64], dtype: &Dtype) -> Option<Vec<u64>> {
    let [batch @ .., rows, columns] = dims else { return None };
    let width = block_width(dtype);
    let blocks = [columns.div_ceil(width), rows.div_ceil(16), 16, width];
    Some(batch.iter().copied().chain(blocks).collect())
}
