//! The axes of rows and queries, and tables of the rows that differ along some axes only.

use std::{collections::HashMap, sync::OnceLock};

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::{KernelRows, RowForm, SlotDims, broadcast_pattern, has_blocked};

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
    let n = match (one == k, other == k) {
        (true, _) => *other,
        (false, true) => *one,
        (false, false) => return None,
    };
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
    let found = coordinates(system, inputs, outputs);
    match found {
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

/// Returns tokens and channels of the first input, and the kind of the scale.
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
#[derive(Debug)]
struct FormClasses {
    class_of_form: Vec<u32>,
    examples: Vec<u32>,
}

impl FormClasses {
    fn new(forms: &IndexSet<RowForm>) -> Self {
        let mut classes: IndexSet<RowForm> = IndexSet::new();
        let mut found = Self { class_of_form: Vec::with_capacity(forms.len()), examples: Vec::new() };
        for (number, form) in (0..).zip(forms) {
            let mut bare = form.clone();
            bare.inputs.iter_mut().chain(&mut bare.outputs).for_each(|tensor| tensor.rank = 0);
            // There are fewer classes than forms, whose number fits.
            let (class, is_new) = classes.insert_full(bare);
            found.examples.extend(is_new.then_some(number));
            found.class_of_form.push(u32::try_from(class).unwrap_or(u32::MAX));
        }
        found
    }
}

impl AxisTables {
    pub(crate) fn class_examples(&self, rows: &KernelRows) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(self.classes(rows).examples.iter().copied())
    }

    fn classes(&self, rows: &KernelRows) -> &FormClasses {
        self.classes.get_or_init(|| FormClasses::new(&rows.forms))
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
