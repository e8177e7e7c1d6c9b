//! Workload of a recorded run: its kernels by signature.

use std::path::Path;

use super::{
    DurationKind, UnreadableReason, Workload, WorkloadError, WorkloadQuestion,
    forward_pass::{CollectiveSums, collective_sums},
};
use crate::{
    domain::{KernelName, Nanos},
    lookup::LookupEngine,
    profile::{
        ProfileError, ProfileFile, ReadOptions, RecordGroups, add_attributes, add_table, leave_out_copies,
    },
};

/// Reads the kernel records of a file, or of all profiles below a folder.
pub(super) fn read_profile(path: &Path) -> Result<Workload, WorkloadError> {
    let found = ProfileFile::find_all(&[path])?;
    let mut notes: Vec<String> = Vec::new();
    let (files, copies) = leave_out_copies(found.files);
    for skipped in found.passed_over.iter().chain(&copies) {
        let (path, instead) = (skipped.path.display(), skipped.instead.display());
        notes.push(format!("`{path}` is left out: `{instead}` is of the same profile"));
    }
    let mut records = RecordGroups::default();
    for (file, number) in files.iter().zip(0..) {
        add_table(&mut records, &file.0, number, ReadOptions { accept_rehearsed: true, workers: None })?;
        if records.has_replay_sentinels() {
            return Err(ProfileError::Replay(file.0.clone()).into());
        }
    }
    let mut workload = workload_of_records(records, &files)?;
    workload.notes.splice(0..0, notes);
    Ok(workload)
}

/// Returns the sums of collectives of all tables, each counted once; `None` for databases, which have one record of
/// each.
fn sums_of_collectives(files: &[ProfileFile]) -> Result<Option<CollectiveSums>, WorkloadError> {
    let mut sums = CollectiveSums::new();
    for ProfileFile(file) in files {
        if file.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("csv")) {
            return Ok(None);
        }
        for (kernel, (count, time)) in collective_sums(file)? {
            let sum = sums.entry(kernel).or_default();
            *sum = (sum.0 + count, Nanos(sum.1.0.saturating_add(time.0)));
        }
    }
    Ok(Some(sums))
}

fn workload_of_records(records: RecordGroups, files: &[ProfileFile]) -> Result<Workload, WorkloadError> {
    let shapeless = records.without_shapes.clone();
    let untimed = records.without_duration.clone();
    let rehearsed = records.rehearsed;
    let mut kernels = records.into_kernels();
    // Its notes are those of an ingest.
    add_attributes(&mut kernels, files, None)?;
    let mut questions = Vec::new();
    for group in kernels.into_values().flatten() {
        let query = LookupEngine::query_of_case(&group.case);
        questions.push(WorkloadQuestion {
            time: Some(group.total_duration()),
            case: Some(group.case.clone()),
            ..WorkloadQuestion::new(query, group.record_count() as u64)
        });
    }
    let mut repeated = 0;
    let mut groups = shapeless.iter();
    let collectives =
        match groups.any(|(kernel, group)| KernelName::is_collective_record(kernel, &group.core)) {
            true => sums_of_collectives(files)?,
            false => None,
        };
    for (kernel, group) in shapeless {
        let recorded = (group.count, Nanos(group.duration.0.max(0)));
        let once = collectives.as_ref().and_then(|sums| sums.get(&kernel)).copied();
        let (count, time) = once.filter(|(count, _)| (1..=group.count).contains(count)).unwrap_or(recorded);
        repeated += group.count - count;
        let question = WorkloadQuestion::unreadable(&kernel, count, UnreadableReason::NoShapes);
        questions.push(WorkloadQuestion { time: Some(time), ..question });
    }
    for (kernel, count) in untimed {
        questions.push(WorkloadQuestion::unreadable(&kernel, count, UnreadableReason::NoDuration));
    }
    let mut workload = Workload::new(String::new(), DurationKind::Measured, questions);
    if repeated > 0 {
        workload.notes.push(format!(
            "{repeated} records of collectives repeat others on another stream and do not count"
        ));
    }
    if rehearsed > 0 {
        workload
            .notes
            .push(format!("{rehearsed} records are of the rehearsal host, whose durations are simulated"));
    }
    Ok(workload)
}
