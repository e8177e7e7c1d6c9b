//! Fits of sweeps as tables in the style of nccl-tests, or as JSON lines.

use std::{fmt::Write as _, path::Path};

use schemars::JsonSchema;
use serde::Serialize;

use super::four_digits;
use crate::{
    base::count_text::format_count,
    kernel::{CollectiveKind, CommandSizes, DataKind, Dtype, SweepCommand, collective::CommNetwork},
    measure::collective::{
        AlgorithmSwitch, MAX_SIZES, MIN_SIZES, RangeLine, ScalingComparison, ScalingOfGroups, SweepFit,
        SweepPoint, size_text,
    },
    show::table::{FittedColumn, fitted_text},
};

/// Fits of the sweeps of a database.
#[derive(Clone, Debug)]
pub(crate) struct FitReport<'f> {
    pub(crate) fits: &'f [SweepFit],
    pub(crate) scaling: &'f [ScalingOfGroups],
    /// Folder of the database, for the commands that measure further sizes.
    pub(crate) database: &'f Path,
    pub(crate) kind: DataKind,
    /// Network whose link peaks are shown.
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

/// Returns a table for each sweep, with its lines and changes, then the algorithms by group sizes.
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

#[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
fn points_table(fit: &SweepFit, width: Option<usize>) -> String {
    let ranked = [
        ("bytes", 0),
        ("us", 0),
        ("95 % interval", 3),
        ("algbw GB/s", 2),
        ("busbw GB/s", 0),
        ("fit us", 4),
        ("off %", 1),
    ];
    let columns = ranked.map(|(header, rank)| FittedColumn::number(header, rank)).to_vec();
    let cells = |(index, point): (usize, &SweepPoint)| {
        let (algorithm, bus) = fit.sweep.bandwidths(point.bandwidth_bytes, point.micros);
        let line = fit.line_of_point(index).map(|line| line.micros(point.bandwidth_bytes as f64));
        let dash = || "-".to_owned();
        vec![
            point.message.to_string(),
            four_digits(point.micros),
            point
                .interval
                .map_or_else(dash, |(low, high)| format!("{} to {}", four_digits(low), four_digits(high))),
            four_digits(algorithm),
            four_digits(bus),
            line.map_or_else(dash, four_digits),
            line.map_or_else(dash, |line| format!("{:+.1}", 100.0 * (point.micros / line - 1.0))),
        ]
    };
    fitted_text(columns, fit.sweep.points.iter().enumerate().map(cells), width)
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
        let algorithm = if algorithm.is_empty() { String::new() } else { format!(", {algorithm}") };
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
        let sizes: Vec<String> = switch.refining_sizes.iter().map(ToString::to_string).collect();
        let _ = write!(text, "; sizes that locate it: {}", sizes.join(","));
    }
    text.push('\n');
    text
}

fn scaling_text(scaling: &ScalingOfGroups) -> String {
    let tier = scaling.tier.map_or_else(|| "tier unknown".to_owned(), |tier| format!("tier {tier}"));
    let dtype = scaling.dtype.as_deref().unwrap_or("type unknown");
    let ranks: Vec<String> = scaling.ranks.iter().map(ToString::to_string).collect();
    let mut text = format!("{} {tier} {dtype} over {} ranks", scaling.collective, ranks.join(", "));
    if !scaling.environment.is_empty() {
        let _ = write!(text, " {}", scaling.environment);
    }
    text.push('\n');
    for (name, comparison) in
        [("small messages", &scaling.small_messages), ("large messages", &scaling.large_messages)]
    {
        let ScalingComparison { algorithm, undecided, fits } = comparison;
        let named = match algorithm {
            Some(algorithm) => algorithm.to_string(),
            None => format!("undecided: {undecided}"),
        };
        let _ = write!(text, "  {name}: {named}");
        let fits = fits.iter().map(|fit| {
            let step =
                fit.step_us.map_or_else(String::new, |step| format!(", step {} us", four_digits(step)));
            let link =
                fit.gb_per_s.map_or_else(String::new, |link| format!(", link {} GB/s", four_digits(link)));
            format!("{} off by {:.1} %{step}{link}", fit.algorithm, fit.error_percent)
        });
        let fits: Vec<String> = fits.collect();
        let _ = writeln!(text, "{}{}", if fits.is_empty() { "" } else { " — " }, fits.join("; "));
    }
    text
}

