//! Collective operations of `torch.distributed`.

use super::{
    api_args::{bind_signature, int_argument, tensor_handle},
    arguments::BoundArguments,
    element_values::ElementValues,
    launch_log::{LaunchedOperation, TaskEngine},
    process_group::{RankArrival, RankSplits},
    protocol::{ApiReply, PyArguments, PyError, PyValue, TensorHandle, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues},
};
use crate::kernel::{
    CollectiveKind, Dtype, Nanos,
    catalogue::ArgumentValue,
    device::{ComputeUnit, KernelWork},
    render::ManifestCase,
};

/// Type of the records of sums over the ranks.
const ALL_REDUCE: &str = "hcom_allReduce_";

/// `all_reduce(tensor)`: every rank sums a tensor of the same shape and type. The profiler shows no tensors of it.
pub(super) fn all_reduce(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("all_reduce(Tensor tensor) -> ()", arguments, &[])?;
    let handle = tensor_handle(&bound, "tensor")?;
    let operand = session.memory.operand(handle)?;
    let DeviceKind::Npu(device) = operand.location else {
        return Err(runtime("No backend type associated with device type cpu"));
    };
    session.common_calls += 1;
    let number = session.common_calls;
    session.group().check(number, ALL_REDUCE, &[Some(operand.tensor.clone())])?;
    session.memory.write(handle, KnownValues::Unknown);
    let bytes = 2.0 * operand.tensor.bytes() as f64;
    let operation = LaunchedOperation {
        // Hash of the group, index of the operation, and a number.
        name: format!("{ALL_REDUCE}_534_{number}_1"),
        kernel: ALL_REDUCE.to_owned(),
        task: TaskEngine::Communication,
        inputs: Vec::new(),
        outputs: Vec::new(),
        work: KernelWork { flops: 0.0, bytes, unit: ComputeUnit::Mte, dtype: operand.tensor.dtype },
    };
    session.log.launch(device, operation);
    Ok(ApiReply::Nothing)
}

/// Functions by the kind of collective, with their arguments.
const CALLS: [(&str, CollectiveKind, &str); 7] = [
    ("torch.distributed.all_reduce", CollectiveKind::AllReduce, "all_reduce(Tensor tensor) -> ()"),
    (
        "torch.distributed.all_gather_into_tensor",
        CollectiveKind::AllGather,
        "all_gather_into_tensor(Tensor output, Tensor input) -> ()",
    ),
    (
        "torch.distributed.reduce_scatter_tensor",
        CollectiveKind::ReduceScatter,
        "reduce_scatter_tensor(Tensor output, Tensor input) -> ()",
    ),
    (
        "torch.distributed.all_to_all_single",
        CollectiveKind::AllToAll,
        "all_to_all_single(Tensor output, Tensor input, int[]? output_splits=None, int[]? input_splits=None) -> ()",
    ),
    ("torch.distributed.broadcast", CollectiveKind::Broadcast, "broadcast(Tensor tensor, int src) -> ()"),
    ("torch.distributed.send", CollectiveKind::SendReceive, "send(Tensor tensor, int dst) -> ()"),
    ("torch.distributed.recv", CollectiveKind::SendReceive, "recv(Tensor tensor, int src) -> ()"),
];
/// Function of the receiving rank of a transfer, and the type of its records.
const RECEIVE: (&str, &str) = ("torch.distributed.recv", "hcom_receive_");

/// Returns true for a function of this module.
pub(super) fn is_collective(api: &str) -> bool {
    CALLS.iter().any(|(name, ..)| *name == api)
}

/// A call of one rank.
struct CollectiveCall {
    kind: CollectiveKind,
    record_type: &'static str,
    /// `None` for the receiver of a transfer.
    input: Option<TensorHandle>,
    /// `None` for the sender of a transfer.
    output: Option<TensorHandle>,
    dtype: Dtype,
    /// Elements of input and output of a rank.
    elements: [u64; 2],
    /// Parts of them, of an `all_to_all_v`.
    splits: Option<RankSplits>,
}

