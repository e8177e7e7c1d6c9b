//! Results of a selftest as text, and the Markdown table of the assumptions.

use std::collections::BTreeMap;

use super::{
    finding::{ExperimentReport, ExperimentStatus},
    results::StoredSelftest,
    suite::EXPERIMENTS,
};
use crate::kernel::DataKind;

/// Width of the name of an experiment.
const NAME_WIDTH: usize = 20;

/// Returns one line for an experiment.
pub(crate) fn report_line(report: &ExperimentReport) -> String {
    let ExperimentReport { number, name, seen, status, seconds, .. } = report;
    let status = status.to_string();
    format!("{number:>2}  {status:<7}  {seconds:>6.1} s  {name:<NAME_WIDTH$}  {seen}\n")
}

/// Returns a table of the experiments, and a paragraph for each that did not pass.
pub(crate) fn summary_table(reports: &[ExperimentReport]) -> String {
    let mut text: String = reports.iter().map(report_line).collect();
    for report in reports.iter().filter(|report| report.status != ExperimentStatus::Pass) {
        let ExperimentReport { number, name, assumption, expected, seen, status, evidence, fix, .. } = report;
        text.push_str(&format!(
            "\nexperiment {number} ({name}): {status}\n  assumption: {assumption}\n  expected:   {expected}\n  seen:       \
             {seen}\n  fix:        {fix}\n  evidence:   {}\n",
            evidence.display()
        ));
    }
    text
}

/// Returns the number of experiments by status, such as `11 pass, 1 fail`.
pub(crate) fn status_counts(reports: &[ExperimentReport]) -> String {
    let statuses = [ExperimentStatus::Pass, ExperimentStatus::Fail, ExperimentStatus::Unknown];
    let counts = statuses.iter().map(|status| {
        let count = reports.iter().filter(|report| report.status == *status).count();
        (count, status)
    });
    let shown = counts.filter(|(count, _)| *count > 0).map(|(count, status)| format!("{count} {status}"));
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns the Markdown table of the assumptions with the last result of each experiment.
pub(crate) fn markdown_report(stored: &[StoredSelftest]) -> String {
    let mut last: BTreeMap<u32, (&StoredSelftest, &ExperimentReport)> = BTreeMap::new();
    for selftest in stored {
        for report in &selftest.reports {
            last.insert(report.number, (selftest, report));
        }
    }
    let mut text =
        "| assumption | experiment | last result | host and date |\n|---|---|---|---|\n".to_owned();
    for experiment in EXPERIMENTS {
        let (result, place) = match last.get(&experiment.number) {
            None => ("not run".to_owned(), String::new()),
            Some((selftest, report)) => {
                let description = &selftest.description;
                let mark = if description.kind == DataKind::Rehearsal { " (rehearsal)" } else { "" };
                let day = description.started.get(..10).unwrap_or(&description.started);
                (format!("{}{mark}: {}", report.status, report.seen), format!("{}, {day}", description.host))
            }
        };
        let cells =
            [experiment.assumption, &format!("{} {}", experiment.number, experiment.name), &result, &place]
                .map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_experiments_name_assumption_and_evidence() {
        let report = |number, status, seen: &str| ExperimentReport {
            number,
            name: "record-loss".to_owned(),
            assumption: "every launch is recorded".to_owned(),
            expected: "all of 40".to_owned(),
            seen: seen.to_owned(),
            status,
            seconds: 1.5,
            evidence: "/db/.npubench/selftest/h/03-record-loss".into(),
            fix: "use another version".to_owned(),
        };
        let reports =
            [report(2, ExperimentStatus::Pass, "fine"), report(3, ExperimentStatus::Fail, "39 of 40")];
        insta::assert_snapshot!(summary_table(&reports), @"
         2  pass        1.5 s  record-loss           fine
         3  fail        1.5 s  record-loss           39 of 40

        experiment 3 (record-loss): fail
          assumption: every launch is recorded
          expected:   all of 40
          seen:       39 of 40
          fix:        use another version
          evidence:   /db/.npubench/selftest/h/03-record-loss
        ");
        assert_eq!(status_counts(&reports), "1 pass, 1 fail");
    }
}
