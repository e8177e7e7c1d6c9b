//! Calls that a replay makes besides its kernels: devices, creation of tensors, views, sentinels.
//!
//! Creation launches helper kernels, as it does on a device, so that whoever takes the n-th record
//! for the n-th call is found out. Their names are those of real profiles where one was at hand
//! (`DSARandomNormal`, `Cast`, `OnesLike`, `Range`, `Mul` and `Muls`) and plausible elsewhere.

use super::{
    arguments::{Bound, bind},
    memory::{Contents, Handle, Operand, Place},
    session::{Session, plain_operation},
    tape::{Operation, Task},
    wire::{Arguments, Given, Raised, Reply, runtime},
};
use crate::{
    model::{Dtype, Tensor},
    spec::Schema,
};

/// How tensors come about, and the signatures of the functions that make them.
const FACTORIES: [(&str, &str); 8] = [
    ("torch.randn", "randn(int[] size"),
    ("torch.randint", "randint(int low, int high, int[] size"),
    ("torch.empty", "empty(int[] size"),
    ("torch.ones", "ones(int[] size"),
    ("torch.zeros", "zeros(int[] size"),
    ("torch.full", "full(int[] size, Scalar fill_value"),
    ("torch.arange", "arange(Scalar start, Scalar end, Scalar step=1"),
    ("torch.tensor", "tensor(Data data"),
];
const FACTORY_KEYWORDS: &str = "*, Generator? generator=None, Tensor? out=None, ScalarType? dtype=None, \
     Layout? layout=None, Device? device=None, bool? requires_grad=False, bool? pin_memory=False) -> Tensor";

/// Answers a call of this module; `None` where the function is none of its.
pub(super) fn call(session: &mut Session, api: &str, arguments: &Arguments) -> Option<Result<Reply, Raised>> {
    if let Some((_, signature)) = FACTORIES.iter().find(|(name, _)| *name == api) {
        return Some(create(session, api, signature, arguments));
    }
    let answer = match api {
        "torch.npu.set_device" => set_device(session, arguments),
        "torch.npu.synchronize" | "torch.npu.empty_cache" | "torch.npu.manual_seed" | "torch.manual_seed" => {
            Ok(Reply::Nothing)
        }
        "torch.npu.device_count" => Ok(Reply::Int(u64::from(session.devices))),
        "torch.npu.current_device" => Ok(Reply::Int(u64::from(session.current))),
        "torch.npu.is_available" => Ok(Reply::Bool(session.devices > 0)),
        "torch.neg" => negate(session, arguments),
        "torch.Tensor.mul_" => scale(session, arguments),
        "torch.transpose" | "torch.Tensor.transpose" => transpose(session, arguments),
        "torch.t" | "torch.Tensor.t" => matrix_transpose(session, arguments),
        _ => return None,
    };
    Some(answer)
}

fn bound(signature: &str, arguments: &Arguments, numbers: &[&str]) -> Result<Bound, Raised> {
    let schema = Schema::parse(signature).map_err(|error| runtime(format!("rehearsal: {error}")))?;
    bind(&schema, arguments, numbers)
}

fn handle(bound: &Bound, name: &str) -> Result<Handle, Raised> {
    match bound.get(name) {
        Some(Given::Tensor(handle)) => Ok(*handle),
        _ => Err(runtime(format!("`{name}` must be a tensor"))),
    }
}

