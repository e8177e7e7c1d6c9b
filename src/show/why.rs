//! The page that explains one number.

use std::fmt::Write as _;

use super::{prelude::*, run_lines::device_ranges};
use crate::{
    kernel::render::files::EVIDENCE,
    measure::evidence::{
        BracketEvidence, CaseEvidence, CollectionEvidence, ControlEvidence, ReadingEvidence, ResultEvidence,
        StateEvidence,
    },
};

const MAX_BINS: usize = 12;
const MAX_BAR: usize = 40;
const BESIDE_BAR: usize = 27;
const BLOCK_INDENT: &str = "  ";
/// Step of the device's timer in nanoseconds; bins are multiples of it.
const TIMER_STEP: i64 = 20;

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
    page.add(
        "median",
        &format!(
            "{} us over {} of {}; mean {}, standard deviation {}, least {}, 95th percentile {}",
            decimals3(result.median_us),
            format_count(result.samples, "sample"),
            format_count(result.collections, "collection"),
            decimals3(result.average_us),
            or_dash(result.std_us.map(decimals3)),
            decimals3(result.min_us),
            decimals3(result.p95_us),
        ),
    );
    let interval = match &result.interval {
        None => "none: too few samples".to_owned(),
        Some(interval) => {
            let half = 100.0 * (interval.high_us - interval.low_us) / 2.0 / interval.estimate_us;
            let correction = or_empty(
                interval
                    .correction_percent
                    .map(|percent| format!("; its collections were {percent:+.3} % off, which is removed")),
            );
            format!(
                "95 %: {} to {} us, +-{half:.2} % of the estimate {} us, by {}{correction}",
                decimals3(interval.low_us),
                decimals3(interval.high_us),
                decimals3(interval.estimate_us),
                interval.method.explanation(),
            )
        }
    };
    page.add("interval", &interval);
    if let Some(ranks) = &result.ranks {
        let latest = or_empty(ranks.latest.map(|rank| format!(", rank {rank:.0} starts last")));
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
                decimals3(ranks.shortest_us),
                decimals3(ranks.longest_us),
                ranks.skew_percent
            ),
        );
    }
    page.add("verdict", &format!("{}: {}", result.verdict, result.findings.cause));
    result.findings.remarks.iter().for_each(|remark| page.add("remark", &remark.to_string()));
    page.add("software", result.software.as_deref().unwrap_or("not recorded"));
}

fn add_other_state(page: &mut Page, other: &StateEvidence, cache: CacheState) {
    let StateEvidence { cache: state, result, production_ratio } = other;
    let ratio = production_ratio.map(|ratio| format!("; {:+.1} % of production", 100.0 * (ratio - 1.0)));
    let ratio = or_empty(ratio);
    page.add(
        &format!("{state} cache"),
        &format!(
            "{} us over {} of {}, {}{ratio}; the rest of the page is of the {cache} cache, `--cache {state}` explains it",
            decimals3(result.median_us),
            format_count(result.samples, "sample"),
            format_count(result.collections, "collection"),
            result.verdict,
        ),
    );
}

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
                format!("{} us at least on {}, {share:.1} % of the median", decimals3(bound), roofline.device)
            }
            (Some(bound), None, _) => format!("{} us at least on {}", decimals3(bound), roofline.device),
            (None, _, problem) => format!("unknown: {}", or_empty(problem.as_ref())),
        };
        page.add("roofline", &text);
    }
    if let Some(production) = &evidence.production {
        let ratio = or_empty(production.ratio.map(|ratio| {
            let side = if ratio < 1.0 { "below" } else { "above" };
            format!("; the replay's median is {:.1} % {side} it", 100.0 * (ratio - 1.0).abs())
        }));
        let (median, records) = (decimals3(production.median_us), format_count(production.records, "record"));
        page.add("production", &format!("{median} us, the median of {records}{ratio}"));
    }
}

fn add_rules(page: &mut Page, evidence: &CaseEvidence, width: Option<usize>) {
    if evidence.rules.is_empty() {
        return;
    }
    page.add("rules", "of the row; `npubench rules` lists all with their limits");
    let table = Table::new(&evidence.rules)
        .text("rule", rank(0).min(16), |rule| rule.rule)
        .text("result", 0, |rule| rule.state)
        .text("found", rank(1).min(40), |rule| &rule.found)
        .below(|_| true);
    page.add_block(&table.print(width));
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
    let controls = controls_table(evidence, width);
    if !controls.is_empty() {
        page.text.push('\n');
        page.add(
            "controls",
            "medians in us at the start and the end; off: from other collections with the same software",
        );
        page.add_block(&controls);
    }
    let used: Vec<&CollectionEvidence> = evidence.collections.iter().filter(|one| one.is_used).collect();
    let samples: Vec<i64> = used.iter().flat_map(|one| one.samples_ns.iter().copied()).collect();
    if let Some(plot) = sample_plot(&samples, width) {
        page.text.push('\n');
        page.add("samples", "in us, of the collections in the row");
        page.add_block(&plot);
    }
    let outliers: Vec<String> = used.iter().flat_map(|one| &one.outliers_ns).map(|ns| micros2(*ns)).collect();
    if !outliers.is_empty() {
        page.add_block(&format!("severe outliers, left out: {}", outliers.join(", ")));
    }
    page.text.push('\n');
}

