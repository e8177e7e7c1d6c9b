//! The rows nearest to a query, which a miss shows.

use super::{answer::NearestRow, kernel_index::KernelIndex, query::InputSlot, slot_dims::SlotDims};

/// Distance of another element type, as much as a factor of about 20 of one dimension.
const DTYPE_DISTANCE: f64 = 3.0;
/// Distance of another number of inputs or dimensions.
const RANK_DISTANCE: f64 = 20.0;

/// Returns the nearest rows of a kernel, by the logarithms of the ratios of dimensions.
pub(crate) fn nearest_rows(index: &KernelIndex, slots: &[InputSlot<'_>], limit: usize) -> Vec<NearestRow> {
    let rows = &index.rows;
    let mut found: Vec<(f64, usize)> = rows
        .rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let form = rows.form(row);
            let missing = slots.len().saturating_sub(form.inputs.len());
            #[expect(clippy::cast_precision_loss, reason = "a few inputs")]
            let mut distance = missing as f64 * RANK_DISTANCE;
            for (input, (slot, tensor)) in slots.iter().zip(&form.inputs).enumerate() {
                let recorded = rows.logical_input(row, input);
                distance += dims_distance(index, input, &slot.dims, &recorded);
                if slot.dtype.is_some_and(|dtype| !index.traits.match_dtype(dtype, &tensor.dtype).0) {
                    distance += DTYPE_DISTANCE;
                }
            }
            (distance, number)
        })
        .collect();
    let count = limit.min(found.len());
    if count < found.len() {
        found.select_nth_unstable_by(count, |one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        found.truncate(count);
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let row = |(distance, number): (f64, usize)| {
        let row = &rows.rows[number];
        NearestRow {
            kernel: rows.kernel.clone(),
            line: row.line,
            inputs: rows.input_tensors(row),
            latency: row.latency().map(|(_, latency)| super::answer::Micros(latency)),
            distance,
        }
    };
    found.into_iter().map(row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a distance for people")]
fn dims_distance(index: &KernelIndex, input: usize, query: &SlotDims, row: &SlotDims) -> f64 {
    let [query, row] = [query, row].map(|dims| index.traits.canonical_slot(input, dims));
    if query.as_slice().len() != row.as_slice().len() {
        return RANK_DISTANCE;
    }
    let pairs = query.as_slice().iter().zip(row.as_slice());
    pairs.map(|(one, other)| (((*one).max(1) as f64) / ((*other).max(1) as f64)).ln().abs()).sum()
}
