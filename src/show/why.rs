//! The page that explains one number.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use crate::{
    base::count_text::format_count,
    kernel::{
        CacheState,
        render::files::EVIDENCE,
        timestamp::{Timestamp, format_duration},
    },
    measure::{
        evidence::{
            BracketEvidence, CaseEvidence, CollectionEvidence, ControlEvidence, ReadingEvidence,
            ResultEvidence, StateEvidence,
        },
        verify::RuleResult,
    },
    show::{
        run_lines::device_ranges,
        table::{DETAIL, FittedColumn, FittedRow, FittedTable, fitted_text},
    },
};

/// Maximum number of lines of the plot of samples.
const MOST_BINS: usize = 12;
/// Width of the longest bar.
const LONGEST_BAR: usize = 40;
/// Columns of the plot beside a bar.
const BESIDE_BAR: usize = 27;
/// Spaces in front of the lines of a block.
const BLOCK_INDENT: &str = "  ";
/// Step of the device's timer in nanoseconds; bins are multiples of it.
const TIMER_STEP: i64 = 20;

/// Returns the page of a case.
pub(crate) fn why_page(evidence: &CaseEvidence, width: Option<usize>) -> String {
    let width = width.map(|width| width.saturating_sub(BLOCK_INDENT.len()));
    let mut page = Page::default();
    page.add("case", &format!("{} {}", evidence.case, evidence.kernel));
    page.add("shapes", &evidence.shapes);
    for row in &evidence.rows {
        let shown = match (row.average_us.as_str(), row.verdict.as_str()) {
            ("", "") => "no result".to_owned(),
            ("", verdict) => verdict.to_owned(),
            (average, verdict) => format!("average {average} us {verdict}"),
        };
        page.add("row", &format!("{}:{}: {}", row.file.display(), row.line, shown.trim_end()));
        page.add("ledger", &row.ledger);
    }
    if evidence.rows.is_empty() {
        page.add("row", "no row of the database has this case");
    }
    match &evidence.result {
        Some(result) => add_result(&mut page, result),
        None => page.add("result", &missing_result(evidence)),
    }
    if let Some(other) = &evidence.other_state {
        add_other_state(&mut page, other, evidence.cache);
    }
    add_references(&mut page, evidence);
    page.text.push('\n');
    add_rules(&mut page, evidence, width);
    add_collections(&mut page, evidence, width);
    add_raw_records(&mut page, evidence);
    page.add("again", &evidence.command);
    page.text
}

/// Text with a label in front of each line.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn add(&mut self, label: &str, text: &str) {
        let line = format!("{label:<11}{text}");
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn add_block(&mut self, text: &str) {
        for line in text.lines() {
            let _ = writeln!(self.text, "{BLOCK_INDENT}{}", line.trim_end());
        }
    }
}

fn add_result(page: &mut Page, result: &ResultEvidence) {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), format_us);
    page.add(
        "median",
        &format!(
            "{} us over {} of {}; mean {}, standard deviation {}, least {}, 95th percentile {}",
            format_us(result.median_us),
            format_count(result.samples, "sample"),
            format_count(result.collections, "collection"),
            format_us(result.average_us),
            optional(result.std_us),
            format_us(result.min_us),
            format_us(result.p95_us),
        ),
    );
    let interval = match &result.interval {
        None => "none: too few samples".to_owned(),
        Some(interval) => {
            let half = 100.0 * (interval.high_us - interval.low_us) / 2.0 / interval.estimate_us;
            let correction = interval.correction_percent.map_or_else(String::new, |percent| {
                format!("; its collections were {percent:+.3} % off, which is removed")
            });
            format!(
                "95 %: {} to {} us, +-{half:.2} % of the estimate {} us, by {}{correction}",
                format_us(interval.low_us),
                format_us(interval.high_us),
                format_us(interval.estimate_us),
                interval.method.explanation(),
            )
        }
    };
    page.add("interval", &interval);
    if let Some(ranks) = &result.ranks {
        let latest = ranks.latest.map_or_else(String::new, |rank| format!(", rank {rank:.0} starts last"));
        let method = if ranks.by_clocks >= 1.0 {
            "from the last start to the last end by their clocks"
        } else if ranks.by_clocks <= 0.0 {
            "of the shortest rank"
        } else {
            "of the shortest rank where their clocks differ"
        };
        page.add(
            "ranks",
            &format!(
                "{} to {} us over the ranks, skew {:.1} %{latest}; the time is {method}",
                format_us(ranks.shortest_us),
                format_us(ranks.longest_us),
                ranks.skew_percent
            ),
        );
    }
    page.add("verdict", &format!("{}: {}", result.verdict, result.findings.cause));
    result.findings.remarks.iter().for_each(|remark| page.add("remark", &remark.to_string()));
    page.add("software", result.software.as_deref().unwrap_or("not recorded"));
}

