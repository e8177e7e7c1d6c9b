//! Rows that answer workloads, and their cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::base::command_error::CommandError;
use crate::{
    answer::{
        coverage::{AnswerClass, CoverageAnalyzer, WorkloadCoverage},
        lookup::{LatencyColumn, LookupAnswer, UsedRow},
    },
    database::{Database, row_cases},
    kernel::{CaseId, IdentifiedCase, KernelName},
};

/// Returns the cases of the rows that answer workloads by durations of production profiles, of kernels that can be
/// measured, with the times that they stand for.
pub(crate) fn unmeasured_rows(
    analyzer: &CoverageAnalyzer<'_>,
    coverages: &[WorkloadCoverage<'_>],
    folder: &Path,
) -> Result<Vec<(IdentifiedCase, f64)>, CommandError> {
    let mut used = UsedRowTime::of_coverages(coverages);
    used.retain(|row| !row.is_measured && analyzer.catalogue.entry(&row.kernel).is_some());
    if used.is_empty() { Ok(Vec::new()) } else { cases_of_rows(&Database::open(folder)?, &used) }
}

/// Row that answers a workload, with the time that it stands for.
#[derive(Clone, Debug)]
pub(crate) struct UsedRowTime {
    kernel: KernelName,
    line: u64,
    /// Nanoseconds, multiplied by the weight of the workload and divided among the rows of an answer.
    time: f64,
    /// False if the row answers by a duration of production profiles.
    is_measured: bool,
}

impl UsedRowTime {
    #[expect(clippy::cast_precision_loss, reason = "a weight")]
    pub(crate) fn of_coverages(coverages: &[WorkloadCoverage<'_>]) -> Vec<Self> {
        let mut used = Vec::new();
        for coverage in coverages {
            for answered in coverage.answers.iter().filter(|answer| answer.class != AnswerClass::Missing) {
                let Some(answer) = &answered.answer else { continue };
                let mut rows = Vec::new();
                rows_of_answer(answer, &mut rows);
                let time = answered.question.time.map_or(1.0, |time| time.0 as f64);
                let time = coverage.workload.weight * time / rows.len().max(1) as f64;
                used.extend(rows.into_iter().map(|row| Self {
                    kernel: row.kernel.clone(),
                    line: u64::from(row.line),
                    time,
                    is_measured: row.column == LatencyColumn::Replay,
                }));
            }
        }
        used
    }
}

fn rows_of_answer<'a>(answer: &'a LookupAnswer, rows: &mut Vec<&'a UsedRow>) {
    rows.extend(&answer.rows);
    answer.parts.iter().for_each(|part| rows_of_answer(&part.answer, rows));
}

pub(crate) fn cases_of_rows(
    database: &Database,
    used: &[UsedRowTime],
) -> Result<Vec<(IdentifiedCase, f64)>, CommandError> {
    let mut times: BTreeMap<&KernelName, BTreeMap<u64, f64>> = BTreeMap::new();
    // Collectives are measured by sweeps.
    for row in used.iter().filter(|row| !row.kernel.is_collective()) {
        *times.entry(&row.kernel).or_default().entry(row.line).or_default() += row.time;
    }
    let mut cases: BTreeMap<CaseId, (IdentifiedCase, f64)> = BTreeMap::new();
    for (kernel, lines) in times {
        for row in row_cases(kernel, &database.kernel_csv(kernel)?)? {
            let (Some(time), Ok(case)) = (lines.get(&row.line), row.case) else { continue };
            let case = IdentifiedCase::new(case);
            cases.entry(case.id().clone()).or_insert_with(|| (case, 0.0)).1 += time;
        }
    }
    Ok(cases.into_values().collect())
}

impl Database {
    /// Returns the cases of the rows of a kernel; none without a table.
    pub(super) fn case_ids(&self, kernel: &KernelName) -> Result<BTreeSet<CaseId>, CommandError> {
        if !self.kernel_path(kernel).exists() {
            return Ok(BTreeSet::new());
        }
        let rows = row_cases(kernel, &self.kernel_csv(kernel)?)?;
        Ok(rows.into_iter().filter_map(|row| Some(row.case.ok()?.id())).collect())
    }
}
