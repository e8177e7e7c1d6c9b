//! Rules as one text: shapes by slot name, such as `{query: "T,N,D", key: "S,K,D"}`, and lists of tensors, such as
//! `*X... -> cat(D, X...)`, which are a form for every length of the list.

use super::file::{DeclaredForm, EntryFile, Fault, at};
use crate::{
    base::yaml::{Location, YamlNode},
    kernel::{catalogue::shape_rule::input_terms, expression::Expr},
};

const LIST: &str = "...";
/// Longer lists are not covered.
const MAX_LIST: usize = 64;

/// Returns a form's rule with the place of its errors: a term per input slot, `-` for those without a shape.
pub(super) fn positional_rule(form: &DeclaredForm, entry: &EntryFile) -> Result<(Location, String), Fault> {
    let place = form.shapes.defined;
    let faulty = |place, problem: &str| Err((place, format!("form `{}`{problem}", form.name.value)));
    let shapes = match (&form.shapes.value, &form.output_shapes) {
        (YamlNode::Scalar(rule), None) => return Ok((place, rule.clone())),
        (YamlNode::Scalar(_), Some(outputs)) => {
            let problem = ": `output_shapes:` goes with shapes by name; the rule has its outputs behind `->`";
            return faulty(outputs.defined, problem);
        }
        (YamlNode::List(_), _) => {
            let problem = "expected a rule such as `M,K; K,N -> M,N`, or slot names with shapes in quotes";
            return Err((place, problem.to_owned()));
        }
        (YamlNode::Map(_), None) => return faulty(place, " has shapes by name and no `output_shapes:`"),
        (YamlNode::Map(shapes), Some(_)) => shapes,
    };
    let slots = &form.inputs.as_ref().unwrap_or(&entry.inputs).0;
    let names: Vec<&str> =
        slots.iter().map(|slot| slot.value.as_ref().map_or("", |slot| slot.shape_name())).collect();
    let mut terms = vec!["-"; names.len()];
    for (name, shape) in shapes {
        let Some(text) = shape.value.as_text() else {
            return faulty(shape.defined, ": a list or a mapping is no shape; write it in quotes");
        };
        let name = &name.value;
        let problem = match names.iter().filter(|known| *known == name).count() {
            _ if text.contains(';') || text.contains("->") => {
                format!(": `{text}` is more than the shape of one slot")
            }
            0 => {
                let known: Vec<&str> = names.iter().copied().filter(|name| !name.is_empty()).collect();
                format!(": no input slot is named `{name}`; slots are {}", known.join(", "))
            }
            1 => {
                // An error of one slot has the position of the slot, not the position of the whole rule.
                if text.trim().ends_with(LIST) {
                    ListTerm::parse(0, text.trim()).map_err(at(shape.defined))?;
                } else {
                    input_terms(text, text).map_err(at(shape.defined))?;
                }
                let slot = names.iter().position(|known| known == name);
                slot.into_iter().for_each(|slot| terms[slot] = text);
                continue;
            }
            _ => format!(": several slots are named `{name}`; write the rule as one text"),
        };
        return faulty(shape.defined, &problem);
    }
    let outputs = form.output_shapes.as_ref().map_or("", |outputs| outputs.value.as_str());
    let place = form.output_shapes.as_ref().map_or(place, |outputs| outputs.defined);
    Ok((place, format!("{} -> {outputs}", terms.join("; "))))
}

/// Expands a form whose rule has a list such as `*X...` into a form for every length of the list from 2 on: its
/// slots are `*X_0; *X_1; …`, and `X...` in expressions is `X_0, X_1, …`. Lists such as `S,D...` are slots of these
/// dimensions. An output such as `numel(X)...` is one output for each tensor: `numel(X_0); numel(X_1); …`. Several lists of
/// a rule have one length. The second value is true for the forms of a list.
pub(super) fn expand_lists(
    form: DeclaredForm,
    entry: &EntryFile,
) -> Result<Vec<(DeclaredForm, bool)>, Fault> {
    let left = form.rule.split("->").next().unwrap_or_default();
    let lists = left.split(';').map(str::trim).enumerate().filter(|(_, term)| term.ends_with(LIST));
    let lists: Vec<ListTerm<'_>> = lists
        .map(|(slot, term)| ListTerm::parse(slot, term))
        .collect::<Result<_, _>>()
        .map_err(at(form.shapes.defined))?;
    if lists.is_empty() {
        return Ok(vec![(form, false)]);
    }
    let expanded = (2..=MAX_LIST).map(|length| Ok((form_of_length(&form, entry, &lists, length)?, true)));
    expanded.collect()
}

