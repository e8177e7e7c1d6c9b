//! The rows of one kernel in memory: dimensions, forms, latencies and lines, and the tables by which they are found, each of which is
//! built when it is first needed.
//!
//! A form is everything of a row but its dimensions, and most rows of a table share a few forms. It is found by the
//! bytes of its cells, so that loading parses each form once.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, Hasher as _},
    sync::OnceLock,
};

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::{AttentionTable, AxisTables, InputSlot, KernelTraits, LatencyColumn, MissReason};
use crate::{
    answer::op_mapping::KernelPolicy,
    base::command_error::CommandError,
    database::{DatabaseError, KernelCsv, columns, row_cases::RowColumns},
    kernel::{
        CaseAttributes, Dtype, EP_SIZE, KernelName, NoKernelDuration, Tensor, TensorFormat, Verdict,
        WORLD_SIZE, attention_attribute, parse_kernel_micros,
    },
};

/// Attributes without which shapes do not determine the work of a kernel.
const WORK_ATTRIBUTES: [&str; 7] = [
    EP_SIZE,
    WORLD_SIZE,
    attention_attribute::QUERY_LENGTHS,
    attention_attribute::KV_LENGTHS,
    attention_attribute::AVG_SEQ_LEN,
    attention_attribute::VALID_BLOCKS,
    "Runtime sparse_indices_valid_count",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorForm {
    pub(crate) dtype: Dtype,
    pub(crate) format: TensorFormat,
    pub(crate) rank: usize,
}

/// Everything that rows of different sizes share. Scalars beside tensors are left out, as in signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RowForm {
    pub(crate) inputs: Vec<TensorForm>,
    pub(crate) outputs: Vec<TensorForm>,
    pub(crate) attributes: CaseAttributes,
}

pub(crate) fn has_blocked(tensors: &[TensorForm]) -> bool {
    tensors.iter().any(|tensor| tensor.format.private().is_some())
}

