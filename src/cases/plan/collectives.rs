//! Cases of collectives: the call of the script, and what is known of their time before a run.

use serde_json::json;

use super::PlannedCase;
use crate::kernel::{
    CaseOutcome, Cause, CollectiveCase, CollectiveKind, IdentifiedCase, Nanos, PartWeights, Tensor, Verdict,
    catalogue::{ArgumentValue, CallArgument, ResolvedCall},
    device::{ComputeUnit, DeviceProfile, KernelWork},
};

/// Name of the argument that describes the collective to the script.
const ARGUMENT: &str = "collective";
/// Duration of a collective of a small message, and bandwidth of the links of one device: rough values, with which the first
/// collections are planned.
const START: f64 = 20e-6;
const LINK_BYTES_PER_SECOND: f64 = 100e9;

impl CollectiveKind {
    /// Returns the function of torch that launches the collective.
    pub(crate) const fn api(self) -> &'static str {
        match self {
            Self::AllReduce => "torch.distributed.all_reduce",
            Self::AllGather => "torch.distributed.all_gather_into_tensor",
            Self::ReduceScatter => "torch.distributed.reduce_scatter_tensor",
            Self::AllToAll | Self::AllToAllV => "torch.distributed.all_to_all_single",
            Self::Broadcast => "torch.distributed.broadcast",
            Self::SendReceive => "torch.distributed.send",
        }
    }

    /// Returns the types of the profiler's records of its launches, on any rank.
    pub(crate) fn record_types(self) -> Vec<&'static str> {
        match self {
            Self::SendReceive => vec![self.kernel_name(), "hcom_receive_"],
            _ => vec![self.kernel_name()],
        }
    }
}

/// Plans a case of a collective, with a weight of 1 and any devices. The error is the case with the verdict of one that cannot
/// be launched.
pub(super) fn planned_collective(
    device: &DeviceProfile,
    case: IdentifiedCase,
) -> Result<PlannedCase, (Box<IdentifiedCase>, CaseOutcome)> {
    let refused =
        |case: IdentifiedCase, verdict, cause: Cause| Err((Box::new(case), CaseOutcome::new(verdict, cause)));
    let Some(collective) = CollectiveCase::of_case(&case) else {
        let kernel = case.kernel.to_string();
        return refused(case, Verdict::NoEntry, Cause::NoCollective { kernel });
    };
    if case.bytes() > device.hbm_bytes() {
        let gib = case.bytes().div_ceil(1 << 30);
        let (device, device_gib) = (device.device.clone(), device.hbm_gib);
        return refused(case, Verdict::Oom, Cause::NotEnoughMemory { gib, device, device_gib });
    }
    let Some(dtype) = collective.dtype.passed_torch_name() else {
        let dtype = collective.dtype.to_string();
        return refused(case, Verdict::Unsupported, Cause::NoTorchType { dtype });
    };
    let elements = |slots: &[Option<Tensor>]| slots.iter().flatten().map(Tensor::element_count).sum::<u64>();
    let size = collective.dtype.bytes().unwrap_or(1).max(1);
    let parts = match collective.parts {
        PartWeights::Equal => None,
        _ => Some(collective.parts.part_sizes(collective.message / size, collective.ranks)),
    };
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
    if let Some(parts) = parts {
        // Elements by sender and receiver.
        described["parts"] = json!(parts);
    }
    let argument = |name: &str, value| CallArgument { name: name.to_owned(), value };
    let ranks = i64::try_from(collective.ranks).unwrap_or(i64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
    let work = KernelWork {
        flops: 0.0,
        bytes: case.bytes() as f64,
        unit: ComputeUnit::Mte,
        dtype: collective.dtype.clone(),
    };
    let fastest = device.fastest(&work);
    let call = ResolvedCall {
        form: ARGUMENT.to_owned(),
        definition: case.kernel.clone(),
        api: collective.kind.api().to_owned(),
        notes: Vec::new(),
        arguments: vec![
            argument("group", ArgumentValue::ProcessGroup(ranks)),
            argument(ARGUMENT, ArgumentValue::Value(described)),
        ],
        outputs: case.outputs.iter().flatten().cloned().collect(),
        returns: Vec::new(),
        work,
    };
    let devices = usize::try_from(collective.ranks).unwrap_or(usize::MAX);
    Ok(PlannedCase {
        case,
        call,
        fastest,
        value: 1.0,
        devices,
        device_groups: Vec::new(),
        is_on_ai_cpu: false,
        equal_cases: Vec::new(),
    })
}

impl PlannedCase {
    /// Returns the predicted duration of a launch: of a kernel its bound, of a collective an estimate by its size.
    pub(crate) fn predicted_launch(&self) -> Nanos {
        let Some(collective) = CollectiveCase::of_case(&self.case) else { return self.fastest };
        let CollectiveCase { kind, message, ranks, parts, .. } = collective;
        #[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
        let bytes =
            kind.bandwidth_bytes(message, ranks).unwrap_or(u64::MAX) as f64 * kind.bus_factor(ranks, &parts);
        Nanos::from_seconds(START + bytes / LINK_BYTES_PER_SECOND).max(self.fastest)
    }
}
