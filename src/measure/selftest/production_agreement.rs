//! Experiment 9: replays with a cold cache take as long as the kernels of production profiles, and replays with a warm
//! cache no longer than those with a cold one.

use std::path::Path;

use super::{
    case_replay::CaseReplay,
    evidence::{SelftestContext, write_table},
    finding::{EvidenceError, ExperimentFinding},
    heaviest_rows::heaviest_rows,
};
use crate::{
    base::stats::median_of_sorted,
    cases::plan::PlannedCase,
    kernel::{Attempt, Verdict},
};

/// Number of rows, those with the greatest production time.
pub(crate) const COMPARED_ROWS: usize = 10;
/// Launches before the samples, and samples of each case.
const LAUNCHES: (u32, u32) = (3, 10);
/// Size of the tensor that is read before each cold launch, in sizes of the cache.
const FLUSH_CACHES: u64 = 2;
/// Range of the ratio of the cold median to the production median.
const AGREEMENT: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// Share by which the hot median may exceed the cold one by noise.
const NOISE: f64 = 0.03;
const TABLE: &str = "production.csv";
const HEADER: [&str; 5] = ["Row", "Records", "Production Median(us)", "Hot Median(us)", "Cold Median(us)"];
const EXPECTED: &str = "medians of the ten heaviest rows with a flushed cache within 0.9 to 1.1 of their production medians; with \
     a warm cache not above those with a flushed one";

/// Runs the experiment.
pub(super) fn run(context: &SelftestContext, folder: &Path) -> Result<ExperimentFinding, EvidenceError> {
    let rows = heaviest_rows(&context.database, &context.catalogue, &context.profile, COMPARED_ROWS)
        .map_err(|error| EvidenceError::Missing(error.to_string()))?;
    if rows.is_empty() {
        let reason = "the database has no rows with `Profiling Median Duration(us)` that one device can replay: ingest a \
                      profile of a production run";
        return Ok(ExperimentFinding::unknown(EXPECTED, reason));
    }
    let cases: Vec<&PlannedCase> = rows.iter().map(|row| &row.planned).collect();
    let devices = [context.first_device()];
    let replay = |name: &str, flush_bytes| {
        let (warm_up, measured) = LAUNCHES;
        let replay = CaseReplay { cases: &cases, devices: &devices, warm_up, measured, flush_bytes };
        context.replay_cases(&folder.join(name), &replay)
    };
    let hot = replay("hot", None)?;
    if let Some(attempt) = hot.first()
        && hot.iter().all(|attempt| attempt.outcome.verdict == Verdict::NotRun)
    {
        return Err(EvidenceError::Missing(attempt.outcome.reason.to_string()));
    }
    let cold = replay("cold", Some((FLUSH_CACHES * context.profile.l2_mib) << 20))?;
    let pairs = hot.iter().map(RowMedian::from_attempt).zip(cold.iter().map(RowMedian::from_attempt));
    let compared: Vec<ComparedRow> = rows
        .iter()
        .zip(pairs)
        .map(|(row, (hot, cold))| ComparedRow {
            name: format!("{} {}", row.planned.case.kernel, row.planned.case.shapes()),
            records: row.records,
            production: row.median.micros(),
            hot,
            cold,
        })
        .collect();
    write_medians(folder, &compared)?;
    Ok(finding(&compared))
}

/// Median of the samples of a case.
#[derive(Clone, Debug, PartialEq)]
enum RowMedian {
    /// In microseconds.
    Measured(f64),
    /// The operator's package is not installed.
    NotInstalled(String),
    Failed(String),
}

impl RowMedian {
    fn from_attempt(attempt: &Attempt) -> Self {
        let accepted = attempt.launches.iter().filter(|launch| launch.is_accepted);
        let mut samples: Vec<i64> = accepted.map(|launch| launch.duration.0).collect();
        samples.sort_unstable();
        let reason = &attempt.outcome.reason;
        match (attempt.outcome.verdict, median_of_sorted(&samples)) {
            (verdict, Some(median)) if verdict.is_recorded() => Self::Measured(median / 1e3),
            (Verdict::Unsupported, _) => Self::NotInstalled(reason.to_string()),
            (verdict, _) => Self::Failed(format!("{verdict}: {reason}")),
        }
    }

    fn micros(&self) -> Option<f64> {
        if let Self::Measured(micros) = self { Some(*micros) } else { None }
    }
}

/// Medians of one row.
#[derive(Clone, Debug, PartialEq)]
struct ComparedRow {
    /// Kernel and shapes.
    name: String,
    records: u64,
    /// Production median in microseconds.
    production: f64,
    hot: RowMedian,
    cold: RowMedian,
}

impl ComparedRow {
    /// Returns the ratios of the cold median to the production median, and of the hot one to the cold one.
    fn ratios(&self) -> Option<(f64, f64)> {
        let (hot, cold) = (self.hot.micros()?, self.cold.micros()?);
        Some((cold / self.production, hot / cold))
    }

    fn is_installed(&self) -> bool {
        ![&self.hot, &self.cold].into_iter().any(|median| matches!(median, RowMedian::NotInstalled(_)))
    }

