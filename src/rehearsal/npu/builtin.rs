//! Calls that a replay makes besides its kernels: devices, views, sentinels, and scaling in place.

use super::{
    arguments::{BoundArguments, bind},
    factories,
    protocol::{ApiReply, PyArguments, PyError, PyValue, runtime},
    session::{ApiSession, plain_operation},
    tensors::{DeviceKind, KnownValues, OperandLayout, TensorHandle, TensorMemory, TensorOperand},
};
use crate::{
    catalogue::OperatorSchema,
    domain::{Dtype, Tensor},
};

/// Answers a call of this module or of [`factories`]; `None` where the function is none of theirs.
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
        "torch.npu.device_count" => Ok(ApiReply::Int(u64::from(session.devices))),
        "torch.npu.current_device" => Ok(ApiReply::Int(u64::from(session.current))),
        "torch.npu.is_available" => Ok(ApiReply::Bool(session.devices > 0)),
        "torch.distributed.store_set" => store_set(session, arguments),
        "torch.distributed.store_get" => store_get(session, arguments),
        "torch.neg" if is_sentinel(session, arguments) => negate(session, arguments),
        "torch.Tensor.mul_" => scale(session, arguments),
        "torch.transpose" | "torch.Tensor.transpose" => transpose(session, arguments),
        "torch.t" | "torch.Tensor.t" => matrix_transpose(session, arguments),
        "torch.triu" => upper_triangle(session, arguments),
        "torch.Tensor.to" => moved(session, arguments),
        "torch_npu.npu_format_cast" => blocked(session, arguments),
        _ => return factories::call(session, api, arguments),
    };
    Some(answer)
}

pub(super) fn bound(
    signature: &str,
    arguments: &PyArguments,
    numbers: &[&str],
) -> Result<BoundArguments, PyError> {
    let schema = OperatorSchema::parse(signature).map_err(|error| runtime(format!("rehearsal: {error}")))?;
    bind(&schema, arguments, numbers)
}

fn handle(bound: &BoundArguments, name: &str) -> Result<TensorHandle, PyError> {
    match bound.get(name) {
        Some(PyValue::Tensor(handle)) => Ok(*handle),
        _ => Err(runtime(format!("`{name}` must be a tensor"))),
    }
}

pub(super) fn int(bound: &BoundArguments, name: &str) -> Option<i64> {
    if let Some(PyValue::Int(number)) = bound.get(name) { Some(*number) } else { None }
}

fn set_device(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("set_device(Device device) -> ()", arguments, &[])?;
    let place = match bound.get("device") {
        Some(PyValue::Int(number)) => DeviceKind::Npu(u32::try_from(*number).unwrap_or(u32::MAX)),
        given => place(session, given)?,
    };
    let DeviceKind::Npu(device) = place else {
        return Err(runtime("set_device: expected an NPU, not the CPU"));
    };
    check_device(session, device)?;
    session.current = device;
    session.tape.open(device);
    Ok(ApiReply::Nothing)
}

fn store_set(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("store_set(str key, str value) -> ()", arguments, &[])?;
    if let (Some(PyValue::Text(key)), Some(PyValue::Text(value))) = (bound.get("key"), bound.get("value")) {
        session.group().set(key, value);
    }
    Ok(ApiReply::Nothing)
}

/// Nothing where nobody has set the key so far.
fn store_get(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("store_get(str key) -> str", arguments, &[])?;
    let Some(PyValue::Text(key)) = bound.get("key") else { return Ok(ApiReply::Nothing) };
    Ok(session.group().get(key).map_or(ApiReply::Nothing, ApiReply::Text))
}

fn check_device(session: &ApiSession, device: u32) -> Result<(), PyError> {
    if device < session.devices {
        return Ok(());
    }
    Err(runtime(format!(
        "SetDevice: NPU function error: aclrtSetDevice({device}), error code is 107001. [Error]: Invalid device ID. \
         Check whether the device ID is valid. (the rehearsal host has {} devices)",
        session.devices
    )))
}

