//! Steps of the script's function `steps`: equal launches of one kernel between two marks.

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::{experiment::EvidenceError, marked_launches::mark_length};
use crate::{
    base::stats::median_of_sorted,
    kernel::{
        Dtype,
        device::{ComputeUnit, KernelWork},
    },
    measure::verify::RawRecord,
};

/// First launches of each step, which are left out of its durations.
pub(super) const WARM_UP: u32 = 5;
/// Bytes of an element of all tensors, BF16.
const ELEMENT_BYTES: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kernel", rename_all = "snake_case")]
pub(super) enum StepKernel {
    /// `torch.mm` of a matrix of rows x inner with one of inner x columns.
    Matmul { rows: u64, inner: u64, columns: u64 },
    /// `copy_` of a vector of this size.
    Copy { mib: u64 },
    /// `npu_rms_norm` of a matrix of rows x width.
    RmsNorm { rows: u64, width: u64 },
}

impl StepKernel {
    pub(super) fn work(self) -> KernelWork {
        let (flops, bytes, unit) = match self {
            Self::Matmul { rows, inner, columns } => {
                let elements = rows * inner + inner * columns + rows * columns;
                (2 * rows * inner * columns, elements * ELEMENT_BYTES, ComputeUnit::Cube)
            }
            Self::Copy { mib } => (0, 2 * (mib << 20), ComputeUnit::Mte),
            Self::RmsNorm { rows, width } => {
                (4 * rows * width, 2 * rows * width * ELEMENT_BYTES, ComputeUnit::Vector)
            }
        };
        KernelWork { flops: flops as f64, bytes: bytes as f64, unit, dtype: Dtype::Bf16 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum StepCache {
    /// The launches before used the same tensors.
    Hot,
    /// Each launch uses other tensors than the one before.
    Rotated,
    /// A kernel that moves more than the cache holds precedes each launch.
    Flushed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct LaunchStep {
    #[serde(flatten)]
    pub(super) kernel: StepKernel,
    pub(super) cache: StepCache,
    /// Number of sets of tensors that the launches use in turn.
    pub(super) sets: u64,
    pub(super) launches: u32,
}

impl LaunchStep {
    pub(super) const fn hot(kernel: StepKernel, launches: u32) -> Self {
        Self { kernel, cache: StepCache::Hot, sets: 1, launches }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct StepSettings {
    /// Products of 4096 x 4096 matrices before the first step.
    pub(super) preheat: u32,
    pub(super) flush_mib: u64,
    pub(super) warm_up: u32,
    pub(super) events: bool,
}

impl Default for StepSettings {
    /// Products of about 0.1 s, in which the clock reaches its rating.
    fn default() -> Self {
        Self { preheat: 200, flush_mib: 0, warm_up: WARM_UP, events: false }
    }
}

impl StepSettings {
    pub(super) fn parameters(self, steps: &[LaunchStep]) -> Value {
        let mut parameters = json!(self);
        parameters["steps"] = json!(steps);
        parameters
    }
}

/// Finds the durations of a step without its warm-up, in nanoseconds, by the number of the step: of the kernels between
/// its marks (of the lengths 2n + 2 and 2n + 3) that were launched as often as the step states, those with the longest
/// time. The marks and the kernel that flushes the cache, `Neg`, do not count. The error names the recorded kernels.
pub(super) fn step_durations(
    records: &[RawRecord],
    number: u64,
    step: &LaunchStep,
) -> Result<Vec<i64>, EvidenceError> {
    let place = |length: u64| records.iter().position(|record| mark_length(record) == Some(length));
    let bracket = place(2 * number + 2).zip(place(2 * number + 3));
    let inside = bracket.and_then(|(first, last)| records.get(first..last));
    let inside = inside
        .ok_or_else(|| EvidenceError::Missing(format!("the marks of step {number} are not recorded")))?;
    let mut kernels: IndexMap<&str, Vec<i64>> = IndexMap::new();
    for record in inside.iter().filter(|record| !record.kernel.starts_with("Neg")) {
        kernels.entry(&record.kernel).or_default().push(record.duration.0);
    }
    let complete = kernels.values().filter(|durations| durations.len() == step.launches as usize);
    if let Some(durations) = complete.max_by_key(|durations| durations.iter().sum::<i64>()) {
        return Ok(durations.get(WARM_UP as usize..).unwrap_or_default().to_vec());
    }
    let counts = kernels.iter().map(|(kernel, durations)| format!("{} of {kernel}", durations.len()));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let recorded = if counts.is_empty() { "none" } else { &counts };
    let problem = format!("step {number}: expected {} launches, recorded: {recorded}", step.launches);
    Err(EvidenceError::Missing(problem))
}

pub(super) fn median_of(durations: &[i64]) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    median_of_sorted(&sorted).unwrap_or_default()
}

/// Returns a difference relative to a positive number, in percent.
pub(super) fn percent(difference: f64, of: f64) -> f64 {
    if of > 0.0 { 100.0 * difference / of } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel::{LogicalDeviceId, Nanos, RecordedTask, Tensor};

    pub(in crate::measure::selftest) fn record(
        kernel: &str,
        input: Tensor,
        start: i64,
        duration: i64,
    ) -> RawRecord {
        RawRecord {
            kernel: kernel.to_owned(),
            start: Nanos(start),
            duration: Nanos(duration),
            device: Some(LogicalDeviceId(0)),
            host: 0,
            has_device_column: true,
            task: RecordedTask::default(),
            inputs: vec![Some(input.clone())],
            outputs: vec![Some(input)],
            counters: Vec::new(),
            blocks: None,
            stream: None,
            is_hf32: None,
            low_clock: None,
        }
    }

    fn mark(length: u64) -> RawRecord {
        record("Neg", Tensor::new([length], Dtype::Int32), 0, 1_500)
    }

    fn kernel(name: &str, duration: i64) -> RawRecord {
        record(name, Tensor::new([8, 8], Dtype::Bf16), 0, duration)
    }

    #[test]
    fn kernel_of_a_step_is_found_beside_helpers_and_flushes() {
        let step = LaunchStep::hot(StepKernel::Copy { mib: 1 }, 7);
        let flush = record("Neg", Tensor::new([8, 8], Dtype::Int32), 0, 500_000);
        let launches =
            (0..7).flat_map(|n| [flush.clone(), kernel("TensorMove", 9_000 + n), kernel("Cast", 2_000)]);
        let other = [kernel("MatMulV2", 50_000), mark(2), mark(3)];
        let records: Vec<RawRecord> =
            other.into_iter().chain([mark(4)]).chain(launches).chain([mark(5)]).collect();
        let found = step_durations(&records, 1, &step).expect("recorded");
        assert_eq!(found, [9_005, 9_006]);
        let problem = |number, step: &LaunchStep| match step_durations(&records, number, step) {
            Err(EvidenceError::Missing(problem)) => problem,
            found => panic!("{found:?}"),
        };
        let fewer = LaunchStep { launches: 8, ..step };
        assert_eq!(problem(1, &fewer), "step 1: expected 8 launches, recorded: 7 of TensorMove, 7 of Cast");
        assert!(problem(0, &step).ends_with("recorded: none"));
        assert!(problem(2, &step).contains("marks"));
    }

    #[test]
    fn steps_are_written_as_the_script_reads_them() {
        let step = LaunchStep::hot(StepKernel::Matmul { rows: 16, inner: 32, columns: 64 }, 3);
        insta::assert_snapshot!(serde_json::json!(step), @r#"{"cache":"hot","columns":64,"inner":32,"kernel":"matmul","launches":3,"rows":16,"sets":1}"#);
    }
}
