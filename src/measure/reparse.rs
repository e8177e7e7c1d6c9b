//! `npubench reparse`: the collections of the ledger, assessed again from their artefacts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    base::{
        assets::AssetFiles, command_error::CommandError, count_text::format_count, files::ScratchFolder,
        shell_argument::quoted_path, stats::median,
    },
    database::{
        Database, LintIssue, LintIssueKind, add_absent_rows,
        ledger::{AttemptChange, AttemptState, AttemptedCollection, Ledger},
    },
    kernel::{
        CacheState, CaseId, CaseOutcome, CollectionPurpose, IdentifiedCase, catalogue::Catalogue,
        device::DeviceProfile, render::files::EVIDENCE,
    },
    measure::{
        engine::{AssessmentRules, ReassessedCollection, WrittenRows, find_changes, rewrite_rows},
        evidence::{MissingRows, missing_rows},
        verify::LowClocks,
    },
};

/// Number of collections whose assessments are in memory at once.
const AT_ONCE: usize = 64;

/// Collections that were assessed again from their artefacts.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ReparseReport {
    /// Number of assessed collections and of their attempts in the ledger.
    pub(crate) collections: usize,
    pub(crate) attempts: usize,
    /// Collections without a launch, which have nothing to assess.
    pub(crate) not_launched: usize,
    pub(crate) differences: Vec<AttemptDifference>,
    /// Number of collections whose control kernels have other readings in the ledger.
    pub(crate) other_controls: usize,
    /// Number of collections whose software the evidence has, and the ledger has not.
    pub(crate) other_software: usize,
    pub(crate) left: Vec<LeftEvidence>,
    /// Cases with results in the ledger that had no row, by kernel.
    #[serde(rename = "missing_rows")]
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
}

/// Cases of a kernel with results in the ledger that had no row.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MissingKernelRows {
    pub(crate) kernel: String,
    pub(crate) has_table: bool,
    pub(crate) cases: usize,
    /// Number of the rows that were rebuilt.
    pub(crate) rebuilt: usize,
}

impl MissingKernelRows {
    pub(super) fn new(rows: &MissingRows, rebuilt: usize) -> Self {
        let (kernel, cases) = (rows.kernel.to_string(), rows.cases.len());
        Self { kernel, has_table: rows.has_table, cases, rebuilt }
    }

    /// Returns what was missing, as the begin of a sentence.
    pub(crate) fn place_text(&self) -> String {
        let (kernel, cases) = (&self.kernel, format_count(self.cases, "case"));
        match self.has_table {
            true => format!("{cases} of {kernel} with results in the ledger had no row"),
            false => format!("the table of {kernel} was missing, with {cases} of the ledger"),
        }
    }
}

/// Evidence that cannot be assessed again: that of a collection or of one of its cases.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LeftEvidence {
    pub(crate) run: String,
    /// Number of the collection in its run.
    pub(crate) collection: u32,
    /// `None` for all cases of the collection.
    #[schemars(with = "Option<String>")]
    pub(crate) case: Option<CaseId>,
    pub(crate) problem: String,
}

/// An attempt whose evidence gives another result than the ledger has.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AttemptDifference {
    pub(crate) run: String,
    pub(crate) collection: u32,
    #[schemars(with = "String")]
    pub(crate) case: CaseId,
    pub(crate) kernel: String,
    /// Names of the properties that differ.
    pub(crate) differs: Vec<&'static str>,
    pub(crate) before: Option<AttemptSummary>,
    pub(crate) after: AttemptSummary,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AttemptSummary {
    verdict: String,
    pub(crate) reason: String,
    pub(crate) samples: usize,
    /// Of the accepted samples.
    pub(crate) median_us: Option<f64>,
    is_withdrawn: bool,
}

impl AttemptSummary {
    fn new(state: &AttemptState) -> Self {
        let accepted = state.launches.iter().filter(|launch| launch.is_accepted);
        let samples: Vec<i64> = accepted.map(|launch| launch.duration.0).collect();
        Self {
            verdict: state.outcome.verdict.to_string(),
            reason: state.outcome.reason.to_string(),
            samples: samples.len(),
            median_us: median(samples).map(|median| median / 1_000.0),
            is_withdrawn: state.is_withdrawn,
        }
    }

    pub(crate) fn verdict_text(&self) -> String {
        format!("{}{}", self.verdict, if self.is_withdrawn { " (withdrawn)" } else { "" })
    }

