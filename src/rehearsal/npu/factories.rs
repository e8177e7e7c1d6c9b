//! Functions that create tensors.
//!
//! Creation launches helper kernels, as it does on a device, so that a reader that takes the n-th record for the n-th
//! call fails. Their names are those of real profiles where one was at hand
//! (`DSARandomNormal`, `Cast`, `OnesLike`, `ZerosLike`, `Range`) and plausible elsewhere.

use super::{
    api_args::{bind_signature, device_argument, int_argument},
    arguments::BoundArguments,
    element_values::ElementValues,
    launch_log::{LaunchedOperation, TaskEngine, plain_operation},
    protocol::{ApiReply, PyArguments, PyError, PyValue, runtime},
    session::ApiSession,
    tensors::{DeviceKind, KnownValues},
};
use crate::kernel::{Dtype, Tensor};

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

/// Answers a call of this module; `None` for other functions.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Option<Result<ApiReply, PyError>> {
    // A call that writes into a given buffer is the launch of a case.
    if arguments.keyword.contains_key("out") {
        return None;
    }
    let (_, signature) = FACTORIES.iter().find(|(name, _)| *name == api)?;
    Some(create(session, api, signature, arguments))
}

fn create(
    session: &mut ApiSession,
    api: &str,
    signature: &str,
    arguments: &PyArguments,
) -> Result<ApiReply, PyError> {
    let bound = bind_signature(
        &format!("{signature}, {FACTORY_KEYWORDS}"),
        &with_first_argument(api, arguments),
        &[],
    )?;
    let location = device_argument(session, bound.get("device"))?;
    if let Some(PyValue::Generator(device)) = bound.get("generator")
        && *device != location.to_string()
    {
        return Err(runtime(format!(
            "Expected a '{location}' device type for generator but found '{device}'"
        )));
    }
    let new = parse_factory(api, &bound)?;
    let dtype = match bound.get("dtype") {
        None | Some(PyValue::None) => new.default_dtype.clone(),
        Some(PyValue::Dtype(name)) => Dtype::from_torch(name)
            .ok_or_else(|| runtime(format!("rehearsal: no type is called `{name}`")))?,
        Some(other) => {
            return Err(runtime(format!("`dtype` must be a torch.dtype, not {}", other.python_type())));
        }
    };
    new.check(&dtype)?;
    let tensor = Tensor::new(new.dims.clone(), dtype);
    if let DeviceKind::Npu(_) = location {
        session.memory.check_free(location, tensor.bytes().saturating_add(new.temporary_bytes(&tensor)))?;
    }
    let contents = new.rounded_contents(&tensor.dtype, location);
    let handle = session.memory.allocate(&tensor, location, contents)?;
    if session.has_collectives() && tensor.dims.len() == 1 {
        let values = new_values(api, &tensor, bound.get("data"));
        session.memory.set_values(handle, values);
    }
    if let DeviceKind::Npu(device) = location {
        session.log.open(device);
        for operation in new.helpers(&tensor) {
            session.log.launch(device, operation);
        }
    }
    session.memory.tensor_reply(handle)
}

/// Returns the values of a new vector; `None` if they are not known.
fn new_values(api: &str, tensor: &Tensor, data: Option<&PyValue>) -> Option<ElementValues> {
    match (api, data) {
        ("torch.zeros", _) => Some(ElementValues::constant(0, tensor.element_count())),
        ("torch.ones", _) => Some(ElementValues::constant(1, tensor.element_count())),
        ("torch.tensor", Some(PyValue::List(items))) => {
            let number = |item: &PyValue| if let PyValue::Int(number) = item { Some(*number) } else { None };
            items.iter().map(number).collect::<Option<_>>().map(ElementValues::from_list)
        }
        _ => None,
    }
}

/// Inserts `low` or `start` for the overloads without it.
fn with_first_argument(api: &str, arguments: &PyArguments) -> PyArguments {
    let mut arguments = arguments.clone();
    let (first, short) = match api {
        "torch.randint" => ("low", matches!(arguments.positional.get(1), None | Some(PyValue::List(_)))),
        "torch.arange" => {
            ("start", arguments.positional.len() == 1 && !arguments.keyword.contains_key("end"))
        }
        _ => return arguments,
    };
    if short && !arguments.keyword.contains_key(first) {
        arguments.positional.insert(0, PyValue::Int(0));
    }
    arguments
}

/// Origin of a new tensor.
enum TensorOrigin {
    Memory,
    Host,
    Normal,
    Uniform,
    Kernel(&'static str, &'static str),
}

