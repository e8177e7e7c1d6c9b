//! Comparison of the rows of a database with its ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use rayon::prelude::*;

use super::{
    LedgerRows,
    missing_rows::{missing_row_issues, missing_rows},
    raw_records::{self, ArchiveState},
};
use crate::{
    base::{count_text::format_count, table::format::quote_cell},
    database::{
        CellDifference, Database, DatabaseError, FileIssues, KernelCsv, LintIssue, LintIssueKind, TableRow,
        columns, for_each_row_case,
        ledger::{Ledger, LedgerError},
        row_cases,
    },
    kernel::{
        CacheState, Case, CaseId, CaseSet, IntervalMethod, KernelName, Nanos, RowResult, Verdict,
        render::files::EVIDENCE,
    },
};

const MAX_CELLS: usize = 4;

/// A row compared with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowComparison {
    /// The row shows the ledger's result, or both have none.
    Equal,
    /// The ledger has a newer result.
    Behind,
    /// A run that is not in the ledger wrote the row, or none is named. The ledger has no measurement that would have
    /// replaced the measurement of the row.
    OtherLedger,
    /// The row names a run that is not in the ledger, or none, although the ledger has a measurement of the case that
    /// would have replaced the measurement of the row.
    UnknownRun { run: String, cells: Vec<CellDifference> },
    /// Cells that the ledger contradicts. `is_rewritten` is true if the next run writes the ledger's values.
    Different { cells: Vec<CellDifference>, is_rewritten: bool },
    /// The row shows a measurement of a case that has none in the ledger.
    NoMeasurement { case: CaseId, average: String },
    /// The row shows a verdict that the case never had in the row's run.
    NoSuchVerdict { run: String, verdict: String },
}

/// The measurements of a ledger in one state of the cache, with which measurements of rows are compared.
#[derive(Debug)]
pub(crate) struct LedgerComparison {
    cache: CacheState,
    rows: LedgerRows,
    runs: BTreeSet<String>,
    /// Run, case and verdict of the cases without a measurement.
    verdicts: BTreeSet<(String, CaseId, String)>,
    /// True if rows are compared with the production profiles of the database.
    compares_production: bool,
    /// True if the newest run has not ended, so that rows may show an earlier state.
    is_unfinished: bool,
}

impl LedgerComparison {
    /// Reads the ledger of a database. Fails with [`LedgerError`] if it cannot be read.
    pub(crate) fn read(ledger: &Ledger, database: &Database, cache: CacheState) -> Result<Self, LedgerError> {
        let rows = LedgerRows::read(ledger, cache)?;
        Ok(Self {
            cache,
            compares_production: database.has_comparable_production(),
            runs: ledger.run_ids()?,
            verdicts: ledger.verdicts_without_samples(
                cache,
                |case| rows.has_samples(case),
                rows.unsampled_cases(),
            )?,
            rows,
            is_unfinished: ledger.has_unfinished_run()?,
        })
    }

    pub(crate) const fn ledger_rows(&self) -> &LedgerRows {
        &self.rows
    }

    /// Returns the row of a case that has this median in production profiles; `None` without a measurement.
    pub(crate) fn judged_row(&self, case: &CaseId, production: Option<Nanos>) -> Option<RowResult> {
        Some(self.judge_by_production(self.rows.row(case)?, production))
    }

    fn judge_by_production(&self, row: RowResult, production: Option<Nanos>) -> RowResult {
        match production.filter(|_| self.compares_production) {
            Some(production) => row.judged_by_production(production),
            None => row,
        }
    }

    pub(crate) const fn cache(&self) -> CacheState {
        self.cache
    }

    /// Compares what the row of a case shows for this state of the cache with the ledger.
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

