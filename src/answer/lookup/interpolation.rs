//! Interpolation between rows that differ along one to three axes only.

use super::{
    AxisRow, AxisSystem, FittingForm, InputVariant, KernelIndex, KernelsQuery, LatencyColumn, LookupAnswer,
    MatchRule, SlotDims, as_coordinate, compact, compare_class, fitting_forms, have_different_attributes,
    interpolated_answer, kind_of_dims, query_coordinates, token_variants,
};
use crate::{
    answer::op_mapping::GenericAxis,
    base::stats::simplex_interpolation::{ValuedPoint, interpolate},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InterpolationKind {
    #[default]
    Kernel,
    Scale,
    Elementwise,
    Disabled,
}

/// Maximum number of interpolated dimensions where the mapping states none.
pub(crate) const MAX_DIMS: u8 = 3;

/// Interpolates between the rows of a kernel. Columns of latencies are not mixed: the preferred one is tried with all
/// axes before the next one.
pub(crate) fn interpolate_rows(
    index: &KernelIndex,
    variants: &[InputVariant<'_>],
    query: &KernelsQuery<'_>,
) -> Option<LookupAnswer> {
    let policy = index.rows.policy;
    let limit = policy.max_interpolation_dim.unwrap_or(MAX_DIMS);
    let system = match query.interpolation {
        InterpolationKind::Disabled => return None,
        InterpolationKind::Elementwise => Some(AxisSystem::MovedElements),
        InterpolationKind::Scale => Some(AxisSystem::Scale),
        InterpolationKind::Kernel if index.traits.is_product => Some(AxisSystem::Product),
        InterpolationKind::Kernel if policy.generic_axis == GenericAxis::OutputElements => {
            Some(AxisSystem::OutputElements)
        }
        InterpolationKind::Kernel => None,
    };
    index.rows.columns().into_iter().find_map(|column| match system {
        Some(system) => along_axes(index, variants, query, system, limit, column),
        None if limit > 0 => along_tokens(index, variants, query, column),
        None => None,
    })
}

fn along_tokens(
    index: &KernelIndex,
    variants: &[InputVariant<'_>],
    query: &KernelsQuery<'_>,
    column: LatencyColumn,
) -> Option<LookupAnswer> {
    for variant in token_variants(variants) {
        let tokens = variant.slots.first().and_then(|slot| slot.dims.as_slice().first().copied());
        for fit in fitting_forms(index, &variant.slots, query) {
            for rows in index.rows_by_tokens(fit.form, &variant.slots) {
                let found = match query.output {
                    None => interpolate_tokens(index, rows, column, tokens?),
                    Some(output) => [true, false].into_iter().find_map(|grows| {
                        let rows = rows.iter().filter(|(row_tokens, row)| {
                            let dims = index.first_output(&index.rows.rows[*row as usize]);
                            dims.is_none_or(|dims| {
                                let (sizes, tokens) =
                                    ([output.dims, dims], [tokens.unwrap_or(1), *row_tokens]);
                                has_growth(grows, sizes, tokens)
                            })
                        });
                        interpolate_tokens(index, &rows.copied().collect::<Vec<_>>(), column, tokens?)
                    }),
                };
                if let Some(found) = found {
                    return Some(answer(index, found, column, fit, 1, "axis 0"));
                }
            }
        }
    }
    None
}

/// Interpolated value, and the rows that it is from with their coordinates.
type UsedPoints = (f64, Vec<(u32, [f64; 3])>);

/// Interpolates between the rows on both sides of a number of tokens, whose outputs are alike.
fn interpolate_tokens(
    index: &KernelIndex,
    rows: &[(u64, u32)],
    column: LatencyColumn,
    tokens: u64,
) -> Option<UsedPoints> {
    let points = bracket(index, rows, column, tokens, |row| *row);
    let found = interpolate(&points, [as_coordinate(tokens), 0.0, 0.0], 1)?;
    have_outputs_alike(index, &found.rows).then(|| (found.value, found.used_points(&points)))
}

/// Returns true if two outputs differ in proportion to the tokens, or not at all, as the output of a slice.
fn has_growth(grows: bool, outputs: [SlotDims; 2], tokens: [u64; 2]) -> bool {
    let [one, other] = outputs.map(|dims| u128::from(dims.element_count()));
    if grows { one * u128::from(tokens[1]) == other * u128::from(tokens[0]) } else { one == other }
}

/// Returns true if the first outputs of rows are of one size, or as large as their tokens are many: the outputs of
/// slices are neither.
fn have_outputs_alike(index: &KernelIndex, rows: &[u32]) -> bool {
    let sizes = |number: &u32| {
        let row = &index.rows.rows[*number as usize];
        let form = index.rows.form(row);
        let tokens = form.inputs.first().map(|_| index.rows.logical_input(row, 0));
        let tokens = tokens.and_then(|dims| dims.as_slice().first().copied()).unwrap_or(1);
        let output =
            form.outputs.first().map(|_| SlotDims::new(index.rows.output_dims(row, 0)).element_count());
        (u128::from(tokens), output.map(u128::from))
    };
    let Some((first_tokens, first)) = rows.first().map(sizes) else { return true };
    let mut others = rows.iter().map(sizes);
    others.clone().all(|(_, output)| output == first)
        || others.all(|(tokens, output)| match (first, output) {
            (Some(first), Some(output)) => first * tokens == output * first_tokens,
            _ => false,
        })
}

fn along_axes(
    index: &KernelIndex,
    variants: &[InputVariant<'_>],
    query: &KernelsQuery<'_>,
    system: AxisSystem,
    limit: u8,
    column: LatencyColumn,
) -> Option<LookupAnswer> {
    let tables = &index.axes;
    // Outputs of operators come from a framework, which may have divided or joined them.
    let outputs = match system {
        AxisSystem::Product if query.output.is_none() => &[][..],
        _ => query.outputs.as_slice(),
    };
    for variant in variants {
        let inputs: Vec<SlotDims> = variant.slots.iter().map(|slot| slot.dims).collect();
        let mut fits: Vec<FittingForm> = tables
            .class_examples(&index.rows)
            .filter_map(|(class, form)| {
                compare_class(index, form, &variant.slots, query)
                    .map(|fit| FittingForm { form: class, ..fit })
            })
            .collect();
        let class_forms =
            tables.class_examples(&index.rows).filter(|(class, _)| fits.iter().any(|fit| fit.form == *class));
        if have_different_attributes(index, class_forms.map(|(_, form)| form)) {
            continue;
        }
        fits.sort_by_key(|fit| (fit.is_relaxed, fit.format_rank, fit.form));
        for target in query_coordinates(system, &inputs, outputs) {
            for (group, axes) in system.groups() {
                let dims = group.count_ones();
                if dims > u32::from(limit) {
                    continue;
                }
                let at = compact(target.at, group);
                for fit in &fits {
                    let rows = tables.rows_along(&index.rows, system, group, fit.form, &target);
                    let points = if dims == 1 {
                        bracket(index, rows, column, at[0], |row| (row.at[0], row.row))
                    } else {
                        all_points(index, rows, column)
                    };
                    if let Some(found) = interpolate(&points, at.map(as_coordinate), dims as usize) {
                        let used = (found.value, found.used_points(&points));
                        return Some(answer(index, used, column, *fit, dims, axes));
                    }
                }
            }
        }
    }
    None
}

fn all_points(index: &KernelIndex, rows: &[AxisRow], column: LatencyColumn) -> Vec<ValuedPoint> {
    let point = |row: &AxisRow| {
        let value = index.rows.rows[row.row as usize].latency_in(column)?;
        Some(ValuedPoint { at: row.at.map(as_coordinate), value, row: row.row })
    };
    rows.iter().filter_map(point).collect()
}

/// Returns the points at the nearest coordinates on both sides of a target, of rows that are sorted by coordinate.
fn bracket<T>(
    index: &KernelIndex,
    rows: &[T],
    column: LatencyColumn,
    target: u64,
    key: impl Fn(&T) -> (u64, u32),
) -> Vec<ValuedPoint> {
    let point = |row: &T| {
        let (at, number) = key(row);
        let value = index.rows.rows[number as usize].latency_in(column)?;
        Some(ValuedPoint { at: [as_coordinate(at), 0.0, 0.0], value, row: number })
    };
    let (below, above) = rows.split_at(rows.partition_point(|row| key(row).0 < target));
    let sides: [&mut dyn Iterator<Item = &T>; 2] = [&mut above.iter(), &mut below.iter().rev()];
    sides.into_iter().flat_map(|side| nearest_points(side.filter_map(point), |point| point.at[0])).collect()
}

/// Returns the first point and those behind it at the same coordinate.
pub(crate) fn nearest_points<P>(points: impl Iterator<Item = P>, at: impl Fn(&P) -> f64) -> Vec<P> {
    let mut points = points.peekable();
    let Some(nearest) = points.peek().map(&at) else { return Vec::new() };
    points.take_while(|point| at(point).total_cmp(&nearest).is_eq()).collect()
}

fn answer(
    index: &KernelIndex,
    (value, mut rows): UsedPoints,
    column: LatencyColumn,
    fit: FittingForm,
    dims: u32,
    axes: &'static str,
) -> LookupAnswer {
    let (kind, confidence) = kind_of_dims(dims);
    rows.sort_unstable_by_key(|(row, _)| *row);
    let rule = MatchRule { has_relaxed_dtype: fit.is_relaxed, axes, ..MatchRule::of_kind(kind) };
    let confidence = confidence * if fit.is_relaxed { 0.9 } else { 1.0 };
    interpolated_answer(&index.rows, value, &rows, column, (rule, confidence))
}
