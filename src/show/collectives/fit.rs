//! Fits of sweeps as tables in the style of nccl-tests, or as JSON lines.

use std::fmt::Write as _;

use super::{super::prelude::*, SweepKeyRecord, four_digits};
use crate::{
    kernel::{CommandSizes, SweepCommand},
    measure::collective::{
        AlgorithmSwitch, MAX_SIZES, MIN_SIZES, RangeLine, ScalingComparison, ScalingOfGroups, Sweep,
        SweepFit, SweepPoint,
    },
};

#[derive(Clone, Debug)]
pub(crate) struct FitReport<'f> {
    pub(crate) fits: &'f [SweepFit],
    pub(crate) scaling: &'f [ScalingOfGroups],
    pub(crate) database: &'f Path,
    pub(crate) kind: DataKind,
    pub(crate) network: Option<&'f CommNetwork>,
}

impl FitReport<'_> {
    /// Returns the command that measures the sizes around the changes of a sweep; `None` if all are located, or the sweep has no
    /// tier or type.
    fn refining_command(&self, fit: &SweepFit) -> Option<String> {
        let mut sizes: Vec<u64> =
            fit.switches.iter().flat_map(|switch| switch.refining_sizes.clone()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return None;
        }
        let key = &fit.sweep.key;
        let dtype = key.dtype.as_ref().filter(|dtype| dtype.is_of_messages())?;
        let command = SweepCommand {
            database: self.database,
            data_kind: self.kind,
            collective: fit.sweep.kind,
            ranks: key.ranks,
            tier: Some(key.tier?),
            dtype: Some(dtype),
            environment: &key.environment,
            parts: &key.parts,
            sizes: CommandSizes::Listed(sizes),
            measures_again: false,
        };
        Some(command.to_string())
    }
}

pub(crate) fn fit_text(report: &FitReport<'_>, width: Option<usize>) -> String {
    let mut text = String::new();
    for fit in report.fits {
        let _ = writeln!(text, "{}{}\n{}", fit.sweep.name(), report.kind.mark(), points_table(fit, width));
        text += &lines_text(report, fit);
        text.push('\n');
    }
    for scaling in report.scaling {
        text += &scaling_text(scaling);
    }
    text
}

fn points_table(fit: &SweepFit, width: Option<usize>) -> String {
    let bandwidths = |point: &SweepPoint| fit.sweep.bandwidths(point.bandwidth_bytes, point.micros);
    let interval = |(low, high)| format!("{} to {}", four_digits(low), four_digits(high));
    let line = |index: usize, point: &SweepPoint| {
        Some(fit.line_of_point(index)?.micros(point.bandwidth_bytes as f64))
    };
    Table::new(fit.sweep.points.iter().enumerate())
        .number("bytes", 0, |(_, point)| point.message)
        .number("us", 0, |(_, point)| four_digits(point.micros))
        .number("95 % interval", 3, |(_, point)| or_dash(point.interval.map(interval)))
        .number("algbw GB/s", 2, |(_, point)| four_digits(bandwidths(point).0))
        .number("busbw GB/s", 0, |(_, point)| four_digits(bandwidths(point).1))
        .number("fit us", 4, |(index, point)| or_dash(line(index, point).map(four_digits)))
        .number("off %", 1, |(index, point)| {
            or_dash(line(index, point).map(|line| signed(100.0 * (point.micros / line - 1.0), 1)))
        })
        .print(width)
}

fn with_interval(value: f64, interval: Option<(f64, f64)>) -> String {
    let end = |value: f64| if value.is_finite() { four_digits(value) } else { "unbounded".to_owned() };
    match interval {
        Some((low, high)) => format!("{} ({} to {})", four_digits(value), end(low), end(high)),
        None => format!("{} (interval unknown)", four_digits(value)),
    }
}

fn lines_text(report: &FitReport<'_>, fit: &SweepFit) -> String {
    let points = &fit.sweep.points;
    if fit.ranges.is_empty() {
        return match points.len() {
            sizes @ ..MIN_SIZES => {
                format!("{}, {MIN_SIZES} are needed for a fit\n", format_count(sizes, "size"))
            }
            sizes => format!("{sizes} sizes, at most {MAX_SIZES} are fitted\n"),
        };
    }
    let mut text = String::new();
    for RangeLine { first, end, line, algorithm, .. } in &fit.ranges {
        let sizes =
            format!("{} to {}", size_text(points[*first].message), size_text(points[*end - 1].message));
        let bandwidth = match line.gigabytes_per_second() {
            Some(value) => format!("algbw {} GB/s", with_interval(value, line.bandwidth_interval())),
            None => "no dependence on the size".to_owned(),
        };
        let algorithm = or_empty((!algorithm.is_empty()).then(|| format!(", {algorithm}")));
        let _ = writeln!(
            text,
            "{sizes}: latency {} us, {bandwidth}, error {:.1} %{algorithm}",
            with_interval(line.alpha, line.alpha_interval()),
            100.0 * line.relative_error(),
        );
    }
    for switch in &fit.switches {
        text += &switch_text(switch);
    }
    if let Some(command) = report.refining_command(fit) {
        let _ = writeln!(text, "{command}");
    }
    if let Some(peak) = fit.peak(report.network) {
        let best = points.iter().map(|point| fit.sweep.bandwidths(point.bandwidth_bytes, point.micros).1);
        let best = best.fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "highest busbw {} GB/s, {:.0} % of the link's peak of {} GB/s",
            four_digits(best),
            100.0 * best / peak,
            four_digits(peak)
        );
    }
    text
}

