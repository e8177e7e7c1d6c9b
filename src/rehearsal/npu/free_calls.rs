//! Calls of scripts without cases, as those of a selftest, and of control kernels: products, copies, absolute values,
//! normalisations, selections and events.
//! Their durations depend on the model of the cache.

use super::{
    api_args::{bind_signature, int_argument, tensor_handle},
    cache_model::UsedStorage,
    launch_log::{LaunchedOperation, TaskEngine, plain_operation},
    protocol::{ApiReply, PyArguments, PyError, TensorHandle, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues, TensorMemory, TensorOperand},
};
use crate::{
    kernel::{
        Dtype, Tensor,
        device::{ComputeUnit, KernelWork},
    },
    rehearsal::fault_plan::HostDefect,
};

/// Error of the runtime for an exception of a core.
pub(super) const CORE_EXCEPTION: u32 = 507_015;

/// Function that records an event.
pub(super) const EVENT_RECORD: &str = "torch.npu.Event.record";

/// Answers a call of this module; `None` for other functions.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Option<Result<ApiReply, PyError>> {
    Some(match api {
        "torch.mm" => product(session, arguments),
        "torch.Tensor.copy_" if !copies_part(session, arguments) => copy(session, arguments),
        "torch.abs" => absolute(session, arguments),
        "torch_npu.npu_rms_norm" => rms_norm(session, arguments),
        EVENT_RECORD => Ok(event_time(session)),
        "torch.index_select" => select(session, arguments),
        _ => return None,
    })
}

