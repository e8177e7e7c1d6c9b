//! Costs of cases and collections, learned from completed collections.
//!
//! The time of a collection has three parts: startup until its script can use the device, its cases, and export and
//! reading of the profile. They are learned separately: the first and the third depend on the host, the second on the
//! kernels. A collection has at most 32 cases at first, twice as many after each completed collection, and no more than are
//! best where cases break collections, which lose all of their records.

use super::{CaseResult, CollectionFinished, PriorCosts, SchedCase, Seconds};
use crate::kernel::CollectionPurpose;

const WEIGHT: f64 = 0.25;
const MAX_STEP: f64 = 20.0;

#[derive(Clone, Debug, Default)]
pub(super) struct LearnedCosts {
    startup: Seconds,
    export: FittedLine,
    kernels: Vec<Option<f64>>,
    overall: f64,
    /// Moving mean of the positive relative errors of predicted collection times.
    excess: f64,
    completed: u32,
    /// Cases that collections launched, their seconds, and the collections that they broke.
    launched: f64,
    launched_seconds: Seconds,
    broken: f64,
    hang_timeout: Seconds,
}

impl LearnedCosts {
    pub(super) fn new(kernels: usize, prior: &PriorCosts) -> Self {
        Self {
            startup: prior.startup,
            export: FittedLine::new(prior.export, prior.export_record),
            hang_timeout: prior.hang_timeout,
            kernels: vec![None; kernels],
            overall: 1.0,
            excess: 0.2,
            completed: 0,
            launched: 0.0,
            launched_seconds: 0.0,
            broken: 0.0,
        }
    }

    pub(super) const fn kernel_count(&self) -> usize {
        self.kernels.len()
    }

    pub(super) fn case_seconds(&self, job: &SchedCase) -> Seconds {
        self.kernel_seconds(job.kernel, job.seconds, u64::from(job.records))
    }

    pub(super) fn kernel_seconds(&self, kernel: usize, seconds: Seconds, records: u64) -> Seconds {
        let factor = self.kernels.get(kernel).copied().flatten().unwrap_or(self.overall);
        seconds * factor + self.export.slope * records as f64
    }

    pub(super) const fn overhead_seconds(&self) -> Seconds {
        self.startup + self.export.base
    }

    pub(super) const fn export_seconds(&self, records: u64) -> Seconds {
        self.export.base + self.export.slope * records as f64
    }

    /// Few cases at first, because the first predictions may be wrong by orders of magnitude.
    pub(super) fn max_cases(&self, most: usize) -> usize {
        const FIRST: usize = 32;
        most.min(FIRST << self.completed.min(16)).min(self.best_cases())
    }

    /// Returns the number of cases with the least time per case that keeps its records. A collection of n cases takes o + c n
    /// seconds and is complete with probability exp(-q n), where a case breaks it with probability q; else nothing is left of
    /// it. The minimum of (o + c n) exp(q n) / n is where c q n^2 + o q n = o.
    fn best_cases(&self) -> usize {
        /// Cases without a break that are assumed before the first one, which may come early by chance.
        const PRIOR_CASES: f64 = 200.0;
        if self.broken == 0.0 || self.launched == 0.0 {
            return usize::MAX;
        }
        let overhead = self.overhead_seconds().max(1e-3);
        let (risk, case) =
            (self.broken / (self.launched + PRIOR_CASES), self.launched_seconds / self.launched);
        // The root in the form that has no difference of near numbers where cases take no time.
        let best = 2.0 / (risk * (1.0 + (1.0 + 4.0 * case / (overhead * risk)).sqrt()));
        best.max(1.0) as usize
    }

    /// Learns how often a case breaks its collection. A case that runs alone is known as a suspect, and says nothing about others.
    pub(super) fn record_risk(&mut self, results: &[CaseResult], has_broken: bool) {
        let launched = results.iter().filter_map(|result| result.seconds);
        let (count, seconds) = launched.fold((0.0, 0.0), |(count, sum), one| (count + 1.0, sum + one));
        self.launched += count;
        self.launched_seconds += seconds;
        self.broken += f64::from(has_broken);
    }

