//! Experiment 9: replays with a cold cache take as long as the kernels of production profiles, and replays with a warm
//! cache no longer than those with a cold one.

use std::path::Path;

use super::{
    evidence::{CaseReplay, SelftestContext, write_table},
    experiment::{EvidenceError, Experiment, Finding},
    kernel_steps::median_of,
};
use crate::{
    cases::plan::{PlannedCase, planned_case},
    database::{Database, DatabaseError, RowCase, row_cases},
    kernel::{
        Attempt, IdentifiedCase, Nanos, Verdict,
        catalogue::{Catalogue, CatalogueEntry},
        device::DeviceProfile,
    },
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    number: 9,
    name: "production-agreement",
    assumption: "replays with a cold cache take as long as the same kernels in production, with a warm one no longer",
    expected: "medians of the ten heaviest rows with a flushed cache within 0.9 to 1.1 of their production medians; with a \
               warm cache not above those with a flushed one",
    fix: "see production.csv of the evidence; compare software, clock and `--aic-metrics` with those of the profile",
    run,
};

pub(super) const COMPARED_ROWS: usize = 10;
/// Launches before the samples, and samples of each case.
const LAUNCHES: (u32, u32) = (3, 10);
/// Size of the tensor that is read before each cold launch, in sizes of the cache.
const FLUSH_CACHES: u64 = 2;
const AGREEMENT: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// Share by which the hot median may exceed the cold one by noise.
const NOISE: f64 = 0.03;
const TABLE: &str = "production.csv";
const HEADER: &str = "Row,Records,Production Median(us),Hot Median(us),Cold Median(us)";

#[derive(Clone, Debug)]
pub(super) struct PlannedRow {
    pub(super) planned: PlannedCase,
    pub(super) median: Nanos,
    pub(super) records: u64,
}

/// Returns the rows with the greatest production time (median times records) that one device can replay, the heaviest
/// first.
pub(super) fn heaviest_rows(
    database: &Database,
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    count: usize,
) -> Result<Vec<PlannedRow>, DatabaseError> {
    let mut rows: Vec<RowCase> = Vec::new();
    for kernel in database.kernels()? {
        rows.extend(row_cases(&kernel, &database.kernel_csv(&kernel)?)?);
    }
    rows.sort_by(|one, other| other.recorded_seconds().total_cmp(&one.recorded_seconds()));
    let planned = rows.into_iter().filter_map(|row| {
        let (median, records) = (row.production?, row.production_records);
        let planned = planned_case(catalogue, profile, IdentifiedCase::new(row.case.ok()?)).ok()?;
        let planned = PlannedCase { is_on_ai_cpu: row.is_on_ai_cpu, ..planned };
        let can_be_launched =
            catalogue.entry(&planned.case.kernel).is_some_and(CatalogueEntry::can_be_launched);
        (planned.devices == 1 && can_be_launched).then_some(PlannedRow { planned, median, records })
    });
    Ok(planned.take(count).collect())
}

fn run(context: &SelftestContext, folder: &Path) -> Result<Finding, EvidenceError> {
    let rows =
        heaviest_rows(&context.host.database, &context.host.catalogue, &context.host.profile, COMPARED_ROWS)?;
    if rows.is_empty() {
        return Err(EvidenceError::missing(
            "the database has no rows with `Profiling Median Duration(us)` that one device can replay: ingest a profile of a \
             production run",
        ));
    }
    let cases: Vec<&PlannedCase> = rows.iter().map(|row| &row.planned).collect();
    let replay = |name: &str, flush_bytes| {
        let (warm_up, measured) = LAUNCHES;
        let replay =
            CaseReplay { cases: &cases, devices: &context.devices[..1], warm_up, measured, flush_bytes };
        context.replay_cases(&folder.join(name), &replay)
    };
    let hot = replay("hot", None)?;
    if hot.iter().all(|attempt| attempt.outcome.verdict == Verdict::NotRun) {
        return Err(EvidenceError::missing(&hot[0].outcome.reason));
    }
    let cold = replay("cold", Some((FLUSH_CACHES * context.host.profile.l2_mib) << 20))?;
    let compared = rows.iter().zip(hot.iter().zip(&cold)).map(|(row, (hot, cold))| ComparedRow {
        name: format!("{} {}", row.planned.case.kernel, row.planned.case.shapes()),
        records: row.records,
        production: row.median.micros(),
        hot: RowMedian::from_attempt(hot),
        cold: RowMedian::from_attempt(cold),
    });
    let compared: Vec<ComparedRow> = compared.collect();
    write_medians(folder, &compared)?;
    compare_rows(&compared)
}

#[derive(Clone, Debug, PartialEq)]
enum RowMedian {
    /// In microseconds.
    Measured(f64),
    NotInstalled(String),
    Failed(String),
}

