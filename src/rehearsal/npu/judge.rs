//! Judges a call by an entry of the catalogue: names, types, places, values, shapes.
//!
//! Stricter than the real torch_npu where the catalogue is: a call that a real device would take and
//! the entry does not describe is refused, so that the night finds no surprise.

use super::{
    arguments::{Bound, bind},
    forms::{Slot, fitting_form, layout_words},
    memory::{Contents, Handle, Layout, Memory, Operand, Place},
    wire::{Arguments, Given, Raised, runtime},
};
use crate::{
    model::{Attributes, Case, Dtype, Tensor},
    spec::{Argument, Bindings, Entry, InputSlot, Values, Work},
};

/// A call that may be launched.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) device: u32,
    pub(super) inputs: Vec<Tensor>,
    pub(super) outputs: Vec<Tensor>,
    /// Outputs that the caller provides, by their place.
    pub(super) destinations: Vec<(usize, Handle)>,
    pub(super) work: Work,
}

/// Judges a call.
pub(super) fn judge(entry: &Entry, arguments: &Arguments, memory: &Memory) -> Result<Accepted, Raised> {
    let bound = bind(&entry.schema, arguments, &numbers_allowed(entry))?;
    let operands = Operands::new(entry, &bound, memory)?;
    let device = operands.device()?;
    check_constants(entry, &bound)?;
    let slots = slots(entry, &bound, &operands)?;
    let fitting = fitting_form(entry, &bound, &slots)?;
    check_indices(entry, &slots, &fitting.bindings)?;
    let inputs: Vec<&Tensor> = fitting.inputs.iter().collect();
    let refused = |why: crate::spec::Refusal| runtime(format!("{}: {why}", entry.api));
    let outputs = entry.outputs(fitting.form, &fitting.bindings, &inputs).map_err(refused)?;
    let destinations = destinations(entry, &bound, &operands, &outputs)?;
    let present = |tensors: &[Tensor]| tensors.iter().cloned().map(Some).collect();
    let case = Case {
        kernel: entry.kernel.clone(),
        inputs: present(&fitting.inputs),
        outputs: present(&outputs),
        attributes: Attributes::default(),
    };
    let work = entry.read(&case).map_err(refused)?.work;
    Ok(Accepted { device, inputs: fitting.inputs, outputs, destinations, work })
}

fn numbers_allowed(entry: &Entry) -> Vec<&str> {
    let names = entry.inputs.iter().filter_map(|slot| match slot {
        InputSlot::Tensor { argument, number_for, .. } if !number_for.is_empty() => Some(argument.as_str()),
        _ => None,
    });
    names.collect()
}

/// The tensors of a call, by argument.
struct Operands<'a> {
    entry: &'a Entry,
    by_name: Vec<(String, Handle, Operand)>,
}

impl<'a> Operands<'a> {
    fn new(entry: &'a Entry, bound: &Bound, memory: &Memory) -> Result<Self, Raised> {
        let mut by_name = Vec::new();
        for (name, given) in bound {
            let declared = entry.arguments.contains_key(name)
                || entry
                    .inputs
                    .iter()
                    .any(|slot| matches!(slot, InputSlot::Tensor { argument, .. } if argument == name));
            for handle in Memory::handles(given) {
                if !declared {
                    return Err(runtime(format!(
                        "rehearsal: the catalogue's entry of {} does not say what the kernel does with `{name}`",
                        entry.kernel
                    )));
                }
                by_name.push((name.clone(), handle, memory.operand(handle)?));
            }
        }
        Ok(Self { entry, by_name })
    }

    fn get(&self, name: &str) -> Option<&(String, Handle, Operand)> {
        self.by_name.iter().find(|(argument, ..)| argument == name)
    }

    fn device(&self) -> Result<u32, Raised> {
        let mut places = self.by_name.iter().map(|(.., operand)| operand.place);
        let first = places.next();
        if let (Some(first), Some(other)) = (first, places.find(|place| Some(*place) != first)) {
            return Err(runtime(format!(
                "Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
            )));
        }
        match first {
            Some(Place::Npu(device)) => Ok(device),
            _ => Err(runtime(format!("rehearsal: {} was given no tensor on an NPU", self.entry.api))),
        }
    }
}

/// The entry passes one constant; another may start another kernel.
fn check_constants(entry: &Entry, bound: &Bound) -> Result<(), Raised> {
    for (name, argument) in &entry.arguments {
        if let (Argument::Constant(constant), Some(given)) = (argument, bound.get(name))
            && !same_constant(constant, given)
        {
            return Err(runtime(format!(
                "rehearsal: {name}={given}, the catalogue's entry of {} knows {name}={constant} only",
                entry.kernel
            )));
        }
    }
    Ok(())
}

fn same_constant(constant: &serde_json::Value, given: &Given) -> bool {
    match given {
        Given::None => constant.is_null(),
        Given::Bool(truth) => constant.as_bool() == Some(*truth),
        Given::Int(number) => constant.as_i64() == Some(*number),
        Given::Float(number) => constant.as_f64() == Some(*number),
        Given::Text(text) => constant.as_str() == Some(text),
        Given::List(items) => constant.as_array().is_some_and(|constants| {
            constants.len() == items.len()
                && constants.iter().zip(items).all(|(constant, item)| same_constant(constant, item))
        }),
        _ => false,
    }
}

