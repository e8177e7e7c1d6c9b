//! Checks of a case's attributes against a form: each is used by its call, or follows from the others.

use crate::{
    catalogue::{
        Bindings, EntryForm, Expr, ExprValue, ImpliedValue, NotReplayable, not_replayable::contradiction,
    },
    domain::{CaseAttributes, Dims},
};

/// Checks that the form uses every attribute, because the time of the recorded call may depend on it.
pub(super) fn check_used(form: &EntryForm, attributes: &CaseAttributes) -> Result<(), NotReplayable> {
    match attributes.iter().find(|(column, _)| !form.uses_attribute(column)) {
        Some((column, value)) => {
            let why = format!("`{column}` is recorded as {value}, which the call does not use");
            Err(NotReplayable::NotCovered(why))
        }
        None => Ok(()),
    }
}

/// Checks recorded attributes that follow from the shapes and other attributes.
pub(super) fn check_implied(
    form: &EntryForm,
    bindings: &Bindings,
    attributes: &CaseAttributes,
) -> Result<(), NotReplayable> {
    for (column, value) in &form.implied {
        if let Some(recorded) = attributes.get(column) {
            let agrees = agrees_with(value, recorded, bindings);
            agrees.map_err(|expected| contradiction(format!("`{column}` is {recorded}, not {expected}")))?;
        }
    }
    Ok(())
}

/// Compares a recorded value with the implied one; the error is the implied one.
fn agrees_with(value: &ImpliedValue, recorded: &str, bindings: &Bindings) -> Result<(), String> {
    let items = |expr: &Expr| {
        expr.evaluate_as(bindings, ExprValue::to_items).map_err(|error| format!("known: {error}"))
    };
    match value {
        ImpliedValue::Ignored => Ok(()),
        ImpliedValue::Text(text) if text == recorded => Ok(()),
        ImpliedValue::Text(text) => Err(text.clone()),
        ImpliedValue::Expression(expr) => {
            let text = Dims(&items(expr)?).to_string();
            if text == recorded { Ok(()) } else { Err(format!("{text}, which is `{expr}`")) }
        }
        ImpliedValue::Mean(expr) => {
            let items = items(expr)?;
            #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
            let mean = items.iter().map(|item| *item as f64).sum::<f64>() / items.len().max(1) as f64;
            if is_mean(recorded, mean) { Ok(()) } else { Err(format!("{mean:.6}, the mean of `{expr}`")) }
        }
    }
}

/// Returns true for a mean that was rounded, or cut after its last digit.
fn is_mean(recorded: &str, mean: f64) -> bool {
    let digits = recorded.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unit = 10_f64.powi(-i32::try_from(digits).unwrap_or(i32::MAX));
    recorded.parse::<f64>().is_ok_and(|recorded| (-0.500_001..1.0).contains(&((mean - recorded) / unit)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::is_mean;
    use crate::{
        catalogue::Catalogue,
        config::AssetFiles,
        domain::{Case, CaseAttributes, EP_SIZE, attention_attribute},
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

    #[test]
    fn unused_column_is_named() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let entry = catalogue.entries().find(|entry| entry.kernel.as_str() == "RmsNorm").expect("an entry");
        let mut case = entry.example.clone().expect("an example");
        case.attributes.set("Runtime num_heads", "8");
        let refused = entry.resolve_call(&case).expect_err("it is not used");
        assert_eq!(refused.to_string(), "`Runtime num_heads` is recorded as 8, which the call does not use");
    }

    #[test]
    fn means_may_be_rounded_or_cut() {
        for recorded in ["3517.714286", "3517.71", "3517.7", "3518", "3517"] {
            assert!(is_mean(recorded, 24624.0 / 7.0), "{recorded}");
        }
        for recorded in ["3516", "3519", "3517.5", "3517.714288", "mean", ""] {
            assert!(!is_mean(recorded, 24624.0 / 7.0), "{recorded}");
        }
    }
}