pub(super) fn is_identifier(part: &str) -> bool {
    part.bytes().next().is_some_and(|first| !first.is_ascii_digit())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct ListTerm<'a> {
    slot: usize,
    term: &'a str,
    name: Option<&'a str>,
}

impl<'a> ListTerm<'a> {
    fn parse(slot: usize, term: &'a str) -> Result<Self, String> {
        let each = term.trim_end_matches(LIST);
        let name = each.strip_prefix('*');
        let is_list =
            name.map_or_else(|| each.split(',').all(|dim| is_identifier(dim.trim())), is_identifier);
        if is_list {
            return Ok(Self { slot, term, name });
        }
        Err(format!("`{term}` is not the list of a name, such as `*X...`, or of dimensions"))
    }

    /// Returns the slots, and the name of the list with the names that stand for it in expressions.
    fn of_length(&self, length: usize) -> (String, Option<(String, String)>) {
        let Some(name) = self.name else {
            return (vec![self.term.trim_end_matches(LIST); length].join("; "), None);
        };
        let each = |prefix: &str, between: &str| {
            let names: Vec<String> = (0..length).map(|index| format!("{prefix}{name}_{index}")).collect();
            names.join(between)
        };
        (each("*", "; "), Some((format!("{name}{LIST}"), each("", ", "))))
    }
}

fn form_of_length(
    declared: &DeclaredForm,
    entry: &EntryFile,
    lists: &[ListTerm<'_>],
    length: usize,
) -> Result<DeclaredForm, Fault> {
    let mut form = declared.clone();
    form.arguments = entry.arguments.clone();
    form.arguments.extend(declared.arguments.clone());
    expand_outputs(&mut form, entry, lists, length);
    let mut inputs = declared.inputs.as_ref().unwrap_or(&entry.inputs).clone();
    let mut replaced = Vec::new();
    // From the last one on, so that places in front stay what they are.
    for list in lists.iter().rev() {
        let (slots, names) = list.of_length(length);
        form.rule = form.rule.replace(list.term, &slots);
        if let Some(slot) = inputs.0.get(list.slot).cloned() {
            inputs.0.splice(list.slot..=list.slot, vec![slot; length]);
        }
        replaced.extend(names);
    }
    let in_full =
        |text: &str| replaced.iter().fold(text.to_owned(), |text, (name, names)| text.replace(name, names));
    form.rule = in_full(&form.rule);
    let arguments = form.arguments.values_mut().filter_map(|argument| argument.expression.as_mut());
    let conditions = form.limits.iter_mut().chain(&mut form.conditions);
    for expr in conditions.chain(form.infer.values_mut()).chain(arguments) {
        *expr = Expr::parse(&in_full(expr.as_str())).map_err(at(form.shapes.defined))?;
    }
    form.inputs = Some(inputs);
    Ok(form)
}

fn expand_outputs(form: &mut DeclaredForm, entry: &EntryFile, lists: &[ListTerm<'_>], length: usize) {
    let Some((left, right)) = form.rule.split_once("->") else { return };
    let names: Vec<&str> = lists.iter().filter_map(|list| list.name).collect();
    let declared = form.outputs.as_ref().unwrap_or(&entry.outputs);
    let (mut terms, mut outputs) = (Vec::new(), Vec::new());
    for (place, term) in right.split(';').map(str::trim).enumerate() {
        let output = declared.get(place).cloned();
        if let Some(each) = term.strip_suffix(LIST) {
            terms.extend((0..length).map(|index| with_member_names(each, &names, index)));
            outputs.extend(vec![output; length].into_iter().flatten());
        } else {
            terms.push(term.to_owned());
            outputs.extend(output);
        }
    }
    outputs.extend(declared.iter().skip(right.split(';').count()).cloned());
    form.rule = format!("{left}-> {}", terms.join("; "));
    form.outputs = Some(outputs);
}

fn with_member_names(term: &str, names: &[&str], index: usize) -> String {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let parts = term.split_inclusive(|character| !is_of_name(character)).map(|part| {
        let name = part.trim_end_matches(|character| !is_of_name(character));
        match names.contains(&name) {
            true => format!("{name}_{index}{}", &part[name.len()..]),
            false => part.to_owned(),
        }
    });
    parts.collect()
}