    /// Compares a row that names no run of the ledger with the row that the ledger determines.
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
        let is_estimated = found.interval.method.is_some_and(IntervalMethod::depends_on_other_cases);
        let samples = found.shown.as_ref().and_then(|shown| shown.samples);
        self.rows.earlier_rows(case, samples).any(|(newer, earlier)| {
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

#[derive(Debug)]
struct TableComparison<'a> {
    comparison: &'a LedgerComparison,
    /// Line, kind and text of each; entries of unknown runs are listed after the others.
    issues: Vec<(u64, LintIssueKind, String)>,
    /// First line and number of rows that are behind the ledger.
    behind: Option<(u64, usize)>,
    /// First line and number of rows of other ledgers.
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

impl TableComparison<'_> {
    fn add_row(&mut self, line: u64, row: RowComparison) {
        let count = |counted: &mut Option<(u64, usize)>| {
            *counted = Some(counted.map_or((line, 1), |(first, rows)| (first, rows + 1)));
        };
        let cache = self.comparison.cache;
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

    fn into_issues(mut self, file: &str) -> Vec<LintIssue> {
        self.issues.sort_by_key(|(_, kind, _)| *kind == LintIssueKind::UnknownRun);
        let mut issues = FileIssues::new(file);
        for (line, kind, text) in self.issues {
            issues.add_issue(line, kind, text);
        }
        if let Some((line, rows)) = self.behind {
            let (rows, run) = (format_count(rows, "row"), run_command(self.comparison.cache));
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

/// Returns the command that writes rows of a state of the cache.
pub(super) const fn run_command(cache: CacheState) -> &'static str {
    match cache {
        CacheState::Hot => "`npubench run`",
        CacheState::Cold => "`npubench run --cache cold`",
    }
}

struct ComparedRow {
    line: u64,
    /// True if the row has values of production profiles.
    has_production: bool,
    /// Empty for a row that is no case.
    found: Vec<RowComparison>,
    measured: Option<CaseId>,
}

impl ComparedRow {
    fn compare(row: &TableRow<'_>, comparisons: &[LedgerComparison]) -> Self {
        // The id of a case is a digest, which is computed once for all states of the cache.
        let case = row.parsed.case.as_ref().ok().map(Case::id);
        let found = case
            .iter()
            .flat_map(|case| comparisons.iter().map(|comparison| comparison.compare_row(row, case)));
        Self {
            line: row.parsed.line,
            has_production: row.parsed.production.is_some(),
            found: found.collect(),
            measured: case.filter(|case| comparisons.iter().any(|one| one.rows.is_measured(case))),
        }
    }
}

struct ComparedRows<'a> {
    compared: Vec<TableComparison<'a>>,
    /// Number of rows with values of production profiles.
    production_rows: usize,
    measured: CaseSet,
}

impl<'a> ComparedRows<'a> {
    fn compare_table(
        comparisons: &'a [LedgerComparison],
        kernel: &KernelName,
        table: &KernelCsv,
    ) -> Result<Self, DatabaseError> {
        let compared = comparisons.iter().map(|comparison| TableComparison {
            comparison,
            issues: Vec::new(),
            behind: None,
            others: None,
        });
        let (compared, measured) = (compared.collect(), CaseSet::default());
        let mut rows = Self { compared, production_rows: 0, measured };
        let compared = row_cases(kernel, table)?.into_par_iter();
        let compared =
            compared.map(|row| ComparedRow::compare(&TableRow::read_cells(table, row), comparisons));
        let compared: Vec<ComparedRow> = compared.collect();
        for ComparedRow { line, has_production, found, measured } in compared {
            rows.production_rows += usize::from(has_production);
            rows.compared.iter_mut().zip(found).for_each(|(table, found)| table.add_row(line, found));
            rows.measured.extend(measured);
        }
        Ok(rows)
    }
}

/// Rows of a database compared with its ledger.
#[derive(Debug, Default)]
pub(crate) struct DatabaseComparison {
    pub(crate) issues: Vec<LintIssue>,
    /// Number of rows with values of production profiles. They are not compared: a database does not have the profiles.
    pub(crate) production_rows: usize,
}

/// Compares every row of a database with its ledger, if there is one, and writes nothing. Tables that cannot be read are left
/// out: they are issues of their own. A ledger that cannot be read is one note.
pub(crate) fn compare_database(database: &Database) -> DatabaseComparison {
    let path = database.ledger_path();
    let not_compared = |problem: String| {
        let file = path.strip_prefix(database.folder()).unwrap_or(&path).to_string_lossy().into_owned();
        let text = format!("rows are not compared with the ledger: {problem}");
        let issue = LintIssue { file, line: 1, kind: LintIssueKind::NotCompared, text };
        DatabaseComparison { issues: vec![issue], production_rows: 0 }
    };
    if !path.is_file() {
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
        let Ok(rows) = read.and_then(|table| ComparedRows::compare_table(&comparisons, &kernel, &table))
        else {
            continue;
        };
        compared.production_rows += rows.production_rows;
        measured.extend(rows.measured.iter().cloned());
        let path = database.kernel_path(&kernel);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        compared.issues.extend(rows.compared.into_iter().flat_map(|table| table.into_issues(&file)));
    }
    // The search reads the ledger and all tables once more, and almost no database lacks a row.
    let mut with_attempts = comparisons.iter().flat_map(|comparison| comparison.rows.measured_cases());
    if !with_attempts.all(|case| measured.contains(case)) {
        compared.issues.extend(missing_row_issues(database, &missing_rows(database, ledger)?));
    }
    Ok(compared)
}

/// Returns the number of rows that name a run. Tables that cannot be read have none.
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

/// Returns an issue for each archive of evidence that was changed after its collection or cannot be read; removed ones
/// are none.
fn changed_archives(
    database: &Database,
    archives: &BTreeMap<(String, u32), Option<String>>,
) -> Vec<LintIssue> {
    let changed = archives.iter().filter_map(|((run, collection), digest)| {
        let digest = digest.as_ref()?;
        let folder = database.collection_folder(run, *collection);
        let (kind, text) = match raw_records::archive_state(&folder, digest) {
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
