//! Tables by which the rows of a kernel are found. Each is built when it is first needed.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::OnceLock,
};

use super::{
    axis_tables::AxisTables,
    cache_rows::CacheTable,
    kernel_rows::{IndexedRow, KernelRows},
    query::InputSlot,
    rules::KernelTraits,
    slot_dims::SlotDims,
};

const MAX_INPUTS: usize = 40;

/// The rows of a kernel with the tables by which they are found.
#[derive(Debug)]
pub(crate) struct KernelIndex {
    pub(crate) rows: KernelRows,
    pub(crate) traits: KernelTraits,
    /// By the number of compared inputs.
    exact: Vec<OnceLock<ExactTable>>,
    tokens: Vec<OnceLock<TokenTable>>,
    axes: AxisTables,
    caches: CacheTable,
    outputs: OnceLock<HashMap<SlotDims, Vec<u32>, foldhash::fast::FixedState>>,
}

/// Rows by the hash of their first inputs.
#[derive(Debug, Default)]
struct ExactTable {
    /// Part of `order` with the rows of a hash.
    buckets: HashMap<u64, (u32, u32), BuildHasherDefault<HashIsKey>>,
    order: Vec<u32>,
}

/// Rows that differ in the number of tokens only, by number of tokens. The key is the form, then the dimensions of all
/// compared inputs, with [`TOKENS`] in place of the number of tokens.
type TokenTable = HashMap<Box<[u64]>, Vec<(u64, u32)>, foldhash::fast::FixedState>;

/// Place of the number of tokens in a key. No tensor has so many.
const TOKENS: u64 = u64::MAX;
/// Separator of inputs in a key.
const NEXT_INPUT: u64 = u64::MAX - 1;

impl KernelIndex {
    pub(crate) fn new(rows: KernelRows) -> Self {
        Self {
            traits: KernelTraits::of_kernel(&rows.kernel),
            rows,
            exact: (0..=MAX_INPUTS).map(|_| OnceLock::new()).collect(),
            tokens: (0..=MAX_INPUTS).map(|_| OnceLock::new()).collect(),
            axes: AxisTables::default(),
            caches: CacheTable::default(),
            outputs: OnceLock::new(),
        }
    }

    pub(crate) const fn axis_tables(&self) -> &AxisTables {
        &self.axes
    }

    pub(crate) const fn cache_table(&self) -> &CacheTable {
        &self.caches
    }

    /// Returns the dimensions of the first output of a row; `None` if it is not recorded, or padded to blocks.
    pub(crate) fn first_output(&self, row: &IndexedRow) -> Option<SlotDims> {
        let output = self.rows.form(row).outputs.first()?;
        output.format.private().is_none().then(|| SlotDims::new(self.rows.output_dims(row, 0)))
    }

    /// Returns the rows whose first output has these dimensions, but for ones in front.
    pub(crate) fn rows_with_output(&self, dims: &SlotDims) -> impl Iterator<Item = (u32, &IndexedRow)> {
        let outputs = self.outputs.get_or_init(|| {
            let mut outputs: HashMap<SlotDims, Vec<u32>, foldhash::fast::FixedState> = HashMap::default();
            for (number, row) in (0..).zip(&self.rows.rows) {
                if !self.rows.form(row).outputs.is_empty() {
                    let dims = SlotDims::new(self.rows.output_dims(row, 0)).without_leading_ones(1);
                    outputs.entry(dims).or_default().push(number);
                }
            }
            outputs
        });
        let found = outputs.get(&dims.without_leading_ones(1)).map(Vec::as_slice).unwrap_or_default();
        found.iter().map(|row| (*row, &self.rows.rows[*row as usize]))
    }

    /// Returns the rows whose first inputs may have these dimensions: all that have, and rarely another one.
    pub(crate) fn rows_with_inputs(
        &self,
        slots: &[InputSlot<'_>],
    ) -> impl Iterator<Item = (u32, &IndexedRow)> {
        let count = slots.len();
        let table = self.exact.get(count).map(|table| table.get_or_init(|| self.build_exact(count)));
        let bucket = table.and_then(|table| {
            let key = self.hash_inputs(slots.iter().map(|slot| slot.dims));
            let (start, length) = *table.buckets.get(&key)?;
            table.order.get(start as usize..(start + length) as usize)
        });
        bucket.unwrap_or_default().iter().map(|row| (*row, &self.rows.rows[*row as usize]))
    }

    fn build_exact(&self, count: usize) -> ExactTable {
        let mut hashes: Vec<(u64, u32)> = Vec::with_capacity(self.rows.rows.len());
        for (number, row) in (0..).zip(&self.rows.rows) {
            if self.rows.form(row).inputs.len() >= count {
                let inputs = (0..count).map(|input| self.rows.logical_input(row, input));
                hashes.push((self.hash_inputs(inputs), number));
            }
        }
        hashes.sort_unstable();
        let mut table = ExactTable { order: Vec::with_capacity(hashes.len()), ..ExactTable::default() };
        for group in hashes.chunk_by(|one, other| one.0 == other.0) {
            // The number of rows fits.
            let start = u32::try_from(table.order.len()).unwrap_or(u32::MAX);
            let length = u32::try_from(group.len()).unwrap_or_default();
            table.buckets.insert(group[0].0, (start, length));
            table.order.extend(group.iter().map(|(_, row)| row));
        }
        table
    }

    fn hash_inputs(&self, inputs: impl Iterator<Item = SlotDims>) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15;
        for (slot, dims) in inputs.enumerate() {
            for dim in self.traits.canonical_slot(slot, &dims).as_slice() {
                hash = mix(hash, *dim);
            }
            hash = mix(hash, NEXT_INPUT);
        }
        hash
    }

    /// Returns the rows of a form whose first inputs differ from these at most in the number of tokens, sorted by it.
    pub(crate) fn rows_by_tokens(&self, form: u32, slots: &[InputSlot<'_>]) -> Vec<&[(u64, u32)]> {
        let Some(table) = self.tokens.get(slots.len()) else { return Vec::new() };
        let table = table.get_or_init(|| self.build_tokens(slots.len()));
        let dims: Vec<SlotDims> = slots.iter().map(|slot| slot.dims).collect();
        let keys = self.token_keys(form, &dims);
        keys.iter().filter_map(|(key, _)| table.get(&**key)).map(Vec::as_slice).collect()
    }

    fn build_tokens(&self, count: usize) -> TokenTable {
        let mut table = TokenTable::default();
        let mut dims = Vec::with_capacity(count);
        for (number, row) in (0..).zip(&self.rows.rows) {
            if self.rows.form(row).inputs.len() >= count && row.is_measured() {
                dims.clear();
                dims.extend((0..count).map(|input| self.rows.logical_input(row, input)));
                for (key, tokens) in self.token_keys(row.form, &dims) {
                    table.entry(key).or_default().push((tokens, number));
                }
            }
        }
        for rows in table.values_mut() {
            rows.sort_unstable();
        }
        table
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

fn mix(hash: u64, number: u64) -> u64 {
    let product = u128::from(hash ^ number) * 0x2d35_8dcc_aa6c_78a5_u128;
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded.rotate_left(23) ^ 0x8bb8_4b93_962e_acc9
}

#[derive(Clone, Copy, Debug, Default)]
struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
