//! Checks of the parts of an entry against each other: the function, the schema, the forms and the slots.

use std::collections::BTreeSet;

use super::{
    CatalogueEntry, DeclaredArgument, EntryForm, InputSlot, TensorSource,
    error::{Below as _, EntryError, argument_fault, fault, no_such_argument, value_fault},
};
use crate::kernel::catalogue::{OperatorSchema, SchemaType};

/// Checks that the function is the schema's; torch appends the name of an overload.
pub(crate) fn check_api(api: &str, schema: &OperatorSchema) -> Result<(), EntryError> {
    let overload = schema.name.split_once('.').map(|(_, overload)| format!(".{overload}"));
    let without = overload.and_then(|overload| api.strip_suffix(&overload)).unwrap_or(api);
    let function = without.rsplit('.').next().unwrap_or(without);
    if function == schema.short_name() {
        return Ok(());
    }
    Err(fault("api", format!("`{api}` is not the function of the schema, `{}`", schema.short_name())))
}

/// Checks that another version of an operator can be called with the arguments of the first.
pub(crate) fn check_version(schema: &OperatorSchema, other: &OperatorSchema) -> Result<(), EntryError> {
    if other.name != schema.name {
        return Err(value_fault(format!("`{}` is not a version of `{}`", other.name, schema.name)));
    }
    let unknown = other.arguments.iter().find(|own| !own.has_default && schema.argument(&own.name).is_none());
    match unknown {
        Some(argument) => Err(value_fault(no_such_argument(schema, &argument.name))),
        None => Ok(()),
    }
}

/// Checks that a form's rule has as many slots as are declared, and shapes for those only that are used.
pub(crate) fn check_slots(form: &EntryForm) -> Result<(), EntryError> {
    let rule = &form.rule;
    let counts = [
        ("input", rule.inputs.len(), form.inputs.len()),
        ("output", rule.outputs.0.len(), form.output_dtypes.len()),
    ];
    for (side, in_form, declared) in counts {
        if in_form != declared {
            let problem =
                format!("form `{}` has {in_form} {side} slots, `{side}s:` has {declared}", rule.name);
            return Err(value_fault(problem));
        }
    }
    let mut slots = form.inputs.iter().enumerate();
    let unused = slots.find(|(index, slot)| rule.takes_slot(*index) && matches!(slot, InputSlot::Ignored));
    if let Some((index, _)) = unused {
        let problem =
            format!("form `{}` has a shape for slot {index}, which `inputs:` leaves out", rule.name);
        return Err(value_fault(problem));
    }
    Ok(())
}

/// Checks that each role belongs to a dimension of a form.
pub(crate) fn check_roles(entry: &CatalogueEntry) -> Result<(), EntryError> {
    let names: BTreeSet<&str> = entry.forms.iter().flat_map(|form| form.rule.bound_names()).collect();
    let Some(name) = entry.roles.keys().find(|name| !names.contains(name.as_str())) else { return Ok(()) };
    let known = names.into_iter().collect::<Vec<_>>().join(", ");
    let problem = format!("no form has a dimension `{name}`; the dimensions are {known}");
    Err(fault(name, problem)).below("roles")
}

/// Checks that no form has more input slots than the records of the kernel.
pub(crate) fn check_recorded_inputs(entry: &CatalogueEntry) -> Result<(), EntryError> {
    let recorded = entry.recorded_inputs;
    let wider = entry.forms.iter().find(|form| recorded > 0 && form.inputs.len() > recorded);
    let Some(form) = wider else { return Ok(()) };
    let (name, slots) = (&form.rule.name, form.inputs.len());
    let problem = format!("records have {recorded} input slots, the form `{name}` has {slots}");
    Err(fault("recorded_inputs", problem))
}

/// Checks that arguments exist, are given once unless they have a default, and have the types of the schema.
pub(crate) fn check_form(entry: &CatalogueEntry, form: &EntryForm) -> Result<(), EntryError> {
    if !form.is_replayed() {
        return Ok(());
    }
    let schema = &entry.operator_of(form).schema;
    let from_slots = form.tensors().map(|(_, slot)| slot.argument.as_str());
    let given: Vec<&str> = from_slots.chain(form.arguments.keys().map(String::as_str)).collect();
    check_names(schema, form, &given)?;
    check_others(schema, form)?;
    form.arguments.iter().try_for_each(|(name, argument)| check_argument(schema, name, argument))
}

/// Checks that given arguments exist and are given once, and that none is missing.
fn check_names(schema: &OperatorSchema, form: &EntryForm, given: &[&str]) -> Result<(), EntryError> {
    let transposed = form.rule.transposed.iter().map(String::as_str);
    for name in given.iter().copied().chain(transposed) {
        if schema.argument(name).is_none() {
            return Err(argument_fault(name, "argument", no_such_argument(schema, name)));
        }
    }
    for (index, name) in given.iter().enumerate() {
        let is_list = schema.argument(name).is_some_and(|known| known.kind == SchemaType::TensorList);
        if given[..index].contains(name) && !(is_list && form.tensor(name).is_some()) {
            return Err(argument_fault(name, "argument", format!("argument `{name}` is given twice")));
        }
    }
    let missing = schema.arguments.iter().find(|a| !a.has_default && !given.contains(&a.name.as_str()));
    if let Some(argument) = missing {
        let problem = format!("argument `{}` has no default and is not given", argument.name);
        return Err(value_fault(problem));
    }
    Ok(())
}

/// Checks that the other tensors to which slots refer exist.
fn check_others(schema: &OperatorSchema, form: &EntryForm) -> Result<(), EntryError> {
    let index_of = |name: &str| schema.arguments.iter().position(|argument| argument.name == name);
    let check_same = |argument: &str, other: &str| {
        if form.tensor(other).is_some() && index_of(other) < index_of(argument) {
            return Ok(());
        }
        let problem =
            format!("`{argument}` cannot be the same as `{other}`, which is not a tensor before it");
        Err(argument_fault(argument, "same_as", problem))
    };
    for (argument, declared) in &form.arguments {
        if let DeclaredArgument::SameAs(other) = declared {
            check_same(argument, other)?;
        }
    }
    for (_, slot) in form.tensors() {
        let argument = &slot.argument;
        if let Some(other) = slot.same_type_as.as_deref().filter(|name| form.tensor(name).is_none()) {
            let problem = format!("form `{}` has no tensor `{other}` to take the type from", form.rule.name);
            return Err(argument_fault(argument, "same_type_as", problem));
        }
        if let TensorSource::SameAs(other) = &slot.source {
            check_same(argument, other)?;
        }
    }
    Ok(())
}

fn check_argument(
    schema: &OperatorSchema,
    name: &str,
    argument: &DeclaredArgument,
) -> Result<(), EntryError> {
    let Some(declared) = schema.argument(name) else { return Ok(()) };
    match argument {
        DeclaredArgument::Constant(constant)
            if !(declared.kind.accepts_constant(constant) || (constant.is_null() && declared.optional)) =>
        {
            let problem =
                format!("argument `{name}` is {:?} in the schema, which `{constant}` is not", declared.kind);
            Err(argument_fault(name, "constant", problem))
        }
        DeclaredArgument::Tensor { .. }
            if !matches!(declared.kind, SchemaType::Tensor | SchemaType::TensorList) =>
        {
            let problem = format!("argument `{name}` is {:?} in the schema, no tensor", declared.kind);
            Err(argument_fault(name, "tensor", problem))
        }
        _ => Ok(()),
    }
}
