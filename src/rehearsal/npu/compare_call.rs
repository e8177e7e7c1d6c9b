//! Compares a call with the manifest's case: tensors by shape, type, format, view, device and values, other
//! arguments by value. The first difference is the error that Python raises.

use super::{
    arguments::BoundArguments,
    process_group::ranks_of,
    protocol::{PyError, PyValue, runtime},
    tensors::{DeviceKind, KnownValues, OperandLayout, TensorMemory, TensorOperand},
};
use crate::kernel::{
    Dims,
    catalogue::{ArgumentValue, Fill, OperatorSchema, TensorArgument},
    render::ManifestCase,
};

/// Compares the arguments of a call with those of the case that the installed schema has, and returns the NPU that
/// holds the tensors. A difference is a `RuntimeError` with the argument, the manifest's value and the call's.
pub(super) fn compare_call(
    case: &ManifestCase,
    schema: &OperatorSchema,
    bound: &BoundArguments,
    memory: &TensorMemory,
) -> Result<u32, PyError> {
    let failed = |problem: String| runtime(format!("rehearsal: {}: {problem}", case.api));
    let is_expected = |name: &String| case.arguments.iter().any(|argument| argument.name == *name);
    if let Some((name, given)) =
        bound.iter().find(|(name, value)| **value != PyValue::None && !is_expected(name))
    {
        let given = describe_value(given, memory)?;
        return Err(failed(format!("`{name}`: the manifest has no such argument, the call has {given}")));
    }
    let mut device = None;
    // The installed version of an operator may lack an argument of the catalogue's.
    let is_installed = |name: &str| schema.argument(name).is_some();
    for argument in case.arguments.iter().filter(|argument| is_installed(&argument.name)) {
        let name = &argument.name;
        let given = bound.get(name).unwrap_or(&PyValue::None);
        let tensors: Vec<(String, &TensorArgument, &PyValue)> = match (&argument.value, given) {
            (ArgumentValue::Tensor(tensor) | ArgumentValue::Destination(tensor), PyValue::Tensor(_)) => {
                vec![(name.clone(), tensor, given)]
            }
            (ArgumentValue::Tensors(tensors), PyValue::List(items)) if items.len() == tensors.len() => {
                let pairs = tensors.iter().zip(items).enumerate();
                pairs.map(|(index, (tensor, item))| (format!("{name}[{index}]"), tensor, item)).collect()
            }
            (ArgumentValue::SameAs(other), PyValue::Tensor(_)) if bound.get(other) == Some(given) => continue,
            (ArgumentValue::Dtype(dtype), PyValue::Dtype(found)) if dtype == found => continue,
            (ArgumentValue::ProcessGroup(ranks), _) if ranks_of(Some(given))? == *ranks => continue,
            (ArgumentValue::Value(value), _) if is_same_value(value, given) => continue,
            (expected, _) => {
                let (expected, given) = (describe_expected(expected), describe_value(given, memory)?);
                return Err(failed(format!("`{name}`: the manifest has {expected}, the call has {given}")));
            }
        };
        for (name, expected, given) in tensors {
            let PyValue::Tensor(handle) = given else {
                let given = given.python_type();
                return Err(failed(format!("`{name}`: the manifest has a tensor, the call has {given}")));
            };
            let operand = memory.operand(*handle)?;
            let (wanted, found) = (describe_tensor(expected), describe_operand(&operand));
            if wanted != found {
                return Err(failed(format!("`{name}`: the manifest has {wanted}, the call has {found}")));
            }
            check_values(&expected.fill, operand.contents)
                .map_err(|problem| failed(format!("`{name}`: {problem}")))?;
            match (operand.location, device) {
                (DeviceKind::Npu(found), Some(first)) if found != first => {
                    return Err(runtime(format!(
                        "Expected all tensors to be on the same device, but found at least two devices, \
                         npu:{first} and npu:{found}!"
                    )));
                }
                (DeviceKind::Npu(found), _) => device = Some(found),
                (DeviceKind::Cpu, _) => {}
            }
        }
    }
    device.ok_or_else(|| failed("no argument is a tensor on an NPU".to_owned()))
}

