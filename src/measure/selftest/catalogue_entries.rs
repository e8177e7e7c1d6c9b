//! Experiment 4: the call of each catalogue entry runs as the entry's kernel, and is recorded with its shapes, types and
//! formats. One kernel is also captured as an NPUGraph.
//!
//! Each entry has a collection of its own as long as no device gets more than [`MAX_ROUNDS`] of them in sequence; else
//! entries share collections. Entries that a broken collection did not reach are repeated alone. The rehearsal host has
//! one collection for each device, because it has no entry that could break it.

use std::{collections::BTreeMap, path::Path};

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::{
    evidence::{CaseReplay, SelftestContext, write_table},
    experiment::{EntryMismatch, EvidenceError, Experiment, Finding},
};
use crate::{
    base::shared_work::share_work,
    cases::plan::PlannedCase,
    database::{DatabaseError, RowCase, row_cases},
    kernel::{
        Case, CaseOutcome, DataKind, Dtype, IdentifiedCase, KernelName, Nanos, SignatureCells, Slot, Tensor,
        Verdict,
        catalogue::CatalogueEntry,
        render::{SentinelLengths, files},
    },
    profile::{REHEARSAL_PREFIX, RecordReader, collection_summaries},
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 4,
    name: "catalogue-entries",
    assumption: "the call of each catalogue entry runs as its kernel and is recorded with the entry's shapes and types",
    expected: "the smallest case of each entry runs as the kernel of its entry, with the recorded shapes, types and formats \
               of the entry and a record for each launch; the summary shows how a captured kernel is recorded",
    fix: "see entries.csv of the evidence; runs leave out the named kernels; a mismatch of Neg, Abs, TensorMove, MatMulV2 or MatMulV3 prevents runs",
    run,
};

const LAUNCHES: u32 = 2;
const MAX_ROUNDS: usize = 6;
/// Entries that every measurement needs: the sentinels, the control kernels and the product that settles the clock. A
/// mismatch of another one leaves out its kernel alone.
const REQUIRED_ENTRIES: [&str; 5] = ["Neg", "Abs", "TensorMove", "MatMulV2", "MatMulV3"];
const PRODUCT: (u64, u64, u64) = (64, 256, 128);
/// Lengths of the marks around the product, and around the replays of its graph.
const PRODUCT_MARKS: [(u64, u64); 2] = [(2, 3), (4, 5)];
const TABLE: &str = "entries.csv";
const HEADER: &str = "Entry,Status,Case From,Case Shapes,Launches,Records,OP Type,Library Function,Core,Input Shapes,Input \
                      Data Types,Input Formats,Output Shapes,Output Data Types,Reason";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
enum EntryStatus {
    #[strum(serialize = "as expected")]
    AsExpected,
    /// CANN chose a kernel whose entry has the same definition, as MatMulV2 and MatMulV3.
    #[strum(serialize = "ran as an equal entry")]
    RanAsEqualEntry,
    #[strum(serialize = "not installed")]
    NotInstalled,
    #[strum(serialize = "not tested")]
    NotTested,
    #[strum(serialize = "mismatch")]
    Mismatch,
}

/// Case of an entry: its example, else a row of the database. Rows come second, because rows of a grid may have shapes
/// that CANN launches as another kernel.
#[derive(Clone, Debug)]
struct EntryCase<'a> {
    entry: &'a CatalogueEntry,
    origin: &'static str,
    planned: Result<PlannedCase, String>,
    observed: Option<EntryObservation>,
}

#[derive(Clone, Debug)]
struct EntryObservation {
    outcome: CaseOutcome,
    launched: u32,
    rows: Vec<RecordedRow>,
    is_shared: bool,
}