impl RowMedian {
    fn from_attempt(attempt: &Attempt) -> Self {
        let accepted = attempt.launches.iter().filter(|launch| launch.is_accepted);
        let samples: Vec<i64> = accepted.map(|launch| launch.duration.0).collect();
        let reason = &attempt.outcome.reason;
        match attempt.outcome.verdict {
            verdict if verdict.is_recorded() && !samples.is_empty() => {
                Self::Measured(median_of(&samples) / 1e3)
            }
            Verdict::Unsupported => Self::NotInstalled(reason.to_string()),
            verdict => Self::Failed(format!("{verdict}: {reason}")),
        }
    }

    fn micros(&self) -> Option<f64> {
        if let Self::Measured(micros) = self { Some(*micros) } else { None }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ComparedRow {
    name: String,
    records: u64,
    /// Production median in microseconds.
    production: f64,
    hot: RowMedian,
    cold: RowMedian,
}

impl ComparedRow {
    /// Ratios of the cold median to the production median, and of the hot one to the cold one.
    fn ratios(&self) -> Option<(f64, f64)> {
        let (hot, cold) = (self.hot.micros()?, self.cold.micros()?);
        Some((cold / self.production, hot / cold))
    }

    fn problems(&self) -> Vec<String> {
        let Self { name, production, hot, cold, .. } = self;
        let mut problems = Vec::new();
        for (state, median) in [("hot", hot), ("cold", cold)] {
            if let RowMedian::Failed(reason) = median {
                problems.push(format!("{name}, {state}: {reason}"));
            }
        }
        let (Some(hot), Some(cold)) = (hot.micros(), cold.micros()) else { return problems };
        let (agreement, warm) = (cold / production, hot / cold);
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

fn compare_rows(rows: &[ComparedRow]) -> Result<Finding, EvidenceError> {
    let is_missing = |median: &RowMedian| matches!(median, RowMedian::NotInstalled(_));
    let missing = rows.iter().filter(|row| is_missing(&row.hot) || is_missing(&row.cold));
    let missing: Vec<&str> = missing.map(|row| row.name.as_str()).collect();
    if missing.len() == rows.len() {
        let missing = missing.join(", ");
        return Err(EvidenceError::Missing(format!(
            "the operators of all rows are not installed: {missing}"
        )));
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
    Ok(Finding::new(seen, problems))
}

fn write_medians(folder: &Path, rows: &[ComparedRow]) -> Result<(), EvidenceError> {
    let median = |median: &RowMedian| match median {
        RowMedian::Measured(micros) => format!("{micros:.3}"),
        RowMedian::NotInstalled(reason) | RowMedian::Failed(reason) => reason.clone(),
    };
    let rows = rows.iter().map(|row| {
        let (records, production) = (row.records.to_string(), format!("{:.3}", row.production));
        vec![row.name.clone(), records, production, median(&row.hot), median(&row.cold)]
    });
    write_table(&folder.join(TABLE), HEADER, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = |rows: &[ComparedRow]| compare_rows(rows).expect("installed operators");
        let good = found(&[row(10.0, 9.0, 10.5), row(10.0, 9.4, 9.2)]);
        assert_eq!(good.problems, [""; 0]);
        assert_eq!(good.seen, "2 rows: cold/production 0.92 to 1.05, hot/cold 0.86 to 1.02");
        let slow = found(&[row(10.0, 9.0, 10.5), row(10.0, 9.0, 13.0)]).problems;
        assert!(
            slow[0].contains("13.00 us with a flushed cache are 1.30 of the production median of 10.00 us"),
            "{slow:?}"
        );
        assert_eq!(found(&[row(10.0, 5.0, 8.0)]).problems.len(), 1);
        let warm = found(&[row(10.0, 11.0, 10.0)]).problems;
        assert!(warm[0].contains("11.00 us with a warm cache"), "{warm:?}");
    }

    #[test]
    fn rows_that_cannot_be_launched_are_named() {
        let failed =
            ComparedRow { cold: RowMedian::Failed("oom: no memory".to_owned()), ..row(10.0, 9.0, 10.0) };
        let failed = compare_rows(&[failed, row(10.0, 9.0, 10.0)]).expect("installed operators");
        assert!(failed.problems[0].contains("cold: oom: no memory"), "{failed:?}");
        let missing = RowMedian::NotInstalled("no module".to_owned());
        let missing = ComparedRow { hot: missing.clone(), cold: missing, ..row(10.0, 9.0, 10.0) };
        assert!(compare_rows(std::slice::from_ref(&missing)).is_err());
        let some = compare_rows(&[missing, row(10.0, 9.0, 10.0)]).expect("one is installed");
        assert!(
            some.problems.is_empty() && some.seen.ends_with("left out, because not installed: Add 4;4 -> 4")
        );
    }
}
