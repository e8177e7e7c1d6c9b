//! Judges a call by an entry of the catalogue: names, types, places, values, shapes.
//!
//! Stricter than the real torch_npu where the catalogue is: a call that a real device would take and
//! the entry does not describe is refused, so that the night finds no surprise.

use super::{
    arguments::{BoundArguments, bind},
    match_form::{CallMismatch, FormMatcher, layout_words},
    protocol::{PyArguments, PyError, PyValue, runtime},
    tensors::{DeviceKind, OperandLayout, TensorHandle, TensorMemory, TensorOperand},
};
use crate::{
    catalogue::{CatalogueEntry, DeclaredArgument, EntryForm, OutputDtype},
    config::KernelWork,
    domain::{Case, Dtype, Slot, Tensor},
};

/// A call that may be launched.
#[derive(Clone, Debug)]
pub(super) struct ValidCall {
    pub(super) device: u32,
    pub(super) inputs: Vec<Slot>,
    /// As the profiler shows them.
    pub(super) outputs: Vec<Tensor>,
    /// Where their types come from.
    pub(super) output_dtypes: Vec<OutputDtype>,
    /// Shapes that Python sees.
    pub(super) returns: Vec<Vec<u64>>,
    /// Outputs that the caller provides, by their place.
    pub(super) destinations: Vec<(usize, TensorHandle)>,
    pub(super) work: KernelWork,
    /// Of the group that the call talks to.
    pub(super) ranks: Option<i64>,
}

/// Judges a call. Where several forms fit, `preferred` goes first.
pub(super) fn judge(
    entry: &CatalogueEntry,
    arguments: &PyArguments,
    memory: &TensorMemory,
    preferred: Option<&str>,
) -> Result<ValidCall, PyError> {
    let bound = bind(&entry.schema, arguments, &numbers_allowed(entry))?;
    let operands = CallOperands::new(entry, &bound, memory)?;
    let device = operands.device()?;
    let mut reasons = Vec::new();
    let (mut refusal, mut unfit) = (None, None);
    let mut fitting = None;
    // Of forms that differ in the length of a list, one can be meant.
    let can_be = |form: &&EntryForm| !form.of_list || operands.has_lists_of(form);
    let mut forms: Vec<&EntryForm> = entry.forms.iter().filter(can_be).collect();
    forms.sort_by_key(|form| preferred != Some(form.rule.name.as_str()));
    for form in forms {
        match (FormMatcher { entry, form, bound: &bound, operands: &operands }).fit() {
            Ok(found) => {
                fitting = Some(found);
                break;
            }
            Err(CallMismatch::Values(raised)) => unfit = unfit.or(Some(raised)),
            Err(CallMismatch::Refused(raised)) => refusal = refusal.or(Some(raised)),
            Err(CallMismatch::Shapes(why)) => reasons.push(format!("{}: {why}", form.rule.name)),
        }
    }
    // A form that fits but for its values says most, and one that takes such types more than one that does not.
    let fitting = fitting.ok_or_else(|| match (unfit, refusal) {
        (Some(raised), _) => raised,
        (None, Some(raised)) if reasons.is_empty() => raised,
        _ => operands.fit_no_form(&reasons),
    })?;
    let refused = |why: crate::catalogue::NotReplayable| runtime(format!("{}: {why}", entry.api));
    let inputs: Vec<Option<&Tensor>> = fitting.inputs.iter().map(Option::as_ref).collect();
    let outputs =
        entry.output_tensors(fitting.form, &fitting.bindings, &inputs, &fitting.asked).map_err(refused)?;
    let destinations = destinations(entry, fitting.form, &bound, &operands, &outputs)?;
    let case = Case {
        kernel: entry.kernel.clone(),
        inputs: fitting.inputs.clone(),
        outputs: outputs.iter().cloned().map(Some).collect(),
        attributes: fitting.attributes,
    };
    let reading = entry.resolve_call(&case).map_err(refused)?;
    let (returns, work) = (reading.returns, reading.work);
    let ranks = fitting.ranks;
    let (output_dtypes, inputs) = (fitting.form.output_dtypes.clone(), fitting.inputs);
    Ok(ValidCall { device, inputs, outputs, output_dtypes, returns, destinations, work, ranks })
}

fn numbers_allowed(entry: &CatalogueEntry) -> Vec<&str> {
    let slots = entry.forms.iter().flat_map(EntryForm::tensors);
    slots.filter(|(_, slot)| !slot.number_for.is_empty()).map(|(_, slot)| slot.argument.as_str()).collect()
}