impl RowForm {
    pub(crate) fn work_attributes(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().map(|(name, _)| name).filter(|name| WORK_ATTRIBUTES.contains(name))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedRow {
    pub(crate) form: u32,
    first_dim: u32,
    /// Line in the file, from 1.
    pub(crate) line: u32,
    /// Latencies in microseconds by [`LatencyColumn`]; 0 without one.
    latencies: [f64; LatencyColumn::COUNT],
    pub(crate) verdict: Option<Verdict>,
    is_hidden: bool,
    /// True if a cell of a latency is no [duration](parse_kernel_micros); the row has no latency then.
    has_wrong_duration: bool,
}

impl IndexedRow {
    /// Returns true if a column has a latency, also of a hidden row: tables by which rows are found have these as well.
    pub(crate) fn is_measured(&self) -> bool {
        self.latencies.iter().any(|latency| *latency > 0.0)
    }

    /// Returns the latency in microseconds, from the first column that has one; `None` for a hidden row.
    pub(crate) fn latency(&self) -> Option<(LatencyColumn, f64)> {
        LatencyColumn::ALL.into_iter().find_map(|column| Some((column, self.latency_in(column)?)))
    }

    /// Returns the reason why a row without a latency has none.
    pub(crate) const fn reason_without_latency(&self) -> MissReason {
        if self.has_wrong_duration { MissReason::WrongDuration(self.line) } else { MissReason::NotMeasured }
    }

    pub(crate) fn latency_in(&self, column: LatencyColumn) -> Option<f64> {
        Some(self.latencies[column as usize]).filter(|latency| *latency > 0.0 && !self.is_hidden)
    }
}

#[derive(Debug)]
pub(crate) struct KernelRows {
    pub(crate) kernel: KernelName,
    pub(crate) policy: KernelPolicy,
    pub(crate) forms: IndexSet<RowForm>,
    pub(crate) rows: Vec<IndexedRow>,
    dims: Vec<u64>,
}

impl KernelRows {
    /// Reads the rows of a table. Fails with [`DatabaseError::MissingColumn`].
    pub(crate) fn load(
        kernel: &KernelName,
        table: &KernelCsv,
        policy: KernelPolicy,
        reads_verdicts: bool,
    ) -> Result<Self, DatabaseError> {
        let cases = RowColumns::from_table(table)?;
        let mut reader = RowReader {
            rows: Self {
                kernel: kernel.clone(),
                policy,
                forms: IndexSet::new(),
                rows: Vec::with_capacity(table.len()),
                dims: Vec::with_capacity(table.len() * 8),
            },
            cases: &cases,
            table,
            known: HashMap::default(),
            key: Vec::new(),
        };
        let case_columns = cases.case_columns();
        let latencies = LatencyReader::new(table, policy, reads_verdicts);
        let picked: Vec<usize> =
            case_columns.iter().copied().chain(latencies.columns.iter().copied()).collect();
        table.for_each_cells(&picked, |row, cells| {
            let (case, measured) = cells.split_at(case_columns.len());
            let (latencies, verdict) = latencies.read(measured);
            let has_wrong_duration = latencies.is_err();
            let latencies = latencies.unwrap_or_default();
            let start = reader.rows.dims.len();
            let form = reader.read_form(row, case);
            let places = u32::try_from(start).ok().zip(u32::try_from(table.row_line(row)).ok());
            if let (Some(form), Some((first_dim, line))) = (form, places) {
                let is_hidden = false;
                let row =
                    IndexedRow { form, first_dim, line, latencies, verdict, is_hidden, has_wrong_duration };
                reader.rows.rows.push(row);
            } else {
                reader.rows.dims.truncate(start);
            }
        });
        Ok(reader.rows)
    }

    pub(crate) fn set_hidden(&mut self, line: u32, is_hidden: bool) {
        if let Ok(number) = self.rows.binary_search_by_key(&line, |row| row.line) {
            self.rows[number].is_hidden = is_hidden;
        }
    }

    pub(crate) const fn columns(&self) -> [LatencyColumn; LatencyColumn::COUNT] {
        if self.policy.prefers_profiling {
            [LatencyColumn::Production, LatencyColumn::Replay, LatencyColumn::Profile]
        } else {
            LatencyColumn::ALL
        }
    }

    pub(crate) fn form(&self, row: &IndexedRow) -> &RowForm {
        &self.forms[row.form as usize]
    }

    pub(crate) fn input_dims(&self, row: &IndexedRow, input: usize) -> &[u64] {
        let inputs = &self.form(row).inputs;
        let start = row.first_dim as usize + inputs[..input].iter().map(|form| form.rank).sum::<usize>();
        &self.dims[start..start + inputs[input].rank]
    }

    pub(crate) fn output_dims(&self, row: &IndexedRow, output: usize) -> &[u64] {
        let form = self.form(row);
        let ranks = form.inputs.iter().chain(&form.outputs[..output]).map(|form| form.rank);
        let start = row.first_dim as usize + ranks.sum::<usize>();
        &self.dims[start..start + form.outputs[output].rank]
    }

    /// Returns the dimensions of an input, with blocked matrices as the matrices that they store.
    pub(crate) fn logical_input(&self, row: &IndexedRow, input: usize) -> SlotDims {
        let dims = self.input_dims(row, input);
        match self.form(row).inputs[input].format.private() {
            Some("FRACTAL_NZ") => SlotDims::from_blocked(dims),
            _ => SlotDims::new(dims),
        }
    }

    pub(crate) fn input_tensors(&self, row: &IndexedRow) -> Vec<Tensor> {
        let inputs = self.form(row).inputs.iter().enumerate();
        let tensor = |(input, form): (usize, &TensorForm)| Tensor {
            dims: self.input_dims(row, input).to_vec(),
            dtype: form.dtype.clone(),
            format: form.format.clone(),
        };
        inputs.map(tensor).collect()
    }
}

pub(super) struct LatencyReader {
    pub(super) columns: Vec<usize>,
    latencies: [Vec<usize>; LatencyColumn::COUNT],
    verdict: Option<usize>,
    /// Maximum ratio of a production duration to the time of the cores, with positions of core, AI core and vector
    /// times.
    envelope: Option<(f64, [usize; 3])>,
}

impl LatencyReader {
    pub(super) fn new(table: &KernelCsv, policy: KernelPolicy, reads_verdicts: bool) -> Self {
        let mut columns_read = Vec::new();
        let mut find = |name: &str| {
            let index = table.column_index(name)?;
            columns_read.push(index);
            Some(columns_read.len() - 1)
        };
        let latencies = LatencyColumn::ALL
            .map(|column| column.names().iter().filter_map(|name| find(name)).collect::<Vec<_>>());
        let verdict = if reads_verdicts { find(columns::VERDICT) } else { None };
        let envelope = policy.max_core_ratio.and_then(|ratio| {
            let [core, cube, vector] = [
                columns::CORE.to_owned(),
                columns::profiling_column("aicore_time(us)"),
                columns::profiling_column("aiv_time(us)"),
            ];
            Some((ratio, [find(&core)?, find(&cube)?, find(&vector)?]))
        });
        Self { columns: columns_read, latencies, verdict, envelope }
    }

    /// Reads the latencies, 0 without one, and the verdict. A cell that is no duration makes the latencies of the row an error.
    pub(super) fn read(
        &self,
        cells: &[&[u8]],
    ) -> (Result<[f64; LatencyColumn::COUNT], NoKernelDuration>, Option<Verdict>) {
        let verdict = self.verdict.map(|at| cells[at].trim_ascii()).filter(|cell| !cell.is_empty());
        let verdict = verdict.and_then(|cell| std::str::from_utf8(cell).ok()?.parse::<Verdict>().ok());
        let mut latencies = [0.0; LatencyColumn::COUNT];
        for (latency, positions) in latencies.iter_mut().zip(&self.latencies) {
            for at in positions {
                match parse_kernel_micros(cells[*at]) {
                    Ok(Some(micros)) if *latency == 0.0 => *latency = micros,
                    Ok(_) => {}
                    // Older tools wrote 0 in place of missing measurements.
                    Err(_) if is_zero(cells[*at]) => {}
                    Err(error) => return (Err(error), verdict),
                }
            }
        }
        // The replay did not measure this kernel at these shapes; production profiles did.
        if verdict.is_some_and(Verdict::refutes_replay) {
            latencies[LatencyColumn::Replay as usize] = 0.0;
        }
        let production = &mut latencies[LatencyColumn::Production as usize];
        if let Some((ratio, [core, cube, vector])) = self.envelope
            && cells[core].trim_ascii() == b"MIX_AIC"
            && let (Some(cube), Some(vector)) = (core_time(cells[cube]), core_time(cells[vector]))
            && *production > ratio * cube.max(vector)
        {
            *production = cube.max(vector);
        }
        (Ok(latencies), verdict)
    }
}

fn core_time(cell: &[u8]) -> Option<f64> {
    parse_kernel_micros(cell).ok().flatten()
}

fn is_zero(cell: &[u8]) -> bool {
    std::str::from_utf8(cell).is_ok_and(|cell| cell.trim().parse() == Ok(0.0))
}

struct RowReader<'a> {
    rows: KernelRows,
    cases: &'a RowColumns,
    table: &'a KernelCsv,
    /// Forms by the cells of their rows, and true for each slot of a side that is a tensor of the form.
    known: HashMap<Vec<u8>, (u32, [Vec<bool>; 2]), FixedState>,
    key: Vec<u8>,
}

impl RowReader<'_> {
    /// Appends the dimensions of a row and returns its form; `None` for a row that is no case.
    fn read_form(&mut self, row: usize, cells: &[&[u8]]) -> Option<u32> {
        self.key.clear();
        let mut ranks = [Vec::new(), Vec::new()];
        let is_plain = scan_shapes(cells[0], &mut ranks[0]) && scan_shapes(cells[3], &mut ranks[1]);
        if is_plain {
            for side in &ranks {
                self.key.extend_from_slice(side);
                self.key.push(u8::MAX);
            }
            for cell in [1, 2, 4, 5].into_iter().chain(6..cells.len()) {
                self.key.extend_from_slice(cells[cell]);
                self.key.push(b'\n');
            }
            if let Some((form, slots)) = self.known.get(&self.key) {
                for (cell, slots) in [cells[0], cells[3]].into_iter().zip(slots) {
                    push_dims(cell, slots, &mut self.rows.dims);
                }
                return Some(*form);
            }
        }
        let case = self.cases.parse_case(&self.rows.kernel, &self.table.row_byte_cells(row)).ok()?;
        let mut tensors = case.inputs.iter().chain(&case.outputs).flatten();
        if tensors.any(|tensor| tensor.dims.len() > MAX_RANK) {
            return None;
        }
        // Tensors are compared, or scalars if there are no others.
        let slots = [&case.inputs, &case.outputs].map(|side| -> Vec<bool> {
            let only_scalars = side.iter().flatten().all(Tensor::is_scalar);
            let is_compared = |tensor: &Tensor| only_scalars || !tensor.is_scalar();
            side.iter().map(|slot| slot.as_ref().is_some_and(is_compared)).collect()
        });
        let sides = [(&case.inputs, &slots[0]), (&case.outputs, &slots[1])];
        let [inputs, outputs] = sides.map(|(side, slots)| -> Vec<TensorForm> {
            let compared = side.iter().zip(slots).filter(|(_, is_compared)| **is_compared);
            let form = |tensor: &Tensor| {
                self.rows.dims.extend(&tensor.dims);
                let (dtype, format) = (tensor.dtype.clone(), tensor.format.clone());
                TensorForm { dtype, format, rank: tensor.dims.len() }
            };
            compared.filter_map(|(slot, _)| slot.as_ref()).map(form).collect()
        });
        let form = RowForm { inputs, outputs, attributes: case.attributes };
        // A table has fewer forms than rows, whose number fits.
        let form = u32::try_from(self.rows.forms.insert_full(form).0).unwrap_or(u32::MAX);
        if is_plain {
            self.known.insert(self.key.clone(), (form, slots));
        }
        Some(form)
    }
}

