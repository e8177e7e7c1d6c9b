//! Rules with lists of tensors, such as `*X... -> cat(D, X...)`: a form for every length of the list.

use super::{
    error::{Below as _, EntryError, value_fault},
    raw::{RawEntry, RawForm},
};

/// Behind a name in a rule: a slot for each tensor of a list.
pub(crate) const LIST: &str = "...";
/// Longer lists than CANN's kernels take.
const LONGEST_LIST: usize = 64;

/// Expands a form whose rule has a list such as `*X...` into a form for every length of the list from 2 on: its
/// slots are `*X_0; *X_1; …`, and `X...` in expressions is `X_0, X_1, …`. Lists such as `S,D...` are slots of these
/// dimensions. An output such as `numel(X)...` is one output for each tensor: `numel(X_0); numel(X_1); …`. Several lists of
/// a rule have one length. The second value is true for the forms of a list.
pub(crate) fn expand_lists(form: &RawForm, entry: &RawEntry) -> Result<Vec<(RawForm, bool)>, EntryError> {
    let left = form.rule.split("->").next().unwrap_or_default();
    let mut lists = Vec::new();
    for (place, term) in left.split(';').map(str::trim).enumerate().filter(|(_, term)| term.ends_with(LIST)) {
        lists.push(ListTerm::parse(place, term).below("shapes")?);
    }
    if lists.is_empty() {
        return Ok(vec![(form.clone(), false)]);
    }
    Ok((2..=LONGEST_LIST).map(|length| (form_of_length(form, entry, &lists, length), true)).collect())
}

/// True for a name of letters, digits and `_` that does not start with a digit.
pub(crate) fn is_identifier(part: &str) -> bool {
    !part.is_empty()
        && !part.as_bytes()[0].is_ascii_digit()
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A term of a rule that stands for a list.
pub(crate) struct ListTerm<'a> {
    place: usize,
    term: &'a str,
    name: Option<&'a str>,
}

impl<'a> ListTerm<'a> {
    pub(crate) fn parse(place: usize, term: &'a str) -> Result<Self, EntryError> {
        let each = term.trim_end_matches(LIST);
        let name = each.strip_prefix('*');
        let is_list =
            name.map_or_else(|| each.split(',').all(|dim| is_identifier(dim.trim())), is_identifier);
        if is_list {
            return Ok(Self { place, term, name });
        }
        let problem = format!("`{term}` is not the list of a name, such as `*X...`, or of dimensions");
        Err(value_fault(problem))
    }

    /// Its slots in a list of that length, and the names that stand for its name in expressions.
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

fn form_of_length(raw: &RawForm, entry: &RawEntry, lists: &[ListTerm<'_>], length: usize) -> RawForm {
    let mut form = raw.clone();
    form.arguments = entry.arguments.clone();
    form.arguments.extend(raw.arguments.clone());
    expand_outputs(&mut form, entry, lists, length);
    let mut inputs = raw.inputs.as_ref().unwrap_or(&entry.inputs).clone();
    // From the last one on, so that places in front stay what they are.
    for list in lists.iter().rev() {
        let (slots, names) = list.of_length(length);
        form.rule = form.rule.replace(list.term, &slots);
        if let Some(slot) = inputs.get(list.place).cloned() {
            inputs.splice(list.place..=list.place, vec![slot; length]);
        }
        let Some((name, names)) = names else { continue };
        let in_full = |text: &String| text.replace(&name, &names);
        form.rule = in_full(&form.rule);
        form.limits.iter_mut().for_each(|limit| *limit = in_full(limit));
        form.conditions.iter_mut().for_each(|condition| *condition = in_full(condition));
        form.infer.values_mut().for_each(|inferred| *inferred = in_full(inferred));
        for argument in form.arguments.values_mut() {
            argument.expression = argument.expression.as_ref().map(in_full);
        }
    }
    form.inputs = Some(inputs);
    form
}

/// Expands each output that is a list into an output for each tensor, of the type of the list.
fn expand_outputs(form: &mut RawForm, entry: &RawEntry, lists: &[ListTerm<'_>], length: usize) {
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

/// Replaces the names of lists in a term by those of their tensors with this index.
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
