//! The rows that a ledger determines, and their comparison with the rows of its database.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use rayon::prelude::*;

use super::{
    case_evidence::{ArchiveState, archive_state},
    missing_rows::{missing_row_issues, missing_rows},
};
use crate::{
    base::{count_text::format_count, files::is_missing, table::format::quote_cell},
    database::{
        CellDifference, Database, DatabaseError, FileIssues, KernelCsv, LintIssue, LintIssueKind, TableRow,
        columns, for_each_row_case,
        ledger::{Ledger, LedgerError, OtherKernelAttempt},
        row_cases,
    },
    kernel::{
        AttemptSamples, CacheState, Case, CaseId, CaseMap, CaseSet, Cause, IntervalMethod, KernelName, Nanos,
        RowResult, SoftwareFingerprint, Verdict, WithdrawnAttempts, cause::SoftwareRelation,
        render::files::EVIDENCE,
    },
    measure::verify::{EstimateInput, EstimatedCase, JointEstimates, pool_attempts, pooled_sample_count},
};

#[derive(Debug, Default)]
pub(crate) struct LedgerRows {
    pub(crate) estimates: JointEstimates,
    attempts: CaseMap<Vec<AttemptSamples>>,
    pub(crate) ran_as_other: BTreeMap<CaseId, OtherKernelAttempt>,
    pub(crate) withdrawn: BTreeMap<CaseId, WithdrawnAttempts>,
}

impl LedgerRows {
    pub(crate) fn read(ledger: &Ledger, cache: CacheState) -> Result<Self, LedgerError> {
        // Most ledgers have no collections with a cold cache, and the queries visit all attempts.
        if !ledger.has_collections(cache)? {
            return Ok(Self::default());
        }
        let mut input = EstimateInput::new(ledger, cache)?;
        let mut attempts: CaseMap<Vec<AttemptSamples>> = CaseMap::default();
        ledger.for_each_attempt(cache, |attempt| {
            input.add(&attempt.measured);
            let of_case = attempts.entry(attempt.measured.case);
            of_case.or_insert_with(|| Vec::with_capacity(1)).push(attempt.samples);
        })?;
        Ok(Self {
            estimates: JointEstimates::from_input(&input, ledger)?,
            attempts,
            ran_as_other: ledger.attempts_as_other(cache, None)?,
            withdrawn: ledger.withdrawn_attempts(cache, None)?,
        })
    }

    pub(crate) fn row(&self, case: &CaseId) -> Option<RowResult> {
        let attempts = self.attempts.get(case)?;
        let estimated = self.estimates.cases.get(case);
        let row = pooled_row(case, attempts, estimated, self.ran_as_other.get(case))?;
        let withdrawn = self.withdrawn.get(case);
        let withdrawn_runs = withdrawn.map(|withdrawn| withdrawn.runs.clone()).unwrap_or_default();
        let outcome = match estimated {
            Some(estimated) => estimated.judge_row(row.outcome),
            None => row.outcome,
        };
        Some(RowResult { outcome, withdrawn_runs, ..row })
    }

    fn is_withdrawn(&self, case: &CaseId, run: &str) -> bool {
        self.withdrawn.get(case).is_some_and(|withdrawn| withdrawn.runs.contains(run))
    }

    /// Returns the rows of a case after each of its collections but the last, and after the last without an estimate from
    /// other cases: a run writes them before it ends. Each has the number of collections after it; only rows with so many samples
    /// are computed, because their intervals take long with hundreds of collections.
    fn older_rows(&self, case: &CaseId, samples: Option<usize>) -> impl Iterator<Item = (usize, RowResult)> {
        let attempts = self.attempts.get(case).map(Vec::as_slice).unwrap_or_default();
        let last = attempts.len();
        let states = (1..=last).rev().map(move |count| &attempts[..count]);
        let same = states.filter(move |state| samples == Some(pooled_sample_count(state)));
        same.filter_map(move |state| Some((last - state.len(), pool_attempts(case, state, None)?)))
    }
}

