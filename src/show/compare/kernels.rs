//! Kernels of two recorded runs with their durations alone.

use indexmap::IndexMap;

use super::{
    super::{prelude::*, run_modules::input_shapes},
    ComparisonReport, JoinedDatabase, Section, modules_command, quoted_path, with_sign,
};

pub(super) struct ComparedKernel<'a> {
    pub(super) base: Option<&'a InModelKernel>,
    pub(super) other: Option<&'a InModelKernel>,
    pub(super) times: [Option<f64>; 2],
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

pub(super) fn compared_kernels<'a>(report: &ComparisonReport<'a>) -> Vec<ComparedKernel<'a>> {
    let Some(JoinedDatabase { base, other, .. }) = report.in_model else { return Vec::new() };
    let steps = [report.base_sums, report.other_sums].map(|sums| sums.steps as f64);
    let mut by_case: IndexMap<CaseId, [Option<&'a InModelKernel>; 2]> = IndexMap::new();
    for (side, found) in [base, other].into_iter().enumerate() {
        for kernel in &found.kernels {
            by_case.entry(kernel.case.id()).or_default()[side] = Some(kernel);
        }
    }
    let pair = |sides: [Option<&'a InModelKernel>; 2]| {
        let per_step = |of: fn(&InModelKernel) -> f64| {
            std::array::from_fn(|side| sides[side].map(|kernel| of(kernel) / steps[side]))
        };
        ComparedKernel {
            base: sides[0],
            other: sides[1],
            times: per_step(|kernel| kernel.total as f64),
            calls: per_step(|kernel| kernel.calls as f64),
        }
    };
    let mut pairs: Vec<ComparedKernel<'a>> = by_case.into_values().map(pair).collect();
    pairs.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    pairs
}

pub(super) fn section(report: &ComparisonReport<'_>, max: usize) -> Option<Section> {
    let kernels = compared_kernels(report);
    let us = |nanos: f64| decimals3(nanos / 1e3);
    let mean = |kernel: Option<&InModelKernel>| or_dash(kernel.map(|kernel| us(kernel.mean())));
    let slowdown =
        |kernel: Option<&InModelKernel>| or_dash(kernel.and_then(InModelKernel::slowdown).map(decimals3));
    let has_alone =
        kernels.iter().filter_map(ComparedKernel::base_or_other).any(|kernel| kernel.alone.is_some());
    let shown = kernels.iter().take(max).filter_map(|pair| Some((pair, pair.base_or_other()?)));
    let table = Table::new(shown.filter(|_| has_alone))
        .text("kernel", rank(0).min(16).wanted(30), |(_, kernel)| {
            format!("{} {}", kernel.case.kernel, input_shapes(kernel))
        })
        .number("alone us", 2, |(_, kernel)| or_dash(kernel.alone.map(|alone| us(alone.duration))))
        .number("base us", 0, |(pair, _)| mean(pair.base))
        .number("slowdown", DETAIL, |(pair, _)| slowdown(pair.base))
        .number("other us", 0, |(pair, _)| mean(pair.other))
        .number("slowdown", DETAIL, |(pair, _)| slowdown(pair.other))
        .number("difference ms", 0, |(pair, _)| with_sign(decimals3(pair.difference() / 1e6)));
    let heading = "kernels against their durations alone";
    Section::new(heading, table, kernels.len().saturating_sub(max)).filter(|_| has_alone)
}

pub(super) fn without_duration(report: &ComparisonReport<'_>, database: &JoinedDatabase<'_>) -> String {
    let kernels = compared_kernels(report);
    let is_unknown =
        |pair: &&ComparedKernel<'_>| pair.base_or_other().is_some_and(|kernel| kernel.alone.is_none());
    match kernels.iter().filter(is_unknown).count() {
        0 => String::new(),
        count => format!(
            "{} without a duration alone: `{}` has the reasons\n",
            format_count(count, "kernel"),
            modules_command(report, database)
        ),
    }
}

pub(super) fn no_measured_row(report: &ComparisonReport<'_>, database: &JoinedDatabase<'_>) -> String {
    format!(
        "no kernel of base or other has a measured row in the database: `npubench run --db {}{}` measures its rows, `{} --missing \
         missing.csv` lists kernels without one",
        quoted_path(database.folder),
        database.kind.host_option(),
        modules_command(report, database)
    )
}
