//! Checks of a case's attributes against a form: each is used by its call, or follows from the others.

use crate::kernel::{
    CaseAttributes, Dims,
    catalogue::{
        Bindings, CatalogueEntry, EntryForm, Expr, ExprValue, ImpliedValue, NotReplayable,
        not_replayable::{contradiction, not_covered},
    },
    is_mean,
};

/// Returns the attributes that the form does not use. The time of the recorded call may depend on them.
pub(super) fn unused_attributes<'a>(
    entry: &'a CatalogueEntry,
    form: &'a EntryForm,
    attributes: &'a CaseAttributes,
) -> impl Iterator<Item = NotReplayable> {
    let unused = attributes.iter().filter(|(column, _)| !form.uses_attribute(column));
    unused.map(|(column, value)| {
        let why = match entry.forms.iter().any(|form| form.uses_attribute(column)) {
            true => "the form is for rows without it",
            false => "which the call does not use",
        };
        not_covered(format!("`{column}` is recorded as {value}, {why}"))
    })
}

/// Checks that attributes in expressions are whole numbers.
pub(super) fn check_numbers(
    entry: &CatalogueEntry,
    attributes: &CaseAttributes,
) -> Result<(), NotReplayable> {
    let is_text = |column: &str| {
        let variable = CaseAttributes::variable_name(column);
        let is_numeric = |form: &EntryForm| {
            let is_compared =
                form.rule.conditions().any(|condition| condition.variable_names().contains(&*variable));
            is_compared || !form.gives_attribute(column) && form.names.contains(&variable)
        };
        attributes.numbers(column).is_none() && entry.forms.iter().any(is_numeric)
    };
    match attributes.iter().find(|(column, _)| is_text(column)) {
        Some((column, value)) => Err(contradiction(format!(
            "`{column}` is `{value}`: expected a whole number or a list of them, such as `128,256`"
        ))),
        None => Ok(()),
    }
}

/// Checks recorded attributes that follow from the shapes and other attributes, or of which the form covers one value. Another
/// value contradicts the row in the first case only.
pub(super) fn check_implied(
    form: &EntryForm,
    bindings: &Bindings,
    attributes: &CaseAttributes,
) -> Result<(), NotReplayable> {
    for (column, value) in &form.implied {
        let Some(recorded) = attributes.get(column) else { continue };
        check_value(value, recorded, bindings).map_err(|mismatch| match mismatch {
            ValueMismatch::Contradiction(expected) => {
                contradiction(format!("`{column}` is {recorded}, not {expected}"))
            }
            ValueMismatch::NotCovered(covered) => {
                not_covered(format!("`{column}` is {recorded}, the entry has only calls with {covered}"))
            }
        })?;
    }
    Ok(())
}

/// Difference between a recorded attribute and its value in a form, with the latter as text.
enum ValueMismatch {
    Contradiction(String),
    NotCovered(String),
}

/// Compares a recorded value with that of a form.
fn check_value(value: &ImpliedValue, recorded: &str, bindings: &Bindings) -> Result<(), ValueMismatch> {
    let items = |expr: &Expr| {
        let items = expr.evaluate_as(bindings, ExprValue::to_items);
        items.map_err(|error| ValueMismatch::Contradiction(format!("known: {error}")))
    };
    match value {
        ImpliedValue::Ignored => Ok(()),
        ImpliedValue::Text(text) if text == recorded => Ok(()),
        ImpliedValue::Text(text) => Err(ValueMismatch::NotCovered(text.clone())),
        ImpliedValue::Expression(expr) | ImpliedValue::Only(expr) => {
            let text = Dims(&items(expr)?).to_string();
            let is_constant = expr.variable_names().is_empty();
            match value {
                _ if text == recorded => Ok(()),
                ImpliedValue::Only(_) => Err(ValueMismatch::NotCovered(text)),
                _ if is_constant => Err(ValueMismatch::NotCovered(text)),
                _ => Err(ValueMismatch::Contradiction(format!("{text}, which is `{expr}`"))),
            }
        }
        ImpliedValue::Mean(expr) => {
            let items = items(expr)?;
            #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
            let mean = items.iter().map(|item| *item as f64).sum::<f64>() / items.len().max(1) as f64;
            let expected = || ValueMismatch::Contradiction(format!("{mean:.6}, the mean of `{expr}`"));
            if is_mean(recorded, mean) { Ok(()) } else { Err(expected()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{
        base::assets::AssetFiles,
        kernel::{Case, CaseAttributes, EP_SIZE, attention_attribute, catalogue::Catalogue},
    };

    const UNKNOWN: &str = "Runtime xyz";
    /// Lengths of the examples among them.
    const VALUES: [&str; 20] = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "8",
        "64",
        "127",
        "128",
        "511",
        "512",
        "2048",
        "2147483647",
        "1,2",
        "3,6,8",
        "2,6,8",
        "4096,3000,64",
        "4096,3000,65",
        "TND",
        "BSH",
    ];

    /// Otherwise two rows with different cells would be measured by the same call.
    #[test]
    fn each_recorded_attribute_changes_the_call_or_refuses_the_case() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let columns = attention_attribute::ALL.into_iter().chain([EP_SIZE, UNKNOWN]).map(str::to_owned);
        let columns: BTreeSet<String> = columns.chain(catalogue.attribute_columns()).collect();
        for entry in catalogue.entries() {
            let example = entry.example.as_ref().expect("an example");
            let bare = Case { attributes: CaseAttributes::default(), ..example.clone() };
            for (case, column) in
                [example, &bare].into_iter().flat_map(|case| columns.iter().map(move |column| (case, column)))
            {
                let mut calls: Vec<(&str, _)> = Vec::new();
                for value in VALUES {
                    let mut changed = case.clone();
                    changed.attributes.set(column, value);
                    let Ok(call) = entry.resolve_call(&changed) else { continue };
                    let same = calls.iter().find(|(_, arguments)| *arguments == call.arguments);
                    let (kernel, other) = (&entry.kernel, same.map(|(other, _)| *other));
                    assert_eq!(other, None, "{kernel}: `{column}` {value} has the call of this value");
                    calls.push((value, call.arguments));
                }
                assert!(column != UNKNOWN || calls.is_empty(), "{}: `{column}` is ignored", entry.kernel);
            }
        }
    }

    /// Otherwise a table with the attribute in another spelling would be measured without it.
    #[test]
    fn attributes_of_entries_are_found_without_their_prefix() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        for column in catalogue.attribute_columns() {
            let bare = column.strip_prefix("Runtime ").unwrap_or(&column);
            let found = CaseAttributes::name_of(bare);
            assert!(bare == "batch_size" || found.as_deref() == Some(&*column), "{column}: {found:?}");
        }
    }

    #[test]
    fn unused_column_is_named() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let entry = catalogue.entries().find(|entry| entry.kernel.as_str() == "RmsNorm").expect("an entry");
        let mut case = entry.example.clone().expect("an example");
        case.attributes.set("Runtime num_heads", "8");
        let refused = entry.resolve_call(&case).expect_err("it is not used");
        assert_eq!(refused.to_string(), "`Runtime num_heads` is recorded as 8, which the call does not use");
    }
}
