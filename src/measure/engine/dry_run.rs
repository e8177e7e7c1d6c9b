//! Input of the scheduler, and the preview of a run: the scheduler in virtual time, on a host without faults where every case
//! takes its predicted time.

use std::collections::BTreeSet;

use crate::{
    base::stats::{hash_numbers, signed_unit_deviate},
    cases::plan::{InitialCosts, PlannedCase},
    kernel::{CaseOutcome, Cause, DataKind, KernelName, MemoryFootprint, Verdict, render::ControlLaunches},
    measure::sched::{
        CaseResult, CollectionExit, CollectionFinished, PriorCosts, SchedAction, SchedCase, SchedLimits,
        SchedulerState, Seconds, SimulatedHost, StartCollection, simulate,
    },
};

/// Environment variable with the folder of the vendor's exporter, which then exports in rehearsals.
const EXPORTER_VARIABLE: &str = "NPUBENCH_EXPORTER";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScheduledSlot {
    pub collection: u32,
    pub device: u32,
    pub starts_at: Seconds,
    pub ends_at: Seconds,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PlanPreview {
    /// Slot of each case in the order of the plan, or the reason why it would not be measured.
    pub cases: Vec<Result<ScheduledSlot, Cause>>,
    pub collections: u32,
    pub devices: BTreeSet<u32>,
    pub duration: Seconds,
}

pub(crate) fn dry_run(
    kind: DataKind,
    costs: &InitialCosts,
    cases: &[PlannedCase],
    devices: &[u32],
    budget: Option<Seconds>,
) -> PlanPreview {
    let jobs = scheduler_cases(costs, cases);
    let limits = scheduler_limits(kind, budget);
    let mut state = SchedulerState::new(jobs.clone(), devices, limits, 0);
    let unreached = Err(Cause::NotReached);
    let preview = PlanPreview { cases: vec![unreached; cases.len()], ..PlanPreview::default() };
    let mut host = IdealHost { jobs, prior: limits.prior, preview };
    let (duration, _) = simulate(&mut state, &mut host, Vec::new());
    PlanPreview { duration, ..host.preview }
}

struct IdealHost {
    jobs: Vec<SchedCase>,
    prior: PriorCosts,
    preview: PlanPreview,
}

impl SimulatedHost for IdealHost {
    fn finish_collection(&mut self, now: Seconds, start: &StartCollection) -> CollectionFinished {
        let PriorCosts { startup, export, export_record, .. } = self.prior;
        let records: f64 = start.cases.iter().map(|case| f64::from(self.jobs[*case].records)).sum();
        let seconds: Seconds = start.cases.iter().map(|case| self.jobs[*case].seconds).sum();
        let total = startup + seconds + export + export_record * records;
        self.preview.collections += 1;
        self.preview.devices.extend(&start.devices);
        let device = start.devices.first().copied().unwrap_or_default();
        let slot =
            ScheduledSlot { collection: start.collection, device, starts_at: now, ends_at: now + total };
        let results = start.cases.iter().map(|&case| {
            self.preview.cases[case] = Ok(slot);
            let outcome = CaseOutcome::new(Verdict::Ok, Cause::EveryLaunchRecorded);
            CaseResult { case, outcome, seconds: Some(self.jobs[case].seconds) }
        });
        CollectionFinished {
            results: results.collect(),
            collection: start.collection,
            exit: CollectionExit::Completed,
            has_readable_profile: true,
            startup: Some(startup),
            total,
            ..CollectionFinished::default()
        }
    }

    fn on_action(&mut self, _now: Seconds, action: &SchedAction) {
        if let SchedAction::Conclude { case, outcome } = action
            && outcome.verdict != Verdict::Ok
        {
            self.preview.cases[*case] = Err(outcome.reason.cause.clone());
        }
    }
}

const REHEARSAL_COSTS: PriorCosts =
    PriorCosts { startup: 0.3, export: 0.2, export_record: 1e-4, hang_timeout: 10.0 };

const CONTROL_SECONDS: Seconds = 5e-4;

const REHEARSAL_PAUSE: Seconds = 0.5;

pub(super) fn scheduler_limits(kind: DataKind, deadline: Option<Seconds>) -> SchedLimits {
    let mut limits = SchedLimits { deadline, ..SchedLimits::default() };
    if kind == DataKind::Rehearsal {
        limits.first_pause = REHEARSAL_PAUSE;
        // The vendor's exporter takes as long as on a device's host.
        if std::env::var_os(EXPORTER_VARIABLE).is_none() {
            limits.prior = REHEARSAL_COSTS;
        }
    }
    // The launches of the control kernels, half of them before the script has started, and their records.
    let launches = f64::from(ControlLaunches::default().launch_count());
    limits.prior.startup += launches / 2.0 * CONTROL_SECONDS;
    limits.prior.export += launches * (CONTROL_SECONDS / 2.0 + limits.prior.export_record);
    limits
}

pub(super) fn scheduler_cases(costs: &InitialCosts, cases: &[PlannedCase]) -> Vec<SchedCase> {
    let mut kernels: Vec<&KernelName> = cases.iter().map(|planned| &planned.case.kernel).collect();
    kernels.sort();
    kernels.dedup();
    let convert = |planned: &PlannedCase| SchedCase {
        kernel: kernels.binary_search(&&planned.case.kernel).unwrap_or_default(),
        seconds: costs.case_seconds(planned.predicted_launch()),
        records: costs.record_count(planned.predicted_launch()),
        equal_cases: planned.equal_cases.len(),
        value: planned.value,
        devices: planned.devices,
        device_groups: planned.device_groups.clone().into(),
        memory: MemoryFootprint::from_case(&planned.case).bytes(),
    };
    cases.iter().map(convert).collect()
}

/// Gives cases of equal weight a random order, those that were measured before behind the others: each has random company, and
/// other neighbours than in its earlier collections. Ordered by cost, the cases of a kernel would share their collections, and a
/// device that is slow in this kernel alone would look like an effect of these. `draw` differs between runs. Weights of the
/// plan, if there are some, order the cases instead; where the time of the devices is short, new cases stay in the order of their
/// costs, so that most of them are measured.
pub(super) fn shuffle_cases(
    jobs: &mut [SchedCase],
    is_measured: impl Fn(usize) -> bool,
    draw: u64,
    device_seconds: Seconds,
) {
    if jobs.windows(2).any(|pair| pair[0].value != pair[1].value) {
        return;
    }
    let is_time_short = jobs.iter().map(|job| job.seconds).sum::<Seconds>() > device_seconds / 2.0;
    for (case, job) in jobs.iter_mut().enumerate() {
        let random = signed_unit_deviate(hash_numbers(&[draw, case as u64])).abs();
        match is_measured(case) {
            true => job.value *= random,
            false if is_time_short => {}
            false => job.value *= 1.0 + random,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(value: impl Fn(usize) -> f64) -> Vec<SchedCase> {
        let job = SchedCase { seconds: 1.0, records: 20, devices: 1, ..SchedCase::default() };
        (0..40).map(|case| SchedCase { value: value(case), ..job.clone() }).collect()
    }

    fn shuffled(mut jobs: Vec<SchedCase>, draw: u64, device_seconds: Seconds) -> Vec<usize> {
        shuffle_cases(&mut jobs, |case| case < 10, draw, device_seconds);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by(|a, b| jobs[*b].value.total_cmp(&jobs[*a].value));
        order
    }

    #[test]
    fn cases_have_random_company_and_measured_ones_come_last() {
        let (one, other) =
            (shuffled(jobs(|_| 2.0), 1, f64::INFINITY), shuffled(jobs(|_| 2.0), 2, f64::INFINITY));
        assert_ne!(one, other);
        for order in [&one, &other] {
            assert!(order[..30].iter().all(|case| *case >= 10) && !order.is_sorted(), "{order:?}");
        }
        let short = shuffled(jobs(|_| 2.0), 1, 60.0);
        assert!(short[..30].is_sorted() && !short[30..].is_sorted(), "{short:?}");
        let weighted = shuffled(jobs(|case| case as f64), 1, f64::INFINITY);
        assert!(weighted.iter().rev().is_sorted(), "{weighted:?}");
    }
}