struct NewTensor {
    dims: Vec<u64>,
    default_dtype: Dtype,
    contents: KnownValues,
    origin: TensorOrigin,
}

fn parse_factory(api: &str, bound: &BoundArguments) -> Result<NewTensor, PyError> {
    let size = || dims(bound.get("size"));
    Ok(match api {
        "torch.randn" => NewTensor::new(size()?, Dtype::Float, KnownValues::Unknown, TensorOrigin::Normal),
        "torch.randint" => {
            let [low, high] = ["low", "high"].map(|name| int_argument(bound, name).unwrap_or(0));
            if low >= high {
                return Err(runtime(format!(
                    "random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
                )));
            }
            NewTensor::new(size()?, Dtype::Int64, KnownValues::Between(low, high - 1), TensorOrigin::Uniform)
        }
        "torch.ones" => {
            let origin = TensorOrigin::Kernel("OnesLike", "aclnnInplaceOne_OnesLikeAiCore_OnesLike");
            NewTensor::new(size()?, Dtype::Float, KnownValues::Between(1, 1), origin)
        }
        "torch.zeros" => {
            let origin = TensorOrigin::Kernel("ZerosLike", "aclnnInplaceZero_ZerosLikeAiCore_ZerosLike");
            NewTensor::new(size()?, Dtype::Float, KnownValues::Between(0, 0), origin)
        }
        "torch.full" => {
            let (contents, dtype) = match bound.get("fill_value") {
                Some(PyValue::Int(value)) => (KnownValues::Between(*value, *value), Dtype::Int64),
                Some(PyValue::Bool(_)) => (KnownValues::Unknown, Dtype::Bool),
                _ => (KnownValues::Unknown, Dtype::Float),
            };
            let origin = TensorOrigin::Kernel("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill");
            NewTensor::new(size()?, dtype, contents, origin)
        }
        "torch.arange" => arange(bound)?,
        "torch.tensor" => from_data(bound.get("data"))?,
        _ => NewTensor::new(size()?, Dtype::Float, KnownValues::Uninitialised, TensorOrigin::Memory),
    })
}

pub(super) fn dims(given: Option<&PyValue>) -> Result<Vec<u64>, PyError> {
    let Some(PyValue::List(items)) = given else {
        return Err(runtime("`size` must be a list of whole numbers"));
    };
    let dim = |item: &PyValue| match item {
        PyValue::Int(dim) => u64::try_from(*dim).ok(),
        _ => None,
    };
    items.iter().map(dim).collect::<Option<_>>().ok_or_else(|| {
        let size = PyValue::List(items.clone());
        runtime(format!("Trying to create tensor with negative dimension: {size}"))
    })
}

fn arange(bound: &BoundArguments) -> Result<NewTensor, PyError> {
    let origin = TensorOrigin::Kernel("Range", "aclnnArange_ArangeAiCore_Range");
    let (start, end) = (int_argument(bound, "start"), int_argument(bound, "end"));
    let step = if bound.contains_key("step") { int_argument(bound, "step") } else { Some(1) };
    let (Some(start), Some(end), Some(step)) = (start, end, step) else {
        return Err(runtime("rehearsal: arange supports whole numbers only"));
    };
    if step < 1 || end < start {
        return Err(runtime("upper bound and lower bound inconsistent with step sign"));
    }
    let length = (end - start).unsigned_abs().div_ceil(step.unsigned_abs());
    Ok(NewTensor::new(vec![length], Dtype::Int64, KnownValues::Between(start, (end - 1).max(start)), origin))
}

