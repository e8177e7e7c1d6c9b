//! Fits of sweeps as tables in the style of nccl-tests, or as JSON lines.

use std::{fmt::Write as _, path::Path};

use serde_json::{Value, json};

use crate::{
    base::count_text::format_count,
    kernel::{CommandSizes, DataKind, Dtype, SweepCommand, collective::CommNetwork},
    measure::collective::{
        AlgorithmSwitch, LEAST_SIZES, LineFit, MOST_SIZES, RangeLine, ScalingComparison, ScalingOfGroups,
        SweepFit, SweepPoint, size_text,
    },
    show::{
        collectives::four_digits,
        table::{FittedColumn, fitted_text},
    },
};

/// Fits of the sweeps of a database.
#[derive(Clone, Debug)]
pub(crate) struct FitReport<'f> {
    pub(crate) fits: &'f [SweepFit],
    pub(crate) scaling: &'f [ScalingOfGroups],
    /// Folder of the database, for the commands that measure further sizes.
    pub(crate) database: &'f Path,
    /// Kind of the database.
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

/// Returns a value with its interval.
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
            sizes @ ..LEAST_SIZES => {
                format!("{}, {LEAST_SIZES} are needed for a fit\n", format_count(sizes, "size"))
            }
            sizes => format!("{sizes} sizes, at most {MOST_SIZES} are fitted\n"),
        };
    }
    let mut text = String::new();
    for RangeLine { first, end, line, algorithm } in &fit.ranges {
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

fn line_json(line: &LineFit) -> Value {
    let finite = |interval: Option<(f64, f64)>| {
        interval.map(|(low, high)| [Some(low), Some(high).filter(|high| high.is_finite())])
    };
    json!({
        "latency_us": line.alpha, "latency_ci95_us": finite(line.alpha_interval()),
        "algbw_gb_per_s": line.gigabytes_per_second(), "algbw_ci95_gb_per_s": finite(line.bandwidth_interval()),
        "half_bandwidth_bytes": line.half_bandwidth_bytes(), "error_percent": 100.0 * line.relative_error(),
    })
}

/// Returns a JSON object for each sweep, then one for each comparison of group sizes.
pub(crate) fn fit_json(report: &FitReport<'_>) -> String {
    let mut text = String::new();
    for fit in report.fits {
        let key = &fit.sweep.key;
        let points: Vec<Value> = fit
            .sweep
            .points
            .iter()
            .map(|point| {
                let (algorithm, bus) = fit.sweep.bandwidths(point.bandwidth_bytes, point.micros);
                json!({
                    "message_bytes": point.message, "bandwidth_bytes": point.bandwidth_bytes, "us": point.micros,
                    "ci95_us": point.interval, "algbw_gb_per_s": algorithm, "busbw_gb_per_s": bus,
                    "rows": point.rows, "by_npubench": !point.is_foreign,
                })
            })
            .collect();
        let ranges: Vec<Value> = fit
            .ranges
            .iter()
            .map(|range| {
                let points = &fit.sweep.points;
                let mut value = line_json(&range.line);
                value["first_bytes"] = points[range.first].message.into();
                value["last_bytes"] = points[range.end - 1].message.into();
                value["algorithm"] = range.algorithm.clone().into();
                value
            })
            .collect();
        let changes: Vec<Value> = fit
            .switches
            .iter()
            .map(|switch| {
                let mut value = json!(switch);
                value["discontinuity"] = switch.is_discontinuity().into();
                value["located"] = switch.is_located.into();
                value
            })
            .collect();
        let object = json!({
            "kind": report.kind, "collective": fit.sweep.kind, "ranks": key.ranks, "tier": key.tier,
            "dtype": key.dtype.as_ref().map(Dtype::as_str), "environment": key.environment, "part_weights": key.parts.to_string(),
            "size_semantics": fit.sweep.kind.size_semantics(), "bus_factor": fit.sweep.bus_factor(),
            "link_peak_gb_per_s": fit.peak(report.network), "refining_command": report.refining_command(fit), "points": points, "lines": ranges, "changes": changes,
        });
        let _ = writeln!(text, "{object}");
    }
    for scaling in report.scaling {
        let _ = writeln!(text, "{}", json!({ "kind": report.kind, "scaling": scaling }));
    }
    text
}