/// Adds the result in the state of the cache that the page does not explain.
fn add_other_state(page: &mut Page, other: &StateEvidence, cache: CacheState) {
    let StateEvidence { cache: state, result, production_ratio } = other;
    let ratio = production_ratio
        .map_or_else(String::new, |ratio| format!("; {:+.1} % of production", 100.0 * (ratio - 1.0)));
    page.add(
        &format!("{state} cache"),
        &format!(
            "{} us over {} of {}, {}{ratio}; the rest of the page is of the {cache} cache, `--cache {state}` explains it",
            format_us(result.median_us),
            format_count(result.samples, "sample"),
            format_count(result.collections, "collection"),
            result.verdict,
        ),
    );
}

/// Returns the reason why a case has no measurement.
fn missing_result(evidence: &CaseEvidence) -> String {
    let Some(last) = evidence.runs.last() else {
        return "no measurement: no run has planned the case".to_owned();
    };
    match last.verdict {
        None => format!("no measurement: it is open in run {}, which is active or was interrupted", last.run),
        Some(verdict) => format!("no measurement: {verdict} in run {}: {}", last.run, last.reason),
    }
}

fn add_references(page: &mut Page, evidence: &CaseEvidence) {
    if let Some(roofline) = &evidence.roofline {
        let text = match (roofline.bound_us, roofline.share_percent, &roofline.problem) {
            (Some(bound), Some(share), _) => {
                format!("{} us at least on {}, {share:.1} % of the median", format_us(bound), roofline.device)
            }
            (Some(bound), None, _) => format!("{} us at least on {}", format_us(bound), roofline.device),
            (None, _, problem) => format!("unknown: {}", problem.as_deref().unwrap_or_default()),
        };
        page.add("roofline", &text);
    }
    if let Some(production) = &evidence.production {
        let records = usize::try_from(production.records).unwrap_or(usize::MAX);
        let ratio = production.ratio.map_or_else(String::new, |ratio| {
            let side = if ratio < 1.0 { "below" } else { "above" };
            format!("; the replay's median is {:.1} % {side} it", 100.0 * (ratio - 1.0).abs())
        });
        page.add(
            "production",
            &format!(
                "{} us, the median of {}{ratio}",
                format_us(production.median_us),
                format_count(records, "record")
            ),
        );
    }
}

fn add_rules(page: &mut Page, evidence: &CaseEvidence, width: Option<usize>) {
    if evidence.rules.is_empty() {
        return;
    }
    page.add("rules", "of the row; `npubench rules` lists all with their limits");
    let columns = vec![
        FittedColumn::text("rule", 0).shortened_to(16),
        FittedColumn::text("result", 0),
        FittedColumn::text("found", 1).shortened_to(40),
    ];
    let row = |RuleResult { rule, state, found }: &RuleResult| {
        let cells = [(*rule).to_owned(), state.to_string(), found.clone()];
        FittedRow { has_line_below: true, ..FittedRow::from_cells(&cells) }
    };
    let rows = evidence.rules.iter().map(row).collect();
    page.add_block(
        &FittedTable { columns, rows, below: Some(2), ..FittedTable::default() }.print(width, false),
    );
    page.text.push('\n');
}