/// The tensor slots, in the entry's order; `None` for what the kernel reads from the host.
fn slots(entry: &Entry, bound: &Bound, operands: &Operands<'_>) -> Result<Vec<Option<Slot>>, Raised> {
    let mut slots = Vec::new();
    for (index, slot) in entry.inputs.iter().enumerate() {
        let InputSlot::Tensor { argument, dtypes, .. } = slot else {
            slots.push(None);
            continue;
        };
        let slot = match operands.get(argument) {
            Some((.., operand)) => tensor_slot(entry, argument, operand)?,
            None => number_slot(entry, argument, bound.get(argument), operands)?,
        };
        if !dtypes.is_empty() && !dtypes.contains(&slot.tensor.dtype) {
            let allowed: Vec<&str> = dtypes.iter().map(Dtype::as_str).collect();
            let (api, dtype, allowed) = (&entry.api, &slot.tensor.dtype, allowed.join(", "));
            return Err(runtime(format!(
                "{api}: input {index} ({argument}) is {dtype}, the kernel {} takes {allowed}",
                entry.kernel
            )));
        }
        slots.push(Some(slot));
    }
    Ok(slots)
}

fn tensor_slot(entry: &Entry, argument: &str, operand: &Operand) -> Result<Slot, Raised> {
    if operand.contents == Contents::Uninitialised {
        return Err(runtime(format!(
            "rehearsal: {}: uninitialised input `{argument}`: it comes from `torch.empty` and nothing wrote it",
            entry.api
        )));
    }
    let Operand { tensor, layout, contents, .. } = operand.clone();
    Ok(Slot { tensor, layout, contents })
}

/// Whether a Python number beside tensors of that type launches this kernel.
fn takes_number(entry: &Entry, argument: &str, dtype: &Dtype) -> bool {
    entry.inputs.iter().any(|slot| {
        matches!(slot, InputSlot::Tensor { argument: name, number_for, .. }
            if name == argument && number_for.contains(dtype))
    })
}

/// A Python number, which the profiler shows as a scalar of the tensors' type.
fn number_slot(
    entry: &Entry,
    argument: &str,
    given: Option<&Given>,
    operands: &Operands<'_>,
) -> Result<Slot, Raised> {
    let tensors = operands.by_name.first().map(|(.., operand)| operand.tensor.dtype.clone());
    match (given, tensors) {
        (Some(number @ Given::Float(_)), Some(dtype)) if !dtype.is_float() => Err(runtime(format!(
            "rehearsal: {}: `{argument}` = {number} with {dtype} gives another type, which the entry of {} does not \
             describe",
            entry.api, entry.kernel
        ))),
        (Some(number @ (Given::Int(_) | Given::Float(_) | Given::Bool(_))), Some(dtype))
            if !takes_number(entry, argument, &dtype) =>
        {
            let (api, kernel) = (&entry.api, &entry.kernel);
            Err(runtime(format!(
                "rehearsal: {api}: `{argument}` = {number} with {dtype} does not run as {kernel}"
            )))
        }
        (Some(Given::Int(_) | Given::Float(_) | Given::Bool(_)), Some(dtype)) => Ok(Slot {
            tensor: Tensor::new([], dtype),
            layout: Layout::Contiguous,
            contents: Contents::Unknown,
        }),
        _ => Err(runtime(format!("{}: the kernel {} needs `{argument}`", entry.api, entry.kernel))),
    }
}

/// Indices must be known to lie inside the range that the entry names.
fn check_indices(entry: &Entry, slots: &[Option<Slot>], bindings: &Bindings) -> Result<(), Raised> {
    for (declared, slot) in entry.inputs.iter().zip(slots) {
        let (InputSlot::Tensor { argument, values: Values::Index(bound), .. }, Some(slot)) = (declared, slot)
        else {
            continue;
        };
        let below = bound.number(bindings).map_err(|error| runtime(error.to_string()))?;
        let found = match slot.contents {
            Contents::Between(least, most) if least >= 0 && most < below => continue,
            Contents::Between(least, most) => format!("its values lie in [{least}, {most}]"),
            _ => "its values are not known".to_owned(),
        };
        return Err(runtime(format!(
            "rehearsal: {}: index out of range: `{argument}` must lie in [0, {below}), {found}",
            entry.api
        )));
    }
    Ok(())
}

fn destinations(
    entry: &Entry,
    bound: &Bound,
    operands: &Operands<'_>,
    outputs: &[Tensor],
) -> Result<Vec<(usize, Handle)>, Raised> {
    let mut found = Vec::new();
    for (name, argument) in &entry.arguments {
        let Argument::Destination(output) = argument else { continue };
        let (Some((_, handle, operand)), Some(expected)) = (operands.get(name), outputs.get(*output)) else {
            let given = bound.get(name).map_or("nothing", Given::python_type);
            return Err(runtime(format!(
                "{}: `{name}` must be a tensor to write to, not {given}",
                entry.api
            )));
        };
        let is = &operand.tensor;
        if is.dims != expected.dims || is.dtype != expected.dtype || operand.layout != Layout::Contiguous {
            let layout = layout_words(operand.layout);
            return Err(runtime(format!(
                "{}: `{name}` is {is}, {layout}; {} writes {expected}, contiguous",
                entry.api, entry.kernel
            )));
        }
        found.push((*output, *handle));
    }
    Ok(found)
}
