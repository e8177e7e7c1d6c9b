//! Texts of the commands that read the ledger or evidence again and write rows: `npubench reparse`, `db rebuild`, `db merge`.

use super::prelude::*;
use crate::{
    database::ledger::LedgerSize,
    measure::{
        engine::{UnwrittenTable, WrittenRows},
        evidence::HostLevel,
        fleet::{DatabaseInUse, HostsOfCache, MergeReport},
        reparse::{
            AttemptDifference, AttemptSummary, LeftEvidence, MissingKernelRows, RebuildReport, ReparseReport,
            RestoredLedger,
        },
    },
};

fn unwritten_line(UnwrittenTable { kernel, problem }: &UnwrittenTable) -> String {
    format!("the table of {kernel} was not written: {problem}")
}

pub(crate) fn reparse_table(report: &ReparseReport, width: Option<usize>) -> String {
    let median = |summary: &AttemptSummary| {
        or_empty(summary.median_us.map(|median| format!("{} x {median:.3} us", summary.samples)))
    };
    let before = |found: &AttemptDifference| or_dash(found.before.as_ref().map(AttemptSummary::verdict_text));
    Table::new(&report.differences)
        .text("run", rank(DETAIL).min(12), |found| &found.run)
        .number("collection", 3, |found| found.collection)
        .text("kernel", rank(0).min(8), |found| &found.kernel)
        .text("case", 2, |found| &found.case)
        .text("differs", rank(4).min(12), |found| joined(&found.differs, ", "))
        .text("ledger", 0, before)
        .text("", 1, |found| or_empty(found.before.as_ref().map(median)))
        .text("artefacts", 0, |found| found.after.verdict_text())
        .text("", 1, |found| median(&found.after))
        .text("reason", rank(DETAIL).min(16), |found| &found.after.reason)
        .below(|_| true)
        .print(width)
}

