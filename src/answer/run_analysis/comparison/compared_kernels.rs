//! Kernels of two recorded runs with their durations alone.

use std::collections::{HashMap, HashSet};

use super::{super::module_tables::input_shapes, ComparisonReport, JoinedDatabase, cells::signed};
use crate::answer::coverage::InModelKernel;

/// Columns of the table of kernels with their durations alone.
pub(super) const IN_MODEL_COLUMNS: [&str; 7] =
    ["kernel", "alone us", "base us", "slowdown", "other us", "slowdown", "difference ms"];

/// Kernel of both runs with its duration alone.
pub(super) struct ComparedKernel<'a> {
    pub(super) base: Option<&'a InModelKernel>,
    pub(super) other: Option<&'a InModelKernel>,
    /// Time per step in nanoseconds.
    pub(super) times: [Option<f64>; 2],
    /// Calls per step.
    pub(super) calls: [Option<f64>; 2],
}

impl ComparedKernel<'_> {
    pub(super) fn difference(&self) -> f64 {
        let [base, other] = self.times.map(Option::unwrap_or_default);
        other - base
    }

    pub(super) fn base_or_other(&self) -> Option<&InModelKernel> {
        self.base.or(self.other)
    }
}

/// Returns the kernels of both runs by the difference of their time per step.
#[expect(clippy::cast_precision_loss, reason = "sums of durations have fewer than 53 bits")]
pub(super) fn compared_kernels<'a>(report: &ComparisonReport<'a>) -> Vec<ComparedKernel<'a>> {
    let Some(JoinedDatabase { base, other, .. }) = report.in_model else { return Vec::new() };
    let steps = [report.base_sums, report.other_sums].map(|sums| sums.steps as f64);
    let pair = |base: Option<&'a InModelKernel>, other: Option<&'a InModelKernel>| {
        let [base_steps, other_steps] = steps;
        let sides = [(base, base_steps), (other, other_steps)];
        ComparedKernel {
            base,
            other,
            times: sides.map(|(kernel, steps)| kernel.map(|kernel| kernel.total as f64 / steps)),
            calls: sides.map(|(kernel, steps)| kernel.map(|kernel| kernel.calls as f64 / steps)),
        }
    };
    let by_case: HashMap<String, &InModelKernel> =
        other.kernels.iter().map(|kernel| (kernel.case.id().to_string(), kernel)).collect();
    let mut is_in_base: HashSet<String> = HashSet::new();
    let mut pairs: Vec<ComparedKernel<'a>> = Vec::new();
    for kernel in &base.kernels {
        let case = kernel.case.id().to_string();
        let same = by_case.get(&case).copied();
        is_in_base.insert(case);
        pairs.push(pair(Some(kernel), same));
    }
    for kernel in &other.kernels {
        if !is_in_base.contains(&kernel.case.id().to_string()) {
            pairs.push(pair(None, Some(kernel)));
        }
    }
    pairs.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    pairs
}

/// Returns the kernels with their durations alone as cells; none if no kernel has one.
pub(super) fn in_model_rows(report: &ComparisonReport<'_>) -> Vec<[String; 7]> {
    let kernels = compared_kernels(report);
    let has_alone =
        |pair: &ComparedKernel<'_>| pair.base_or_other().is_some_and(|kernel| kernel.alone.is_some());
    if !kernels.iter().any(has_alone) {
        return Vec::new();
    }
    let mean = |kernel: Option<&InModelKernel>| {
        kernel.map_or_else(|| "-".to_owned(), |kernel| format!("{:.3}", kernel.mean() / 1e3))
    };
    let slowdown = |kernel: Option<&InModelKernel>| {
        kernel.and_then(InModelKernel::slowdown).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
    };
    let rows = kernels.into_iter().filter_map(|pair| {
        let kernel = pair.base_or_other()?;
        Some([
            format!("{} {}", kernel.case.kernel, input_shapes(kernel)),
            kernel.alone.map_or_else(|| "-".to_owned(), |alone| format!("{:.3}", alone.duration / 1e3)),
            mean(pair.base),
            slowdown(pair.base),
            mean(pair.other),
            slowdown(pair.other),
            signed(format!("{:.3}", pair.difference() / 1e6)),
        ])
    });
    rows.collect()
}
