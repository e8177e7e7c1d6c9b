//! Workload of a recorded run: its kernels by signature.

use std::{collections::BTreeMap, path::Path};

use super::{
    CollectiveSums, DurationKind, UnreadableReason, Workload, WorkloadQuestion, add_collective_sums,
};
use crate::{
    answer::lookup::{LookupEngine, OpQuery, QueryTensor},
    base::{command_error::CommandError, count_text::format_count},
    kernel::{CollectiveKind, KernelName, Nanos},
    profile::{
        CollectiveSignature, ProfileFile, RankCounts, RecordGroup, RecordedCollectives, RecordedDurations,
        RecordedGroup, add_attributes, leave_out_copies, profile_records::read_records,
    },
};

pub(super) fn read_profile(path: &Path) -> Result<Workload, CommandError> {
    let found = ProfileFile::find_all(&[path])?;
    let mut notes: Vec<String> = Vec::new();
    let (files, copies) = leave_out_copies(found.files);
    for skipped in found.passed_over.iter().chain(&copies) {
        let (path, instead) = (skipped.path.display(), skipped.instead.display());
        notes.push(format!("`{path}` is left out: `{instead}` is of the same profile"));
    }
    let records = read_records(&files, true)?;
    let shapeless = records.without_shapes.clone();
    let untimed = records.without_duration.clone();
    let rehearsed = records.rehearsed;
    let mut kernels = records.into_kernels();
    // The returned notes are dropped because they concern an ingest.
    add_attributes(&mut kernels, &files, RankCounts::default())?;
    let question = |group: RecordGroup| WorkloadQuestion {
        time: Some(group.total_duration()),
        case: Some(group.case.clone()),
        ..WorkloadQuestion::new(LookupEngine::query_of_case(&group.case), group.record_count() as u64)
    };
    let mut questions: Vec<WorkloadQuestion> = kernels.into_values().flatten().map(question).collect();
    let collectives = RecordedCollectives::of_files(&files)?;
    notes.extend(collectives.notes_of_unreadable());
    let mut sized: BTreeMap<String, Vec<WorkloadQuestion>> = BTreeMap::new();
    for (signature, recorded) in collectives.by_signature {
        if let Some(question) = question_of_collective(&signature, &recorded) {
            sized.entry(signature.kernel).or_default().push(question);
        }
    }
    let mut repeated = 0;
    let has_collectives =
        shapeless.iter().any(|(kernel, group)| KernelName::is_collective_record(kernel, &group.core));
    let collectives = if has_collectives { sums_of_collectives(&files)? } else { None };
    for (kernel, group) in shapeless {
        let recorded = (group.count, Nanos(group.duration.0.max(0)));
        let once = collectives.as_ref().and_then(|sums| sums.get(&kernel)).copied();
        let (count, time) = once.filter(|(count, _)| (1..=group.count).contains(count)).unwrap_or(recorded);
        repeated += group.count - count;
        let known = sized.get(&kernel).map_or(&[][..], Vec::as_slice);
        let known_time: Nanos = known.iter().filter_map(|question| question.time).sum();
        let known_count = known.iter().map(|question| question.count).sum();
        let rest = Nanos((time.0 - known_time.0).max(0));
        if let Some(count @ 1..) = count.checked_sub(known_count) {
            let question = WorkloadQuestion::unreadable(&kernel, count, UnreadableReason::NoShapes);
            questions.push(WorkloadQuestion { time: Some(rest), ..question });
        }
    }
    questions.extend(sized.into_values().flatten());
    for (kernel, count) in untimed {
        questions.push(WorkloadQuestion::unreadable(&kernel, count, UnreadableReason::NoDuration));
    }
    let mut workload = Workload::new(String::new(), DurationKind::Measured, questions);
    workload.notes = notes;
    if repeated > 0 {
        workload.notes.push(format!(
            "left out: {} of collectives, repeated on another stream",
            format_count(repeated, "record")
        ));
    }
    if rehearsed > 0 {
        workload
            .notes
            .push(format!("{rehearsed} records are of the rehearsal host, whose durations are simulated"));
    }
    Ok(workload)
}

/// Returns the sums of collectives of all tables, each counted once; `None` for databases, which have one record of
/// each.
fn sums_of_collectives(files: &[ProfileFile]) -> Result<Option<CollectiveSums>, CommandError> {
    let mut sums = CollectiveSums::new();
    for ProfileFile(file) in files {
        if file.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("csv")) {
            return Ok(None);
        }
        add_collective_sums(file, &mut sums)?;
    }
    Ok(Some(sums))
}

/// Returns the question for collectives of one size; `None` if the message does not follow from the recorded count.
fn question_of_collective(
    signature: &CollectiveSignature,
    recorded: &RecordedDurations,
) -> Option<WorkloadQuestion> {
    let kind = CollectiveKind::of_kernel(&KernelName::new(&signature.kernel).ok()?)?;
    let (members, ranks) = match &signature.group {
        RecordedGroup::Ranks(members) => (members.clone(), Some(members.len() as u64)),
        RecordedGroup::Unknown(_) => (Vec::new(), None),
    };
    let bytes = signature.dtype.bytes()?;
    let needs_ranks = kind.message_of_count(1, 1, 1) != kind.message_of_count(1, 1, 2);
    let message = match ranks {
        None if needs_ranks => return None,
        ranks => kind.message_of_count(signature.count, bytes, ranks.unwrap_or(1))?,
    };
    let query = OpQuery {
        op: signature.kernel.clone(),
        inputs: vec![QueryTensor {
            dims: vec![message / bytes],
            dtype: Some(signature.dtype.clone()),
            format: None,
        }],
        ranks,
        ..OpQuery::default()
    };
    let time = recorded.durations.iter().fold(0_i64, |sum, time| sum.saturating_add(*time));
    Some(WorkloadQuestion {
        time: Some(Nanos(time)),
        members,
        ..WorkloadQuestion::new(query, recorded.durations.len() as u64)
    })
}
