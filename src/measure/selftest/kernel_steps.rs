//! Steps of the script's function `steps`: equal launches of one kernel between two marks.

use serde::Serialize;

use super::record_loss::mark_length;
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
/// Products of 4096 x 4096 matrices before the first step, about 0.1 s, in which the clock reaches its rating.
pub(super) const PREHEAT: u32 = 200;
/// Bytes of an element of all tensors, BF16.
const ELEMENT_BYTES: u64 = 2;

/// Kernel of a step and the sizes of its tensors.
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
    /// Returns the least work of one launch.
    #[expect(clippy::cast_precision_loss, reason = "numbers of elements are far below 2^52")]
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

/// State of the cache before each launch of a step.
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

/// Launches of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct LaunchStep {
    #[serde(flatten)]
    pub(super) kernel: StepKernel,
    pub(super) cache: StepCache,
    /// Number of sets of tensors that the launches use in turn.
    pub(super) sets: u64,
    /// Number of launches with those of the warm-up.
    pub(super) launches: u32,
}

impl LaunchStep {
    /// Creates a step whose launches use the same tensors.
    pub(super) const fn hot(kernel: StepKernel, launches: u32) -> Self {
        Self { kernel, cache: StepCache::Hot, sets: 1, launches }
    }
}

/// Recorded launches of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepRecords {
    /// Name of the kernel that the call launched.
    pub(super) kernel: String,
    /// Durations without the warm-up, in nanoseconds.
    pub(super) durations: Vec<i64>,
}

impl StepRecords {
    /// Finds the launches of a step by its number: of the kernels between its marks (of the lengths 2n + 2 and 2n + 3)
    /// that were launched as often as the step states, the one with the longest time. The marks and the kernel that
    /// flushes the cache, `Neg`, do not count. The error names the recorded kernels.
    pub(super) fn find(records: &[RawRecord], number: u64, step: &LaunchStep) -> Result<Self, String> {
        let place = |length: u64| records.iter().position(|record| mark_length(record) == Some(length));
        let bracket = place(2 * number + 2).zip(place(2 * number + 3));
        let inside = bracket
            .and_then(|(first, last)| records.get(first..last))
            .ok_or_else(|| format!("the marks of step {number} are not recorded"))?;
        let inside = inside.iter().filter(|record| !record.kernel.starts_with("Neg"));
        let mut kernels: Vec<(&str, Vec<i64>)> = Vec::new();
        for record in inside {
            match kernels.iter_mut().find(|(kernel, _)| *kernel == record.kernel) {
                Some((_, durations)) => durations.push(record.duration.0),
                None => kernels.push((&record.kernel, vec![record.duration.0])),
            }
        }
        let complete =
            kernels.iter().filter(|(_, durations)| durations.len() as u64 == u64::from(step.launches));
        let Some((kernel, durations)) = complete.max_by_key(|(_, durations)| durations.iter().sum::<i64>())
        else {
            let counts: Vec<String> = kernels
                .iter()
                .map(|(kernel, durations)| format!("{} of {kernel}", durations.len()))
                .collect();
            let recorded = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
            return Err(format!("step {number}: expected {} launches, recorded: {recorded}", step.launches));
        };
        let durations = durations.get(WARM_UP as usize..).unwrap_or_default().to_vec();
        Ok(Self { kernel: (*kernel).to_owned(), durations })
    }

    /// Returns the median in nanoseconds; 0 without durations.
    pub(super) fn median(&self) -> f64 {
        median_of(&self.durations)
    }
}

/// Returns the median of durations; 0 without any.
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

    /// Creates a record of a kernel with one input.
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
        let found = StepRecords::find(&records, 1, &step).expect("recorded");
        assert_eq!(found, StepRecords { kernel: "TensorMove".to_owned(), durations: vec![9_005, 9_006] });
        let fewer = LaunchStep { launches: 8, ..step };
        let problem = StepRecords::find(&records, 1, &fewer).expect_err("one launch is missing");
        assert_eq!(problem, "step 1: expected 8 launches, recorded: 7 of TensorMove, 7 of Cast");
        let none = StepRecords::find(&records, 0, &step).expect_err("nothing between the marks");
        assert!(none.ends_with("recorded: none"), "{none}");
        assert!(StepRecords::find(&records, 2, &step).is_err_and(|problem| problem.contains("marks")));
    }

    #[test]
    fn steps_are_written_as_the_script_reads_them() {
        let step = LaunchStep::hot(StepKernel::Matmul { rows: 16, inner: 32, columns: 64 }, 3);
        insta::assert_snapshot!(serde_json::json!(step), @r#"{"cache":"hot","columns":64,"inner":32,"kernel":"matmul","launches":3,"rows":16,"sets":1}"#);
    }
}