pub(crate) fn case_row(
    ledger: &Ledger,
    case: &CaseId,
    cache: CacheState,
) -> Result<Option<RowResult>, LedgerError> {
    let newest_as_other = ledger.attempts_as_other(cache, Some(case))?.remove(case);
    Ok(pooled_row(case, &ledger.attempt_samples(case, cache)?, None, newest_as_other.as_ref()))
}

/// Pools attempts into a row, with a remark if the newest one ran as another kernel, which its software chooses now.
fn pooled_row(
    case: &CaseId,
    attempts: &[AttemptSamples],
    estimated: Option<&EstimatedCase>,
    newest_as_other: Option<&OtherKernelAttempt>,
) -> Option<RowResult> {
    let mut row = pool_attempts(case, attempts, estimated)?;
    if let Some(newest) = newest_as_other {
        let measured = row.software.as_deref().map(|software| &software.fingerprint);
        let software = compare_software(newest.software.as_ref(), measured);
        let finding = Box::new(newest.reason.cause.clone());
        row.outcome = row.outcome.with_remark(Cause::LaterAttempt { software, finding });
    }
    Some(row)
}

fn compare_software(
    attempt: Option<&SoftwareFingerprint>,
    measurement: Option<&SoftwareFingerprint>,
) -> SoftwareRelation {
    match (attempt, measurement) {
        (Some(attempt), Some(measurement)) if attempt == measurement => SoftwareRelation::Same,
        (Some(_), Some(_)) => SoftwareRelation::Other,
        _ => SoftwareRelation::Unknown,
    }
}

const MAX_CELLS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowComparison {
    Equal,
    Behind,
    /// A run that is not in the ledger wrote the row, or none is named; the ledger has nothing that would have replaced it.
    OtherLedger,
    /// The same, but the ledger has a measurement of the case that would have replaced the row's.
    UnknownRun {
        run: String,
        cells: Vec<CellDifference>,
    },
    /// Cells that the ledger contradicts. `is_rewritten` is true if the next run writes the ledger's values.
    Different {
        cells: Vec<CellDifference>,
        is_rewritten: bool,
    },
    NoMeasurement {
        case: CaseId,
        average: String,
    },
    NoSuchVerdict {
        run: String,
        verdict: String,
    },
}

#[derive(Debug)]
pub(crate) struct LedgerComparison {
    pub(crate) cache: CacheState,
    pub(crate) rows: LedgerRows,
    runs: BTreeSet<String>,
    verdicts: BTreeSet<(String, CaseId, String)>,
    compares_production: bool,
    /// True if the newest run has not ended, so that rows may show an earlier state.
    is_unfinished: bool,
}

impl LedgerComparison {
    pub(crate) fn read(ledger: &Ledger, database: &Database, cache: CacheState) -> Result<Self, LedgerError> {
        let rows = LedgerRows::read(ledger, cache)?;
        let is_sampled = |attempts: &Vec<AttemptSamples>| attempts.iter().any(|one| !one.samples.is_empty());
        let has_samples = |case: &CaseId| rows.attempts.get(case).is_some_and(is_sampled);
        let unsampled = rows.attempts.keys().filter(|case| !has_samples(case));
        Ok(Self {
            cache,
            compares_production: database.has_comparable_production(),
            runs: ledger.run_ids()?,
            verdicts: ledger.verdicts_without_samples(cache, has_samples, unsampled)?,
            rows,
            is_unfinished: ledger.has_unfinished_run()?,
        })
    }

    pub(crate) fn judged_row(&self, case: &CaseId, production: Option<Nanos>) -> Option<RowResult> {
        Some(self.judge_by_production(self.rows.row(case)?, production))
    }

    fn judge_by_production(&self, row: RowResult, production: Option<Nanos>) -> RowResult {
        match production.filter(|_| self.compares_production) {
            Some(production) => row.judged_by_production(production),
            None => row,
        }
    }

