//! What cases and collections cost, learned from those that have ended.
//!
//! A collection takes the time until its script can use the device, the time of its cases, and the time in which
//! the profiler's output is exported and read. The three are learned apart: the first and the third belong to the
//! host, the second to the kernels.

use super::{CollectionFinished, PriorCosts, SchedCase, Seconds};
use crate::domain::CollectionPurpose;

/// How much the last observation counts.
const WEIGHT: f64 = 0.25;
/// One observation may not move an estimate by more than this factor.
const LEAP: f64 = 20.0;

/// What has been learned.
#[derive(Clone, Debug)]
pub(super) struct LearnedCosts {
    start: Seconds,
    export: FittedLine,
    /// By kernel: how long its cases take, as a multiple of what was thought; `None` where none has ended.
    kernels: Vec<Option<f64>>,
    /// The same over all kernels, for those that are not known.
    all: f64,
    /// How much longer collections took than predicted, as a mean of relative errors above 0.
    excess: f64,
    /// Collections that have come to their end.
    ends: u32,
    patience: Seconds,
}

impl LearnedCosts {
    pub(super) fn new(kernels: usize, prior: &PriorCosts) -> Self {
        Self {
            start: prior.start,
            export: FittedLine::new(prior.export, prior.export_launch),
            patience: prior.patience,
            kernels: vec![None; kernels],
            all: 1.0,
            excess: 0.2,
            ends: 0,
        }
    }

    /// Number of the kernels.
    pub(super) const fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// Predicted seconds of one case in a collection.
    pub(super) fn case(&self, job: &SchedCase) -> Seconds {
        self.sum(job.kernel, job.seconds, u64::from(job.launches))
    }

    /// Predicted seconds of cases of a kernel that were thought to take `seconds` in all.
    #[expect(clippy::cast_precision_loss, reason = "a count of launches")]
    pub(super) fn sum(&self, kernel: usize, seconds: Seconds, launches: u64) -> Seconds {
        let factor = self.kernels.get(kernel).copied().flatten().unwrap_or(self.all);
        seconds * factor + self.export.slope * launches as f64
    }

    /// Predicted seconds of a collection besides its cases.
    pub(super) const fn collection(&self) -> Seconds {
        self.start + self.export.base
    }

    /// How many cases a collection may have: few while nothing is known, for then predictions may be wrong by orders.
    pub(super) fn cases(&self, most: usize) -> usize {
        const FIRST: usize = 32;
        most.min(FIRST << self.ends.min(16))
    }

    /// By what a prediction is multiplied where being late is worse than being idle.
    pub(super) fn caution(&self) -> f64 {
        (1.0 + 2.0 * self.excess).clamp(1.05, 2.0)
    }

    /// How long a collection may take before it counts as hung.
    pub(super) fn limit(&self, predicted: Seconds) -> Seconds {
        if self.ends > 0 {
            (10.0 * self.collection()).clamp(self.patience / 10.0, self.patience) + 3.0 * predicted
        } else {
            self.patience + 10.0 * predicted
        }
    }

    /// Takes note of a collection that came to its end.
    pub(super) fn learn(
        &mut self,
        jobs: &[SchedCase],
        ended: &CollectionFinished,
        purpose: CollectionPurpose,
        predicted: Seconds,
    ) {
        let Some(start) = ended.start else { return };
        self.start = moved(self.start, start);
        let mut cases = 0.0;
        let mut launches = 0.0;
        for result in &ended.results {
            let (Some(seconds), job) = (result.seconds, &jobs[result.case]) else { return };
            cases += seconds;
            launches += f64::from(job.launches);
            if job.seconds > 0.0 {
                let ratio = seconds / job.seconds;
                self.all = moved(self.all, ratio);
                let known = &mut self.kernels[job.kernel];
                *known = Some(known.map_or(ratio, |known| moved(known, ratio)));
            }
        }
        self.export.learn(launches, (ended.total - start - cases).max(0.0));
        self.ends += 1;
        if purpose == CollectionPurpose::Measure && predicted > 0.0 {
            let error = (ended.total / predicted - 1.0).max(0.0);
            self.excess += WEIGHT * (error.min(2.0) - self.excess);
        }
    }
}

