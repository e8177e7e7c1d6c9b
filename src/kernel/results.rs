//! Results of cases: launches of one collection, their accepted samples, and the content of a row.
//!
//! A new value of a launch is also read in `verify/collection.rs`, is a column of `database/ledger/ledger.sql` and of
//! `attempts.rs`, `measurements.rs`, `evidence.rs` and `merge` there, and is written into rows by `database/result_cells.rs`. A new
//! column of the ledger needs a higher `LAYOUT` in `database/ledger/mod.rs`. `verify/samples.rs` pools the values of several
//! collections of a row.

use std::{cmp::Ordering, collections::BTreeSet, iter, sync::Arc};

use serde::{Serialize, Serializer};
use strum::EnumMessage as _;

use super::{
    CacheState, CaseId, CaseOutcome, Cause, DurationList, IdentifiedCase, IdentifiedSoftware, Nanos, Reason,
    Verdict,
};
use crate::base::stats::{CycleRate, SampleSummary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// From 0, warm-up launches first.
    pub(crate) number: u32,
    pub(crate) is_measured: bool,
    /// True if the sample is accepted: measured and inside the severe outlier fence.
    pub(crate) is_accepted: bool,
    pub start: Nanos,
    pub duration: Nanos,
}

/// Number of collections that make an unusual median accepted, so that the case is not measured again for it.
pub(crate) const CONFIRMING_COLLECTIONS: usize = 2;

/// Operator, state and unit of a kernel's task, as the profiler shows them; empty if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct RecordedTask {
    /// `OP State`: `dynamic` or `static`.
    pub(crate) state: String,
    /// `Accelerator Core`, or `Task Type` in `op_summary`: `AI_CORE`, `AI_VECTOR_CORE`, `MIX_AIC` …
    pub(crate) core: String,
    /// `Op Name` without numbers, such as `aclnnAdd_AddAiCore_Add`.
    pub(crate) operator: String,
}

impl RecordedTask {
    /// Unit of kernels that run on the host-like cores of the device.
    pub(crate) const AI_CPU: &str = "AI_CPU";

    /// Returns the name of an operator without its parts that are numbers, and without numbers behind the kernel's type and
    /// behind other parts than the last, except versions (`V2`): a graph numbers its operators, and torch_npu those that it
    /// compiles (`Conv2D7`, `Conv2DBackpropFilter6_MemSet`), in the order of the process.
    pub(crate) fn unnumbered_operator(name: &str, kernel: &str) -> String {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_numbered_kernel = |part: &str| part.strip_prefix(kernel).is_some_and(is_number);
        let parts = name.split('_').filter(|part| !is_number(part));
        let mut parts: Vec<&str> =
            parts.map(|part| if is_numbered_kernel(part) { kernel } else { part }).collect();
        if let Some((_, before)) = parts.split_last_mut() {
            for part in before {
                let name = part.trim_end_matches(|end: char| end.is_ascii_digit());
                *part = if name.ends_with(['V', 'v']) { part } else { name };
            }
        }
        parts.join("_")
    }

    pub(crate) fn is_on_ai_cpu(&self) -> bool {
        self.core == Self::AI_CPU
    }
}

#[derive(Clone, Debug)]
pub struct Attempt {
    pub(crate) case: CaseId,
    pub(crate) launched: u32,
    /// The recorded launches; of a gang, each with the duration of its slowest rank.
    pub launches: Vec<Launch>,
    /// Duration of the fastest rank of each launch; empty without a gang.
    pub fastest_ranks: Vec<Nanos>,
    pub counters: Vec<Option<f64>>,
    pub(crate) task: RecordedTask,
    /// Cycles per time of the accepted launches; `None` if the profile does not show them, and for gangs.
    pub(crate) cycle_rate: Option<CycleRate>,
    pub outcome: CaseOutcome,
    pub(crate) of_equal_calls: Vec<EqualCallAttempt>,
}

/// Result of launches for another case than the planned one: of the kernel that ran, or a row of the same call.
#[derive(Clone, Debug)]
pub struct EqualCallAttempt {
    pub(crate) case: IdentifiedCase,
    pub(crate) attempt: Attempt,
}

impl Attempt {
    pub(crate) fn with_equal_calls(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(self.of_equal_calls.iter().map(|other| &other.attempt))
    }

    pub(crate) fn without_launches(case: CaseId, launched: u32, outcome: CaseOutcome) -> Self {
        Self {
            case,
            launched,
            launches: Vec::new(),
            fastest_ranks: Vec::new(),
            counters: Vec::new(),
            task: RecordedTask::default(),
            cycle_rate: None,
            outcome,
            of_equal_calls: Vec::new(),
        }
    }
}

