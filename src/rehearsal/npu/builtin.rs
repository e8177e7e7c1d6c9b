//! Functions that a replay calls besides its kernels: devices, views, sentinels, scaling in place.

use super::{
    api_args::{bind_signature, check_device, device_argument, int_argument, tensor_handle},
    cache_model::UsedStorage,
    collective_calls,
    element_values::ElementValues,
    factories, graph_calls,
    launch_log::plain_operation,
    protocol::{ApiReply, PyArguments, PyError, PyValue, TensorHandle, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues, OperandLayout, TensorMemory, TensorOperand},
};
use crate::kernel::{Dtype, Tensor, catalogue::LaunchOperator};

/// Answers a call of this module or of [`factories`]; `None` for other functions.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Option<Result<ApiReply, PyError>> {
    let answer = match api {
        "torch.npu.set_device" => set_device(session, arguments),
        "torch.npu.synchronize" | "torch.npu.empty_cache" | "torch.npu.manual_seed" | "torch.manual_seed" => {
            Ok(ApiReply::Nothing)
        }
        "torch.npu.set_compile_mode" => set_compile_mode(arguments),
        "torch.npu.device_count" => Ok(ApiReply::Int(u64::from(session.devices))),
        "torch.npu.current_device" => Ok(ApiReply::Int(u64::from(session.current))),
        "torch.npu.is_available" => Ok(ApiReply::Bool(session.devices > 0)),
        "torch._C._jit_get_all_schemas" => operator_schemas(session),
        "torch.distributed.join_hosts" => join_hosts(session, arguments),
        "torch.distributed.store_set" => store_set(session, arguments),
        "torch.distributed.store_get" => store_get(session, arguments),
        _ if session.has_collectives() && collective_calls::is_collective(api) => {
            collective_calls::call(session, api, arguments)
        }
        "torch.distributed.all_reduce" => collective_calls::all_reduce(session, arguments),
        "torch.equal" => equal(session, arguments),
        "torch.Tensor.tolist" => to_list(session, arguments),
        "torch.neg" if is_sentinel(session, arguments) => negate(session, arguments),
        "torch.Tensor.mul_" => scale(session, arguments),
        "torch.transpose" | "torch.Tensor.transpose" => transpose(session, arguments),
        "torch.t" | "torch.Tensor.t" => matrix_transpose(session, arguments),
        "torch.triu" => upper_triangle(session, arguments),
        "torch.Tensor.to" => copy_to_device(session, arguments),
        "torch.Tensor.view" => view(session, arguments),
        "torch.Tensor.narrow" => narrow(session, arguments),
        // Between the sentinels of a case it is the launch of a kernel.
        "torch.Tensor.copy_" if session.log.case.is_none() => copy_part(session, arguments),
        "torch_npu.npu_format_cast" if session.log.current_case().is_none_or(|case| case.api != api) => {
            format_cast(session, arguments)
        }
        _ => {
            return graph_calls::call(session, api, arguments)
                .or_else(|| factories::call(session, api, arguments));
        }
    };
    Some(answer)
}

fn set_device(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("set_device(Device device) -> ()", arguments, &[])?;
    let location = match bound.get("device") {
        Some(PyValue::Int(number)) => DeviceKind::Npu(u32::try_from(*number).unwrap_or(u32::MAX)),
        given => device_argument(session, given)?,
    };
    let DeviceKind::Npu(device) = location else {
        return Err(runtime("set_device: expected an NPU, not the CPU"));
    };
    check_device(session, device)?;
    session.set_current(device);
    session.log.open(device);
    Ok(ApiReply::Nothing)
}

/// Name of each operator of the catalogue, and of each argument its name and whether it is keyword-only.
fn operator_schemas(session: &ApiSession) -> Result<ApiReply, PyError> {
    let schema = |operator: &LaunchOperator| {
        let schema = session.installed_schema(operator);
        let arguments = schema.arguments.iter().map(|argument| {
            ApiReply::Tuple(vec![
                ApiReply::Text(argument.name.clone()),
                ApiReply::Bool(argument.keyword_only),
            ])
        });
        ApiReply::Tuple(vec![ApiReply::Text(schema.name.clone()), ApiReply::Tuple(arguments.collect())])
    };
    let catalogue = session.catalogue()?;
    let operators = session.manifest_entries(&catalogue).flat_map(|entry| &entry.operators);
    Ok(ApiReply::Tuple(operators.map(schema).collect()))
}

/// `tensor.view(shape)`: the same memory in another shape.
fn view(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("view(Tensor self, int[] size) -> Tensor", arguments, &[])?;
    let dims = factories::dims(bound.get("size"))?;
    let handle = session.memory.reshaped(tensor_handle(&bound, "self")?, dims)?;
    session.memory.tensor_reply(handle)
}

