//! Experiment 4: the call of each catalogue entry runs as the entry's kernel, and is recorded with its shapes, types and
//! formats. One kernel is also captured as an NPUGraph.
//!
//! Each entry has a collection of its own as long as no device gets more than [`ROUNDS`] of them in sequence; else
//! entries share collections. Entries that a broken collection did not reach are repeated alone. The rehearsal host has
//! one collection for each device, because it has no entry that could break it.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};

use super::{
    case_replay::CaseReplay,
    entry_cases::{EntryCase, entry_cases},
    entry_table::{EntryResult, EntryStatus, write_entry_table},
    evidence::{SelftestContext, join_all},
    finding::{EvidenceError, ExperimentFinding},
    recorded_rows::{RecordedRow, read_rows, rows_between},
};
use crate::{
    cases::plan::PlannedCase,
    kernel::{
        CaseOutcome, DataKind, Verdict,
        catalogue::CatalogueEntry,
        render::{SentinelLengths, files},
    },
};

/// Launches of each case.
const LAUNCHES: u32 = 2;
/// Greatest number of collections in sequence on a device.
const ROUNDS: usize = 6;
/// Dimensions of the captured matrix product.
const PRODUCT: (u64, u64, u64) = (64, 256, 128);
/// Lengths of the marks around the product, and around the replays of its graph.
const PRODUCT_MARKS: [(u64, u64); 2] = [(2, 3), (4, 5)];
const EXPECTED: &str = "the smallest case of each entry runs as the kernel of its entry, with the recorded shapes, types and \
     formats of the entry and a record for each launch; the summary shows how a captured kernel is recorded";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let cases = entry_cases(context)?;
    let mut observed = BTreeMap::new();
    replay_groups(context, folder, &cases, grouped(context, &cases), &mut observed)?;
    if let Some(reason) = nothing_launched(&observed) {
        return Err(EvidenceError::Missing(reason));
    }
    // After a case that breaks its collection, the cases before it have no records and those after it no launches.
    let shared = |observation: &EntryObservation| {
        observation.is_shared && matches!(observation.outcome.verdict, Verdict::NotRun | Verdict::LostRecords)
    };
    let left = observed.iter().filter(|(_, observation)| shared(observation));
    let left: Vec<Vec<usize>> = left.map(|(index, _)| vec![*index]).collect();
    replay_groups(context, folder, &cases, left, &mut observed)?;
    let results: Vec<EntryResult<'_>> =
        cases.iter().enumerate().map(|(index, case)| entry_result(case, observed.remove(&index))).collect();
    write_entry_table(folder, &results)?;
    let (captured, graph_problem) = captured_product(context, &folder.join("npu-graph"))?;
    let mut problems: Vec<String> = results.iter().filter_map(EntryResult::problem).collect();
    problems.extend(graph_problem);
    Ok(ExperimentFinding::from_problems(EXPECTED, format!("{}; {captured}", summary(&results)), &problems))
}

/// Returns the reason of the first case if no case was launched.
fn nothing_launched(observed: &BTreeMap<usize, EntryObservation>) -> Option<String> {
    let has_run = observed.values().any(|observation| observation.outcome.verdict != Verdict::NotRun);
    observed.values().next().filter(|_| !has_run).map(|observation| observation.outcome.reason.to_string())
}

