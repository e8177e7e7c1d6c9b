//! Coverage of workloads as a page that needs no other file.

use crate::{
    answer::coverage::{AnswerClass, CoverageTotals, WorkloadCoverage, entry_share, kernel_coverage},
    show::{
        coverage::{CoverageReport, METRICS, number, tensors_text},
        prelude::*,
    },
};

const TEMPLATE: &str = "coverage.html.hbs";

pub(crate) fn coverage_page(assets: &AssetFiles, report: &CoverageReport<'_>) -> Result<String, RenderError> {
    render_template(assets, TEMPLATE, &page_data(report))
}

fn page_data(report: &CoverageReport<'_>) -> Value {
    let metrics = report.metrics();
    let rows = METRICS.iter().enumerate().map(|(at, label)| {
        let values: Vec<String> =
            metrics.iter().map(|(_, metrics)| percent(metrics.all()[at].1.value())).collect();
        json!({"label": label, "values": values})
    });
    json!({
        "title": format!("Coverage of {}", report.database),
        "database": report.database, "kind": report.kind.as_str(),
        "is_rehearsal": report.kind == DataKind::Rehearsal,
        "names": metrics.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "metrics": rows.collect::<Vec<_>>(),
        "workloads": report.coverages.iter().map(workload_data).collect::<Vec<_>>(),
        "gaps": report.gaps.iter().map(gap_data).collect::<Vec<_>>(),
        "gap_count": report.gaps.len(),
    })
}

fn workload_data(coverage: &WorkloadCoverage<'_>) -> Value {
    let (workload, totals, share) = (coverage.workload, coverage.totals(), entry_share(coverage));
    let kernels = kernel_coverage(coverage).into_iter().map(|kernel| {
        let mut object = totals_data(&kernel.totals);
        object["name"] = kernel.name.into();
        object["entry"] = or_empty(kernel.has_entry.map(yes_no)).into();
        object
    });
    let mut object = totals_data(&totals);
    object["name"] = workload.name.as_str().into();
    object["weight"] = number(workload.weight).into();
    object["durations"] = workload.durations.to_string().into();
    object["untimed"] = totals.untimed.into();
    object["without_entry"] = format!("{} of {} kernels", share.kernels.0, share.kernels.1).into();
    object["notes"] = workload.notes.clone().into();
    object["kernels"] = kernels.collect();
    object
}

fn totals_data(totals: &CoverageTotals) -> Value {
    let classes = AnswerClass::ALL.map(|class| {
        let share = totals.time_share(class).or_else(|| totals.count_share(class)).unwrap_or_default();
        json!({
            "name": class.to_string(), "count": totals.count(class), "count_share": percent(totals.count_share(class)),
            "time": millis(totals.time(class)), "time_share": percent(totals.time_share(class)),
            "width": decimals3(share * 100.0),
        })
    });
    json!({"invocations": totals.all_count(), "time": millis(totals.all_time()), "classes": classes})
}

fn gap_data(gap: &CoverageGap<'_>) -> Value {
    json!({
        "op": gap.query.op, "inputs": tensors_text(&gap.query.inputs), "count": number(gap.count),
        "time": or_dash(gap.time.map(|time| decimals3(time / 1e6))), "share": percent(gap.share),
        "reason": gap.reason, "closing": gap.closing.kind(), "closed_by": gap.closing.to_string(),
        "workloads": gap.workloads.join(", "),
    })
}