/// Numbers copied from the host, in a list for each dimension.
fn from_data(data: Option<&PyValue>) -> Result<NewTensor, PyError> {
    let mut dims = Vec::new();
    let mut items: Vec<&PyValue> = data.into_iter().collect();
    while let Some(PyValue::List(first)) = items.first() {
        let length = first.len();
        let inner: Option<Vec<&[PyValue]>> = items
            .iter()
            .map(|item| match item {
                PyValue::List(inner) if inner.len() == length => Some(inner.as_slice()),
                _ => None,
            })
            .collect();
        let inner = inner
            .ok_or_else(|| runtime(format!("expected sequence of length {length} at dim {}", dims.len())))?;
        dims.push(length as u64);
        items = inner.into_iter().flatten().collect();
    }
    if items.is_empty() && dims.is_empty()
        || items.iter().any(|item| !matches!(item, PyValue::Int(_) | PyValue::Float(_) | PyValue::Bool(_)))
    {
        return Err(runtime("rehearsal: torch.tensor takes numbers"));
    }
    let whole = items.iter().map(|item| if let PyValue::Int(number) = item { Some(*number) } else { None });
    let mut numbers: Vec<i64> = whole.collect::<Option<_>>().unwrap_or_default();
    let is_ascending = has_ascending_rows(&dims, &numbers);
    numbers.sort_unstable();
    let (dtype, contents) = match (numbers.first(), numbers.last()) {
        (Some(&least), Some(&most)) if is_ascending => (Dtype::Int64, KnownValues::Ascending(least, most)),
        (Some(&least), Some(&most)) if numbers.windows(2).all(|pair| pair[0] < pair[1]) => {
            (Dtype::Int64, KnownValues::Different(least, most))
        }
        (Some(&least), Some(&most)) => (Dtype::Int64, KnownValues::Between(least, most)),
        _ => (Dtype::Float, KnownValues::Unknown),
    };
    Ok(NewTensor::new(dims, dtype, contents, TensorOrigin::Host))
}

/// Returns true if the rows of a tensor of three or more dimensions ascend up to the first -1, as selected positions do.
fn has_ascending_rows(dims: &[u64], numbers: &[i64]) -> bool {
    let [_, _, .., width] = dims else { return false };
    let width = usize::try_from(*width).unwrap_or(usize::MAX).max(1);
    numbers.chunks(width).all(|row| {
        let used = row.iter().position(|number| *number == -1).unwrap_or(row.len());
        row[..used].windows(2).all(|pair| pair[0] < pair[1]) && row[used..].iter().all(|rest| *rest == -1)
    })
}

impl NewTensor {
    const fn new(dims: Vec<u64>, default_dtype: Dtype, contents: KnownValues, origin: TensorOrigin) -> Self {
        Self { dims, default_dtype, contents, origin }
    }

    /// Checks that the type can hold the values.
    fn check(&self, dtype: &Dtype) -> Result<(), PyError> {
        if matches!(self.origin, TensorOrigin::Normal) && !dtype.is_float() {
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
        match self.contents.bounds() {
            Some((low, high)) if low < least || high > most => {
                let wrong = if low < least { low } else { high };
                Err(runtime(format!("value {wrong} cannot be converted to type {dtype}: out of bounds")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes needed beside the tensor while it is filled: random numbers are made in single precision.
    fn temporary_bytes(&self, tensor: &Tensor) -> u64 {
        let is_random = matches!(self.origin, TensorOrigin::Normal | TensorOrigin::Uniform);
        let single = Tensor { dtype: Dtype::Float, ..tensor.clone() };
        if is_random && tensor.dtype != Dtype::Float { single.bytes() } else { 0 }
    }

    /// Returns the values of the tensor: a device rounds uniform numbers in single precision, also up to the bound.
    fn rounded_contents(&self, dtype: &Dtype, location: DeviceKind) -> KnownValues {
        match (self.contents, &self.origin, location) {
            (KnownValues::Between(low, high), TensorOrigin::Uniform, DeviceKind::Npu(_))
                if *dtype != Dtype::Bool =>
            {
                KnownValues::Between(low, high.saturating_add(1))
            }
            (contents, ..) => contents,
        }
    }

    /// Returns the kernels that fill the tensor.
    fn helpers(&self, tensor: &Tensor) -> Vec<LaunchedOperation> {
        match self.origin {
            TensorOrigin::Memory | TensorOrigin::Host => Vec::new(),
            TensorOrigin::Normal => random("DSARandomNormal", "aclnnInplaceNormal", tensor),
            TensorOrigin::Uniform => random("DSARandomUniform", "aclnnInplaceRandom", tensor),
            TensorOrigin::Kernel(kernel, name) => {
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

/// Kernels of random values: the generator has single precision; other types are cast from it.
fn random(kernel: &str, api: &str, tensor: &Tensor) -> Vec<LaunchedOperation> {
    let single = Tensor { dtype: Dtype::Float, ..tensor.clone() };
    let generated = LaunchedOperation {
        task: TaskEngine::Random,
        ..plain_operation(&format!("{api}_{kernel}_{kernel}"), kernel, Vec::new(), single.clone())
    };
    let mut operations = vec![generated];
    if tensor.dtype != Dtype::Float {
        let name = format!("{api}_CastAiCore_Cast");
        operations.push(plain_operation(&name, "Cast", vec![single], tensor.clone()));
    }
    operations
}
