//! Preview of a fill: the gaps of workloads, the cases that close them, and the coverage that is reached in time.

use std::{collections::BTreeSet, path::Path};

use crate::{
    answer::{
        coverage::{
            CoverageAnalyzer, CoverageGap, FillCase, FillCases, WorkloadCoverage, coverage_gaps,
            coverage_metrics,
        },
        used_rows::unmeasured_rows,
        workload::Workload,
    },
    base::command_error::CommandError,
    cases::plan::{InitialCosts, PlannedCase, planned_case},
    kernel::{CaseId, CaseOutcome, Cause, DataKind, catalogue::Catalogue, device::DeviceProfile},
    measure::engine::{PlanPreview, dry_run},
};

#[derive(Debug)]
pub(crate) struct PredictedHost<'a> {
    pub(crate) kind: DataKind,
    pub(crate) profile: &'a DeviceProfile,
    pub(crate) devices: &'a [u32],
    pub(crate) costs: InitialCosts,
    /// Seconds until the deadline; `None` without one.
    pub(crate) budget: Option<f64>,
}

/// Answers of a database for workloads, their gaps, and the cases that close them.
#[derive(Debug)]
pub(crate) struct FillPreview<'w> {
    pub(crate) gaps: Vec<CoverageGap<'w>>,
    pub(crate) fill: FillCases,
    /// Predicted seconds until the end of the first measurement of each case, in the order of [`FillCases::needed`].
    pub(crate) ends: Vec<Result<f64, NotMeasured>>,
    /// Seconds until the last one ends.
    pub(crate) seconds: f64,
    /// M5 of all workloads together before; `None` without times.
    pub(crate) share_before: Option<f64>,
    /// M5 if all cases with an end are measured.
    pub(crate) share_forecast: Option<f64>,
}

/// Reason why a case is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotMeasured {
    /// It would end after the deadline.
    NotInTime(String),
    NotLaunchable(String),
}

impl NotMeasured {
    pub(crate) fn reason(&self) -> &str {
        let (Self::NotInTime(reason) | Self::NotLaunchable(reason)) = self;
        reason
    }
}

/// Looks workloads up in a database.
pub(crate) fn coverage_of<'w>(
    analyzer: &CoverageAnalyzer<'_>,
    workloads: &'w [Workload],
) -> Result<Vec<WorkloadCoverage<'w>>, CommandError> {
    workloads.iter().map(|workload| Ok(analyzer.answer_workload(workload)?)).collect()
}

impl<'w> FillPreview<'w> {
    /// Finds the gaps of workloads, and predicts which of them are closed on a host before its deadline.
    pub(crate) fn new(
        analyzer: &CoverageAnalyzer<'_>,
        workloads: &'w [Workload],
        host: &PredictedHost<'_>,
        folder: &Path,
    ) -> Result<Self, CommandError> {
        let coverages = coverage_of(analyzer, workloads)?;
        let gaps = coverage_gaps(analyzer, &coverages);
        let fill =
            FillCases::of_gaps(&gaps).with_unmeasured_rows(unmeasured_rows(analyzer, &coverages, folder)?);
        let planned: Vec<Result<PlannedCase, String>> = fill
            .needed()
            .map(|case| plan_fill_case(analyzer.catalogue, host.profile, case, host.devices.len()))
            .collect();
        let cases: Vec<PlannedCase> = planned.iter().flatten().cloned().collect();
        let PlanPreview { cases: scheduled, duration, .. } =
            dry_run(host.kind, &host.costs, &cases, host.devices, host.budget);
        let mut scheduled = scheduled.into_iter();
        let mut end = |planned: Result<PlannedCase, String>| match planned {
            Err(reason) => Err(NotMeasured::NotLaunchable(reason)),
            Ok(_) => match scheduled.next() {
                Some(Ok(slot)) => Ok(slot.ends_at),
                Some(Err(cause)) => Err(NotMeasured::NotInTime(cause.to_string())),
                None => Err(NotMeasured::NotInTime(Cause::NotReached.to_string())),
            },
        };
        let ends: Vec<_> = planned.into_iter().map(&mut end).collect();
        let in_time: BTreeSet<&CaseId> =
            fill.needed().zip(&ends).filter(|(_, end)| end.is_ok()).map(|(case, _)| case.case.id()).collect();
        let share_before = coverage_metrics(&coverages).time.value();
        let share_forecast = share_before.map(|share| share + fill.closed_share(&gaps, &in_time));
        Ok(Self { ends, seconds: duration, share_before, share_forecast, gaps, fill })
    }

    /// Returns true if every case that can be launched is measured in time. Cases that cannot, and gaps without a case, are
    /// reported, and no measurement fails by them.
    pub(crate) fn measures_all(&self) -> bool {
        !self.ends.iter().any(|end| matches!(end, Err(NotMeasured::NotInTime(_))))
    }
}

/// Plans a case that may have no row yet; the error is the reason why it cannot be launched.
pub(crate) fn plan_fill_case(
    catalogue: &Catalogue,
    profile: &DeviceProfile,
    case: &FillCase,
    devices: usize,
) -> Result<PlannedCase, String> {
    let planned = planned_case(catalogue, profile, case.case.clone()).map_err(|(_, outcome)| {
        let CaseOutcome { verdict, reason } = outcome;
        format!("{verdict}: {reason}")
    })?;
    if planned.devices > devices {
        return Err(format!(
            "it needs {} devices of one host at once, the run has {devices}",
            planned.devices
        ));
    }
    Ok(PlannedCase { value: case.value, ..planned })
}