/// `npu:3`, `npu`, `cpu` or nothing.
pub(super) fn place(session: &ApiSession, given: Option<&PyValue>) -> Result<DeviceKind, PyError> {
    let text = match given {
        None | Some(PyValue::None) => return Ok(DeviceKind::Cpu),
        Some(PyValue::Text(text)) => text.as_str(),
        Some(other) => return Err(runtime(format!("rehearsal: a device is named by a text, not {other}"))),
    };
    let index = match text.split_once(':') {
        Some(("npu", index)) => index.parse().ok(),
        None if text == "npu" => Some(session.current),
        None if text == "cpu" => return Ok(DeviceKind::Cpu),
        _ => None,
    };
    let device = index.ok_or_else(|| {
        let why = if text == "meta" { "meta tensors need the vendor's own torch" } else { "no such device" };
        runtime(format!("rehearsal: `{text}`: {why}"))
    })?;
    check_device(session, device)?;
    Ok(DeviceKind::Npu(device))
}

/// A tensor argument that a kernel reads.
fn readable(session: &ApiSession, api: &str, handle: TensorHandle) -> Result<TensorOperand, PyError> {
    let operand = session.memory.operand(handle)?;
    if operand.contents == KnownValues::Uninitialised {
        return Err(runtime(format!("rehearsal: {api}: uninitialised input: nothing wrote the tensor")));
    }
    Ok(operand)
}

/// Whether a call of `torch.neg` is one that a sentinel could be: of whole numbers, which its entry refuses.
fn is_sentinel(session: &ApiSession, arguments: &PyArguments) -> bool {
    let given = arguments.positional.first().or_else(|| arguments.keyword.get("self"));
    let operand = given.and_then(|given| TensorMemory::handles(given).first().copied());
    let operand = operand.and_then(|handle| session.memory.operand(handle).ok());
    operand.is_none_or(|operand| operand.tensor.dtype == Dtype::Int32 || operand.place == DeviceKind::Cpu)
}

/// `torch.neg`, which the sentinels are.
fn negate(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("neg(Tensor self) -> Tensor", arguments, &[])?;
    let TensorOperand { tensor, place, .. } = readable(session, "torch.neg", handle(&bound, "self")?)?;
    if tensor.dtype == Dtype::Bool {
        return Err(runtime("Negation, the `-` operator, on a bool tensor is not supported."));
    }
    let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
    let result = session.memory.allocate(&output, place, KnownValues::Unknown)?;
    if let DeviceKind::Npu(device) = place {
        if let ([length], Dtype::Int32) = (tensor.dims.as_slice(), &tensor.dtype) {
            session.tape.sentinel(*length);
        }
        session.tape.launch(device, plain_operation("aclnnNeg_Neg_Neg", "Neg", vec![tensor], output));
    }
    Ok(ApiReply::Tensor(session.memory.describe(result)?))
}

/// `tensor.mul_(number)`: `Mul` with a scalar in single precision, `Muls` in 16 bits, as real profiles
/// have it.
fn scale(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("mul_(Tensor self, Tensor other) -> Tensor", arguments, &["other"])?;
    let target = handle(&bound, "self")?;
    let TensorOperand { tensor, place, .. } = readable(session, "torch.Tensor.mul_", target)?;
    match bound.get("other") {
        Some(PyValue::Tensor(_)) => return Err(runtime("rehearsal: mul_ knows numbers only")),
        Some(PyValue::Float(_)) if !tensor.dtype.is_float() => {
            let dtype = &tensor.dtype;
            return Err(runtime(format!(
                "result type Float can't be cast to the desired output type {dtype}"
            )));
        }
        _ => session.memory.write(target, KnownValues::Unknown),
    }
    if let DeviceKind::Npu(device) = place {
        let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
        let operation = if tensor.dtype == Dtype::Float {
            let inputs = vec![tensor, Tensor::new([], Dtype::Float)];
            plain_operation("aclnnInplaceMuls_MulAiCore_Mul", "Mul", inputs, output)
        } else {
            plain_operation("aclnnInplaceMuls_Muls_Muls", "Muls", vec![tensor], output)
        };
        session.tape.launch(device, operation);
    }
    Ok(ApiReply::Same(target))
}