fn collections_table(evidence: &CaseEvidence, width: Option<usize>) -> String {
    let lasted = |one: &CollectionEvidence| one.seconds.map_or_else(|| "open".to_owned(), format_duration);
    let cycles =
        |one: &CollectionEvidence| one.clock.as_ref().map(|clock| format!("{:.0}", clock.cycles_per_us));
    let off = |one: &CollectionEvidence| {
        Some(format!("{:+.2} %", one.clock.as_ref().and_then(|clock| clock.difference_percent)?))
    };
    let verdict =
        |one: &CollectionEvidence| format!("{}{}", one.verdict, if one.is_used { "" } else { ", left out" });
    Table::new(&evidence.collections)
        .text("run", rank(4).min(12), |one| &one.run)
        .number("number", 0, |one| one.number)
        .number("device", 1, |one| device_ranges(&one.devices))
        .text("started", DETAIL, |one| Timestamp(one.started_ns).local_date_time())
        .number("lasted", DETAIL + 1, lasted)
        .number("records", 2, |one| format!("{} of {}", one.recorded, one.launched))
        .number("outliers", 3, |one| one.outliers_ns.len())
        .number("median us", 0, |one| or_empty(one.median_us.map(decimals3)))
        .number("cycles/us/block", DETAIL + 1, |one| or_empty(cycles(one)))
        .number("off", DETAIL + 1, |one| or_empty(off(one)))
        .text("device state", rank(DETAIL + 1).min(12), |one| readings_text(&one.readings))
        .text("verdict", 0, verdict)
        .print(width)
}

fn controls_table(evidence: &CaseEvidence, width: Option<usize>) -> String {
    let controls =
        || evidence.collections.iter().flat_map(|one| one.controls.iter().map(move |found| (one, found)));
    let names: BTreeSet<&str> = controls().map(|(_, found)| found.control.as_str()).collect();
    let mut rows = Vec::new();
    for one in &evidence.collections {
        let devices: BTreeSet<u32> = one.controls.iter().map(|control| control.device).collect();
        rows.extend(devices.into_iter().map(|device| (one, device)));
    }
    let mut table = Table::new(rows)
        .text("run", rank(4).min(12), |(one, _)| &one.run)
        .number("number", 0, |(one, _)| one.number)
        .number("device", 1, |(_, device)| device);
    let us = |value: Option<f64>| or_dash(value.map(|us| format!("{us:.2}")));
    for name in names {
        let found = |(one, device): (&CollectionEvidence, u32)| {
            one.controls.iter().find(|found| found.device == device && found.control == name).cloned()
        };
        let medians = |found: ControlEvidence| format!("{} {}", us(found.begin_us), us(found.end_us));
        let percent = |value: Option<f64>| or_dash(value.map(|percent| format!("{percent:+.2} %")));
        table = table
            .number(name, rank(2).min(12).with_long_header(), |row| or_empty(found(row).map(medians)))
            .number("change", 2, |row| percent(found(row).and_then(|found| found.change_percent)))
            .number("off", 2, |row| percent(found(row).and_then(|found| found.off_percent)));
    }
    table.print(width)
}

fn readings_text(readings: &[ReadingEvidence]) -> String {
    let range = |values: Vec<f64>, unit: &str| {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.into_iter().reduce(f64::max)?;
        Some(if low == high { format!("{low:.0} {unit}") } else { format!("{low:.0}-{high:.0} {unit}") })
    };
    let temperatures = readings.iter().filter_map(|one| one.temperature_c.map(float)).collect();
    let powers = readings.iter().filter_map(|one| one.power_w).collect();
    let health: BTreeSet<&str> = readings.iter().map(|one| one.health.as_str()).collect();
    let health = joined(health, " ");
    let parts = [range(temperatures, "C"), range(powers, "W"), Some(health).filter(|text| !text.is_empty())];
    joined(parts.into_iter().flatten(), ", ")
}

fn sample_plot(samples: &[i64], width: Option<usize>) -> Option<String> {
    let longest = width.map_or(MAX_BAR, |width| width.saturating_sub(BESIDE_BAR).clamp(1, MAX_BAR));
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let bins = i64::try_from(MAX_BINS).unwrap_or(1);
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
        let _ = writeln!(plot, "{:>12} {count:>5} {bar}{mark}", micros2(start));
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

fn micros2(nanos: i64) -> String {
    format!("{:.2}", float(nanos) / 1e3)
}