fn int(bound: &Bound, name: &str) -> Option<i64> {
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
fn place(session: &Session, given: Option<&Given>) -> Result<Place, Raised> {
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

fn create(session: &mut Session, api: &str, signature: &str, arguments: &Arguments) -> Result<Reply, Raised> {
    let bound = bound(&format!("{signature}, {FACTORY_KEYWORDS}"), &filled_up(api, arguments), &[])?;
    let place = place(session, bound.get("device"))?;
    if let Some(Given::Generator(device)) = bound.get("generator")
        && *device != place.to_string()
    {
        return Err(runtime(format!("Expected a '{place}' device type for generator but found '{device}'")));
    }
    let made = made(api, &bound)?;
    let dtype = match bound.get("dtype") {
        None | Some(Given::None) => made.default_dtype.clone(),
        Some(Given::Dtype(name)) => Dtype::from_torch(name)
            .ok_or_else(|| runtime(format!("rehearsal: no type is called `{name}`")))?,
        Some(other) => {
            return Err(runtime(format!("`dtype` must be a torch.dtype, not {}", other.python_type())));
        }
    };
    made.check(&dtype)?;
    let tensor = Tensor::new(made.dims.clone(), dtype);
    let handle = session.memory.allocate(&tensor, place, made.contents)?;
    if let Place::Npu(device) = place {
        session.tape.open(device);
        for operation in made.helpers(&tensor) {
            session.tape.launch(device, operation);
        }
    }
    Ok(Reply::Tensor(session.memory.describe(handle)?))
}

/// The overloads that leave `low` or `start` out get it.
fn filled_up(api: &str, arguments: &Arguments) -> Arguments {
    let mut arguments = arguments.clone();
    let (first, short) = match api {
        "torch.randint" => ("low", matches!(arguments.positional.get(1), None | Some(Given::List(_)))),
        "torch.arange" => {
            ("start", arguments.positional.len() == 1 && !arguments.keyword.contains_key("end"))
        }
        _ => return arguments,
    };
    if short && !arguments.keyword.contains_key(first) {
        arguments.positional.insert(0, Given::Int(0));
    }
    arguments
}

/// How a new tensor comes about.
enum Origin {
    Memory,
    Host,
    Normal,
    Uniform,
    Kernel(&'static str, &'static str),
}

struct Made {
    dims: Vec<u64>,
    default_dtype: Dtype,
    contents: Contents,
    origin: Origin,
}

fn made(api: &str, bound: &Bound) -> Result<Made, Raised> {
    let size = || dims(bound.get("size"));
    Ok(match api {
        "torch.randn" => Made::new(size()?, Dtype::Float, Contents::Unknown, Origin::Normal),
        "torch.randint" => {
            let (low, high) = (int(bound, "low").unwrap_or(0), int(bound, "high").unwrap_or(0));
            if low >= high {
                return Err(runtime(format!(
                    "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
                )));
            }
            Made::new(size()?, Dtype::Int64, Contents::Between(low, high - 1), Origin::Uniform)
        }
        "torch.ones" => {
            let origin = Origin::Kernel("OnesLike", "aclnnInplaceOne_OnesLikeAiCore_OnesLike");
            Made::new(size()?, Dtype::Float, Contents::Between(1, 1), origin)
        }
        "torch.zeros" => {
            let origin = Origin::Kernel("ZerosLike", "aclnnInplaceZero_ZerosLikeAiCore_ZerosLike");
            Made::new(size()?, Dtype::Float, Contents::Between(0, 0), origin)
        }
        "torch.full" => {
            let (contents, dtype) = match bound.get("fill_value") {
                Some(Given::Int(value)) => (Contents::Between(*value, *value), Dtype::Int64),
                Some(Given::Bool(_)) => (Contents::Unknown, Dtype::Bool),
                _ => (Contents::Unknown, Dtype::Float),
            };
            let origin = Origin::Kernel("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill");
            Made::new(size()?, dtype, contents, origin)
        }
        "torch.arange" => arange(bound)?,
        "torch.tensor" => from_data(bound.get("data"))?,
        _ => Made::new(size()?, Dtype::Float, Contents::Uninitialised, Origin::Memory),
    })
}

fn dims(given: Option<&Given>) -> Result<Vec<u64>, Raised> {
    let Some(Given::List(items)) = given else {
        return Err(runtime("`size` must be a list of whole numbers"));
    };
    let dim = |item: &Given| match item {
        Given::Int(dim) => u64::try_from(*dim).ok(),
        _ => None,
    };
    items.iter().map(dim).collect::<Option<_>>().ok_or_else(|| {
        let size = Given::List(items.clone());
        runtime(format!("Trying to create tensor with negative dimension: {size}"))
    })
}

fn arange(bound: &Bound) -> Result<Made, Raised> {
    let origin = Origin::Kernel("Range", "aclnnArange_ArangeAiCore_Range");
    let (start, end) = (int(bound, "start"), int(bound, "end"));
    let step = if bound.contains_key("step") { int(bound, "step") } else { Some(1) };
    let (Some(start), Some(end), Some(step)) = (start, end, step) else {
        return Err(runtime("rehearsal: arange knows whole numbers only"));
    };
    if step < 1 || end < start {
        return Err(runtime("upper bound and lower bound inconsistent with step sign"));
    }
    let length = (end - start).unsigned_abs().div_ceil(step.unsigned_abs());
    Ok(Made::new(vec![length], Dtype::Int64, Contents::Between(start, (end - 1).max(start)), origin))
}

/// Numbers copied from the host.
fn from_data(data: Option<&Given>) -> Result<Made, Raised> {
    let items = match data {
        Some(Given::List(items)) => items.as_slice(),
        Some(single @ (Given::Int(_) | Given::Float(_) | Given::Bool(_))) => std::slice::from_ref(single),
        _ => return Err(runtime("rehearsal: torch.tensor takes a number or a flat list of numbers")),
    };
    let dims = if matches!(data, Some(Given::List(_))) { vec![items.len() as u64] } else { Vec::new() };
    let whole: Option<Vec<i64>> =
        items.iter().map(|item| if let Given::Int(number) = item { Some(*number) } else { None }).collect();
    let numbers = whole.as_deref().unwrap_or_default();
    let (dtype, contents) = match (numbers.iter().min(), numbers.iter().max()) {
        (Some(&least), Some(&most)) => (Dtype::Int64, Contents::Between(least, most)),
        _ => (Dtype::Float, Contents::Unknown),
    };
    Ok(Made::new(dims, dtype, contents, Origin::Host))
}

impl Made {
    fn new(dims: Vec<u64>, default_dtype: Dtype, contents: Contents, origin: Origin) -> Self {
        Self { dims, default_dtype, contents, origin }
    }

    /// Whether values of that kind exist in that type.
    fn check(&self, dtype: &Dtype) -> Result<(), Raised> {
        if matches!(self.origin, Origin::Normal) && !dtype.is_float() {
            return Err(runtime(format!("\"normal_kernel\" not implemented for '{dtype}'")));
        }
        let (least, most) = match dtype {
            Dtype::Bool => (0, 1),
            Dtype::Uint8 => (0, 255),
            Dtype::Int8 => (-128, 127),
            Dtype::Int16 => (-32_768, 32_767),
            Dtype::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => return Ok(()),
        };
        match self.contents {
            Contents::Between(low, high) if low < least || high > most => {
                let wrong = if low < least { low } else { high };
                Err(runtime(format!("value {wrong} cannot be converted to type {dtype}: out of bounds")))
            }
            _ => Ok(()),
        }
    }

    /// The kernels that fill a tensor of that kind.
    fn helpers(&self, tensor: &Tensor) -> Vec<Operation> {
        match self.origin {
            Origin::Memory | Origin::Host => Vec::new(),
            Origin::Normal => random("DSARandomNormal", "aclnnInplaceNormal", tensor),
            Origin::Uniform => random("DSARandomUniform", "aclnnInplaceRandom", tensor),
            Origin::Kernel(kernel, name) => {
                let inputs = match kernel {
                    "Range" => vec![Tensor::new([], Dtype::Double); 3],
                    "Fill" => {
                        let rank = tensor.dims.len() as u64;
                        vec![Tensor::new([rank], Dtype::Int64), Tensor::new([], tensor.dtype.clone())]
                    }
                    _ => vec![tensor.clone()],
                };
                vec![plain_operation(name, kernel, inputs, tensor.clone())]
            }
        }
    }
}

/// The generator makes single precision; other types are cast from it.
fn random(kernel: &str, api: &str, tensor: &Tensor) -> Vec<Operation> {
    let single = Tensor { dtype: Dtype::Float, ..tensor.clone() };
    let generated = Operation {
        task: Task::Random,
        ..plain_operation(&format!("{api}_{kernel}_{kernel}"), kernel, Vec::new(), single.clone())
    };
    let mut operations = vec![generated];
    if tensor.dtype != Dtype::Float {
        operations.push(plain_operation(
            &format!("{api}_CastAiCore_Cast"),
            "Cast",
            vec![single],
            tensor.clone(),
        ));
    }
    operations
}

/// A tensor argument that a kernel reads.
fn readable(session: &Session, api: &str, handle: Handle) -> Result<Operand, Raised> {
    let operand = session.memory.operand(handle)?;
    if operand.contents == Contents::Uninitialised {
        return Err(runtime(format!("rehearsal: {api}: uninitialised input: nothing wrote the tensor")));
    }
    Ok(operand)
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