    /// Returns the factor on predictions near the deadline, where a late end is worse than an idle device.
    pub(super) fn safety_factor(&self) -> f64 {
        (1.0 + 2.0 * self.excess).clamp(1.05, 2.0)
    }

    pub(super) fn time_limit(&self, predicted: Seconds) -> Seconds {
        if self.completed > 0 {
            (10.0 * self.overhead_seconds()).clamp(self.hang_timeout / 10.0, self.hang_timeout)
                + 3.0 * predicted
        } else {
            self.hang_timeout + 10.0 * predicted
        }
    }

    pub(super) fn record_collection(
        &mut self,
        jobs: &[SchedCase],
        ended: &CollectionFinished,
        purpose: CollectionPurpose,
        predicted: Seconds,
    ) {
        let Some(start) = ended.startup else { return };
        self.startup = smoothed(self.startup, start);
        let mut cases = 0.0;
        let mut records = 0.0;
        for result in &ended.results {
            // A collection that ended in time for its export has not launched all cases.
            let (Some(seconds), job) = (result.seconds, &jobs[result.case]) else { continue };
            cases += seconds;
            records += f64::from(job.records);
            if job.seconds > 0.0 {
                let ratio = seconds / job.seconds;
                self.overall = smoothed(self.overall, ratio);
                let known = &mut self.kernels[job.kernel];
                *known = Some(known.map_or(ratio, |known| smoothed(known, ratio)));
            }
        }
        self.export.observe_point(records, (ended.total - start - cases).max(0.0));
        self.completed += 1;
        if purpose == CollectionPurpose::Measure && predicted > 0.0 {
            let error = (ended.total / predicted - 1.0).max(0.0);
            self.excess += WEIGHT * (error.min(2.0) - self.excess);
        }
    }
}

/// Returns the estimate moved towards an observation, in logarithms: costs are wrong by factors.
fn smoothed(estimate: f64, observed: f64) -> f64 {
    if !(observed > 0.0 && estimate > 0.0) {
        return estimate;
    }
    let leap = (observed / estimate).clamp(1.0 / MAX_STEP, MAX_STEP);
    estimate * leap.powf(WEIGHT)
}

/// Line fitted by least squares to observations and two artificial points of the initial prediction: the one at 0 has
/// weight 0.5, the one at 2000 has weight 0.01, so that the first real observation decides the slope.
#[derive(Clone, Debug, Default)]
struct FittedLine {
    base: f64,
    slope: f64,
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl FittedLine {
    fn new(base: f64, slope: f64) -> Self {
        let mut line = Self { base, slope, count: 0.0, x: 0.0, y: 0.0, xx: 0.0, xy: 0.0 };
        for (x, weight) in [(0.0, 0.5), (2000.0, 0.01)] {
            line.add_point(x, base + slope * x, weight);
        }
        line
    }

    fn add_point(&mut self, x: f64, y: f64, weight: f64) {
        self.count += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    fn observe_point(&mut self, x: f64, y: f64) {
        // Older observations lose weight: hosts change over a night.
        for sum in [&mut self.count, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= 0.9;
        }
        self.add_point(x, y, 1.0);
        let spread = self.count * self.xx - self.x * self.x;
        if spread > 1e-9 * self.xx.max(1.0) {
            self.slope = ((self.count * self.xy - self.x * self.y) / spread).max(0.0);
        }
        self.base = ((self.y - self.slope * self.x) / self.count).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::{CaseOutcome, Verdict},
        measure::sched::{CaseResult, CollectionExit},
    };

    fn job(kernel: usize) -> SchedCase {
        SchedCase { kernel, seconds: 0.1, records: 25, value: 1.0, devices: 1, ..SchedCase::default() }
    }

    /// A collection with a startup of 3 s, an export of 2 s and 0.4 ms per launch, and cases that take `factor` times
    /// their prediction.
    fn ended(cases: usize, factor: f64) -> CollectionFinished {
        let result = |case| CaseResult {
            case,
            outcome: CaseOutcome::new(Verdict::Ok, ""),
            seconds: Some(0.1 * factor),
        };
        let count = cases as f64;
        CollectionFinished {
            collection: 1,
            results: (0..cases).map(result).collect(),
            exit: CollectionExit::Completed,
            has_readable_profile: true,
            startup: Some(3.0),
            total: 3.0 + count * 0.1 * factor + 2.0 + 4e-4 * 25.0 * count,
            failed_devices: Vec::new(),
            message: String::new(),
        }
    }

    #[test]
    fn costs_of_startup_cases_and_export_are_learned_separately() {
        let jobs: Vec<SchedCase> = (0..200).map(|_| job(0)).collect();
        let mut costs = LearnedCosts::new(2, &PriorCosts::default());
        for round in 0..60 {
            costs.record_collection(
                &jobs,
                &ended(20 + 37 * round % 180, 3.0),
                CollectionPurpose::Measure,
                0.0,
            );
        }
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.05, "{found} is not {expected}");
        };
        near(costs.startup, 3.0);
        near(costs.overhead_seconds(), 5.0);
        near(costs.case_seconds(&jobs[0]), 0.3 + 0.01);
        // A kernel without an observation has the factor of all kernels.
        near(costs.case_seconds(&job(1)), 0.3 + 0.01);
    }

