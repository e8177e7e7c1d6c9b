//! Model FLOPs utilisation of operators: their floating point operations in relation to what the matrix units could do in
//! the time of their kernels.
//!
//! The operations are those that torch_npu recorded as ranges of mstx in the domain `mfu_flops`, with the text
//! `<flops>-<operator>`; of operators without one, those of their kernels' shapes by the catalogue, and of attention
//! with recorded arguments those of its mask. A recorded number counts once, for the operator with the most kernel time
//! in its range. Rates are the same as in the vendor's tools: 8192 operations a cycle and matrix core for FP16, BF16
//! and FLOAT, twice as many for INT8.

use super::{
    attention_flops::{AttentionArguments, attention_arguments, is_attention},
    prelude::*,
    run::SignatureId,
};
use crate::kernel::{
    Case, CaseAttributes, DeviceFacts, Dtype, KernelName, SignatureCells,
    catalogue::Catalogue,
    device::{ComputeUnit, DeviceProfile, rate_of},
};

const FLOPS_DOMAIN: &str = "mfu_flops";
/// Operations of a matrix core in a cycle, for types of 16 bits.
const OPERATIONS: f64 = 8192.0;

#[derive(Clone, Debug)]
pub(crate) struct PeakRate {
    given: Option<f64>,
    by_type: BTreeMap<String, f64>,
    pub(crate) source: String,
}

impl PeakRate {
    pub(crate) fn given(tflops: f64) -> Self {
        let source = format!("{tflops} TFLOPS, as given");
        Self { given: Some(tflops * 1e12), by_type: BTreeMap::new(), source }
    }

    pub(crate) fn of_profile(profile: &DeviceProfile) -> Self {
        let source = format!("device profile {}", profile.device);
        Self { given: None, by_type: profile.cube_tflops.clone(), source }
    }

    pub(crate) fn of_facts(facts: &DeviceFacts, sources: &[&str]) -> Option<Self> {
        let (cores, clock) = (facts.cube_cores?, facts.clock_mhz?);
        let tflops = f64::from(cores) * f64::from(clock) * 1e6 * OPERATIONS / 1e12;
        let sources = sources.join(", ");
        let source = format!("{tflops:.2} TFLOPS, {cores} matrix cores at {clock} MHz ({sources})");
        let rates = [("FLOAT16", 1.0), ("DT_BF16", 1.0), ("FLOAT", 1.0), ("INT8", 2.0)];
        let by_type = rates.map(|(dtype, factor)| (dtype.to_owned(), factor * tflops)).into();
        Some(Self { given: None, by_type, source })
    }
}

/// Operations of calls, and those that the matrix units could do in the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Utilisation {
    pub(crate) flops: f64,
    /// Operations at the peak rate in the time of the kernels.
    pub(crate) capacity: f64,
}

impl Utilisation {
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.capacity > 0.0).then(|| self.flops / self.capacity)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.flops += other.flops;
        self.capacity += other.capacity;
    }
}

#[derive(Debug)]
pub(crate) struct RunFlops<'a> {
    run: &'a RunTimeline,
    catalogue: &'a Catalogue,
    peak: &'a PeakRate,
    recorded: HashMap<OperatorId, f64>,
    attention: HashMap<OperatorId, AttentionArguments>,
    of_kernels: HashMap<(NameId, SignatureId), Option<(f64, Dtype)>>,
}

impl RunTimeline {
    /// Returns the case of a kernel without attributes; `None` without shapes, or if they cannot be read.
    pub(crate) fn case_of_kernel(&self, task: &DeviceTask) -> Option<Case> {
        let kernel = KernelName::new(self.names.text(task.kind)).ok()?;
        let [shapes, dtypes, formats, out_shapes, out_dtypes, out_formats] =
            self.signature_cells(task.signature?);
        let inputs = SignatureCells { shapes, dtypes, formats }.parse().ok()?;
        let outputs =
            SignatureCells { shapes: out_shapes, dtypes: out_dtypes, formats: out_formats }.parse().ok()?;
        Some(Case { kernel, inputs, outputs, attributes: CaseAttributes::default() })
    }
}