    /// Returns the differences from production.
    fn problems(&self) -> Vec<String> {
        let Self { name, production, hot, cold, .. } = self;
        let failures =
            [("hot", hot), ("cold", cold)].into_iter().filter_map(|(state, median)| match median {
                RowMedian::Failed(reason) => Some(format!("{name}, {state}: {reason}")),
                RowMedian::Measured(_) | RowMedian::NotInstalled(_) => None,
            });
        let mut problems: Vec<String> = failures.collect();
        let Some((agreement, warm)) = self.ratios() else { return problems };
        let [hot, cold] = [hot, cold].map(|median| median.micros().unwrap_or_default());
        if !AGREEMENT.contains(&agreement) {
            problems.push(format!(
                "{name}: {cold:.2} us with a flushed cache are {agreement:.2} of the production median of {production:.2} us"
            ));
        }
        if warm > 1.0 + NOISE {
            problems.push(format!("{name}: {hot:.2} us with a warm cache, {cold:.2} us with a flushed one"));
        }
        problems
    }
}

fn finding(rows: &[ComparedRow]) -> ExperimentFinding {
    let missing: Vec<&str> =
        rows.iter().filter(|row| !row.is_installed()).map(|row| row.name.as_str()).collect();
    if missing.len() == rows.len() {
        let reason = format!("the operators of all rows are not installed: {}", missing.join(", "));
        return ExperimentFinding::unknown(EXPECTED, reason);
    }
    let problems: Vec<String> = rows.iter().flat_map(ComparedRow::problems).collect();
    let ratios: Vec<(f64, f64)> = rows.iter().filter_map(ComparedRow::ratios).collect();
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) =
            values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        format!("{low:.2} to {high:.2}")
    };
    let mut seen = format!(
        "{} rows: cold/production {}, hot/cold {}",
        ratios.len(),
        range(&mut ratios.iter().map(|(agreement, _)| *agreement)),
        range(&mut ratios.iter().map(|(_, warm)| *warm))
    );
    if !missing.is_empty() {
        seen.push_str(&format!("; left out, because not installed: {}", missing.join(", ")));
    }
    ExperimentFinding::from_problems(EXPECTED, seen, &problems)
}

/// Writes the medians of the rows into the folder of the experiment.
fn write_medians(folder: &Path, rows: &[ComparedRow]) -> Result<(), EvidenceError> {
    let median = |median: &RowMedian| match median {
        RowMedian::Measured(micros) => format!("{micros:.3}"),
        RowMedian::NotInstalled(reason) | RowMedian::Failed(reason) => reason.clone(),
    };
    let rows = rows.iter().map(|row| {
        let (records, production) = (row.records.to_string(), format!("{:.3}", row.production));
        vec![row.name.clone(), records, production, median(&row.hot), median(&row.cold)]
    });
    write_table(&folder.join(TABLE), &HEADER, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::selftest::finding::ExperimentStatus;

    fn row(production: f64, hot: f64, cold: f64) -> ComparedRow {
        ComparedRow {
            name: "Add 4;4 -> 4".to_owned(),
            records: 100,
            production,
            hot: RowMedian::Measured(hot),
            cold: RowMedian::Measured(cold),
        }
    }

    #[test]
    fn cold_medians_agree_with_production_and_hot_ones_are_not_above() {
        let good = finding(&[row(10.0, 9.0, 10.5), row(10.0, 9.4, 9.2)]);
        assert_eq!(good.status, ExperimentStatus::Pass);
        assert_eq!(good.seen, "2 rows: cold/production 0.92 to 1.05, hot/cold 0.86 to 1.02");
        let slow = finding(&[row(10.0, 9.0, 10.5), row(10.0, 9.0, 13.0)]);
        assert_eq!(slow.status, ExperimentStatus::Fail);
        assert!(
            slow.seen.contains("13.00 us with a flushed cache are 1.30 of the production median of 10.00 us")
        );
        let fast = finding(&[row(10.0, 5.0, 8.0)]);
        assert_eq!(fast.status, ExperimentStatus::Fail);
        let warm = finding(&[row(10.0, 11.0, 10.0)]);
        assert!(warm.status == ExperimentStatus::Fail && warm.seen.contains("11.00 us with a warm cache"));
    }

    #[test]
    fn rows_that_cannot_be_launched_are_named() {
        let failed =
            ComparedRow { cold: RowMedian::Failed("oom: no memory".to_owned()), ..row(10.0, 9.0, 10.0) };
        assert!(finding(&[failed, row(10.0, 9.0, 10.0)]).seen.contains("cold: oom: no memory"));
        let missing = RowMedian::NotInstalled("no module".to_owned());
        let missing = ComparedRow { hot: missing.clone(), cold: missing, ..row(10.0, 9.0, 10.0) };
        assert_eq!(finding(std::slice::from_ref(&missing)).status, ExperimentStatus::Unknown);
        let some = finding(&[missing, row(10.0, 9.0, 10.0)]);
        assert_eq!(some.status, ExperimentStatus::Pass);
        assert!(some.seen.ends_with("left out, because not installed: Add 4;4 -> 4"), "{}", some.seen);
    }
}
