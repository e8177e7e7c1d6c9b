//! Records between the sentinels of a case or of a control kernel.

use std::{collections::BTreeMap, ops::Range};

use super::RawRecord;
use crate::kernel::{Dtype, render::Manifest};

/// Returns the range of the records between the sentinels of an ordinal: of a case or of a control kernel.
pub(super) fn sentinel_range(
    manifest: &Manifest,
    records: &[RawRecord],
    ordinal: u32,
) -> Option<Range<usize>> {
    let positions = sentinel_positions(manifest, records);
    bracket(manifest, &positions, ordinal).map(|(from, to)| from..to)
}

/// Returns the range of the records of each case: between its opening and its closing sentinel.
pub(super) fn sentinel_brackets(manifest: &Manifest, records: &[RawRecord]) -> BTreeMap<u32, (usize, usize)> {
    let positions = sentinel_positions(manifest, records);
    let cases = manifest.cases.iter();
    cases.filter_map(|case| Some((case.ordinal, bracket(manifest, &positions, case.ordinal)?))).collect()
}

/// Returns the indices of the sentinels by their length.
fn sentinel_positions(manifest: &Manifest, records: &[RawRecord]) -> BTreeMap<u64, Vec<usize>> {
    let sentinels = &manifest.sentinels;
    let mut positions: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        if let (true, [Some(tensor)]) =
            (record.kernel.starts_with(&sentinels.kernel), record.inputs.as_slice())
            && let (Dtype::Int32, [length]) = (&tensor.dtype, tensor.dims.as_slice())
        {
            positions.entry(*length).or_default().push(index);
        }
    }
    positions
}

/// Returns the range between the sentinels of an ordinal, if there is exactly one of each.
fn bracket(
    manifest: &Manifest,
    positions: &BTreeMap<u64, Vec<usize>>,
    ordinal: u32,
) -> Option<(usize, usize)> {
    let single = |length: u64| match positions.get(&length).map(Vec::as_slice) {
        Some([index]) => Some(*index),
        _ => None,
    };
    let from = single(manifest.sentinels.opening(ordinal))?;
    let to = single(manifest.sentinels.closing_length(ordinal))?;
    (from < to).then_some((from + 1, to))
}
