//! Groups the records of profiles by their full signature and sums them up.

use std::collections::{BTreeMap, HashMap, btree_map};

use super::{COUNTERS, ProfileError, Record};
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
    /// Where the first record stands, in the order of files and lines.
    first: u64,
    durations: Durations,
    counters: [Sum; COUNTERS.len()],
}

/// Durations in nanoseconds; four bytes each, for nearly all kernels take less than four seconds.
#[derive(Clone, Debug, Default)]
struct Durations {
    short: Vec<u32>,
    long: Vec<i64>,
}

impl Durations {
    fn push(&mut self, duration: Nanos) {
        match u32::try_from(duration.0) {
            Ok(short) => self.short.push(short),
            Err(_) => self.long.push(duration.0),
        }
    }

    fn absorb(&mut self, other: Self) {
        self.short.extend(other.short);
        self.long.extend(other.long);
    }

    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    fn into_vec(self) -> Vec<i64> {
        self.short.into_iter().map(i64::from).chain(self.long).collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    millionths: i128,
    count: u64,
}

/// What the records of a group say.
#[derive(Clone, Debug)]
pub struct GroupStatistics {
    /// Of the durations, in nanoseconds; `None` where there are none.
    pub durations: Option<Summary>,
    /// Mean of each counter of [`COUNTERS`] over the records that have it.
    pub counters: Vec<Option<f64>>,
}

impl Group {
    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.durations.len()
    }

    /// Statistics over all records.
    #[must_use]
    pub fn into_statistics(self) -> GroupStatistics {
        #[expect(clippy::cast_precision_loss, reason = "a quotient of what was summed exactly")]
        let mean = |sum: &Sum| (sum.count > 0).then(|| sum.millionths as f64 / (sum.count as f64 * 1e6));
        GroupStatistics {
            counters: self.counters.iter().map(mean).collect(),
            durations: Summary::of(&mut self.durations.into_vec()),
        }
    }

    fn add(&mut self, duration: Nanos, record: &Record<'_>) {
        self.durations.push(duration);
        for (sum, value) in self.counters.iter_mut().zip(record.counter_millionths()) {
            if let Some(value) = value {
                sum.millionths += i128::from(value);
                sum.count += 1;
            }
        }
    }

    fn absorb(&mut self, other: Self) {
        if other.first < self.first {
            self.first = other.first;
            self.cells = other.cells;
            self.state = other.state;
            self.core = other.core;
        }
        self.durations.absorb(other.durations);
        for (sum, more) in self.counters.iter_mut().zip(other.counters) {
            sum.millionths += more.millionths;
            sum.count += more.count;
        }
    }
}

/// The groups of one or several tables, and what was left out.
#[derive(Debug, Default)]
pub struct Groups {
    by_cells: HashMap<Vec<u8>, usize, foldhash::fast::RandomState>,
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
    /// Adds a record that stands at `place` in the order of files and lines.
    pub(super) fn add(&mut self, record: &Record<'_>, place: u64) -> Result<(), ProfileError> {
        self.records += 1;
        let kernel = record.kernel();
        if !record.has_shapes() || matches!(kernel, b"" | b"N/A" | b"NA") {
            *self.without_shapes.entry(String::from_utf8_lossy(kernel).into_owned()).or_default() += 1;
            return Ok(());
        }
        let Some(duration) = record.duration()?.filter(|duration| duration.0 != 0) else {
            *self.without_duration.entry(String::from_utf8_lossy(kernel).into_owned()).or_default() += 1;
            return Ok(());
        };
        if duration.0 < 0 {
            return Err(record.bad_cell("Duration(us)", duration.to_string().as_bytes(), "is negative"));
        }
        self.key.clear();
        self.key.extend_from_slice(kernel);
        for cell in record.signature_cells() {
            self.key.push(b'\n');
            self.key.extend_from_slice(cell);
        }
        let index = match self.by_cells.get(&self.key) {
            Some(index) => *index,
            None => {
                self.groups.push(new_group(record, place)?);
                self.by_cells.insert(self.key.clone(), self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        self.groups[index].add(duration, record);
        Ok(())
    }

    /// Takes over everything that another reader of the same tables has found.
    pub(super) fn absorb(&mut self, other: Self) {
        self.records += other.records;
        for (mine, theirs) in [
            (&mut self.without_shapes, other.without_shapes),
            (&mut self.without_duration, other.without_duration),
        ] {
            for (kernel, count) in theirs {
                *mine.entry(kernel).or_default() += count;
            }
        }
        let mut keys: Vec<(Vec<u8>, usize)> = other.by_cells.into_iter().collect();
        keys.sort_by_key(|(_, index)| *index);
        for ((key, _), group) in keys.into_iter().zip(other.groups) {
            match self.by_cells.get(&key) {
                Some(index) => self.groups[*index].absorb(group),
                None => {
                    self.by_cells.insert(key, self.groups.len());
                    self.groups.push(group);
                }
            }
        }
    }

    /// The groups by kernel, in the order of their signatures. Cells that differ only in spelling
    /// are one group.
    #[must_use]
    pub fn into_kernels(self) -> BTreeMap<KernelName, Vec<Group>> {
        let mut by_signature: BTreeMap<(KernelName, String), Group> = BTreeMap::new();
        for group in self.groups {
            let key = (group.case.kernel.clone(), group.case.signature());
            match by_signature.entry(key) {
                btree_map::Entry::Vacant(slot) => {
                    slot.insert(group);
                }
                btree_map::Entry::Occupied(mut slot) => slot.get_mut().absorb(group),
            }
        }
        let mut kernels: BTreeMap<KernelName, Vec<Group>> = BTreeMap::new();
        for ((kernel, _), group) in by_signature {
            kernels.entry(kernel).or_default().push(group);
        }
        kernels
    }
}

fn new_group(record: &Record<'_>, place: u64) -> Result<Group, ProfileError> {
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
        first: place,
        durations: Durations::default(),
        counters: [Sum::default(); COUNTERS.len()],
    })
}