/// Launches a collective: waits for the other ranks, exchanges the data and records the kernel of this rank, which
/// ends with those of the others.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Result<ApiReply, PyError> {
    let (rank, ranks) = session.rank();
    let call = CollectiveCall::parse(session, api, arguments, ranks)?;
    if let Some(case) = session.log.current_case() {
        call.compare(&case)?;
    }
    session.common_calls += 1;
    let number = session.common_calls;
    let device = session.current;
    let ahead = session.clock_ahead.0.saturating_add(session.log.device_clock_ahead(device).0);
    let at = session.log.arrival(device, rank);
    let sent = match call.input {
        Some(handle) => session.memory.values(handle)?,
        None => None,
    };
    // By the clock of all devices and hosts.
    let arrival = RankArrival {
        at: Nanos(at.0.saturating_sub(ahead)),
        sent,
        call: call.describe(),
        splits: call.splits.clone(),
    };
    let arrivals = session.meet(number, arrival)?;
    let splits: Option<Vec<&RankSplits>> = arrivals.iter().map(|arrival| arrival.splits.as_ref()).collect();
    let last = arrivals.iter().map(|arrival| arrival.at.0.saturating_add(ahead)).max().unwrap_or(at.0);
    let message = call.message_bytes(ranks as u64);
    let size = match &splits {
        Some(splits) => equal_message_elements(splits)? * call.dtype.bytes().unwrap_or(1),
        None => call.kind.bandwidth_bytes(message, ranks as u64).unwrap_or(u64::MAX),
    };
    let duration = session.log.collective_duration(call.kind, size);
    if let Some(output) = call.output {
        let sent: Vec<Option<&ElementValues>> =
            arrivals.iter().map(|arrival| arrival.sent.as_ref()).collect();
        let mut values = match &splits {
            Some(splits) => received_parts(&sent, splits, rank),
            None => call.received(&sent, rank),
        };
        if let Some(place) = session.log.wrong_element {
            let wrong = |values: ElementValues| {
                let found = values.slice(place, 1).to_list(1).first().map_or(0, |value| value + 1);
                values.replaced(place, &ElementValues::constant(found, 1))
            };
            values = values.map(wrong);
        }
        session.memory.write(output, KnownValues::Unknown);
        session.memory.set_values(output, values);
    }
    let operation = LaunchedOperation {
        // Hash of the group, index of the operation, and a number.
        name: format!("{}_534_{number}_1", call.record_type),
        kernel: call.record_type.to_owned(),
        task: TaskEngine::Communication,
        inputs: Vec::new(),
        outputs: Vec::new(),
        work: KernelWork { flops: 0.0, bytes: message as f64, unit: ComputeUnit::Mte, dtype: call.dtype },
    };
    let end = Nanos(last.saturating_add(duration.0));
    session.log.append_collective(device, rank, operation, at, end);
    Ok(ApiReply::Nothing)
}

/// Returns the message, in elements, whose equal parts take as long as the largest transfer of one rank with others.
/// Fails if a rank sends a part of another size than its receiver expects, at which HCCL would hang or end.
fn equal_message_elements(splits: &[&RankSplits]) -> Result<u64, PyError> {
    let mut most = 0;
    for (rank, own) in splits.iter().enumerate() {
        for (other, (sent, peer)) in own.sent.iter().zip(splits).enumerate() {
            let expected = peer.received.get(rank).copied().unwrap_or_default();
            if *sent != expected {
                return Err(runtime(format!(
                    "rehearsal: rank {rank} sends {sent} elements to rank {other}, which expects {expected}"
                )));
            }
        }
        let others = |parts: &[u64]| -> u64 {
            parts.iter().enumerate().filter(|(peer, _)| *peer != rank).map(|(_, part)| part).sum()
        };
        most = most.max(others(&own.sent)).max(others(&own.received));
    }
    let ranks = splits.len() as u64;
    Ok(u64::try_from(u128::from(most) * u128::from(ranks) / u128::from((ranks - 1).max(1)))
        .unwrap_or(u64::MAX))
}