impl<'a> RunFlops<'a> {
    pub(crate) fn new(
        run: &'a RunTimeline,
        catalogue: &'a Catalogue,
        peak: &'a PeakRate,
        calls: &[OperatorCall],
    ) -> Self {
        let mut starts: Vec<(i64, OperatorId, i64)> = calls
            .iter()
            .filter_map(|call| {
                let operator = call.operator?;
                Some((run.operator(operator)?.span.start, operator, run.duration_of_call(call)))
            })
            .collect();
        starts.sort_unstable();
        let mut recorded: HashMap<OperatorId, f64> = HashMap::new();
        for range in run.ranges.iter().filter(|range| run.names.text(range.domain) == FLOPS_DOMAIN) {
            let text = run.names.text(range.name);
            let flops = text.split('-').next().and_then(|flops| flops.trim().parse::<f64>().ok());
            let from = starts.partition_point(|(start, ..)| *start < range.span.start);
            let inside = starts[from..].iter().take_while(|(start, ..)| *start <= range.span.end);
            if let Some(flops) = flops.filter(|flops| flops.is_finite() && *flops >= 0.0)
                && let Some((_, operator, _)) = inside.max_by_key(|(_, _, time)| *time)
            {
                *recorded.entry(*operator).or_default() += flops;
            }
        }
        let attention = attention_arguments(run, calls);
        Self { run, catalogue, peak, recorded, attention, of_kernels: HashMap::new() }
    }

    pub(crate) fn utilisation(&mut self, call: &OperatorCall) -> Option<Utilisation> {
        let recorded = call.operator.and_then(|operator| self.recorded.get(&operator)).copied();
        let mut by_shapes = 0.0;
        let mut dtype = None;
        let run = self.run;
        for kernel in run.kernels_of_call(call) {
            let arguments = call.operator.and_then(|operator| self.attention.get(&operator));
            let own = match arguments.filter(|_| is_attention(run.names.text(kernel.kind))) {
                Some(arguments) => run.case_of_kernel(kernel).and_then(|case| {
                    Some((arguments.operations(&case)?, case.inputs.first()?.as_ref()?.dtype.clone()))
                }),
                None => self.operations_of_kernel(kernel),
            };
            if let Some((flops, of)) = own {
                by_shapes += flops;
                dtype = dtype.or(Some(of));
            }
        }
        let dtype = dtype.or_else(|| self.type_of_call(call))?;
        let flops = recorded.or((by_shapes > 0.0).then_some(by_shapes))?;
        let of_type = || rate_of(&self.peak.by_type, &dtype).map(|rate| rate * 1e12);
        let peak = self.peak.given.or_else(of_type)?;
        let seconds = self.run.duration_of_call(call) as f64 / 1e9;
        Some(Utilisation { flops, capacity: peak * seconds })
    }

    fn operations_of_kernel(&mut self, kernel: &DeviceTask) -> Option<(f64, Dtype)> {
        let (run, catalogue) = (self.run, self.catalogue);
        let found = self.of_kernels.entry((kernel.kind, kernel.signature?)).or_insert_with(|| {
            let case = run.case_of_kernel(kernel)?;
            let work = catalogue.entry(&case.kernel)?.resolve_call(&case).ok()?.work;
            (work.unit == ComputeUnit::Cube && work.flops > 0.0).then_some((work.flops, work.dtype))
        });
        found.clone()
    }

    fn type_of_call(&self, call: &OperatorCall) -> Option<Dtype> {
        let longest = self.run.kernels_of_call(call).max_by_key(|task| task.span.length())?;
        let case = self.run.case_of_kernel(longest)?;
        case.inputs.iter().flatten().next().map(|tensor| tensor.dtype.clone())
    }
}
