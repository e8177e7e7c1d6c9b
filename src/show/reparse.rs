//! Result of `npubench reparse`, as a table or JSON.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    base::{count_text::format_count, shell_argument::quoted_path, stats::median_of_sorted},
    database::{
        Database, LintIssue, LintIssueKind,
        ledger::{AttemptChange, AttemptState},
    },
    kernel::{CaseId, Launch, render::files::EVIDENCE},
    show::table::{DETAIL, FittedColumn, FittedRow, FittedTable},
};

/// Collections that were assessed again from their artefacts.
#[derive(Debug, Default)]
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
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
}

/// Cases of a kernel with results in the ledger that had no row.
#[derive(Debug)]
pub(crate) struct MissingKernelRows {
    pub(crate) kernel: String,
    pub(crate) has_table: bool,
    pub(crate) cases: usize,
    /// Number of the rows that were rebuilt.
    pub(crate) rebuilt: usize,
}

/// Rows that were written from the artefacts.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    pub(crate) rows: usize,
    /// Attempts that the comparison of clocks withdrew afterwards.
    pub(crate) withdrawn: usize,
    /// Tables that could not be written, each with the problem.
    pub(crate) unwritten: Vec<(String, String)>,
}

/// Evidence that cannot be assessed again: that of a collection or of one of its cases.
#[derive(Debug)]
pub(crate) struct LeftEvidence {
    pub(crate) run: String,
    /// Number of the collection in its run.
    pub(crate) collection: u32,
    /// `None` for all cases of the collection.
    pub(crate) case: Option<CaseId>,
    pub(crate) problem: String,
}

/// An attempt whose evidence gives another result than the ledger has.
#[derive(Debug)]
pub(crate) struct AttemptDifference {
    run: String,
    collection: u32,
    case: CaseId,
    kernel: String,
    before: Option<AttemptSummary>,
    after: AttemptSummary,
    /// Names of the properties that differ.
    differs: Vec<&'static str>,
}

#[derive(Debug)]
struct AttemptSummary {
    verdict: String,
    reason: String,
    samples: usize,
    /// Of the accepted samples.
    median_us: Option<f64>,
    is_withdrawn: bool,
}

impl AttemptSummary {
    fn new(state: &AttemptState) -> Self {
        let accepted = state.launches.iter().filter(|launch| launch.is_accepted);
        let mut samples: Vec<i64> = accepted.map(|launch: &Launch| launch.duration.0).collect();
        samples.sort_unstable();
        Self {
            verdict: state.outcome.verdict.to_string(),
            reason: state.outcome.reason.to_string(),
            samples: samples.len(),
            median_us: median_of_sorted(&samples).map(|median| median / 1_000.0),
            is_withdrawn: state.is_withdrawn,
        }
    }

    /// Returns verdict, number of samples and their median.
    fn text(&self) -> String {
        let mark = if self.is_withdrawn { " (withdrawn)" } else { "" };
        let median = self.median_us.map_or_else(String::new, |us| format!(", {} x {us:.3} us", self.samples));
        format!("{}{mark}{median}", self.verdict)
    }

    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict, "reason": self.reason, "samples": self.samples, "median_us": self.median_us,
            "is_withdrawn": self.is_withdrawn,
        })
    }
}