/// `tensor.narrow(0, start, length)`: a part of a vector.
fn narrow(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound =
        bind_signature("narrow(Tensor self, int dim, int start, int length) -> Tensor", arguments, &[])?;
    let [dim, start, length] =
        ["dim", "start", "length"].map(|name| int_argument(&bound, name).unwrap_or(-1));
    let part = u64::try_from(start).ok().zip(u64::try_from(length).ok()).filter(|_| dim == 0);
    let part = part.ok_or_else(|| runtime("rehearsal: narrow is known for the first dimension only"))?;
    let handle = session.memory.narrowed(tensor_handle(&bound, "self")?, part)?;
    session.memory.tensor_reply(handle)
}

/// `part.copy_(values)` of equal types: a copy of memory, which launches no kernel.
fn copy_part(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("copy_(Tensor self, Tensor src) -> Tensor", arguments, &[])?;
    let target = tensor_handle(&bound, "self")?;
    let from = tensor_handle(&bound, "src")?;
    let source = readable(session, "copy_", from)?;
    let values = session.memory.values(from)?;
    session.memory.write_part(target, &source, values)?;
    Ok(ApiReply::Same { same: target })
}

/// Returns the values of a tensor argument; an error if they are not known.
fn known_values(session: &ApiSession, api: &str, handle: TensorHandle) -> Result<ElementValues, PyError> {
    let values = session.memory.values(handle)?;
    values.ok_or_else(|| runtime(format!("rehearsal: {api}: the values of the tensor are not known")))
}

/// `torch.equal(self, other)`, of tensors with known values.
fn equal(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("equal(Tensor self, Tensor other) -> bool", arguments, &[])?;
    let [one, other] = [tensor_handle(&bound, "self")?, tensor_handle(&bound, "other")?];
    let [one, other] = [known_values(session, "equal", one)?, known_values(session, "equal", other)?];
    Ok(ApiReply::Bool(one.equals(&other)))
}

/// `tensor.tolist()`, of a few elements with known values.
fn to_list(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("tolist(Tensor self) -> ()", arguments, &[])?;
    let values = known_values(session, "tolist", tensor_handle(&bound, "self")?)?;
    let values = values.to_list(1 << 16).into_iter().map(|value| ApiReply::Int(value.unsigned_abs()));
    Ok(ApiReply::Tuple(values.collect()))
}

fn set_compile_mode(arguments: &PyArguments) -> Result<ApiReply, PyError> {
    bind_signature("set_compile_mode(*, bool jit_compile) -> ()", arguments, &[])?;
    Ok(ApiReply::Nothing)
}

/// Joins the gang of several hosts by the place that torchrun gives.
fn join_hosts(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("join_hosts(int node, str address, int port) -> ()", arguments, &[])?;
    let node = int_argument(&bound, "node").and_then(|node| u64::try_from(node).ok());
    let port = int_argument(&bound, "port").and_then(|port| u16::try_from(port).ok());
    if let (Some(node), Some(port), Some(PyValue::Text(address))) = (node, port, bound.get("address")) {
        session.join_hosts(node, address, port)?;
    }
    Ok(ApiReply::Nothing)
}

fn store_set(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("store_set(str key, str value) -> ()", arguments, &[])?;
    if let (Some(PyValue::Text(key)), Some(PyValue::Text(value))) = (bound.get("key"), bound.get("value")) {
        session.store_set(key, value)?;
    }
    Ok(ApiReply::Nothing)
}

/// Returns `None` to Python for a key that is not set.
fn store_get(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("store_get(str key) -> str", arguments, &[])?;
    let Some(PyValue::Text(key)) = bound.get("key") else { return Ok(ApiReply::Nothing) };
    Ok(session.store_get(key)?.map_or(ApiReply::Nothing, ApiReply::Text))
}

/// A tensor argument that a kernel reads.
fn readable(session: &ApiSession, api: &str, handle: TensorHandle) -> Result<TensorOperand, PyError> {
    let operand = session.memory.operand(handle)?;
    if operand.contents == KnownValues::Uninitialised {
        return Err(runtime(format!("rehearsal: {api}: uninitialised input: nothing wrote the tensor")));
    }
    Ok(operand)
}

/// Returns true for a call of `torch.neg` that can be a sentinel: on whole numbers, which the entry Neg does not
/// accept.
fn is_sentinel(session: &ApiSession, arguments: &PyArguments) -> bool {
    let given = arguments.positional.first().or_else(|| arguments.keyword.get("self"));
    let operand = given.and_then(|given| TensorMemory::handles(given).first().copied());
    let operand = operand.and_then(|handle| session.memory.operand(handle).ok());
    operand.is_none_or(|operand| operand.tensor.dtype == Dtype::Int32 || operand.location == DeviceKind::Cpu)
}

fn negate(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("neg(Tensor self) -> Tensor", arguments, &[])?;
    let source = tensor_handle(&bound, "self")?;
    let TensorOperand { tensor, location, .. } = readable(session, "torch.neg", source)?;
    if tensor.dtype == Dtype::Bool {
        return Err(runtime("Negation, the `-` operator, on a bool tensor is not supported."));
    }
    let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
    let result = session.memory.allocate(&output, location, KnownValues::Unknown)?;
    if let DeviceKind::Npu(device) = location {
        if let ([length], Dtype::Int32) = (tensor.dims.as_slice(), &tensor.dtype) {
            session.log.sentinel(*length);
        }
        // A fused kernel has the name of the generator of fused kernels.
        let is_fused = session.environment.fuses_elementwise;
        let (name, kernel) = if is_fused { ("dvm_fused_0", "DvmFused") } else { ("aclnnNeg_Neg_Neg", "Neg") };
        let storages: Vec<UsedStorage> = session.memory.used_storage(source).into_iter().collect();
        session.log.launch_cached(device, plain_operation(name, kernel, vec![tensor], output), &storages);
    }
    session.memory.tensor_reply(result)
}

