//! The experiments of a selftest, their execution in order, and their reports.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    cache_bandwidth, catalogue_entries, core_clock, device_numbers, evidence::SelftestContext, gangs,
    host_software, marked_launches, production_agreement, profiler_overhead, repeated_collections,
    results::not_stored, run_disturbance,
};
use crate::{base::command_error::CommandError, kernel::KernelName};

const NAME_WIDTH: usize = 20;

pub(crate) struct Experiment {
    /// Number, which stays the same in later versions.
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(super) assumption: &'static str,
    pub(super) expected: &'static str,
    pub(super) fix: &'static str,
    pub(super) run: fn(&SelftestContext, &Path) -> Result<Finding, EvidenceError>,
}

pub(crate) const EXPERIMENTS: [Experiment; 13] = [
    host_software::EXPERIMENT,
    device_numbers::EXPERIMENT,
    marked_launches::EXIT_CODES,
    marked_launches::RECORD_LOSS,
    catalogue_entries::EXPERIMENT,
    core_clock::EXPERIMENT,
    cache_bandwidth::EXPERIMENT,
    repeated_collections::EXPERIMENT,
    profiler_overhead::EXPERIMENT,
    production_agreement::EXPERIMENT,
    marked_launches::CALL_ERRORS,
    gangs::EXPERIMENT,
    run_disturbance::EXPERIMENT,
];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) seen: String,
    /// Contradictions to the assumption, which holds if there are none.
    pub(super) problems: Vec<String>,
    /// Contradictions that concern one kernel only, whose cases no run launches.
    pub(super) mismatches: Vec<EntryMismatch>,
}

