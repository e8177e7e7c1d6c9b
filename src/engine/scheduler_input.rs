//! Cases and limits of a run in the types of the scheduler.

use crate::{
    domain::{DataKind, KernelName, MemoryFootprint},
    plan::{InitialCosts, PlannedCase},
    render::ControlLaunches,
    sched::{PriorCosts, SchedCase, SchedLimits, Seconds},
    stats::{hash_numbers, signed_unit_deviate},
};

/// Predicted costs of a collection on the rehearsal host, on a machine with other load.
const REHEARSAL_COSTS: PriorCosts =
    PriorCosts { startup: 0.3, export: 0.2, export_record: 1e-4, hang_timeout: 10.0 };

/// Seconds of a launch of a control kernel with its part of the tensors.
const CONTROL_SECONDS: Seconds = 5e-4;

/// Pause of a rehearsed device on which a collection launched nothing.
const REHEARSAL_PAUSE: Seconds = 0.5;

/// Returns the limits of the collections of a run on a host of this kind.
pub(super) fn scheduler_limits(kind: DataKind, deadline: Option<Seconds>) -> SchedLimits {
    let limits = SchedLimits { deadline, ..SchedLimits::default() };
    let limits = match kind {
        DataKind::Npu => limits,
        DataKind::Rehearsal => SchedLimits { prior: REHEARSAL_COSTS, first_pause: REHEARSAL_PAUSE, ..limits },
    };
    SchedLimits { prior: with_controls(limits.prior), ..limits }
}

/// Adds the launches of the control kernels, half of them before the script has started, and their records.
fn with_controls(prior: PriorCosts) -> PriorCosts {
    let launches = f64::from(ControlLaunches::default().launch_count());
    PriorCosts {
        startup: prior.startup + launches / 2.0 * CONTROL_SECONDS,
        export: prior.export + launches * (CONTROL_SECONDS / 2.0 + prior.export_record),
        ..prior
    }
}

/// Converts planned cases for the scheduler. Kernels are numbered in the order of their names.
pub(super) fn scheduler_cases(costs: &InitialCosts, cases: &[PlannedCase]) -> Vec<SchedCase> {
    let mut kernels: Vec<&KernelName> = cases.iter().map(|planned| &planned.case.kernel).collect();
    kernels.sort();
    kernels.dedup();
    let convert = |planned: &PlannedCase| SchedCase {
        kernel: kernels.binary_search(&&planned.case.kernel).unwrap_or_default(),
        seconds: costs.case_seconds(planned.fastest),
        records: costs.record_count(planned.fastest),
        equal_cases: planned.equal_cases.len(),
        value: planned.value,
        devices: planned.devices,
        memory: MemoryFootprint::from_case(&planned.case).bytes(),
    };
    cases.iter().map(convert).collect()
}

/// Puts the cases that were measured before behind the others, in random order, so that each has other neighbours than in
/// its earlier collections. Weights of the plan, if there are some, order the cases instead. `draw` differs between runs.
pub(super) fn shuffle_measured_cases(jobs: &mut [SchedCase], is_measured: impl Fn(usize) -> bool, draw: u64) {
    if jobs.windows(2).any(|pair| pair[0].value != pair[1].value) {
        return;
    }
    for (case, job) in jobs.iter_mut().enumerate().filter(|(case, _)| is_measured(*case)) {
        job.value *= signed_unit_deviate(hash_numbers(&[draw, case as u64])).abs();
    }
}
