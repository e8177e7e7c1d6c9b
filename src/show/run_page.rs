//! A run as a page that needs no other file. The table of all cases is compressed, so that 100,000 cases stay below 5 MB, and
//! the browser unpacks it (Compression Streams, in all current browsers).

use std::{collections::BTreeMap, io};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::ZlibEncoder};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::{
    answer::coverage_change::CoverageChange,
    base::{assets::AssetFiles, count_text::format_count},
    kernel::{
        render::{RenderError, render_page},
        timestamp::{Timestamp, format_duration},
    },
    show::{
        cases::ShownCase,
        run_plots::{busy_plot, interval_plot, ratio_plot, temperature_plot},
        run_results::{
            DeviceResults, MAX_OF_CAUSE, RunResults, ratio_to_production, seconds_between, verdict_word,
        },
    },
};

const TEMPLATE: &str = "report.html.hbs";

/// Renders the page. Fails with [`RenderError`] if the template of the user is wrong.
pub(crate) fn report_page(
    assets: &AssetFiles,
    results: &RunResults,
    coverage: &[CoverageChange],
) -> Result<String, RenderError> {
    let table = packed_table(results)
        .map_err(|error| RenderError::Template { template: TEMPLATE, message: error.to_string() })?;
    render_page(assets, TEMPLATE, &page_data(results, coverage, &table))
}

fn page_data(results: &RunResults, coverage: &[CoverageChange], table: &str) -> Value {
    let record = &results.past.record;
    let (start, end) = results.span();
    let verdicts = results.verdicts().into_iter().map(|(word, count)| json!({"word": word, "count": count}));
    let has_numbers = results.cases.iter().any(|case| case.median_us.is_some());
    json!({
        "title": format!("npubench run {}", record.run),
        "run": record.run,
        "is_rehearsal": record.kind == "rehearsal",
        "database": results.database.display().to_string(),
        "profile": results.device_profile,
        "state": results.past.state.to_string(),
        "started": Timestamp(start).local_date_time(),
        "ended": Timestamp(end).local_date_time(),
        "elapsed": format_duration(seconds_between(start, end)),
        "cases": format_count(results.cases.len(), "case"),
        "collections": format_count(results.collections.len(), "collection"),
        "folder": results.past.folder.display().to_string(),
        "verdicts": verdicts.collect::<Vec<_>>(),
        "causes": results.causes().into_iter().map(|cause| cause_data(results, cause)).collect::<Vec<_>>(),
        "notable": results.notable.iter().map(|notable| {
            let mut row = case_data(&results.cases[notable.index]);
            row["why"] = notable.why.as_str().into();
            row
        }).collect::<Vec<_>>(),
        "coverage": coverage.iter().map(coverage_data).collect::<Vec<_>>(),
        "devices": results.devices.iter().map(device_data).collect::<Vec<_>>(),
        "kernels": kernel_data(results),
        "busy_plot": busy_plot(results),
        "temperature_plot": temperature_plot(results),
        "interval_plot": interval_plot(results),
        "ratio_plot": ratio_plot(results),
        "without_causes": match results.cases.is_empty() {
            true => "The run has no cases: none was left to measure.",
            false => "Each case has a result.",
        },
        "without_notable": match has_numbers {
            true => "None: all intervals are narrow, and no duration is far from that in production.",
            false => "None: no case has been measured.",
        },
        "without_ratio": match has_numbers {
            true => "No measured case has a duration in production.",
            false => "No case has been measured.",
        },
        "unread_tables": results.unread_tables,
        "table": table,
    })
}

fn cause_data(results: &RunResults, (verdict, cause, cases): (&str, String, Vec<usize>)) -> Value {
    let listed = cases.iter().take(MAX_OF_CAUSE).map(|index| {
        let case = &results.cases[*index];
        let mut row = case_data(case);
        let log = case.log.as_ref();
        // `log` is a helper of handlebars, whose output is empty.
        row["log_lines"] =
            log.and_then(|path| results.logs.get(path)).map_or(Value::Null, |log| log.as_str().into());
        row["log_path"] = log.map_or(Value::Null, |path| path.display().to_string().into());
        row
    });
    json!({
        "verdict": verdict, "cause": cause, "count": cases.len(), "cases": listed.collect::<Vec<_>>(),
        "more": cases.len().saturating_sub(MAX_OF_CAUSE),
    })
}