    fn text(&self) -> String {
        let median = self.median_us.map_or_else(String::new, |us| format!(", {} x {us:.3} us", self.samples));
        self.verdict_text() + &median
    }
}

impl AttemptDifference {
    fn text(&self) -> String {
        let ledger = self.before.as_ref().map_or_else(|| "no attempt".to_owned(), AttemptSummary::text);
        format!(
            "{} {}: the ledger has {ledger}, and the evidence gives {}; {}",
            self.kernel,
            self.case,
            self.after.text(),
            match self.differs.as_slice() {
                ["attempt"] => "the attempt is missing".to_owned(),
                differs => format!("different: {}", differs.join(", ")),
            }
        )
    }

    pub(crate) fn new(run: &str, collection: u32, change: &AttemptChange) -> Self {
        let AttemptChange { case, kernel, before, after, .. } = change;
        let differs = match before {
            None => vec!["attempt"],
            Some((_, before)) => [
                ("verdict", before.outcome.verdict != after.outcome.verdict),
                ("reason", before.outcome.reason != after.outcome.reason),
                ("samples", before.launches != after.launches),
                ("launched", before.launched != after.launched),
                ("counters", before.counters != after.counters),
                ("operator", before.task.operator != after.task.operator),
                ("task", (&before.task.state, &before.task.core) != (&after.task.state, &after.task.core)),
                ("cycles", before.cycle_rate != after.cycle_rate),
                ("withdrawn", before.is_withdrawn != after.is_withdrawn),
            ]
            .into_iter()
            .filter_map(|(name, differs)| differs.then_some(name))
            .collect(),
        };
        Self {
            run: run.to_owned(),
            collection,
            case: case.clone(),
            kernel: kernel.clone(),
            before: before.as_ref().map(|(_, before)| AttemptSummary::new(before)),
            after: AttemptSummary::new(after),
            differs,
        }
    }
}

impl ReparseReport {
    /// Returns true if all evidence could be used, and the ledger and the rows are what follows from it.
    pub(crate) fn is_complete(&self) -> bool {
        let is_equal = match &self.written {
            Some(written) => written.unwritten.is_empty(),
            None => self.differences.is_empty() && self.other_controls == 0 && self.other_software == 0,
        };
        let has_all_rows = self.missing.iter().all(|missing| missing.rebuilt == missing.cases);
        is_equal && has_all_rows && self.left.is_empty()
    }

    /// Returns an issue for each attempt that does not follow from its evidence, for control readings and software that do not,
    /// and for each collection or case whose evidence cannot be used.
    pub(crate) fn issues(&self, database: &Database) -> Vec<LintIssue> {
        let db = quoted_path(database.folder());
        let name =
            |path: &Path| path.strip_prefix(database.folder()).unwrap_or(path).to_string_lossy().into_owned();
        let evidence = |run: &str, number| name(&database.collection_folder(run, number).join(EVIDENCE));
        let issue = |file, kind, text| LintIssue { file, line: 1, kind, text };
        let differences = self.differences.iter().map(|found| {
            let AttemptDifference { run, collection, .. } = found;
            let text = format!("{}: `npubench reparse {run} --db {db} --write` replaces it", found.text());
            issue(evidence(run, *collection), LintIssueKind::EvidenceMismatch, text)
        });
        let left = self.left.iter().map(|LeftEvidence { run, collection, case, problem }| {
            let case = case.as_ref().map_or_else(String::new, |case| format!("case {case}: "));
            let text = format!("not assessed again: {case}{problem}");
            issue(evidence(run, *collection), LintIssueKind::NotCompared, text)
        });
        let others = [
            (self.other_controls, "other readings of their control kernels than the ledger"),
            (self.other_software, "their software in the evidence alone"),
        ];
        let others = others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| {
            let collections = format_count(count, "collection");
            let text = format!("{collections} with {what}: `npubench reparse --db {db} --write` stores them");
            issue(name(&database.ledger_path()), LintIssueKind::EvidenceMismatch, text)
        });
        differences.chain(left).chain(others).collect()
    }
}

