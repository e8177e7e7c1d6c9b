//! Checks of the parts of an entry against each other: the function, the schema, the forms and the slots.

use super::{DeclaredArgument, EntryForm, InputSlot, TensorSource, file::Fault};
use crate::{
    base::yaml::{Location, Spanned},
    kernel::catalogue::{OperatorSchema, SchemaType},
};

pub(super) fn no_such_argument(schema: &OperatorSchema, name: &str) -> String {
    let names: Vec<&str> = schema.arguments.iter().map(|known| known.name.as_str()).collect();
    format!("the schema has no argument `{name}`; it has {}", names.join(", "))
}

/// Checks that the function is the schema's; torch appends the name of an overload.
pub(super) fn check_api(api: &str, schema: &OperatorSchema) -> Result<(), String> {
    let overload = schema.name.split_once('.').map(|(_, overload)| format!(".{overload}"));
    let without = overload.and_then(|overload| api.strip_suffix(&overload)).unwrap_or(api);
    let function = without.rsplit('.').next().unwrap_or(without);
    if function == schema.short_name() {
        return Ok(());
    }
    Err(format!("`{api}` is not the function of the schema, `{}`", schema.short_name()))
}

/// Checks that another version of an operator can be called with the arguments of the first.
pub(super) fn check_version(schema: &OperatorSchema, other: &OperatorSchema) -> Result<(), String> {
    if other.name != schema.name {
        return Err(format!("`{}` is not a version of `{}`", other.name, schema.name));
    }
    let unknown = other.arguments.iter().find(|own| !own.has_default && schema.argument(&own.name).is_none());
    unknown.map_or(Ok(()), |argument| Err(no_such_argument(schema, &argument.name)))
}

/// Checks that a form's rule has as many slots as are declared, and shapes for those only that are used.
pub(super) fn check_slots(form: &EntryForm) -> Result<(), String> {
    let rule = &form.rule;
    let counts = [
        ("input", rule.inputs.len(), form.inputs.len()),
        ("output", rule.outputs.0.len(), form.output_dtypes.len()),
    ];
    for (side, in_form, declared) in counts {
        if in_form != declared {
            let name = &rule.name;
            return Err(format!("form `{name}` has {in_form} {side} slots, `{side}s:` has {declared}"));
        }
    }
    let mut slots = form.inputs.iter().enumerate();
    let unused = slots.find(|(index, slot)| rule.takes_slot(*index) && matches!(slot, InputSlot::Ignored));
    unused.map_or(Ok(()), |(index, _)| {
        Err(format!("form `{}` has a shape for slot {index}, which `inputs:` leaves out", rule.name))
    })
}

/// Checks that the arguments of a form exist and are given once, that none is missing, and that the other tensors to which
/// slots refer exist. Errors of the whole form have `place`.
pub(super) fn check_form(
    form: &EntryForm,
    schema: &OperatorSchema,
    transposed: &[Spanned<String>],
    place: Location,
) -> Result<(), Fault> {
    if !form.is_replayed() {
        return Ok(());
    }
    let slots = form.tensors().map(|(_, slot)| (slot.argument.as_str(), slot.place));
    let names = slots.clone().chain(transposed.iter().map(|name| (name.value.as_str(), name.defined)));
    for (name, place) in names {
        if schema.argument(name).is_none() {
            return Err((place, no_such_argument(schema, name)));
        }
    }
    let mut given: Vec<&str> = form.arguments.keys().map(String::as_str).collect();
    for (name, place) in slots {
        let is_list = schema.argument(name).is_some_and(|known| known.kind == SchemaType::TensorList);
        if given.contains(&name) && (!is_list || form.arguments.contains_key(name)) {
            return Err((place, format!("argument `{name}` is given twice")));
        }
        given.push(name);
    }
    if let Some(missing) =
        schema.arguments.iter().find(|known| !known.has_default && !given.contains(&known.name.as_str()))
    {
        return Err((place, format!("argument `{}` has no default and is not given", missing.name)));
    }
    let index_of = |name: &str| schema.arguments.iter().position(|argument| argument.name == name);
    let check_same = |argument: &str, other: &str, place: Location| {
        if form.tensor(other).is_some() && index_of(other) < index_of(argument) {
            return Ok(());
        }
        Err((place, format!("`{argument}` cannot be the same as `{other}`, which is not a tensor before it")))
    };
    for (argument, declared) in &form.arguments {
        if let DeclaredArgument::SameAs(other) = declared {
            check_same(argument, other, place)?;
        }
    }
    for (_, slot) in form.tensors() {
        if let Some(other) = slot.same_type_as.as_ref().filter(|name| form.tensor(&name.value).is_none()) {
            let (name, other_name) = (&form.rule.name, &other.value);
            let problem = format!("form `{name}` has no tensor `{other_name}` to take the type from");
            return Err((other.defined, problem));
        }
        if let TensorSource::SameAs(other) = &slot.source {
            check_same(&slot.argument, &other.value, other.defined)?;
        }
    }
    Ok(())
}
