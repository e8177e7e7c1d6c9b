//! Calls that a replay makes besides its kernels: devices, views, sentinels, and scaling in place.

use super::{
    arguments::{Bound, bind},
    factories,
    protocol::{Arguments, Given, Raised, Reply, runtime},
    session::{Session, plain_operation},
    tensors::{Contents, Handle, Layout, Memory, Operand, Place},
};
use crate::{
    catalogue::Schema,
    domain::{Dtype, Tensor},
};

/// Answers a call of this module or of [`factories`]; `None` where the function is none of theirs.
pub(super) fn call(session: &mut Session, api: &str, arguments: &Arguments) -> Option<Result<Reply, Raised>> {
    let answer = match api {
        "torch.npu.set_device" => set_device(session, arguments),
        "torch.npu.synchronize" | "torch.npu.empty_cache" | "torch.npu.manual_seed" | "torch.manual_seed" => {
            Ok(Reply::Nothing)
        }
        "torch.npu.device_count" => Ok(Reply::Int(u64::from(session.devices))),
        "torch.npu.current_device" => Ok(Reply::Int(u64::from(session.current))),
        "torch.npu.is_available" => Ok(Reply::Bool(session.devices > 0)),
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

pub(super) fn bound(signature: &str, arguments: &Arguments, numbers: &[&str]) -> Result<Bound, Raised> {
    let schema = Schema::parse(signature).map_err(|error| runtime(format!("rehearsal: {error}")))?;
    bind(&schema, arguments, numbers)
}

fn handle(bound: &Bound, name: &str) -> Result<Handle, Raised> {
    match bound.get(name) {
        Some(Given::Tensor(handle)) => Ok(*handle),
        _ => Err(runtime(format!("`{name}` must be a tensor"))),
    }
}

pub(super) fn int(bound: &Bound, name: &str) -> Option<i64> {
    if let Some(Given::Int(number)) = bound.get(name) { Some(*number) } else { None }
}

fn set_device(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("set_device(Device device) -> ()", arguments, &[])?;
    let place = match bound.get("device") {
        Some(Given::Int(number)) => Place::Npu(u32::try_from(*number).unwrap_or(u32::MAX)),
        given => place(session, given)?,
    };
    let Place::Npu(device) = place else {
        return Err(runtime("set_device: expected an NPU, not the CPU"));
    };
    check_device(session, device)?;
    session.current = device;
    session.tape.open(device);
    Ok(Reply::Nothing)
}

fn store_set(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("store_set(str key, str value) -> ()", arguments, &[])?;
    if let (Some(Given::Text(key)), Some(Given::Text(value))) = (bound.get("key"), bound.get("value")) {
        session.group().set(key, value);
    }
    Ok(Reply::Nothing)
}

/// Nothing where nobody has set the key so far.
fn store_get(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("store_get(str key) -> str", arguments, &[])?;
    let Some(Given::Text(key)) = bound.get("key") else { return Ok(Reply::Nothing) };
    Ok(session.group().get(key).map_or(Reply::Nothing, Reply::Text))
}

fn check_device(session: &Session, device: u32) -> Result<(), Raised> {
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
pub(super) fn place(session: &Session, given: Option<&Given>) -> Result<Place, Raised> {
    let text = match given {
        None | Some(Given::None) => return Ok(Place::Cpu),
        Some(Given::Text(text)) => text.as_str(),
        Some(other) => return Err(runtime(format!("rehearsal: a device is named by a text, not {other}"))),
    };
    let index = match text.split_once(':') {
        Some(("npu", index)) => index.parse().ok(),
        None if text == "npu" => Some(session.current),
        None if text == "cpu" => return Ok(Place::Cpu),
        _ => None,
    };
    let device = index.ok_or_else(|| {
        let why = if text == "meta" { "meta tensors need the vendor's own torch" } else { "no such device" };
        runtime(format!("rehearsal: `{text}`: {why}"))
    })?;
    check_device(session, device)?;
    Ok(Place::Npu(device))
}

/// A tensor argument that a kernel reads.
fn readable(session: &Session, api: &str, handle: Handle) -> Result<Operand, Raised> {
    let operand = session.memory.operand(handle)?;
    if operand.contents == Contents::Uninitialised {
        return Err(runtime(format!("rehearsal: {api}: uninitialised input: nothing wrote the tensor")));
    }
    Ok(operand)
}

/// Whether a call of `torch.neg` is one that a sentinel could be: of whole numbers, which its entry refuses.
fn is_sentinel(session: &Session, arguments: &Arguments) -> bool {
    let given = arguments.positional.first().or_else(|| arguments.keyword.get("self"));
    let operand = given.and_then(|given| Memory::handles(given).first().copied());
    let operand = operand.and_then(|handle| session.memory.operand(handle).ok());
    operand.is_none_or(|operand| operand.tensor.dtype == Dtype::Int32 || operand.place == Place::Cpu)
}

/// `torch.neg`, which the sentinels are.
fn negate(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("neg(Tensor self) -> Tensor", arguments, &[])?;
    let Operand { tensor, place, .. } = readable(session, "torch.neg", handle(&bound, "self")?)?;
    if tensor.dtype == Dtype::Bool {
        return Err(runtime("Negation, the `-` operator, on a bool tensor is not supported."));
    }
    let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
    let result = session.memory.allocate(&output, place, Contents::Unknown)?;
    if let Place::Npu(device) = place {
        if let ([length], Dtype::Int32) = (tensor.dims.as_slice(), &tensor.dtype) {
            session.tape.sentinel(*length);
        }
        session.tape.launch(device, plain_operation("aclnnNeg_Neg_Neg", "Neg", vec![tensor], output));
    }
    Ok(Reply::Tensor(session.memory.describe(result)?))
}

/// `tensor.mul_(number)`: `Mul` with a scalar in single precision, `Muls` in 16 bits, as real profiles
/// have it.
fn scale(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("mul_(Tensor self, Tensor other) -> Tensor", arguments, &["other"])?;
    let target = handle(&bound, "self")?;
    let Operand { tensor, place, .. } = readable(session, "torch.Tensor.mul_", target)?;
    match bound.get("other") {
        Some(Given::Tensor(_)) => return Err(runtime("rehearsal: mul_ knows numbers only")),
        Some(Given::Float(_)) if !tensor.dtype.is_float() => {
            let dtype = &tensor.dtype;
            return Err(runtime(format!(
                "result type Float can't be cast to the desired output type {dtype}"
            )));
        }
        _ => session.memory.write(target, Contents::Unknown),
    }
    if let Place::Npu(device) = place {
        let output = Tensor::new(tensor.dims.clone(), tensor.dtype.clone());
        let operation = if tensor.dtype == Dtype::Float {
            let inputs = vec![tensor, Tensor::new([], Dtype::Float)];
            plain_operation("aclnnInplaceMuls_MulAiCore_Mul", "Mul", inputs, output)
        } else {
            plain_operation("aclnnInplaceMuls_Muls_Muls", "Muls", vec![tensor], output)
        };
        session.tape.launch(device, operation);
    }
    Ok(Reply::Same(target))
}

fn transpose(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("transpose(Tensor self, int dim0, int dim1) -> Tensor", arguments, &[])?;
    let (first, second) = (int(&bound, "dim0").unwrap_or(0), int(&bound, "dim1").unwrap_or(0));
    let view = session.memory.transposed(handle(&bound, "self")?, first, second)?;
    Ok(Reply::Tensor(session.memory.describe(view)?))
}

fn matrix_transpose(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("t(Tensor self) -> Tensor", arguments, &[])?;
    let tensor = handle(&bound, "self")?;
    let rank = session.memory.describe(tensor)?.shape.len();
    if rank != 2 {
        return Err(runtime(format!("t() expects a tensor with 2 dimensions, but self is {rank}D")));
    }
    let view = session.memory.transposed(tensor, 0, 1)?;
    Ok(Reply::Tensor(session.memory.describe(view)?))
}

/// `torch.triu` on the host, which causal masks are made by.
fn upper_triangle(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("triu(Tensor self, int diagonal=0) -> Tensor", arguments, &[])?;
    let Operand { tensor, place, .. } = readable(session, "torch.triu", handle(&bound, "self")?)?;
    if place != Place::Cpu {
        return Err(runtime("rehearsal: triu is known on the host only"));
    }
    let output = Tensor::new(tensor.dims, tensor.dtype);
    let result = session.memory.allocate(&output, place, Contents::Unknown)?;
    Ok(Reply::Tensor(session.memory.describe(result)?))
}

/// `tensor.to(device)`: a copy there, which launches no kernel.
fn moved(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("to(Tensor self, Device device) -> Tensor", arguments, &[])?;
    let Operand { tensor, dims, contents, .. } = readable(session, "to", handle(&bound, "self")?)?;
    let place = place(session, bound.get("device"))?;
    let result = session.memory.allocate(&Tensor::new(dims, tensor.dtype), place, contents)?;
    Ok(Reply::Tensor(session.memory.describe(result)?))
}

/// `npu_format_cast(tensor, 29)`: the same values in FRACTAL_NZ.
fn blocked(session: &mut Session, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound("npu_format_cast(Tensor self, int acl_format) -> Tensor", arguments, &[])?;
    let source = handle(&bound, "self")?;
    let Operand { tensor, dims, place, contents, layout } = readable(session, "npu_format_cast", source)?;
    if int(&bound, "acl_format") != Some(FRACTAL_NZ) {
        return Err(runtime("rehearsal: npu_format_cast knows FRACTAL_NZ (29) only"));
    }
    if layout != Layout::Contiguous {
        return Err(runtime(
            "rehearsal: npu_format_cast of a view would block the view, not what lies in memory",
        ));
    }
    let plain = Tensor::new(dims, tensor.dtype.clone());
    let result = session.memory.allocate(&plain, place, contents)?;
    session.memory.block(result)?;
    if let Place::Npu(device) = place {
        let output = session.memory.operand(result)?.tensor;
        let name = "aclnnNpuFormatCast_TransData_TransData";
        session.tape.launch(device, plain_operation(name, "TransData", vec![tensor], output));
    }
    Ok(Reply::Tensor(session.memory.describe(result)?))
}

/// CANN's number of the format.
const FRACTAL_NZ: i64 = 29;