/// Compares the attempts of a run, or of all runs, with their artefacts by the rules of this version. If it `writes`,
/// it replaces those that differ and writes all rows that differ from the ledger, also those that an interrupted call
/// left; else it writes nothing. The caller holds the lock of the database.
pub(crate) fn reparse_runs(
    database: &Database,
    ledger: &mut Ledger,
    assets: &AssetFiles,
    run: Option<&str>,
    writes: bool,
) -> Result<ReparseReport, CommandError> {
    let collections = ledger.attempted_collections(run)?;
    let catalogue = Catalogue::load(assets)?;
    let missing = missing_rows(database, ledger)?;
    let lost: BTreeSet<CaseId> = missing.iter().flat_map(|rows| &rows.cases).cloned().collect();
    let EvidenceComparison { mut report, found, unplanned } =
        compare_with_evidence(database, ledger, &catalogue, assets, (&collections, &lost), writes)?;
    report.missing = missing.iter().map(|rows| MissingKernelRows::new(rows, 0)).collect();
    if writes {
        let order = ledger.planned_order()?;
        for (missing, report) in missing.iter().zip(&mut report.missing) {
            report.rebuilt = rebuild_rows(database, &catalogue, missing, &found, &order)?;
        }
        // Rows of sweeps are inserted with their results.
        let collectives = found.values().filter(|case| case.kernel.is_collective());
        let unplanned: Vec<IdentifiedCase> = unplanned.into_values().chain(collectives.cloned()).collect();
        report.written = Some(write_rows(database, ledger, &catalogue, &unplanned)?);
    }
    Ok(report)
}

/// Assesses the evidence of all collections again and returns the results of the ledger that do not follow from it; none without a
/// ledger. Fails if the database is in use or the ledger cannot be read.
pub(crate) fn check_evidence(
    database: &Database,
    assets: &AssetFiles,
) -> Result<Vec<LintIssue>, CommandError> {
    let path = database.ledger_path();
    // A run that was killed at its start leaves an empty file.
    if !fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() > 0) {
        return Ok(Vec::new());
    }
    let _lock = database.lock_for_reading()?;
    let mut ledger = Ledger::open_to_read(&path)?;
    Ok(reparse_runs(database, &mut ledger, assets, None, false)?.issues(database))
}

pub(super) struct EvidenceComparison {
    /// Differences; nothing of rows.
    pub(super) report: ReparseReport,
    /// Cases of the evidence whose rows are lost.
    found: BTreeMap<CaseId, IdentifiedCase>,
    /// Cases of equal calls that no run planned.
    unplanned: BTreeMap<CaseId, IdentifiedCase>,
}

/// Compares the attempts of collections with their evidence. If `writes` is true, attempts in the ledger that differ
/// are replaced. `lost` are the cases whose rows are lost. No table is written.
pub(super) fn compare_with_evidence(
    database: &Database,
    ledger: &mut Ledger,
    catalogue: &Catalogue,
    assets: &AssetFiles,
    (collections, lost): (&[AttemptedCollection], &BTreeSet<CaseId>),
    writes: bool,
) -> Result<EvidenceComparison, CommandError> {
    let device = DeviceProfile::load(assets, database.device())?;
    let rules = AssessmentRules { catalogue, device: &device };
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let mut report = ReparseReport::default();
    let planned = ledger.planned_cases()?;
    let mut found: BTreeMap<CaseId, IdentifiedCase> = BTreeMap::new();
    let mut unplanned: BTreeMap<CaseId, IdentifiedCase> = BTreeMap::new();
    for collections in collections.chunks(AT_ONCE) {
        let assessed: Vec<Option<Result<ReassessedCollection, String>>> = collections
            .par_iter()
            .map(|collection| reassess(rules, database, collection, &scratch))
            .collect();
        for (collection, assessed) in collections.iter().zip(assessed) {
            let AttemptedCollection { collection: key, run, number, .. } = collection;
            let left = |case, problem| LeftEvidence { run: run.clone(), collection: *number, case, problem };
            let assessed = match assessed {
                None => {
                    report.not_launched += 1;
                    continue;
                }
                Some(Err(problem)) => {
                    report.left.push(left(None, problem));
                    continue;
                }
                Some(Ok(assessed)) => assessed,
            };
            let ReassessedCollection { mut attempts, controls, software, left: cases } = assessed;
            // A run stores no attempts of a collection that only tests a device.
            if collection.purpose == CollectionPurpose::Control {
                attempts.clear();
            }
            let equal = attempts.iter().flat_map(|(_, attempt)| &attempt.of_equal_calls);
            let equal = equal.map(|equal| &equal.case);
            let all = attempts.iter().map(|(case, _)| case).chain(equal.clone());
            let all = all.filter(|case| lost.contains(case.id()));
            found.extend(all.map(|case| (case.id().clone(), case.clone())));
            let equal = equal.filter(|case| !planned.contains(case.id()));
            unplanned.extend(equal.map(|case| (case.id().clone(), case.clone())));
            let [mut stored, mut assessed] = [ledger.controls(*key)?, controls];
            stored.sort_by_key(|reading| (reading.device, reading.control, reading.end));
            assessed.sort_by_key(|reading| (reading.device, reading.control, reading.end));
            if stored != assessed {
                report.other_controls += 1;
                if writes {
                    ledger.set_controls(*key, &assessed)?;
                }
            }
            if ledger.lacks_software(*key)? && !software.is_unknown() {
                report.other_software += 1;
                if writes {
                    ledger.set_software(*key, &software)?;
                }
            }
            let stored = ledger.collection_attempts(*key)?;
            report.collections += 1;
            report.attempts += stored.len();
            let changes = find_changes(stored, &attempts, cases.is_empty());
            report.left.extend(cases.into_iter().map(|(case, problem)| left(Some(case), problem)));
            let differences = changes.iter().map(|change| AttemptDifference::new(run, *number, change));
            report.differences.extend(differences);
            if writes && !changes.is_empty() {
                ledger.replace_attempts(collection, &changes)?;
            }
        }
    }
    Ok(EvidenceComparison { report, found, unplanned })
}