/// Checks what is known of a tensor's values against the values that the manifest states.
fn check_values(fill: &Fill<i64, Vec<i64>>, contents: KnownValues) -> Result<(), String> {
    if contents == KnownValues::Uninitialised && *fill != Fill::Empty {
        let problem = "the values are uninitialised: they come from `torch.empty` and were never written";
        return Err(problem.to_owned());
    }
    let is_listed = matches!(fill, Fill::Listed { .. });
    let (low, high) = match fill {
        Fill::Ones => (1, 1),
        Fill::Zeros => (0, 0),
        Fill::Leading { .. } => (0, 1),
        Fill::Cumulative { total } | Fill::Counts { total } => (0, *total),
        Fill::Listed { items } => {
            let bounds = items.iter().copied().min().zip(items.iter().copied().max());
            let Some(bounds) = bounds else { return Ok(()) };
            bounds
        }
        Fill::Selection { keys, .. } => (-1, keys.iter().copied().max().unwrap_or_default() - 1),
        _ => match fill.below() {
            Some(below) => (0, below - 1),
            None => return Ok(()),
        },
    };
    let found = match contents {
        KnownValues::Between(_, _) if matches!(fill, Fill::Distinct { .. }) => {
            "values that may repeat".to_owned()
        }
        KnownValues::Between(_, _) | KnownValues::Different(_, _)
            if matches!(fill, Fill::Selection { .. }) =>
        {
            "rows that do not ascend".to_owned()
        }
        KnownValues::Between(least, most)
        | KnownValues::Different(least, most)
        | KnownValues::Ascending(least, most)
            if least >= low && most <= high && (!is_listed || (least, most) == (low, high)) =>
        {
            return Ok(());
        }
        KnownValues::Between(least, most)
        | KnownValues::Different(least, most)
        | KnownValues::Ascending(least, most) => {
            format!("values in [{least}, {most}]")
        }
        KnownValues::Unknown | KnownValues::Uninitialised => "values that are not known".to_owned(),
    };
    Err(format!("the manifest has values in [{low}, {high}], the call has {found}"))
}

fn is_same_value(expected: &serde_json::Value, given: &PyValue) -> bool {
    match given {
        PyValue::None => expected.is_null(),
        PyValue::Bool(truth) => expected.as_bool() == Some(*truth),
        PyValue::Int(number) => expected.as_i64() == Some(*number),
        // Both were parsed from decimal text, which may differ in the last bit.
        PyValue::Float(number) => expected.as_f64().is_some_and(|value| {
            value.total_cmp(number).is_eq() || (value - number).abs() <= 1e-12 * value.abs()
        }),
        PyValue::Text(text) => expected.as_str() == Some(text),
        PyValue::List(items) => expected.as_array().is_some_and(|values| {
            values.len() == items.len()
                && values.iter().zip(items).all(|(value, item)| is_same_value(value, item))
        }),
        _ => false,
    }
}

fn describe_expected(value: &ArgumentValue) -> String {
    match value {
        ArgumentValue::Tensor(tensor) | ArgumentValue::Destination(tensor) => describe_tensor(tensor),
        ArgumentValue::Tensors(tensors) => {
            format!("a list of {}", tensors.iter().map(describe_tensor).collect::<Vec<_>>().join(" and "))
        }
        ArgumentValue::SameAs(other) => format!("the tensor of `{other}`"),
        ArgumentValue::Dtype(dtype) => format!("torch.{dtype}"),
        ArgumentValue::ProcessGroup(ranks) => format!("a group of {ranks} ranks"),
        ArgumentValue::Value(value) => value.to_string(),
    }
}

fn describe_value(given: &PyValue, memory: &TensorMemory) -> Result<String, PyError> {
    Ok(match given {
        PyValue::Tensor(handle) => describe_operand(&memory.operand(*handle)?),
        PyValue::Dtype(name) => format!("torch.{name}"),
        PyValue::List(items) if items.iter().any(|item| matches!(item, PyValue::Tensor(_))) => {
            let items = items.iter().map(|item| describe_value(item, memory));
            format!("a list of {}", items.collect::<Result<Vec<_>, _>>()?.join(" and "))
        }
        other => other.to_string(),
    })
}

fn describe_tensor(tensor: &TensorArgument) -> String {
    let layout = if tensor.transposed { OperandLayout::Transposed } else { OperandLayout::Contiguous };
    describe(&tensor.dtype, &tensor.shape, tensor.format.as_deref(), layout, tensor.on_host)
}

fn describe_operand(operand: &TensorOperand) -> String {
    let TensorOperand { tensor, dims, layout, location, .. } = operand;
    let dtype = tensor.dtype.torch_name().unwrap_or_default();
    describe(dtype, dims, tensor.format.private(), *layout, *location == DeviceKind::Cpu)
}

/// Describes a tensor, such as `a contiguous bfloat16[64,7168] on the NPU`; two that differ have different texts.
fn describe(dtype: &str, dims: &[u64], format: Option<&str>, layout: OperandLayout, on_host: bool) -> String {
    let layout = match layout {
        OperandLayout::Contiguous => "a contiguous",
        OperandLayout::Transposed => "a transposed view of a",
        OperandLayout::Permuted => "a view in another order of a",
    };
    let format = format.map(|format| format!(" in {format}")).unwrap_or_default();
    let place = if on_host { "host" } else { "NPU" };
    format!("{layout} {dtype}[{}]{format} on the {place}", Dims(dims))
}