/// Returns the values that a rank receives, by sender; `None` if they are not known.
fn received_parts(
    sent: &[Option<&ElementValues>],
    splits: &[&RankSplits],
    rank: usize,
) -> Option<ElementValues> {
    let parts = sent.iter().zip(splits).map(|(values, splits)| {
        let first = splits.sent.get(..rank)?.iter().sum();
        Some((*values)?.slice(first, *splits.sent.get(rank)?))
    });
    Some(ElementValues::joined(&parts.collect::<Option<Vec<_>>>()?))
}

/// Returns the parts of an argument of the call, one for each rank.
fn split_argument(bound: &BoundArguments, name: &str, ranks: u64) -> Option<Vec<u64>> {
    let Some(PyValue::List(parts)) = bound.get(name) else { return None };
    let part = |part: &PyValue| if let PyValue::Int(part) = part { u64::try_from(*part).ok() } else { None };
    let parts: Vec<u64> = parts.iter().map(part).collect::<Option<_>>()?;
    (parts.len() as u64 == ranks).then_some(parts)
}

impl CollectiveCall {
    fn parse(
        session: &ApiSession,
        api: &str,
        arguments: &PyArguments,
        ranks: usize,
    ) -> Result<Self, PyError> {
        let known = CALLS.iter().find(|(name, ..)| *name == api);
        let (_, kind, signature) =
            known.ok_or_else(|| runtime(format!("rehearsal: no collective `{api}`")))?;
        let bound = bind_signature(signature, arguments, &[])?;
        let has_splits = matches!(bound.get("input_splits"), Some(PyValue::List(_)));
        let kind = if has_splits { CollectiveKind::AllToAllV } else { *kind };
        let one = tensor_handle(&bound, "tensor").ok();
        let (input, output) = match api {
            _ if api == RECEIVE.0 => (None, one),
            _ if kind == CollectiveKind::SendReceive => (one, None),
            _ if one.is_some() => (one, one),
            _ => (Some(tensor_handle(&bound, "input")?), Some(tensor_handle(&bound, "output")?)),
        };
        let mut dtype = None;
        let mut sizes = [0, 0];
        for (size, handle) in sizes.iter_mut().zip([input, output]) {
            let Some(handle) = handle else { continue };
            let operand = session.memory.operand(handle)?;
            let [length] = operand.dims[..] else {
                return Err(runtime("rehearsal: collectives are of vectors"));
            };
            if !matches!(operand.location, DeviceKind::Npu(device) if device == session.current) {
                return Err(runtime("No backend type associated with device type cpu"));
            }
            let is_same = dtype.as_ref().is_none_or(|dtype| *dtype == operand.tensor.dtype);
            if !is_same {
                return Err(runtime("Tensors are not equal in size or data type"));
            }
            dtype = Some(operand.tensor.dtype);
            *size = length;
        }
        let dtype = dtype.ok_or_else(|| runtime("rehearsal: a collective without a tensor"))?;
        let record_type = if api == RECEIVE.0 { RECEIVE.1 } else { kind.kernel_name() };
        let splits = (kind == CollectiveKind::AllToAllV).then(|| {
            let parts = |name: &str| split_argument(&bound, name, ranks as u64);
            Some(RankSplits { sent: parts("input_splits")?, received: parts("output_splits")? })
        });
        let splits = match splits {
            Some(None) => {
                return Err(runtime(format!("rehearsal: the splits are not {ranks} whole numbers")));
            }
            Some(splits) => splits,
            None => None,
        };
        let call = Self { kind, record_type, input, output, dtype, elements: sizes, splits };
        call.check_sizes(ranks as u64, &bound)?;
        Ok(call)
    }

    /// Checks the sizes as torch and HCCL do.
    fn check_sizes(&self, ranks: u64, bound: &BoundArguments) -> Result<(), PyError> {
        let [input, output] = self.elements;
        let fits = match self.kind {
            CollectiveKind::AllGather => input.checked_mul(ranks) == Some(output),
            CollectiveKind::ReduceScatter => output.checked_mul(ranks) == Some(input),
            CollectiveKind::AllToAll => input == output && input.is_multiple_of(ranks.max(1)),
            CollectiveKind::AllToAllV => self.splits.as_ref().is_some_and(|splits| {
                let sums = [&splits.sent, &splits.received].map(|parts| parts.iter().sum::<u64>());
                sums == self.elements
            }),
            CollectiveKind::Broadcast => int_argument(bound, "src") == Some(0),
            CollectiveKind::SendReceive => ranks == 2,
            CollectiveKind::AllReduce => true,
        };
        fits.then_some(()).ok_or_else(|| {
            runtime(format!("rehearsal: {} of {input} and {output} elements over {ranks} ranks", self.kind))
        })
    }