impl Finding {
    pub(super) const fn new(seen: String, problems: Vec<String>) -> Self {
        Self { seen, problems, mismatches: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EntryMismatch {
    /// Name of the catalogue's entry.
    pub(crate) kernel: KernelName,
    pub(crate) reason: String,
    /// Part of the recorded time of the database that kernels of the entry take; none if the database has no such rows.
    pub(crate) time_share: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ExperimentStatus {
    Pass,
    Fail,
    Unknown,
}

/// Result of an experiment: one line of `results.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExperimentReport {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) assumption: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
    pub(crate) status: ExperimentStatus,
    pub(crate) seconds: f64,
    pub(crate) evidence: PathBuf,
    pub(crate) fix: String,
    /// Kernels whose cases no run on this host launches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mismatches: Vec<EntryMismatch>,
    /// True if no run on this host may start, where the experiment is required.
    pub(crate) blocks_runs: bool,
}

#[derive(Debug)]
pub(crate) enum EvidenceError {
    Interrupted,
    Missing(String),
}

impl<E: std::error::Error> From<E> for EvidenceError {
    fn from(error: E) -> Self {
        Self::missing(error)
    }
}

impl EvidenceError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Missing(format!("`{path}`: {error}"))
    }

    #[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error itself")]
    pub(super) fn missing(problem: impl ToString) -> Self {
        Self::Missing(problem.to_string())
    }
}

/// Runs the selected experiments. `on_report` receives each report when its experiment has ended. Returns false if the
/// selftest was interrupted.
pub(super) fn run_experiments(
    context: &SelftestContext,
    folder: &Path,
    selected: &[u32],
    mut on_report: impl FnMut(ExperimentReport) -> Result<(), CommandError>,
) -> Result<bool, CommandError> {
    for experiment in EXPERIMENTS.iter().filter(|experiment| selected.contains(&experiment.number)) {
        let Experiment { number, name, assumption, expected, fix, run } = *experiment;
        let evidence = folder.join(format!("{number:02}-{name}"));
        fs::create_dir_all(&evidence).map_err(not_stored(&evidence))?;
        let started = Instant::now();
        let (mut mismatches, mut blocks_runs) = (Vec::new(), true);
        let has_hung = context.has_hung.load(Ordering::Relaxed);
        let not_begun = || EvidenceError::missing("not begun: the programs of an earlier experiment hung");
        let found = if has_hung { Err(not_begun()) } else { run(context, &evidence) };
        let (status, seen, fix) = match found {
            Err(EvidenceError::Interrupted) => return Ok(false),
            // A program that the user stopped is no evidence.
            Err(_) if context.stop.load(Ordering::Relaxed) => return Ok(false),
            Ok(finding) => {
                blocks_runs = !finding.problems.is_empty();
                mismatches = finding.mismatches;
                let of_kernels = mismatches.iter().map(|one| format!("{}: {}", one.kernel, one.reason));
                let problems: Vec<String> = finding.problems.into_iter().chain(of_kernels).collect();
                match problems.is_empty() {
                    true => (ExperimentStatus::Pass, finding.seen, ""),
                    false => (ExperimentStatus::Fail, problems.join("; "), fix),
                }
            }
            Err(EvidenceError::Missing(problem)) => {
                let fix = "provide what is missing and repeat the selftest";
                (ExperimentStatus::Unknown, problem, fix)
            }
        };
        on_report(ExperimentReport {
            number,
            name: name.to_owned(),
            assumption: assumption.to_owned(),
            expected: expected.to_owned(),
            seen,
            status,
            seconds: (started.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            evidence,
            fix: fix.to_owned(),
            mismatches,
            blocks_runs,
        })?;
    }
    Ok(true)
}

pub(crate) fn report_line(report: &ExperimentReport) -> String {
    let ExperimentReport { number, name, seen, status, seconds, .. } = report;
    let status = status.to_string();
    format!("{number:>2}  {status:<7}  {seconds:>6.1} s  {name:<NAME_WIDTH$}  {seen}\n")
}

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

/// Kernels of the database whose cases no run launches, the heaviest first; empty if there are none.
pub(crate) fn affected_kernels(reports: &[ExperimentReport]) -> String {
    let mismatches = reports.iter().flat_map(|report| &report.mismatches);
    let mut affected: Vec<(f64, &EntryMismatch)> =
        mismatches.filter_map(|mismatch| Some((mismatch.time_share?, mismatch))).collect();
    if affected.is_empty() {
        return String::new();
    }
    affected.sort_by(|one, other| other.0.total_cmp(&one.0));
    let all: f64 = affected.iter().map(|(share, _)| share).sum();
    let mut text = format!(
        "\nkernels of this database that a run leaves out as unsupported, {:.2} % of its recorded time:\n",
        100.0 * all
    );
    for (share, EntryMismatch { kernel, reason, .. }) in affected {
        let (share, kernel) = (100.0 * share, kernel.as_str());
        text.push_str(&format!("{share:>6.2} %  {kernel:<NAME_WIDTH$}  {reason}\n"));
    }
    text
}

pub(crate) fn status_counts(reports: &[ExperimentReport]) -> String {
    let statuses = [ExperimentStatus::Pass, ExperimentStatus::Fail, ExperimentStatus::Unknown];
    let counts =
        statuses.map(|status| (reports.iter().filter(|report| report.status == status).count(), status));
    let shown = counts.into_iter().filter(|(count, _)| *count > 0);
    shown.map(|(count, status)| format!("{count} {status}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_of_experiments_are_unique() {
        assert!(EXPERIMENTS.iter().zip(0..).all(|(experiment, number)| experiment.number == number));
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
    }

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
            mismatches: Vec::new(),
            blocks_runs: status == ExperimentStatus::Fail,
        };
        let mut reports =
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
        assert_eq!(affected_kernels(&reports), "");
        let mismatch = |(kernel, time_share)| EntryMismatch {
            kernel: KernelName::new(kernel).expect("a name"),
            reason: "wrong_kernel".to_owned(),
            time_share,
        };
        reports[1].mismatches =
            [("Add", Some(0.004)), ("Mul", None), ("SwiGlu", Some(0.25))].map(mismatch).to_vec();
        insta::assert_snapshot!(affected_kernels(&reports), @"

        kernels of this database that a run leaves out as unsupported, 25.40 % of its recorded time:
         25.00 %  SwiGlu                wrong_kernel
          0.40 %  Add                   wrong_kernel
        ");
    }
}
