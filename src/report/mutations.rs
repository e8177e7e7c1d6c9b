//! What became of mutants: a table and JSON lines.

use std::collections::BTreeMap;

use super::grid::{GridLine, GridRequest, refusal, table, to_nanoseconds};
use crate::grid::{
    RejectReason,
    mutate::{MutationCount, MutationSummary},
};

/// A row for each kernel, with the sums below.
#[must_use]
pub fn mutants_table(kernels: &[MutationSummary]) -> String {
    let lines = kernels.iter().map(|kernel| {
        let rows = kernel.mutations.iter().filter(|(_, tried)| tried.rows > 0);
        let rows: Vec<String> = rows.map(|(name, tried)| format!("{name} {}", tried.rows)).collect();
        GridLine {
            kernel: kernel.kernel.as_str(),
            candidates: kernel.candidates,
            refused: kernel.refused.iter().map(|(reason, refusals)| (reason, refusals.count)).collect(),
            rows: kernel.rows,
            fastest: kernel.fastest,
            last: rows.join(", "),
        }
    });
    table(&lines.collect::<Vec<_>>(), "rows by mutation")
}

/// A line of JSON for each kernel (JSON Lines).
#[must_use]
pub fn mutants_json(kernels: &[MutationSummary], asked: &GridRequest<'_>) -> String {
    let lines = kernels.iter().map(|kernel| {
        let refused: Vec<_> =
            kernel.refused.iter().map(|(reason, refusals)| refusal(reason, refusals)).collect();
        let mutations: BTreeMap<&str, serde_json::Value> = (kernel.mutations.iter())
            .map(|(name, MutationCount { candidates, rows })| {
                (name.as_str(), serde_json::json!({"candidates": candidates, "rows": rows}))
            })
            .collect();
        let object = serde_json::json!({
            "kernel": kernel.kernel.as_str(), "cases": kernel.sources, "cases_unread": kernel.unread,
            "candidates": kernel.candidates, "rows": kernel.rows, "refused": refused, "mutations": mutations,
            "fastest_s": kernel.fastest.map(to_nanoseconds), "seed": asked.seed, "dry_run": asked.dry_run,
        });
        format!("{object}\n")
    });
    lines.collect()
}

/// What the rule says of a case with every form of a kernel is long; JSON has all of it.
fn in_short(text: &str) -> String {
    const MOST: usize = 240;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// Which cases cannot be read, and what the catalogue's rule refused.
#[must_use]
pub fn mutants_notes(kernels: &[MutationSummary]) -> Vec<String> {
    let mut notes = Vec::new();
    for kernel in kernels {
        let name = &kernel.kernel;
        if let Some(example) = &kernel.unread_example {
            let (unread, sources) = (kernel.unread, kernel.sources);
            let example = in_short(example);
            notes.push(format!("{name}: {unread} of {sources} cases cannot be read, such as: {example}"));
        }
        let of_rule = kernel.refused.get(&RejectReason::Rule).and_then(|refusals| refusals.example.as_ref());
        notes.extend(
            of_rule.map(|example| format!("{name}: the rule refuses such as: {}", in_short(example))),
        );
    }
    notes
}
