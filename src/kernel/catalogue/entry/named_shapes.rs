//! Shapes by slot name, such as `{query: "T,N,D", key: "S,K,D"}`, as the positional rule.

use super::{
    error::{Below as _, EntryError, fault},
    lists::{LIST, ListTerm},
    raw::{RawEntry, RawForm, RawShapes},
};
use crate::kernel::catalogue::slot_pattern::input_terms;

/// Returns the form with its rule as text: a term per input slot, `-` for those without a shape.
pub(crate) fn with_positional_rule(form: &RawForm, entry: &RawEntry) -> Result<RawForm, EntryError> {
    let rule = match (&form.shapes, &form.output_shapes) {
        (RawShapes::Rule(rule), None) => rule.clone(),
        (RawShapes::Rule(_), Some(_)) => {
            let problem = "`output_shapes:` goes with shapes by name; the rule has its outputs behind `->`";
            return Err(fault("output_shapes", format!("form `{}`: {problem}", form.name)));
        }
        (RawShapes::ByName(_), None) => {
            let problem = format!("form `{}` has shapes by name and no `output_shapes:`", form.name);
            return Err(fault("shapes", problem));
        }
        (RawShapes::ByName(shapes), Some(outputs)) => {
            let slots = form.inputs.as_ref().unwrap_or(&entry.inputs);
            let names: Vec<&str> =
                slots.iter().map(|slot| slot.as_ref().map_or("", |slot| slot.shape_name())).collect();
            for (name, shape) in shapes {
                let problem = match names.iter().filter(|known| *known == name).count() {
                    _ if shape.contains(';') || shape.contains("->") => {
                        format!("`{shape}` is more than the shape of one slot")
                    }
                    0 => {
                        let known: Vec<&str> =
                            names.iter().copied().filter(|name| !name.is_empty()).collect();
                        format!("no input slot is named `{name}`; slots are {}", known.join(", "))
                    }
                    1 => {
                        check_shape(shape).below(name).below("shapes")?;
                        continue;
                    }
                    _ => format!("several slots are named `{name}`; write the rule as one text"),
                };
                return Err(fault(name, format!("form `{}`: {problem}", form.name))).below("shapes");
            }
            let terms: Vec<&str> =
                names.iter().map(|name| shapes.get(*name).map_or("-", String::as_str)).collect();
            format!("{} -> {outputs}", terms.join("; "))
        }
    };
    Ok(RawForm { rule, ..form.clone() })
}

/// Checks the shape of one slot, so that its error has the slot's position and not that of the whole rule.
fn check_shape(shape: &str) -> Result<(), EntryError> {
    if shape.trim().ends_with(LIST) {
        ListTerm::parse(0, shape.trim())?;
    } else {
        input_terms(shape, shape)?;
    }
    Ok(())
}
