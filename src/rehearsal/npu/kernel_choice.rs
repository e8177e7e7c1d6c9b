//! The kernel that the simulated device runs for a call, where CANN chooses between several.
//!
//! The real choice between the MatMul kernels is in a library without source, which gets shapes, types, formats, the number
//! of matrix cores and the name of the SoC. The rule here is fitted to the 20 products of two public profiles, one of FLOAT
//! and one of BF16. The choice of `torch.cat` is public. Both are stated in docs/rehearsal.md.

use crate::kernel::{
    Tensor,
    catalogue::{CatalogueEntry, EntryForm},
    render::{ManifestCase, RecordedTensor},
};

/// Pairs of kernels: for small and for large products.
const PRODUCTS: [[&str; 2]; 2] = [["MatMulV2", "MatMulV3"], ["BatchMatMulV2", "BatchMatMulV3"]];
/// Multiplications for each matrix core from which a product is large.
const LARGE_PRODUCT: f64 = 33_554_432.0;
/// Least number of rows and of columns of the output of a large product.
const LARGE_SIDE: u64 = 128;
/// Kernels of `torch.cat`: for few tensors, and for many along the first dimension.
const CONCATENATIONS: [&str; 2] = ["ConcatD", "ConcatDV2"];
/// Greatest number of tensors that the first of these kernels takes.
const FEW_TENSORS: usize = 32;
/// Multiple of bytes that the rows of tensors must have for the second.
const ROW_ALIGNMENT: u64 = 32;

/// Returns the type of the kernel that a call runs as on a device with so many matrix cores. Launches outside of graphs are
/// recorded by their type, under whatever name the row of the case was recorded.
pub(super) fn kernel_of_call<'a>(
    entry: &'a CatalogueEntry,
    form: &'a EntryForm,
    case: &ManifestCase,
    cube_cores: u32,
) -> &'a str {
    let kernel = form.runs_as.as_ref().unwrap_or(&entry.kernel).as_str();
    if let Some([small, large]) = PRODUCTS.into_iter().find(|pair| pair.contains(&kernel)) {
        return if is_large_product(case, LARGE_PRODUCT * f64::from(cube_cores)) { large } else { small };
    }
    if CONCATENATIONS.contains(&kernel) {
        return CONCATENATIONS[usize::from(has_many_aligned_tensors(case))];
    }
    kernel
}

/// Returns true for a product with enough multiplications and a wide output. One with a square operand counts as small.
fn is_large_product(case: &ManifestCase, least: f64) -> bool {
    let Some(output) = case.record.outputs.first().and_then(RecordedTensor::tensor) else { return false };
    let is_narrow = output.dims.iter().rev().take(2).any(|side| *side < LARGE_SIDE);
    let operands = case.record.inputs.iter().flatten().filter_map(RecordedTensor::tensor);
    let is_square = |tensor: Tensor| matches!(*tensor.dims, [.., rows, columns] if rows == columns);
    !is_narrow && case.record.flops / 2.0 >= least && !operands.into_iter().any(is_square)
}

fn has_many_aligned_tensors(case: &ManifestCase) -> bool {
    let tensors = case.record.inputs.iter().flatten().filter_map(RecordedTensor::tensor);
    let tensors: Vec<Tensor> = tensors.collect();
    let output = case.record.outputs.first().and_then(RecordedTensor::tensor);
    let (Some(first), Some(output)) = (tensors.first(), output) else { return false };
    let is_along_first = first.dims.first() != output.dims.first();
    let is_aligned = |tensor: &Tensor| {
        let row = Tensor { dims: tensor.dims.last().copied().into_iter().collect(), ..tensor.clone() };
        row.bytes().is_multiple_of(ROW_ALIGNMENT)
    };
    tensors.len() > FEW_TENSORS && is_along_first && tensors.iter().all(is_aligned)
}