fn transpose(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("transpose(Tensor self, int dim0, int dim1) -> Tensor", arguments, &[])?;
    let (first, second) = (int(&bound, "dim0").unwrap_or(0), int(&bound, "dim1").unwrap_or(0));
    let view = session.memory.transposed(handle(&bound, "self")?, first, second)?;
    Ok(ApiReply::Tensor(session.memory.describe(view)?))
}

fn matrix_transpose(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("t(Tensor self) -> Tensor", arguments, &[])?;
    let tensor = handle(&bound, "self")?;
    let rank = session.memory.describe(tensor)?.shape.len();
    if rank != 2 {
        return Err(runtime(format!("t() expects a tensor with 2 dimensions, but self is {rank}D")));
    }
    let view = session.memory.transposed(tensor, 0, 1)?;
    Ok(ApiReply::Tensor(session.memory.describe(view)?))
}

/// `torch.triu` on the host, which causal masks are made by.
fn upper_triangle(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("triu(Tensor self, int diagonal=0) -> Tensor", arguments, &[])?;
    let TensorOperand { tensor, place, .. } = readable(session, "torch.triu", handle(&bound, "self")?)?;
    if place != DeviceKind::Cpu {
        return Err(runtime("rehearsal: triu is known on the host only"));
    }
    let output = Tensor::new(tensor.dims, tensor.dtype);
    let result = session.memory.allocate(&output, place, KnownValues::Unknown)?;
    Ok(ApiReply::Tensor(session.memory.describe(result)?))
}

/// `tensor.to(device)`: a copy there, which launches no kernel.
fn moved(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("to(Tensor self, Device device) -> Tensor", arguments, &[])?;
    let TensorOperand { tensor, dims, contents, .. } = readable(session, "to", handle(&bound, "self")?)?;
    let place = place(session, bound.get("device"))?;
    let result = session.memory.allocate(&Tensor::new(dims, tensor.dtype), place, contents)?;
    Ok(ApiReply::Tensor(session.memory.describe(result)?))
}

/// `npu_format_cast(tensor, 29)`: the same values in FRACTAL_NZ.
fn blocked(session: &mut ApiSession, arguments: &PyArguments) -> Result<ApiReply, PyError> {
    let bound = bound("npu_format_cast(Tensor self, int acl_format) -> Tensor", arguments, &[])?;
    let source = handle(&bound, "self")?;
    let TensorOperand { tensor, dims, place, contents, layout } =
        readable(session, "npu_format_cast", source)?;
    if int(&bound, "acl_format") != Some(FRACTAL_NZ) {
        return Err(runtime("rehearsal: npu_format_cast knows FRACTAL_NZ (29) only"));
    }
    if layout != OperandLayout::Contiguous {
        return Err(runtime(
            "rehearsal: npu_format_cast of a view would block the view, not what lies in memory",
        ));
    }
    let plain = Tensor::new(dims, tensor.dtype.clone());
    let result = session.memory.allocate(&plain, place, contents)?;
    session.memory.block(result)?;
    if let DeviceKind::Npu(device) = place {
        let output = session.memory.operand(result)?.tensor;
        let name = "aclnnNpuFormatCast_TransData_TransData";
        session.tape.launch(device, plain_operation(name, "TransData", vec![tensor], output));
    }
    Ok(ApiReply::Tensor(session.memory.describe(result)?))
}

/// CANN's number of the format.
const FRACTAL_NZ: i64 = 29;