/// Assesses a collection; `None` if it launched nothing, so that it may have no evidence.
fn reassess(
    rules: AssessmentRules<'_>,
    database: &Database,
    collection: &AttemptedCollection,
    scratch: &ScratchFolder,
) -> Option<Result<ReassessedCollection, String>> {
    let AttemptedCollection { collection: key, run, number, cache, archive, has_launches, .. } = collection;
    let Some(digest) = archive else {
        let problem = "the ledger has no SHA-256 of its evidence, which was not written";
        return has_launches.then(|| Err(problem.to_owned()));
    };
    let unpacked = scratch.path().join(key.to_string());
    let assessed = rules.reassess(&database.collection_folder(run, *number), digest, *cache, &unpacked);
    // The scratch folder is removed in any case.
    let _ = fs::remove_dir_all(&unpacked);
    Some(assessed)
}

/// Adds rows without results for the cases that were found; returns their number. Cases that no run planned get their rows
/// with their results.
pub(super) fn rebuild_rows(
    database: &Database,
    catalogue: &Catalogue,
    missing: &MissingRows,
    found: &BTreeMap<CaseId, IdentifiedCase>,
    order: &BTreeMap<CaseId, usize>,
) -> Result<usize, CommandError> {
    let kernel = &missing.kernel;
    let found = missing.cases.iter().filter_map(|case| found.get(case));
    let cases: Vec<&IdentifiedCase> = found.clone().filter(|case| order.contains_key(case.id())).collect();
    if !cases.is_empty() && !kernel.is_collective() {
        let recorded_inputs = catalogue.entry(kernel).map_or(0, |entry| entry.recorded_inputs);
        add_absent_rows(database, kernel, &cases, recorded_inputs, order)?;
    }
    Ok(found.count())
}

/// Compares the clocks of all collections, as the next run would, and writes the rows that differ from the ledger.
/// Measured cases of `unplanned` get a row. A call that was interrupted after it changed the ledger has the same work
/// left, so nothing here depends on what this call has changed.
pub(super) fn write_rows(
    database: &Database,
    ledger: &mut Ledger,
    catalogue: &Catalogue,
    unplanned: &[IdentifiedCase],
) -> Result<WrittenRows, CommandError> {
    let mut withdrawn = 0;
    for &cache in CacheState::ALL {
        let withdrawals = LowClocks::from_ledger(ledger, cache)?.withdrawals(ledger, catalogue)?;
        withdrawn += withdrawals.len();
        let outcomes: Vec<(i64, CaseOutcome)> =
            withdrawals.into_iter().map(|withdrawal| (withdrawal.attempt, withdrawal.outcome)).collect();
        if !outcomes.is_empty() {
            ledger.withdraw_attempts(&outcomes)?;
        }
    }
    Ok(WrittenRows { withdrawn, ..rewrite_rows(database, ledger, unplanned)? })
}