impl AttemptDifference {
    /// Returns what the ledger has and what follows from the evidence.
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

/// Returns the report as one line of JSON.
pub(crate) fn reparse_json(report: &ReparseReport) -> String {
    let differences = report.differences.iter().map(|found| {
        json!({
            "run": found.run, "collection": found.collection, "case": found.case, "kernel": found.kernel,
            "differs": found.differs, "before": found.before.as_ref().map(AttemptSummary::json),
            "after": found.after.json(),
        })
    });
    let left = report.left.iter().map(|LeftEvidence { run, collection, case, problem }| {
        json!({"run": run, "collection": collection, "case": case, "problem": problem})
    });
    let missing = report.missing.iter().map(|MissingKernelRows { kernel, has_table, cases, rebuilt }| {
        json!({"kernel": kernel, "has_table": has_table, "cases": cases, "rebuilt": rebuilt})
    });
    let written = report.written.as_ref().map(|WrittenRows { rows, withdrawn, unwritten }| {
        let unwritten =
            unwritten.iter().map(|(kernel, problem)| json!({"kernel": kernel, "problem": problem}));
        json!({"rows": rows, "withdrawn": withdrawn, "unwritten": unwritten.collect::<Vec<_>>()})
    });
    let all = json!({
        "collections": report.collections, "attempts": report.attempts, "not_launched": report.not_launched,
        "other_controls": report.other_controls, "other_software": report.other_software,
        "differences": differences.collect::<Vec<_>>(), "left": left.collect::<Vec<_>>(),
        "missing_rows": missing.collect::<Vec<_>>(), "written": written,
    });
    format!("{all}\n")
}

/// Returns a table of the differences; empty without one.
pub(crate) fn reparse_table(report: &ReparseReport, width: Option<usize>) -> String {
    if report.differences.is_empty() {
        return String::new();
    }
    let columns = vec![
        FittedColumn::text("run", DETAIL).shortened_to(12),
        FittedColumn::number("collection", 3),
        FittedColumn::text("kernel", 0).shortened_to(8),
        FittedColumn::text("case", 2),
        FittedColumn::text("differs", 4).shortened_to(12),
        FittedColumn::text("ledger", 0),
        FittedColumn::text("", 1),
        FittedColumn::text("artefacts", 0),
        FittedColumn::text("", 1),
        FittedColumn::text("reason", DETAIL).shortened_to(16),
    ];
    let below = columns.len() - 1;
    let row = |found: &AttemptDifference| {
        let verdict = |summary: &AttemptSummary| {
            let mark = if summary.is_withdrawn { " (withdrawn)" } else { "" };
            format!("{}{mark}", summary.verdict)
        };
        let median = |summary: &AttemptSummary| {
            let count = summary.samples;
            summary.median_us.map_or_else(String::new, |median| format!("{count} x {median:.3} us"))
        };
        let before = found.before.as_ref();
        let cells = [
            found.run.clone(),
            found.collection.to_string(),
            found.kernel.clone(),
            found.case.to_string(),
            found.differs.join(", "),
            before.map_or_else(|| "-".to_owned(), verdict),
            before.map_or_else(String::new, median),
            verdict(&found.after),
            median(&found.after),
            found.after.reason.clone(),
        ];
        FittedRow { has_line_below: true, ..FittedRow::from_cells(&cells) }
    };
    let rows = report.differences.iter().map(row).collect();
    FittedTable { columns, rows, below: Some(below), ..FittedTable::default() }.print(width, false)
}

/// Returns the lines below the table: what could not be assessed, and how much was compared and written.
pub(crate) fn reparse_summary(report: &ReparseReport) -> String {
    let mut lines: Vec<String> = Vec::new();
    for LeftEvidence { run, collection, case, problem } in &report.left {
        let case = case.as_ref().map_or_else(String::new, |case| format!(", case {case}"));
        lines.push(format!("left as it is: collection {collection} of run {run}{case}: {problem}"));
    }
    lines.push(format!(
        "{} of {} assessed again from their artefacts: {}",
        format_count(report.attempts, "attempt"),
        format_count(report.collections, "collection"),
        match report.differences.len() {
            0 => "no difference from the ledger".to_owned(),
            1 => "1 differs from the ledger".to_owned(),
            count => format!("{count} differ from the ledger"),
        }
    ));
    if report.other_controls > 0 {
        let collections = format_count(report.other_controls, "collection");
        lines.push(format!("the control kernels of {collections} have other readings than the ledger"));
    }
    if report.other_software > 0 {
        let collections = format_count(report.other_software, "collection");
        lines.push(format!("the software of {collections} is in the evidence alone"));
    }
    if report.not_launched > 0 {
        lines.push(format!("{} launched nothing", format_count(report.not_launched, "collection")));
    }
    let (is_written, mut is_rebuilt) = (report.written.is_some(), false);
    for MissingKernelRows { kernel, has_table, cases, rebuilt } in &report.missing {
        is_rebuilt |= *rebuilt > 0;
        let place = match has_table {
            true => {
                format!("{} of {kernel} with results in the ledger had no row", format_count(*cases, "case"))
            }
            false => {
                format!(
                    "the table of {kernel} was missing, with {} of the ledger",
                    format_count(*cases, "case")
                )
            }
        };
        lines.push(match cases - rebuilt {
            _ if !is_written => format!("{place}: `--write` rebuilds the rows"),
            0 => format!("{place}: rebuilt {}", format_count(*rebuilt, "row")),
            left => format!(
                "{place}: rebuilt {}; {left} left out, of which no usable evidence is there: restore them from a backup, or by \
                 `npubench ingest` of their profile and a run",
                format_count(*rebuilt, "row")
            ),
        });
    }
    if is_rebuilt {
        lines.push(
            "rebuilt rows have the shapes and results that the ledger and its evidence contain; their `Profiling` columns come \
             back with `npubench ingest` of the same profile; the columns of grids, and your own, are lost"
                .to_owned(),
        );
    }
    if let Some(WrittenRows { rows, withdrawn, unwritten }) = &report.written {
        let withdrawn = match withdrawn {
            0 => String::new(),
            _ => format!("; {} withdrawn for a clock that deviates", format_count(*withdrawn, "attempt")),
        };
        let replaced = format_count(report.differences.len(), "attempt");
        let rows = format_count(*rows, "row");
        lines.push(format!("replaced {replaced} in the ledger{withdrawn}; wrote {rows}"));
        for (kernel, problem) in unwritten {
            lines.push(format!("rows of {kernel} could not be written: {problem}"));
        }
    }
    lines.join("\n") + "\n"
}