    pub(crate) fn compare_row(&self, row: &TableRow<'_>, case: &CaseId) -> RowComparison {
        let expected = self.judged_row(case, row.parsed.production);
        let found = row.parsed.cells(self.cache);
        let Some(run) = found.run.as_ref().filter(|run| self.runs.contains(*run)) else {
            return self.compare_unknown_run(row, expected.as_ref());
        };
        let cell = |column| {
            let column = columns::result_column(self.cache, column);
            column.map_or_else(String::new, |column| row.cell(column).into_owned())
        };
        let Some(expected) = expected else {
            let verdict = cell(columns::VERDICT);
            return if found.shown.is_some() && self.rows.is_withdrawn(case, run) {
                RowComparison::Behind
            } else if found.shown.is_some() {
                RowComparison::NoMeasurement { case: case.clone(), average: cell(columns::AVERAGE) }
            } else if self.verdicts.contains(&(run.clone(), case.clone(), verdict.clone())) {
                RowComparison::Equal
            } else {
                RowComparison::NoSuchVerdict { run: run.clone(), verdict }
            };
        };
        let Some(shown) = &found.shown else { return RowComparison::Behind };
        let cells = row.differences(&expected);
        if cells.is_empty() {
            RowComparison::Equal
        } else if self.is_earlier_state(row, case)
            || (self.is_unfinished && self.rows.is_withdrawn(case, run))
        {
            RowComparison::Behind
        } else {
            RowComparison::Different { cells, is_rewritten: expected.replaces_shown(shown) }
        }
    }

    fn compare_unknown_run(&self, row: &TableRow<'_>, expected: Option<&RowResult>) -> RowComparison {
        let found = row.parsed.cells(self.cache);
        match (&found.shown, expected) {
            (None, Some(_)) => RowComparison::Behind,
            // Rows of older tools have neither run nor samples.
            (Some(shown), Some(expected)) if found.run.is_some() || shown.samples.is_some() => {
                if self.is_unfinished || !expected.replaces_shown(shown) {
                    return RowComparison::OtherLedger;
                }
                let run = found.run.clone().unwrap_or_default();
                RowComparison::UnknownRun { run, cells: row.differences(expected) }
            }
            (Some(_), Some(_)) => RowComparison::OtherLedger,
            (_, None) if found.run.is_some() => RowComparison::OtherLedger,
            (_, None) => RowComparison::Equal,
        }
    }

    /// Returns true if a row shows the case as an earlier state of the ledger did. An interval that is an estimate of all
    /// cases can be of any earlier state if a run has not ended, or if the case has been measured again.
    fn is_earlier_state(&self, row: &TableRow<'_>, case: &CaseId) -> bool {
        let found = row.parsed.cells(self.cache);
        let is_estimated = found.method.is_some_and(IntervalMethod::depends_on_other_cases);
        let samples = found.shown.as_ref().and_then(|shown| shown.samples);
        self.rows.older_rows(case, samples).any(|(newer, earlier)| {
            let earlier = self.judge_by_production(earlier, row.parsed.production);
            let mut differences = row.differences(&earlier);
            differences.retain(|cell| columns::hot_column(cell.column) != columns::REASON);
            if newer > 0 || self.is_unfinished {
                differences.retain(|cell| !is_suspicion(cell));
                if is_estimated {
                    differences.retain(|cell| !cell.depends_on_other_cases());
                }
            }
            differences.is_empty()
        })
    }
}

/// Returns true for a verdict that differs because measurements of other cases contradict the row, or did.
fn is_suspicion(cell: &CellDifference) -> bool {
    let (suspicious, ok) = (Verdict::Suspicious.as_str(), Verdict::Ok.as_str());
    let verdicts = (cell.found.as_str(), cell.expected.as_str());
    columns::hot_column(cell.column) == columns::VERDICT
        && (verdicts == (suspicious, ok) || verdicts == (ok, suspicious))
}

#[derive(Debug, Default)]
struct TableIssues {
    /// Line, kind and text of each; entries of unknown runs are listed after the others.
    issues: Vec<(u64, LintIssueKind, String)>,
    behind: Option<(u64, usize)>,
    others: Option<(u64, usize)>,
}

