//! Text of `npubench reparse`: a table of the differences, and the lines below it.

use crate::{
    base::count_text::format_count,
    measure::{
        engine::{UnwrittenTable, WrittenRows},
        reparse::{AttemptDifference, AttemptSummary, LeftEvidence, MissingKernelRows, ReparseReport},
    },
    show::table::{DETAIL, FittedColumn, FittedRow, FittedTable},
};

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
            before.map_or_else(|| "-".to_owned(), AttemptSummary::verdict_text),
            before.map_or_else(String::new, median),
            found.after.verdict_text(),
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
    for missing @ MissingKernelRows { cases, rebuilt, .. } in &report.missing {
        is_rebuilt |= *rebuilt > 0;
        let place = missing.place_text();
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
        for UnwrittenTable { kernel, problem } in unwritten {
            lines.push(format!("rows of {kernel} could not be written: {problem}"));
        }
    }
    lines.join("\n") + "\n"
}