fn add_collections(page: &mut Page, evidence: &CaseEvidence, width: Option<usize>) {
    if evidence.collections.is_empty() {
        return;
    }
    page.add("collections", "");
    page.add_block(&collections_table(evidence, width));
    for one in &evidence.collections {
        if let Some(why) = &one.left_out {
            page.add_block(&format!("left out, {} of run {}: {why}", one.number, one.run));
        }
    }
    if let Some(table) = controls_table(evidence, width) {
        page.text.push('\n');
        page.add(
            "controls",
            "medians in us at the start and the end; off: from other collections with the same software",
        );
        page.add_block(&table);
    }
    let used: Vec<&CollectionEvidence> = evidence.collections.iter().filter(|one| one.is_used).collect();
    let samples: Vec<i64> = used.iter().flat_map(|one| one.samples_ns.iter().copied()).collect();
    if let Some(plot) = sample_plot(&samples, width) {
        page.text.push('\n');
        page.add("samples", "in us, of the collections in the row");
        page.add_block(&plot);
    }
    let outliers: Vec<String> = used.iter().flat_map(|one| &one.outliers_ns).map(|&ns| micros(ns)).collect();
    if !outliers.is_empty() {
        page.add_block(&format!("severe outliers, left out: {}", outliers.join(", ")));
    }
    page.text.push('\n');
}

fn collections_table(evidence: &CaseEvidence, width: Option<usize>) -> String {
    let columns = vec![
        FittedColumn::text("run", 4).shortened_to(12),
        FittedColumn::number("number", 0),
        FittedColumn::number("device", 1),
        FittedColumn::text("started", DETAIL),
        FittedColumn::number("lasted", DETAIL + 1),
        FittedColumn::number("records", 2),
        FittedColumn::number("outliers", 3),
        FittedColumn::number("median us", 0),
        FittedColumn::number("cycles/us/block", DETAIL + 1),
        FittedColumn::number("off", DETAIL + 1),
        FittedColumn::text("device state", DETAIL + 1).shortened_to(12),
        FittedColumn::text("verdict", 0),
    ];
    let row = |one: &CollectionEvidence| {
        let clock = one.clock.as_ref();
        vec![
            one.run.clone(),
            one.number.to_string(),
            device_ranges(&one.devices),
            Timestamp(one.started_ns).local_date_time(),
            one.seconds.map_or_else(|| "open".to_owned(), format_duration),
            format!("{} of {}", one.recorded, one.launched),
            one.outliers_ns.len().to_string(),
            one.median_us.map_or_else(String::new, format_us),
            clock.map_or_else(String::new, |clock| format!("{:.0}", clock.cycles_per_us)),
            clock
                .and_then(|clock| clock.difference_percent)
                .map_or_else(String::new, |percent| format!("{percent:+.2} %")),
            readings_text(&one.readings),
            format!("{}{}", one.verdict, if one.is_used { "" } else { ", left out" }),
        ]
    };
    fitted_text(columns, evidence.collections.iter().map(row), width)
}

/// Returns the control kernels of the collections; `None` without one.
fn controls_table(evidence: &CaseEvidence, width: Option<usize>) -> Option<String> {
    let mut names: Vec<&str> =
        evidence.collections.iter().flat_map(|one| &one.controls).map(|one| one.control.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let mut columns = vec![
        FittedColumn::text("run", 4).shortened_to(12),
        FittedColumn::number("number", 0),
        FittedColumn::number("device", 1),
    ];
    columns.extend(names.iter().flat_map(|name| {
        [
            FittedColumn::number(name, 2).shortened_to(12).with_long_header(),
            FittedColumn::number("change", 2),
            FittedColumn::number("off", 2),
        ]
    }));
    let mut rows = Vec::new();
    let percent =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.2} %"));
    for one in &evidence.collections {
        let devices: BTreeSet<u32> = one.controls.iter().map(|control| control.device).collect();
        for device in devices {
            let mut row = vec![one.run.clone(), one.number.to_string(), device.to_string()];
            for name in &names {
                let is_own = |found: &&ControlEvidence| found.device == device && found.control == *name;
                let found = one.controls.iter().find(is_own);
                let at = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
                row.push(found.map_or_else(String::new, |found| {
                    format!("{} {}", at(found.begin_us), at(found.end_us))
                }));
                row.push(percent(found.and_then(|found| found.change_percent)));
                row.push(percent(found.and_then(|found| found.off_percent)));
            }
            rows.push(row);
        }
    }
    Some(fitted_text(columns, rows, width))
}