/// Divides the cases that can be launched into collections.
fn grouped(context: &SelftestContext, cases: &[EntryCase<'_>]) -> Vec<Vec<usize>> {
    let indices: Vec<usize> = (0..cases.len()).filter(|index| cases[*index].planned.is_ok()).collect();
    let rounds = match context.kind() {
        DataKind::Npu => ROUNDS,
        DataKind::Rehearsal => 1,
    };
    let size = indices.len().div_ceil(context.devices.len().max(1) * rounds).max(1);
    indices.chunks(size).map(<[usize]>::to_vec).collect()
}

/// Records of a case.
#[derive(Clone, Debug)]
struct EntryObservation {
    outcome: CaseOutcome,
    launched: u32,
    /// Records between the sentinels of the case.
    rows: Vec<RecordedRow>,
    /// True if the collection had other cases.
    is_shared: bool,
}

/// Replays groups of cases, each in a collection, on all devices in parallel.
fn replay_groups(
    context: &SelftestContext,
    folder: &Path,
    cases: &[EntryCase<'_>],
    groups: Vec<Vec<usize>>,
    observed: &mut BTreeMap<usize, EntryObservation>,
) -> Result<(), EvidenceError> {
    let queue = Mutex::new(VecDeque::from(groups));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let replay_all = |device: u32| {
        let mut found = Vec::new();
        while let Some(group) = next() {
            found.extend(replay_group(context, folder, cases, &group, device)?);
        }
        Ok::<_, EvidenceError>(found)
    };
    let results: Vec<Result<_, EvidenceError>> = thread::scope(|scope| {
        let workers: Vec<_> =
            context.devices.iter().map(|device| scope.spawn(|| replay_all(*device))).collect();
        join_all(workers)
    });
    for found in results {
        observed.extend(found?);
    }
    Ok(())
}

fn replay_group(
    context: &SelftestContext,
    folder: &Path,
    cases: &[EntryCase<'_>],
    group: &[usize],
    device: u32,
) -> Result<Vec<(usize, EntryObservation)>, EvidenceError> {
    let planned = |index: &usize| Some((*index, cases[*index].planned.as_ref().ok()?));
    let (indices, planned): (Vec<usize>, Vec<&PlannedCase>) = group.iter().filter_map(planned).unzip();
    let Some(first) = planned.first() else { return Ok(Vec::new()) };
    let name = match planned.len() {
        1 => first.case.kernel.file_stem().to_string(),
        count => format!("{}-and-{}-more", first.case.kernel.file_stem(), count - 1),
    };
    let folder = folder.join(name);
    let replay =
        CaseReplay { cases: &planned, devices: &[device], warm_up: 0, measured: LAUNCHES, flush_bytes: None };
    let attempts = context.replay_cases(&folder, &replay)?;
    // A table that cannot be read is the reason of each attempt.
    let rows = read_rows(&folder.join(files::PROFILE)).unwrap_or_default();
    let sentinels = SentinelLengths::default();
    let observations = indices.into_iter().zip(attempts).zip(0..).map(|((index, attempt), ordinal)| {
        let (opening, closing) = (sentinels.opening(ordinal), sentinels.closing_length(ordinal));
        let observation = EntryObservation {
            outcome: attempt.outcome,
            launched: attempt.launched,
            rows: rows_between(&rows, opening, closing).to_vec(),
            is_shared: planned.len() > 1,
        };
        (index, observation)
    });
    Ok(observations.collect())
}

fn entry_result<'a>(case: &EntryCase<'a>, observation: Option<EntryObservation>) -> EntryResult<'a> {
    let entry = case.entry;
    let shapes = case.planned.as_ref().map(|planned| planned.case.shapes()).unwrap_or_default();
    let result = |status, reason: String, launched, rows| EntryResult {
        entry,
        origin: case.origin,
        shapes: shapes.clone(),
        status,
        reason,
        launched,
        rows,
    };
    match (&case.planned, observation) {
        (Err(reason), _) => result(EntryStatus::NotTested, reason.clone(), 0, Vec::new()),
        (Ok(_), None) => result(EntryStatus::Mismatch, "the case was not launched".to_owned(), 0, Vec::new()),
        (Ok(_), Some(observation)) => {
            let status = entry_status(entry, observation.outcome.verdict);
            let EntryObservation { outcome, launched, rows, .. } = observation;
            let reason = match (status, outcome.verdict) {
                (EntryStatus::Mismatch, verdict) => format!("{verdict}: {}", outcome.reason),
                // That two launches are noisy is expected; the assumptions about the call follow.
                (EntryStatus::AsExpected, Verdict::Noisy | Verdict::Suspicious | Verdict::Throttled) => {
                    let notes = outcome.reason.remarks.iter().map(ToString::to_string);
                    notes.collect::<Vec<_>>().join("; ")
                }
                _ => outcome.reason.to_string(),
            };
            result(status, reason, launched, rows)
        }
    }
}

/// Compares the outcome of a case with its entry.
fn entry_status(entry: &CatalogueEntry, verdict: Verdict) -> EntryStatus {
    match verdict {
        // Two launches are too few for an interval, so that their case is noisy.
        verdict if verdict.is_recorded() => EntryStatus::AsExpected,
        Verdict::RanAsOther => EntryStatus::RanAsEqualEntry,
        Verdict::Unsupported if entry.needs.custom_operators => EntryStatus::NotInstalled,
        _ => EntryStatus::Mismatch,
    }
}

/// Returns the number of entries by status, and the names of those that were not tested.
fn summary(results: &[EntryResult<'_>]) -> String {
    let mut names: BTreeMap<EntryStatus, Vec<&str>> = BTreeMap::new();
    for result in results {
        names.entry(result.status).or_default().push(result.entry.kernel.as_str());
    }
    let counts = names.iter().map(|(status, names)| match status {
        EntryStatus::AsExpected => format!("{} {status}", names.len()),
        _ => format!("{} {status} ({})", names.len(), names.join(", ")),
    });
    format!("{} entries: {}", results.len(), counts.collect::<Vec<_>>().join(", "))
}

/// Launches a product eagerly and as a captured graph. Returns what was seen, and the difference of the records.
fn captured_product(
    context: &SelftestContext,
    folder: &Path,
) -> Result<(String, Option<String>), EvidenceError> {
    let (rows, inner, columns) = PRODUCT;
    let parameters = json!({ "rows": rows, "inner": inner, "columns": columns, "launches": LAUNCHES });
    let evidence = context.complete(folder, "graph", parameters)?;
    if let Some(reason) = evidence.journal_value("not_captured").and_then(Value::as_str) {
        return Ok((format!("no NPUGraph: {reason}"), None));
    }
    let rows = read_rows(&folder.join(files::PROFILE))?;
    let [eager, replayed] = PRODUCT_MARKS.map(|(opening, closing)| rows_between(&rows, opening, closing));
    if eager.is_empty() {
        let problem = "NPUGraph: the eager launches are not recorded".to_owned();
        return Ok((String::new(), Some(problem)));
    }
    // Up to CANN 8.5 a captured kernel has the name of its library function. No run launches graphs.
    let seen = graph_difference(eager, replayed)
        .unwrap_or_else(|| "a captured product is recorded as the eager one".to_owned());
    Ok((seen, None))
}

/// Returns the difference between the records of eager launches and those of the replays of a graph.
fn graph_difference(eager: &[RecordedRow], replayed: &[RecordedRow]) -> Option<String> {
    let described = |row: &RecordedRow| {
        let [shapes, dtypes, formats, ..] = &row.cells;
        format!("{} on {} with {shapes} {dtypes} {formats}", row.kernel, row.core)
    };
    let texts = |rows: &[RecordedRow]| rows.iter().map(described).collect::<Vec<_>>();
    let (eager, replayed) = (texts(eager), texts(replayed));
    (eager != replayed).then(|| {
        let replayed = if replayed.is_empty() { "nothing".to_owned() } else { replayed.join(" and ") };
        format!(
            "NPUGraph: {LAUNCHES} replays are recorded as {replayed}, eager launches as {}",
            eager.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::assets::AssetFiles,
        kernel::{KernelName, catalogue::Catalogue},
        measure::selftest::recorded_rows::tests::row,
    };

    fn status(kernel: &str, verdict: Verdict) -> EntryStatus {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the built-in catalogue");
        let entry = catalogue.entry(&KernelName::new(kernel).expect("a name")).expect("an entry");
        entry_status(entry, verdict)
    }

    #[test]
    fn only_kernels_of_the_same_definition_may_run_instead() {
        assert_eq!(status("MatMulV2", Verdict::Noisy), EntryStatus::AsExpected);
        assert_eq!(status("MatMulV2", Verdict::RanAsOther), EntryStatus::RanAsEqualEntry);
        assert_eq!(status("MatMulV2", Verdict::WrongKernel), EntryStatus::Mismatch);
        assert_eq!(status("Add", Verdict::LostRecords), EntryStatus::Mismatch);
    }

    #[test]
    fn only_custom_operators_may_be_missing() {
        assert_eq!(status("AddRmsNormBias", Verdict::Unsupported), EntryStatus::NotInstalled);
        assert_eq!(status("RmsNorm", Verdict::Unsupported), EntryStatus::Mismatch);
    }

    #[test]
    fn replays_of_a_graph_have_the_records_of_eager_launches() {
        let rows = |kernel: &str, shape: &str, count: i64| {
            (0..count).map(|at| row(at, kernel, shape, "DT_BF16")).collect::<Vec<_>>()
        };
        let eager = rows("MatMulV2", "64,256", 2);
        assert_eq!(graph_difference(&eager, &rows("MatMulV2", "64,256", 2)), None);
        let problem = |replayed: &[RecordedRow]| graph_difference(&eager, replayed).expect("a difference");
        assert!(problem(&[]).contains("recorded as nothing"));
        assert!(
            problem(&rows("MatMulV2", "", 2))
                .contains("eager launches as MatMulV2 on AI_VECTOR_CORE with 64,256")
        );
        assert!(problem(&rows("MatMulV2", "64,256", 1)).contains("2 replays"));
    }
}
