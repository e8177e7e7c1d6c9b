//! Groups of profile records by signature, with statistics.

use indexmap::{IndexMap, map::Entry};

use super::{
    columns::is_recorded,
    kernel_record::{CounterSums, check_rehearsed},
    prelude::*,
};
use crate::{
    base::stats::SampleSummary,
    kernel::{ALLOW_HF32, Case, CaseAttributes, SignatureCells, is_vendor_name},
};

#[derive(Clone, Debug)]
pub struct RecordGroup {
    pub case: Case,
    pub cells: [String; 6],
    pub state: String,
    pub core: String,
    /// Further cells of the row, by column, that are not in the records.
    pub extra: Vec<(String, String)>,
    first: RecordOrder,
    files: Vec<u64>,
    /// Nanoseconds.
    durations: Vec<i64>,
    counters: CounterSums,
}

/// Order of a record among all: the number of its file, and its position or time in the file.
pub(super) type RecordOrder = (u64, u64);

#[derive(Clone, Debug)]
pub struct GroupStatistics {
    /// Nanoseconds.
    pub durations: Option<SampleSummary>,
    /// Mean of each counter of [`COUNTERS`](super::COUNTERS) over the records that have it.
    pub counters: Vec<Option<f64>>,
}

impl RecordGroup {
    /// Sets a cell that is not in the records; an attribute becomes part of the case.
    pub fn set_attribute(&mut self, column: &str, value: &str) {
        self.case.attributes.set(column, value);
        self.extra.push((column.to_owned(), value.to_owned()));
    }

    pub fn files(&self) -> &[u64] {
        &self.files
    }

    pub fn record_count(&self) -> usize {
        self.durations.len()
    }

    pub fn total_duration(&self) -> Nanos {
        Nanos(self.durations.iter().fold(0, |total, duration| total.saturating_add(*duration)))
    }

    pub fn into_statistics(mut self) -> GroupStatistics {
        GroupStatistics {
            counters: self.counters.counter_means(),
            durations: SampleSummary::from_samples(&mut self.durations),
        }
    }

    fn merge_group(&mut self, other: Self) {
        if other.first < self.first {
            self.first = other.first;
            self.case = other.case;
            self.cells = other.cells;
            self.state = other.state;
            self.core = other.core;
        }
        self.files.extend(other.files);
        self.files.sort_unstable();
        self.files.dedup();
        self.durations.extend(other.durations);
        self.counters.merge_sums(&other.counters);
    }
}

/// Records of a kernel without input shapes, such as those of a collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapelessRecords {
    pub count: u64,
    pub duration: Nanos,
    pub core: String,
    /// Records among these that have a part of their tensors only.
    pub cut_short: u64,
}

/// Stands in [`RecordGroups::without_shapes`] for the kernels whose name the profile lost.
pub(crate) const UNNAMED: &str = "unnamed";

/// Groups of one or several tables, and counts of the other records.
#[derive(Debug, Default)]
pub struct RecordGroups {
    groups: IndexMap<Vec<u8>, RecordGroup, foldhash::fast::RandomState>,
    pub without_shapes: BTreeMap<String, ShapelessRecords>,
    pub without_duration: BTreeMap<String, u64>,
    /// Numbers of cells by counter that are neither a number nor `N/A`; means are without them.
    pub damaged_counters: BTreeMap<&'static str, u64>,
    pub records: u64,
    pub rehearsed: u64,
    /// First row with a comma in a name that hides the type of its kernel, and the number of such rows, which are left out.
    pub(crate) comma_rows: Option<(ProfileError, u64)>,
    key: Vec<u8>,
}

