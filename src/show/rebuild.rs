//! Text of `npubench db rebuild`.

use std::fmt::Write as _;

use crate::{
    base::count_text::format_count,
    measure::{
        engine::{UnwrittenTable, WrittenRows},
        rebuild::{RebuildReport, RestoredLedger},
        reparse::MissingKernelRows,
    },
};

/// Returns the report as text.
pub(crate) fn rebuild_text(report: &RebuildReport) -> String {
    let is_written = report.written.is_some();
    let verb = |done: &'static str, planned: &'static str| if is_written { done } else { planned };
    let mut text = String::new();
    if let Some(RestoredLedger {
        problem,
        kept,
        lost_runs,
        added_collections,
        compared_collections,
        changed_attempts,
        without_evidence,
    }) = &report.restored
    {
        let _ = writeln!(text, "the ledger is damaged: {problem}");
        let _ = writeln!(
            text,
            "it {} from its copy, with {} that the copy lacks",
            verb("was restored", "would be restored"),
            format_count(*added_collections, "collection")
        );
        if !lost_runs.is_empty() {
            let _ = writeln!(
                text,
                "the copy does not have {}: its results are lost, except those in the CSVs, and `npubench run` measures what is \
                 missing",
                lost_runs.join(", ")
            );
        }
        if let Some(kept) = kept {
            let _ = writeln!(
                text,
                "the damaged ledger {} {}",
                verb("is kept as", "would be kept as"),
                kept.display()
            );
        }
        let _ = writeln!(
            text,
            "{} of {} {} from the evidence",
            format_count(*changed_attempts, "attempt"),
            format_count(*compared_collections, "collection"),
            verb("were read", "would be read")
        );
        if *without_evidence > 0 {
            let _ = writeln!(
                text,
                "the evidence of {} cannot be used; `npubench reparse` lists it",
                format_count(*without_evidence, "collection")
            );
        }
    }
    for missing in &report.missing {
        let MissingKernelRows { cases, rebuilt, .. } = missing;
        let left = match cases - rebuilt {
            0 => String::new(),
            left => format!("; the ledger has no complete shapes of {left}"),
        };
        let rows = format_count(*rebuilt, "row");
        let _ =
            writeln!(text, "{}: {rows} {}{left}", missing.place_text(), verb("rebuilt", "can be rebuilt"));
    }
    if let Some(WrittenRows { rows, unwritten, .. }) = &report.written {
        for UnwrittenTable { kernel, problem } in unwritten {
            let _ = writeln!(
                text,
                "the table of {kernel} was not written: {problem}; if it cannot be repaired, move it away and repeat the command, \
                 which writes its rows from the ledger"
            );
        }
        let _ = writeln!(text, "{} written from the ledger", format_count(*rows, "row"));
    } else if report.restored.is_none() && report.missing.is_empty() {
        text.push_str("the ledger is intact, and each of its results has a row\n");
    }
    if report.missing.iter().any(|missing| missing.rebuilt > 0) {
        text.push_str("rebuilt rows have the shapes of the ledger; `npubench ingest PROFILE` fills their `Profiling` columns\n");
    }
    text
}