    /// Returns the call without the sizes that differ between the ranks of a transfer.
    fn describe(&self) -> String {
        let elements = match self.kind {
            CollectiveKind::SendReceive => self.elements.into_iter().max().unwrap_or_default().to_string(),
            CollectiveKind::AllToAllV => "different".to_owned(),
            _ => format!("{} -> {}", self.elements[0], self.elements[1]),
        };
        format!("{} of {elements} elements of {}", self.kind, self.dtype)
    }

    /// Compares the call with the case of the manifest.
    fn compare(&self, case: &ManifestCase) -> Result<(), PyError> {
        let described = case.arguments.iter().find_map(|argument| match &argument.value {
            ArgumentValue::Value(value) => value.as_object(),
            _ => None,
        });
        let described =
            described.ok_or_else(|| runtime(format!("rehearsal: {} is no collective", case.kernel)))?;
        let expected = |key: &str| described.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let sizes = [expected("send"), expected("receive")];
        let kind = described.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default();
        let dtype = described.get("dtype").and_then(serde_json::Value::as_str);
        let is_same_size = self.elements.iter().zip(sizes).all(|(found, expected)| *found == expected)
            || match &self.splits {
                // The manifest has the sizes of the busiest ranks.
                Some(_) => self.elements.iter().zip(sizes).all(|(found, most)| *found <= most),
                None => self.kind == CollectiveKind::SendReceive && self.elements.contains(&sizes[0]),
            };
        if kind == self.kind.to_string() && is_same_size && dtype == self.dtype.torch_name() {
            return Ok(());
        }
        Err(runtime(format!(
            "rehearsal: the manifest has {kind} of {} -> {} elements of {}, the call is {} of {} -> {} elements of {}",
            sizes[0],
            sizes[1],
            dtype.unwrap_or_default(),
            self.kind,
            self.elements[0],
            self.elements[1],
            self.dtype
        )))
    }

    /// Returns the message of the call, see [`CollectiveKind::size_semantics`].
    fn message_bytes(&self, ranks: u64) -> u64 {
        let [input, output] = self.elements;
        let elements = match self.kind {
            CollectiveKind::ReduceScatter => input / ranks.max(1),
            CollectiveKind::SendReceive => input.max(output),
            _ => input,
        };
        elements * self.dtype.bytes().unwrap_or(1)
    }

    /// Returns the values that a rank receives; `None` if they are not known.
    fn received(&self, sent: &[Option<&ElementValues>], rank: usize) -> Option<ElementValues> {
        let all = || sent.iter().copied().collect::<Option<Vec<&ElementValues>>>();
        let parts_for = |all: &[&ElementValues]| -> Vec<ElementValues> {
            let part = |values: &&ElementValues| {
                let length = values.len() / sent.len().max(1) as u64;
                values.slice(rank as u64 * length, length)
            };
            all.iter().map(part).collect()
        };
        match self.kind {
            CollectiveKind::AllReduce => ElementValues::sum(&all()?),
            CollectiveKind::ReduceScatter => {
                let parts = parts_for(&all()?);
                ElementValues::sum(&parts.iter().collect::<Vec<_>>())
            }
            CollectiveKind::AllGather => {
                Some(ElementValues::joined(&all()?.into_iter().cloned().collect::<Vec<_>>()))
            }
            CollectiveKind::AllToAll => Some(ElementValues::joined(&parts_for(&all()?))),
            // By its parts, see `received_parts`.
            CollectiveKind::AllToAllV => None,
            CollectiveKind::Broadcast | CollectiveKind::SendReceive => {
                sent.first().copied().flatten().cloned()
            }
        }
    }
}
