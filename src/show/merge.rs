//! Text of `npubench db merge`.

use std::fmt::Write as _;

use crate::{
    base::count_text::format_count,
    database::ledger::LedgerSize,
    measure::{
        engine::{UnwrittenTable, WrittenRows},
        evidence::HostLevel,
        fleet::{DatabaseInUse, HostsOfCache, MergeReport},
        reparse::MissingKernelRows,
    },
};

/// Returns the report as text.
pub(crate) fn merge_text(report: &MergeReport) -> String {
    let mut text = String::new();
    for folder in &report.without_ledger {
        let _ = writeln!(text, "{} has no ledger, so it has nothing to merge", folder.display());
    }
    for DatabaseInUse { folder, owner } in &report.in_use {
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
        for UnwrittenTable { kernel, problem } in unwritten {
            let _ = writeln!(text, "the table of {kernel} was not written: {problem}");
        }
        let _ = writeln!(text, "{} written from the ledger", format_count(*rows, "row"));
    }
    for HostsOfCache { cache, levels } in &report.hosts {
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
