//! What became of mutants: a table and JSON lines.

use std::collections::BTreeMap;

use super::grid::{Line, table};
use crate::{
    grid::{
        Refused,
        mutate::{Mutated, Tried},
    },
    model::KernelName,
};

/// The mutants of one kernel, as they are told.
#[derive(Debug)]
pub struct MutatedKernel {
    /// The kernel that they are of.
    pub kernel: KernelName,
    /// Cases that they were made of, those that cannot be read included.
    pub sources: usize,
    /// Those that cannot be read.
    pub unread: usize,
    /// What the catalogue says of the first of those.
    pub unread_example: Option<String>,
    /// All mutants.
    pub candidates: u64,
    /// Those that become rows.
    pub rows: usize,
    /// Those that do not, by reason.
    pub refused: BTreeMap<Refused, u64>,
    /// What was said of the first that could not be built, or that the catalogue's rule refused.
    pub example: Option<String>,
    /// By mutation.
    pub mutations: Vec<(String, Tried)>,
    /// Seconds that one launch of each row takes at the least, where somebody computed it.
    pub fastest: Option<f64>,
}

impl MutatedKernel {
    /// What there is to tell.
    #[must_use]
    pub fn of(kernel: &KernelName, mutated: &Mutated<'_>, fastest: Option<f64>) -> Self {
        Self {
            kernel: kernel.clone(),
            sources: mutated.sources(),
            unread: mutated.unread,
            unread_example: mutated.unread_example.clone(),
            candidates: mutated.candidates,
            rows: mutated.rows(),
            refused: mutated.refused.clone(),
            example: mutated.example.clone(),
            mutations: mutated.mutations().map(|(name, tried)| (name.to_owned(), tried)).collect(),
            fastest,
        }
    }
}

/// A row for each kernel, with the sums below.
#[must_use]
pub fn mutants_table(kernels: &[MutatedKernel]) -> String {
    let lines = kernels.iter().map(|kernel| {
        let rows = kernel.mutations.iter().filter(|(_, tried)| tried.rows > 0);
        let rows: Vec<String> = rows.map(|(name, tried)| format!("{name} {}", tried.rows)).collect();
        Line {
            kernel: kernel.kernel.as_str(),
            candidates: kernel.candidates,
            refused: &kernel.refused,
            rows: kernel.rows,
            fastest: kernel.fastest,
            last: rows.join(", "),
        }
    });
    table(&lines.collect::<Vec<_>>(), "rows by mutation")
}

/// A line of JSON for each kernel.
#[must_use]
pub fn mutants_json(kernels: &[MutatedKernel]) -> String {
    let lines = kernels.iter().map(|kernel| {
        let refused: BTreeMap<String, u64> =
            kernel.refused.iter().map(|(reason, count)| (reason.to_string(), *count)).collect();
        let mutations: BTreeMap<&str, serde_json::Value> = (kernel.mutations.iter())
            .map(|(name, Tried { candidates, rows })| {
                (name.as_str(), serde_json::json!({"candidates": candidates, "rows": rows}))
            })
            .collect();
        let object = serde_json::json!({
            "kernel": kernel.kernel.as_str(), "cases": kernel.sources, "cases_unread": kernel.unread,
            "candidates": kernel.candidates, "rows": kernel.rows, "refused": refused, "mutations": mutations,
            "fastest_s": kernel.fastest, "refused_by_rule": kernel.example,
        });
        format!("{object}\n")
    });
    lines.collect()
}
