//! Collectives of production profiles with their sizes.
//!
//! Tables of kernels have a record for each collective and no size. Databases (`COMMUNICATION_OP`) and traces have the number of
//! elements and their type, the algorithm and the group. communication.json has the bytes on each link, from which no size
//! of a message follows.

mod parallel_groups;
mod run_metadata;
mod trace;

use self::{parallel_groups::group_digits, run_metadata::RunMetadata};
use super::{newest_export::newest_exports, prelude::*};
use crate::base::printable::is_harmful;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::profile) struct CollectiveRecord {
    /// Type of the record, such as `hcom_allReduce_`.
    pub(in crate::profile) kernel: String,
    /// Name with the digits of its group and its number, such as `hcom_allReduce__586_0_1`.
    pub(in crate::profile) name: String,
    /// HCCL's name of the group; traces have none.
    pub(in crate::profile) group: Option<String>,
    pub(in crate::profile) count: Option<u64>,
    pub(in crate::profile) dtype: Option<Dtype>,
    pub(in crate::profile) algorithm: String,
    pub(in crate::profile) duration: Option<Nanos>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordedGroup {
    Ranks(Vec<u64>),
    /// Group whose ranks are not recorded, by its name or the digits in the names of its collectives.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectiveSignature {
    pub(crate) kernel: String,
    pub(crate) group: RecordedGroup,
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    /// Variables of HCCL that the profile records, as the key of rows.
    pub(crate) environment: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedDurations {
    /// Nanoseconds, of all ranks.
    pub(crate) durations: Vec<i64>,
    pub(crate) algorithms: BTreeSet<String>,
    pub(crate) files: Vec<u64>,
    pub(crate) are_ranks_stated: bool,
}

impl RecordedDurations {
    pub(crate) fn merge(&mut self, other: Self) {
        self.durations.extend(other.durations);
        self.algorithms.extend(other.algorithms);
        self.files.extend(other.files);
        self.files.sort_unstable();
        self.files.dedup();
        self.are_ranks_stated |= other.are_ranks_stated;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedCollectives {
    pub(crate) by_signature: BTreeMap<CollectiveSignature, RecordedDurations>,
    /// Numbers of the collectives without a size or a type, by the type of their records.
    pub(crate) without_size: BTreeMap<String, u64>,
    unreadable: Vec<String>,
}

impl RecordedCollectives {
    /// Reads the collectives of tables of kernels, which are numbered from 0: of a database from itself, of a CSV from a database
    /// or the trace beside it. A CSV without either adds none.
    pub(crate) fn of_files(files: &[ProfileFile]) -> Result<Self, ProfileError> {
        let mut found = Self::default();
        let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
        for (ProfileFile(file), number) in files.iter().zip(0..) {
            let is_own = sqlite::is_database(file)?;
            // A file beside the table adds sizes to records that have been read from the table.
            let sources = sources_beside(file);
            if let (false, Err(error)) = (is_own, &sources) {
                found.unreadable.push(error.to_string());
                continue;
            }
            // Slices of a table have one trace.
            for source in sources?.into_iter().filter(|source| seen.insert(source.clone())) {
                let (run, read) = if sqlite::is_database(&source)? {
                    let read = sqlite::read_collectives(&source);
                    let read = if is_own { Ok(read?) } else { read.map_err(|error| error.to_string()) };
                    (RunMetadata::of_database(&source), read)
                } else {
                    let described = |error| format!("`{}` {error}", source.display());
                    (RunMetadata::of_profile(file), trace::read_collectives(&source).map_err(described))
                };
                match read {
                    Ok(records) => {
                        records.into_iter().for_each(|record| found.add_record(record, number, &run));
                    }
                    Err(problem) => found.unreadable.push(problem),
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn notes_of_unreadable(&self) -> Vec<String> {
        let note = |trace: &String| {
            format!(
                "sizes of collectives are unknown: {trace}; export the profile again, or remove the trace"
            )
        };
        self.unreadable.iter().map(note).collect()
    }

    fn add_record(&mut self, record: CollectiveRecord, file: u64, run: &RunMetadata) {
        let CollectiveRecord { kernel, name, group, count, dtype, mut algorithm, duration } = record;
        if algorithm.starts_with(['=', '+', '-', '@']) || algorithm.contains(is_harmful) {
            algorithm.clear();
        }
        let (Some(count), Some(dtype), Some(duration)) = (
            count.filter(|count| *count > 0),
            dtype,
            duration.filter(|duration| duration.is_kernel_duration()),
        ) else {
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
                RecordedDurations { are_ranks_stated: true, ..durations },
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
    let folder = table.parent().unwrap_or(Path::new(""));
    let is_summary = table.file_name().is_some_and(|name| name.to_string_lossy().starts_with("op_summary"));
    let named = |start, end| named_entries(folder, start, end).map_err(ProfileError::io(folder));
    if is_summary {
        return newest_exports(named("msprof_", ".json")?);
    }
    match named("ascend_pytorch_profiler", ".db")?.pop() {
        Some(database) => Ok(vec![database]),
        None => newest_exports(named("trace_view", ".json")?),
    }
}