fn bare_shapes(cell: &[u8]) -> &[u8] {
    let cell = cell.trim_ascii();
    let cell = cell.strip_prefix(b"\"").unwrap_or(cell);
    cell.strip_suffix(b"\"").unwrap_or(cell)
}

/// Appends the rank of each slot. Returns false unless the cell consists of numbers, commas and semicolons.
fn scan_shapes(cell: &[u8], ranks: &mut Vec<u8>) -> bool {
    let (mut rank, mut digits) = (0_u8, 0_u8);
    for byte in bare_shapes(cell) {
        match byte {
            b'0'..=b'9' if digits < 18 => {
                rank += u8::from(digits == 0);
                digits += 1;
            }
            b',' if digits > 0 && rank < 16 => digits = 0,
            b';' if digits > 0 || rank == 0 => {
                ranks.push(rank);
                (rank, digits) = (0, 0);
            }
            _ => return false,
        }
    }
    ranks.push(rank);
    digits > 0 || rank == 0
}

/// Appends the dimensions of the chosen slots of a cell that [`scan_shapes`] accepts.
fn push_dims(cell: &[u8], slots: &[bool], dims: &mut Vec<u64>) {
    let mut slots = slots.iter();
    for shape in bare_shapes(cell).split(|byte| *byte == b';') {
        if slots.next() != Some(&true) || shape.is_empty() {
            continue;
        }
        let mut number = 0;
        for byte in shape {
            if *byte == b',' {
                dims.push(number);
                number = 0;
            } else {
                number = number * 10 + u64::from(byte - b'0');
            }
        }
        dims.push(number);
    }
}