/// An estimate after one more observation, in logarithms: costs are wrong by factors.
fn moved(estimate: f64, observed: f64) -> f64 {
    if !(observed > 0.0 && estimate > 0.0) {
        return estimate;
    }
    let leap = (observed / estimate).clamp(1.0 / LEAP, LEAP);
    estimate * leap.powf(WEIGHT)
}

/// A base and a slope, by least squares over what was observed and two pretended observations of what was thought
/// before: the base counts for half an observation, the slope for next to none, so that the first real one, far from
/// the origin, decides it.
#[derive(Clone, Debug)]
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
            line.add(x, base + slope * x, weight);
        }
        line
    }

    fn add(&mut self, x: f64, y: f64, weight: f64) {
        self.count += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    fn learn(&mut self, x: f64, y: f64) {
        // What was long ago counts less: hosts change over a night.
        for sum in [&mut self.count, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= 0.9;
        }
        self.add(x, y, 1.0);
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
        domain::{CaseOutcome, Verdict},
        sched::{CaseResult, CollectionExit},
    };

    fn job(kernel: usize) -> SchedCase {
        SchedCase { kernel, seconds: 0.1, launches: 25, value: 1.0, devices: 1, memory: 0 }
    }

    /// A host on which a start takes 3 s, an export 2 s and 0.4 ms a launch, and a case `factor` times as long
    /// as was thought.
    fn ended(cases: usize, factor: f64) -> CollectionFinished {
        let result = |case| CaseResult {
            case,
            finding: CaseOutcome::new(Verdict::Ok, ""),
            seconds: Some(0.1 * factor),
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let count = cases as f64;
        CollectionFinished {
            collection: 1,
            results: (0..cases).map(result).collect(),
            end: CollectionExit::Clean,
            start: Some(3.0),
            total: 3.0 + count * 0.1 * factor + 2.0 + 4e-4 * 25.0 * count,
            outcome: String::new(),
        }
    }

    #[test]
    fn costs_of_starts_cases_and_exports_are_learned_apart() {
        let jobs: Vec<SchedCase> = (0..200).map(|_| job(0)).collect();
        let mut costs = LearnedCosts::new(2, &PriorCosts::default());
        for round in 0..60 {
            costs.learn(&jobs, &ended(20 + 37 * round % 180, 3.0), CollectionPurpose::Measure, 0.0);
        }
        let near = |is: f64, should: f64| assert!((is / should - 1.0).abs() < 0.05, "{is} is not {should}");
        near(costs.start, 3.0);
        near(costs.collection(), 5.0);
        near(costs.case(&jobs[0]), 0.3 + 0.01);
        // A kernel that nobody has seen is expected to be as the others are.
        near(costs.case(&job(1)), 0.3 + 0.01);
    }

    #[test]
    fn one_odd_collection_does_not_turn_the_plan_over() {
        let jobs = [job(0)];
        let mut costs = LearnedCosts::new(1, &PriorCosts::default());
        for _ in 0..20 {
            costs.learn(&jobs, &ended(1, 1.0), CollectionPurpose::Measure, 0.0);
        }
        let before = costs.case(&jobs[0]);
        costs.learn(&jobs, &ended(1, 10_000.0), CollectionPurpose::Measure, 0.0);
        assert!(costs.case(&jobs[0]) < 3.0 * before, "{} after {before}", costs.case(&jobs[0]));
    }

    #[test]
    fn cases_that_did_not_end_teach_nothing_of_the_export() {
        let mut costs = LearnedCosts::new(1, &PriorCosts::default());
        let mut broken = ended(1, 1.0);
        broken.results[0].seconds = None;
        let before = costs.export.base;
        costs.learn(&[job(0)], &broken, CollectionPurpose::Measure, 0.0);
        assert!((costs.export.base - before).abs() < f64::EPSILON);
    }
}
