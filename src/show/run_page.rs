//! A run as a page that needs no other file. The table of all cases is compressed, so that 100,000 cases stay below 5 MB, and
//! the browser unpacks it (Compression Streams, in all current browsers).
//! `templates/report.html.hbs` has the sections, `run_results.rs` and `run_plots.rs` their data; docs/runs.md lists them.

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::ZlibEncoder};
use indexmap::IndexSet;

use super::{
    prelude::*,
    run_plots::{busy_plot, interval_plot, ratio_plot, temperature_plot},
    run_results::{DeviceResults, MAX_OF_CAUSE, has_failed, ratio_to_production, verdict_word},
};
use crate::answer::coverage_change::CoverageChange;

const TEMPLATE: &str = "report.html.hbs";

pub(crate) fn report_page(
    assets: &AssetFiles,
    results: &RunResults,
    coverage: &[CoverageChange],
) -> Result<String, RenderError> {
    let table = packed_table(results);
    let table = table.map_err(|error| RenderError(format!("template `{TEMPLATE}`: {error}")))?;
    render_template(assets, TEMPLATE, &page_data(results, coverage, &table))
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
        "notable": results.notable.iter().map(|(index, why)| {
            let mut row = case_data(&results.cases[*index]);
            row["why"] = why.as_str().into();
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
        "median": or_empty(case.median_us.map(decimals3)),
    })
}

fn coverage_data(change: &CoverageChange) -> Value {
    let percent = |share: Option<f64>| or_dash(share.map(|share| format!("{share:.1} %")));
    let classes = change.classes.iter().map(|(class, before, after)| {
        json!({"class": class, "before": percent(*before), "after": percent(*after)})
    });
    json!({"workload": change.workload, "classes": classes.collect::<Vec<_>>()})
}

fn device_data((number, device): (&u32, &DeviceResults)) -> Value {
    let temperature = or_dash(device.temperatures().map(|(low, high)| format!("{low} to {high} °C")));
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
    let kernel = |(kernel, cases): (&KernelName, Vec<&ShownCase>)| {
        let ratio = |at: usize| or_dash(ratio_range(&cases).map(|range| decimals3(range[at])));
        let measured = cases.iter().filter(|case| case.verdict.is_some_and(Verdict::has_samples)).count();
        let failed = cases.iter().filter(|case| has_failed(case)).count();
        json!({
            "kernel": kernel.as_str(), "cases": cases.len(), "measured": measured,
            "failed": failed, "least": ratio(0), "median": ratio(1), "most": ratio(2),
        })
    };
    results.kernels().into_iter().map(kernel).collect()
}

record! {
    /// All cases: a list for each column. Texts that repeat are numbers in lists of their own.
    CaseColumns<'a>(cases: &'a [ShownCase])
    with {
        let [mut kernels, mut verdicts, mut reasons] = <[IndexSet<&str>; 3]>::default();
        let number = |of: fn(&ShownCase) -> Option<f64>, digits: f64| {
            cases.iter().map(|case| of(case).map(|value| (value * digits).round() / digits)).collect()
        };
        let reason = |case: &'a ShownCase| case.reason.as_deref().unwrap_or_default();
    } {
        kernel: Vec<usize> = cases.iter().map(|case| kernels.insert_full(case.kernel.as_str()).0).collect(),
        verdict: Vec<usize> = cases.iter().map(|case| verdicts.insert_full(verdict_word(case)).0).collect(),
        reason: Vec<usize> = cases.iter().map(|case| reasons.insert_full(reason(case)).0).collect(),
        kernels: IndexSet<&'a str> = kernels,
        verdicts: IndexSet<&'a str> = verdicts,
        reasons: IndexSet<&'a str> = reasons,
        case: Vec<&'a str> = cases.iter().map(|case| case.case.as_str()).collect(),
        inputs: Vec<&'a str> = cases.iter().map(|case| case.inputs.as_str()).collect(),
        device: Vec<Option<u32>> = cases.iter().map(|case| case.device).collect(),
        median: Vec<Option<f64>> = number(|case| case.median_us, 1e3),
        half: Vec<Option<f64>> = number(|case| case.half_width_percent, 1e2),
        ratio: Vec<Option<f64>> = number(ratio_to_production, 1e3),
    }
}

fn packed_table(results: &RunResults) -> io::Result<String> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut encoder, &CaseColumns::new(&results.cases))?;
    Ok(STANDARD.encode(encoder.finish()?))
}
