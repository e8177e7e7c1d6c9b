//! Output of `npubench db merge`.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::json;

use crate::{
    base::count_text::format_count,
    database::ledger::LedgerSize,
    kernel::CacheState,
    measure::evidence::HostLevel,
    show::reparse::{MissingKernelRows, WrittenRows},
};

/// What a merge found and wrote.
#[derive(Debug)]
pub(crate) struct MergeReport {
    /// Folders whose ledgers were merged, with their sizes; the first is the target if it had a ledger.
    pub(crate) ledgers: Vec<(PathBuf, LedgerSize)>,
    /// Folders that have no ledger.
    pub(crate) without_ledger: Vec<PathBuf>,
    /// Folders that another npubench writes, with its name.
    pub(crate) in_use: Vec<(PathBuf, String)>,
    pub(crate) before: LedgerSize,
    pub(crate) after: LedgerSize,
    /// True if the ledger of the target has the union already, byte by byte.
    pub(crate) is_unchanged: bool,
    /// Number of collections whose evidence was copied.
    pub(crate) copied: usize,
    /// Cases with results in the ledger that had no row, by kernel.
    pub(crate) missing: Vec<MissingKernelRows>,
    /// `None` if nothing is written.
    pub(crate) written: Option<WrittenRows>,
    /// Levels of the hosts by state of the cache.
    pub(crate) hosts: Vec<(CacheState, Vec<HostLevel>)>,
}

impl MergeReport {
    /// Returns true if every folder was merged, and every result has its row.
    pub(crate) fn is_complete(&self) -> bool {
        self.in_use.is_empty()
            && self.without_ledger.is_empty()
            && self.missing.iter().all(|missing| missing.rebuilt == missing.cases)
            && self.written.as_ref().is_none_or(|written| written.unwritten.is_empty())
    }
}

/// Returns the report as text.
pub(crate) fn merge_text(report: &MergeReport) -> String {
    let mut text = String::new();
    for folder in &report.without_ledger {
        let _ = writeln!(text, "{} has no ledger, so it has nothing to merge", folder.display());
    }
    for (folder, owner) in &report.in_use {
        let _ = writeln!(
            text,
            "{} is left out: {owner} uses it; merge again when its run has ended",
            folder.display()
        );
    }
    let LedgerSize { runs, collections, attempts, samples } = report.after;
    let counts = [
        ("run", runs, report.before.runs),
        ("collection", collections, report.before.collections),
        ("attempt", attempts, report.before.attempts),
        ("sample", samples, report.before.samples),
    ];
    let counts = counts.map(|(name, after, before)| {
        let count = format_count(usize::try_from(after).unwrap_or(usize::MAX), name);
        match after.saturating_sub(before) {
            0 => count,
            new => format!("{count} ({new} new)"),
        }
    });
    let verb = if report.written.is_some() { "has" } else { "would have" };
    let of = format_count(report.ledgers.len(), "ledger");
    let _ = writeln!(text, "the ledger {verb} {}, from {of}", counts.join(", "));
    if report.is_unchanged {
        text.push_str("the ledger had all of them, and was not changed\n");
    }
    if report.copied > 0 {
        let copied = format_count(report.copied, "collection");
        let _ = writeln!(text, "the evidence of {copied} was copied");
    }
    for MissingKernelRows { kernel, cases, rebuilt, .. } in &report.missing {
        let cases = format_count(*cases, "result");
        let _ = writeln!(text, "{cases} of {kernel} had no row: {} added", format_count(*rebuilt, "row"));
    }
    if let Some(WrittenRows { rows, unwritten, .. }) = &report.written {
        for (kernel, problem) in unwritten {
            let _ = writeln!(text, "the table of {kernel} was not written: {problem}");
        }
        let _ = writeln!(text, "{} written from the ledger", format_count(*rows, "row"));
    }
    for (cache, levels) in &report.hosts {
        let state = if cache.is_hot() { String::new() } else { format!(" with a {cache} cache") };
        for level in levels.iter().filter(|level| level.is_significant) {
            let _ = writeln!(text, "{}{state}", host_line(level, levels));
        }
    }
    text
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

/// Returns the report as a line of JSON.
pub(crate) fn merge_json(report: &MergeReport) -> String {
    let size = |size: &LedgerSize| {
        let LedgerSize { runs, collections, attempts, samples } = size;
        json!({"runs": runs, "collections": collections, "attempts": attempts, "samples": samples})
    };
    let ledgers = report.ledgers.iter().map(|(folder, of)| json!({"folder": folder, "size": size(of)}));
    let missing = report.missing.iter().map(|MissingKernelRows { kernel, has_table, cases, rebuilt }| {
        json!({"kernel": kernel, "has_table": has_table, "cases": cases, "rebuilt": rebuilt})
    });
    let written = report.written.as_ref().map(|WrittenRows { rows, unwritten, .. }| {
        let unwritten =
            unwritten.iter().map(|(kernel, problem)| json!({"kernel": kernel, "problem": problem}));
        json!({"rows": rows, "unwritten": unwritten.collect::<Vec<_>>()})
    });
    let in_use = report.in_use.iter().map(|(folder, owner)| json!({"folder": folder, "owner": owner}));
    let hosts = report.hosts.iter().map(|(cache, levels)| json!({"cache": cache, "levels": levels}));
    let all = json!({
        "ledgers": ledgers.collect::<Vec<_>>(), "without_ledger": report.without_ledger,
        "in_use": in_use.collect::<Vec<_>>(), "before": size(&report.before), "after": size(&report.after),
        "is_unchanged": report.is_unchanged, "copied_collections": report.copied,
        "missing_rows": missing.collect::<Vec<_>>(), "written": written, "hosts": hosts.collect::<Vec<_>>(),
    });
    format!("{all}\n")
}
