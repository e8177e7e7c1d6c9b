//! `npubench noise`: the noise budget of a database with advice.

use super::prelude::*;
use crate::{
    base::stats::{MeasurementDesign, VarianceSources},
    measure::evidence::{ControlLevel, KernelNoise, NoiseBudget},
};

/// Number of devices and runs whose control kernels are shown.
const MAX_LEVELS: usize = 16;
const MAX_KERNELS: usize = 10;
/// Number of devices or runs below which their deviation is uncertain by more than a third.
const FEW_EFFECTS: usize = 6;
/// Half width of a 95 % interval of a normal distribution, in standard deviations.
const NORMAL_QUANTILE: f64 = 1.96;

record! {
    /// The budget in JSON; deviations are relative to the median, in percent.
    #[derive(JsonSchema)]
    pub(crate) NoiseRecord<'a>(budget: &'a NoiseBudget, kind: DataKind) {
        kind: DataKind = kind,
        cases: usize = budget.cases,
        collections: usize = budget.collections,
        devices: usize = budget.devices,
        runs: usize = budget.runs,
        hosts: usize = budget.hosts,
        left_out_collections: usize = budget.left_out,
        design: MeasurementDesign = budget.design,
        sources: Vec<SourceRecord> = variance_sources(budget),
        /// Changes of the design that double one of its numbers, the most effective first.
        changes: Vec<ChangeRecord> = design_changes(budget),
        kernels: &'a [KernelNoise] = &budget.kernels,
        controls: &'a [ControlLevel] = &budget.controls,
    }
}

/// A source of variance with its number in a design.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SourceRecord {
    source: &'static str,
    deviation_percent: Option<f64>,
    /// Part of the variance of a row, from 0 to 1.
    part: f64,
}

/// A change of the design.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangeRecord {
    change: &'static str,
    /// Factor of the width of an interval.
    width_factor: f64,
}

fn variance_sources(budget: &NoiseBudget) -> Vec<SourceRecord> {
    let VarianceSources { launch, offset, proportional, common, device, run, host } = budget.sources;
    let parts = budget.sources.contributions(&budget.design);
    let all: f64 = parts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let deviations = [
        ("launch", Some(launch)),
        ("case in a collection", Some(offset)),
        ("collection, by launch noise", Some(proportional)),
        ("collection, all cases", Some(common)),
        ("device", device),
        ("run", run),
        ("host", host),
    ];
    let record = |((source, deviation), part): ((_, Option<f64>), f64)| SourceRecord {
        source,
        deviation_percent: deviation.map(|deviation| deviation * 100.0),
        part: part / all,
    };
    deviations.into_iter().zip(parts).map(record).collect()
}

fn design_changes(budget: &NoiseBudget) -> Vec<ChangeRecord> {
    let design = budget.design;
    let doubled = MeasurementDesign { collections: design.collections * 2.0, ..design };
    let with = |devices: f64, runs: f64, hosts: f64| MeasurementDesign {
        devices: design.devices * devices,
        runs: design.runs * runs,
        hosts: design.hosts * hosts,
        ..doubled
    };
    let designs = [
        (
            "twice the launches in each collection (`--launches`)",
            MeasurementDesign { launches: design.launches * 2.0, ..design },
        ),
        ("twice the collections of each case on the same devices (`--precision`)", doubled),
        (
            "twice the collections of each case on twice the devices (`--precision` and `--devices`)",
            with(2.0, 1.0, 1.0),
        ),
        (
            "twice the collections of each case in twice the runs (`--update all` in another night)",
            with(1.0, 2.0, 1.0),
        ),
        ("twice the collections of each case on twice the hosts", with(2.0, 2.0, 2.0)),
    ];
    let before = budget.sources.deviation(&design).max(f64::MIN_POSITIVE);
    let record =
        |(change, design)| ChangeRecord { change, width_factor: budget.sources.deviation(&design) / before };
    let mut changes = Vec::from(designs.map(record));
    changes.sort_by(|one, other| one.width_factor.total_cmp(&other.width_factor));
    changes
}

