//! Durations of workloads that have none, from sizes and the rates of a device.
//!
//! They weigh kernels against each other; they are no latencies and answer no query.

use super::CoverageAnalyzer;
use crate::{
    answer::{
        lookup::{OpQuery, QueryTensor},
        op_mapping::{CompositePart, MappedOperator},
        workload::{DurationKind, MAX_TIME, Workload, WorkloadQuestion, tensor_bytes},
    },
    kernel::{
        Dtype, KernelName, Nanos, TensorFormat,
        device::{ComputeUnit, DeviceProfile, KernelWork, rate_of},
    },
};

/// Shares of the peak rates that kernels reach, and the time of a launch on the device in seconds, by unit: those of
/// the analytic model of the superseded tool.
const COMPUTE_SHARE: f64 = 0.7;
const MEMORY_SHARE: f64 = 0.6;
const CUBE_LAUNCH: f64 = 5e-6;
const VECTOR_LAUNCH: f64 = 2e-6;
const MAX_NESTED: usize = 8;

/// Sets durations by the roofline of a device if no question has one. Operators without a kernel take no time;
/// collectives and unreadable questions stay without one.
pub(crate) fn estimate_durations(
    workload: &mut Workload,
    analyzer: &CoverageAnalyzer<'_>,
    device: &DeviceProfile,
) {
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
        if question.unreadable.is_some() {
            return None;
        }
        let of_case = question.case.as_ref().and_then(|case| {
            let entry = self.catalogue.entry(&case.kernel)?;
            entry.resolve_call(case).ok().map(|call| call.work)
        });
        let one = match of_case {
            Some(work) => seconds_of_work(&work, device),
            None => self.seconds_of_query(&question.query, device)?,
        };
        let all = one * question.count as f64;
        Some(Nanos::from_seconds(all)).filter(|time| (0..=MAX_TIME).contains(&time.0))
    }

    /// Returns the time of the kernels of a query; for a composite, the sum over its parts. Collectives have no such
    /// time.
    fn seconds_of_query(&self, query: &OpQuery, device: &DeviceProfile) -> Option<f64> {
        let kernels = self.kernels_that_run(&query.op, 0);
        let seconds = |kernel| Some(seconds_of_work(&work_of_query(query, kernel)?, device));
        if kernels.is_empty() {
            return seconds(None);
        }
        let parts: Vec<f64> = kernels
            .iter()
            .filter(|kernel| !kernel.is_collective())
            .filter_map(|kernel| seconds(Some(kernel)))
            .collect();
        (!parts.is_empty()).then(|| parts.iter().sum())
    }

    /// Returns the first of the kernels of an operator, or of each part of a composite. Of several products in a row
    /// one runs.
    fn kernels_that_run(&self, op: &str, depth: usize) -> Vec<KernelName> {
        let parts = self.engine.mapping.operator(op).map_or(&[][..], MappedOperator::parts);
        if parts.is_empty() || depth >= MAX_NESTED {
            return self.engine.kernels_of(op, &[]).into_iter().take(1).collect();
        }
        let mut kernels: Vec<KernelName> = Vec::new();
        for part in parts {
            match part {
                CompositePart::Operator(name) => kernels.extend(self.kernels_that_run(name, depth + 1)),
                CompositePart::Kernel(kernel)
                    if is_product(&kernel.name) && kernels.last().is_some_and(is_product) => {}
                CompositePart::Kernel(kernel) => kernels.push(kernel.name.clone()),
            }
        }
        kernels
    }
}

fn is_product(kernel: &KernelName) -> bool {
    kernel.as_str().to_lowercase().contains("matmul")
}

/// Returns the least work that follows from the shapes of a query; `None` without shapes.
fn work_of_query(query: &OpQuery, kernel: Option<&KernelName>) -> Option<KernelWork> {
    let elements = |tensor: &QueryTensor| tensor.dims.iter().map(|dim| *dim as f64).product::<f64>();
    let first = query.inputs.first()?;
    let bytes: f64 = query.inputs.iter().chain(&query.outputs).map(tensor_bytes).sum();
    let (unit, flops) = match query.inputs.get(1).filter(|_| kernel.is_some_and(is_product)) {
        Some(weight) => (ComputeUnit::Cube, 2.0 * elements(first) * columns_of(first, weight)),
        None => (ComputeUnit::Vector, elements(first)),
    };
    let dtype = first.dtype.clone().unwrap_or(Dtype::Bf16);
    Some(KernelWork { flops, bytes, unit, dtype })
}

/// Returns the columns of a product: of the matrices of the weight, each of which a row is multiplied by one of, the
/// dimension that is not summed over.
fn columns_of(rows: &QueryTensor, weight: &QueryTensor) -> f64 {
    let is_blocked = matches!(weight.format, Some(TensorFormat::Private(_)));
    let matrix = match weight.dims.as_slice() {
        [.., columns, rows, height, width] if is_blocked => {
            [rows.saturating_mul(*height), columns.saturating_mul(*width)]
        }
        [.., one, other] => [*one, *other],
        _ => return 1.0,
    };
    let depth = rows.dims.last().copied().unwrap_or(1).max(1);
    match matrix {
        [one, other] if one == depth => other as f64,
        [one, other] if other == depth => one as f64,
        [one, other] => one as f64 * other as f64 / depth as f64,
    }
}

fn seconds_of_work(work: &KernelWork, device: &DeviceProfile) -> f64 {
    let (rates, launch) = match work.unit {
        ComputeUnit::Cube => (&device.cube_tflops, CUBE_LAUNCH),
        ComputeUnit::Vector | ComputeUnit::Mte => (&device.vector_tflops, VECTOR_LAUNCH),
    };
    let most = rates.values().copied().fold(0.0, f64::max);
    let peak = rate_of(rates, &work.dtype).unwrap_or(most) * 1e12;
    let compute = if peak > 0.0 { work.flops / (COMPUTE_SHARE * peak) } else { 0.0 };
    launch + compute.max(work.bytes / (MEMORY_SHARE * device.hbm_bytes_per_second()))
}