/// Means of counters in half of the memory of optional numbers: a ledger has some of each attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CounterMeans {
    /// Bits of numbers; a counter that was not recorded is NaN.
    means: Box<[u64]>,
}

impl CounterMeans {
    pub(crate) fn get(&self, index: usize) -> Option<f64> {
        self.means.get(index).map(|bits| f64::from_bits(*bits)).filter(|mean| !mean.is_nan())
    }

    pub(crate) const fn len(&self) -> usize {
        self.means.len()
    }
}

impl From<Vec<Option<f64>>> for CounterMeans {
    fn from(means: Vec<Option<f64>>) -> Self {
        Self { means: means.into_iter().map(|mean| mean.unwrap_or(f64::NAN).to_bits()).collect() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct AttemptSamples {
    pub(crate) run: Arc<str>,
    pub(crate) cache: CacheState,
    pub(crate) verdict: Verdict,
    pub(crate) reason: Arc<Reason>,
    /// Accepted durations in nanoseconds, in launch order.
    pub(crate) samples: DurationList,
    pub(crate) outliers: usize,
    pub(crate) counters: CounterMeans,
    pub(crate) task: Arc<RecordedTask>,
    pub(crate) software: Option<Arc<IdentifiedSoftware>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionSamples {
    pub(crate) case: CaseId,
    pub(crate) collection: i64,
    pub(crate) device: u32,
    pub(crate) software: Option<Arc<str>>,
    pub(crate) noise: Option<Arc<Reason>>,
    /// Durations in nanoseconds, in launch order.
    pub(crate) samples: Vec<i64>,
}

/// Method of an interval.
#[derive(
    strum::Display, strum::EnumString, strum::IntoStaticStr, strum::EnumMessage, schemars::JsonSchema,
)]
#[schemars(with = "String")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntervalMethod {
    #[strum(
        to_string = "launches",
        message = "the launches of one collection (differences between collections are not included)"
    )]
    Launches,
    #[strum(to_string = "bootstrap", message = "the bootstrap of its collections")]
    Bootstrap,
    #[strum(to_string = "collections", message = "Student's t over its collections")]
    Collections,
    #[strum(to_string = "joint fit", message = "the joint fit of all cases and collections")]
    JointFit,
    #[strum(
        to_string = "collections on one device",
        message = "Student's t over its collections, all on one device"
    )]
    CollectionsOnOneDevice,
    #[strum(
        to_string = "joint fit on one device",
        message = "the joint fit of all cases and collections, all on one device"
    )]
    JointFitOnOneDevice,
    #[strum(
        to_string = "joint fit of unequal devices",
        message = "the joint fit of all cases and collections, around the mean of devices that differ"
    )]
    JointFitOfUnequalDevices,
}

impl IntervalMethod {
    /// Returns true if measurements of other cases can change the interval, or its method.
    pub(crate) const fn depends_on_other_cases(self) -> bool {
        !matches!(self, Self::Launches | Self::Bootstrap)
    }

    pub(crate) const fn is_joint_fit(self) -> bool {
        matches!(self, Self::JointFit | Self::JointFitOnOneDevice | Self::JointFitOfUnequalDevices)
    }

    pub(crate) fn explanation(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }
}

impl Serialize for IntervalMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// 95 % confidence interval of a median, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MedianInterval {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) method: IntervalMethod,
    /// Effect of the collections that the joint fit removed: the mean of the measured medians is larger than the estimate by
    /// this factor less 1.
    pub(crate) correction: Option<f64>,
}

/// Statistics of the accepted samples of a case; durations in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) summary: SampleSummary,
    pub(crate) interval: Option<MedianInterval>,
    pub(crate) samples: usize,
    pub(crate) collections: usize,
    pub(crate) counters: Vec<Option<f64>>,
    pub(crate) task: RecordedTask,
}

/// Result for the row of a case: a verdict with its reason, and a measurement if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct RowResult {
    pub(crate) case: CaseId,
    pub(crate) cache: CacheState,
    pub(crate) run: String,
    pub(crate) outcome: CaseOutcome,
    pub(crate) measurement: Option<Measurement>,
    pub(crate) software: Option<Arc<IdentifiedSoftware>>,
    /// Runs whose rows of the case may show samples that were withdrawn, see [`WithdrawnAttempts`].
    pub(crate) withdrawn_runs: BTreeSet<String>,
}

/// Attempts at a case that were accepted and do not count any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WithdrawnAttempts {
    /// Runs with attempts at the case from the first withdrawn one on: their rows may show its samples.
    pub(crate) runs: BTreeSet<String>,
    pub(crate) last_run: String,
    pub(crate) outcome: CaseOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownResult {
    pub(crate) run: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) samples: Option<usize>,
    pub(crate) software: Option<String>,
}