fn product(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("mm(Tensor self, Tensor mat2) -> Tensor", arguments, &[])?;
    let handles = [tensor_handle(&bound, "self")?, tensor_handle(&bound, "mat2")?];
    let [left, right] = [session.memory.operand(handles[0])?, session.memory.operand(handles[1])?];
    let ([m, k], [inner, n]) = (left.dims.as_slice(), right.dims.as_slice()) else {
        return Err(runtime("self must be a matrix"));
    };
    if k != inner {
        return Err(runtime(format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {inner}x{n})")));
    }
    let device = device_of(&left)?;
    let output = Tensor::new([*m, *n], left.tensor.dtype.clone());
    let flops = 2.0 * (*m as f64) * (*k as f64) * (*n as f64);
    let bytes = left.tensor.bytes() + right.tensor.bytes() + output.bytes();
    let work =
        KernelWork { flops, bytes: bytes as f64, unit: ComputeUnit::Cube, dtype: left.tensor.dtype.clone() };
    let result = session.memory.allocate(&output, left.location, KnownValues::Unknown)?;
    let operation = LaunchedOperation {
        name: "aclnnMm_MatMulCommon_MatMulV2".to_owned(),
        kernel: "MatMulV2".to_owned(),
        task: TaskEngine::Cube,
        inputs: vec![Some(left.tensor), Some(right.tensor)],
        outputs: vec![output],
        work,
    };
    launch(session, device, &handles, operation);
    session.memory.tensor_reply(result)
}

/// Returns true for a copy into a part of a vector, which launches no kernel.
fn copies_part(session: &ApiSession, arguments: &PyArguments) -> bool {
    let target =
        arguments.positional.first().and_then(|target| TensorMemory::handles(target).first().copied());
    target.is_some_and(|target| session.memory.is_part(target))
}

/// `target.copy_(source)` of equal tensors.
fn copy(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("copy_(Tensor self, Tensor src) -> Tensor", arguments, &[])?;
    let (target, source) = (tensor_handle(&bound, "self")?, tensor_handle(&bound, "src")?);
    let [to, from] = [session.memory.operand(target)?, session.memory.operand(source)?];
    if (&to.dims, &to.tensor.dtype, to.location) != (&from.dims, &from.tensor.dtype, from.location) {
        return Err(runtime("rehearsal: copy_ is known for equal tensors on one device"));
    }
    let device = device_of(&to)?;
    let bytes = (to.tensor.bytes() + from.tensor.bytes()) as f64;
    let work = KernelWork { flops: 0.0, bytes, unit: ComputeUnit::Mte, dtype: to.tensor.dtype.clone() };
    let operation = LaunchedOperation {
        name: "aclnnInplaceCopy_TensorMove_TensorMove".to_owned(),
        kernel: "TensorMove".to_owned(),
        task: TaskEngine::Vector,
        inputs: vec![Some(from.tensor)],
        outputs: vec![to.tensor],
        work,
    };
    launch(session, device, &[target, source], operation);
    Ok(ApiReply::Same { same: target })
}

/// `abs(tensor)` on a device.
fn absolute(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("abs(Tensor self) -> Tensor", arguments, &[])?;
    let handle = tensor_handle(&bound, "self")?;
    let source = session.memory.operand(handle)?;
    let device = device_of(&source)?;
    let output = Tensor::new(source.dims.clone(), source.tensor.dtype.clone());
    let result = session.memory.allocate(&output, source.location, KnownValues::Unknown)?;
    launch(
        session,
        device,
        &[handle],
        plain_operation("aclnnAbs_Abs_Abs", "Abs", vec![source.tensor], output),
    );
    session.memory.tensor_reply(result)
}

/// `npu_rms_norm(input, gamma)`: the normalised tensor, and a number in single precision per row.
fn rms_norm(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let schema = "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)";
    let bound = bind_signature(schema, arguments, &[])?;
    let handles = [tensor_handle(&bound, "self")?, tensor_handle(&bound, "gamma")?];
    let [input, gamma] = [session.memory.operand(handles[0])?, session.memory.operand(handles[1])?];
    let ([rows, width], [length]) = (input.dims.as_slice(), gamma.dims.as_slice()) else {
        return Err(runtime("rehearsal: npu_rms_norm is known for a matrix and a vector"));
    };
    if width != length {
        return Err(runtime(format!("npu_rms_norm: gamma has {length} elements, expected {width}")));
    }
    let device = device_of(&input)?;
    let outputs = vec![
        Tensor::new(input.dims.clone(), input.tensor.dtype.clone()),
        Tensor::new([*rows, 1], Dtype::Float),
    ];
    let work = KernelWork {
        flops: 4.0 * input.tensor.element_count() as f64,
        bytes: (2 * input.tensor.bytes()) as f64,
        unit: ComputeUnit::Vector,
        dtype: input.tensor.dtype.clone(),
    };
    let mut replies = Vec::new();
    for output in &outputs {
        let handle = session.memory.allocate(output, input.location, KnownValues::Unknown)?;
        replies.push(session.memory.tensor_reply(handle)?);
    }
    let operation = LaunchedOperation {
        name: "aclnnRmsNorm_RmsNorm_RmsNorm".to_owned(),
        kernel: "RmsNorm".to_owned(),
        task: TaskEngine::Vector,
        inputs: vec![Some(input.tensor), Some(gamma.tensor)],
        outputs,
        work,
    };
    launch(session, device, &handles, operation);
    Ok(ApiReply::Tuple(replies))
}

/// Time of the present device's stream in nanoseconds.
fn event_time(session: &ApiSession) -> ApiReply {
    ApiReply::Int(session.log.stream_time(session.current).0.unsigned_abs())
}

/// Returns the device of a tensor, which must be an NPU.
fn device_of(operand: &TensorOperand) -> Result<u32, PyError> {
    match operand.location {
        DeviceKind::Npu(device) => Ok(device),
        DeviceKind::Cpu => Err(runtime("rehearsal: the tensor is on the host")),
    }
}

/// Launches an operation whose duration depends on whether these tensors are in the cache.
fn launch(session: &mut ApiSession, device: u32, tensors: &[TensorHandle], operation: LaunchedOperation) {
    let storages: Vec<UsedStorage> =
        tensors.iter().filter_map(|handle| session.memory.used_storage(*handle)).collect();
    session.log.launch_cached(device, operation, &storages);
}

/// `torch.index_select`: an index out of range is an exception of a core, which the next `synchronize` raises.
fn select(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("index_select(Tensor self, int dim, Tensor index) -> Tensor", arguments, &[])?;
    let table = session.memory.operand(tensor_handle(&bound, "self")?)?;
    let index = session.memory.operand(tensor_handle(&bound, "index")?)?;
    let rows = table.dims.first().copied().unwrap_or_default();
    let is_inside = index.contents.bounds().is_some_and(|(low, high)| low >= 0 && high.unsigned_abs() < rows);
    if int_argument(&bound, "dim") != Some(0) || !is_inside {
        if session.log.has_defect(HostDefect::UnknownErrorText) {
            return Err(runtime("vendor failure 0x7"));
        }
        session.fail_at_synchronize(CORE_EXCEPTION);
    }
    let mut dims = table.dims.clone();
    if let Some(first) = dims.first_mut() {
        *first = index.dims.first().copied().unwrap_or_default();
    }
    let output = Tensor::new(dims, table.tensor.dtype.clone());
    let result = session.memory.allocate(&output, table.location, KnownValues::Unknown)?;
    session.memory.tensor_reply(result)
}