/// Returns temperature, power and health of the devices of a collection: `38-41 C, 172-180 W, OK`.
fn readings_text(readings: &[ReadingEvidence]) -> String {
    let range = |values: Vec<f64>, unit: &str| {
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
        match values.is_empty() {
            true => None,
            false if low == high => Some(format!("{low:.0} {unit}")),
            false => Some(format!("{low:.0}-{high:.0} {unit}")),
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "degrees Celsius")]
    let temperatures =
        readings.iter().filter_map(|one| one.temperature_c.map(|value| value as f64)).collect();
    let powers = readings.iter().filter_map(|one| one.power_w).collect();
    let health: BTreeSet<&str> = readings.iter().map(|one| one.health.as_str()).collect();
    let health = health.into_iter().collect::<Vec<_>>().join(" ");
    let parts = [range(temperatures, "C"), range(powers, "W"), Some(health).filter(|text| !text.is_empty())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns a histogram of samples in nanoseconds; `None` without samples.
fn sample_plot(samples: &[i64], width: Option<usize>) -> Option<String> {
    let longest = width.map_or(LONGEST_BAR, |width| width.saturating_sub(BESIDE_BAR).clamp(1, LONGEST_BAR));
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let bins = i64::try_from(MOST_BINS).unwrap_or(1);
    let steps = ((last - first) / TIMER_STEP + 1).max(1);
    let width = TIMER_STEP * steps.div_euclid(bins).max(1)
        + if steps > bins && steps % bins > 0 { TIMER_STEP } else { 0 };
    let bin = |sample: i64| usize::try_from((sample - first) / width).unwrap_or_default();
    let mut counts = vec![0_usize; bin(last) + 1];
    sorted.iter().for_each(|&sample| counts[bin(sample)] += 1);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let median = bin(sorted[(sorted.len() - 1) / 2]);
    let mut plot = String::new();
    for (index, count) in counts.iter().enumerate() {
        let start = first + width * i64::try_from(index).unwrap_or_default();
        let bar = "#".repeat((count * longest).div_ceil(most));
        let mark = if index == median { "  median" } else { "" };
        let _ = writeln!(plot, "{:>12} {count:>5} {bar}{mark}", micros(start));
    }
    Some(plot)
}

fn add_raw_records(page: &mut Page, evidence: &CaseEvidence) {
    for one in &evidence.collections {
        if !one.folder.exists() {
            page.add("raw", &format!("{} does not exist: it was removed", one.folder.display()));
            continue;
        }
        page.add("raw", &one.folder.display().to_string());
        let names = one.records.iter().map(|path| path.strip_prefix(&one.folder).unwrap_or(path));
        let names = names.filter(|name| *name != Path::new(EVIDENCE)).map(|name| name.display().to_string());
        page.add_block(&names.collect::<Vec<_>>().join("\n"));
        if let (Some(state), Some(digest)) = (&one.archive, &one.archive_sha256) {
            page.add_block(&format!("{EVIDENCE} with all of them, SHA-256 {digest}: {state}"));
        }
        if let Some(BracketEvidence { kernel, opening, closing }) = &one.bracket {
            page.add_block(&format!(
                "the records of the case are between those of {kernel} with {opening} and {closing} elements"
            ));
        }
    }
}

/// Formats microseconds with three decimals. Means have more digits than the timer's step of 0.02 us.
fn format_us(value: f64) -> String {
    format!("{value:.3}")
}

fn micros(nanos: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "durations of kernels")]
    let micros = nanos as f64 / 1e3;
    format!("{micros:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_has_a_line_per_timer_step_or_at_most_the_limit() {
        assert_eq!(sample_plot(&[], None), None);
        insta::assert_snapshot!(sample_plot(&[1300, 1300, 1320, 1340, 1300], None).expect("samples"), @"
        1.30     3 ########################################  median
        1.32     1 ##############
        1.34     1 ##############
        ");
        let wide: Vec<i64> = (0..500).map(|index| 10_000 + 20 * index).collect();
        let plot = sample_plot(&wide, None).expect("samples");
        assert!((MOST_BINS - 1..=MOST_BINS).contains(&plot.lines().count()), "{plot}");
        assert_eq!(plot.lines().filter(|line| line.ends_with("median")).count(), 1);
    }
}
