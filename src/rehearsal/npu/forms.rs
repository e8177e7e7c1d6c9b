//! Finds the form of the catalogue's entry that a call's shapes, views and values take.

use super::{
    arguments::Bound,
    memory::{Contents, Layout},
    wire::{Given, Raised, runtime},
};
use crate::{
    model::Tensor,
    spec::{Argument, Bindings, Entry, Form, InputSlot, Value},
};

/// One input slot as it was given.
pub(super) struct Slot {
    pub(super) tensor: Tensor,
    pub(super) layout: Layout,
    pub(super) contents: Contents,
}

/// A form that fits, with the input slots as the profiler shows them.
pub(super) struct Fitting<'a> {
    pub(super) form: &'a Form,
    pub(super) bindings: Bindings,
    pub(super) inputs: Vec<Tensor>,
}

/// The first form that fits.
pub(super) fn fitting_form<'a>(
    entry: &'a Entry,
    bound: &Bound,
    slots: &[Option<Slot>],
) -> Result<Fitting<'a>, Raised> {
    let mut reasons = Vec::new();
    for form in &entry.forms {
        match fit(entry, form, bound, slots) {
            Ok((bindings, inputs)) => return Ok(Fitting { form, bindings, inputs }),
            Err(why) => reasons.push(format!("{}: {why}", form.name)),
        }
    }
    let shapes: Vec<String> = slots.iter().flatten().map(|slot| slot.tensor.to_string()).collect();
    Err(runtime(format!(
        "{}: {} fit no form of {}: {}",
        entry.api,
        shapes.join(" and "),
        entry.kernel,
        reasons.join("; ")
    )))
}

fn fit(
    entry: &Entry,
    form: &Form,
    bound: &Bound,
    slots: &[Option<Slot>],
) -> Result<(Bindings, Vec<Tensor>), String> {
    for (declared, slot) in entry.inputs.iter().zip(slots) {
        if let (InputSlot::Tensor { argument, .. }, Some(slot)) = (declared, slot) {
            let wanted =
                if form.transposed.contains(argument) { Layout::Transposed } else { Layout::Contiguous };
            if slot.layout != wanted {
                let (wanted, is) = (layout_words(wanted), layout_words(slot.layout));
                return Err(format!("`{argument}` must be {wanted}, it is {is}"));
            }
        }
    }
    let known = named_by_arguments(entry, bound)?;
    let inputs = with_host_slots(entry, form, slots, known.clone())?;
    let dims: Vec<Vec<u64>> = inputs.iter().map(|tensor| tensor.dims.clone()).collect();
    let bindings = form.bind(&dims, None, known)?;
    check_expressions(entry, bound, &bindings)?;
    // An output that has no shape is a reason to try the next form as well.
    form.outputs(&bindings)?;
    Ok((bindings, inputs))
}

pub(super) const fn layout_words(layout: Layout) -> &'static str {
    match layout {
        Layout::Contiguous => "contiguous",
        Layout::Transposed => "a transposed view",
        Layout::Permuted => "a view in another order",
    }
}

/// An argument whose expression is a bare name gives that name its value.
fn named_by_arguments(entry: &Entry, bound: &Bound) -> Result<Bindings, String> {
    let mut known = Bindings::default();
    for (name, argument) in &entry.arguments {
        if let (Argument::Expression(expr), Some(given)) = (argument, bound.get(name)) {
            let text = expr.to_string();
            if expr.names().contains(text.as_str()) {
                known.set(&text, value(given).ok_or_else(|| format!("`{name}` = {given} is no shape"))?);
            }
        }
    }
    Ok(known)
}

/// All other expressions must come out as what was given.
fn check_expressions(entry: &Entry, bound: &Bound, bindings: &Bindings) -> Result<(), String> {
    for (name, argument) in &entry.arguments {
        if let (Argument::Expression(expr), Some(given)) = (argument, bound.get(name)) {
            let expected = expr.value(bindings).map_err(|error| error.to_string())?;
            if value(given).as_ref() != Some(&expected) {
                return Err(format!("`{name}` is {given}, the entry passes {expected}"));
            }
        }
    }
    Ok(())
}

fn value(given: &Given) -> Option<Value> {
    let number = |given: &Given| if let Given::Int(number) = given { Some(*number) } else { None };
    match given {
        Given::List(items) => items.iter().map(number).collect::<Option<_>>().map(Value::List),
        Given::Bool(truth) => Some(Value::Truth(*truth)),
        other => number(other).map(Value::Number),
    }
}

/// Adds the slots that the kernel reads from the host. Their lengths may depend on the tensors, so
/// the rule is first bound to the tensors alone.
fn with_host_slots(
    entry: &Entry,
    form: &Form,
    slots: &[Option<Slot>],
    known: Bindings,
) -> Result<Vec<Tensor>, String> {
    let left = form.source().split("->").next().unwrap_or_default();
    let tensors: Vec<&str> =
        left.split(';').zip(slots).filter(|(_, slot)| slot.is_some()).map(|(terms, _)| terms).collect();
    let partial = Form::parse(&form.name, &format!("{} ->", tensors.join(";")), &[], Vec::new())
        .map_err(|error| error.to_string())?;
    let dims: Vec<Vec<u64>> = slots.iter().flatten().map(|slot| slot.tensor.dims.clone()).collect();
    let bindings = partial.bind(&dims, None, known)?;
    let inputs = entry.inputs.iter().zip(slots).map(|(declared, slot)| match (declared, slot) {
        (InputSlot::Host { dims, dtype }, _) => {
            let length = dims.number(&bindings).map_err(|error| error.to_string())?;
            let length = u64::try_from(length).map_err(|_| format!("`{dims}` is {length}"))?;
            Ok(Tensor::new([length], dtype.clone()))
        }
        (InputSlot::Tensor { .. }, Some(slot)) => Ok(slot.tensor.clone()),
        (InputSlot::Tensor { argument, .. }, None) => Err(format!("`{argument}` is missing")),
    });
    inputs.collect()
}
