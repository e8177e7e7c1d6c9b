//! Repair of a database from its evidence. `npubench reparse` assesses the collections of the ledger again from their artefacts;
//! `npubench db rebuild` restores a damaged ledger from its copy and the evidence, and the rows that tables have lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    base::{
        assets::AssetFiles,
        command_error::CommandError,
        count_text::format_count,
        files::{MAX_TABLE, ScratchFolder, file_digest, is_missing, read_regular, write_atomic_by},
        shell_argument::quoted_path,
        stats::median,
    },
    cases::plan::planned_case,
    database::{
        Database, DatabaseError, LintIssue, LintIssueKind, add_absent_rows,
        ledger::{
            AttemptChange, AttemptState, AttemptedCollection, Ledger, LedgerCopy, LedgerError, NewCollection,
            check_not_lost, copy_path, copy_with_journal, journal_path, merge_ledgers, set_aside_hint,
        },
    },
    kernel::{
        CacheState, CaseId, CaseOutcome, CollectionPurpose, IdentifiedCase, SoftwareFingerprint,
        case_of_signature,
        catalogue::Catalogue,
        device::DeviceProfile,
        render::{Manifest, files},
        timestamp::Timestamp,
    },
    measure::{
        engine::{
            AssessmentRules, ReassessedCollection, WrittenRows, find_changes, launched_cases, rewrite_rows,
        },
        evidence::{MissingRows, missing_rows},
        recorder::EVENTS,
        verify::LowClocks,
    },
};

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
    /// Cases of the evidence whose rows are lost.
    #[serde(skip)]
    found: BTreeMap<CaseId, IdentifiedCase>,
    /// Cases of equal calls that no run planned.
    #[serde(skip)]
    unplanned: BTreeMap<CaseId, IdentifiedCase>,
}

/// Cases of a kernel with results in the ledger that had no row.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MissingKernelRows {
    pub(crate) kernel: String,
    pub(crate) has_table: bool,
    pub(crate) cases: usize,
    /// Number of the rows that were rebuilt.
    pub(crate) rebuilt: usize,
    /// Number of rebuilt rows with the shapes of the signature, because the evidence of their case is missing.
    pub(crate) without_evidence: usize,
}

impl MissingKernelRows {
    fn new(rows: &MissingRows, rebuilt: usize) -> Self {
        let (kernel, cases) = (rows.kernel.to_string(), rows.cases.len());
        Self { kernel, has_table: rows.has_table, cases, rebuilt, without_evidence: 0 }
    }

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
    pub(crate) fn is_complete(&self) -> bool {
        let is_equal = match &self.written {
            Some(written) => written.unwritten.is_empty(),
            None => self.differences.is_empty() && self.other_controls == 0 && self.other_software == 0,
        };
        let has_all_rows = self.missing.iter().all(|missing| missing.rebuilt == missing.cases);
        is_equal && has_all_rows && self.left.is_empty()
    }

    /// Returns an issue for each attempt, reading or software that does not follow from its evidence, and for unusable evidence.
    pub(crate) fn issues(&self, database: &Database) -> Vec<LintIssue> {
        let db = quoted_path(database.folder());
        let name =
            |path: &Path| path.strip_prefix(database.folder()).unwrap_or(path).to_string_lossy().into_owned();
        let evidence =
            |run: &str, number| name(&database.collection_folder(run, number).join(files::EVIDENCE));
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
    let evidence = (&collections[..], &lost);
    let mut report = compare_with_evidence(database, ledger, &catalogue, assets, evidence, writes)?;
    report.missing = missing.iter().map(|rows| MissingKernelRows::new(rows, 0)).collect();
    if writes {
        let order = ledger.planned_order()?;
        for (place, missing) in missing.iter().enumerate() {
            report.missing[place].rebuilt =
                rebuild_rows(database, &catalogue, missing, &report.found, &order)?;
        }
        // Rows of sweeps are inserted with their results.
        let collectives = report.found.values().filter(|case| case.kernel.is_collective());
        let unplanned: Vec<IdentifiedCase> = report.unplanned.values().chain(collectives).cloned().collect();
        report.written = Some(write_rows(database, ledger, &catalogue, &unplanned)?);
    }
    Ok(report)
}

/// Assesses the evidence of all collections again and returns the results of the ledger that do not follow from it; none without a
/// ledger. Fails if the database is in use or the ledger cannot be read.
pub(crate) fn check_evidence(db: &Database, assets: &AssetFiles) -> Result<Vec<LintIssue>, CommandError> {
    let path = db.ledger_path();
    // A run that was killed at its start leaves an empty file.
    if DatabaseError::is_missing(&path)?
        || fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == 0)
    {
        return Ok(Vec::new());
    }
    let _lock = db.lock_for_reading()?;
    let mut ledger = Ledger::open_to_read(&path)?;
    Ok(reparse_runs(db, &mut ledger, assets, None, false)?.issues(db))
}