impl RecordGroups {
    pub fn has_shapes(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(super) fn add_record(
        &mut self,
        record: &KernelRecord<'_>,
        duration: Result<Option<Nanos>, ProfileError>,
        position: RecordOrder,
        accept_rehearsed: bool,
        add_counters: impl FnOnce(&mut CounterSums, &mut BTreeMap<&'static str, u64>),
    ) -> Result<(), ProfileError> {
        let KernelRecord { file, place, name, kernel, cells, state, core, .. } = *record;
        self.rehearsed += u64::from(check_rehearsed(name, accept_rehearsed, file, place)?);
        self.records += 1;
        if is_hash(kernel) {
            self.add_shapeless(UNNAMED.as_bytes(), duration.ok().flatten(), core);
            return Ok(());
        }
        if !is_recorded(cells[0]) || kernel.starts_with(b"hcom_") || !is_recorded(kernel) {
            // A duration that cannot be read does not matter for a record that is left out.
            self.add_shapeless(kernel, duration.ok().flatten(), core);
            return Ok(());
        }
        let Some(duration) = duration?.filter(|duration| duration.0 != 0) else {
            *self.without_duration.entry(String::from_utf8_lossy(kernel).into_owned()).or_default() += 1;
            return Ok(());
        };
        if !duration.is_kernel_duration() {
            let problem =
                if duration.0 < 0 { "is negative" } else { "is more than an hour, which no kernel takes" };
            return Err(record.bad_cell(7, duration.to_string().as_bytes(), problem.to_owned()));
        }
        self.key.clear();
        for cell in [kernel].iter().chain(&cells) {
            self.key.extend_from_slice(cell);
            self.key.push(b'\n');
        }
        self.key.push(u8::from(record.is_hf32_product()));
        let index = match self.groups.get_index_of(&self.key) {
            Some(index) => index,
            None => self.groups.insert_full(self.key.clone(), new_group(record, position)?).0,
        };
        let group = &mut self.groups[index];
        // Tables are read from the start; databases are not read in the order of time.
        if position < group.first {
            check_units(record)?;
            group.first = position;
            group.state = printable_cell(state);
            group.core = printable_cell(core);
        }
        if group.files.last() != Some(&position.0) {
            group.files.push(position.0);
        }
        group.durations.push(duration.0);
        add_counters(&mut group.counters, &mut self.damaged_counters);
        Ok(())
    }

    pub(super) fn add_shapeless(&mut self, kernel: &[u8], duration: Option<Nanos>, core: &[u8]) {
        let kernel = String::from_utf8_lossy(kernel);
        let new = || ShapelessRecords { core: printable_cell(core), ..ShapelessRecords::default() };
        let records = self.without_shapes.entry(kernel.into_owned()).or_insert_with(new);
        records.count += 1;
        let duration = duration.map_or(0, |duration| duration.0.max(0));
        records.duration = Nanos(records.duration.0.saturating_add(duration));
    }

    pub(super) fn add_comma_row(&mut self, error: ProfileError) {
        self.comma_rows.get_or_insert((error, 0)).1 += 1;
    }

    /// Moves the records that lack some of their tensors to those without shapes. The profiler writes tensors in records of
    /// five, inputs first; if a later record is lost, the exporter has the first ones and says nothing (Ascend/msprof 9ba1ac7,
    /// domain/services/persistence/host/cann_trace_db_dumper.cpp). Such records have no outputs, and other records of the
    /// kernel have some, or they have a multiple of five inputs and others have more.
    pub(super) fn leave_out_cut_records(&mut self) {
        let mut most: BTreeMap<KernelName, [usize; 2]> = BTreeMap::new();
        for RecordGroup { case, .. } in self.groups.values() {
            let [inputs, outputs] = most.entry(case.kernel.clone()).or_default();
            (*inputs, *outputs) = (case.inputs.len().max(*inputs), case.outputs.len().max(*outputs));
        }
        let is_cut = |_: &Vec<u8>, RecordGroup { case, .. }: &mut RecordGroup| {
            let [inputs, outputs] = most[&case.kernel];
            let is_at_record = case.inputs.len().is_multiple_of(TENSORS_OF_RECORD);
            case.outputs.is_empty() && (outputs > 0 || is_at_record && case.inputs.len() < inputs)
        };
        for group in self.groups.extract_if(.., is_cut).map(|(_, group)| group).collect::<Vec<_>>() {
            let new = || ShapelessRecords { core: group.core.clone(), ..ShapelessRecords::default() };
            let records = self.without_shapes.entry(group.case.kernel.to_string()).or_insert_with(new);
            let count = group.record_count() as u64;
            records.count += count;
            records.cut_short += count;
            records.duration = Nanos(records.duration.0.saturating_add(group.total_duration().0));
        }
    }

    pub(super) fn merge_groups(&mut self, other: Self) {
        self.records += other.records;
        self.rehearsed += other.rehearsed;
        if let Some((error, count)) = other.comma_rows {
            self.comma_rows.get_or_insert((error, 0)).1 += count;
        }
        for (counter, count) in other.damaged_counters {
            *self.damaged_counters.entry(counter).or_default() += count;
        }
        for (kernel, count) in other.without_duration {
            *self.without_duration.entry(kernel).or_default() += count;
        }
        for (kernel, ShapelessRecords { count, duration, core, cut_short }) in other.without_shapes {
            let mine = self
                .without_shapes
                .entry(kernel)
                .or_insert_with(|| ShapelessRecords { core, ..ShapelessRecords::default() });
            mine.count += count;
            mine.cut_short += cut_short;
            mine.duration = Nanos(mine.duration.0.saturating_add(duration.0));
        }
        for (key, group) in other.groups {
            match self.groups.entry(key) {
                Entry::Occupied(mut same) => same.get_mut().merge_group(group),
                Entry::Vacant(new) => {
                    new.insert(group);
                }
            }
        }
    }

    /// Returns true if the records contain the launches that replay and selftest scripts add: `Neg` on INT32 vectors, of
    /// length 1 for padding and of length 2 before the first case (`render::SentinelLengths`). The sentinel after it has
    /// no record if the case ended the process.
    pub fn has_replay_sentinels(&self) -> bool {
        const PADDING: usize = 16;
        let launches = |length: u64| -> usize {
            let is_sentinel = |group: &&RecordGroup| {
                group.case.kernel.as_str().starts_with("Neg")
                    && matches!(group.case.inputs.as_slice(), [Some(tensor)]
                        if tensor.dtype.as_str() == "INT32" && *tensor.dims == [length])
            };
            self.groups.values().filter(is_sentinel).map(RecordGroup::record_count).sum()
        };
        launches(1) >= PADDING && launches(2) > 0
    }

    /// Returns the groups by kernel, in the order of their first records, which readers of a table rely on: the first of
    /// several fitting rows counts. Cells that differ only in spelling are one group.
    pub fn into_kernels(self) -> BTreeMap<KernelName, Vec<RecordGroup>> {
        let mut by_signature: BTreeMap<(KernelName, String), RecordGroup> = BTreeMap::new();
        for group in self.groups.into_values() {
            let key = (group.case.kernel.clone(), group.case.signature());
            match by_signature.get_mut(&key) {
                Some(same) => same.merge_group(group),
                None => drop(by_signature.insert(key, group)),
            }
        }
        let mut kernels: BTreeMap<KernelName, Vec<RecordGroup>> = BTreeMap::new();
        for ((kernel, _), group) in by_signature {
            kernels.entry(kernel).or_default().push(group);
        }
        kernels.values_mut().for_each(|groups| groups.sort_by_key(|group| group.first));
        kernels
    }
}

/// Number of tensors in a record of the profiler (Ascend/msprof 9ba1ac7, msparser/data_struct_size_constant.py).
const TENSORS_OF_RECORD: usize = 5;

/// Returns true for the hash that the exporter writes in place of a type that is not in the table of names (Ascend/msprof
/// 9ba1ac7, csrc/domain/services/parser/host/cann/hash_data.cpp). No type of a kernel is a number.
fn is_hash(kernel: &[u8]) -> bool {
    !kernel.is_empty() && kernel.iter().all(u8::is_ascii_digit)
}

fn printable_cell(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).replace(char::is_control, "\u{fffd}")
}

/// Refuses a state or a unit that is no name: both become cells of tables.
fn check_units(record: &KernelRecord<'_>) -> Result<(), ProfileError> {
    for (column, cell) in [("OP State", record.state), ("Accelerator Core", record.core)] {
        let text = std::str::from_utf8(cell).unwrap_or("\0").trim();
        if !matches!(text, "" | "N/A") && !is_vendor_name(text) {
            return Err(ProfileError::bad_cell(
                record.file,
                record.place,
                column,
                cell,
                "is no name".to_owned(),
            ));
        }
    }
    Ok(())
}

fn new_group(record: &KernelRecord<'_>, first: RecordOrder) -> Result<RecordGroup, ProfileError> {
    let kernel = std::str::from_utf8(record.kernel)
        .map_err(|_| record.bad_cell(0, record.kernel, "is not UTF-8".to_owned()))?;
    let kernel = KernelName::new(kernel)
        .map_err(|error| record.bad_cell(0, record.kernel, format!("is not a kernel name: {error}")))?;
    let mut texts = [""; 6];
    for ((text, cell), column) in texts.iter_mut().zip(record.cells).zip(1..) {
        *text = std::str::from_utf8(cell)
            .map_err(|_| record.bad_cell(column, cell, "is not UTF-8".to_owned()))?;
        if text.trim().contains(char::is_control) {
            return Err(record.bad_cell(column, cell, "has control characters".to_owned()));
        }
    }
    let parse = |first: usize| {
        let (shapes, dtypes, formats) = (texts[first], texts[first + 1], texts[first + 2]);
        SignatureCells { shapes, dtypes, formats }.parse().map_err(|error| {
            record.bad_cell(first + 1, shapes.as_bytes(), format!("cannot be read: {error}"))
        })
    };
    let case = Case { kernel, inputs: parse(0)?, outputs: parse(3)?, attributes: CaseAttributes::default() };
    check_units(record)?;
    let mut group = RecordGroup {
        case,
        cells: record.cells.map(printable_cell),
        state: printable_cell(record.state),
        core: printable_cell(record.core),
        extra: Vec::new(),
        first,
        files: Vec::new(),
        durations: Vec::new(),
        counters: CounterSums::default(),
    };
    if record.is_hf32_product() {
        group.set_attribute(ALLOW_HF32, "True");
    }
    Ok(group)
}