pub(crate) fn reparse_summary(report: &ReparseReport) -> String {
    let mut lines: Vec<String> = Vec::new();
    for LeftEvidence { run, collection, case, problem } in &report.left {
        let case = or_empty(case.as_ref().map(|case| format!(", case {case}")));
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
    for (count, start, end) in [
        (report.other_controls, "the control kernels of ", "have other readings than the ledger"),
        (report.other_software, "the software of ", "is in the evidence alone"),
        (report.not_launched, "", "launched nothing"),
    ] {
        lines.extend((count > 0).then(|| format!("{start}{} {end}", format_count(count, "collection"))));
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
        let withdrawn = (*withdrawn > 0).then(|| {
            format!("; {} withdrawn for a clock that deviates", format_count(*withdrawn, "attempt"))
        });
        let withdrawn = or_empty(withdrawn);
        let replaced = format_count(report.differences.len(), "attempt");
        let rows = format_count(*rows, "row");
        lines.push(format!("replaced {replaced} in the ledger{withdrawn}; wrote {rows}"));
        lines.extend(unwritten.iter().map(unwritten_line));
    }
    lines.join("\n") + "\n"
}

pub(crate) fn rebuild_text(report: &RebuildReport) -> String {
    let is_written = report.written.is_some();
    let verb = |done: &'static str, planned: &'static str| if is_written { done } else { planned };
    let mut lines: Vec<String> =
        report.restored.iter().flat_map(|found| restored_lines(found, is_written)).collect();
    for missing in &report.missing {
        let left = missing.cases - missing.rebuilt;
        let notes = [
            (
                missing.without_evidence,
                "have the shapes of the ledger, because their evidence is missing: lookups may not find them",
            ),
            (
                left,
                "lack complete shapes in the ledger: `npubench ingest` or `grid` writes these rows, and `db rebuild` again adds their results",
            ),
        ];
        let notes = notes.iter().filter(|(count, _)| *count > 0);
        let notes: String = notes.map(|(count, note)| format!("; {count} {note}")).collect();
        let (place, rows) = (missing.place_text(), format_count(missing.rebuilt, "row"));
        lines.push(format!("{place}: {rows} {}{notes}", verb("rebuilt", "can be rebuilt")));
    }
    if let Some(WrittenRows { rows, unwritten, .. }) = &report.written {
        lines.extend(unwritten.iter().map(|table| {
            let hint = "if it cannot be repaired, move it away and repeat the command, which writes its rows from the ledger";
            format!("{}; {hint}", unwritten_line(table))
        }));
        lines.push(format!("{} written from the ledger", format_count(*rows, "row")));
    } else if report.restored.is_none() && report.missing.is_empty() {
        lines.push("the ledger is intact, and each of its results has a row".to_owned());
    }
    if report.missing.iter().any(|missing| missing.rebuilt > 0) {
        lines.push("`npubench ingest PROFILE` fills the `Profiling` columns of rebuilt rows".to_owned());
    }
    lines.join("\n") + "\n"
}

fn restored_lines(found: &RestoredLedger, is_written: bool) -> Vec<String> {
    let RestoredLedger { problem, kept, lost_runs, without_evidence, .. } = found;
    let would = if is_written { "was" } else { "would be" };
    let added = format_count(found.added_collections, "collection");
    let mut lines = vec![
        format!("the ledger is damaged: {problem}"),
        format!("it {would} restored from its copy, with {added} that the copy lacks"),
    ];
    lines.extend((!lost_runs.is_empty()).then(|| {
        format!(
            "the copy does not have {}: its results are lost, except those in the CSVs, and `npubench run` measures what is \
             missing",
            lost_runs.join(", ")
        )
    }));
    let is_kept = if is_written { "is kept" } else { "would be kept" };
    lines.extend(kept.iter().map(|kept| format!("the damaged ledger {is_kept} as {}", kept.display())));
    let attempts = format_count(found.changed_attempts, "attempt");
    let collections = format_count(found.compared_collections, "collection");
    let were = if is_written { "were" } else { "would be" };
    lines.push(format!("{attempts} of {collections} {were} read from the evidence"));
    lines.extend((*without_evidence > 0).then(|| {
        let collections = format_count(*without_evidence, "collection");
        format!("the evidence of {collections} cannot be used; `npubench reparse` lists it")
    }));
    lines
}

pub(crate) fn merge_text(report: &MergeReport) -> String {
    let without = report.without_ledger.iter();
    let without =
        without.map(|folder| format!("{} has no ledger, so it has nothing to merge", folder.display()));
    let mut lines: Vec<String> = without.collect();
    lines.extend(report.in_use.iter().map(|DatabaseInUse { folder, owner }| {
        format!("{} is left out: {owner} uses it; merge again when its run has ended", folder.display())
    }));
    let LedgerSize { runs, collections, attempts, samples } = report.after;
    let counts = [
        ("run", runs, report.before.runs),
        ("collection", collections, report.before.collections),
        ("attempt", attempts, report.before.attempts),
        ("sample", samples, report.before.samples),
    ];
    let counts = counts.map(|(name, after, before)| {
        let new = Some(after.saturating_sub(before)).filter(|new| *new > 0);
        format_count(after, name) + &or_empty(new.map(|new| format!(" ({new} new)")))
    });
    let verb = if report.written.is_some() { "has" } else { "would have" };
    let ledgers = format_count(report.ledgers.len(), "ledger");
    lines.push(format!("the ledger {verb} {}, from {ledgers}", counts.join(", ")));
    if report.is_unchanged {
        lines.push("the ledger had all of them, and was not changed".to_owned());
    }
    if report.copied > 0 {
        lines.push(format!("the evidence of {} was copied", format_count(report.copied, "collection")));
    }
    lines.extend(report.missing.iter().map(|MissingKernelRows { kernel, cases, rebuilt, .. }| {
        let (cases, rebuilt) = (format_count(*cases, "result"), format_count(*rebuilt, "row"));
        format!("{cases} of {kernel} had no row: {rebuilt} added")
    }));
    if let Some(WrittenRows { rows, unwritten, .. }) = &report.written {
        lines.extend(unwritten.iter().map(unwritten_line));
        lines.push(format!("{} written from the ledger", format_count(*rows, "row")));
    }
    for HostsOfCache { cache, levels } in &report.hosts {
        let state = or_empty((!cache.is_hot()).then(|| format!(" with a {cache} cache")));
        let significant = levels.iter().filter(|level| level.is_significant);
        lines.extend(significant.map(|level| host_line(level, levels) + &state));
    }
    lines.join("\n") + "\n"
}

fn host_line(level: &HostLevel, all: &[HostLevel]) -> String {
    let HostLevel { host, percent, error_percent, devices, kernels, .. } = level;
    let word = if *percent > 0.0 { "slower" } else { "faster" };
    let other = match all {
        [one, other] => {
            format!("than host {}", if one.host == *host { &other.host } else { &one.host })
        }
        _ => format!("than the median of {} hosts", all.len()),
    };
    format!(
        "host {host} is {:.1} % {word} {other} (±{error_percent:.1} %, {}, {})",
        percent.abs(),
        format_count(*devices, "device"),
        format_count(*kernels, "compared kernel")
    )
}
