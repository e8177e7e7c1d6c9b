//! Interpolation between rows that differ along one to three axes only: the axes of rows and queries, tables of the rows that
//! differ along some of them, and the value between rows.

use std::{collections::HashMap, sync::OnceLock};

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::{
    FittingForm, InputVariant, KernelIndex, KernelRows, KernelsQuery, LatencyColumn, LookupAnswer, MatchRule,
    RowForm, SlotDims, broadcast_pattern, compare_class, fitting_forms, has_blocked,
    have_different_attributes, interpolated_answer, kind_of_dims, other_dim, token_variants,
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
                    // Outputs differ in proportion to the tokens, or not at all, as the output of a slice.
                    Some(output) => [true, false].into_iter().find_map(|grows| {
                        let rows = rows.iter().filter(|(row_tokens, row)| {
                            let dims = index.first_output(&index.rows.rows[*row as usize]);
                            dims.is_none_or(|dims| {
                                let own = tokens.unwrap_or(1);
                                let [size, row_size] =
                                    [output.dims, dims].map(|dims| u128::from(dims.element_count()));
                                let is_in_proportion =
                                    size * u128::from(*row_tokens) == row_size * u128::from(own);
                                if grows { is_in_proportion } else { size == row_size }
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
    let found = interpolate(&points, [tokens as f64, 0.0, 0.0], 1)?;
    have_outputs_alike(index, &found.rows).then(|| (found.value, found.used_points(&points)))
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
                    let point = |row: &AxisRow| {
                        let value = index.rows.rows[row.row as usize].latency_in(column)?;
                        Some(ValuedPoint { at: row.at.map(|at| at as f64), value, row: row.row })
                    };
                    let points = match dims {
                        1 => bracket(index, rows, column, at[0], |row| (row.at[0], row.row)),
                        _ => rows.iter().filter_map(point).collect(),
                    };
                    if let Some(found) = interpolate(&points, at.map(|at| at as f64), dims as usize) {
                        let used = (found.value, found.used_points(&points));
                        return Some(answer(index, used, column, *fit, dims, axes));
                    }
                }
            }
        }
    }
    None
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
        Some(ValuedPoint { at: [at as f64, 0.0, 0.0], value, row: number })
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisSystem {
    /// M, K and N of a product.
    Product,
    /// Tokens and channels of a kernel that computes scales.
    Scale,
    OutputElements,
    MovedElements,
}

/// Axes that vary, in the order in which they are tried, with their bits.
const PRODUCT_GROUPS: [(u8, &str); 7] = [
    (0b001, "M"),
    (0b010, "K"),
    (0b100, "N"),
    (0b011, "M, K"),
    (0b101, "M, N"),
    (0b110, "K, N"),
    (0b111, "M, K, N"),
];

impl AxisSystem {
    pub(crate) fn groups(self) -> Vec<(u8, &'static str)> {
        match self {
            Self::Product => PRODUCT_GROUPS.to_vec(),
            Self::Scale => vec![PRODUCT_GROUPS[0], PRODUCT_GROUPS[1], PRODUCT_GROUPS[3]],
            Self::OutputElements => vec![(0b001, "output_numel")],
            Self::MovedElements => vec![(0b001, "io_numel")],
        }
    }
}

/// Coordinates of a row or a query, and what must be equal beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AxisCoordinates {
    pub(crate) at: [u64; 3],
    pub(crate) regime: Vec<u64>,
}

const NEXT: u64 = u64::MAX;

/// Returns the coordinates of inputs and outputs; `None` if they have none in this system.
fn coordinates(system: AxisSystem, inputs: &[SlotDims], outputs: &[SlotDims]) -> Option<AxisCoordinates> {
    match system {
        AxisSystem::Product => product_coordinates(inputs, outputs),
        AxisSystem::Scale => scale_coordinates(inputs, outputs),
        AxisSystem::OutputElements => {
            let [output] = outputs else { return None };
            let output = if output.as_slice().len() >= 3 { output.without_leading_ones(2) } else { *output };
            let tail = output.as_slice().get(1..).unwrap_or_default().to_vec();
            Some(AxisCoordinates { at: [output.element_count(), 0, 0], regime: tail })
        }
        AxisSystem::MovedElements => {
            let output = outputs.first()?;
            let moved = inputs.iter().chain([output]);
            let moved = moved.fold(0_u64, |sum, dims| sum.saturating_add(dims.element_count()));
            let regime = broadcast_pattern(output, inputs.iter().copied());
            Some(AxisCoordinates { at: [moved, 0, 0], regime })
        }
    }
}

/// Returns M, K and N of `(…, M, K)` and `(…, K, N)` or `(…, N, K)`; `None` for a product of matrices with another output, such
/// as that of a transposed left side.
fn product_coordinates(inputs: &[SlotDims], outputs: &[SlotDims]) -> Option<AxisCoordinates> {
    let [left, right, ..] = inputs else { return None };
    let [left, right] = [left, right].map(|dims| dims.without_leading_ones(2));
    let ([left_batch @ .., m, k], [right_batch @ .., one, other]) = (left.as_slice(), right.as_slice())
    else {
        return None;
    };
    let n = other_dim(*k, [*one, *other])?;
    let is_of_matrices = left_batch.is_empty() && right_batch.is_empty();
    if is_of_matrices
        && outputs.first().is_some_and(|output| Some(output.element_count()) != m.checked_mul(n))
    {
        return None;
    }
    let mut regime = left_batch.to_vec();
    regime.push(NEXT);
    regime.extend_from_slice(right_batch);
    Some(AxisCoordinates { at: [*m, *k, n], regime })
}

/// Returns the coordinates of a query. Where its outputs are unknown, each kind of scale is one, the usual ones first.
pub(crate) fn query_coordinates(
    system: AxisSystem,
    inputs: &[SlotDims],
    outputs: &[SlotDims],
) -> Vec<AxisCoordinates> {
    match coordinates(system, inputs, outputs) {
        Some(found) if system == AxisSystem::Scale && outputs.len() < 2 => {
            let kinds = [SCALE_PER_TOKEN, SCALE_PER_TENSOR, NO_SCALE, SCALE_PER_CHANNEL];
            kinds.map(|kind| AxisCoordinates { regime: vec![kind], ..found.clone() }).to_vec()
        }
        found => found.into_iter().collect(),
    }
}

const NO_SCALE: u64 = 0;
const SCALE_PER_TENSOR: u64 = 1;
const SCALE_PER_TOKEN: u64 = 2;
const SCALE_PER_CHANNEL: u64 = 3;
const OTHER_SCALE: u64 = 4;

fn scale_coordinates(inputs: &[SlotDims], outputs: &[SlotDims]) -> Option<AxisCoordinates> {
    let [outer @ .., channels] = inputs.first()?.as_slice() else { return None };
    let tokens = outer.iter().fold(1_u64, |product, dim| product.saturating_mul(*dim));
    let scale = outputs.get(1).map(SlotDims::element_count);
    let kind = match scale {
        None => NO_SCALE,
        Some(1) => SCALE_PER_TENSOR,
        Some(count) if count == tokens => SCALE_PER_TOKEN,
        Some(count) if count == *channels => SCALE_PER_CHANNEL,
        Some(_) => OTHER_SCALE,
    };
    Some(AxisCoordinates { at: [tokens, *channels, 0], regime: vec![kind] })
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AxisRow {
    pub(crate) at: [u64; 3],
    pub(crate) row: u32,
}

/// Rows that differ along the axes of one group only, sorted. The key is the class of the form, the regime and the
/// other axes.
type AxisTable = HashMap<Box<[u64]>, Vec<AxisRow>, FixedState>;

/// The tables of a kernel. Each is built when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct AxisTables {
    tables: [[OnceLock<AxisTable>; 8]; 4],
    classes: OnceLock<FormClasses>,
}

/// Forms that differ in ranks only.
#[derive(Debug, Default)]
struct FormClasses {
    class_of_form: Vec<u32>,
    examples: Vec<u32>,
}

impl AxisTables {
    pub(crate) fn class_examples(&self, rows: &KernelRows) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(self.classes(rows).examples.iter().copied())
    }

    fn classes(&self, rows: &KernelRows) -> &FormClasses {
        self.classes.get_or_init(|| {
            let (mut classes, mut found) = (IndexSet::<RowForm>::new(), FormClasses::default());
            for (number, form) in (0..).zip(&rows.forms) {
                let mut bare = form.clone();
                bare.inputs.iter_mut().chain(&mut bare.outputs).for_each(|tensor| tensor.rank = 0);
                // There are fewer classes than forms, whose number fits.
                let (class, is_new) = classes.insert_full(bare);
                found.examples.extend(is_new.then_some(number));
                found.class_of_form.push(u32::try_from(class).unwrap_or(u32::MAX));
            }
            found
        })
    }

    /// Returns the rows of a class that differ from these coordinates along the axes of a group only.
    pub(crate) fn rows_along(
        &self,
        rows: &KernelRows,
        system: AxisSystem,
        group: u8,
        class: u32,
        target: &AxisCoordinates,
    ) -> &[AxisRow] {
        let table = self.tables[system as usize][usize::from(group)].get_or_init(|| {
            let classes = self.classes(rows);
            let mut table = AxisTable::default();
            for (number, row) in (0..).zip(&rows.rows) {
                if !row.is_measured() {
                    continue;
                }
                let form = rows.form(row);
                let inputs: Vec<SlotDims> =
                    (0..form.inputs.len()).map(|input| rows.logical_input(row, input)).collect();
                let outputs =
                    (0..form.outputs.len()).map(|output| SlotDims::new(rows.output_dims(row, output)));
                let mut outputs: Vec<SlotDims> = outputs.collect();
                // Blocked outputs are padded.
                if system == AxisSystem::Product && has_blocked(&form.outputs) {
                    outputs.clear();
                }
                if let Some(coordinates) = coordinates(system, &inputs, &outputs) {
                    let class = classes.class_of_form[row.form as usize];
                    let along = AxisRow { at: compact(coordinates.at, group), row: number };
                    table.entry(table_key(group, class, &coordinates)).or_default().push(along);
                }
            }
            for rows in table.values_mut() {
                rows.sort_unstable_by_key(|row| (row.at, row.row));
            }
            table
        });
        table.get(&table_key(group, class, target)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns the coordinates along the axes of a group, in front.
pub(crate) fn compact(at: [u64; 3], group: u8) -> [u64; 3] {
    let mut along = [0; 3];
    for (next, axis) in (0..3).filter(|axis| group & (1 << axis) != 0).enumerate() {
        along[next] = at[axis];
    }
    along
}

fn table_key(group: u8, class: u32, coordinates: &AxisCoordinates) -> Box<[u64]> {
    let fixed = (0..3).filter(|axis| group & (1 << axis) == 0).map(|axis| coordinates.at[axis]);
    let mut key = Vec::with_capacity(coordinates.regime.len() + 4);
    key.push(u64::from(class));
    key.extend(fixed);
    key.extend_from_slice(&coordinates.regime);
    key.into_boxed_slice()
}
