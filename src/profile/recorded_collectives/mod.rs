//! Collectives of production profiles with their sizes.
//!
//! Tables of kernels have a record for each collective and no size. Databases (`COMMUNICATION_OP`) and traces have the number of
//! elements and their type, the algorithm and the group. communication.json has the bytes on each link, from which no size
//! of a message follows.

mod parallel_groups;
mod run_metadata;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use self::{parallel_groups::group_digits, run_metadata::RunMetadata};
use super::{
    ProfileError, ProfileFile, collective_record::CollectiveRecord, newest_export::newest_exports, sqlite,
};
use crate::domain::Dtype;

/// Ranks of a collective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordedGroup {
    /// Numbers of the ranks among all of the run.
    Ranks(Vec<u64>),
    /// Group whose ranks are not recorded, by its name or the digits in the names of its collectives.
    Unknown(String),
}

/// Common properties of collectives that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectiveSignature {
    /// Type of the records, such as `hcom_allReduce_`.
    pub(crate) kernel: String,
    pub(crate) group: RecordedGroup,
    /// Number of elements, as HCCL counts them.
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    /// Variables of HCCL that the profile records, as the key of rows.
    pub(crate) environment: String,
}

/// Durations of collectives with one signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedDurations {
    /// Durations in nanoseconds, of all ranks.
    pub(crate) durations: Vec<i64>,
    pub(crate) algorithms: BTreeSet<String>,
    /// Numbers of the files with the records, ascending.
    pub(crate) files: Vec<u64>,
}

/// Collectives of some profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedCollectives {
    pub(crate) by_signature: BTreeMap<CollectiveSignature, RecordedDurations>,
    /// Numbers of the collectives without a size or a type, by the type of their records.
    pub(crate) without_size: BTreeMap<String, u64>,
    /// Traces that could not be read.
    pub(crate) unreadable: Vec<String>,
}

impl RecordedCollectives {
    /// Reads the collectives of tables of kernels, which are numbered from 0: of a database from itself, of a CSV from a database
    /// or the trace beside it. A CSV without either adds none.
    pub(crate) fn of_files(files: &[ProfileFile]) -> Result<Self, ProfileError> {
        let mut found = Self::default();
        for (ProfileFile(file), number) in files.iter().zip(0..) {
            for source in sources_beside(file)? {
                if sqlite::is_database(&source)? {
                    let run = RunMetadata::of_database(&source);
                    sqlite::for_each_collective(&source, &mut |record| {
                        found.add_record(record, number, &run);
                    })?;
                    continue;
                }
                // A trace adds sizes to records that have been read from the table.
                let (run, mut records) = (RunMetadata::of_profile(file), Vec::new());
                match trace::read_collectives(&source, &mut records) {
                    Ok(()) => records.into_iter().for_each(|record| found.add_record(record, number, &run)),
                    Err(error) => found.unreadable.push(format!("`{}` {error}", source.display())),
                }
            }
        }
        Ok(found)
    }

    fn add_record(&mut self, record: CollectiveRecord, file: u64, run: &RunMetadata) {
        let CollectiveRecord { kernel, name, group, count, dtype, algorithm, duration } = record;
        let (Some(count), Some(dtype), Some(duration)) =
            (count.filter(|count| *count > 0), dtype, duration.filter(|duration| duration.0 > 0))
        else {
            *self.without_size.entry(kernel).or_default() += 1;
            return;
        };
        let by_name = group.as_deref().and_then(|group| run.groups.of_name(group));
        let group = match by_name.or_else(|| run.groups.of_collective(&name)) {
            Some(ranks) => RecordedGroup::Ranks(ranks.to_vec()),
            None => RecordedGroup::Unknown(
                group.unwrap_or_else(|| group_digits(&name).unwrap_or_default().to_owned()),
            ),
        };
        let environment = run.environment.clone();
        let signature = CollectiveSignature { kernel, group, count, dtype, environment };
        let durations = self.by_signature.entry(signature).or_default();
        durations.durations.push(duration.0);
        if !matches!(&*algorithm, "" | "N/A" | "NA") {
            durations.algorithms.insert(algorithm);
        }
        if durations.files.last() != Some(&file) {
            durations.files.push(file);
        }
    }

    /// Takes all ranks of a run of this size for the group whose ranks are not recorded, if there is only one.
    pub(crate) fn set_world_size(&mut self, ranks: u64) {
        let unknown: BTreeSet<RecordedGroup> =
            self.by_signature.keys().map(|signature| signature.group.clone()).collect();
        if unknown.len() != 1 || !matches!(unknown.first(), Some(RecordedGroup::Unknown(_))) {
            return;
        }
        let all = std::mem::take(&mut self.by_signature).into_iter().map(|(signature, durations)| {
            (
                CollectiveSignature { group: RecordedGroup::Ranks((0..ranks).collect()), ..signature },
                durations,
            )
        });
        self.by_signature = all.collect();
    }
}

/// Returns the files with sizes of collectives for a table of kernels: the table if it is a database, else a database of torch
/// beside it, else the trace.
fn sources_beside(table: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    if sqlite::is_database(table)? {
        return Ok(vec![table.to_owned()]);
    }
    let folder = table.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |start: &str, end: &str, path: &Path| {
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        name.starts_with(start) && name.ends_with(end)
    };
    let is_summary = named("op_summary", ".csv", table);
    let (mut databases, mut traces) = (Vec::new(), Vec::new());
    for path in entries {
        if is_summary && named("msprof_", ".json", &path)
            || !is_summary && named("trace_view", ".json", &path)
        {
            traces.push(path);
        } else if !is_summary && named("ascend_pytorch_profiler", ".db", &path) {
            databases.push(path);
        }
    }
    databases.sort();
    match databases.pop() {
        Some(database) => Ok(vec![database]),
        None => newest_exports(traces),
    }
}