    #[test]
    fn one_outlier_moves_an_estimate_by_less_than_a_factor_of_three() {
        let jobs = [job(0)];
        let mut costs = LearnedCosts::new(1, &PriorCosts::default());
        for _ in 0..20 {
            costs.record_collection(&jobs, &ended(1, 1.0), CollectionPurpose::Measure, 0.0);
        }
        let before = costs.case_seconds(&jobs[0]);
        costs.record_collection(&jobs, &ended(1, 10_000.0), CollectionPurpose::Measure, 0.0);
        assert!(
            costs.case_seconds(&jobs[0]) < 3.0 * before,
            "{} after {before}",
            costs.case_seconds(&jobs[0])
        );
    }

    #[test]
    fn collection_that_ended_before_some_cases_teaches_the_costs_of_the_others() {
        let jobs: Vec<SchedCase> = (0..40).map(|_| job(0)).collect();
        let mut costs = LearnedCosts::new(1, &PriorCosts::default());
        for launched in (5..65).map(|round| round % 30 + 1) {
            let mut early = ended(40, 3.0);
            early.total = ended(launched, 3.0).total;
            early.results[launched..].iter_mut().for_each(|result| result.seconds = None);
            costs.record_collection(&jobs, &early, CollectionPurpose::Measure, 0.0);
        }
        let case = costs.case_seconds(&jobs[0]);
        assert!((case / 0.31 - 1.0).abs() < 0.05, "{case}");
        assert!((costs.overhead_seconds() / 5.0 - 1.0).abs() < 0.05, "{}", costs.overhead_seconds());
    }

    /// The number of cases with the least time per case that is kept, found by trying all.
    #[test]
    fn more_breaks_make_smaller_collections() {
        let size = |breaks: u32, seconds: f64| {
            let mut costs = LearnedCosts::new(1, &PriorCosts::default());
            costs.completed = 16;
            let mut all = ended(1800, 1.0);
            all.results.iter_mut().for_each(|result| result.seconds = Some(seconds));
            costs.record_risk(&all.results, false);
            (0..breaks).for_each(|_| costs.record_risk(&[], true));
            (costs.max_cases(256), costs.overhead_seconds())
        };
        assert_eq!(size(0, 0.1).0, 256);
        for (breaks, seconds) in [(1, 0.1), (20, 0.1), (20, 5.0), (200, 0.0), (1500, 1.0)] {
            let (found, overhead) = size(breaks, seconds);
            let risk = f64::from(breaks) / 2000.0;
            let cost = |n: usize| (overhead + seconds * n as f64) * (risk * n as f64).exp() / n as f64;
            let best = (1..=256).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).expect("a number");
            assert!(
                found.abs_diff(best) <= 1,
                "{found} cases, {best} are best: {breaks} breaks, {seconds} s"
            );
        }
    }
}