fn list_cells(cells: &[CellDifference]) -> String {
    let listed = cells.iter().take(MAX_CELLS).map(|CellDifference { column, found, expected }| {
        format!("`{column}` is `{}`, the ledger has `{}`", quote_cell(found), quote_cell(expected))
    });
    let listed = listed.collect::<Vec<_>>().join("; ");
    let more = cells.len().saturating_sub(MAX_CELLS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    listed + &more
}

impl TableIssues {
    fn add_row(&mut self, line: u64, row: RowComparison, cache: CacheState) {
        let count = |counted: &mut Option<(u64, usize)>| {
            *counted = Some(counted.map_or((line, 1), |(first, rows)| (first, rows + 1)));
        };
        let run = run_command(cache);
        let shown = |column, cell: &str| {
            let column = columns::result_column(cache, column).unwrap_or(column);
            format!("`{column}` is `{}`", quote_cell(cell))
        };
        let mut kind = LintIssueKind::LedgerMismatch;
        let text = match row {
            RowComparison::Equal => return,
            RowComparison::Behind => return count(&mut self.behind),
            RowComparison::OtherLedger => return count(&mut self.others),
            RowComparison::Different { cells, is_rewritten: true } => {
                format!("{}: the next {run} writes the values of the ledger", list_cells(&cells))
            }
            RowComparison::Different { cells, is_rewritten: false } => format!(
                "{}: empty the measured cells of the row, or restore the ledger that the row is from",
                list_cells(&cells)
            ),
            RowComparison::UnknownRun { run: named, mut cells } => {
                kind = LintIssueKind::UnknownRun;
                cells.retain(|cell| columns::hot_column(cell.column) != columns::RUN);
                let others = match cells.is_empty() {
                    true => "all other cells are those of the ledger".to_owned(),
                    false => list_cells(&cells),
                };
                format!(
                    "{}, which is not a run of the ledger, although it has a result of this case; {others}: empty the \
                     measured cells of the row, so that {run} writes the ledger's, unless it is of another host",
                    shown(columns::RUN, &named)
                )
            }
            RowComparison::NoMeasurement { case, average } => format!(
                "{}, the ledger has no measurement of case {case}: restore the row's shapes, or empty its measured cells, so \
                 that {run} measures it",
                shown(columns::AVERAGE, &average)
            ),
            RowComparison::NoSuchVerdict { run, verdict } => format!(
                "{}, which is not a verdict of this case in run {run}: restore the row, or empty its `MicroBench` cells",
                shown(columns::VERDICT, &verdict)
            ),
        };
        self.issues.push((line, kind, text));
    }

    fn into_issues(mut self, file: &str, cache: CacheState) -> Vec<LintIssue> {
        self.issues.sort_by_key(|(_, kind, _)| *kind == LintIssueKind::UnknownRun);
        let mut issues = FileIssues::new(file);
        for (line, kind, text) in self.issues {
            issues.add_issue(line, kind, text);
        }
        if let Some((line, rows)) = self.behind {
            let (rows, run) = (format_count(rows, "row"), run_command(cache));
            let text = format!(
                "{rows} from here on without the newest result of the ledger; the next {run} writes it"
            );
            issues.add_issue(line, LintIssueKind::BehindLedger, text);
        }
        if let Some((line, rows)) = self.others {
            let rows = format_count(rows, "row");
            let text = format!("{rows} from here on with results of runs that are not in the ledger");
            issues.add_issue(line, LintIssueKind::NotCompared, text);
        }
        issues.list
    }
}

pub(super) const fn run_command(cache: CacheState) -> &'static str {
    match cache {
        CacheState::Hot => "`npubench run`",
        CacheState::Cold => "`npubench run --cache cold`",
    }
}

#[derive(Debug, Default)]
pub(crate) struct DatabaseComparison {
    pub(crate) issues: Vec<LintIssue>,
    /// Number of rows with values of production profiles. They are not compared: a database does not have the profiles.
    pub(crate) production_rows: usize,
}

