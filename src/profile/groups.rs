//! Groups the records of a profile by their full signature and sums them up.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::{COUNTERS, ProfileError, Record, RecordReader};
use crate::{
    model::{Case, KernelName, Nanos},
    stats::Summary,
};

/// All records of one signature.
#[derive(Clone, Debug)]
pub struct Group {
    /// The signature.
    pub case: Case,
    /// The six signature cells as the profiler wrote them first.
    pub cells: [String; 6],
    /// `OP State` of the first record.
    pub state: String,
    /// `Accelerator Core` of the first record.
    pub core: String,
    durations: Vec<i64>,
    counters: [Mean; COUNTERS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Group {
    /// Statistics of the durations, in nanoseconds.
    #[must_use]
    pub fn summary(&mut self) -> Option<Summary> {
        Summary::of(&mut self.durations)
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.durations.len()
    }

    /// Mean of each counter of [`COUNTERS`] over the records that have it.
    pub fn counter_means(&self) -> impl Iterator<Item = Option<f64>> {
        self.counters.iter().map(|mean| (mean.count > 0).then(|| mean.sum / f64::from(mean.count)))
    }

    fn add(&mut self, duration: Nanos, record: &Record<'_>) {
        self.durations.push(duration.0);
        for (mean, value) in self.counters.iter_mut().zip(record.counters()) {
            if let Some(value) = value {
                mean.sum += value;
                mean.count += 1;
            }
        }
    }

    fn absorb(&mut self, other: Self) {
        self.durations.extend(other.durations);
        for (mean, more) in self.counters.iter_mut().zip(other.counters) {
            mean.sum += more.sum;
            mean.count += more.count;
        }
    }
}

/// The groups of one or several tables, and what was left out.
#[derive(Debug, Default)]
pub struct Groups {
    by_cells: HashMap<Vec<u8>, usize>,
    groups: Vec<Group>,
    /// Records without input shapes, by kernel.
    pub without_shapes: BTreeMap<String, u64>,
    /// Records without a duration, by kernel.
    pub without_duration: BTreeMap<String, u64>,
    /// All records read.
    pub records: u64,
    key: Vec<u8>,
}

impl Groups {
    /// Adds every record of a table. Simulated records are refused unless `accept_rehearsed`.
    ///
    /// # Errors
    /// [`ProfileError`] with file and line for the first record that cannot be read.
    pub fn add_table(&mut self, file: &Path, accept_rehearsed: bool) -> Result<(), ProfileError> {
        let mut reader = RecordReader::open(file)?;
        while let Some(record) = reader.read()? {
            if record.is_rehearsed() && !accept_rehearsed {
                return Err(ProfileError::Rehearsed { file: file.to_owned(), line: record.line() });
            }
            self.add(&record)?;
        }
        Ok(())
    }

    fn add(&mut self, record: &Record<'_>) -> Result<(), ProfileError> {
        self.records += 1;
        let kernel = record.kernel();
        if !record.has_shapes() || matches!(kernel, b"" | b"N/A" | b"NA") {
            *self.without_shapes.entry(String::from_utf8_lossy(kernel).into_owned()).or_default() += 1;
            return Ok(());
        }
        let Some(duration) = record.duration()? else {
            *self.without_duration.entry(String::from_utf8_lossy(kernel).into_owned()).or_default() += 1;
            return Ok(());
        };
        self.key.clear();
        self.key.extend_from_slice(kernel);
        for cell in record.signature_cells() {
            self.key.push(b'\n');
            self.key.extend_from_slice(cell);
        }
        let index = match self.by_cells.get(&self.key) {
            Some(index) => *index,
            None => {
                self.groups.push(new_group(record)?);
                self.by_cells.insert(self.key.clone(), self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        self.groups[index].add(duration, record);
        Ok(())
    }

    /// The groups by kernel, in the order of their signatures. Cells that differ only in spelling
    /// are one group.
    #[must_use]
    pub fn into_kernels(self) -> BTreeMap<KernelName, Vec<Group>> {
        let mut by_signature: BTreeMap<(KernelName, String), Group> = BTreeMap::new();
        for group in self.groups {
            let key = (group.case.kernel.clone(), group.case.signature());
            match by_signature.entry(key) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(group);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => slot.get_mut().absorb(group),
            }
        }
        let mut kernels: BTreeMap<KernelName, Vec<Group>> = BTreeMap::new();
        for ((kernel, _), group) in by_signature {
            kernels.entry(kernel).or_default().push(group);
        }
        kernels
    }
}

fn new_group(record: &Record<'_>) -> Result<Group, ProfileError> {
    let kernel = String::from_utf8_lossy(record.kernel());
    let kernel = KernelName::new(&kernel)
        .map_err(|error| record.bad_cell("Type", record.kernel(), format!("is no kernel: {error}")))?;
    let (inputs, outputs) = (record.inputs()?, record.outputs()?);
    let bad = |column, cell: &str, error: crate::model::CellsError| {
        record.bad_cell(column, cell.as_bytes(), format!("cannot be read: {error}"))
    };
    let case = Case {
        kernel,
        inputs: inputs.parse().map_err(|error| bad("Input Shapes", inputs.shapes, error))?,
        outputs: outputs.parse().map_err(|error| bad("Output Shapes", outputs.shapes, error))?,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    Ok(Group {
        case,
        cells: record.signature_cells().map(text),
        state: text(record.state()),
        core: text(record.core()),
        durations: Vec::new(),
        counters: [Mean::default(); COUNTERS.len()],
    })
}
