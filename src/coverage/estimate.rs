//! Durations of workloads that have none, from sizes and the rates of a device.
//!
//! They weigh kernels against each other; they are no latencies and answer no query.

use super::answers::CoverageAnalyzer;
use crate::{
    config::{ComputeUnit, DeviceProfile, KernelWork},
    domain::{Dtype, KernelName, Nanos},
    lookup::{OpQuery, QueryTensor},
    workload::{DurationKind, Workload, WorkloadQuestion},
};

/// Shares of the peak rates that kernels reach, and the time of a launch on the device in seconds, by unit: those of
/// the analytic model of the superseded tool.
const COMPUTE_SHARE: f64 = 0.7;
const MEMORY_SHARE: f64 = 0.6;
const CUBE_LAUNCH: f64 = 5e-6;
const VECTOR_LAUNCH: f64 = 2e-6;

/// Sets durations by the roofline of a device if no question has one. Operators without a kernel take no time;
/// collectives and unreadable questions stay without one.
pub fn estimate_durations(workload: &mut Workload, analyzer: &CoverageAnalyzer<'_>, device: &DeviceProfile) {
    if workload.durations != DurationKind::Unknown {
        return;
    }
    for question in &mut workload.questions {
        question.time = analyzer.estimated_time(question, device);
    }
    if workload.questions.iter().any(|question| question.time.is_some()) {
        workload.durations = DurationKind::Estimated;
    }
}

impl CoverageAnalyzer<'_> {
    fn estimated_time(&self, question: &WorkloadQuestion, device: &DeviceProfile) -> Option<Nanos> {
        if self.is_free(&question.query.op) {
            return Some(Nanos(0));
        }
        let kernels = self.kernels_of(&question.query.op);
        if question.unreadable.is_some() || kernels.iter().any(KernelName::is_collective) {
            return None;
        }
        let of_case = question.case.as_ref().and_then(|case| {
            let entry = self.catalogue.entry(&case.kernel)?;
            entry.resolve_call(case).ok().map(|call| call.work)
        });
        let work = of_case.or_else(|| work_of_query(&question.query, kernels.first()))?;
        let one = seconds_of_work(&work, device);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let all = one * question.count as f64;
        Some(Nanos::from_seconds(all)).filter(|time| time.0 >= 0)
    }
}

/// Returns the least work that follows from the shapes of a query; `None` without shapes.
fn work_of_query(query: &OpQuery, kernel: Option<&KernelName>) -> Option<KernelWork> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let elements = |tensor: &QueryTensor| tensor.dims.iter().map(|dim| *dim as f64).product::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let bytes = |tensor: &QueryTensor| {
        elements(tensor) * tensor.dtype.as_ref().and_then(Dtype::bytes).unwrap_or(2) as f64
    };
    let first = query.inputs.first()?;
    let bytes: f64 = query.inputs.iter().chain(&query.outputs).map(bytes).sum();
    let is_product = kernel.is_some_and(|kernel| kernel.as_str().to_lowercase().contains("matmul"));
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let columns = |tensor: &QueryTensor| match (first.dims.last(), tensor.dims.as_slice()) {
        (Some(depth), dims) if *depth > 0 && !dims.is_empty() => elements(tensor) / *depth as f64,
        _ => 0.0,
    };
    let (unit, flops) = match query.inputs.get(1).filter(|_| is_product) {
        Some(weight) => (ComputeUnit::Cube, 2.0 * elements(first) * columns(weight)),
        None => (ComputeUnit::Vector, elements(first)),
    };
    let dtype = first.dtype.clone().unwrap_or(Dtype::Bf16);
    Some(KernelWork { flops, bytes, unit, dtype })
}

fn seconds_of_work(work: &KernelWork, device: &DeviceProfile) -> f64 {
    let (rates, launch) = match work.unit {
        ComputeUnit::Cube => (&device.cube_tflops, CUBE_LAUNCH),
        ComputeUnit::Vector | ComputeUnit::Mte => (&device.vector_tflops, VECTOR_LAUNCH),
    };
    let most = rates.values().copied().fold(0.0, f64::max);
    let peak = rates.get(work.dtype.as_str()).copied().unwrap_or(most) * 1e12;
    let compute = if peak > 0.0 { work.flops / (COMPUTE_SHARE * peak) } else { 0.0 };
    launch + compute.max(work.bytes / (MEMORY_SHARE * device.hbm_bytes_per_second()))
}