impl DatabaseComparison {
    /// Adds a table, and its cases that the ledger has measured to `measured`.
    fn add_table(
        &mut self,
        comparisons: &[LedgerComparison],
        kernel: &KernelName,
        table: &KernelCsv,
        measured: &mut CaseSet,
    ) -> Result<(), DatabaseError> {
        let mut issues: Vec<TableIssues> = comparisons.iter().map(|_| TableIssues::default()).collect();
        let compare = |row: &TableRow<'_>| {
            // The id of a case is a digest, which is computed once for all states of the cache.
            let case = row.parsed.case.as_ref().ok().map(Case::id);
            let found = case.iter().flat_map(|case| comparisons.iter().map(|one| one.compare_row(row, case)));
            let found: Vec<RowComparison> = found.collect();
            let measured =
                case.filter(|case| comparisons.iter().any(|one| one.rows.attempts.contains_key(case)));
            (row.parsed.line, row.parsed.production.is_some(), found, measured)
        };
        let rows = row_cases(kernel, table)?.into_par_iter();
        let compared: Vec<_> = rows.map(|row| compare(&TableRow::read_cells(table, row))).collect();
        for (line, has_production, found, case) in compared {
            self.production_rows += usize::from(has_production);
            for ((issues, of), found) in issues.iter_mut().zip(comparisons).zip(found) {
                issues.add_row(line, found, of.cache);
            }
            measured.extend(case);
        }
        let file = table.path().file_name().unwrap_or_default().to_string_lossy();
        let of_states = issues.into_iter().zip(comparisons);
        self.issues.extend(of_states.flat_map(|(issues, of)| issues.into_issues(&file, of.cache)));
        Ok(())
    }
}

/// Compares every row of a database with its ledger, if there is one. A ledger that cannot be read is one note.
pub(crate) fn compare_database(database: &Database) -> DatabaseComparison {
    let path = database.ledger_path();
    let not_compared = |problem: String| {
        let file = path.strip_prefix(database.folder()).unwrap_or(&path).to_string_lossy().into_owned();
        let text = format!("rows are not compared with the ledger: {problem}");
        let issue = LintIssue { file, line: 1, kind: LintIssueKind::NotCompared, text };
        DatabaseComparison { issues: vec![issue], production_rows: 0 }
    };
    if is_missing(&path).is_ok_and(|is_missing| is_missing) {
        return match rows_of_runs(database) {
            0 => DatabaseComparison::default(),
            1 => not_compared("there is none, and 1 row names a run".to_owned()),
            rows => not_compared(format!("there is none, and {rows} rows name a run")),
        };
    }
    if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
        return not_compared("it is empty".to_owned());
    }
    let ledger = Ledger::open_to_read(&path).map_err(DatabaseError::from);
    let compared = ledger.and_then(|ledger| compare_with_ledger(database, &ledger));
    compared.unwrap_or_else(|error| not_compared(quote_cell(&error.to_string())))
}

fn compare_with_ledger(database: &Database, ledger: &Ledger) -> Result<DatabaseComparison, DatabaseError> {
    let comparisons = CacheState::ALL.iter().map(|cache| LedgerComparison::read(ledger, database, *cache));
    let comparisons: Vec<LedgerComparison> = comparisons.collect::<Result<_, _>>()?;
    let issues = changed_archives(database, &ledger.collection_archives()?);
    let mut compared = DatabaseComparison { issues, production_rows: 0 };
    let mut measured = CaseSet::default();
    for kernel in database.kernels_and_collectives()? {
        // A table that cannot be read is an issue of its own.
        let read = database.kernel_csv(&kernel);
        let _ = read.and_then(|table| compared.add_table(&comparisons, &kernel, &table, &mut measured));
    }
    // The search reads the ledger and all tables once more, and almost no database lacks a row.
    let mut with_attempts = comparisons.iter().flat_map(|comparison| comparison.rows.attempts.keys());
    if !with_attempts.all(|case| measured.contains(case)) {
        compared.issues.extend(missing_row_issues(database, &missing_rows(database, ledger)?));
    }
    Ok(compared)
}