fn switch_text(switch: &AlgorithmSwitch) -> String {
    let AlgorithmSwitch { before, behind, at_least, at_most, evidence, jump, .. } = switch;
    let mut text = format!("change between {} and {} (by {evidence}", size_text(*before), size_text(*behind));
    if (at_least, at_most) != (before, behind) {
        let _ = write!(text, "; possible from {} to {}", size_text(*at_least), size_text(*at_most));
    }
    text.push(')');
    match jump {
        Some(jump) if switch.is_discontinuity() => {
            let _ = write!(text, ", {:+.0} % at it: do not interpolate across", 100.0 * (jump - 1.0));
        }
        _ => {}
    }
    if !switch.refining_sizes.is_empty() {
        let _ = write!(text, "; sizes that locate it: {}", joined(&switch.refining_sizes, ","));
    }
    text.push('\n');
    text
}

fn scaling_text(scaling: &ScalingOfGroups) -> String {
    let tier = scaling.tier.map_or_else(|| "tier unknown".to_owned(), |tier| format!("tier {tier}"));
    let dtype = scaling.dtype.as_deref().unwrap_or("type unknown");
    let environment = &scaling.environment;
    let space = if environment.is_empty() { "" } else { " " };
    let (collective, ranks) = (&scaling.collective, joined(&scaling.ranks, ", "));
    let mut text = format!("{collective} {tier} {dtype} over {ranks} ranks{space}{environment}\n");
    for (name, comparison) in
        [("small messages", &scaling.small_messages), ("large messages", &scaling.large_messages)]
    {
        let ScalingComparison { algorithm, undecided, fits } = comparison;
        let named = match algorithm {
            Some(algorithm) => algorithm.to_string(),
            None => format!("undecided: {undecided}"),
        };
        let fits = fits.iter().map(|fit| {
            let step = or_empty(fit.step_us.map(|step| format!(", step {} us", four_digits(step))));
            let link = or_empty(fit.gb_per_s.map(|link| format!(", link {} GB/s", four_digits(link))));
            format!("{} off by {:.1} %{step}{link}", fit.algorithm, fit.error_percent)
        });
        let fits = joined(fits, "; ");
        let _ = writeln!(text, "  {name}: {named}{}{fits}", if fits.is_empty() { "" } else { " — " });
    }
    text
}

/// What `comm fit --format json` prints: a record for each sweep, then one for each comparison of group sizes.
pub(crate) fn fit_records(report: &FitReport<'_>) -> Vec<Box<RawValue>> {
    let sweeps = report.fits.iter().map(|fit| json_record(&SweepRecord::new(report, fit)));
    let scaling = report.scaling.iter();
    let scaling = scaling.map(|scaling| json_record(&ScalingRecord { kind: report.kind, scaling }));
    sweeps.chain(scaling).collect()
}

#[derive(Serialize)]
struct ScalingRecord<'a> {
    kind: DataKind,
    scaling: &'a ScalingOfGroups,
}

record! {
    SweepRecord<'a>(report: &FitReport<'_>, fit: &'a SweepFit) with { let sweep = &fit.sweep; } {
        #[serde(flatten)]
        key: SweepKeyRecord<'a> = SweepKeyRecord::new(sweep, report.kind),
        size_semantics: &'a str = sweep.kind.size_semantics(),
        bus_factor: f64 = sweep.bus_factor(),
        link_peak_gb_per_s: Option<f64> = fit.peak(report.network),
        refining_command: Option<String> = report.refining_command(fit),
        points: Vec<PointRecord> = sweep.points.iter().map(|point| PointRecord::new(sweep, point)).collect(),
        lines: Vec<LineRecord<'a>> = fit.ranges.iter().map(|range| LineRecord::new(sweep, range)).collect(),
        changes: Vec<ChangeRecord<'a>> = fit.switches.iter().map(ChangeRecord::new).collect(),
    }
}

record! {
    PointRecord(sweep: &Sweep, point: &SweepPoint)
    with { let bandwidths = sweep.bandwidths(point.bandwidth_bytes, point.micros); } {
        message_bytes: u64 = point.message,
        bandwidth_bytes: u64 = point.bandwidth_bytes,
        us: f64 = point.micros,
        ci95_us: Option<(f64, f64)> = point.interval,
        algbw_gb_per_s: f64 = bandwidths.0,
        busbw_gb_per_s: f64 = bandwidths.1,
        rows: usize = point.rows,
        by_npubench: bool = !point.is_foreign,
    }
}

record! {
    LineRecord<'a>(sweep: &Sweep, range: &'a RangeLine) {
        first_bytes: u64 = sweep.points[range.first].message,
        last_bytes: u64 = sweep.points[range.end - 1].message,
        algorithm: &'a str = &range.algorithm,
        latency_us: f64 = range.line.alpha,
        latency_ci95_us: Option<(f64, f64)> = range.line.alpha_interval(),
        algbw_gb_per_s: Option<f64> = range.line.gigabytes_per_second(),
        /// The upper end is null if nothing bounds it.
        algbw_ci95_gb_per_s: Option<(f64, f64)> = range.line.bandwidth_interval(),
        half_bandwidth_bytes: Option<f64> = range.line.half_bandwidth_bytes(),
        error_percent: f64 = 100.0 * range.line.relative_error(),
    }
}

record! {
    ChangeRecord<'a>(change: &'a AlgorithmSwitch) {
        #[serde(flatten)]
        change: &'a AlgorithmSwitch = change,
        discontinuity: bool = change.is_discontinuity(),
        /// True if the sizes around it differ by at most a quarter.
        located: bool = change.is_located,
    }
}