/// `tensor.mul_(number)`: `Mul` with a scalar in single precision, `Muls` in 16 bits, as in real profiles.
fn scale(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("mul_(Tensor self, Tensor other) -> Tensor", arguments, &["other"])?;
    let target = tensor_handle(&bound, "self")?;
    let TensorOperand { tensor, location, .. } = readable(session, "torch.Tensor.mul_", target)?;
    match bound.get("other") {
        Some(PyValue::Tensor(_)) => return Err(runtime("rehearsal: mul_ supports numbers only")),
        Some(PyValue::Float(_)) if !tensor.dtype.is_float() => {
            let problem =
                format!("result type Float can't be cast to the desired output type {}", tensor.dtype);
            return Err(runtime(problem));
        }
        _ => session.memory.write(target, KnownValues::Unknown),
    }
    if let DeviceKind::Npu(device) = location {
        let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
        let operation = if tensor.dtype == Dtype::Float {
            let inputs = vec![tensor, Tensor::new([], Dtype::Float)];
            plain_operation("aclnnInplaceMuls_MulAiCore_Mul", "Mul", inputs, output)
        } else {
            plain_operation("aclnnInplaceMuls_Muls_Muls", "Muls", vec![tensor], output)
        };
        session.log.launch(device, operation);
    }
    Ok(ApiReply::Same { same: target })
}

fn transpose(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("transpose(Tensor self, int dim0, int dim1) -> Tensor", arguments, &[])?;
    let [first, second] = ["dim0", "dim1"].map(|name| int_argument(&bound, name).unwrap_or(0));
    let view = session.memory.transposed(tensor_handle(&bound, "self")?, first, second)?;
    session.memory.tensor_reply(view)
}

fn matrix_transpose(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("t(Tensor self) -> Tensor", arguments, &[])?;
    let tensor = tensor_handle(&bound, "self")?;
    let rank = session.memory.describe(tensor)?.shape.len();
    if rank != 2 {
        return Err(runtime(format!("t() expects a tensor with 2 dimensions, but self is {rank}D")));
    }
    let view = session.memory.transposed(tensor, 0, 1)?;
    session.memory.tensor_reply(view)
}

/// `torch.triu` on the host, which creates causal masks.
fn upper_triangle(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("triu(Tensor self, int diagonal=0) -> Tensor", arguments, &[])?;
    let TensorOperand { tensor, location, .. } =
        readable(session, "torch.triu", tensor_handle(&bound, "self")?)?;
    if location != DeviceKind::Cpu {
        return Err(runtime("rehearsal: triu is known on the host only"));
    }
    let output = Tensor::new(tensor.dims, tensor.dtype);
    let result = session.memory.allocate(&output, location, KnownValues::Unknown)?;
    session.memory.tensor_reply(result)
}

/// `tensor.to(device)`: a copy there, which launches no kernel.
fn copy_to_device(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("to(Tensor self, Device device) -> Tensor", arguments, &[])?;
    let TensorOperand { tensor, dims, contents, .. } =
        readable(session, "to", tensor_handle(&bound, "self")?)?;
    let location = device_argument(session, bound.get("device"))?;
    let result = session.memory.allocate(&Tensor::new(dims, tensor.dtype), location, contents)?;
    session.memory.tensor_reply(result)
}

/// `npu_format_cast(tensor, 29)`: the same values in FRACTAL_NZ.
fn format_cast(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bind_signature("npu_format_cast(Tensor self, int acl_format) -> Tensor", arguments, &[])?;
    let source = tensor_handle(&bound, "self")?;
    let TensorOperand { tensor, dims, location, contents, layout } =
        readable(session, "npu_format_cast", source)?;
    if int_argument(&bound, "acl_format") != Some(FRACTAL_NZ) {
        return Err(runtime("rehearsal: npu_format_cast supports FRACTAL_NZ (29) only"));
    }
    if layout != OperandLayout::Contiguous {
        return Err(runtime(
            "rehearsal: npu_format_cast of a view would block the view, not what lies in memory",
        ));
    }
    let plain = Tensor::new(dims, tensor.dtype.clone());
    let result = session.memory.allocate(&plain, location, contents)?;
    session.memory.block(result)?;
    if let DeviceKind::Npu(device) = location {
        let output = session.memory.operand(result)?.tensor;
        let name = "aclnnNpuFormatCast_TransData_TransData";
        session.log.launch(device, plain_operation(name, "TransData", vec![tensor], output));
    }
    session.memory.tensor_reply(result)
}

/// CANN's number of the format.
const FRACTAL_NZ: i64 = 29;