/// Maximum number of dimensions of a tensor; CANN has no kernel with more. Rows and queries beyond are refused.
pub(crate) const MAX_RANK: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotDims {
    dims: [u64; MAX_RANK],
    rank: u8,
}

impl SlotDims {
    pub(crate) fn new(dims: &[u64]) -> Self {
        let rank = dims.len().min(MAX_RANK);
        let mut copied = [0; MAX_RANK];
        copied[..rank].copy_from_slice(&dims[..rank]);
        Self { dims: copied, rank: rank as u8 }
    }

    /// Returns the matrix that FRACTAL_NZ stores: `(…, c1, r1, b1, b2)` is `(…, c1·b2, r1·b1)`. Shapes of fewer than
    /// four dimensions are unchanged.
    pub(crate) fn from_blocked(dims: &[u64]) -> Self {
        let [batch @ .., outer, inner, block_1, block_2] = dims else { return Self::new(dims) };
        let mut matrix = Self::new(batch);
        matrix.push(outer.saturating_mul(*block_2));
        matrix.push(inner.saturating_mul(*block_1));
        matrix
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u64] {
        &mut self.dims[..usize::from(self.rank)]
    }

    pub(crate) fn push(&mut self, dim: u64) {
        if usize::from(self.rank) < MAX_RANK {
            self.dims[usize::from(self.rank)] = dim;
            self.rank += 1;
        }
    }

    /// Returns the dimensions without ones in front, down to the last `kept` dimensions.
    pub(crate) fn without_leading_ones(&self, kept: usize) -> Self {
        let dims = self.as_slice();
        let ones = dims.iter().take_while(|dim| **dim == 1).count();
        Self::new(&dims[ones.min(dims.len().saturating_sub(kept))..])
    }

    /// Returns the product of all dimensions; 1 for a scalar.
    pub(crate) fn element_count(&self) -> u64 {
        self.as_slice().iter().fold(1, |product: u64, dim| product.saturating_mul(*dim))
    }
}

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
    pub(crate) attention: OnceLock<Result<AttentionTable, CommandError>>,
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
            attention: OnceLock::new(),
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

#[cfg(test)]
mod slot_dims_tests {
    use super::*;

    #[test]
    fn blocked_matrices_are_those_that_they_store() {
        for (blocked, matrix) in [
            (&[320, 48, 16, 16][..], &[5120, 768][..]),
            (&[2, 48, 96, 16, 32], &[2, 1536, 1536]),
            (&[5120, 768], &[5120, 768]),
            (&[], &[]),
        ] {
            assert_eq!(SlotDims::from_blocked(blocked).as_slice(), matrix);
        }
    }

    #[test]
    fn ones_in_front_are_stripped_down_to_the_kept_dimensions() {
        for (dims, stripped) in [
            (&[1, 136, 5120][..], &[136, 5120][..]),
            (&[1, 1, 7], &[7]),
            (&[1, 1], &[1]),
            (&[1], &[1]),
            (&[], &[]),
        ] {
            assert_eq!(SlotDims::new(dims).without_leading_ones(1).as_slice(), stripped);
        }
        assert_eq!(SlotDims::new(&[1, 1, 7]).without_leading_ones(2).as_slice(), &[1, 7]);
    }
}