impl RowResult {
    pub(crate) fn of_withdrawn(case: CaseId, cache: CacheState, withdrawn: WithdrawnAttempts) -> Self {
        let WithdrawnAttempts { runs: withdrawn_runs, last_run: run, outcome } = withdrawn;
        Self { case, cache, run, outcome, measurement: None, software: None, withdrawn_runs }
    }

    /// Returns true if the result replaces the shown one: the shown one is of a run whose evidence may be withdrawn, or
    /// the result has a measurement of other software, whose samples are not comparable; a better verdict; the same and
    /// no fewer samples; or a worse one and more samples, because the better verdict came from a part of the evidence.
    /// A worse verdict on the same samples of the same run replaces as well: the estimate of all collections is newer
    /// than that of the row. A row of another ledger, as in a clone of the folder, can have more samples than this one.
    pub(crate) fn replaces_shown(&self, shown: &ShownResult) -> bool {
        if shown.run.as_ref().is_some_and(|run| self.withdrawn_runs.contains(run)) {
            return true;
        }
        self.measurement.as_ref().is_some_and(|measured| {
            let more = measured.samples.cmp(&shown.samples.unwrap_or_default());
            let is_of_other_software = shown.samples.is_some()
                && self.software.as_ref().map(|software| &software.digest) != shown.software.as_ref();
            match self.outcome.verdict.cmp(&shown.verdict) {
                _ if is_of_other_software => true,
                Ordering::Less => true,
                Ordering::Equal => more.is_ge(),
                Ordering::Greater if shown.run.as_ref() == Some(&self.run) => more.is_ge(),
                Ordering::Greater => shown.samples.is_some() && more.is_gt(),
            }
        })
    }

    /// Returns the result compared with the median of the case in production profiles: an accepted one that contradicts it
    /// becomes `suspicious`, any other gets a remark. Measuring again does not remove the contradiction, because all devices
    /// of a host may be wrong alike.
    pub(crate) fn judged_by_production(self, production: Nanos) -> Self {
        let median = self.measurement.as_ref().map(|measured| measured.summary.median);
        let Some(contradiction) =
            median.and_then(|median| production_contradiction(median, production, self.cache))
        else {
            return self;
        };
        Self { outcome: self.outcome.with_contradiction(contradiction), ..self }
    }
}

/// Greatest factor between the medians of replay and production, in either direction. Caches, other kernels on the device and
/// another clock account for less in most kernels.
pub(crate) const PRODUCTION_FACTOR: f64 = 1.4;

/// Returns how the median of a replay in nanoseconds contradicts the median of production; `None` if it does not. A
/// cold cache may make a kernel several times as long, where production finds its tensors in the cache.
pub(crate) fn production_contradiction(median: f64, production: Nanos, cache: CacheState) -> Option<Cause> {
    let ratio = median / production.0 as f64;
    let is_longer_by_cache = cache == CacheState::Cold && ratio > 1.0;
    (ratio.ln().abs() > PRODUCTION_FACTOR.ln() && !is_longer_by_cache)
        .then(|| Cause::Production { ratio: ratio.into(), median_ns: production })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_the_order_of_a_process_are_no_part_of_an_operator() {
        let name = RecordedTask::unnumbered_operator;
        assert_eq!(name("aclnnMm_MatMulV3Common_MatMulV3", "MatMulV3"), "aclnnMm_MatMulV3Common_MatMulV3");
        assert_eq!(name("Conv2D7", "Conv2D"), "Conv2D");
        assert_eq!(name("Conv2DBackpropFilter10_MemSet", "MemSet"), "Conv2DBackpropFilter_MemSet");
        assert_eq!(name("aclnnAddV3_Add", "Add"), "aclnnAddV3_Add");
        assert_eq!(name("Add_12", "Add"), name("Add_3", "Add"));
        assert_eq!(name("12", ""), "");
    }

    #[test]
    fn medians_far_from_production_are_contradictions() {
        let with = |median, cache| {
            production_contradiction(median, Nanos(10_000), cache).map(|cause| cause.to_string())
        };
        let text = |median: f64| with(median, CacheState::Hot);
        assert_eq!(text(13_900.0), None);
        assert_eq!(text(7_200.0), None);
        let slow = "the median is 1.50 times that of production, 10.000 us";
        assert_eq!(text(15_000.0).as_deref(), Some(slow));
        assert!(text(6_000.0).is_some_and(|text| text.starts_with("the median is 0.60 times")));
        assert_eq!(with(30_000.0, CacheState::Cold), None, "production may find its tensors in the cache");
        assert_eq!(with(6_000.0, CacheState::Cold), text(6_000.0));
    }
}
