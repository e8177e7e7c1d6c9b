//! Output of `npubench db rebuild`.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::json;

use crate::{
    base::count_text::format_count,
    database::ledger::{SalvagedLedger, SalvagedTable},
    show::{
        reparse::{MissingKernelRows, WrittenRows},
        table::{FittedColumn, fitted_text},
    },
};

/// Result of `npubench db rebuild`.
#[derive(Debug)]
pub(crate) struct RebuildReport {
    /// `None` for an intact ledger.
    pub(crate) salvage: Option<SalvageReport>,
    /// Cases with results in the ledger that had no row, by kernel.
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
}

/// Salvage of a damaged ledger.
#[derive(Debug)]
pub(crate) struct SalvageReport {
    /// The damage, by SQLite.
    pub(crate) problem: String,
    /// Path of the damaged file after the rebuild.
    pub(crate) kept: PathBuf,
    pub(crate) salvaged: SalvagedLedger,
    /// Number of collections that were compared with their evidence.
    pub(crate) compared: usize,
    /// Number of attempts that were read again from it, because the ledger had lost them or had other values.
    pub(crate) changed: usize,
    /// Number of collections, or of their cases, whose evidence cannot be used.
    pub(crate) without_evidence: usize,
    /// Number of measured cases of runs without their launches.
    pub(crate) lost_results: usize,
}

impl RebuildReport {
    /// Returns true if no row or table was lost, or remains so.
    pub(crate) fn is_complete(&self) -> bool {
        // Attempts with their launches and controls come from the evidence.
        let is_whole = |table: &SalvagedTable| {
            matches!(table.name, "attempts" | "launches" | "controls")
                || table.is_whole && table.incomplete == 0
        };
        let is_restored = |salvage: &SalvageReport| {
            salvage.without_evidence == 0
                && salvage.lost_results == 0
                && salvage.salvaged.tables.iter().all(is_whole)
        };
        self.salvage.as_ref().is_none_or(is_restored)
            && self.missing.iter().all(|missing| missing.rebuilt == missing.cases)
            && self.written.as_ref().is_none_or(|written| written.unwritten.is_empty())
    }
}

/// Returns the report as text.
pub(crate) fn rebuild_text(report: &RebuildReport, width: Option<usize>) -> String {
    let is_written = report.written.is_some();
    let mut text = String::new();
    if let Some(SalvageReport {
        problem,
        kept,
        salvaged,
        compared,
        changed,
        without_evidence,
        lost_results,
    }) = &report.salvage
    {
        let _ = writeln!(text, "the ledger is damaged: {problem}");
        let columns = vec![
            FittedColumn::text("table of the ledger", 0),
            FittedColumn::number("rows", 0),
            FittedColumn::number("incomplete", 0),
            FittedColumn::text("read", 0),
        ];
        let rows = salvaged.tables.iter().map(|SalvagedTable { name, rows, incomplete, is_whole }| {
            let read = if *is_whole { "all" } else { "in part" };
            vec![(*name).to_owned(), rows.to_string(), incomplete.to_string(), read.to_owned()]
        });
        text.push_str(&fitted_text(columns, rows, width));
        let verb = if is_written { "is kept as" } else { "would be kept as" };
        let _ = writeln!(text, "the damaged ledger {verb} {}", kept.display());
        let verb = if is_written { "were read again" } else { "would be read again" };
        let _ = writeln!(
            text,
            "{} of {} {verb} from the evidence",
            format_count(*changed, "attempt"),
            format_count(*compared, "collection")
        );
        if *without_evidence > 0 {
            let _ = writeln!(
                text,
                "the evidence of {} cannot be used; `npubench reparse` lists it",
                format_count(*without_evidence, "collection")
            );
        }
        if *lost_results > 0 {
            let _ = writeln!(
                text,
                "the launches of {} are lost, as their collections are",
                format_count(*lost_results, "result")
            );
        }
        if !report.is_complete() {
            text.push_str(
                "results that are lost keep their rows, and the next `npubench run` measures what has none\n",
            );
        }
    }
    for MissingKernelRows { kernel, has_table, cases, rebuilt } in &report.missing {
        let found = match has_table {
            true => {
                format!("{} of {kernel} with results in the ledger had no row", format_count(*cases, "case"))
            }
            false => format!(
                "the table of {kernel} was missing, with {} of the ledger",
                format_count(*cases, "case")
            ),
        };
        let verb = if is_written { "rebuilt" } else { "can be rebuilt" };
        let left = match cases - rebuilt {
            0 => String::new(),
            left => format!("; the ledger has no complete shapes of {left}"),
        };
        let _ = writeln!(text, "{found}: {} {verb}{left}", format_count(*rebuilt, "row"));
    }
    if let Some(WrittenRows { rows, unwritten, .. }) = &report.written {
        for (kernel, problem) in unwritten {
            let _ = writeln!(
                text,
                "the table of {kernel} was not written: {problem}; if it cannot be repaired, move it away and repeat the command, \
                 which writes its rows from the ledger"
            );
        }
        let _ = writeln!(text, "{} written from the ledger", format_count(*rows, "row"));
    } else if report.salvage.is_none() && report.missing.is_empty() {
        text.push_str("the ledger is intact, and each of its results has a row\n");
    }
    if report.missing.iter().any(|missing| missing.rebuilt > 0) {
        text.push_str("rebuilt rows have the shapes of the ledger; `npubench ingest PROFILE` fills their `Profiling` columns\n");
    }
    text
}

/// Returns the report as a line of JSON.
pub(crate) fn rebuild_json(report: &RebuildReport) -> String {
    let salvage = report.salvage.as_ref().map(|SalvageReport { problem, kept, salvaged, compared, changed, without_evidence, lost_results }| {
        let tables = salvaged.tables.iter().map(|SalvagedTable { name, rows, incomplete, is_whole }| {
            json!({"table": name, "rows": rows, "incomplete": incomplete, "is_whole": is_whole})
        });
        json!({
            "problem": problem, "kept": kept, "tables": tables.collect::<Vec<_>>(), "compared_collections": compared,
            "changed_attempts": changed, "without_evidence": without_evidence, "lost_results": lost_results,
        })
    });
    let missing = report.missing.iter().map(|MissingKernelRows { kernel, has_table, cases, rebuilt }| {
        json!({"kernel": kernel, "has_table": has_table, "cases": cases, "rebuilt": rebuilt})
    });
    let written = report.written.as_ref().map(|WrittenRows { rows, unwritten, .. }| {
        let unwritten =
            unwritten.iter().map(|(kernel, problem)| json!({"kernel": kernel, "problem": problem}));
        json!({"rows": rows, "unwritten": unwritten.collect::<Vec<_>>()})
    });
    let all = json!({"salvage": salvage, "missing_rows": missing.collect::<Vec<_>>(), "written": written});
    format!("{all}\n")
}
