//! Coverage of single kernels, and the share of those that cannot be measured.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    answers::WorkloadCoverage,
    totals::{AnswerClass, CoverageTotals},
};

/// Answers of the invocations of one kernel or operator.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCoverage {
    pub name: String,
    pub totals: CoverageTotals,
    pub questions: usize,
    /// True if the catalogue can measure it; `None` if no kernel runs, and for collectives.
    pub has_entry: Option<bool>,
}

/// Returns the coverage of each kernel or operator of a workload, the longest missing time first, then the longest
/// time.
pub fn kernel_coverage(coverage: &WorkloadCoverage<'_>) -> Vec<KernelCoverage> {
    let mut kernels: BTreeMap<&str, KernelCoverage> = BTreeMap::new();
    for answer in &coverage.answers {
        let name = answer.question.query.op.as_str();
        let kernel = kernels.entry(name).or_insert_with(|| KernelCoverage {
            name: name.to_owned(),
            totals: CoverageTotals::default(),
            questions: 0,
            has_entry: None,
        });
        kernel.totals.add_invocations(answer.class, answer.question.count, answer.question.time);
        kernel.questions += 1;
        kernel.has_entry = kernel.has_entry.or(answer.has_entry);
    }
    let mut kernels: Vec<KernelCoverage> = kernels.into_values().collect();
    kernels.sort_by_key(|kernel| {
        let totals = &kernel.totals;
        let missing = (totals.time(AnswerClass::Missing), totals.count(AnswerClass::Missing));
        std::cmp::Reverse((missing, totals.all_time(), totals.all_count()))
    });
    kernels
}

/// Share of what the catalogue cannot measure, among kernels that run and are no collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryShare {
    /// Kernels without an entry, and all.
    pub(crate) kernels: (u64, u64),
    /// Invocations without an entry, and all.
    pub(crate) invocations: (u64, u64),
    /// Time in nanoseconds without an entry, and all.
    pub(crate) time: (i64, i64),
}

pub(crate) fn entry_share(coverage: &WorkloadCoverage<'_>) -> EntryShare {
    let mut share = EntryShare::default();
    let mut names: [BTreeSet<&str>; 2] = [BTreeSet::new(), BTreeSet::new()];
    for answer in &coverage.answers {
        let Some(has_entry) = answer.has_entry else { continue };
        let (count, time) = (answer.question.count, answer.question.time.map_or(0, |time| time.0));
        names[1].insert(&answer.question.query.op);
        share.invocations.1 = share.invocations.1.saturating_add(count);
        share.time.1 = share.time.1.saturating_add(time);
        if !has_entry {
            names[0].insert(&answer.question.query.op);
            share.invocations.0 = share.invocations.0.saturating_add(count);
            share.time.0 = share.time.0.saturating_add(time);
        }
    }
    share.kernels = (names[0].len() as u64, names[1].len() as u64);
    share
}