/// If it `writes`, attempts in the ledger that differ are replaced. `lost` are the cases whose rows are lost.
fn compare_with_evidence(
    database: &Database,
    ledger: &mut Ledger,
    catalogue: &Catalogue,
    assets: &AssetFiles,
    (collections, lost): (&[AttemptedCollection], &BTreeSet<CaseId>),
    writes: bool,
) -> Result<ReparseReport, CommandError> {
    let device = DeviceProfile::load(assets, database.device())?;
    let rules = AssessmentRules { catalogue, device: &device };
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let mut report = ReparseReport::default();
    let planned = ledger.planned_cases()?;
    for collections in collections.chunks(AT_ONCE) {
        let assessed: Vec<Option<Result<ReassessedCollection, String>>> = collections
            .par_iter()
            .map(|collection| reassess(rules, database, collection, &scratch))
            .collect();
        for (collection, assessed) in collections.iter().zip(assessed) {
            let AttemptedCollection { collection: key, run, number, .. } = collection;
            let left = |case, problem| LeftEvidence { run: run.clone(), collection: *number, case, problem };
            report.not_launched += usize::from(assessed.is_none());
            let Some(assessed) = assessed else { continue };
            let assessed = assessed.map_err(|problem| report.left.push(left(None, problem)));
            let Ok(ReassessedCollection { mut attempts, controls, software, left: cases }) = assessed else {
                continue;
            };
            // A run stores no attempts of a collection that only tests a device.
            if collection.purpose == CollectionPurpose::Control {
                attempts.clear();
            }
            let equal = attempts.iter().flat_map(|(_, attempt)| &attempt.of_equal_calls);
            let equal = equal.map(|equal| &equal.case);
            let all = attempts.iter().map(|(case, _)| case).chain(equal.clone());
            let all = all.filter(|case| lost.contains(case.id()));
            report.found.extend(all.map(|case| (case.id().clone(), case.clone())));
            let equal = equal.filter(|case| !planned.contains(case.id()));
            report.unplanned.extend(equal.map(|case| (case.id().clone(), case.clone())));
            let [stored, assessed] = [ledger.controls(*key)?, controls].map(|mut readings| {
                readings.sort_by_key(|reading| (reading.device, reading.control, reading.end));
                readings
            });
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
    Ok(report)
}

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

/// Adds rows without results for the cases that were found; returns their number. Unplanned cases get rows with their results.
fn rebuild_rows(
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
fn write_rows(
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

/// Result of `npubench db rebuild`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RebuildReport {
    /// `None` for an intact ledger.
    pub(crate) restored: Option<RestoredLedger>,
    /// Cases with results in the ledger that had no row, by kernel.
    #[serde(rename = "missing_rows")]
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
}

/// Restoration of a damaged or lost ledger.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RestoredLedger {
    /// The damage, by SQLite.
    pub(crate) problem: String,
    /// Path of the damaged file after the rebuild; `None` if there was no file.
    pub(crate) kept: Option<PathBuf>,
    /// Runs with a folder that the copy lacks: they were killed before the ledger was copied, and their results are lost.
    pub(crate) lost_runs: Vec<String>,
    /// Number of collections that the copy lacked, and that the folders of their runs have.
    pub(crate) added_collections: usize,
    /// Number of collections that were compared with their evidence.
    pub(crate) compared_collections: usize,
    /// Number of attempts that were read from it, because the copy lacked them or had other values.
    pub(crate) changed_attempts: usize,
    /// Number of collections, or of their cases, whose evidence cannot be used.
    pub(crate) without_evidence: usize,
}

impl RebuildReport {
    pub(crate) fn is_complete(&self) -> bool {
        self.restored
            .as_ref()
            .is_none_or(|restored| restored.without_evidence == 0 && restored.lost_runs.is_empty())
            && self.missing.iter().all(|missing| missing.rebuilt == missing.cases)
            && self.written.as_ref().is_none_or(|written| written.unwritten.is_empty())
    }
}

/// Restores a damaged or lost ledger from its copy and the evidence, and adds the rows that the tables lack, with the ledger's
/// results. If it does not `write`, it works on copies and reports what it would do. The caller holds the lock of the database.
///
/// Fails if there is neither a ledger nor a copy, and if a damaged ledger has no intact copy; it is left as it is.
pub(crate) fn rebuild_database(
    database: &Database,
    assets: &AssetFiles,
    writes: bool,
) -> Result<RebuildReport, CommandError> {
    let path = database.ledger_path();
    let scratch = ScratchFolder::create().map_err(CommandError::no_temporary_folder)?;
    let catalogue = Catalogue::load(assets)?;
    let (mut restored, mut used) = (None, path.clone());
    if let Some(problem) = problem_of_ledger(database)? {
        let file = scratch.path().join("restored.db");
        let report = restore_ledger(database, problem, &file, (&catalogue, assets))?;
        if writes {
            replace_ledger(&path, &file, report.kept.as_deref())?;
        } else {
            used = file;
        }
        restored = Some(report);
    }
    let mut ledger = if writes { Ledger::open(&used)? } else { Ledger::open_to_read(&used)? };
    let order = ledger.planned_order()?;
    let (missing, insertable) = add_lost_rows(database, &ledger, (&catalogue, assets), &order, writes)?;
    let mut written = None;
    if writes {
        written = Some(write_rows(database, &mut ledger, &catalogue, &insertable)?);
        ledger.write_copy()?;
    }
    Ok(RebuildReport { restored, missing, written })
}

fn problem_of_ledger(database: &Database) -> Result<Option<String>, CommandError> {
    let path = database.ledger_path();
    let find_damage = || match Ledger::find_damage(&path)? {
        None if !is_missing(&path).is_ok_and(|is_missing| is_missing) => {
            Ledger::open_to_read(&path)?.check_runs_of_copy().map(|()| None)
        }
        damage => Ok(damage),
    };
    match check_not_lost(&path).and_then(|()| find_damage()) {
        Ok(None) if path.exists() => Ok(None),
        Ok(None) => Err(CommandError::bad_input(
            format!("`{}` has no ledger, from which its rows could be rebuilt", database.folder().display()),
            "a ledger is written by `npubench run`; rows of production profiles are read again by `npubench ingest PROFILE`",
        )),
        Ok(Some(problem)) | Err(LedgerError::Damaged { problem, .. }) => Ok(Some(problem)),
        Err(error) => Err(error.into()),
    }
}

/// Adds rows without results for the planned cases of the ledger that have none, if it `writes`, in the `order` of cases. Returns what
/// was missing, and the cases that get their rows with their results: collectives, and those that no run planned.
///
/// Rows have the shapes and attributes of the case in the evidence. A signature may lack slots and the form of matrices: its shapes are
/// used for a case without evidence, unless they cannot be launched.
pub(crate) fn add_lost_rows(
    database: &Database,
    ledger: &Ledger,
    (catalogue, assets): (&Catalogue, &AssetFiles),
    order: &BTreeMap<CaseId, usize>,
    writes: bool,
) -> Result<(Vec<MissingKernelRows>, Vec<IdentifiedCase>), CommandError> {
    let missing = missing_rows(database, ledger)?;
    if missing.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let device = DeviceProfile::load(assets, database.device()).ok();
    let lost: BTreeSet<&CaseId> = missing.iter().flat_map(|rows| &rows.cases).collect();
    let mut launched: BTreeMap<CaseId, IdentifiedCase> = BTreeMap::new();
    for AttemptedCollection { run, number, .. } in ledger.attempted_collections(None)? {
        let cases = launched_cases(&database.collection_folder(&run, number));
        let cases = cases.into_iter().filter(|case| lost.contains(case.id()));
        launched.extend(cases.map(|case| (case.id().clone(), case)));
    }
    let is_launchable = |case: &IdentifiedCase| {
        let is_planned = |device| planned_case(catalogue, device, case.clone()).is_ok();
        catalogue.entry(&case.kernel).is_none() || device.as_ref().is_none_or(is_planned)
    };
    let known = ledger.cases_with_prefix("")?.into_iter();
    let signatures: BTreeMap<CaseId, String> = known.map(|known| (known.case, known.signature)).collect();
    let (mut reported, mut insertable) = (Vec::new(), Vec::new());
    for rows in &missing {
        let found: BTreeMap<CaseId, IdentifiedCase> = rows
            .cases
            .iter()
            .filter_map(|id| {
                let of_signature = || {
                    let case = IdentifiedCase::new(case_of_signature(&rows.kernel, signatures.get(id)?)?);
                    (case.id() == id && is_launchable(&case)).then_some(case)
                };
                Some((id.clone(), launched.get(id).cloned().or_else(of_signature)?))
            })
            .collect();
        let rebuilt =
            if writes { rebuild_rows(database, catalogue, rows, &found, order)? } else { found.len() };
        let without_evidence = found.keys().filter(|id| !launched.contains_key(id)).count();
        reported.push(MissingKernelRows { without_evidence, ..MissingKernelRows::new(rows, rebuilt) });
        let is_inserted =
            |case: &&IdentifiedCase| case.kernel.is_collective() || !order.contains_key(case.id());
        insertable.extend(found.values().filter(is_inserted).cloned());
    }
    Ok((reported, insertable))
}

fn restore_ledger(
    database: &Database,
    problem: String,
    file: &Path,
    (catalogue, assets): (&Catalogue, &AssetFiles),
) -> Result<RestoredLedger, CommandError> {
    let path = database.ledger_path();
    let copy = copy_path(&path);
    // An intact ledger may have runs that its copy lacks.
    let checked = match LedgerCopy::create(&path, &file.with_extension("own")) {
        Ok(own) if copy.exists() => LedgerCopy::create(&copy, &file.with_extension("copy"))
            .and_then(|copy| merge_ledgers(&[&own, &copy], &file.with_extension("union"), file))
            .err()
            .map(|error| error.to_string()),
        _ if copy.exists() => LedgerCopy::create(&copy, file).err().map(|error| error.to_string()),
        _ => Some(format!("there is no copy `{}`", copy.display())),
    };
    if let Some(problem_of_copy) = checked {
        return Err(CommandError::bad_input(
            format!("the ledger `{}` is damaged: {problem}; and {problem_of_copy}", path.display()),
            set_aside_hint(&database.state_folder()),
        ));
    }
    let mut ledger = Ledger::open(file)?;
    let lost_runs = runs_without_record(database, &ledger)?;
    let added_collections = add_recorded_collections(database, &mut ledger)?;
    let archived = ledger.archived_collections()?;
    let nothing_lost = BTreeSet::new();
    let evidence = (&archived[..], &nothing_lost);
    let compared = compare_with_evidence(database, &mut ledger, catalogue, assets, evidence, true)?;
    let time = Timestamp::now().to_jiff().strftime("%Y%m%dT%H%M%SZ");
    Ok(RestoredLedger {
        problem,
        kept: path.exists().then(|| path.with_added_extension(format!("damaged-{time}"))),
        lost_runs,
        added_collections,
        compared_collections: compared.collections,
        changed_attempts: compared.differences.len(),
        without_evidence: compared.left.len(),
    })
}

/// A line of a run's `events.jsonl` about a collection.
#[derive(Deserialize)]
struct CollectionEvent {
    at: Timestamp,
    event: String,
    collection: u32,
    devices: Vec<u32>,
    purpose: CollectionPurpose,
    predicted_s: Option<f64>,
    outcome: Option<String>,
}

fn runs_without_record(database: &Database, ledger: &Ledger) -> Result<Vec<String>, CommandError> {
    let recorded: BTreeSet<String> = ledger.list_runs()?.into_iter().map(|run| run.run).collect();
    let folder = database.state_folder().join("runs");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => {
            read.and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(file_error("read", &folder))?
        }
    };
    let has_events = entries.iter().filter(|entry| entry.path().join(EVENTS).exists());
    let names = has_events.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut lost: Vec<String> = names.filter(|run| !recorded.contains(run)).collect();
    lost.sort();
    Ok(lost)
}

/// Adds the collections of known runs that a copy of the ledger lacks, as the files of the runs describe them; returns their number.
/// One without evidence, which a kill or a full disk left, has no attempts, so that its cases are measured again.
fn add_recorded_collections(database: &Database, ledger: &mut Ledger) -> Result<usize, CommandError> {
    let mut added = 0;
    for run in ledger.list_runs()? {
        let run = run.run;
        let known: BTreeSet<u32> = ledger.run_collections(&run)?.iter().map(|one| one.number).collect();
        let file = database.run_folder(&run).join(EVENTS);
        let events = match read_regular(&file, MAX_TABLE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(file_error("read", &file))?,
        };
        let events = String::from_utf8_lossy(&events);
        let mut keys: BTreeMap<u32, i64> = BTreeMap::new();
        // Other events have other keys, and the last line may be cut off.
        for event in events.lines().filter_map(|line| serde_json::from_str::<CollectionEvent>(line).ok()) {
            let (number, Timestamp(at)) = (event.collection, event.at);
            let folder = database.collection_folder(&run, number);
            match (event.event.as_str(), keys.get(&number)) {
                ("collection_started", None) if !known.contains(&number) => {
                    let manifest = read_regular(&folder.join(files::MANIFEST), MAX_TABLE).ok();
                    let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
                    let Some(manifest) = manifest else { continue };
                    let key = ledger.begin_collection(&NewCollection {
                        run: &run,
                        number,
                        devices: &event.devices,
                        purpose: event.purpose,
                        cache: manifest.cache(),
                        predicted: event.predicted_s.unwrap_or_default(),
                        started: at,
                    })?;
                    keys.insert(number, key);
                    added += 1;
                }
                ("collection_finished", Some(&key)) => {
                    let outcome = event.outcome.unwrap_or_else(|| "done".to_owned());
                    ledger.finish_collection(key, at, &outcome, &SoftwareFingerprint::default(), &[])?;
                    if let Ok(digest) = file_digest(&folder.join(files::EVIDENCE)) {
                        ledger.set_archive(key, &digest)?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(added)
}

fn replace_ledger(path: &Path, new: &Path, kept: Option<&Path>) -> Result<(), CommandError> {
    if let Some(kept) = kept {
        copy_with_journal(path, kept)
            .and_then(|_| fs::File::open(kept)?.sync_all())
            .map_err(file_error("keep", path))?;
    }
    let mut new = fs::File::open(new).map_err(file_error("read", new))?;
    // The journal of the damaged file must not be applied to the new one.
    match fs::remove_file(journal_path(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(file_error("remove the journal of", path)(error));
        }
        _ => {}
    }
    Ok(write_atomic_by(path, |out| io::copy(&mut new, out).map(|_| ())).map_err(DatabaseError::from)?)
}

fn file_error(action: &str, path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let hint = "check free space and permissions; no content of the ledger was changed";
    CommandError::io(action, path, hint)
}