fn entry_cases(context: &SelftestContext) -> Result<Vec<EntryCase<'_>>, EvidenceError> {
    let mut rows = smallest_rows(context)?;
    let cases = context.host.catalogue.entries().map(|entry| {
        let example = entry.example.clone().map(|case| (case, "example"));
        let found = example.or_else(|| rows.remove(&entry.kernel).map(|case| (case, "row")));
        let origin = found.as_ref().map_or("example", |(_, origin)| *origin);
        let case = found.ok_or_else(|| "no row in the database, and no example in the entry".to_owned());
        let planned = case.and_then(|(case, _)| context.planned_case(IdentifiedCase::new(case)));
        let planned = planned.and_then(|planned| match planned.devices {
            1 => Ok(planned),
            _ => Err("it needs several devices; experiment 11".to_owned()),
        });
        EntryCase { entry, origin, planned, observed: None }
    });
    Ok(cases.collect())
}

/// Returns the row with the fewest bytes of each entry that has one; rows that cannot be replayed on one device do not
/// count.
fn smallest_rows(context: &SelftestContext) -> Result<BTreeMap<KernelName, Case>, DatabaseError> {
    let mut smallest: BTreeMap<KernelName, Case> = BTreeMap::new();
    for kernel in context.host.database.kernels()? {
        let Some(entry) = context.host.catalogue.entry(&kernel) else { continue };
        let table = context.host.database.kernel_csv(&kernel)?;
        let cases = row_cases(&kernel, &table)?;
        // A row of a kernel on an AI CPU proves nothing about the AI cores.
        let cases = cases.into_iter().filter(|row| !row.is_on_ai_cpu);
        let mut cases: Vec<Case> = cases.filter_map(|row| row.case.ok()).collect();
        cases.sort_by_cached_key(|case| (case.bytes(), case.id()));
        let fits = |case: &Case| {
            context.planned_case(IdentifiedCase::new(case.clone())).is_ok_and(|planned| planned.devices == 1)
        };
        let Some(case) = cases.into_iter().find(fits) else { continue };
        if smallest.get(&entry.kernel).is_none_or(|known| case.bytes() < known.bytes()) {
            smallest.insert(entry.kernel.clone(), case);
        }
    }
    Ok(smallest)
}

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let mut cases = entry_cases(context)?;
    let launchable: Vec<usize> = (0..cases.len()).filter(|index| cases[*index].planned.is_ok()).collect();
    let rounds = match context.host.database.kind() {
        DataKind::Npu => MAX_ROUNDS,
        DataKind::Rehearsal => 1,
    };
    let size = launchable.len().div_ceil(context.devices.len() * rounds).max(1);
    replay_groups(context, folder, &mut cases, launchable.chunks(size).map(<[usize]>::to_vec).collect())?;
    let mut outcomes = cases.iter().filter_map(|case| Some(&case.observed.as_ref()?.outcome));
    if let Some(first) = outcomes.next()
        && first.verdict == Verdict::NotRun
        && outcomes.all(|outcome| outcome.verdict == Verdict::NotRun)
    {
        return Err(EvidenceError::missing(&first.reason));
    }
    // After a case that breaks its collection, the cases before it have no records and those after it no launches. An error
    // of unclear cause may not be that of the call.
    let is_repeated = |case: &EntryCase<'_>| {
        case.observed.as_ref().is_some_and(|EntryObservation { outcome, is_shared, .. }| {
            (*is_shared && matches!(outcome.verdict, Verdict::NotRun | Verdict::LostRecords))
                || outcome.reason.cause.is_unclear()
        })
    };
    let left = (0..cases.len()).filter(|index| is_repeated(&cases[*index]));
    let left: Vec<Vec<usize>> = left.map(|index| vec![index]).collect();
    replay_groups(context, folder, &mut cases, left)?;
    write_table(&folder.join(TABLE), HEADER, cases.iter().flat_map(table_lines))?;
    let (captured, graph_problem) = captured_product(context, &folder.join("npu-graph"))?;
    let mismatches = cases.iter().map(|case| (case, judge_entry(case)));
    let mismatches = mismatches.filter(|(_, (status, _))| *status == EntryStatus::Mismatch);
    let shares = time_shares(context)?;
    let mismatches = mismatches.map(|(case, (_, reason))| {
        let kernel = case.entry.kernel.clone();
        EntryMismatch { time_share: shares.get(&kernel).copied(), kernel, reason }
    });
    let is_required = |one: &EntryMismatch| REQUIRED_ENTRIES.contains(&one.kernel.as_str());
    let (required, mismatches): (Vec<_>, Vec<_>) = mismatches.partition(is_required);
    let required = required.into_iter().map(|one| format!("{}: {}", one.kernel, one.reason));
    let problems = required.chain(graph_problem).collect();
    Ok(Finding { seen: format!("{}; {captured}", summary(&cases)), problems, mismatches })
}

