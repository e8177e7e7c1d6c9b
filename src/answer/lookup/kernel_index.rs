//! Tables by which the rows of a kernel are found. Each is built when it is first needed.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, Hasher as _},
    sync::OnceLock,
};

use foldhash::fast::FixedState;

use super::{AxisTables, IndexedRow, InputSlot, KernelRows, KernelTraits, SlotDims};

const MAX_INPUTS: usize = 40;

/// Rows by a key of dimensions, each with a coordinate such as its number of tokens, by which it is sorted.
pub(crate) type RowGroups<K = Box<[u64]>> = HashMap<K, Vec<(u64, u32)>, FixedState>;

/// Place of the number of tokens in a key. No tensor has so many.
const TOKENS: u64 = u64::MAX;
const NEXT_INPUT: u64 = u64::MAX - 1;

pub(crate) fn group_rows<K: Hash + Eq, I: IntoIterator<Item = (K, u64)>>(
    rows: &KernelRows,
    keys: impl Fn(&IndexedRow) -> I,
) -> RowGroups<K> {
    let mut groups = RowGroups::default();
    for (number, row) in (0..).zip(&rows.rows) {
        for (key, coordinate) in keys(row) {
            groups.entry(key).or_default().push((coordinate, number));
        }
    }
    groups.values_mut().for_each(|rows| rows.sort_unstable());
    groups
}

#[derive(Debug)]
pub(crate) struct KernelIndex {
    pub(crate) rows: KernelRows,
    pub(crate) traits: KernelTraits,
    /// For each number of compared inputs: the rows by the hash of these inputs.
    exact: Vec<OnceLock<RowGroups<u64>>>,
    tokens: Vec<OnceLock<RowGroups>>,
    outputs: OnceLock<RowGroups>,
    pub(crate) axes: AxisTables,
    pub(crate) caches: OnceLock<RowGroups>,
}

impl KernelIndex {
    pub(crate) fn new(rows: KernelRows) -> Self {
        Self {
            traits: KernelTraits::of_kernel(&rows.kernel),
            rows,
            exact: (0..=MAX_INPUTS).map(|_| OnceLock::new()).collect(),
            tokens: (0..=MAX_INPUTS).map(|_| OnceLock::new()).collect(),
            outputs: OnceLock::new(),
            axes: AxisTables::default(),
            caches: OnceLock::new(),
        }
    }

    /// Returns the dimensions of the first output of a row; `None` if it is not recorded, or padded to blocks.
    pub(crate) fn first_output(&self, row: &IndexedRow) -> Option<SlotDims> {
        let output = self.rows.form(row).outputs.first()?;
        output.format.private().is_none().then(|| SlotDims::new(self.rows.output_dims(row, 0)))
    }

    fn rows_of<'i>(
        &'i self,
        found: Option<&'i Vec<(u64, u32)>>,
    ) -> impl Iterator<Item = (u32, &'i IndexedRow)> + use<'i> {
        found.into_iter().flatten().map(|(_, row)| (*row, &self.rows.rows[*row as usize]))
    }

    fn leading_inputs(&self, row: &IndexedRow, count: usize) -> Option<Vec<SlotDims>> {
        let has_inputs = self.rows.form(row).inputs.len() >= count;
        has_inputs.then(|| (0..count).map(|input| self.rows.logical_input(row, input)).collect())
    }

    /// Returns the rows whose first output has these dimensions, but for ones in front.
    pub(crate) fn rows_with_output(&self, dims: &SlotDims) -> impl Iterator<Item = (u32, &IndexedRow)> {
        let key = |dims: &SlotDims| -> Box<[u64]> { dims.without_leading_ones(1).as_slice().into() };
        let outputs = self.outputs.get_or_init(|| {
            group_rows(&self.rows, |row| {
                let has_output = !self.rows.form(row).outputs.is_empty();
                has_output.then(|| (key(&SlotDims::new(self.rows.output_dims(row, 0))), 0))
            })
        });
        self.rows_of(outputs.get(&*key(dims)))
    }

    /// Returns the rows whose first inputs may have these dimensions: all that have, and rarely another one.
    pub(crate) fn rows_with_inputs(
        &self,
        slots: &[InputSlot<'_>],
    ) -> impl Iterator<Item = (u32, &IndexedRow)> {
        let count = slots.len();
        let table = self.exact.get(count).map(|table| {
            table.get_or_init(|| {
                group_rows(&self.rows, |row| {
                    Some((self.exact_key(self.leading_inputs(row, count)?.into_iter()), 0))
                })
            })
        });
        let key = self.exact_key(slots.iter().map(|slot| slot.dims));
        self.rows_of(table.and_then(|table| table.get(&key)))
    }

    fn exact_key(&self, inputs: impl Iterator<Item = SlotDims>) -> u64 {
        let state = FixedState::default();
        let mut hasher = state.build_hasher();
        for (slot, dims) in inputs.enumerate() {
            let dims = self.traits.canonical_slot(slot, &dims);
            dims.as_slice().iter().chain([&NEXT_INPUT]).for_each(|dim| hasher.write_u64(*dim));
        }
        hasher.finish()
    }

    /// Returns the rows of a form whose first inputs differ from these at most in the number of tokens, sorted by it.
    pub(crate) fn rows_by_tokens(&self, form: u32, slots: &[InputSlot<'_>]) -> Vec<&[(u64, u32)]> {
        let Some(table) = self.tokens.get(slots.len()) else { return Vec::new() };
        let table = table.get_or_init(|| {
            group_rows(&self.rows, |row| {
                let inputs = self.leading_inputs(row, slots.len()).filter(|_| row.is_measured());
                inputs.map(|inputs| self.token_keys(row.form, &inputs)).unwrap_or_default()
            })
        });
        let dims: Vec<SlotDims> = slots.iter().map(|slot| slot.dims).collect();
        let keys = self.token_keys(form, &dims);
        keys.iter().filter_map(|(key, _)| table.get(&**key)).map(Vec::as_slice).collect()
    }

    /// Returns the keys of inputs with the number of tokens: the first dimension of the first input, there and in all
    /// inputs that begin with the same number. That number may be another dimension by chance, so that a second key has
    /// the tokens in the first input only. Weights have no tokens.
    fn token_keys(&self, form: u32, slots: &[SlotDims]) -> Vec<(Box<[u64]>, u64)> {
        let Some(&tokens) = slots.first().and_then(|slot| slot.as_slice().first()) else { return Vec::new() };
        let key = |everywhere: bool| -> (Box<[u64]>, bool) {
            let mut key = Vec::with_capacity(2 + slots.len() * 4);
            key.push(u64::from(form));
            let mut has_more = false;
            for (slot, dims) in slots.iter().enumerate() {
                let mut dims = *dims;
                if let Some(first) = dims.as_mut_slice().first_mut().filter(|first| **first == tokens)
                    && (slot == 0 || everywhere)
                {
                    *first = TOKENS;
                    has_more |= slot > 0;
                }
                if slot > 0 {
                    self.traits.sort_weight(slot, &mut dims);
                }
                key.extend_from_slice(dims.as_slice());
                key.push(NEXT_INPUT);
            }
            (key.into_boxed_slice(), has_more)
        };
        let (first, has_more) = key(!self.traits.is_product);
        let mut keys = vec![(first, tokens)];
        if has_more {
            keys.push((key(false).0, tokens));
        }
        keys
    }
}