fn rows_of_runs(database: &Database) -> usize {
    let mut rows = 0;
    for kernel in database.kernels_and_collectives().unwrap_or_default() {
        let Ok(table) = database.kernel_csv(&kernel) else { continue };
        let _ = for_each_row_case(&kernel, &table, |row| {
            rows += usize::from(CacheState::ALL.iter().any(|cache| row.cells(*cache).run.is_some()));
        });
    }
    rows
}

/// Returns an issue for each archive of evidence that was changed after its collection or cannot be read.
fn changed_archives(database: &Database, stored: &BTreeMap<(String, u32), Option<String>>) -> Vec<LintIssue> {
    let changed = stored.par_iter().filter_map(|((run, collection), digest)| {
        let digest = digest.as_ref()?;
        let folder = database.collection_folder(run, *collection);
        let (kind, text) = match archive_state(&folder, digest) {
            ArchiveState::Unchanged | ArchiveState::Missing => return None,
            ArchiveState::Changed => (
                LintIssueKind::ChangedEvidence,
                format!(
                    "was changed after collection {collection} of run {run}: its SHA-256 is not {digest}; restore it, or \
                     remove it if it was damaged"
                ),
            ),
            ArchiveState::Unreadable(reason) => (
                LintIssueKind::NotCompared,
                format!("cannot be compared with its SHA-256 of run {run}: {}", quote_cell(&reason)),
            ),
        };
        let file = folder.join(EVIDENCE);
        let file = file.strip_prefix(database.folder()).unwrap_or(&file).to_string_lossy().into_owned();
        Some(LintIssue { file, line: 1, kind, text })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::{IdentifiedSoftware, Verdict};

    /// With hundreds of collections, the intervals of all states took longer than the run that wrote the rows.
    #[test]
    fn only_states_with_as_many_samples_are_computed() {
        let case = CaseId::from_stored("00000000000000ff");
        let attempt = |samples: usize, cann: &str| AttemptSamples {
            cache: CacheState::Hot,
            run: format!("run of {cann}").into(),
            verdict: Verdict::Ok,
            reason: Arc::new("".into()),
            samples: vec![1000; samples].as_slice().into(),
            outliers: 0,
            counters: Vec::new().into(),
            task: Arc::default(),
            software: Some(Arc::new(IdentifiedSoftware::new(SoftwareFingerprint {
                cann: Some(cann.to_owned()),
                ..Default::default()
            }))),
        };
        // The states have 9, 18, 18 (the newer software alone), 27 and 36 samples.
        let attempts =
            [attempt(9, "8.3"), attempt(9, "8.3"), attempt(18, "8.5"), attempt(9, "8.5"), attempt(9, "8.5")];
        let rows = LedgerRows {
            estimates: JointEstimates::default(),
            attempts: CaseMap::from_iter([(case.clone(), attempts.to_vec())]),
            ran_as_other: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
        };
        let states = |samples: Option<usize>| -> Vec<(usize, usize, String)> {
            let states = rows.older_rows(&case, samples);
            let shown = |(later, row): (usize, RowResult)| {
                (later, row.measurement.map_or(0, |measured| measured.samples), row.run)
            };
            states.map(shown).collect()
        };
        let of = |later: usize, samples: usize, cann: &str| (later, samples, format!("run of {cann}"));
        assert_eq!(states(Some(18)), [of(2, 18, "8.5"), of(3, 18, "8.3")]);
        assert_eq!(states(Some(36)), [of(0, 36, "8.5")]);
        assert_eq!((states(Some(10)), states(None)), (vec![], vec![]));
    }

    #[test]
    fn unrecorded_software_is_not_the_same() {
        let [old, new] = ["8.3", "8.5"].map(|version| SoftwareFingerprint {
            cann: Some(version.to_owned()),
            ..SoftwareFingerprint::default()
        });
        assert_eq!(compare_software(Some(&old), Some(&old)), SoftwareRelation::Same);
        assert_eq!(compare_software(Some(&new), Some(&old)), SoftwareRelation::Other);
        for (attempt, measurement) in [(None, None), (None, Some(&old)), (Some(&old), None)] {
            let found = compare_software(attempt, measurement);
            assert_eq!(found, SoftwareRelation::Unknown);
        }
    }
}