/// Returns the part of the recorded time of the database that the kernels of each entry take.
fn time_shares(context: &SelftestContext) -> Result<BTreeMap<KernelName, f64>, DatabaseError> {
    let (mut shares, mut all): (BTreeMap<KernelName, f64>, f64) = (BTreeMap::new(), 0.0);
    for kernel in context.host.database.kernels()? {
        let rows = row_cases(&kernel, &context.host.database.kernel_csv(&kernel)?)?;
        let recorded: f64 = rows.iter().map(RowCase::recorded_seconds).sum();
        all += recorded;
        if let Some(entry) = context.host.catalogue.entry(&kernel) {
            *shares.entry(entry.kernel.clone()).or_default() += recorded;
        }
    }
    shares.values_mut().for_each(|share| *share /= all.max(f64::MIN_POSITIVE));
    Ok(shares)
}

fn replay_groups(
    context: &SelftestContext,
    folder: &Path,
    cases: &mut [EntryCase<'_>],
    groups: Vec<Vec<usize>>,
) -> Result<(), EvidenceError> {
    let known = &*cases;
    let replay = |device: &u32, group: Vec<usize>| replay_group(context, folder, known, &group, *device);
    for (index, observation) in share_work(&context.devices, groups, replay)?.into_iter().flatten() {
        cases[index].observed = Some(observation);
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
    let planned = group.iter().filter_map(|index| cases[*index].planned.as_ref().ok());
    let planned: Vec<&PlannedCase> = planned.collect();
    let first = planned[0].case.kernel.file_stem();
    let name = match planned.len() {
        1 => first.to_string(),
        count => format!("{first}-and-{}-more", count - 1),
    };
    let folder = folder.join(name);
    let replay =
        CaseReplay { cases: &planned, devices: &[device], warm_up: 0, measured: LAUNCHES, flush_bytes: None };
    let attempts = context.replay_cases(&folder, &replay)?;
    // Where the table cannot be read, each attempt has the reason.
    let rows = read_rows(&folder.join(files::PROFILE)).unwrap_or_default();
    let sentinels = SentinelLengths::default();
    let observations = group.iter().zip(attempts).zip(0..).map(|((index, attempt), ordinal)| {
        let (opening, closing) = (sentinels.opening(ordinal), sentinels.closing_length(ordinal));
        let observation = EntryObservation {
            outcome: attempt.outcome,
            launched: attempt.launched,
            rows: rows_between(&rows, opening, closing).to_vec(),
            is_shared: planned.len() > 1,
        };
        (*index, observation)
    });
    Ok(observations.collect())
}

fn table_lines(case: &EntryCase<'_>) -> Vec<Vec<String>> {
    let (status, reason) = judge_entry(case);
    let EntryCase { entry, origin, planned, observed } = case;
    let shapes = planned.as_ref().map(|planned| planned.case.shapes()).unwrap_or_default();
    let launched = observed.as_ref().map_or(0, |observed| observed.launched);
    let line = |records: usize, row: Option<&RecordedRow>| {
        let [status, origin, kernel] = [status.to_string(), origin.to_string(), entry.kernel.to_string()];
        let mut cells =
            vec![kernel, status, origin, shapes.clone(), launched.to_string(), records.to_string()];
        match row {
            Some(row) => {
                cells.extend([&row.kernel, row.library_function(), &row.core].map(str::to_owned));
                cells.extend_from_slice(&row.cells[..5]);
            }
            None => cells.resize(14, String::new()),
        }
        cells.push(reason.clone());
        cells
    };
    let mut kinds: IndexMap<_, (usize, &RecordedRow)> = IndexMap::new();
    for row in observed.iter().flat_map(|observed| &observed.rows) {
        kinds.entry((&row.kernel, &row.core, &row.cells)).or_insert((0, row)).0 += 1;
    }
    if kinds.is_empty() {
        return vec![line(0, None)];
    }
    kinds.into_values().map(|(count, row)| line(count, Some(row))).collect()
}

fn judge_entry(case: &EntryCase<'_>) -> (EntryStatus, String) {
    let outcome = match (&case.planned, &case.observed) {
        (Err(reason), _) => return (EntryStatus::NotTested, reason.clone()),
        (Ok(_), None) => return (EntryStatus::Mismatch, "the case was not launched".to_owned()),
        (Ok(_), Some(observed)) => &observed.outcome,
    };
    let status = entry_status(case.entry, outcome.verdict);
    let reason = match (status, outcome.verdict) {
        (EntryStatus::Mismatch, verdict) => format!("{verdict}: {}", outcome.reason),
        // Two launches are expected to be noisy; the returned text lists the remarks on the call.
        (EntryStatus::AsExpected, Verdict::Noisy | Verdict::Suspicious | Verdict::Throttled) => {
            let notes = outcome.reason.remarks.iter().map(ToString::to_string);
            notes.collect::<Vec<_>>().join("; ")
        }
        _ => outcome.reason.to_string(),
    };
    (status, reason)
}

fn entry_status(entry: &CatalogueEntry, verdict: Verdict) -> EntryStatus {
    match verdict {
        // Two launches are too few for an interval, so that their case is noisy.
        verdict if verdict.is_recorded() => EntryStatus::AsExpected,
        Verdict::RanAsOther => EntryStatus::RanAsEqualEntry,
        Verdict::Unsupported if entry.needs.custom_operators => EntryStatus::NotInstalled,
        _ => EntryStatus::Mismatch,
    }
}

fn summary(cases: &[EntryCase<'_>]) -> String {
    let mut names: BTreeMap<EntryStatus, Vec<&str>> = BTreeMap::new();
    for case in cases {
        names.entry(judge_entry(case).0).or_default().push(case.entry.kernel.as_str());
    }
    let counts = names.iter().map(|(status, names)| match status {
        EntryStatus::AsExpected => format!("{} {status}", names.len()),
        _ => format!("{} {status} ({})", names.len(), names.join(", ")),
    });
    format!("{} entries: {}", cases.len(), counts.collect::<Vec<_>>().join(", "))
}

/// Launches a product eagerly and as a captured graph. Returns what was seen, and the difference of the records.
fn captured_product(
    context: &SelftestContext,
    folder: &Path,
) -> Result<(String, Option<String>), EvidenceError> {
    let (rows, inner, columns) = PRODUCT;
    let parameters = json!({ "rows": rows, "inner": inner, "columns": columns, "launches": LAUNCHES });
    let evidence = context.script(folder, "graph", parameters).collect()?;
    if let Some(reason) = evidence.journal_value("not_captured").and_then(Value::as_str) {
        return Ok((format!("no NPUGraph: {reason}"), None));
    }
    // No run launches graphs, so that an end within the capture says nothing about runs.
    if evidence.journal_value("done").is_none() {
        return Ok((format!("no NPUGraph: the script did not finish: {}", evidence.last_line()), None));
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordedRow {
    start: Nanos,
    /// Operator's name, such as `aclnnMm_MatMulCommon_MatMulV2`, without the mark of a rehearsal.
    name: String,
    kernel: String,
    core: String,
    /// Shapes, types and formats of the inputs, then of the outputs.
    cells: [String; 6],
}

impl RecordedRow {
    /// Returns the length of a vector of int32, if it is the only input, as of a sentinel.
    fn sentinel_length(&self) -> Option<u64> {
        let [shapes, dtypes, formats, ..] = &self.cells;
        let slots: Vec<Slot> = SignatureCells { shapes, dtypes, formats }.parse().ok()?;
        match slots.as_slice() {
            [Some(Tensor { dims, dtype: Dtype::Int32, .. })]
                if self.kernel.starts_with("Neg") && dims.len() == 1 =>
            {
                Some(dims[0])
            }
            _ => None,
        }
    }

    /// Returns the name of the library function below the aclnn interface: the part of the operator's name between the
    /// interface and the type of the kernel; empty for names of another form.
    fn library_function(&self) -> &str {
        let Some((_, rest)) = self.name.strip_prefix("aclnn").and_then(|rest| rest.split_once('_')) else {
            return "";
        };
        rest.strip_suffix(self.kernel.as_str()).map_or(rest, |rest| rest.trim_end_matches('_'))
    }
}

/// Reads the records below a profile folder, sorted by start time. Records without a start are left out.
fn read_rows(profile: &Path) -> Result<Vec<RecordedRow>, EvidenceError> {
    let mut rows = Vec::new();
    for table in collection_summaries(profile)? {
        let mut reader = RecordReader::open(&table.0)?;
        while let Some(record) = reader.read_record()? {
            let Some(start) = record.start()? else { continue };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
            let name = text(record.name());
            rows.push(RecordedRow {
                start,
                name: name.strip_prefix(REHEARSAL_PREFIX).unwrap_or(&name).to_owned(),
                kernel: text(record.kernel()),
                core: text(record.core()),
                cells: record.signature_cells().map(|cell| text(cell).trim_matches('"').to_owned()),
            });
        }
    }
    rows.sort_by_key(|row| row.start);
    Ok(rows)
}

/// Returns the records between two sentinels, given by their lengths; empty if one of them is missing.
fn rows_between(rows: &[RecordedRow], opening: u64, closing: u64) -> &[RecordedRow] {
    let position = |length: u64| rows.iter().position(|row| row.sentinel_length() == Some(length));
    match (position(opening), position(closing)) {
        (Some(from), Some(to)) if from < to => &rows[from + 1..to],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::assets::AssetFiles,
        kernel::{KernelName, catalogue::Catalogue, render::ControlLaunches},
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
    fn required_entries_have_the_calls_of_the_control_kernels() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the built-in catalogue");
        let apis = REQUIRED_ENTRIES.map(|name| {
            let entry = catalogue.entry(&KernelName::new(name).expect("a name")).expect("an entry");
            entry.resolve_call(entry.example.as_ref().expect("an example")).expect("a call").api
        });
        for control in ControlLaunches::default().kernels {
            assert!(apis.contains(&control.api), "{apis:?}: {}", control.api);
        }
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

    /// A record whose input is also its output.
    fn row(start: i64, kernel: &str, shape: &str, dtype: &str) -> RecordedRow {
        let cells = [shape, dtype, "ND", shape, dtype, "ND"].map(str::to_owned);
        let (name, core) = (format!("aclnn{kernel}_{kernel}AiCore_{kernel}"), "AI_VECTOR_CORE".to_owned());
        RecordedRow { start: Nanos(start), name, kernel: kernel.to_owned(), core, cells }
    }

    #[test]
    fn records_between_sentinels_are_found_by_their_lengths() {
        let rows = [
            row(1, "Neg", "1", "INT32"),
            row(2, "Neg", "2", "INT32"),
            row(3, "Neg", "2", "DT_BF16"),
            row(4, "Add", "4,4", "FLOAT"),
            row(5, "Neg", "3", "INT32"),
            row(6, "Add", "4,4", "FLOAT"),
        ];
        assert_eq!(rows_between(&rows, 2, 3), &rows[2..4]);
        assert!(rows_between(&rows, 4, 5).is_empty());
        assert_eq!(rows[3].library_function(), "AddAiCore");
        let other = RecordedRow { name: "split_qkv_0".to_owned(), ..rows[3].clone() };
        assert_eq!(other.library_function(), "");
    }
}