pub(crate) fn noise_text(record: &NoiseRecord<'_>, budget: &NoiseBudget, width: Option<usize>) -> String {
    let MeasurementDesign { launches, collections, devices, runs, .. } = budget.design;
    let mut text = format!(
        "{} in {} on {} in {}; a typical case has {:.0} launches in {} on {} in {}{}\n\n",
        format_count(budget.cases, "case"),
        format_count(budget.collections, "collection"),
        format_count(budget.devices, "device"),
        format_count(budget.runs, "run"),
        launches,
        format_count(collections.round(), "collection"),
        format_count(devices.round(), "device"),
        format_count(runs.round(), "run"),
        record.kind.mark(),
    );
    let deviation =
        |percent: Option<f64>| percent.map_or_else(|| "unknown".to_owned(), |one| format!("{one:.2}"));
    text += &Table::new(&record.sources)
        .text("source", rank(0).min(14), |source| source.source)
        .number("deviation %", 0, |source| deviation(source.deviation_percent))
        .number("part of a row's variance %", 0, |source| format!("{:.0}", source.part * 100.0))
        .print(width);
    let half = 100.0 * NORMAL_QUANTILE * budget.sources.deviation(&budget.design);
    text += &format!(
        "\nhalf of a 95 % interval of a typical case: {half:.2} % without the joint fit, which removes the effects of collections\n"
    );
    for change in &record.changes {
        let less = 100.0 * (1.0 - change.width_factor);
        text += &format!("{less:>5.0} % narrower with {}\n", change.change);
    }
    for (count, noun, one) in [
        (budget.devices, "device", "one device: its level is unknown; measure on others\n"),
        (budget.runs, "run", "one run: differences between nights are unknown\n"),
        (budget.hosts, "host", "one host: `npubench diff` compares it with another\n"),
    ] {
        match count {
            1 => text += one,
            2..FEW_EFFECTS => text += &format!("{count} {noun}s: their deviation is uncertain\n"),
            _ => {}
        }
    }
    text.push('\n');
    text += &Table::new(budget.kernels.iter().take(MAX_KERNELS))
        .text("kernel", rank(0).min(12), |kernel| &kernel.kernel)
        .number("cases", 0, |kernel| kernel.cases)
        .number("launch noise %", 0, |kernel| format!("{:.2}", kernel.launch_percent))
        .print(width);
    let more = budget.kernels.len().saturating_sub(MAX_KERNELS);
    if more > 0 {
        text += &format!("and {} with less noise\n", format_count(more, "kernel"));
    }
    text += &control_levels(&budget.controls, width);
    if budget.left_out > 0 {
        text += &format!("{} older collections are left out\n", budget.left_out);
    }
    text
}

fn control_levels(levels: &[ControlLevel], width: Option<usize>) -> String {
    if levels.len() < 2 {
        return String::new();
    }
    let names: BTreeSet<&str> =
        levels.iter().flat_map(|level| level.off_percent.keys()).map(String::as_str).collect();
    let greatest =
        |level: &ControlLevel| level.off_percent.values().map(|off| off.abs()).fold(0.0_f64, f64::max);
    let mut sorted: Vec<&ControlLevel> = levels.iter().collect();
    sorted.sort_by(|one, other| greatest(other).total_cmp(&greatest(one)));
    let mut table = Table::new(sorted.into_iter().take(MAX_LEVELS))
        .text("run", rank(1).min(12), |level| &level.run)
        .number("device", 0, |level| level.device)
        .number("collections", 2, |level| level.collections);
    for name in names {
        let off = |level: &ControlLevel| or_dash(level.off_percent.get(name).map(|off| signed(*off, 2)));
        table = table.number(name, rank(1).min(8).with_long_header(), off);
    }
    let table = table.print(width);
    let more = levels.len().saturating_sub(MAX_LEVELS);
    let more =
        or_empty((more > 0).then(|| format!("and {} nearer to the others\n", format_count(more, "device"))));
    format!("\ncontrol kernels, off the median of all devices and runs in %\n{table}{more}")
}