fn case_data(case: &ShownCase) -> Value {
    json!({
        "case": case.case.as_str(), "kernel": case.kernel.as_str(), "inputs": case.inputs,
        "verdict": verdict_word(case), "reason": case.reason.as_deref().unwrap_or_default(),
        "median": case.median_us.map_or_else(String::new, |median| format!("{median:.3}")),
    })
}

fn coverage_data(change: &CoverageChange) -> Value {
    let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"));
    let classes = change.classes.iter().map(|(class, before, after)| {
        json!({"class": class, "before": percent(*before), "after": percent(*after)})
    });
    json!({"workload": change.workload, "classes": classes.collect::<Vec<_>>()})
}

fn device_data((number, device): (&u32, &DeviceResults)) -> Value {
    let temperature =
        device.temperatures().map_or_else(|| "-".to_owned(), |(low, high)| format!("{low} to {high} °C"));
    let controls = device.controls.iter().map(|(control, medians)| {
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let most = medians.iter().copied().fold(0.0, f64::max);
        format!("{control}: {least:.2} to {most:.2} us")
    });
    json!({
        "device": number, "collections": device.collections, "busy": format_duration(device.busy_seconds),
        "busy_percent": format!("{:.0} %", device.busy_percent), "temperature": temperature,
        "controls": controls.collect::<Vec<_>>().join("; "), "problems": device.problems().join("; "),
    })
}

fn kernel_data(results: &RunResults) -> Vec<Value> {
    let kernels = results.kernels.iter().map(|(kernel, results)| {
        let ratio = |at: usize| {
            results.ratio_range().map_or_else(|| "-".to_owned(), |range| format!("{:.3}", range[at]))
        };
        json!({
            "kernel": kernel.as_str(), "cases": results.cases, "measured": results.measured,
            "failed": results.failed, "least": ratio(0), "median": ratio(1), "most": ratio(2),
        })
    });
    kernels.collect()
}

/// Numbers of texts that repeat, in the order of their first occurrence.
#[derive(Default)]
struct TextNumbers<'t> {
    numbers: BTreeMap<&'t str, usize>,
    texts: Vec<&'t str>,
}

impl<'t> TextNumbers<'t> {
    fn number(&mut self, text: &'t str) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }
}

/// Values of a column, written one by one: a copy of all cases as a JSON value would need most of the memory.
struct Column<F>(F);

impl<F, I, T> Serialize for Column<F>
where
    F: Fn() -> I,
    I: Iterator<Item = T>,
    T: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Returns all cases as JSON, compressed by zlib and in base64: a list for each column.
fn packed_table(results: &RunResults) -> io::Result<String> {
    let [mut kernels, mut verdicts, mut reasons] = <[TextNumbers<'_>; 3]>::default();
    let cases = || results.cases.iter();
    let kernel: Vec<usize> = cases().map(|case| kernels.number(case.kernel.as_str())).collect();
    let verdict: Vec<usize> = cases().map(|case| verdicts.number(verdict_word(case))).collect();
    let reason: Vec<usize> =
        cases().map(|case| reasons.number(case.reason.as_deref().unwrap_or_default())).collect();
    let number = |of: fn(&ShownCase) -> Option<f64>, digits: f64| {
        Column(move || cases().map(move |case| of(case).map(|value| (value * digits).round() / digits)))
    };
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut serializer = serde_json::Serializer::new(&mut encoder);
    let mut table = serializer.serialize_map(None)?;
    table.serialize_entry("kernels", &kernels.texts)?;
    table.serialize_entry("verdicts", &verdicts.texts)?;
    table.serialize_entry("reasons", &reasons.texts)?;
    table.serialize_entry("kernel", &kernel)?;
    table.serialize_entry("verdict", &verdict)?;
    table.serialize_entry("reason", &reason)?;
    table.serialize_entry("case", &Column(|| cases().map(|case| case.case.as_str())))?;
    table.serialize_entry("inputs", &Column(|| cases().map(|case| &case.inputs)))?;
    table.serialize_entry("device", &Column(|| cases().map(|case| case.device)))?;
    table.serialize_entry("median", &number(|case| case.median_us, 1e3))?;
    table.serialize_entry("half", &number(|case| case.half_width_percent, 1e2))?;
    table.serialize_entry("ratio", &number(ratio_to_production, 1e3))?;
    SerializeMap::end(table)?;
    Ok(STANDARD.encode(encoder.finish()?))
}
