//! Cases of collectives: the call of the script, and what is known of their time before a run.

use std::collections::BTreeMap;

use serde_json::json;

use super::PlannedCase;
use crate::kernel::{
    CaseOutcome, Cause, CollectiveCase, IdentifiedCase, Nanos, PartWeights, Tensor, Verdict,
    catalogue::{ArgumentValue, CallArgument, ResolvedCall},
    device::{ComputeUnit, KernelWork},
};

const ARGUMENT: &str = "collective";
/// Rough values, with which the first collections are planned.
const START: f64 = 20e-6;
const LINK_BYTES_PER_SECOND: f64 = 100e9;

/// Returns the call of a collective, with the number of its processes. The error is its verdict.
pub(super) fn collective_call(case: &IdentifiedCase) -> Result<(ResolvedCall, usize), CaseOutcome> {
    let Some(collective) = CollectiveCase::of_case(case) else {
        let cause = Cause::NoCollective { kernel: case.kernel.to_string() };
        return Err(CaseOutcome::new(Verdict::NoEntry, cause));
    };
    let Some(dtype) = collective.dtype.passed_torch_name() else {
        let cause = Cause::NoTorchType { dtype: collective.dtype.to_string() };
        return Err(CaseOutcome::new(Verdict::Unsupported, cause));
    };
    let elements = |slots: &[Option<Tensor>]| slots.iter().flatten().map(Tensor::element_count).sum::<u64>();
    let mut described = json!({
        "kind": collective.kind.to_string(),
        "dtype": dtype,
        "message": collective.message,
        "tier": collective.tier,
        "environment": collective.environment,
        "send": elements(&case.inputs),
        "receive": elements(&case.outputs),
        "types": collective.kind.record_types(),
    });
    if collective.parts != PartWeights::Equal {
        // Numbers of elements, by sender and receiver.
        let elements = collective.message / collective.dtype.bytes().unwrap_or(1).max(1);
        described["parts"] = json!(collective.parts.part_sizes(elements, collective.ranks));
    }
    let argument = |name: &str, value| CallArgument { name: name.to_owned(), value };
    let ranks = i64::try_from(collective.ranks).unwrap_or(i64::MAX);
    let work = KernelWork {
        flops: 0.0,
        bytes: case.bytes() as f64,
        unit: ComputeUnit::Mte,
        dtype: collective.dtype.clone(),
    };
    let call = ResolvedCall {
        form: ARGUMENT.to_owned(),
        definition: case.kernel.clone(),
        api: collective.kind.api(),
        notes: Vec::new(),
        arguments: vec![
            argument("group", ArgumentValue::ProcessGroup(ranks)),
            argument(ARGUMENT, ArgumentValue::Value(described)),
        ],
        outputs: case.outputs.iter().flatten().cloned().collect(),
        switches: BTreeMap::new(),
        returns: Vec::new(),
        work,
    };
    Ok((call, usize::try_from(collective.ranks).unwrap_or(usize::MAX)))
}

impl PlannedCase {
    pub(crate) fn predicted_launch(&self) -> Nanos {
        let Some(collective) = CollectiveCase::of_case(&self.case) else { return self.fastest };
        let CollectiveCase { kind, message, ranks, parts, .. } = collective;
        let bytes =
            kind.bandwidth_bytes(message, ranks).unwrap_or(u64::MAX) as f64 * kind.bus_factor(ranks, &parts);
        Nanos::from_seconds(START + bytes / LINK_BYTES_PER_SECOND).max(self.fastest)
    }
}