/// What `comm fit --format json` prints: a record for each sweep, then one for each comparison of group sizes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum FitRecord<'a> {
    Sweep(Box<SweepRecord<'a>>),
    Scaling {
        #[schemars(with = "String")]
        kind: DataKind,
        scaling: &'a ScalingOfGroups,
    },
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SweepRecord<'a> {
    #[schemars(with = "String")]
    kind: DataKind,
    #[schemars(with = "String")]
    collective: CollectiveKind,
    ranks: u64,
    tier: Option<u64>,
    dtype: Option<&'a str>,
    environment: &'a str,
    part_weights: String,
    size_semantics: &'a str,
    bus_factor: f64,
    link_peak_gb_per_s: Option<f64>,
    /// Command that measures the sizes around the changes.
    refining_command: Option<String>,
    points: Vec<PointRecord>,
    lines: Vec<LineRecord<'a>>,
    changes: Vec<ChangeRecord<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct PointRecord {
    message_bytes: u64,
    bandwidth_bytes: u64,
    us: f64,
    ci95_us: Option<(f64, f64)>,
    algbw_gb_per_s: f64,
    busbw_gb_per_s: f64,
    /// Number of rows whose median the duration is.
    rows: usize,
    by_npubench: bool,
}

#[derive(Serialize, JsonSchema)]
struct LineRecord<'a> {
    first_bytes: u64,
    last_bytes: u64,
    algorithm: &'a str,
    latency_us: f64,
    latency_ci95_us: Option<(f64, f64)>,
    algbw_gb_per_s: Option<f64>,
    /// The upper end is null if nothing bounds it.
    algbw_ci95_gb_per_s: Option<(f64, f64)>,
    half_bandwidth_bytes: Option<f64>,
    error_percent: f64,
}

#[derive(Serialize, JsonSchema)]
struct ChangeRecord<'a> {
    #[serde(flatten)]
    change: &'a AlgorithmSwitch,
    /// True if the duration jumps.
    discontinuity: bool,
    /// True if the sizes around it differ by at most a quarter.
    located: bool,
}

impl<'f> FitReport<'f> {
    pub(crate) fn records(&self) -> Vec<FitRecord<'f>> {
        let sweeps = self.fits.iter().map(|fit| FitRecord::Sweep(Box::new(self.sweep_record(fit))));
        let kind = self.kind;
        let scaling = self.scaling.iter().map(|scaling| FitRecord::Scaling { kind, scaling });
        sweeps.chain(scaling).collect()
    }

    fn sweep_record(&self, fit: &'f SweepFit) -> SweepRecord<'f> {
        let SweepFit { sweep, ranges, switches } = fit;
        let point = |point: &SweepPoint| {
            let (algorithm, bus) = sweep.bandwidths(point.bandwidth_bytes, point.micros);
            PointRecord {
                message_bytes: point.message,
                bandwidth_bytes: point.bandwidth_bytes,
                us: point.micros,
                ci95_us: point.interval,
                algbw_gb_per_s: algorithm,
                busbw_gb_per_s: bus,
                rows: point.rows,
                by_npubench: !point.is_foreign,
            }
        };
        let line = |range: &'f RangeLine| LineRecord {
            first_bytes: sweep.points[range.first].message,
            last_bytes: sweep.points[range.end - 1].message,
            algorithm: &range.algorithm,
            latency_us: range.line.alpha,
            latency_ci95_us: range.line.alpha_interval(),
            algbw_gb_per_s: range.line.gigabytes_per_second(),
            algbw_ci95_gb_per_s: range.line.bandwidth_interval(),
            half_bandwidth_bytes: range.line.half_bandwidth_bytes(),
            error_percent: 100.0 * range.line.relative_error(),
        };
        let change = |change: &'f AlgorithmSwitch| ChangeRecord {
            change,
            discontinuity: change.is_discontinuity(),
            located: change.is_located,
        };
        SweepRecord {
            kind: self.kind,
            collective: sweep.kind,
            ranks: sweep.key.ranks,
            tier: sweep.key.tier,
            dtype: sweep.key.dtype.as_ref().map(Dtype::as_str),
            environment: &sweep.key.environment,
            part_weights: sweep.key.parts.to_string(),
            size_semantics: sweep.kind.size_semantics(),
            bus_factor: sweep.bus_factor(),
            link_peak_gb_per_s: fit.peak(self.network),
            refining_command: self.refining_command(fit),
            points: sweep.points.iter().map(point).collect(),
            lines: ranges.iter().map(line).collect(),
            changes: switches.iter().map(change).collect(),
        }
    }
}