/// The tensors of a call, by argument.
pub(super) struct CallOperands<'a> {
    entry: &'a CatalogueEntry,
    by_name: Vec<(String, TensorHandle, TensorOperand)>,
}

impl<'a> CallOperands<'a> {
    fn new(
        entry: &'a CatalogueEntry,
        bound: &BoundArguments,
        memory: &TensorMemory,
    ) -> Result<Self, PyError> {
        let mut by_name = Vec::new();
        for (name, given) in bound {
            let handles = TensorMemory::handles(given);
            let mut known = entry.forms.iter().map(|form| form.list(name).len());
            if handles.len() > 1 && known.all(|length| length != handles.len()) {
                let longest = entry.forms.iter().map(|form| form.list(name).len()).max().unwrap_or_default();
                return Err(runtime(format!(
                    "rehearsal: `{name}` is a list of {} tensors, the catalogue's entry of {} knows lists of {}",
                    handles.len(),
                    entry.kernel,
                    if longest > 1 { format!("up to {longest}") } else { "one".to_owned() }
                )));
            }
            for handle in handles {
                if !entry.gives(name).0 {
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

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().map(|(name, ..)| name.as_str())
    }

    pub(super) fn get(&self, name: &str) -> Option<&TensorOperand> {
        self.find(name).map(|(.., operand)| operand)
    }

    /// That tensor of a list; the first of an argument that is no list.
    pub(super) fn nth(&self, name: &str, place: usize) -> Option<&TensorOperand> {
        self.by_name.iter().filter(|(argument, ..)| argument == name).nth(place).map(|(.., operand)| operand)
    }

    /// Whether lists are as long as the form's.
    fn has_lists_of(&self, form: &EntryForm) -> bool {
        form.tensors().all(|(_, slot)| {
            let given = self.names().filter(|name| *name == slot.argument).count();
            given == form.list(&slot.argument).len()
        })
    }

    pub(super) fn first_dtype(&self) -> Option<Dtype> {
        self.by_name.first().map(|(.., operand)| operand.tensor.dtype.clone())
    }

    fn find(&self, name: &str) -> Option<&(String, TensorHandle, TensorOperand)> {
        self.by_name.iter().find(|(argument, ..)| argument == name)
    }

    fn device(&self) -> Result<u32, PyError> {
        let on_host = |name: &str| {
            let mut given = self.entry.forms.iter().filter_map(|form| form.arguments.get(name));
            given.any(|argument| matches!(argument, DeclaredArgument::Tensor { on_host: true, .. }))
        };
        let on_device = self.by_name.iter().filter(|(name, ..)| !on_host(name));
        let mut places = on_device.map(|(.., operand)| operand.place);
        let first = places.next();
        if let (Some(first), Some(other)) = (first, places.find(|place| Some(*place) != first)) {
            return Err(runtime(format!(
                "Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
            )));
        }
        match first {
            Some(DeviceKind::Npu(device)) => Ok(device),
            _ => Err(runtime(format!("rehearsal: {} was given no tensor on an NPU", self.entry.api))),
        }
    }

    fn fit_no_form(&self, reasons: &[String]) -> PyError {
        // In the order of the schema, as the call was written.
        let arguments = self.entry.schema.arguments.iter();
        let shapes: Vec<String> =
            arguments.filter_map(|argument| self.get(&argument.name)).map(|o| o.tensor.to_string()).collect();
        runtime(format!(
            "{}: {} fit no form of {}: {}",
            self.entry.api,
            shapes.join(" and "),
            self.entry.kernel,
            reasons.join("; ")
        ))
    }
}

fn destinations(
    entry: &CatalogueEntry,
    form: &EntryForm,
    bound: &BoundArguments,
    operands: &CallOperands<'_>,
    outputs: &[Tensor],
) -> Result<Vec<(usize, TensorHandle)>, PyError> {
    let mut found = Vec::new();
    for (name, argument) in &form.arguments {
        let DeclaredArgument::Destination(output) = argument else { continue };
        let (Some((_, handle, operand)), Some(expected)) = (operands.find(name), outputs.get(*output)) else {
            let given = bound.get(name).map_or("nothing", PyValue::python_type);
            return Err(runtime(format!(
                "{}: `{name}` must be a tensor to write to, not {given}",
                entry.api
            )));
        };
        let is = &operand.tensor;
        if is.dims != expected.dims
            || is.dtype != expected.dtype
            || operand.layout != OperandLayout::Contiguous
        {
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
